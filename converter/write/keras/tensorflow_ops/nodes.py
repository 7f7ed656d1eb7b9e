"""TensorFlow ops, as the node of a TensorFlowOpLayer names them, translated by the functions.

Inputs are in the order of the op's definition, constants among them; attributes are keywords.
"""

from collections.abc import Sequence
from typing import Any

from converter.lower.keras.table import Unsupported
from converter.lower.keras.tensorflow_ops.elementwise import BINARY, UNARY
from converter.lower.keras.tensorflow_ops.reductions import OPS as REDUCTIONS
from converter.write.keras.tensorflow_ops import arithmetic as a
from converter.write.keras.tensorflow_ops import arrays as r
from converter.write.keras.tensorflow_ops import networks as n
from converter.write.keras.tensorflow_ops.builder import FUNCTIONS, KerasOps, node

# Ops whose inputs are a function's arguments in their order; some ops are two functions' own.
DIRECT = {
    op: function
    for function, op in {**UNARY, **BINARY}.items()
    if op not in ("Equal", "NotEqual")
} | {
    "Add": "add", "Atan2": "atan2", "BroadcastTo": "broadcast_to", "ExpandDims": "expand_dims",
    "Fill": "fill", "GatherNd": "gather_nd", "LogSoftmax": "log_softmax", "Mod": "floormod",
    "OnesLike": "ones_like", "Pad": "pad", "Range": "range", "RealDiv": "truediv",
    "Reshape": "reshape", "ReverseV2": "reverse", "Roll": "roll", "SelectV2": "where",
    "Slice": "slice", "Snapshot": "identity", "Softmax": "softmax", "Tile": "tile",
    "Transpose": "transpose", "ZerosLike": "zeros_like",
}  # fmt: skip


def _direct(name: str, function: str) -> None:
    translator = FUNCTIONS[function]
    node(name)(lambda op, *inputs: translator(op, *inputs))


def _reduce(name: str, function: str) -> None:
    translator = FUNCTIONS[function]

    def translate(op: KerasOps, input: Any, axis: Any, keep_dims: bool = False) -> Any:
        return translator(op, input, axis, keep_dims)

    node(name)(translate)


for _name, _function in DIRECT.items():
    if _function in FUNCTIONS:
        _direct(_name, _function)
for _function, _name in REDUCTIONS.items():
    _reduce(_name, _function)


def _compare(name: str, function: str) -> None:
    def translate(op: KerasOps, x: Any, y: Any, incompatible_shape_error: bool = True) -> Any:
        del incompatible_shape_error
        return FUNCTIONS[function](op, x, y)

    node(name)(translate)


_compare("Equal", "equal")
_compare("NotEqual", "not_equal")


def _position(name: str, function: str) -> None:
    def translate(op: KerasOps, input: Any, axis: Any, output_type: str = "int64") -> Any:
        return FUNCTIONS[function](op, input, axis, output_type)

    node(name)(translate)


_position("ArgMax", "argmax")
_position("ArgMin", "argmin")


@node("Div")
def div(op: KerasOps, x: Any, y: Any) -> Any:
    """X / y."""
    return FUNCTIONS["truediv"](op, x, y)


@node("AddN")
def add_n(op: KerasOps, *inputs: Any) -> Any:
    """The sum of tensors."""
    return a.add_n(op, list(inputs))


@node("Select")
def select(op: KerasOps, condition: Any, x: Any, y: Any) -> Any:
    """X where the condition holds, else y, of one shape."""
    if op.rank(condition) != op.rank(x):
        raise Unsupported("a condition with one element for each row")
    return a.where(op, condition, x, y)


@node("Cast")
def cast(op: KerasOps, x: Any, DstT: str, Truncate: bool = False) -> Any:  # noqa: N803
    """X in another dtype."""
    del Truncate
    return op.cast(x, DstT)


@node("ClipByValue")
def clip_by_value(op: KerasOps, t: Any, low: Any, high: Any) -> Any:
    """T, held between two bounds."""
    return a.clip_by_value(op, t, low, high)


