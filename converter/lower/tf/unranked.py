"""Tensors of unknown rank.

The rank of an input is inferred from the nodes that read it: MatMul takes two axes, Conv2D four.
If it cannot be inferred, elementwise ops, reshapes and some others are lowered to ONNX nodes of
dynamic rank.
"""

from collections.abc import Callable, Sequence

from converter.lower.builder import END
from converter.lower.element_types import element_type
from converter.lower.graph import Node as Made
from converter.lower.graph import Shape, Spec
from converter.lower.legalize import check_dtypes
from converter.lower.tf.context import Context
from converter.lower.tf.frames import Frame, LoopNode, frame_of
from converter.lower.tf.graphdef import Body, Node, Port
from converter.lower.tf.program_values import ProgramValue, Unranked
from converter.lower.tf.table import OPS
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value, identity

# Op -> ranks of its first inputs.
RANKS: dict[str, tuple[int, ...]] = {
    "MatMul": (2, 2), "SparseMatMul": (2, 2), "Conv2D": (4, 4), "DepthwiseConv2dNative": (4, 4),
    "Conv3D": (5, 5), "MaxPool": (4,), "AvgPool": (4,), "MaxPoolV2": (4,), "MaxPool3D": (5,),
    "AvgPool3D": (5,), "FusedBatchNorm": (4,), "LRN": (4,), "ResizeBilinear": (4,),
    "ResizeNearestNeighbor": (4,), "ResizeBicubic": (4,), "ResizeArea": (4,),
    "SpaceToDepth": (4,), "DepthToSpace": (4,), "SpaceToBatch": (4,), "BatchToSpace": (4,),
    "CropAndResize": (4, 2), "NonMaxSuppressionV3": (2, 1),
    "SparseSoftmaxCrossEntropyWithLogits": (2, 1),
    "InTopK": (2, 1), "ExtractImagePatches": (4,),
    "DecodeWav": (0,), "AudioSpectrogram": (2,), "Mfcc": (3,), "ReadFile": (0,),
    "DecodeJpeg": (0,), "DecodePng": (0,), "DecodeBmp": (0,), "DecodeGif": (0,),
    "DecodeImage": (0,), "ParseExample": (1,), "ParseExampleV2": (1,), "ParseSingleExample": (0,),
}  # fmt: skip

# Elementwise op of TensorFlow -> ONNX operator.
# fmt: off
SAME = {
    "Abs": "Abs", "Acos": "Acos", "Add": "Add", "AddV2": "Add", "Asin": "Asin", "Atan": "Atan",
    "Ceil": "Ceil", "Cos": "Cos", "Div": "Div", "Elu": "Elu", "Equal": "Equal", "Erf": "Erf",
    "Exp": "Exp", "Floor": "Floor", "Greater": "Greater", "GreaterEqual": "GreaterOrEqual",
    "Less": "Less", "LessEqual": "LessOrEqual", "Log": "Log", "LogicalAnd": "And",
    "LogicalNot": "Not", "LogicalOr": "Or", "Maximum": "Max", "Minimum": "Min", "Mul": "Mul",
    "Neg": "Neg", "Pow": "Pow",
    "RealDiv": "Div", "Reciprocal": "Reciprocal", "Relu": "Relu", "Round": "Round",
    "Sigmoid": "Sigmoid", "Sign": "Sign", "Sin": "Sin", "Softplus": "Softplus",
    "Softsign": "Softsign", "Sqrt": "Sqrt", "Sub": "Sub", "Tan": "Tan", "Tanh": "Tanh",
}
BOOLEAN = frozenset((
    "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Not",
))
ELEMENTWISE = frozenset((*SAME, "Cast", "Square"))
# Ops whose output has the shape of the first input.
PASSING = frozenset((
    *ELEMENTWISE, "Identity", "StopGradient", "Snapshot", "Rsqrt", "Relu6",
    "Selu", "LeakyRelu",
    "CheckNumerics", "BiasAdd", "Softmax", "LogSoftmax", "FakeQuantWithMinMaxVars",
    "FakeQuantWithMinMaxArgs", "ClipByValue", "ZerosLike", "OnesLike",
    "SquaredDifference", "FloorDiv", "FloorMod", "PlaceholderWithDefault", "Reverse", "ReverseV2",
    "Cumsum", "Pad", "PadV2", "MirrorPad",
))
# fmt: on
# Reductions; without axes ONNX reduces over all.
REDUCED = {
    "Sum": "ReduceSum",
    "Mean": "ReduceMean",
    "Max": "ReduceMax",
    "Min": "ReduceMin",
    "Prod": "ReduceProd",
}  # fmt: skip
HANDED_ON = frozenset(
    ("Identity", "StopGradient", "Snapshot", "CheckNumerics", "PlaceholderWithDefault")
)
# Ops on rows of any rank.
BY_ROWS = frozenset((
    "SegmentSum", "SegmentProd", "SegmentMax", "SegmentMin", "SegmentMean",
))  # fmt: skip
STRING_CONCAT_OPSET = 20
FARTHEST = 64  # maximum number of nodes visited from an input


