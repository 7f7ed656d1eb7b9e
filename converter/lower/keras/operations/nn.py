"""Operations of neural networks: activations, convolution, pooling, normalization, attention.

Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/ops/nn.py
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.keras.activations import FUNCTIONS
from converter.lower.keras.attention import dot_product
from converter.lower.keras.convolution import depthwise
from converter.lower.keras.operations.operands import Axes, all_axes, as_float, known_size, tensor
from converter.lower.keras.operations.products import norm
from converter.lower.keras.operations.reductions import mean, variance
from converter.lower.keras.pooling import adaptive_average_pooling, adaptive_max_pooling
from converter.lower.keras.table import OPERATIONS, Roles, Unsupported, operation
from converter.lower.known_values import real
from converter.lower.ops import activation as activations
from converter.lower.ops import norm as normalization
from converter.lower.ops.conv import as_given, channels_first, convolve, numbers
from converter.lower.ops.pool import pool
from converter.lower.ops.quantize import fake_quantize
from converter.lower.table import Variant
from converter.lower.values import Value, total

EPSILON = 1e-7  # keras.config.epsilon()

# -- activations -----------------------------------------------------------------------------------

# fmt: off
ACTIVATIONS = {
    "HardSigmoid": "hard_sigmoid", "HardSilu": "hard_silu", "HardTanh": "hard_tanh",
    "LogSigmoid": "log_sigmoid", "Mish": "mish", "Relu": "relu", "Relu6": "relu6", "Selu": "selu",
    "Sigmoid": "sigmoid", "Silu": "silu", "Softplus": "softplus", "Softsign": "softsign",
    "SparsePlus": "sparse_plus", "SparseSigmoid": "sparse_sigmoid", "TanhShrink": "tanh_shrink",
}
# fmt: on


@operation(
    OPERATIONS,
    *(
        Variant(name, FUNCTIONS[function].__doc__ or f"{function}(x).", function=function)
        for (name, function) in ACTIVATIONS.items()
    ),
)
def activation(op: Builder, x: Any, *, function: str) -> Value:
    """An activation; integers are cast to floating point first."""
    value = tensor(op, x)
    integers = not value.is_float and function not in ("relu", "relu6")
    return FUNCTIONS[function](op, as_float(op, x) if integers else value)


@operation(OPERATIONS, "ReLU")
def relu(
    op: Builder, x: Any, *,
    negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0,
) -> Value:  # fmt: skip
    """max_value if x >= max_value; x if threshold <= x; else negative_slope * (x - threshold)."""
    return activations.relu(op, as_float(op, x), negative_slope, max_value, threshold)


@operation(OPERATIONS, "LeakyRelu")
def leaky_relu(op: Builder, x: Any, *, negative_slope: float = 0.2) -> Value:
    """`x if x > 0 else negative_slope * x`."""
    return activations.leaky_relu(op, as_float(op, x), negative_slope)


@operation(OPERATIONS, "Elu")
def elu(op: Builder, x: Any, *, alpha: float = 1.0) -> Value:
    """`x if x > 0 else alpha * (exp(x) - 1)`."""
    return activations.elu(op, as_float(op, x), alpha)


@operation(OPERATIONS, "Celu")
def celu(op: Builder, x: Any, *, alpha: float = 1.0) -> Value:
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)."""
    return activations.celu(op, as_float(op, x), alpha)


@operation(OPERATIONS, "Gelu")
def gelu(op: Builder, x: Any, *, approximate: bool = True) -> Value:
    """`x * P(X <= x)` for standard normal X, exactly or approximated by tanh."""
    return activations.gelu(op, as_float(op, x), approximate)


@operation(OPERATIONS, "Glu")
def glu(op: Builder, x: Any, *, axis: int = -1) -> Value:
    """`a * sigmoid(b)` for the halves a and b of x."""
    return activations.glu(op, as_float(op, x), axis)


@operation(OPERATIONS, "HardShrink")
def hard_shrink(op: Builder, x: Any, *, threshold: float = 0.5) -> Value:
    """Values beyond the threshold; 0 within it."""
    return activations.hard_shrink(op, as_float(op, x), threshold)


@operation(OPERATIONS, "SoftShrink")
def soft_shrink(op: Builder, x: Any, *, threshold: float = 0.5) -> Value:
    """Values moved towards zero by the threshold; 0 within it."""
    return activations.soft_shrink(op, as_float(op, x), threshold)


@operation(OPERATIONS, "Squareplus")
def squareplus(op: Builder, x: Any, *, b: float = 4.0) -> Value:
    """(x + sqrt(x * x + b)) / 2."""
    return activations.squareplus(op, as_float(op, x), b)