@node("LeakyRelu")
def leaky_relu(op: KerasOps, features: Any, alpha: float = 0.2) -> Any:
    """X if x > 0 else alpha * x."""
    return n.leaky_relu(op, features, alpha)


@node("Cumsum")
def cumsum(op: KerasOps, x: Any, axis: Any, exclusive: bool = False, reverse: bool = False) -> Any:
    """The running sum along an axis, from either end."""
    return a.cumsum(op, x, axis, exclusive, reverse)


@node("TopKV2")
def top_k(op: KerasOps, input: Any, k: Any, sorted: bool = True) -> Any:
    """The k largest along the last axis, and their numbers."""
    return a.top_k(op, input, k, sorted)


@node("MatMul")
def matmul(
    op: KerasOps, x: Any, y: Any, transpose_a: bool = False, transpose_b: bool = False,
    grad_a: bool = False, grad_b: bool = False,
) -> Any:  # fmt: skip
    """The matrix product, of either matrix transposed."""
    del grad_a, grad_b
    return a.matmul(op, x, y, transpose_a, transpose_b)


@node("BatchMatMul", "BatchMatMulV2")
def batch_matmul(op: KerasOps, x: Any, y: Any, adj_x: bool = False, adj_y: bool = False) -> Any:
    """The products of matrices."""
    return a.matmul(op, x, y, adj_x, adj_y)


@node("Einsum")
def einsum(op: KerasOps, *inputs: Any, equation: str) -> Any:
    """Einstein's sum."""
    return a.einsum(op, equation, *inputs)


@node("Squeeze")
def squeeze(op: KerasOps, input: Any, squeeze_dims: Any = ()) -> Any:
    """A tensor without axes of one element, which are named."""
    return r.squeeze(op, input, list(squeeze_dims) or None)


@node("ConcatV2")
def concat_v2(op: KerasOps, *inputs: Any) -> Any:
    """Tensors one after another along the axis that the last input names."""
    return r.concat(op, list(inputs[:-1]), inputs[-1])


@node("Concat")
def concat(op: KerasOps, axis: Any, *inputs: Any) -> Any:
    """Tensors one after another along the axis that the first input names."""
    return r.concat(op, list(inputs), axis)


@node("Pack")
def pack(op: KerasOps, *inputs: Any, axis: int = 0) -> Any:
    """Tensors one after another along a new axis."""
    return r.stack(op, list(inputs), axis)


@node("Unpack")
def unpack(op: KerasOps, value: Any, num: int, axis: int = 0) -> Any:
    """The slices of a tensor along an axis, without it."""
    return r.unstack(op, value, num, axis)


@node("Split")
def split(op: KerasOps, axis: Any, value: Any, num_split: int) -> Any:
    """A tensor cut in equal parts along an axis."""
    return r.split(op, value, num_split, axis)


@node("SplitV")
def split_v(op: KerasOps, value: Any, sizes: Any, axis: Any, num_split: int) -> Any:
    """A tensor cut in parts of given sizes along an axis."""
    del num_split
    return r.split(op, value, sizes, axis)


@node("PadV2")
def pad_v2(op: KerasOps, input: Any, paddings: Any, constant_values: Any) -> Any:
    """A tensor with a number around it."""
    return r.pad(op, input, paddings, "CONSTANT", constant_values)


@node("MirrorPad")
def mirror_pad(op: KerasOps, input: Any, paddings: Any, mode: str) -> Any:
    """A tensor with itself mirrored around it."""
    return r.pad(op, input, paddings, mode)


@node("GatherV2")
def gather_v2(op: KerasOps, params: Any, indices: Any, axis: Any, batch_dims: int = 0) -> Any:
    """Elements along an axis, by number."""
    return r.gather(op, params, indices, None, axis, batch_dims)


@node("Gather")
def gather(op: KerasOps, params: Any, indices: Any, validate_indices: Any = None) -> Any:
    """Rows by number."""
    return r.gather(op, params, indices, validate_indices, 0)


