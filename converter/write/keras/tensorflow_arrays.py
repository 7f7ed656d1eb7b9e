"""Functions of arrays and of networks as operations of Keras 3: shapes, parts, images."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from converter.lower.keras.model import Reference, references
from converter.lower.keras.table import Gap
from converter.write.keras.tensorflow_steps import Steps, function, listed, whole

# -- shapes ----------------------------------------------------------------------------------------


@function("reshape")
def reshape(s: Steps, tensor: Any, shape: Any) -> Any:
    """The same elements in another shape, of which one size may be computed: it follows."""
    if isinstance(shape, Reference):
        raise Gap("a shape that is computed")
    sizes = [-1 if isinstance(n, Reference) else int(n) for n in shape]
    if sizes.count(-1) > 1:
        raise Gap("a shape that is computed")
    return s.op("numpy.Reshape", tensor, newshape=sizes)


@function("expand_dims")
def expand_dims(s: Steps, input: Any, axis: Any = None, dim: Any = None) -> Any:
    """A tensor with one more axis of one element."""
    return s.op("numpy.ExpandDims", input, axis=whole(dim if axis is None else axis))


@function("squeeze")
def squeeze(s: Steps, input: Any, axis: Any = None, squeeze_dims: Any = None) -> Any:
    """A tensor without axes of one element, which are named."""
    axes = squeeze_dims if axis is None else axis
    if axes is None or not listed(axes):
        raise Gap("all axes of one element")
    rank, found = s.rank(input), input
    for place in sorted((n % rank for n in listed(axes)), reverse=True):
        found = s.op("numpy.Squeeze", found, axis=place)
    return found


@function("transpose")
def transpose(s: Steps, a: Any, perm: Any = None, conjugate: bool = False) -> Any:
    """A tensor with its axes in another order, reversed by default."""
    del conjugate  # there are no complex numbers here
    return s.op("numpy.Transpose", a, axes=None if perm is None else listed(perm))


@function("matrix_transpose")
def matrix_transpose(s: Steps, a: Any) -> Any:
    """A tensor with its last two axes exchanged."""
    return s.op("numpy.Swapaxes", a, axis1=-2, axis2=-1)


@function("keras.backend.batch_flatten")
def batch_flatten(s: Steps, x: Any) -> Any:
    """A tensor with one axis behind the batch, whose size is known."""
    sizes = [n for n in s.sizes(x)[1:] if n is not None]
    if len(sizes) + 1 < s.rank(x):
        raise Gap("sizes that are not known")
    return s.op("numpy.Reshape", x, newshape=[-1, prod(sizes)])


@function("broadcast_to")
def broadcast_to(s: Steps, input: Any, shape: Any) -> Any:
    """A tensor repeated along axes of one element."""
    return s.op("numpy.BroadcastTo", input, shape=listed(shape))


# -- joining and cutting ---------------------------------------------------------------------------


def _several(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]


@function("concat")
def concat(s: Steps, values: Any, axis: Any) -> Any:
    """Tensors one after another along an axis."""
    return s.op("numpy.Concatenate", s.alike(*_several(values)), axis=whole(axis))


@function("stack")
def stack(s: Steps, values: Any, axis: int = 0) -> Any:
    """Tensors one after another along a new axis."""
    parts = _several(values)
    if any(isinstance(part, int | float) for part in parts):
        raise Gap("numbers in a stack")
    return s.op("numpy.Stack", s.alike(*parts), axis=axis)


@function("unstack")
def unstack(s: Steps, value: Any, num: int | None = None, axis: int = 0) -> Any:
    """The slices of a tensor along an axis, without it."""
    return s.op("core.Unstack", value, num=num, axis=axis)


@function("split")
def split(
    s: Steps, value: Any, num_or_size_splits: Any, axis: Any = 0, num: int | None = None
) -> Any:
    """A tensor cut along an axis, in equal parts or in parts of given sizes."""
    del num  # as many as there are sizes
    sizes = whole(num_or_size_splits)
    if isinstance(sizes, list):
        if -1 in sizes[:-1]:
            raise Gap("a size of what is left")
        sizes = np.cumsum(sizes[:-1]).tolist()
    return s.op("numpy.Split", value, indices_or_sections=sizes, axis=whole(axis))


@function("tile")
def tile(s: Steps, input: Any, multiples: Any) -> Any:
    """A tensor as a whole, again and again along its axes."""
    return s.op("numpy.Tile", input, repeats=listed(multiples))


@function("repeat")
def repeat(s: Steps, input: Any, repeats: Any, axis: int | None = None) -> Any:
    """A tensor, each element again and again along an axis."""
    return s.op("numpy.Repeat", input, repeats=whole(repeats), axis=axis)


@function("pad")
def pad(
    s: Steps, tensor: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0
) -> Any:
    """A tensor with more elements at the ends of its axes: one number, or itself mirrored."""
    pairs = [[int(low), int(high)] for low, high in whole(paddings)]
    kind = mode.lower()
    more = {"constant_values": constant_values} if kind == "constant" and constant_values else {}
    return s.op("numpy.Pad", tensor, keywords=more, pad_width=pairs, mode=kind)


@function("reverse")
def reverse(s: Steps, tensor: Any, axis: Any) -> Any:
    """A tensor with axes reversed."""
    return s.op("numpy.Flip", tensor, axis=whole(axis))


@function("roll")
def roll(s: Steps, input: Any, shift: Any, axis: Any) -> Any:
    """A tensor moved along axes, what leaves at one end coming back at the other."""
    return s.op("numpy.Roll", input, shift=whole(shift), axis=whole(axis))


# -- parts -----------------------------------------------------------------------------------------


@function("getitem")
def get_item(s: Steps, tensor: Any, slice_spec: Any) -> Any:
    """tensor[slice_spec], of numbers, slices, an ellipsis, new axes."""
    parts = slice_spec if isinstance(slice_spec, list | tuple) else [slice_spec]
    return _item(s, tensor, [_part(part) for part in parts])


def _part(part: Any) -> Any:
    if isinstance(part, dict):
        if part.get("class_name") == "__ellipsis__":
            return ...
        part = slice(part.get("start"), part.get("stop"), part.get("step"))
    if isinstance(part, slice):
        bounds = (part.start, part.stop, part.step)
        if any(isinstance(n, Reference) for n in bounds):
            raise Gap("bounds that are computed")
    elif part is not None and part is not ... and not isinstance(part, int):
        raise Gap("an index that is computed")
    return part


def _item(s: Steps, x: Any, parts: Sequence[Any]) -> Any:
    return s.op("numpy.GetItem", x, list(parts))


@function("slice")
def slice_(s: Steps, input_: Any, begin: Any, size: Any) -> Any:
    """A part of so many elements from given places on; -1 takes the rest."""
    pairs = zip(listed(begin), listed(size), strict=True)
    return _item(s, input_, [slice(a, None if n < 0 else a + n) for a, n in pairs])


@function("strided_slice")
def strided_slice(
    s: Steps, input_: Any, begin: Any, end: Any, strides: Any = None, begin_mask: int = 0,
    end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0, shrink_axis_mask: int = 0,
    var: Any = None,
) -> Any:  # fmt: skip
    """A part of a tensor; masks say bit by bit what each bound is instead."""
    del var
    starts, ends = listed(begin), listed(end)
    steps = [1] * len(starts) if strides is None else listed(strides)
    parts: list[Any] = []
    for k, (start, stop, step) in enumerate(zip(starts, ends, steps, strict=True)):
        bit = 1 << k
        if ellipsis_mask & bit:
            parts.append(...)
        elif new_axis_mask & bit:
            parts.append(None)
        elif shrink_axis_mask & bit:
            parts.append(start)
        else:
            low, high = (
                None if mask & bit else n for mask, n in ((begin_mask, start), (end_mask, stop))
            )
            parts.append(slice(low, high, step))
    return _item(s, input_, parts)


@function("gather")
def gather(
    s: Steps, params: Any, indices: Any, validate_indices: Any = None, axis: Any = None,
    batch_dims: int = 0,
) -> Any:  # fmt: skip
    """Elements along an axis, by number."""
    del validate_indices
    if batch_dims:
        raise Gap("gathering by each sample's own numbers")
    numbers = s.constant(indices, "int32")
    return s.op("numpy.Take", params, numbers, axis=0 if axis is None else whole(axis))


@function("embedding_lookup")
def embedding_lookup(
    s: Steps, params: Any, ids: Any, max_norm: Any = None, partition_strategy: str = "mod",
    validate_indices: Any = None,
) -> Any:  # fmt: skip
    """Rows by number."""
    del partition_strategy, validate_indices  # of rows in several tensors
    if max_norm is not None or not isinstance(params, Reference):
        raise Gap("max_norm, or rows that are constant")
    return s.op("numpy.Take", params, ids, axis=0)


@function("one_hot")
def one_hot(
    s: Steps, indices: Any, depth: Any, on_value: Any = None, off_value: Any = None,
    axis: int | None = None, dtype: str | None = None,
) -> Any:  # fmt: skip
    """One where a new axis has the number of the index, else zero."""
    if on_value not in (None, 1) or off_value not in (None, 0):
        raise Gap("other values than one and zero")
    if on_value is not None and not isinstance(on_value, float) and dtype is None:
        raise Gap("ones of an unknown dtype")
    place = -1 if axis is None else axis
    found = s.op("nn.OneHot", indices, num_classes=whole(depth), axis=place, dtype="float32")
    return found if dtype in (None, "float32") else s.cast(found, str(dtype))


@function("band_part")
def band_part(s: Steps, input: Any, num_lower: Any, num_upper: Any) -> Any:
    """Matrices with zeros outside a band of so many diagonals; -1 keeps all of a side."""
    low, high = whole(num_lower), whole(num_upper)
    found = input if low < 0 else s.op("numpy.Triu", input, k=-low)
    found = found if high < 0 else s.op("numpy.Tril", found, k=high)
    return s.op("numpy.Copy", found) if found is input else found


@function("diag_part", "tensor_diag_part")
def diag_part(
    s: Steps, input: Any, name: Any = None, k: int = 0, padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Any:  # fmt: skip
    """The diagonal of matrices."""
    del name, padding_value, align  # of one diagonal nothing is padded
    return s.op("numpy.Diagonal", input, offset=k, axis1=-2, axis2=-1)


def _scatter(name: str, reduction: str | None) -> None:
    def translate(
        s: Steps, tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = ""
    ) -> Any:
        del bad_indices_policy
        places = s.constant(indices, "int32")
        values = s.constant(updates, s.dtype(tensor))
        return s.op("core.ScatterUpdate", tensor, places, values, reduction=reduction)

    function(name)(translate)


_scatter("tensor_scatter_nd_update", None)
_scatter("tensor_scatter_nd_add", "add")
_scatter("tensor_scatter_nd_max", "max")
_scatter("tensor_scatter_nd_min", "min")


# -- networks --------------------------------------------------------------------------------------


@function("leaky_relu")
def leaky_relu(s: Steps, features: Any, alpha: float = 0.2) -> Any:
    """X if x > 0 else alpha * x."""
    return s.op("nn.LeakyRelu", features, negative_slope=alpha)


@function("gelu")
def gelu(s: Steps, features: Any, approximate: bool = False) -> Any:
    """X * P(X <= x) for a normal X, exactly or by tanh."""
    return s.op("nn.Gelu", features, approximate=approximate)


@function("silu")
def silu(s: Steps, features: Any, beta: Any = 1.0) -> Any:
    """X * sigmoid(beta * x)."""
    if beta == 1:
        return s.op("nn.Silu", features)
    scaled = s.op("numpy.Multiply", features, s.constant(beta, s.dtype(features)))
    return s.op("numpy.Multiply", features, s.op("nn.Sigmoid", scaled))


@function("crelu")
def crelu(s: Steps, features: Any, axis: int = -1) -> Any:
    """relu(x) and relu(-x), one after the other along an axis."""
    halves = [s.op("nn.Relu", features), s.op("nn.Relu", s.op("numpy.Negative", features))]
    return s.op("numpy.Concatenate", halves, axis=axis)


def _softmax(name: str, kind: str) -> None:
    def translate(s: Steps, logits: Any, axis: int | None = None, dim: int | None = None) -> Any:
        place = dim if axis is None else axis
        return s.op(kind, logits, axis=-1 if place is None else place)

    function(name)(translate)


_softmax("softmax", "nn.Softmax")
_softmax("log_softmax", "nn.LogSoftmax")


def _first(data_format: str | None) -> str:
    return "channels_first" if (data_format or "").startswith("NC") else "channels_last"


def _spatial(value: Any, rank: int, data_format: str | None) -> list[int]:
    given = [1] if value is None else listed(value)
    if len(given) == rank + 2:
        return given[2:] if _first(data_format) == "channels_first" else given[1:-1]
    return given * rank if len(given) == 1 else given


def _how(padding: Any) -> str:
    if not isinstance(padding, str):
        raise Gap("padding by numbers")
    return padding.lower()


@function("conv1d", "conv2d", "conv3d", "convolution")
def conv(
    s: Steps, input: Any, filters: Any = None, strides: Any = None, padding: Any = "VALID",
    data_format: str | None = None, dilations: Any = None, filter: Any = None, stride: Any = None,
    use_cudnn_on_gpu: bool = True,
) -> Any:  # fmt: skip
    """Cross-correlation."""
    del use_cudnn_on_gpu
    return _convolved(
        s, "nn.Conv", input, filter if filters is None else filters,
        stride if strides is None else strides, padding, data_format, dilations,
    )  # fmt: skip


@function("depthwise_conv2d")
def depthwise_conv2d(
    s: Steps, input: Any, filter: Any, strides: Any, padding: Any, data_format: str | None = None,
    dilations: Any = None, rate: Any = None,
) -> Any:  # fmt: skip
    """One kernel, or several, for each channel."""
    spread = rate if dilations is None else dilations
    if (
        len({*_spatial(strides, 2, data_format)}) > 1
        or len({*_spatial(spread, 2, data_format)}) > 1
    ):
        raise Gap("strides that are not all the same")
    return _convolved(s, "nn.DepthwiseConv", input, filter, strides, padding, data_format, spread)


def _convolved(
    s: Steps, kind: str, input: Any, kernel: Any, strides: Any, padding: Any,
    data_format: str | None, dilations: Any,
) -> Any:  # fmt: skip
    image, weight = s.alike(input, kernel)
    rank = s.rank(input) - 2
    if np.ndim(weight) not in (0, rank + 2):
        raise Gap("images with several axes of samples")
    return s.op(
        kind, image, weight, strides=_alike(_spatial(strides, rank, data_format)),
        padding=_how(padding), data_format=_first(data_format),
        dilation_rate=_alike(_spatial(dilations, rank, data_format)),
    )  # fmt: skip


def _alike(numbers: list[int]) -> int | list[int]:
    """Return one number where all are the same: what JSON has are lists, Keras wants tuples."""
    return numbers[0] if len({*numbers}) == 1 else numbers


def _pool(names: Sequence[str], kind: str) -> None:
    def translate(
        s: Steps, input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = None
    ) -> Any:
        rank = s.rank(input) - 2
        return s.op(
            kind, input, pool_size=_spatial(ksize, rank, data_format), padding=_how(padding),
            strides=_spatial(strides, rank, data_format), data_format=_first(data_format),
        )  # fmt: skip

    function(*names)(translate)


_pool(("max_pool", "max_pool1d", "max_pool2d", "max_pool3d"), "nn.MaxPool")
_pool(("avg_pool", "avg_pool1d", "avg_pool2d", "avg_pool3d"), "nn.AveragePool")


@function("bias_add")
def bias_add(s: Steps, value: Any, bias: Any, data_format: str | None = None) -> Any:
    """A number added to each channel, which is the last."""
    if _first(data_format) == "channels_first":
        raise Gap("channels first")
    return s.op("numpy.Add", *s.alike(value, bias))


@function("batch_normalization")
def batch_normalization(
    s: Steps, x: Any, mean: Any, variance: Any, offset: Any, scale: Any, variance_epsilon: float
) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, of constants."""
    if any(list(references(v)) for v in (mean, variance, offset, scale)):
        raise Gap("statistics that are computed")
    dtype = s.dtype(x)
    inverse = 1 / np.sqrt(np.asarray(variance, dtype) + variance_epsilon)
    if scale is not None:
        inverse = inverse * np.asarray(scale, dtype)
    rest = -np.asarray(mean, dtype) * inverse
    if offset is not None:
        rest = rest + np.asarray(offset, dtype)
    inverse, rest = inverse.astype(dtype), rest.astype(dtype)
    return s.op("numpy.Add", s.op("numpy.Multiply", x, inverse), rest)


