"""Ops of TensorFlow's graphs, as the node of a TensorFlowOpLayer names them.

Inputs stand in the order of the op's definition, with the layer's constants among them; attributes
are keyword-only, under their own names. What says only a type is taken off by the rule.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.16.1/tensorflow/core/api_def/base_api
"""

from collections.abc import Mapping, Sequence
from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.operations import products
from converter.lower.keras.operations.operands import tensor
from converter.lower.keras.table import TF_FUNCTIONS, TF_OPS, Unsupported, operation
from converter.lower.keras.tensorflow_ops import arithmetic as a
from converter.lower.keras.tensorflow_ops import arrays as r
from converter.lower.keras.tensorflow_ops import networks as n
from converter.lower.table import Handler, Variant
from converter.lower.values import Value

# -- ops that are a function each ------------------------------------------------------------------

# fmt: off
DIRECT = {
    "Abs": "abs",           "Acos": "acos",        "Acosh": "acosh",       "Add": "add",
    "AddV2": "add",         "Asin": "asin",        "Asinh": "asinh",       "Atan": "atan",
    "Atan2": "atan2",       "Atanh": "atanh",      "BroadcastTo": "broadcast_to",
    "Ceil": "ceil",         "Cos": "cos",          "Cosh": "cosh",
    "DivNoNan": "divide_no_nan", "Elu": "elu",     "Erf": "erf",           "Erfc": "erfc",
    "Erfinv": "erfinv",     "Exp": "exp",          "ExpandDims": "expand_dims", "Expm1": "expm1",
    "Fill": "fill",         "Floor": "floor",      "FloorDiv": "floordiv", "FloorMod": "floormod",
    "GatherNd": "gather_nd", "Greater": "greater", "GreaterEqual": "greater_equal",
    "Identity": "identity", "IsFinite": "is_finite", "IsInf": "is_inf",    "IsNan": "is_nan",
    "Less": "less",         "LessEqual": "less_equal", "Log": "log",
    "Log1p": "log1p",       "LogicalAnd": "logical_and", "LogicalNot": "logical_not",
    "LogicalOr": "logical_or", "LogSoftmax": "log_softmax", "Maximum": "maximum",
    "Minimum": "minimum",   "Mod": "floormod",     "Mul": "multiply",
    "MulNoNan": "multiply_no_nan", "Neg": "negative", "OnesLike": "ones_like", "Pad": "pad",
    "Pow": "pow",           "Range": "range",      "RealDiv": "truediv",
    "Reciprocal": "reciprocal", "Relu": "relu",    "Relu6": "relu6",       "Reshape": "reshape",
    "ReverseV2": "reverse", "Rint": "rint",        "Roll": "roll",         "Round": "round",
    "Rsqrt": "rsqrt",       "SelectV2": "where",   "Selu": "selu",         "Sigmoid": "sigmoid",
    "Sign": "sign",         "Sin": "sin",          "Sinh": "sinh",         "Slice": "slice",
    "Snapshot": "identity", "Softmax": "softmax",  "Softplus": "softplus", "Softsign": "softsign",
    "Sqrt": "sqrt",         "Square": "square",    "SquaredDifference": "squared_difference",
    "StopGradient": "stop_gradient", "Sub": "subtract", "Tan": "tan",      "Tanh": "tanh",
    "Tile": "tile",         "Transpose": "transpose", "Xdivy": "xdivy",    "Xlogy": "xlogy",
    "ZerosLike": "zeros_like",
}
REDUCED = {
    "Sum": "reduce_sum",    "Mean": "reduce_mean", "Max": "reduce_max",    "Min": "reduce_min",
    "Prod": "reduce_prod",  "All": "reduce_all",   "Any": "reduce_any",
    "EuclideanNorm": "reduce_euclidean_norm",
}
# fmt: on


def _variants(functions: Mapping[str, str]) -> list[Variant]:
    return [
        Variant(name, TF_FUNCTIONS[function].summary, function=TF_FUNCTIONS[function].handler)
        for name, function in functions.items()
    ]


@operation(TF_OPS, *_variants(DIRECT))
def call_function(op: Builder, *inputs: Any, function: Handler) -> Any:
    """What a function of TensorFlow computes of the inputs, in their order."""
    return function(op, *inputs)