@operation(OPERATIONS, "Threshold")
def threshold_(op: Builder, x: Any, *, threshold: float, default_value: float) -> Value:
    """`x if x > threshold else default_value`."""
    return activations.threshold(op, as_float(op, x), threshold, default_value)


@operation(OPERATIONS, "Softmax")
def softmax(op: Builder, x: Any, *, axis: Axes = -1) -> Value:
    """exp(x) / sum(exp(x)) over an axis, or several, or all."""
    value = as_float(op, x)
    return activations.softmax(op, value, axis if isinstance(axis, int) else all_axes(value, axis))


@operation(OPERATIONS, "LogSoftmax")
def log_softmax(op: Builder, x: Any, *, axis: Axes = -1) -> Value:
    """`x - log(sum(exp(x)))` over an axis, or several, or all."""
    value = as_float(op, x)
    axes = axis if isinstance(axis, int) else all_axes(value, axis)
    return activations.log_softmax(op, value, axes)


@operation(OPERATIONS, "Sparsemax")
def sparsemax(op: Builder, x: Any, *, axis: int = -1) -> Value:
    """`max(x - tau, 0)` (sparsemax), with the tau of Keras."""
    return activations.sparsemax(op, as_float(op, x), axis)


# -- convolution and pooling -----------------------------------------------------------------------


