"""Functions of neural networks and of images: activations, convolution, pooling, sizes."""

from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.keras import activations
from converter.lower.keras.convolution import convolve_transposed, depthwise
from converter.lower.keras.operations import images as pic
from converter.lower.keras.operations import nn
from converter.lower.keras.operations.elementwise import rsqrt
from converter.lower.keras.operations.operands import known_size, tensor
from converter.lower.keras.table import TF_FUNCTIONS, Unsupported, operation
from converter.lower.keras.tensorflow_ops.arithmetic import alike, axes_of
from converter.lower.ops.conv import as_given, channels_first, convolve
from converter.lower.ops.norm import along
from converter.lower.ops.pad import flipped
from converter.lower.ops.pool import pool
from converter.lower.ops.resize import resized
from converter.lower.ops.resize_computed import Size, of_aspect
from converter.lower.table import Variant
from converter.lower.values import Value

# -- activations -----------------------------------------------------------------------------------

# fmt: off
ACTIVATIONS = {
    "elu": "elu", "log_sigmoid": "log_sigmoid", "relu": "relu", "relu6": "relu6", "selu": "selu",
    "sigmoid": "sigmoid", "softplus": "softplus", "softsign": "softsign", "tanh": "tanh",
}
# fmt: on


@operation(
    TF_FUNCTIONS,
    *(
        Variant(
            name, activations.FUNCTIONS[function].__doc__ or f"{function}(x).", function=function
        )
        for (name, function) in ACTIVATIONS.items()
    ),
)
def activation(op: Builder, features: Any, *, function: str) -> Value:
    """An activation of each element."""
    return activations.FUNCTIONS[function](op, tensor(op, features))


@operation(TF_FUNCTIONS, "leaky_relu")
def leaky_relu(op: Builder, features: Any, alpha: float = 0.2) -> Value:
    """X if x > 0 else alpha * x."""
    return activations.leaky_relu(op, tensor(op, features), alpha)


@operation(TF_FUNCTIONS, "gelu")
def gelu(op: Builder, features: Any, approximate: bool = False) -> Value:
    """X * P(X <= x) for a normal X, exactly or by tanh."""
    return activations.gelu(op, tensor(op, features), approximate)


@operation(TF_FUNCTIONS, "silu")
def silu(op: Builder, features: Any, beta: Any = 1.0) -> Value:
    """X * sigmoid(beta * x)."""
    x, factor = alike(op, features, beta)
    return op.mul(x, op.unary("Sigmoid", op.mul(x, factor) if beta != 1 else x))


@operation(TF_FUNCTIONS, "crelu")
def crelu(op: Builder, features: Any, axis: int = -1) -> Value:
    """relu(x) and relu(-x), one after the other along an axis."""
    x = tensor(op, features)
    return op.concat([op.unary("Relu", x), op.unary("Relu", op.unary("Neg", x))], axis)


@operation(
    TF_FUNCTIONS,
    Variant("softmax", "softmax along an axis.", op_type="Softmax"),
    Variant("log_softmax", "log_softmax along an axis.", op_type="LogSoftmax"),
)
def softmax_along(
    op: Builder, logits: Any, axis: int | None = None, *, op_type: str, dim: int | None = None,
) -> Value:  # fmt: skip
    """Softmax, or its logarithm, along an axis."""
    place = dim if axis is None else axis
    return op.softmax(tensor(op, logits), -1 if place is None else place, op_type)


# -- convolution and pooling -----------------------------------------------------------------------


def first(data_format: str | None) -> str:
    """Return TensorFlow's order of axes in Keras's words."""
    return "channels_first" if (data_format or "").startswith("NC") else "channels_last"


def spatial(value: Any, rank: int, data_format: str | None) -> list[int]:
    """Return an argument that says something for each axis of an image, for the spatial ones."""
    if value is None:
        return [1] * rank
    given = [value] if isinstance(value, int) else [int(n) for n in value]
    if len(given) == rank + 2:
        return given[2:] if first(data_format) == "channels_first" else given[1:-1]
    return given * rank if len(given) == 1 else given


def how(padding: Any) -> str:
    """Return a padding in Keras's words.

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
    """Cross-correlation; groups are as many as fit the kernel's channels."""
    del use_cudnn_on_gpu
    image, kernel = alike(op, input, filter if filters is None else filters)
    rank = image.rank - 2
    channels = known_size(image, 1 if first(data_format) == "channels_first" else -1, "convolving")
    return convolve(
        op, image, kernel, None, padding=how(padding), data_format=first(data_format),
        strides=spatial(stride if strides is None else strides, rank, data_format),
        dilations=spatial(dilations, rank, data_format),
        groups=channels // known_size(kernel, -2, "convolving"),
    )  # fmt: skip