@operation(TF_OPS, *_variants(REDUCED))
def reduction(
    op: Builder, input: Any, axis: Any, *, function: Handler, keep_dims: bool = False
) -> Any:
    """A reduction over axes."""
    return function(op, input, axis, keep_dims)


# -- ops with attributes ---------------------------------------------------------------------------


@operation(TF_OPS, "Equal")
def equal(op: Builder, x: Any, y: Any, *, incompatible_shape_error: bool = True) -> Value:
    """Whether x is y."""
    del incompatible_shape_error
    return op.elementwise("Equal", *a.alike(op, x, y))


@operation(TF_OPS, "NotEqual")
def not_equal(op: Builder, x: Any, y: Any, *, incompatible_shape_error: bool = True) -> Value:
    """Whether x is not y."""
    del incompatible_shape_error
    return op.unary("Not", op.elementwise("Equal", *a.alike(op, x, y)))


@operation(TF_OPS, "Div")
def div(op: Builder, x: Any, y: Any) -> Value:
    """X / y, of integers cut off towards zero."""
    return op.div(*a.alike(op, x, y))


@operation(TF_OPS, "AddN")
def add_n(op: Builder, *inputs: Any) -> Value:
    """The sum of tensors."""
    return a.add_n(op, list(inputs))


@operation(TF_OPS, "Select")
def select(op: Builder, condition: Any, x: Any, y: Any) -> Value:
    """X where the condition holds, else y; a vector of conditions is of whole rows."""
    where = tensor(op, condition, "bool")
    values = a.alike(op, x, y)
    if 0 < where.rank < values[0].rank:
        where = op.unsqueeze(where, list(range(where.rank, values[0].rank)))
    return op.where(where, *values)


@operation(TF_OPS, "Where")
def where(op: Builder, condition: Any) -> Value:
    """The places where a condition holds."""
    return a.where(op, condition)


@operation(TF_OPS, "Cast")
def cast(op: Builder, x: Any, *, DstT: str, Truncate: bool = False) -> Value:  # noqa: N803
    """X in another dtype."""
    del Truncate
    return tensor(op, x, DstT)


@operation(TF_OPS, "ClipByValue")
def clip_by_value(op: Builder, t: Any, low: Any, high: Any) -> Value:
    """T, held between two bounds."""
    return a.clip_by_value(op, t, low, high)


@operation(TF_OPS, "LeakyRelu")
def leaky_relu(op: Builder, features: Any, *, alpha: float = 0.2) -> Value:
    """X if x > 0 else alpha * x."""
    return n.leaky_relu(op, features, alpha)


@operation(TF_OPS, "ArgMax")
def argmax(op: Builder, input: Any, axis: Any, *, output_type: str = "int64") -> Any:
    """The number of the largest along an axis."""
    return TF_FUNCTIONS["argmax"].handler(op, input, axis, output_type)


@operation(TF_OPS, "ArgMin")
def argmin(op: Builder, input: Any, axis: Any, *, output_type: str = "int64") -> Any:
    """The number of the smallest along an axis."""
    return TF_FUNCTIONS["argmin"].handler(op, input, axis, output_type)


@operation(TF_OPS, "Cumsum")
def cumsum(
    op: Builder, x: Any, axis: Any, *, exclusive: bool = False, reverse: bool = False
) -> Value:
    """The running sum along an axis, from either end."""
    return a.cumsum(op, x, axis, exclusive, reverse)


@operation(TF_OPS, "TopKV2")
def top_k(op: Builder, input: Any, k: Any, *, sorted: bool = True) -> list[Value]:
    """The k largest along the last axis, and their numbers."""
    return a.top_k(op, input, k, sorted)


@operation(TF_OPS, "MatMul")
def matmul(
    op: Builder, x: Any, y: Any, *,
    transpose_a: bool = False, transpose_b: bool = False, grad_a: bool = False,
    grad_b: bool = False,
) -> Value:  # fmt: skip
    """The matrix product, of either matrix transposed."""
    del grad_a, grad_b
    return a.matmul(op, x, y, transpose_a, transpose_b)


@operation(TF_OPS, "BatchMatMul", "BatchMatMulV2")
def batch_matmul(op: Builder, x: Any, y: Any, *, adj_x: bool = False, adj_y: bool = False) -> Value:
    """The products of matrices."""
    return a.matmul(op, x, y, adj_x, adj_y)


