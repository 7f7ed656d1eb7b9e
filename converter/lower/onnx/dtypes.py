"""Infer dtypes of values for which an ONNX file has no value_info.

Files need not record the types of intermediate values, but passes that change precision need them.
Only dtypes are inferred; the rank of these values is unknown. Outputs of operators that are not
listed here have unknown dtypes.
Spec: https://github.com/onnx/onnx/blob/v1.23.0/docs/Operators.md
"""

from collections.abc import Mapping

import numpy as np

from converter.lower.builder import COMPARISONS
from converter.lower.element_types import ELEMENT_TYPES
from converter.lower.graph import Graph, Node, Spec

NAMES = {number: name for name, number in ELEMENT_TYPES.items()}
# fmt: off
# Operators whose outputs all have the dtype of the first input.
FIRST = frozenset((
    "Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atanh", "AveragePool",
    "BatchNormalization", "Ceil", "Celu", "Clip", "Compress", "Concat", "Conv", "ConvTranspose",
    "Cos", "Cosh", "CumSum", "DepthToSpace", "Det", "Div", "Einsum", "Elu", "Erf", "Exp", "Expand",
    "EyeLike", "Flatten", "Floor", "GRU", "Gather", "GatherElements", "GatherND", "Gelu", "Gemm",
    "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "GridSample", "GroupNormalization",
    "HardSigmoid", "HardSwish", "Hardmax", "Identity", "InstanceNormalization", "LRN", "LSTM",
    "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "LpNormalization", "LpPool", "MatMul",
    "Max", "Mean", "MeanVarianceNormalization", "Min", "Mish", "Mod", "Mul", "Neg", "PRelu", "Pad",
    "Pow", "RNN", "Range", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare", "Relu", "Reshape", "Resize", "ReverseSequence", "Round", "STFT",
    "ScatterElements", "ScatterND", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Slice",
    "Softmax", "Softplus", "Softsign", "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Sum",
    "Swish", "Tan", "Tanh", "ThresholdedRelu", "Tile", "Transpose", "Trilu", "Unsqueeze",
    "Upsample",
))
WHOLE = frozenset(("ArgMax", "ArgMin", "NonZero", "Shape", "Size"))  # int64
OPERAND = {"Where": 1, "OneHot": 2, "DequantizeLinear": 1}  # index of the input with the dtype
SECOND_OUTPUT = {"TopK": "int64", "MaxPool": "int64", "Dropout": "bool"}  # first: as the input
BY_ATTRIBUTE = {  # attribute that holds the dtype, and the default dtype
    "Cast": ("to", None), "RandomNormal": ("dtype", "float32"),
    "RandomUniform": ("dtype", "float32"), "Multinomial": ("dtype", "int32"),
}
# fmt: on


def infer_dtypes(graph: Graph, outside: Mapping[str, Spec] | None = None) -> None:
    """Add specs of unknown rank for the values of a graph and of its subgraphs."""
    known: dict[str, Spec] = {**(outside or {}), **graph.specs}
    for node in graph.nodes:
        inner = [value for value in node.attributes.values() if isinstance(value, Graph)]
        for value in inner:
            infer_dtypes(value, known)
        dtypes = _yields(node, known, inner)
        for name, dtype in zip(node.outputs, dtypes, strict=False):
            if name and dtype and name not in known:
                known[name] = graph.specs[name] = Spec(dtype, (), unranked=True)


def _yields(node: Node, known: Mapping[str, Spec], inner: list[Graph]) -> list[str]:
    """Return the dtypes of a node's outputs; an empty string where one is unknown."""
    count = len(node.outputs)

    def of(number: int) -> str:
        name = node.inputs[number] if number < len(node.inputs) else ""
        found = known.get(name)
        return found.dtype if found is not None and not found.type else ""

    op = node.op_type
    if node.domain:
        return [""] * count
    if op in FIRST:
        return [of(0)] * count
    if op in COMPARISONS:
        return ["bool"] * count
    if op in WHOLE:
        return ["int64"] * count
    if op in OPERAND:
        return [of(OPERAND[op])] * count
    if op in SECOND_OUTPUT:
        return [of(0), SECOND_OUTPUT[op]]
    if op in BY_ATTRIBUTE:
        name, usual = BY_ATTRIBUTE[op]
        number = node.attributes.get(name)
        return [NAMES.get(number, "") if isinstance(number, int) else usual or ""]
    if op in ("Constant", "ConstantOfShape"):
        value = node.attributes.get("value")
        if isinstance(value, np.ndarray):
            return ["string" if value.dtype.kind == "O" else value.dtype.name]
        return ["float32"] if op == "ConstantOfShape" and value is None else [""]
    if op == "QuantizeLinear":
        return [of(2) or ("" if "output_dtype" in node.attributes else "uint8")]
    if op in ("If", "Loop") and inner:
        skipped = 1 if op == "Loop" else 0  # the loop condition
        specs = [inner[0].specs.get(name) for name in inner[0].outputs[skipped:]]
        return [s.dtype if s is not None and not s.type else "" for s in specs]
    return [""] * count