@operation(TF_FUNCTIONS, "depthwise_conv2d")
def depthwise_conv2d(
    op: Builder, input: Any, filter: Any, strides: Any, padding: Any,
    data_format: str | None = None, dilations: Any = None, *, rate: Any = None,
) -> Value:  # fmt: skip
    """One kernel, or several, for each channel."""
    image, kernel = alike(op, input, filter)
    return depthwise(
        op, image, kernel, None, spatial(strides, 2, data_format), how(padding),
        first(data_format), spatial(rate if dilations is None else dilations, 2, data_format),
    )  # fmt: skip


@operation(TF_FUNCTIONS, "separable_conv2d")
def separable_conv2d(
    op: Builder, input: Any, depthwise_filter: Any, pointwise_filter: Any, strides: Any,
    padding: Any, data_format: str | None = None, dilations: Any = None, *, rate: Any = None,
) -> Value:  # fmt: skip
    """A depthwise convolution, then one of size one."""
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
    """The gradient of a convolution, as an operation."""
    image, kernel = alike(op, input, filter if filters is None else filters)
    rank = image.rank - 2
    sizes: Any = axes_of(op, output_shape) if isinstance(output_shape, Value) else output_shape
    if sizes is not None and any(isinstance(n, Value) for n in list(sizes)[1:]):
        raise Unsupported("an output shape that is computed")
    return convolve_transposed(
        op, image, kernel, None, strides=spatial(strides, rank, data_format), padding=how(padding),
        output_padding=None, data_format=first(data_format),
        dilations=spatial(dilations, rank, data_format), output_shape=sizes,
    )  # fmt: skip


