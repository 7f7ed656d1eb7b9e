"""Functions of neural networks: convolution, pooling, normalization, blocks of space."""

from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.convolution import convolve_transposed, depthwise
from converter.lower.keras.operations.elementwise import rsqrt
from converter.lower.keras.operations.operands import known_size, tensor
from converter.lower.keras.table import TF_FUNCTIONS, Unsupported, operation
from converter.lower.keras.tensorflow_ops.operands import known_axes, same_dtype
from converter.lower.keras.tensorflow_rows import call_op
from converter.lower.ops.conv import convolve
from converter.lower.ops.norm import along
from converter.lower.ops.pool import pool
from converter.lower.table import Variant
from converter.lower.values import Value


def keras_data_format(data_format: str | None) -> str:
    """Return Keras's name of TensorFlow's data format."""
    return "channels_first" if (data_format or "").startswith("NC") else "channels_last"


def spatial_values(value: Any, rank: int, data_format: str | None) -> list[int]:
    """Return an argument that says something for each axis of an image, for the spatial ones."""
    if value is None:
        return [1] * rank
    given = [value] if isinstance(value, int) else [int(n) for n in value]
    if len(given) == rank + 2:
        return given[2:] if keras_data_format(data_format) == "channels_first" else given[1:-1]
    return given * rank if len(given) == 1 else given


def keras_padding(padding: Any) -> str:
    """Return Keras's name of a padding.

    Raises:
        Unsupported: It is a number for each side.
    """
    if not isinstance(padding, str):
        raise Unsupported("padding by numbers")
    return padding.lower()


@operation(TF_FUNCTIONS, "conv1d", "conv2d", "conv3d", "convolution")
def conv(
    op: Builder, input: Any, filters: Any = None, strides: Any = None, padding: Any = "VALID",
    data_format: str | None = None, dilations: Any = None, *,
    filter: Any = None, stride: Any = None, use_cudnn_on_gpu: bool = True,
) -> Value:  # fmt: skip
    """Convolution; the number of groups follows from the kernel's channels."""
    del use_cudnn_on_gpu
    image, kernel = same_dtype(op, input, filter if filters is None else filters)
    rank = image.rank - 2
    channels = known_size(
        image, 1 if keras_data_format(data_format) == "channels_first" else -1, "convolving"
    )
    return convolve(
        op,
        image,
        kernel,
        None,
        padding=keras_padding(padding),
        data_format=keras_data_format(data_format),
        strides=spatial_values(stride if strides is None else strides, rank, data_format),
        dilations=spatial_values(dilations, rank, data_format),
        groups=channels // known_size(kernel, -2, "convolving"),
    )


@operation(TF_FUNCTIONS, "depthwise_conv2d")
def depthwise_conv2d(
    op: Builder, input: Any, filter: Any, strides: Any, padding: Any,
    data_format: str | None = None, dilations: Any = None, *, rate: Any = None,
) -> Value:  # fmt: skip
    """Depthwise convolution."""
    image, kernel = same_dtype(op, input, filter)
    return depthwise(
        op,
        image,
        kernel,
        None,
        spatial_values(strides, 2, data_format),
        keras_padding(padding),
        keras_data_format(data_format),
        spatial_values(rate if dilations is None else dilations, 2, data_format),
    )


@operation(TF_FUNCTIONS, "separable_conv2d")
def separable_conv2d(
    op: Builder, input: Any, depthwise_filter: Any, pointwise_filter: Any, strides: Any,
    padding: Any, data_format: str | None = None, dilations: Any = None, *, rate: Any = None,
) -> Value:  # fmt: skip
    """Separable convolution: depthwise, then pointwise."""
    inner = depthwise_conv2d(
        op, input, depthwise_filter, strides, padding, data_format, dilations, rate=rate
    )
    return conv(op, inner, pointwise_filter, 1, "VALID", data_format)


