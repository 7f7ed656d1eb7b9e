"""Ops on quantized tensors, of graphs that `quantize_graph` rewrote for mobile devices.

A quantized tensor has a range: the values of the minimum and maximum of its integer dtype. Products
are computed in int32 after subtraction of the zero points, and requantized to 8 bits in fixed-point
arithmetic, as in the kernels.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels
(quantization_utils.h, quantized_*.cc, quantize_down_and_shrink_range.cc, requantize.cc)
"""

from collections.abc import Sequence

from converter.lower.known_values import Numbers, real
from converter.lower.ops.quantize import bounds_of
from converter.lower.tf.bitwise import right_shift
from converter.lower.tf.context import Context
from converter.lower.tf.convolution import convolve_windows, windows_of
from converter.lower.tf.graphdef import QUANTIZED, Node
from converter.lower.tf.pooling import avg_pool, max_pool
from converter.lower.tf.products import transpose_if
from converter.lower.tf.quantization import dequantize_steps, quantize_steps
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

BOUNDED = ("output", "min_output", "max_output")


def scalar(op: Context, bound: Value) -> Numbers:
    """Return a bound of a range, a scalar or a vector of one element, as a scalar."""
    return real(op, op.reshape(bound, ()) if bound.rank else bound)


def stands_for(number: float, low: Numbers, high: Numbers, dtype: str, *, is_held: bool) -> Value:
    """Return the quantized value (int64) of a number, clamped to the dtype if `is_held`."""
    first, last = bounds_of(dtype)
    twice, steps = _twice(low, high, first, last)
    scale = steps / twice
    number_at = (scale * number).rounded()
    found = number_at - (low.to("float64") * scale).rounded() + float(first)
    found = (twice > 0.0).choose(found, float(first))
    if is_held:
        found = found.most(float(first)).least(float(last))
    return found.to("int64").value


def _twice(low: Numbers, high: Numbers, first: int, last: int) -> tuple[Numbers, float]:
    """Return twice the range of all quantization levels, and twice their number.

    onnxruntime drops a multiplication by `2 ** 32 / (2 ** 32 - 1)`, which it takes for 1.
    """
    steps = float(last - first + 1)
    return (high - low).to("float64") * (2 * steps / (steps - 1.0)), 2 * steps


def _number(op: Context, x: Value, low: Numbers, high: Numbers, dtype: str) -> Numbers:
    """Return the dequantized value of an integer."""
    first, last = bounds_of(dtype)
    twice, steps = _twice(low, high, first, last)
    scale = twice / steps
    near = scale.to("float32")
    start = ((low / near).rounded() * near).to("float64")
    value = start + (Numbers(op, op.cast(x, "float64")) - float(first)) * scale
    return (high > low).choose(value.to("float32"), low)


def _product_bounds(
    op: Context, first: tuple[Value, Value, str], second: tuple[Value, Value, str]
) -> list[Value]:
    """Return the range of an int32 product: the values of the minimum and maximum int32."""
    level: Numbers | None = None
    for low, high, dtype in (first, second):
        least, most = bounds_of(dtype)
        one = (scalar(op, high) - scalar(op, low)) / float(most - least)
        level = one if level is None else level * one
    assert level is not None
    return [(level * float(n)).value for n in bounds_of("int32")]


def _less_zero(op: Context, x: Value, low: Value, high: Value) -> Value:
    """Subtract the zero point from integers, in int32."""
    zero = stands_for(0.0, scalar(op, low), scalar(op, high), x.dtype, is_held=False)
    return op.sub(op.cast(x, "int32"), op.cast(zero, "int32"))


# -- products --------------------------------------------------------------------------------------


def _out_is_int32(node: Node, name: str) -> None:
    if node.attribute(name, "qint32") != "qint32":
        raise Unsupported(f"{name} {node.attribute(name)}")


@tf_op("QuantizedMatMul", outputs=("out", "min_out", "max_out"))
def quantized_matmul(
    op: Context, a: Value, b: Value, min_a: Value, max_a: Value, min_b: Value, max_b: Value, /, *,
    node: Node, transpose_a: bool = False, transpose_b: bool = False,
) -> list[Value]:  # fmt: skip
    """The product of two quantized matrices, and its range."""
    _out_is_int32(node, "Toutput")
    left = transpose_if(op, _less_zero(op, a, min_a, max_a), transpose_a)
    right = transpose_if(op, _less_zero(op, b, min_b, max_b), transpose_b)
    bounds = _product_bounds(op, (min_a, max_a, a.dtype), (min_b, max_b, b.dtype))
    return [op.matmul(left, right), *bounds]


