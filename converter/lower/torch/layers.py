"""Layers of `torch.nn` that a pickled ``Sequential`` holds, as calls of the ops that they make.

A handler takes the input, then the layer's attributes by name, with the values that torch gives to
pickles of before they were there. What no handler names is an error. `own` are the layer's tensors.
Spec: https://github.com/pytorch/pytorch/tree/v2.13.0/torch/nn/modules
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from converter.lower.table import OpTable, Row, Variant
from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.program_values import ProgramValue
from converter.lower.torch.script.ops import NUMBERS
from converter.lower.torch.script.values import Items, Unknown
from converter.lower.unsupported import Unsupported

# What every layer has: whether it trains, and what torch computes of it anew.
IGNORED = frozenset((
    "training", "class", "_is_full_backward_hook", "_reversed_padding_repeated_twice", "_backend",
    "_flat_weights_names", "_all_weights", "_flat_weights", "_version", "_param_buf_size",
    "_data_ptrs", "call_super_init", "dump_patches", "_compiled_call_impl", "_flat_weight_refs",
    "_is_hf_initialized", "_non_persistent_buffers_set", "_weights_have_changed",
))  # fmt: skip


LAYERS = OpTable(Row, leading=3, is_ignored=IGNORED.__contains__)
layer = LAYERS.enter  # ``@layer("ReLU")``: classes by name, whatever module of torch.nn they are in
Own = Mapping[str, Reference]  # a layer's tensors, by their own names
Call = Callable[..., ProgramValue]  # an op's name and its arguments
RANKS = (1, 2, 3)


def _tuple(value: Any, count: int) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value] * count


# -- convolutions and products ---------------------------------------------------------------------


def _padded(
    call: Call, x: ProgramValue, padding: Sequence[Any], mode: str, value: float = 0.0
) -> ProgramValue:
    """Pad as ``torch.nn.functional.pad`` does; the last axis first."""
    rank = len(padding) // 2
    if not any(padding):
        return x
    if mode == "constant":
        return call("constant_pad_nd", x, list(padding), value)
    kinds = {"reflect": "reflection", "replicate": "replication"}
    if mode not in kinds:
        raise Unsupported(f"padding mode {mode!r}")
    return call(f"{kinds[mode]}_pad{rank}d", x, list(padding))


@layer(*(Variant((f"Conv{n}d", f"ConvTranspose{n}d"), rank=n) for n in RANKS))
def convolution(
    call: Call, own: Own, x: ProgramValue, *, rank: int, stride: Any, padding: Any, dilation: Any,
    groups: int, transposed: bool, output_padding: Any, in_channels: int, out_channels: int,
    kernel_size: Any, padding_mode: str = "zeros",
) -> ProgramValue:  # fmt: skip
    """A convolution."""
    del in_channels, out_channels, kernel_size  # the weights say them
    weight, bias = own["weight"], own.get("bias")
    if transposed:
        if padding_mode != "zeros":
            raise Unsupported(f"padding mode {padding_mode!r} of a transposed convolution")
        return call(
            f"conv_transpose{rank}d", x, weight, bias, _tuple(stride, rank),
            _tuple(padding, rank), _tuple(output_padding, rank), groups,
            _tuple(dilation, rank),
        )  # fmt: skip
    amounts = padding if isinstance(padding, str) else _tuple(padding, rank)
    if padding_mode != "zeros":
        if isinstance(amounts, str):
            raise Unsupported(f"padding {amounts!r} of mode {padding_mode!r}")
        both = [n for n in reversed(amounts) for _ in range(2)]
        x, amounts = _padded(call, x, both, padding_mode), [0] * rank
    return call(
        f"conv{rank}d", x, weight, bias, _tuple(stride, rank), amounts, _tuple(dilation, rank),
        groups,
    )  # fmt: skip


@layer("Linear", "NonDynamicallyQuantizableLinear")
def linear(
    call: Call, own: Own, x: ProgramValue, *, in_features: int, out_features: int
) -> ProgramValue:
    """X W' + b."""
    del in_features, out_features  # the weights say them
    return call("linear", x, own["weight"], own.get("bias"))