@operation(
    TF_FUNCTIONS,
    Variant(
        ("max_pool", "max_pool1d", "max_pool2d", "max_pool3d"),
        "The largest of each window.",
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
    """One number of each window."""
    image = tensor(op, input)
    rank = image.rank - 2
    return pool(
        op, image, op_type, pool_size=spatial(ksize, rank, data_format),
        strides=spatial(strides, rank, data_format), padding=how(padding),
        data_format=first(data_format),
    )  # fmt: skip


@operation(TF_FUNCTIONS, "bias_add")
def bias_add(op: Builder, value: Any, bias: Any, data_format: str | None = None) -> Value:
    """A number added to each channel."""
    x, offset = alike(op, value, bias)
    axis = 1 if first(data_format) == "channels_first" else x.rank - 1
    return op.add(x, along(op, x, offset, [axis]))


@operation(TF_FUNCTIONS, "batch_normalization")
def batch_normalization(
    op: Builder, x: Any, mean: Any, variance: Any, offset: Any, scale: Any,
    variance_epsilon: float,
) -> Value:  # fmt: skip
    """(x - mean) / sqrt(variance + epsilon) * scale + offset."""
    value, middle, spread = alike(op, x, mean, variance)
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
    """X / (bias + alpha * the sum of squares of channels around) ** beta."""
    image = channels_first(op, tensor(op, input), None)
    size = 2 * depth_radius + 1
    made = op.emit(
        "LRN", image, dtype=image.dtype, shape=image.shape, size=size, bias=float(bias),
        alpha=float(alpha * size), beta=float(beta),
    )  # fmt: skip
    return as_given(op, made, None)


@operation(TF_FUNCTIONS, "space_to_depth")
def space_to_depth(op: Builder, input: Any, block_size: int, data_format: str = "NHWC") -> Value:
    """Blocks of space, moved into channels."""
    return nn.blocks(op, tensor(op, input), block_size, first(data_format), to_space=False)


@operation(TF_FUNCTIONS, "depth_to_space")
def depth_to_space(op: Builder, input: Any, block_size: int, data_format: str = "NHWC") -> Value:
    """Blocks of channels, moved into space."""
    return nn.blocks(op, tensor(op, input), block_size, first(data_format), to_space=True)


# -- images ----------------------------------------------------------------------------------------


def batched(op: Builder, images: Any) -> tuple[Value, bool]:
    """Return images with a batch, and whether it is new."""
    value = tensor(op, images)
    return (op.unsqueeze(value, [0]), True) if value.rank == 3 else (value, False)


def pair(op: Builder, size: Any) -> list[Size]:
    """Return height and width, each a number where it is known.

    Raises:
        Unsupported: These are not two.
    """
    found = op.array(size) if isinstance(size, Value) else None
    if found is not None:
        size = found.reshape(-1).tolist()
    if isinstance(size, Value) and size.shape == (2,):
        size = [op.gather(size, op.constant(n, "int64")) for n in (0, 1)]
    if not isinstance(size, list | tuple) or len(size) != 2:
        raise Unsupported("a size that is no pair")
    arrays = [op.array(n) if isinstance(n, Value) else np.asarray(n) for n in size]
    return [n if a is None else int(a) for n, a in zip(size, arrays, strict=True)]


def sized(
    op: Builder, images: Any, size: Any, method: str, *,
    antialias: bool = False, keeps_aspect: bool = False,
) -> Value:  # fmt: skip
    """Return images in another size."""
    value, single = batched(op, images)
    sizes = pair(op, size)
    image = channels_first(op, value, None)
    if keeps_aspect:
        sizes = of_aspect(op, image, sizes)
    if method != "nearest":
        image = op.cast(image, "float32")
    result = as_given(op, resized(op, image, sizes, method, antialias=antialias), None)
    return op.squeeze(result, [0]) if single else result


@operation(TF_FUNCTIONS, "image.resize")
def resize(
    op: Builder, images: Any, size: Any, method: str = "bilinear",
    preserve_aspect_ratio: bool = False, antialias: bool = False, *, align_corners: bool = False,
) -> Value:  # fmt: skip
    """Images in another size."""
    if align_corners:
        raise Unsupported("align_corners")
    return sized(
        op, images, size, str(method), antialias=antialias, keeps_aspect=preserve_aspect_ratio
    )


@operation(TF_FUNCTIONS, "image.rgb_to_grayscale")
def rgb_to_grayscale(op: Builder, images: Any) -> Value:
    """0.2989 * red + 0.587 * green + 0.114 * blue."""
    value = tensor(op, images)
    if not value.is_float:
        raise Unsupported("images of integers")
    return pic.rgb_to_grayscale(op, value)


@operation(TF_FUNCTIONS, "image.grayscale_to_rgb")
def grayscale_to_rgb(op: Builder, images: Any) -> Value:
    """One channel three times."""
    value = tensor(op, images)
    return op.concat([value] * 3, -1)


@operation(TF_FUNCTIONS, "image.flip_left_right")
def flip_left_right(op: Builder, image: Any) -> Value:
    """Images with their columns reversed."""
    return flipped(op, tensor(op, image), [-2])


@operation(TF_FUNCTIONS, "image.flip_up_down")
def flip_up_down(op: Builder, image: Any) -> Value:
    """Images with their rows reversed."""
    return flipped(op, tensor(op, image), [-3])


@operation(TF_FUNCTIONS, "image.crop_to_bounding_box")
def crop_to_bounding_box(
    op: Builder, image: Any, offset_height: int, offset_width: int, target_height: int,
    target_width: int,
) -> Value:  # fmt: skip
    """A part of images."""
    starts = [offset_height, offset_width]
    ends = [offset_height + target_height, offset_width + target_width]
    return op.slice(tensor(op, image), [-3, -2], starts, ends)


@operation(TF_FUNCTIONS, "image.pad_to_bounding_box")
def pad_to_bounding_box(
    op: Builder, image: Any, offset_height: int, offset_width: int, target_height: int,
    target_width: int,
) -> Value:  # fmt: skip
    """Images with zeros around them, up to a size."""
    return pic.pad_images(
        op, image, top_padding=offset_height, left_padding=offset_width,
        target_height=target_height, target_width=target_width,
    )  # fmt: skip


@operation(TF_FUNCTIONS, "image.extract_patches")
def extract_patches(
    op: Builder, images: Any, sizes: Any, strides: Any, rates: Any, padding: str
) -> Value:
    """The patches of images, each in the channels of one place."""
    return pic.extract_patches(
        op, images, size=spatial(sizes, 2, None), strides=spatial(strides, 2, None),
        dilation_rate=spatial(rates, 2, None), padding=how(padding),
    )  # fmt: skip


@operation(TF_FUNCTIONS, "image.per_image_standardization")
def per_image_standardization(op: Builder, image: Any) -> Value:
    """(x - mean) / max(standard deviation, 1 / sqrt(elements)), image by image."""
    x = op.cast(tensor(op, image), "float32")
    axes = [-3, -2, -1]
    count = 1
    for axis in axes:
        count *= known_size(x, axis, "standardising")
    away = op.sub(x, op.reduce("ReduceMean", x, axes, keepdims=True))
    power = op.reduce("ReduceMean", op.mul(away, away), axes, keepdims=True)
    least = op.constant(float(1 / np.sqrt(count)), x.dtype)
    return op.div(away, op.elementwise("Max", op.unary("Sqrt", power), least))


@operation(TF_FUNCTIONS, "image.adjust_brightness")
def adjust_brightness(op: Builder, image: Any, delta: float) -> Value:
    """X + delta."""
    value = tensor(op, image)
    if not value.is_float:
        raise Unsupported("images of integers")
    return op.add(value, delta)


@operation(TF_FUNCTIONS, "image.convert_image_dtype")
def convert_image_dtype(op: Builder, image: Any, dtype: str, saturate: bool = False) -> Value:
    """Images in another dtype, scaled to its range."""
    del saturate
    value = tensor(op, image)
    if value.dtype == dtype:
        return value
    if value.is_float and "float" in dtype:
        return op.cast(value, dtype)
    if not value.is_float and "float" in dtype:
        return op.mul(op.cast(value, dtype), 1 / float(np.iinfo(value.dtype).max))
    raise Unsupported(f"images of {value.dtype} as {dtype}")