def rank_of(body: Body, name: str) -> int | None:
    """Return the rank of an input, inferred from the nodes that read it, or None."""
    readers: dict[str, list[tuple[Node, int]]] = {}
    for node in body.nodes.values():
        for number, port in enumerate(node.inputs):
            readers.setdefault(port.node, []).append((node, number))
    waiting, seen = [name], {name}
    while waiting and len(seen) < FARTHEST:
        current = waiting.pop(0)
        for node, number in readers.get(current, ()):
            found = _said(body, node, number)
            if found is not None:
                return found
            if node.op in PASSING and node.name not in seen and _passes(body, node, number):
                seen.add(node.name)
                waiting.append(node.name)
    return None


def _decides(frame: Frame, number: int) -> bool:
    """Return whether a loop's condition is elementwise in an argument, which then is a scalar."""
    waiting, seen = [frame.condition.node], {frame.condition.node}
    while waiting and len(seen) < FARTHEST:
        node = frame.body.nodes.get(waiting.pop(0))
        if node is None or node.op not in PASSING:
            continue
        before = {port.node for port in node.inputs} - seen
        seen |= before
        waiting += sorted(before)
    return frame.body.arguments[number] in seen


def _said(body: Body, node: Node, number: int) -> int | None:
    ranks = RANKS.get(node.op, ())
    if number < len(ranks):
        return ranks[number]
    if isinstance(node, LoopNode) and _decides(frame_of(node), number):
        return 0
    if number == 0 and node.op in ("Transpose", "Pad", "PadV2", "MirrorPad", "Slice", "Tile"):
        shape = _constant_shape(body, node.inputs[1])
        return shape[0] if shape else None
    return None


def _passes(body: Body, node: Node, number: int) -> bool:
    """Return whether a node's output has the rank of this input: others are small constants."""
    return all(
        i == number or (len(_constant_shape(body, port) or (0, 0)) < 2)
        for i, port in enumerate(node.inputs)
    )


def _constant_shape(body: Body, port: Port) -> tuple[int, ...] | None:
    node = body.nodes.get(port.node)
    while node is not None and node.op in ("Identity", "StopGradient") and node.inputs:
        node = body.nodes.get(node.inputs[0].node)
    if node is None or node.op not in ("Const", "HostConst") or "value" not in node.raw:
        return None
    return tuple(d.size for d in node.raw["value"].tensor.tensor_shape.dim)


# -- tensors of any rank ---------------------------------------------------------------------------


def lower_any_rank(op: Context, node: Node, inputs: Sequence[ProgramValue]) -> ProgramValue:
    """Return the output of a node that has an input of unknown rank.

    Raises:
        Unsupported: The output depends on the rank.
    """
    if node.op in HANDED_ON:
        return inputs[0]
    if node.op in ELEMENTWISE:
        return _elementwise(op, node, inputs)
    x, *others = inputs
    handler = HANDLERS.get(node.op)
    if handler is None or not isinstance(x, Unranked):
        raise Unsupported("tensors of unknown rank")
    values = [t for t in others if isinstance(t, Value)]
    if len(values) != len(others):
        raise Unsupported("tensors of unknown rank")
    return handler(op, node, x, *values)


def _elementwise(op: Context, node: Node, inputs: Sequence[ProgramValue]) -> Unranked:
    dtype = inputs[0].dtype  # type: ignore[union-attr]
    if node.op == "Cast":
        to = node.attribute("DstT")
        return of_any_rank(op, "Cast", inputs, to, to=element_type(to))
    if node.op == "Square":
        return of_any_rank(op, "Mul", [inputs[0], inputs[0]], dtype)
    if node.op in ("Add", "AddV2") and dtype == "string":
        if op.graph.opset < STRING_CONCAT_OPSET:
            raise Unsupported(f"concatenation of strings takes opset={STRING_CONCAT_OPSET}")
        return of_any_rank(op, "StringConcat", inputs, "string")
    op_type = SAME[node.op]
    return of_any_rank(op, op_type, inputs, "bool" if op_type in BOOLEAN else dtype)


def _lower_shape(op: Context, node: Node, x: Unranked) -> Value:
    return op.cast(_shape(op, x), node.attribute("out_type", "int32"))


def _lower_rank(op: Context, _: Node, x: Unranked) -> Value:
    (length,) = op.node("Shape", [_shape(op, x)], [("int64", (1,))])
    return op.cast(op.squeeze(length, [0]), "int32")


def _lower_size(op: Context, node: Node, x: Unranked) -> Value:
    (size,) = op.node("Size", [_as(x, ())], [("int64", ())])
    return op.cast(size, node.attribute("out_type", "int32"))


def _lower_reshape(op: Context, _: Node, x: Unranked, shape: Value) -> Value:
    target = tuple(None if isinstance(n, int) and n < 0 else n for n in op.dims(shape))
    return op.node("Reshape", [_as(x, ()), op.cast(shape, "int64")], [(x.dtype, target)])[0]