@operation(OPERATIONS, "Conv")
def conv(
    op: Builder, inputs: Any, kernel: Any, *,
    strides: Any = 1, padding: str = "valid", data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Value:  # fmt: skip
    """Convolution; the number of groups follows from the kernel's channels."""
    image, weight = tensor(op, inputs), tensor(op, kernel)
    channels = known_size(image, 1 if data_format == "channels_first" else -1, "a convolution")
    return convolve(
        op, image, weight, None, strides=strides, padding=padding, data_format=data_format,
        dilations=dilation_rate, groups=channels // known_size(weight, -2, "a convolution"),
    )  # fmt: skip


@operation(OPERATIONS, "DepthwiseConv")
def depthwise_conv(
    op: Builder, inputs: Any, kernel: Any, *,
    strides: Any = 1, padding: str = "valid", data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Value:  # fmt: skip
    """Depthwise convolution."""
    return depthwise(
        op, tensor(op, inputs), tensor(op, kernel), None, strides, padding, data_format,
        dilation_rate,
    )  # fmt: skip


@operation(OPERATIONS, "SeparableConv")
def separable_conv(
    op: Builder, inputs: Any, depthwise_kernel: Any, pointwise_kernel: Any, *,
    strides: Any = 1, padding: str = "valid", data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Value:  # fmt: skip
    """Separable convolution: depthwise, then pointwise."""
    inner = depthwise(
        op, tensor(op, inputs), tensor(op, depthwise_kernel), None, strides, padding, data_format,
        dilation_rate,
    )  # fmt: skip
    return convolve(
        op, inner, tensor(op, pointwise_kernel), None, strides=1, padding="valid",
        data_format=data_format, dilations=1,
    )  # fmt: skip


@operation(
    OPERATIONS,
    Variant("MaxPool", "The maximum of each window.", op_type="MaxPool"),
    Variant("AveragePool", "The mean of each window.", op_type="AveragePool"),
)
def pool_windows(
    op: Builder, inputs: Any, *, op_type: str, pool_size: Any, strides: Any = None,
    padding: str = 'valid', data_format: str | None = None,
) -> Value:  # fmt: skip
    """Pooling of windows."""
    return pool(
        op, tensor(op, inputs), op_type, pool_size=pool_size, strides=strides,
        padding=padding.lower(), data_format=data_format,
    )  # fmt: skip


@operation(OPERATIONS, "AdaptiveMaxPool")
def adaptive_max_pool(
    op: Builder, inputs: Any, *, output_size: Any, data_format: str | None = None
) -> Value:
    """Adaptive max pooling."""
    value = tensor(op, inputs)
    none = Roles(op, "", {})
    return adaptive_max_pooling(op, none, value, output_size=output_size, data_format=data_format)


@operation(OPERATIONS, "AdaptiveAveragePool")
def adaptive_average_pool(
    op: Builder, inputs: Any, *, output_size: Any, data_format: str | None = None
) -> Value:
    """The mean of each of as many windows as are wanted."""
    value, none = tensor(op, inputs), Roles(op, "", {})
    return adaptive_average_pooling(
        op, none, value, output_size=output_size, data_format=data_format
    )


def blocks(op: Builder, x: Value, size: int, data_format: str | None, *, to_space: bool) -> Value:
    """Move blocks of channels into space, or back; channels of a block are apart the furthest."""
    image = channels_first(op, x, data_format)
    n, c, h, w = image.shape
    factor = size if to_space else 1 / size
    channels = None if not isinstance(c, int) else int(c / factor**2)
    sides = [int(side * factor) if isinstance(side, int) else None for side in (h, w)]
    shape = (n, channels, *sides)
    if to_space:
        made = op.emit(
            "DepthToSpace", image, dtype=x.dtype, shape=shape, blocksize=size, mode="DCR"
        )
    else:
        made = op.emit("SpaceToDepth", image, dtype=x.dtype, shape=shape, blocksize=size)
    return as_given(op, made, data_format)


@operation(OPERATIONS, "DepthToSpace")
def depth_to_space(
    op: Builder, x: Any, *, block_size: int, data_format: str = "channels_last"
) -> Value:
    """Channels rearranged into blocks of pixels."""
    return blocks(op, tensor(op, x), block_size, data_format, to_space=True)


@operation(OPERATIONS, "SpaceToDepth")
def space_to_depth(
    op: Builder, x: Any, *, block_size: int, data_format: str = "channels_last"
) -> Value:
    """Blocks of pixels rearranged into channels."""
    return blocks(op, tensor(op, x), block_size, data_format, to_space=False)


def windows(
    op: Builder, image: Value, kernel: Sequence[int], stride: Sequence[int],
    dilation: Sequence[int],
) -> Value:  # fmt: skip
    """Return [N, C, kH, outH, kW, outW]: the windows of a channels-first image."""
    result = image
    for i, axis in ((0, 2), (1, 4)):
        size = known_size(result, axis, "windows")
        count = (size - (kernel[i] - 1) * dilation[i] - 1) // stride[i] + 1
        places = np.add.outer(np.arange(kernel[i]) * dilation[i], np.arange(count) * stride[i])
        result = op.gather(result, op.constant(places, "int64"), axis)
    return result


@operation(OPERATIONS, "Unfold")
def unfold(
    op: Builder, x: Any, *, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Value:
    """Windows of channels-first images, as columns."""
    image = tensor(op, x)
    pads = [0, 0, *numbers(padding, 2)]
    image = op.pad(image, pads, pads)
    kernel = numbers(kernel_size, 2)
    cut = windows(op, image, kernel, numbers(stride, 2), numbers(dilation, 2))
    cut = op.transpose(cut, [0, 1, 2, 4, 3, 5])
    return op.reshape(cut, (cut.shape[0], total(cut.shape[1:4]), total(cut.shape[4:])))


@operation(OPERATIONS, "Fold")
def fold(
    op: Builder, x: Any, *,
    output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1,
) -> Value:  # fmt: skip
    """The sum of windows at their positions in a channels-first image."""
    value = tensor(op, x)
    attributes: dict[str, Any] = {
        "dilations": numbers(dilation, 2), "pads": numbers(padding, 2) * 2,
        "strides": numbers(stride, 2),
    }  # fmt: skip
    size, kernel = numbers(output_size, 2), numbers(kernel_size, 2)
    channels = known_size(value, 1, "windows") // (kernel[0] * kernel[1])
    return op.emit(
        "Col2Im", value, op.constant(size, "int64"), op.constant(kernel, "int64"),
        dtype=value.dtype, shape=(value.shape[0], channels, *size), **attributes,
    )  # fmt: skip


# -- normalization ---------------------------------------------------------------------------------


@operation(OPERATIONS, "BatchNorm")
def batch_norm(
    op: Builder, x: Any, mean: Any, variance: Any, offset: Any = None, scale: Any = None, *,
    axis: int, epsilon: float = 1e-3,
) -> Value:  # fmt: skip
    """(x - mean) / sqrt(variance + epsilon) * scale + offset."""
    value = tensor(op, x)
    gamma, beta = (None if v is None else tensor(op, v) for v in (scale, offset))
    middle, spread = tensor(op, mean), tensor(op, variance)
    return normalization.batch_norm(
        op, value, [value.axis(axis)], middle, spread, gamma, beta, epsilon
    )


@operation(OPERATIONS, "LayerNorm")
def layer_norm(
    op: Builder, x: Any, gamma: Any = None, beta: Any = None, *,
    axis: Axes = -1, epsilon: float | None = None, rms_scaling: bool = False,
) -> Value:  # fmt: skip
    """(x - mean(x)) / sqrt(var(x) + epsilon) * gamma + beta, over axes."""
    value = tensor(op, x)
    axes = all_axes(value, axis)
    wide = op.cast(value, "float32") if value.dtype in ("float16", "bfloat16") else value
    least = EPSILON if epsilon is None else epsilon
    scale, offset = (None if v is None else tensor(op, v, wide.dtype) for v in (gamma, beta))
    if rms_scaling:
        spread = variance(op, wide, axis=axes, keepdims=True)
        result = op.div(wide, normalization.deviation(op, spread, least))
        result = normalization.scale_and_shift(op, result, scale, None, axes)
    else:
        result = normalization.layer_norm(op, wide, axes, scale, offset, least)
    return op.cast(result, value.dtype)


@operation(OPERATIONS, "RMSNorm")
def rms_norm(
    op: Builder, x: Any, scale: Any = None, *, axis: Axes = -1, epsilon: float | None = None
) -> Value:
    """`x / sqrt(mean(x * x) + epsilon) * scale`, over axes."""
    value = tensor(op, x)
    axes = all_axes(value, axis)
    wide = op.cast(value, "float32") if value.dtype in ("float16", "bfloat16") else value
    result, _ = normalization.rms_norm(op, wide, axes, EPSILON if epsilon is None else epsilon)
    gamma = None if scale is None else tensor(op, scale)
    return op.cast(normalization.scale_and_shift(op, result, gamma, None, axes), value.dtype)


@operation(OPERATIONS, "Normalize")
def normalize(
    op: Builder, x: Any, *, axis: Axes = -1, order: int = 2, epsilon: float | None = None
) -> Value:
    """`x / max(norm(x), epsilon)`, with a norm of an order over axes."""
    value = as_float(op, x)
    kind = None if order == 2 else order
    length = norm(op, value, ord=kind, axis=all_axes(value, axis), keepdims=True)
    least = op.constant(EPSILON if epsilon is None else epsilon, value.dtype)
    return op.div(value, op.elementwise("Max", length, least))


@operation(OPERATIONS, "Moments")
def moments(
    op: Builder, x: Any, *, axes: Axes, keepdims: bool = False, synchronized: bool = False
) -> list[Value]:
    """Mean and variance over axes."""
    del synchronized
    value = tensor(op, x)
    is_half = value.dtype in ("float16", "bfloat16")
    wide = op.cast(value, "float32") if is_half else value
    found = [f(op, wide, axis=axes, keepdims=keepdims) for f in (mean, variance)]
    return [op.cast(op.clip(v, -65504.0, 65504.0), value.dtype) if is_half else v for v in found]


@operation(OPERATIONS, "PSNR")
def psnr(op: Builder, x1: Any, x2: Any, *, max_val: float) -> Value:
    """20 * log10(max_val) - 10 * log10(mean((x1 - x2) ** 2))."""
    away = op.sub(tensor(op, x1), tensor(op, x2))
    power = mean(op, op.mul(away, away))
    decibels = op.mul(op.unary("Log", power), -10 / float(np.log(10)))
    return op.add(decibels, 20 * float(np.log10(max_val)))


# -- attention -------------------------------------------------------------------------------------


@operation(OPERATIONS, "DotProductAttention")
def dot_product_attention(
    op: Builder, query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None,
    scale: float | None = None, *,
    is_causal: bool = False, flash_attention: bool | None = None,
    attn_logits_soft_cap: float | None = None,
) -> Value:  # fmt: skip
    """`softmax(query @ key * scale + bias) @ value`, with a mask."""
    del flash_attention  # another way to the same numbers
    if attn_logits_soft_cap is not None:
        raise Unsupported("attn_logits_soft_cap")
    q, k, v = (tensor(op, t) for t in (query, key, value))
    size = known_size(k, -1, "attention")
    return dot_product(
        op, q, k, v, scale=size**-0.5 if scale is None else scale,
        bias=None if bias is None else tensor(op, bias, q.dtype),
        mask=None if mask is None else tensor(op, mask, "bool"), causal=is_causal,
    )  # fmt: skip


# -- quantization ----------------------------------------------------------------------------------


@operation(OPERATIONS, "FakeQuantWithMinMaxVars")
def fake_quant(
    op: Builder, inputs: Any, min_vals: Any, max_vals: Any, *,
    num_bits: int = 8, narrow_range: bool = False, axis: int | None = None,
) -> Value:  # fmt: skip
    """Fake quantization between two bounds, in float32; zero is exact."""
    value = as_float(op, inputs)
    low, high = (tensor(op, n, "float32") for n in (min_vals, max_vals))
    if axis is not None and low.rank:
        low, high = (normalization.along(op, value, n, [value.axis(axis)]) for n in (low, high))
    elif low.rank:
        low, high = (op.reshape(n, ()) for n in (low, high))
    made = fake_quantize(
        op, op.cast(value, "float32"), real(op, low), real(op, high), num_bits,
        narrow_range=narrow_range,
    )  # fmt: skip
    return op.cast(made, value.dtype)
