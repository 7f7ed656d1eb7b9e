"""TensorFlow functions of networks and images as operations of Keras 3."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from converter.lower.keras.model import references
from converter.lower.keras.table import Unsupported
from converter.write.keras.tensorflow_ops.arrays import item
from converter.write.keras.tensorflow_ops.builder import KerasOps, as_list, function

# -- networks --------------------------------------------------------------------------------------


@function("leaky_relu")
def leaky_relu(op: KerasOps, features: Any, alpha: float = 0.2) -> Any:
    """X if x > 0 else alpha * x."""
    return op.call("nn.LeakyRelu", features, negative_slope=alpha)


@function("gelu")
def gelu(op: KerasOps, features: Any, approximate: bool = False) -> Any:
    """X * P(X <= x) for a normal X, exactly or by tanh."""
    return op.call("nn.Gelu", features, approximate=approximate)


@function("silu")
def silu(op: KerasOps, features: Any, beta: Any = 1.0) -> Any:
    """X * sigmoid(beta * x)."""
    if beta == 1:
        return op.call("nn.Silu", features)
    scaled = op.call("numpy.Multiply", features, op.constant(beta, op.dtype(features)))
    return op.call("numpy.Multiply", features, op.call("nn.Sigmoid", scaled))


@function("crelu")
def crelu(op: KerasOps, features: Any, axis: int = -1) -> Any:
    """relu(x) and relu(-x), one after the other along an axis."""
    halves = [op.call("nn.Relu", features), op.call("nn.Relu", op.call("numpy.Negative", features))]
    return op.call("numpy.Concatenate", halves, axis=axis)


def _softmax(name: str, kind: str) -> None:
    def translate(
        op: KerasOps, logits: Any, axis: int | None = None, dim: int | None = None
    ) -> Any:
        place = dim if axis is None else axis
        return op.call(kind, logits, axis=-1 if place is None else place)

    function(name)(translate)


_softmax("softmax", "nn.Softmax")
_softmax("log_softmax", "nn.LogSoftmax")


def _first(data_format: str | None) -> str:
    return "channels_first" if (data_format or "").startswith("NC") else "channels_last"


def _spatial(value: Any, rank: int, data_format: str | None) -> list[int]:
    given = [1] if value is None else as_list(value)
    if len(given) == rank + 2:
        return given[2:] if _first(data_format) == "channels_first" else given[1:-1]
    return given * rank if len(given) == 1 else given


def _how(padding: Any) -> str:
    if not isinstance(padding, str):
        raise Unsupported("explicit paddings")
    return padding.lower()


@function("conv1d", "conv2d", "conv3d", "convolution")
def conv(
    op: KerasOps, input: Any, filters: Any = None, strides: Any = None, padding: Any = "VALID",
    data_format: str | None = None, dilations: Any = None, filter: Any = None, stride: Any = None,
    use_cudnn_on_gpu: bool = True,
) -> Any:  # fmt: skip
    """Cross-correlation."""
    del use_cudnn_on_gpu
    return _convolve(
        op, "nn.Conv", input, filter if filters is None else filters,
        stride if strides is None else strides, padding, data_format, dilations,
    )  # fmt: skip


@function("depthwise_conv2d")
def depthwise_conv2d(
    op: KerasOps, input: Any, filter: Any, strides: Any, padding: Any,
    data_format: str | None = None, dilations: Any = None, rate: Any = None,
) -> Any:  # fmt: skip
    """One kernel, or several, for each channel."""
    spread = rate if dilations is None else dilations
    if (
        len({*_spatial(strides, 2, data_format)}) > 1
        or len({*_spatial(spread, 2, data_format)}) > 1
    ):
        raise Unsupported("strides that differ between axes")
    return _convolve(op, "nn.DepthwiseConv", input, filter, strides, padding, data_format, spread)


def _convolve(
    op: KerasOps, kind: str, input: Any, kernel: Any, strides: Any, padding: Any,
    data_format: str | None, dilations: Any,
) -> Any:  # fmt: skip
    image, weight = op.same_dtype(input, kernel)
    rank = op.rank(input) - 2
    if np.ndim(weight) not in (0, rank + 2):
        raise Unsupported("images with more than one batch axis")
    return op.call(
        kind, image, weight, strides=_alike(_spatial(strides, rank, data_format)),
        padding=_how(padding), data_format=_first(data_format),
        dilation_rate=_alike(_spatial(dilations, rank, data_format)),
    )  # fmt: skip


def _alike(numbers: list[int]) -> int | list[int]:
    """Return one number where all are the same: what JSON has are lists, Keras wants tuples."""
    return numbers[0] if len({*numbers}) == 1 else numbers


def _pool(names: Sequence[str], kind: str) -> None:
    def translate(
        op: KerasOps,
        input: Any,
        ksize: Any,
        strides: Any,
        padding: Any,
        data_format: str | None = None,
    ) -> Any:
        rank = op.rank(input) - 2
        return op.call(
            kind, input, pool_size=_spatial(ksize, rank, data_format), padding=_how(padding),
            strides=_spatial(strides, rank, data_format), data_format=_first(data_format),
        )  # fmt: skip

    function(*names)(translate)


_pool(("max_pool", "max_pool1d", "max_pool2d", "max_pool3d"), "nn.MaxPool")
_pool(("avg_pool", "avg_pool1d", "avg_pool2d", "avg_pool3d"), "nn.AveragePool")


@function("bias_add")
def bias_add(op: KerasOps, value: Any, bias: Any, data_format: str | None = None) -> Any:
    """A number added to each channel, which is the last."""
    if _first(data_format) == "channels_first":
        raise Unsupported("data_format='NCHW'")
    return op.call("numpy.Add", *op.same_dtype(value, bias))


@function("batch_normalization")
def batch_normalization(
    op: KerasOps,
    x: Any,
    mean: Any,
    variance: Any,
    offset: Any,
    scale: Any,
    variance_epsilon: float,
) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, of constants."""
    if any(list(references(v)) for v in (mean, variance, offset, scale)):
        raise Unsupported("mean and variance that are no constants")
    dtype = op.dtype(x)
    inverse = 1 / np.sqrt(np.asarray(variance, dtype) + variance_epsilon)
    if scale is not None:
        inverse = inverse * np.asarray(scale, dtype)
    rest = -np.asarray(mean, dtype) * inverse
    if offset is not None:
        rest = rest + np.asarray(offset, dtype)
    inverse, rest = inverse.astype(dtype), rest.astype(dtype)
    return op.call("numpy.Add", op.call("numpy.Multiply", x, inverse), rest)