@layer("Embedding")
def embedding(
    call: Call, own: Own, x: ProgramValue, *, num_embeddings: int, embedding_dim: int,
    padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> ProgramValue:  # fmt: skip
    """Rows of the weights."""
    del num_embeddings, embedding_dim, padding_idx, norm_type, scale_grad_by_freq, sparse
    if max_norm is not None:
        raise Unsupported("max_norm")
    return call("embedding", own["weight"], x)


# -- normalization ---------------------------------------------------------------------------------


@layer("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm")
def batch_norm(
    call: Call, own: Own, x: ProgramValue, *, num_features: int, eps: float, momentum: float | None,
    affine: bool, track_running_stats: bool = True, process_group: None = None,
    ddp_gpu_size: int | None = None,
) -> ProgramValue:  # fmt: skip
    """(x - mean) / sqrt(variance + eps), by the statistics of training."""
    del num_features, affine, track_running_stats, process_group, ddp_gpu_size
    mean, variance = own.get("running_mean"), own.get("running_var")
    return call(
        "batch_norm", x, own.get("weight"), own.get("bias"), mean, variance,
        mean is None and variance is None, 0.1 if momentum is None else momentum, eps,
        cudnn_enabled=True,
    )  # fmt: skip


@layer("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d")
def instance_norm(
    call: Call, own: Own, x: ProgramValue, *, num_features: int, eps: float, momentum: float | None,
    affine: bool, track_running_stats: bool = False,
) -> ProgramValue:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) of each channel of each example."""
    del num_features, affine
    mean, variance = own.get("running_mean"), own.get("running_var")
    return call(
        "instance_norm", x, own.get("weight"), own.get("bias"), mean, variance,
        not track_running_stats, 0.1 if momentum is None else momentum, eps, cudnn_enabled=True,
    )  # fmt: skip


@layer("LayerNorm")
def layer_norm(
    call: Call, own: Own, x: ProgramValue, *, normalized_shape: Sequence[int], eps: float,
    elementwise_affine: bool = True,
) -> ProgramValue:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) over the last axes."""
    del elementwise_affine
    shape = list(normalized_shape)
    return call("layer_norm", x, shape, own.get("weight"), own.get("bias"), eps)


@layer("RMSNorm")
def rms_norm(
    call: Call,
    own: Own,
    x: ProgramValue,
    *,
    normalized_shape: Sequence[int],
    eps: float | None = None,
    elementwise_affine: bool = True,
) -> ProgramValue:
    """X / sqrt(mean of squares + eps) over the last axes."""
    del elementwise_affine
    return call("rms_norm", x, list(normalized_shape), own.get("weight"), eps)