@operation(TF_FUNCTIONS, "conv1d_transpose", "conv2d_transpose", "conv3d_transpose")
def conv_transpose(
    op: Builder, input: Any, filters: Any = None, output_shape: Any = None, strides: Any = 1,
    padding: Any = "SAME", data_format: str | None = None, dilations: Any = None, *,
    filter: Any = None,
) -> Value:  # fmt: skip
    """Transposed convolution."""
    image, kernel = same_dtype(op, input, filter if filters is None else filters)
    rank = image.rank - 2
    sizes: Any = known_axes(op, output_shape) if isinstance(output_shape, Value) else output_shape
    if sizes is not None and any(isinstance(n, Value) for n in list(sizes)[1:]):
        raise Unsupported("an output shape that is computed")
    return convolve_transposed(
        op,
        image,
        kernel,
        None,
        strides=spatial_values(strides, rank, data_format),
        padding=keras_padding(padding),
        output_padding=None,
        data_format=keras_data_format(data_format),
        dilations=spatial_values(dilations, rank, data_format),
        output_shape=sizes,
    )


@operation(
    TF_FUNCTIONS,
    Variant(
        ("max_pool", "max_pool1d", "max_pool2d", "max_pool3d"),
        "The maximum of each window.",
        op_type="MaxPool",
    ),
    Variant(
        ("avg_pool", "avg_pool1d", "avg_pool2d", "avg_pool3d"),
        "The mean of each window.",
        op_type="AveragePool",
    ),
)
def pool_windows(
    op: Builder, input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = None,
    *, op_type: str,
) -> Value:  # fmt: skip
    """Pooling of windows."""
    image = tensor(op, input)
    rank = image.rank - 2
    return pool(
        op, image, op_type, pool_size=spatial_values(ksize, rank, data_format),
        strides=spatial_values(strides, rank, data_format), padding=keras_padding(padding),
        data_format=keras_data_format(data_format),
    )  # fmt: skip


@operation(TF_FUNCTIONS, "bias_add")
def bias_add(op: Builder, value: Any, bias: Any, data_format: str | None = None) -> Value:
    """A number added to each channel."""
    x, offset = same_dtype(op, value, bias)
    axis = 1 if keras_data_format(data_format) == "channels_first" else x.rank - 1
    return op.add(x, along(op, x, offset, [axis]))


@operation(TF_FUNCTIONS, "batch_normalization")
def batch_normalization(
    op: Builder, x: Any, mean: Any, variance: Any, offset: Any, scale: Any,
    variance_epsilon: float,
) -> Value:  # fmt: skip
    """(x - mean) / sqrt(variance + epsilon) * scale + offset."""
    value, middle, spread = same_dtype(op, x, mean, variance)
    factor = rsqrt(op, op.add(spread, variance_epsilon))
    factor = factor if scale is None else op.mul(factor, tensor(op, scale, value.dtype))
    away = op.mul(middle, factor)
    moved = op.mul(value, factor)
    if offset is None:
        return op.sub(moved, away)
    return op.add(moved, op.sub(tensor(op, offset, value.dtype), away))


@operation(TF_FUNCTIONS, "local_response_normalization")
def local_response_normalization(
    op: Builder, input: Any, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0,
    beta: float = 0.5,
) -> Value:  # fmt: skip
    """Local response normalization over neighbouring channels."""
    how = {"depth_radius": depth_radius, "bias": bias, "alpha": alpha, "beta": beta}
    return call_op(op, "LRN", tensor(op, input), **how)


@operation(TF_FUNCTIONS, "space_to_depth")
def space_to_depth(op: Builder, input: Any, block_size: int, data_format: str = "NHWC") -> Value:
    """Blocks of pixels rearranged into channels."""
    how = {"block_size": block_size, "data_format": data_format}
    return call_op(op, "SpaceToDepth", tensor(op, input), **how)


@operation(TF_FUNCTIONS, "depth_to_space")
def depth_to_space(op: Builder, input: Any, block_size: int, data_format: str = "NHWC") -> Value:
    """Channels rearranged into blocks of pixels."""
    how = {"block_size": block_size, "data_format": data_format}
    return call_op(op, "DepthToSpace", tensor(op, input), **how)
