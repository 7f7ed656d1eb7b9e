"""Layers of `torch.nn` that a pickled ``Sequential`` holds, as calls of ATen ops.

A handler takes the input, then the layer's attributes by name; defaults are what torch assumes for
pickles from before an attribute existed. An attribute that no handler names is an error. `own` are
the layer's tensors.
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

# Attributes of every layer that have no meaning for inference, or that torch computes anew.
IGNORED = frozenset((
    "training", "class", "_is_full_backward_hook", "_reversed_padding_repeated_twice", "_backend",
    "_flat_weights_names", "_all_weights", "_flat_weights", "_version", "_param_buf_size",
    "_data_ptrs", "call_super_init", "dump_patches", "_compiled_call_impl", "_flat_weight_refs",
    "_is_hf_initialized", "_non_persistent_buffers_set", "_weights_have_changed",
))  # fmt: skip


LAYERS = OpTable(
    Row, __package__, ("activation_layers",), leading=3, is_ignored=IGNORED.__contains__
)
layer = LAYERS.enter  # ``@layer("ReLU")``: classes by name, whatever module of torch.nn they are in
Own = Mapping[str, Reference]  # a layer's tensors, by their own names
Call = Callable[..., ProgramValue]  # an op's name and its arguments
RANKS = (1, 2, 3)


def _tuple(value: Any, count: int) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value] * count


# -- convolutions and products ---------------------------------------------------------------------


def _pad(
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
        x, amounts = _pad(call, x, both, padding_mode), [0] * rank
    return call(
        f"conv{rank}d", x, weight, bias, _tuple(stride, rank), amounts, _tuple(dilation, rank),
        groups,
    )  # fmt: skip


@layer("Linear", "NonDynamicallyQuantizableLinear")
def linear(
    call: Call, own: Own, x: ProgramValue, *, in_features: int, out_features: int
) -> ProgramValue:
    """`x @ weight.T + bias`."""
    del in_features, out_features  # the weights say them
    return call("linear", x, own["weight"], own.get("bias"))


@layer("Embedding")
def embedding(
    call: Call, own: Own, x: ProgramValue, *, num_embeddings: int, embedding_dim: int,
    padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> ProgramValue:  # fmt: skip
    """Rows of the weights, by index."""
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
    """(x - mean) / sqrt(variance + eps), with the running statistics."""
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
    """`x / sqrt(mean(x * x) + eps)` over the last axes."""
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
    """The maximum of each window."""
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
    """The mean or maximum of as many windows as asked for."""
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
    """The input with several axes merged into one."""
    del own
    return call("flatten", x, start_dim, end_dim)


@layer("Unflatten")
def unflatten(
    call: Call, own: Own, x: ProgramValue, *, dim: int, unflattened_size: Any
) -> ProgramValue:
    """The input with one axis split into several."""
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
    """The input padded at both ends of the last axes."""
    del own
    return _pad(call, x, _tuple(padding, 2 * rank), mode, value)


@layer("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d")
def upsample(
    call: Call, own: Own, x: ProgramValue, *, mode: str, size: Any = None, scale_factor: Any = None,
    align_corners: bool | None = None, recompute_scale_factor: bool | None = True, name: str = "",
) -> ProgramValue:  # fmt: skip
    """Resizing; pickles from before torch 1.6 recompute the factor from the size."""
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
    """Channels rearranged into blocks of pixels."""
    del own
    return call("pixel_shuffle", x, upscale_factor)


@layer("PixelUnshuffle")
def pixel_unshuffle(
    call: Call, own: Own, x: ProgramValue, *, downscale_factor: int
) -> ProgramValue:
    """Blocks of pixels rearranged into channels."""
    del own
    return call("pixel_unshuffle", x, downscale_factor)


@layer("ChannelShuffle")
def channel_shuffle(call: Call, own: Own, x: ProgramValue, *, groups: int) -> ProgramValue:
    """Channels interleaved across groups."""
    del own
    return call("channel_shuffle", x, groups)


@layer("LocalResponseNorm")
def local_response_norm(
    call: Call, own: Own, x: ProgramValue, *, size: int, alpha: float = 1e-4, beta: float = 0.75,
    k: float = 1.0,
) -> ProgramValue:  # fmt: skip
    """`x / (k + alpha * mean(x * x)) ** beta`, the mean over neighbouring channels."""
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


# -- recurrent layers ------------------------------------------------------------------------------


@layer("LSTM", "GRU", "RNN")
def recurrent(
    call: Call, own: Own, x: ProgramValue, *, mode: str, input_size: int, hidden_size: int,
    num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0,
    bidirectional: bool = False, proj_size: int = 0, nonlinearity: str = "tanh",
    dropout_state: Any = None,
) -> ProgramValue:  # fmt: skip
    """A recurrent layer with zeros as first states; returns a tuple, as in torch."""
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
    """Return the batch size of a sequence as a list, which is empty without a batch."""
    if x.read().rank != 3:
        return []
    return [call("size", x, 0 if batch_first else 1)]