@layer("GroupNorm")
def group_norm(
    call: Call, own: Own, x: ProgramValue, *, num_groups: int, num_channels: int, eps: float,
    affine: bool = True,
) -> ProgramValue:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) over groups of channels."""
    del num_channels, affine
    return call("group_norm", x, num_groups, own.get("weight"), own.get("bias"), eps)


# -- pooling ---------------------------------------------------------------------------------------


@layer(*(Variant(f"MaxPool{n}d", rank=n) for n in RANKS))
def max_pool(
    call: Call, own: Own, x: ProgramValue, *, rank: int, kernel_size: Any, stride: Any = None,
    padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> ProgramValue:  # fmt: skip
    """The largest of each window."""
    del own
    name = f"max_pool{rank}d_with_indices" if return_indices else f"max_pool{rank}d"
    kernel = _tuple(kernel_size, rank)
    return call(
        name, x, kernel, kernel if stride is None else _tuple(stride, rank),
        _tuple(padding, rank), _tuple(dilation, rank), ceil_mode,
    )  # fmt: skip


@layer(*(Variant(f"AvgPool{n}d", rank=n) for n in RANKS))
def average_pool(
    call: Call, own: Own, x: ProgramValue, *, rank: int, kernel_size: Any, stride: Any = None,
    padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> ProgramValue:  # fmt: skip
    """The mean of each window."""
    del own
    kernel = _tuple(kernel_size, rank)
    more = [divisor_override] if rank > 1 else []
    return call(
        f"avg_pool{rank}d", x, kernel, kernel if stride is None else _tuple(stride, rank),
        _tuple(padding, rank), ceil_mode, count_include_pad, *more,
    )  # fmt: skip


@layer(
    *(Variant(f"AdaptiveAvgPool{n}d", kind="avg", rank=n) for n in RANKS),
    *(Variant(f"AdaptiveMaxPool{n}d", kind="max", rank=n) for n in RANKS),
)
def adaptive_pool(
    call: Call, own: Own, x: ProgramValue, *, kind: str, rank: int, output_size: Any,
    return_indices: bool = False,
) -> ProgramValue:  # fmt: skip
    """Pooling to a size."""
    del own
    size = [
        call("size", x, i - rank) if n is None else n
        for i, n in enumerate(_tuple(output_size, rank))
    ]
    made = call(f"adaptive_{kind}_pool{rank}d", x, size)
    if kind == "max" and isinstance(made, list | tuple):
        return made if return_indices else made[0]
    return made


# -- shapes ----------------------------------------------------------------------------------------


@layer("Flatten")
def flatten(
    call: Call, own: Own, x: ProgramValue, *, start_dim: int = 1, end_dim: int = -1
) -> ProgramValue:
    """Several axes as one."""
    del own
    return call("flatten", x, start_dim, end_dim)


@layer("Unflatten")
def unflatten(
    call: Call, own: Own, x: ProgramValue, *, dim: int, unflattened_size: Any
) -> ProgramValue:
    """One axis as several."""
    del own
    return call("unflatten", x, dim, list(unflattened_size))


@layer(
    *(Variant((f"ZeroPad{n}d", f"ConstantPad{n}d"), mode="constant", rank=n) for n in RANKS),
    *(Variant(f"ReflectionPad{n}d", mode="reflect", rank=n) for n in RANKS),
    *(Variant(f"ReplicationPad{n}d", mode="replicate", rank=n) for n in RANKS),
)
def pad(
    call: Call, own: Own, x: ProgramValue, *, mode: str, rank: int, padding: Any, value: float = 0.0
) -> ProgramValue:
    """More at both ends of the last axes."""
    del own
    return _padded(call, x, _tuple(padding, 2 * rank), mode, value)


@layer("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d")
def upsample(
    call: Call, own: Own, x: ProgramValue, *, mode: str, size: Any = None, scale_factor: Any = None,
    align_corners: bool | None = None, recompute_scale_factor: bool | None = True, name: str = "",
) -> ProgramValue:  # fmt: skip
    """Resizing; pickles of before torch 1.6 compute the factor anew from the size."""
    del own, name
    spatial = x.read().rank - 2
    kinds = {"nearest": "nearest", "linear": "linear", "bilinear": "bilinear",
             "trilinear": "trilinear", "bicubic": "bicubic"}  # fmt: skip
    if mode not in kinds or not 1 <= spatial <= 3:
        raise Unsupported(f"mode {mode!r}")
    factors = None if scale_factor is None else [float(n) for n in _tuple(scale_factor, spatial)]
    sizes = None if size is None else _tuple(size, spatial)
    if factors is not None and recompute_scale_factor:
        shape = x.read().shape[2:]
        if not all(isinstance(n, int) for n in shape):
            raise Unsupported("a scale factor that is computed anew from a size that varies")
        known = [n for n in shape if isinstance(n, int)]
        sizes = [int(n * f) for n, f in zip(known, factors, strict=True)]
        factors = None
    rest = [] if mode == "nearest" else [bool(align_corners)]
    return call(f"upsample_{mode}{spatial}d", x, sizes, *rest, factors)


@layer("PixelShuffle")
def pixel_shuffle(call: Call, own: Own, x: ProgramValue, *, upscale_factor: int) -> ProgramValue:
    """Channels as blocks of pixels."""
    del own
    return call("pixel_shuffle", x, upscale_factor)


@layer("PixelUnshuffle")
def pixel_unshuffle(
    call: Call, own: Own, x: ProgramValue, *, downscale_factor: int
) -> ProgramValue:
    """Blocks of pixels as channels."""
    del own
    return call("pixel_unshuffle", x, downscale_factor)


@layer("ChannelShuffle")
def channel_shuffle(call: Call, own: Own, x: ProgramValue, *, groups: int) -> ProgramValue:
    """Channels of groups taken in turn."""
    del own
    return call("channel_shuffle", x, groups)


@layer("LocalResponseNorm")
def local_response_norm(
    call: Call, own: Own, x: ProgramValue, *, size: int, alpha: float = 1e-4, beta: float = 0.75,
    k: float = 1.0,
) -> ProgramValue:  # fmt: skip
    """X / (k + alpha * mean of squares over near channels) ** beta."""
    del own
    rank = x.read().rank
    if rank < 3:
        raise Unsupported(f"{rank} axes")
    squares = call("unsqueeze", call("mul", x, x), 1)
    before, after = size // 2, (size - 1) // 2
    if rank == 3:
        padded = call("constant_pad_nd", squares, [0, 0, before, after], 0.0)
        mean = call("avg_pool2d", padded, [size, 1], [1, 1])
    elif rank == 4:
        padded = call("constant_pad_nd", squares, [0, 0, 0, 0, before, after], 0.0)
        mean = call("avg_pool3d", padded, [size, 1, 1], [1, 1, 1])
    else:
        raise Unsupported(f"{rank} axes")
    total = call("add", call("mul", call("squeeze", mean, 1), alpha), k)
    return call("div", x, call("pow", total, beta))


# -- element by element ----------------------------------------------------------------------------


@layer(
    "Identity", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout",
    "FeatureAlphaDropout",
)  # fmt: skip
def identity(
    call: Call, own: Own, x: ProgramValue, *, p: float = 0.5, inplace: bool = False
) -> ProgramValue:
    """X itself, when not training."""
    del call, own, p, inplace
    return x


@layer(
    Variant("Sigmoid", "sigmoid of each element.", op="sigmoid"),
    Variant("Tanh", "tanh of each element.", op="tanh"),
    Variant("SiLU", "silu of each element.", op="silu"),
    Variant("Mish", "mish of each element.", op="mish"),
    Variant("Hardswish", "hardswish of each element.", op="hardswish"),
    Variant("Hardsigmoid", "hardsigmoid of each element.", op="hardsigmoid"),
    Variant("SELU", "selu of each element.", op="selu"),
    Variant("LogSigmoid", "log_sigmoid of each element.", op="log_sigmoid"),
)
def activation(
    call: Call, own: Own, x: ProgramValue, *, op: str, inplace: bool = False
) -> ProgramValue:
    """A function of each element."""
    del own, inplace  # nothing else reads the input
    return call(op, x)


@layer("ReLU")
def relu(
    call: Call, own: Own, x: ProgramValue, *, inplace: bool = False, threshold: float = 0,
    value: float = 0,
) -> ProgramValue:  # fmt: skip
    """The larger of x and 0; before torch 1.0 it was a threshold."""
    del own, inplace
    if threshold or value:
        raise Unsupported(f"threshold {threshold}, value {value}")
    return call("relu", x)


@layer("GELU")
def gelu(call: Call, own: Own, x: ProgramValue, *, approximate: str = "none") -> ProgramValue:
    """X times the normal distribution's integral to x."""
    del own
    return call("gelu", x, approximate=approximate)