def _blocks(name: str, kind: str) -> None:
    def translate(op: KerasOps, input: Any, block_size: int, data_format: str = "NHWC") -> Any:
        return op.call(kind, input, block_size=block_size, data_format=_first(data_format))

    function(name)(translate)


_blocks("space_to_depth", "nn.SpaceToDepth")
_blocks("depth_to_space", "nn.DepthToSpace")


# -- images ----------------------------------------------------------------------------------------


@function("image.resize")
def resize(
    op: KerasOps, images: Any, size: Any, method: str = "bilinear",
    preserve_aspect_ratio: bool = False, antialias: bool = False,
) -> Any:  # fmt: skip
    """Images in another size."""
    if preserve_aspect_ratio or method not in ("bilinear", "nearest", "bicubic", "lanczos3",
                                                "lanczos5", "area"):  # fmt: skip
        raise Unsupported(f"preserve_aspect_ratio, or the method {method}")
    if op.dtype(images) != "float32" and method != "nearest":
        raise Unsupported(f"images of {op.dtype(images)}")
    return op.call(
        "image.Resize", images, size=as_list(size), interpolation=str(method), antialias=antialias,
        data_format="channels_last",
    )  # fmt: skip


@function("image.rgb_to_grayscale")
def rgb_to_grayscale(op: KerasOps, images: Any) -> Any:
    """0.2989 * red + 0.587 * green + 0.114 * blue."""
    if not op.is_float(images):
        raise Unsupported("images of integers")
    return op.call("image.RGBToGrayscale", images, data_format="channels_last")


@function("image.grayscale_to_rgb")
def grayscale_to_rgb(op: KerasOps, images: Any) -> Any:
    """One channel three times."""
    return op.call("numpy.Concatenate", [images] * 3, axis=-1)


@function("image.flip_left_right")
def flip_left_right(op: KerasOps, image: Any) -> Any:
    """Images with their columns reversed."""
    return op.call("numpy.Flip", image, axis=-2)


@function("image.flip_up_down")
def flip_up_down(op: KerasOps, image: Any) -> Any:
    """Images with their rows reversed."""
    return op.call("numpy.Flip", image, axis=-3)


@function("image.crop_to_bounding_box")
def crop_to_bounding_box(
    op: KerasOps, image: Any, offset_height: int, offset_width: int, target_height: int,
    target_width: int,
) -> Any:  # fmt: skip
    """A part of images."""
    rows = slice(offset_height, offset_height + target_height)
    columns = slice(offset_width, offset_width + target_width)
    return item(op, image, [..., rows, columns, slice(None)])


@function("image.extract_patches")
def extract_patches(
    op: KerasOps, images: Any, sizes: Any, strides: Any, rates: Any, padding: str
) -> Any:
    """The patches of images, each in the channels of one place."""
    steps, spread = (_spatial(value, 2, None) for value in (strides, rates))
    if spread != [1, 1]:
        raise Unsupported("extract_patches with rates above 1")
    return op.call(
        "image.ExtractPatches", images, size=_spatial(sizes, 2, None), strides=steps,
        dilation_rate=1, padding=_how(padding), data_format="channels_last",
    )  # fmt: skip