def _lower_squeeze(op: Context, node: Node, x: Unranked) -> Unranked:
    axes = node.attribute("squeeze_dims") or ()
    given: list[ProgramValue] = [x, op.constant(list(axes), "int64")] if axes else [x]
    return of_any_rank(op, "Squeeze", given, x.dtype)


def _lower_expand_dims(op: Context, _: Node, x: Unranked, axis: Value) -> Unranked:
    axes = axis if axis.rank else op.unsqueeze(axis, [0])
    return of_any_rank(op, "Unsqueeze", [x, op.cast(axes, "int64")], x.dtype)


def _lower_reduction(op: Context, node: Node, x: Unranked, axes: Value) -> ProgramValue:
    """Reduce over all axes, by ONNX's default."""
    if not _is_every(op, axes, x):
        raise Unsupported("tensors of unknown rank")
    if x.dtype not in ("float32", "float64"):
        raise Unsupported(f"{x.dtype} of unknown rank")
    op_type = REDUCED[node.op]
    if node.attribute("keep_dims"):
        return of_any_rank(op, op_type, [x], x.dtype, keepdims=1)
    return op.node(op_type, [_as(x, ())], [(x.dtype, ())], attributes={"keepdims": 0})[0]


def _by_rows(op: Context, node: Node, x: Unranked, *others: Value) -> Unranked:
    """Apply an op that is elementwise within rows to flattened rows."""
    shape = _shape(op, x)
    first = op.slice(shape, [0], [0], [1])
    rest = op.slice(shape, [0], [1], [END])
    flat = op.concat([first, op.reduce("ReduceProd", rest, [0], keepdims=True)], 0)
    (rows,) = op.node(
        "Reshape", [_as(x, ()), flat], [(x.dtype, (None, None))], attributes={"allowzero": 1}
    )
    made = OPS[node.op].handler(op, rows, *others)
    target = op.concat([op.size(made, 0), rest], 0)
    return of_any_rank(op, "Reshape", [made, target], made.dtype, allowzero=1)


HANDLERS: dict[str, Callable[..., ProgramValue]] = {
    "Shape": _lower_shape, "Rank": _lower_rank, "Size": _lower_size, "Reshape": _lower_reshape,
    "Squeeze": _lower_squeeze, "ExpandDims": _lower_expand_dims,
    **dict.fromkeys(REDUCED, _lower_reduction), **dict.fromkeys(BY_ROWS, _by_rows),
}  # fmt: skip


def _is_every(op: Context, axes: Value, x: Unranked) -> bool:
    """Return whether axes are all axes of a tensor: `Range(0, Rank(x), 1)`."""
    made = {name: node for node in op.graph.nodes for name in node.outputs}
    node = made.get(axes.name)
    while node is not None and node.op_type in ("Cast", "Identity"):
        node = made.get(node.inputs[0])
    if node is None or node.op_type != "Range":
        return False
    scalars = [Value(n, axes.dtype, (), (), is_constant=True) for n in node.inputs[::2]]
    bounds = [op.static(scalar) for scalar in scalars]
    if [None if b is None else b.tolist() for b in bounds] != [0, 1]:
        return False
    node = made.get(node.inputs[1])
    shapes = 0
    while node is not None and node.op_type in ("Cast", "Identity", "Squeeze", "Shape"):
        shapes += node.op_type == "Shape"
        if shapes == 2:
            return node.inputs[0] == x.name
        node = made.get(node.inputs[0])
    return False


def rank_inputs(node: Node, inputs: Sequence[ProgramValue]) -> list[ProgramValue] | None:
    """Return the inputs of an op with the ranks that it requires, or None if it takes any rank."""
    ranks = RANKS.get(node.op)
    if ranks is None or any(isinstance(t, Unranked) for t in inputs[len(ranks) :]):
        return None
    return [
        _as(t, (None,) * ranks[i]) if isinstance(t, Unranked) else t for i, t in enumerate(inputs)
    ]


def _as(operand: Unranked, shape: Shape) -> Value:
    return Value(operand.name, operand.dtype, shape, identity(len(shape)))


def _shape(op: Context, x: Unranked) -> Value:
    (found,) = op.node("Shape", [_as(x, ())], [("int64", (None,))])
    return found


def of_any_rank(
    op: Context, op_type: str, inputs: Sequence[ProgramValue], dtype: str, **attributes: int
) -> Unranked:
    """Add a node whose output has a rank known only at run time.

    Raises:
        Unsupported: An input is not a tensor, or the operator does not support its dtype.
    """
    names, dtypes = [], []
    for operand in inputs:
        if isinstance(operand, Value):
            operand = op.plain(operand)
        elif not isinstance(operand, Unranked):
            raise Unsupported(f"a {type(operand).__name__.lower()}")
        names.append(operand.name)
        dtypes.append(operand.dtype)
    check_dtypes(op_type, dtypes)
    name = op.unique(op_type)
    op.graph.nodes.append(Made(op_type, names, [name], dict(attributes), name))
    op.graph.specs[name] = Spec(dtype, (), unranked=True)
    return Unranked(name, dtype)