@operation(TF_OPS, "Einsum")
def einsum(op: Builder, *inputs: Any, equation: str) -> Value:
    """Einstein's sum."""
    return products.einsum(op, *a.alike(op, *inputs), subscripts=equation)


# -- arrays ----------------------------------------------------------------------------------------


@operation(TF_OPS, "Shape")
def shape(op: Builder, input: Any, *, out_type: str = "int32") -> Value:
    """The sizes of the axes of a tensor."""
    return r.shape_of(op, input, out_type)


@operation(TF_OPS, "Size")
def size(op: Builder, input: Any, *, out_type: str = "int32") -> Value:
    """The number of elements."""
    return r.size(op, input, out_type)


@operation(TF_OPS, "Squeeze")
def squeeze(op: Builder, input: Any, *, squeeze_dims: Any = ()) -> Value:
    """A tensor without axes of one element: those named, or all."""
    return r.squeeze(op, input, list(squeeze_dims) or None)


@operation(TF_OPS, "ConcatV2")
def concat_v2(op: Builder, *inputs: Any) -> Value:
    """Tensors one after another along the axis that the last input names."""
    return r.concat(op, list(inputs[:-1]), inputs[-1])


@operation(TF_OPS, "Concat")
def concat(op: Builder, axis: Any, *inputs: Any) -> Value:
    """Tensors one after another along the axis that the first input names."""
    return r.concat(op, list(inputs), axis)


@operation(TF_OPS, "Pack")
def pack(op: Builder, *inputs: Any, axis: int = 0) -> Value:
    """Tensors one after another along a new axis."""
    if all(isinstance(v, Value) and v.rank == 0 for v in inputs):
        parts = [op.reshape(v, (1,)) for v in a.alike(op, *inputs)]
        return op.concat(parts, 0)
    return r.stack(op, list(inputs), axis)


@operation(TF_OPS, "Unpack")
def unpack(op: Builder, value: Any, *, num: int, axis: int = 0) -> list[Value]:
    """The slices of a tensor along an axis, without it."""
    return r.unstack(op, value, num, axis)


@operation(TF_OPS, "Split")
def split(op: Builder, axis: Any, value: Any, *, num_split: int) -> list[Value]:
    """A tensor cut in equal parts along an axis."""
    return r.split(op, value, num_split, axis)


@operation(TF_OPS, "SplitV")
def split_v(op: Builder, value: Any, sizes: Any, axis: Any, *, num_split: int) -> list[Value]:
    """A tensor cut in parts of given sizes along an axis."""
    del num_split
    return r.split(op, value, sizes if isinstance(sizes, Value) else list(sizes), axis)


@operation(TF_OPS, "PadV2")
def pad_v2(op: Builder, input: Any, paddings: Any, constant_values: Any) -> Value:
    """A tensor with a number around it."""
    return r.pad(op, input, paddings, "CONSTANT", constant_values)


@operation(TF_OPS, "MirrorPad")
def mirror_pad(op: Builder, input: Any, paddings: Any, *, mode: str) -> Value:
    """A tensor with itself mirrored around it."""
    return r.pad(op, input, paddings, mode)


@operation(TF_OPS, "GatherV2")
def gather_v2(op: Builder, params: Any, indices: Any, axis: Any, *, batch_dims: int = 0) -> Value:
    """Elements along an axis, by number."""
    return r.gather(op, params, indices, None, axis, batch_dims)


@operation(TF_OPS, "Gather")
def gather(op: Builder, params: Any, indices: Any, *, validate_indices: Any = None) -> Value:
    """Rows by number."""
    return r.gather(op, params, indices, validate_indices, 0)