def _blocks(name: str, kind: str) -> None:
    def translate(s: Steps, input: Any, block_size: int, data_format: str = "NHWC") -> Any:
        return s.op(kind, input, block_size=block_size, data_format=_first(data_format))

    function(name)(translate)


_blocks("space_to_depth", "nn.SpaceToDepth")
_blocks("depth_to_space", "nn.DepthToSpace")


# -- images ----------------------------------------------------------------------------------------


@function("image.resize")
def resize(
    s: Steps, images: Any, size: Any, method: str = "bilinear",
    preserve_aspect_ratio: bool = False, antialias: bool = False,
) -> Any:  # fmt: skip
    """Images in another size."""
    if preserve_aspect_ratio or method not in ("bilinear", "nearest", "bicubic", "lanczos3",
                                                "lanczos5", "area"):  # fmt: skip
        raise Gap(f"preserve_aspect_ratio, or the method {method}")
    if s.dtype(images) != "float32" and method != "nearest":
        raise Gap(f"images of {s.dtype(images)}")
    return s.op(
        "image.Resize", images, size=listed(size), interpolation=str(method), antialias=antialias,
        data_format="channels_last",
    )  # fmt: skip


@function("image.rgb_to_grayscale")
def rgb_to_grayscale(s: Steps, images: Any) -> Any:
    """0.2989 * red + 0.587 * green + 0.114 * blue."""
    if not s.is_float(images):
        raise Gap("images of integers")
    return s.op("image.RGBToGrayscale", images, data_format="channels_last")