@node("StridedSlice")
def strided_slice(
    op: KerasOps, input: Any, begin: Any, end: Any, strides: Any, begin_mask: int = 0,
    end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0, shrink_axis_mask: int = 0,
) -> Any:  # fmt: skip
    """A part of a tensor; masks say bit by bit what each bound is instead."""
    return r.strided_slice(
        op, input, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask,
        shrink_axis_mask,
    )  # fmt: skip


@node("OneHot")
def one_hot(
    op: KerasOps, indices: Any, depth: Any, on_value: Any, off_value: Any, axis: int = -1
) -> Any:
    """One where a new axis has the number of the index, else zero."""
    return r.one_hot(op, indices, depth, on_value, off_value, axis)


@node("MatrixBandPart")
def band_part(op: KerasOps, input: Any, num_lower: Any, num_upper: Any) -> Any:
    """Matrices with zeros outside a band of so many diagonals."""
    return r.band_part(op, input, num_lower, num_upper)


def _explicit(padding: str, explicit_paddings: Sequence[int]) -> str:
    if any(explicit_paddings):
        raise Unsupported("explicit paddings")
    return padding


@node("Conv2D", "Conv3D")
def conv(
    op: KerasOps, input: Any, filter: Any, strides: Any, padding: str, data_format: str = "NHWC",
    dilations: Any = None, explicit_paddings: Sequence[int] = (), use_cudnn_on_gpu: bool = True,
) -> Any:  # fmt: skip
    """Cross-correlation."""
    del use_cudnn_on_gpu
    how = _explicit(padding, explicit_paddings)
    return n.conv(op, input, filter, strides, how, data_format, dilations)


@node("DepthwiseConv2dNative")
def depthwise_conv(
    op: KerasOps, input: Any, filter: Any, strides: Any, padding: str, data_format: str = "NHWC",
    dilations: Any = None, explicit_paddings: Sequence[int] = (),
) -> Any:  # fmt: skip
    """One kernel, or several, for each channel."""
    how = _explicit(padding, explicit_paddings)
    return n.depthwise_conv2d(op, input, filter, strides, how, data_format, dilations)


def _pool(name: str, function: str) -> None:
    def translate(
        op: KerasOps, value: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NHWC",
        explicit_paddings: Sequence[int] = (),
    ) -> Any:  # fmt: skip
        how = _explicit(padding, explicit_paddings)
        return FUNCTIONS[function](op, value, ksize, strides, how, data_format)

    node(name)(translate)


_pool("MaxPool", "max_pool")
_pool("AvgPool", "avg_pool")


@node("BiasAdd")
def bias_add(op: KerasOps, value: Any, bias: Any, data_format: str = "NHWC") -> Any:
    """A number added to each channel."""
    return n.bias_add(op, value, bias, data_format)


@node("L2Loss")
def l2_loss(op: KerasOps, t: Any) -> Any:
    """sum(t ** 2) / 2."""
    as_int = op.call("numpy.Sum", op.call("numpy.Square", t), axis=None)
    return op.call("numpy.Multiply", as_int, 0.5)


@node("DepthToSpace")
def depth_to_space(op: KerasOps, input: Any, block_size: int, data_format: str = "NHWC") -> Any:
    """Blocks of channels, moved into space."""
    return FUNCTIONS["depth_to_space"](op, input, block_size, data_format)


@node("SpaceToDepth")
def space_to_depth(op: KerasOps, input: Any, block_size: int, data_format: str = "NHWC") -> Any:
    """Blocks of space, moved into channels."""
    return FUNCTIONS["space_to_depth"](op, input, block_size, data_format)


def _resize(name: str, method: str) -> None:
    def translate(
        op: KerasOps, images: Any, size: Any, align_corners: bool = False,
        half_pixel_centers: bool = False,
    ) -> Any:  # fmt: skip
        if align_corners or not half_pixel_centers:
            raise Unsupported("align_corners or half_pixel_centers=False")
        return n.resize(op, images, size, method)

    node(name)(translate)


_resize("ResizeBilinear", "bilinear")
_resize("ResizeNearestNeighbor", "nearest")