@operation(TF_OPS, "StridedSlice")
def strided_slice(
    op: Builder, input: Any, begin: Any, end: Any, strides: Any, *,
    begin_mask: int = 0, end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Value:  # fmt: skip
    """A part of a tensor; masks say bit by bit what each bound is instead."""
    return r.strided_slice(
        op, input, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask,
        shrink_axis_mask,
    )  # fmt: skip


@operation(TF_OPS, "OneHot")
def one_hot(
    op: Builder, indices: Any, depth: Any, on_value: Any, off_value: Any, *, axis: int = -1
) -> Value:
    """One number where a new axis has the number of the index, else another."""
    return r.one_hot(op, indices, depth, on_value, off_value, axis)


@operation(TF_OPS, "MatrixBandPart")
def band_part(op: Builder, input: Any, num_lower: Any, num_upper: Any) -> Value:
    """Matrices with zeros outside a band of so many diagonals."""
    return r.band_part(op, input, num_lower, num_upper)


# -- networks --------------------------------------------------------------------------------------


def _explicit(padding: str, explicit_paddings: Sequence[int]) -> str:
    if any(explicit_paddings):
        raise Unsupported("explicit paddings")
    return padding


@operation(TF_OPS, "Conv2D", "Conv3D")
def conv(
    op: Builder, input: Any, filter: Any, *,
    strides: Any, padding: str, data_format: str = "NHWC", dilations: Any = None,
    explicit_paddings: Sequence[int] = (), use_cudnn_on_gpu: bool = True,
) -> Value:  # fmt: skip
    """Cross-correlation; groups are as many as fit the kernel's channels."""
    del use_cudnn_on_gpu
    how = _explicit(padding, explicit_paddings)
    return n.conv(op, input, filter, strides, how, data_format, dilations)


@operation(TF_OPS, "DepthwiseConv2dNative")
def depthwise_conv(
    op: Builder, input: Any, filter: Any, *,
    strides: Any, padding: str, data_format: str = "NHWC", dilations: Any = None,
    explicit_paddings: Sequence[int] = (),
) -> Value:  # fmt: skip
    """One kernel, or several, for each channel."""
    how = _explicit(padding, explicit_paddings)
    return n.depthwise_conv2d(op, input, filter, strides, how, data_format, dilations)


@operation(TF_OPS, *_variants({"MaxPool": "max_pool", "AvgPool": "avg_pool"}))
def pool(
    op: Builder, value: Any, *, function: Handler, ksize: Any, strides: Any, padding: str,
    data_format: str = "NHWC", explicit_paddings: Sequence[int] = (),
) -> Any:  # fmt: skip
    """One number of each window."""
    how = _explicit(padding, explicit_paddings)
    return function(op, value, ksize, strides, how, data_format)


@operation(TF_OPS, "BiasAdd")
def bias_add(op: Builder, value: Any, bias: Any, *, data_format: str = "NHWC") -> Value:
    """A number added to each channel."""
    return n.bias_add(op, value, bias, data_format)


@operation(TF_OPS, "L2Loss")
def l2_loss(op: Builder, t: Any) -> Value:
    """sum(t ** 2) / 2."""
    value = tensor(op, t)
    whole = op.reduce("ReduceSum", op.mul(value, value), list(range(value.rank)))
    return op.mul(whole, 0.5)


@operation(TF_OPS, "LRN")
def lrn(
    op: Builder, input: Any, *,
    depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5,
) -> Value:  # fmt: skip
    """X / (bias + alpha * the sum of squares of channels around) ** beta."""
    return n.local_response_normalization(op, input, depth_radius, bias, alpha, beta)


@operation(TF_OPS, "DepthToSpace")
def depth_to_space(op: Builder, input: Any, *, block_size: int, data_format: str = "NHWC") -> Value:
    """Blocks of channels, moved into space."""
    return n.depth_to_space(op, input, block_size, data_format)


@operation(TF_OPS, "SpaceToDepth")
def space_to_depth(op: Builder, input: Any, *, block_size: int, data_format: str = "NHWC") -> Value:
    """Blocks of space, moved into channels."""
    return n.space_to_depth(op, input, block_size, data_format)


@operation(
    TF_OPS,
    Variant("ResizeBilinear", "Images in another size, bilinear.", method="bilinear"),
    Variant("ResizeNearestNeighbor", "Images in another size, nearest.", method="nearest"),
    Variant("ResizeBicubic", "Images in another size, bicubic.", method="bicubic"),
)
def resize(
    op: Builder, images: Any, size: Any, *, method: str, align_corners: bool = False,
    half_pixel_centers: bool = False,
) -> Value:  # fmt: skip
    """Images in another size."""
    if align_corners or not half_pixel_centers:
        raise Unsupported("resizing by corners")
    return n.sized(op, images, size, method)