@layer("ELU")
def elu(
    call: Call, own: Own, x: ProgramValue, *, alpha: float = 1.0, inplace: bool = False
) -> ProgramValue:
    """X where x > 0, else alpha * (exp(x) - 1)."""
    del own, inplace
    return call("elu", x, alpha)


@layer("CELU")
def celu(
    call: Call, own: Own, x: ProgramValue, *, alpha: float = 1.0, inplace: bool = False
) -> ProgramValue:
    """Max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    del own, inplace
    return call("celu", x, alpha)


@layer("LeakyReLU")
def leaky_relu(
    call: Call, own: Own, x: ProgramValue, *, negative_slope: float = 0.01, inplace: bool = False
) -> ProgramValue:
    """X where x > 0, else x times a slope."""
    del own, inplace
    return call("leaky_relu", x, negative_slope)


@layer("RReLU")
def rrelu(
    call: Call, own: Own, x: ProgramValue, *, lower: float = 1 / 8, upper: float = 1 / 3,
    inplace: bool = False,
) -> ProgramValue:  # fmt: skip
    """X where x > 0, else x times the mean slope."""
    del own, inplace
    return call("leaky_relu", x, (lower + upper) / 2)


@layer("PReLU")
def prelu(
    call: Call, own: Own, x: ProgramValue, *, num_parameters: int = 1, init: float = 0.25
) -> ProgramValue:
    """X where x > 0, else x times its channel's slope."""
    del num_parameters, init
    return call("prelu", x, own["weight"])


@layer("Hardtanh")
def hardtanh(
    call: Call, own: Own, x: ProgramValue, *, min_val: float = -1.0, max_val: float = 1.0,
    inplace: bool = False,
) -> ProgramValue:  # fmt: skip
    """X between two bounds."""
    del own, inplace
    return call("hardtanh", x, min_val, max_val)


# Before torch 1.0 a ReLU6 was a Hardtanh with its bounds.
@layer("ReLU6")
def relu6(
    call: Call, own: Own, x: ProgramValue, *, min_val: float = 0.0, max_val: float = 6.0,
    inplace: bool = False,
) -> ProgramValue:  # fmt: skip
    """X between 0 and 6."""
    return hardtanh(call, own, x, min_val=min_val, max_val=max_val, inplace=inplace)


@layer("Threshold")
def threshold(
    call: Call, own: Own, x: ProgramValue, *, threshold: float, value: float, inplace: bool = False
) -> ProgramValue:
    """X where it is above a threshold, else a value."""
    del own, inplace
    return call("threshold", x, threshold, value)