@tf_op("QuantizedConv2D", outputs=BOUNDED)
def quantized_conv2d(
    op: Context, input: Value, filter: Value, min_input: Value, max_input: Value,
    min_filter: Value, max_filter: Value, /, *, node: Node, strides: Sequence[int], padding: str,
    dilations: Sequence[int] = (1, 1, 1, 1),
) -> list[Value]:  # fmt: skip
    """The convolution of quantized tensors, and its range."""
    _out_is_int32(node, "out_type")
    image = _less_zero(op, input, min_input, max_input)
    kernel = _less_zero(op, filter, min_filter, max_filter)
    windows = windows_of(kernel, strides, padding, (), "NHWC", dilations)
    bounds = _product_bounds(
        op, (min_input, max_input, input.dtype), (min_filter, max_filter, filter.dtype)
    )
    return [convolve_windows(op, image, kernel, windows, "NHWC"), *bounds]


@tf_op("QuantizedMul", outputs=("z", "min_z", "max_z"))
def quantized_mul(
    op: Context, x: Value, y: Value, min_x: Value, max_x: Value, min_y: Value, max_y: Value, /, *,
    node: Node,
) -> list[Value]:  # fmt: skip
    """The product of quantized tensors, and its range."""
    _out_is_int32(node, "Toutput")
    both = op.mul(_less_zero(op, x, min_x, max_x), _less_zero(op, y, min_y, max_y))
    return [both, *_product_bounds(op, (min_x, max_x, x.dtype), (min_y, max_y, y.dtype))]


@tf_op("QuantizedBiasAdd", outputs=("output", "min_out", "max_out"))
def quantized_bias_add(
    op: Context, input: Value, bias: Value, min_input: Value, max_input: Value, min_bias: Value,
    max_bias: Value, /, *, node: Node,
) -> list[Value]:  # fmt: skip
    """The sum of quantized tensors of different ranges, in a range that covers both."""
    _out_is_int32(node, "out_type")
    low, high, low_b, high_b = (scalar(op, v) for v in (min_input, max_input, min_bias, max_bias))
    most = high.most(low * -1.0).most(high_b).most(low_b * -1.0) * float(1 << 17)
    least = most * -1.0
    parts = []
    for x, bounds in ((input, (low, high)), (bias, (low_b, high_b))):
        numbers = dequantize_steps(op, op.cast(x, "float32"), *bounds, x.dtype)
        parts.append(op.cast(quantize_steps(op, numbers, least, most, "int32"), "int32"))
    zero = op.cast(stands_for(0.0, least, most, "int32", is_held=True), "int32")
    total = op.add(parts[0], op.add(parts[1], zero))
    return [total, least.value, most.value]


# -- requantization --------------------------------------------------------------------------------

SHIFT = 16  # fractional bits


def _narrow(
    op: Context, x: Value, low: Numbers, high: Numbers, least: Numbers, most: Numbers, dtype: str
) -> Value:
    """Requantize int32 of the range `low`, `high` to uint8 of the range `least`, `most`."""
    if dtype != "uint8" or x.dtype != "int32":
        raise Unsupported(f"from {x.dtype} to {dtype}")
    own, wanted = (high - low).to("float64"), (most - least).to("float64")
    apart = wanted > 0.0
    one = float(1 << SHIFT)
    inverse = apart.choose(255.0 / wanted, 0.0).to("float32")
    middle = ((low + high).to("float64") / 2.0).to("float32")
    scale = apart.choose(own * (255.0 * one) / wanted, 0.0).to("int64")
    offset = (middle * inverse * one).to("int64")
    start = apart.choose(least.to("float64") * 255.0 * one / wanted, 0.0).to("int64")
    shift = op.constant(32, "int64")
    steps = right_shift(op, op.mul(op.cast(x, "int64"), scale.value), shift)
    steps = op.add(steps, (offset - start + (1 << (SHIFT - 1))).value)
    steps = right_shift(op, steps, op.constant(SHIFT, "int64"))
    return op.cast(op.clip(steps, 0, 255), dtype)


def _used(op: Context, x: Value, low: Numbers, high: Numbers) -> tuple[Numbers, Numbers]:
    """Return the minimum, at most 0, and the maximum of a tensor's dequantized values."""
    axes = list(range(x.rank))
    least, most = (
        _number(op, op.reduce(f"Reduce{which}", x, axes), low, high, x.dtype)
        for which in ("Min", "Max")
    )
    return least.least(0.0), most


@tf_op("QuantizeDownAndShrinkRange", outputs=("output", "output_min", "output_max"))
def quantize_down_and_shrink_range(
    op: Context, input: Value, input_min: Value, input_max: Value, /, *, node: Node
) -> list[Value]:
    """An int32 tensor requantized to 8 bits, with its minimum and maximum as the range."""
    low, high = scalar(op, input_min), scalar(op, input_max)
    least, most = _used(op, input, low, high)
    dtype = QUANTIZED[node.attribute("out_type")]
    return [_narrow(op, input, low, high, least, most, dtype), least.value, most.value]