@function("image.grayscale_to_rgb")
def grayscale_to_rgb(s: Steps, images: Any) -> Any:
    """One channel three times."""
    return s.op("numpy.Concatenate", [images] * 3, axis=-1)


@function("image.flip_left_right")
def flip_left_right(s: Steps, image: Any) -> Any:
    """Images with their columns reversed."""
    return s.op("numpy.Flip", image, axis=-2)


@function("image.flip_up_down")
def flip_up_down(s: Steps, image: Any) -> Any:
    """Images with their rows reversed."""
    return s.op("numpy.Flip", image, axis=-3)


@function("image.crop_to_bounding_box")
def crop_to_bounding_box(
    s: Steps, image: Any, offset_height: int, offset_width: int, target_height: int,
    target_width: int,
) -> Any:  # fmt: skip
    """A part of images."""
    rows = slice(offset_height, offset_height + target_height)
    columns = slice(offset_width, offset_width + target_width)
    return _item(s, image, [..., rows, columns, slice(None)])


@function("image.extract_patches")
def extract_patches(
    s: Steps, images: Any, sizes: Any, strides: Any, rates: Any, padding: str
) -> Any:
    """The patches of images, each in the channels of one place."""
    steps, spread = (_spatial(value, 2, None) for value in (strides, rates))
    if spread != [1, 1]:
        raise Gap("patches with holes")
    return s.op(
        "image.ExtractPatches", images, size=_spatial(sizes, 2, None), strides=steps,
        dilation_rate=1, padding=_how(padding), data_format="channels_last",
    )  # fmt: skip