@layer("Softplus")
def softplus(
    call: Call, own: Own, x: ProgramValue, *, beta: float = 1, threshold: float = 20
) -> ProgramValue:
    """Log(1 + exp(beta * x)) / beta."""
    del own
    return call("softplus", x, beta, threshold)


@layer("Softshrink")
def softshrink(call: Call, own: Own, x: ProgramValue, *, lambd: float = 0.5) -> ProgramValue:
    """X moved towards 0 by lambda."""
    del own
    return call("softshrink", x, lambd)


@layer("Hardshrink")
def hardshrink(call: Call, own: Own, x: ProgramValue, *, lambd: float = 0.5) -> ProgramValue:
    """X where it is further from 0 than lambda."""
    del own
    return call("hardshrink", x, lambd)


@layer("Softsign")
def softsign(call: Call, own: Own, x: ProgramValue) -> ProgramValue:
    """X / (1 + |x|)."""
    del own
    return call("div", x, call("add", call("abs", x), 1))


@layer("Tanhshrink")
def tanhshrink(call: Call, own: Own, x: ProgramValue) -> ProgramValue:
    """X - tanh(x)."""
    del own
    return call("sub", x, call("tanh", x))


@layer("GLU")
def glu(call: Call, own: Own, x: ProgramValue, *, dim: int = -1) -> ProgramValue:
    """One half times the sigmoid of the other."""
    del own
    return call("glu", x, dim)


@layer(Variant("Softmax", op="softmax"), Variant("LogSoftmax", op="log_softmax"))
def softmax(
    call: Call, own: Own, x: ProgramValue, *, op: str, dim: int | None = None
) -> ProgramValue:
    """Softmax along an axis, or its logarithm."""
    del own
    # Without an axis: as torch.nn.functional._get_softmax_dim has it.
    axis = dim if dim is not None else (0 if x.read().rank in (0, 1, 3) else 1)
    return call(op, x, axis)


@layer("Softmin")
def softmin(call: Call, own: Own, x: ProgramValue, *, dim: int | None = None) -> ProgramValue:
    """Softmax of -x."""
    return softmax(call, own, call("neg", x), op="softmax", dim=dim)


@layer("Softmax2d")
def softmax_2d(call: Call, own: Own, x: ProgramValue) -> ProgramValue:
    """Softmax along the channels."""
    del own
    return call("softmax", x, -3)


# -- recurrent layers ------------------------------------------------------------------------------


@layer("LSTM", "GRU", "RNN")
def recurrent(
    call: Call, own: Own, x: ProgramValue, *, mode: str, input_size: int, hidden_size: int,
    num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0,
    bidirectional: bool = False, proj_size: int = 0, nonlinearity: str = "tanh",
    dropout_state: Any = None,
) -> ProgramValue:  # fmt: skip
    """A recurrent layer that starts from zeros; what it returns is a tuple, as torch's."""
    del input_size, dropout, dropout_state, nonlinearity  # `mode` says the last
    names = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu"}
    if mode not in names:
        raise Unsupported(f"mode {mode!r}")
    ways = 2 if bidirectional else 1
    weights = []
    for n in range(num_layers):
        for suffix in ("", "_reverse")[:ways]:
            roles = ["weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if bias else ())]
            roles += ["weight_hr"] if proj_size else []
            weights += [own[f"{role}_l{n}{suffix}"] for role in roles]
    zeros = cell = None
    if isinstance(x, Reference):
        value = x.read()
        shape = [num_layers * ways, *_batch(call, x, batch_first=batch_first)]
        dtype = NUMBERS[value.dtype]
        zeros = cell = call("zeros", [*shape, proj_size or hidden_size], dtype=dtype)
        if mode == "LSTM" and proj_size:
            cell = call("zeros", [*shape, hidden_size], dtype=dtype)
    made = call(
        names[mode], x, Items([zeros, cell]) if mode == "LSTM" else zeros, Items(weights), bias,
        num_layers, 0.0, train=False, bidirectional=bidirectional, batch_first=batch_first,
    )  # fmt: skip
    if isinstance(made, Unknown):
        return made
    return (made[0], (made[1], made[2])) if mode == "LSTM" else (made[0], made[1])


def _batch(call: Call, x: Reference, *, batch_first: bool) -> list[ProgramValue]:
    """Return the size of a sequence's batch, if it has one."""
    if x.read().rank != 3:
        return []
    return [call("size", x, 0 if batch_first else 1)]