@tf_op("RequantizationRange", outputs=("output_min", "output_max"))
def requantization_range(
    op: Context, input: Value, input_min: Value, input_max: Value, /
) -> list[Value]:
    """The minimum and maximum of a quantized tensor."""
    found = _used(op, input, scalar(op, input_min), scalar(op, input_max))
    return [v.value for v in found]


@tf_op("Requantize", outputs=("output", "output_min", "output_max"))
def requantize(
    op: Context, input: Value, input_min: Value, input_max: Value, requested_output_min: Value,
    requested_output_max: Value, /, *, node: Node,
) -> list[Value]:  # fmt: skip
    """A quantized tensor requantized to 8 bits and a given range."""
    low, high, least, most = (
        scalar(op, v) for v in (input_min, input_max, requested_output_min, requested_output_max)
    )
    dtype = QUANTIZED[node.attribute("out_type")]
    return [_narrow(op, input, low, high, least, most, dtype), least.value, most.value]


# -- ops that keep the range -----------------------------------------------------------------------

ACTIVATED = ("activations", "min_activations", "max_activations")


@tf_op("QuantizedRelu", "QuantizedRelu6", outputs=ACTIVATED)
def quantized_relu(
    op: Context, features: Value, min_features: Value, max_features: Value, /, *, node: Node
) -> list[Value]:
    """A quantized tensor clamped at 0, and in Relu6 at 6."""
    low, high = scalar(op, min_features), scalar(op, max_features)
    dtype = features.dtype
    zero = stands_for(0.0, low, high, dtype, is_held=True)
    result = op.elementwise("Max", features, op.cast(zero, dtype))
    if node.op == "QuantizedRelu6":
        six = stands_for(6.0, low, high, dtype, is_held=True)
        result = op.elementwise("Min", result, op.cast(six, dtype))
    return [result, min_features, max_features]


@tf_op("QuantizedReshape", outputs=("output", "output_min", "output_max"))
def quantized_reshape(
    op: Context, tensor: Value, shape: Value, input_min: Value, input_max: Value, /
) -> list[Value]:
    """A quantized tensor in another shape."""
    return [op.shaped(tensor, shape, op.dims(shape)), input_min, input_max]


@tf_op("QuantizedMaxPool", outputs=BOUNDED)
def quantized_max_pool(
    op: Context, input: Value, min_input: Value, max_input: Value, /, *,
    ksize: Sequence[int], strides: Sequence[int], padding: str,
) -> list[Value]:  # fmt: skip
    """The maximum of each window."""
    found = max_pool(op, input, ksize=ksize, strides=strides, padding=padding)
    return [found, min_input, max_input]


@tf_op("QuantizedAvgPool", outputs=BOUNDED)
def quantized_avg_pool(
    op: Context, input: Value, min_input: Value, max_input: Value, /, *,
    ksize: Sequence[int], strides: Sequence[int], padding: str,
) -> list[Value]:  # fmt: skip
    """The mean of each window, truncated, padding excluded."""
    wide = op.cast(input, "float32")
    found = avg_pool(op, wide, ksize=ksize, strides=strides, padding=padding)
    # An integer mean may be computed slightly too small, but by less than half of the smallest
    # fraction.
    near = op.add(found, 0.5 / (ksize[1] * ksize[2]))
    return [op.cast(op.unary("Floor", near), input.dtype), min_input, max_input]


@tf_op("QuantizedConcat", outputs=("output", "output_min", "output_max"))
def quantized_concat(op: Context, concat_dim: Value, /, *inputs: Value) -> list[Value]:
    """Quantized tensors requantized to a common range, and concatenated."""
    count = len(inputs) // 3
    values, lows, highs = inputs[:count], inputs[count : 2 * count], inputs[2 * count :]
    dtype = values[0].dtype
    bounds = [(scalar(op, a), scalar(op, b)) for a, b in zip(lows, highs, strict=True)]
    least, most = bounds[0]
    for low, high in bounds[1:]:
        least, most = least.least(low), most.most(high)
    if dtype != "uint8":
        most = least.size().most(most.size())
        least = most * -1.0
    parts = []
    for value, (low, high) in zip(values, bounds, strict=True):
        numbers = dequantize_steps(op, op.cast(value, "float32"), low, high, dtype)
        steps = quantize_steps(op, numbers, least, most, dtype)
        changed = op.cast(op.cast(steps, "int32"), dtype)
        same = _alike(low, least) and _alike(high, most)
        parts.append(value if same else changed)
    axis = values[0].axis(op.int(concat_dim, "an axis"))
    return [op.concat(parts, axis), least.value, most.value]


def _alike(a: Numbers, b: Numbers) -> bool:
    return a.known is not None and b.known is not None and bool(a.known == b.known)
