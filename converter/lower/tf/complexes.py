"""Complex tensors as pairs of real tensors: ONNX does not compute with complex dtypes.

Ops that rearrange elements, or are linear with real factors, apply their own handler to both
parts. Ops that multiply, divide or compare have a function here.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from converter.lower.ops import complex_functions
from converter.lower.ops.complex import (
    PARTS,
    join,
    multiply,
    squared_size,
    zeros_like,
)
from converter.lower.ops.elementwise import atan2
from converter.lower.tf.constants import read_constant
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.program_values import Complex, ProgramValue
from converter.lower.tf.table import OPS, Row, Unsupported, tf_op
from converter.lower.values import Value

Function = Callable[..., Any]

# Ops that apply to the real and the imaginary part separately.
BY_PARTS = frozenset((
    "Add", "AddN", "AddV2", "BatchToSpaceND", "BroadcastTo", "Concat", "ConcatV2", "Cumsum",
    "DeepCopy", "Diag", "DiagPart", "ExpandDims", "GatherNd", "Gather", "GatherV2", "MatrixDiag",
    "MatrixDiagPart", "Mean", "MirrorPad", "Neg", "Pack", "Pad", "Reshape", "Reverse", "ReverseV2",
    "Roll", "ScatterNd", "Select", "SelectV2", "Slice", "SpaceToBatchND", "Split", "SplitV",
    "Squeeze", "StridedSlice", "Sub", "Sum", "Tile", "Transpose", "Unpack", "ZerosLike",
))  # fmt: skip
OF_SHAPE = frozenset(("Shape", "ShapeN", "Size", "Rank"))
FUNCTIONS: dict[str, Function] = {}


def of_complex(*names: str) -> Callable[[Function], Function]:
    """Register the function of an op on complex tensors: (builder, node, *inputs)."""

    def enter(function: Function) -> Function:
        for name in names:
            FUNCTIONS[name] = function
        return function

    return enter


def lower_complex(
    op: Context, row: Row, node: Node, inputs: Sequence[ProgramValue],
    call: Callable[[Row, Node, Sequence[ProgramValue]], Any],
) -> Any:  # fmt: skip
    """Lower a node that has complex inputs.

    Args:
        op: Builder.
        row: The op's table entry for real tensors.
        node: The node.
        inputs: Inputs of the node.
        call: Callable that calls the handler of a table entry.

    Raises:
        Unsupported: The op is not supported for complex tensors.
    """
    given = [_pair(op, v) if isinstance(v, Value) and v.dtype in PARTS else v for v in inputs]
    if node.op in FUNCTIONS:
        return FUNCTIONS[node.op](op, node, *given)
    if row.takes_any and node.op not in BY_PARTS:
        return call(row, node, given)
    real = [v.real if isinstance(v, Complex) else v for v in given]
    if node.op in OF_SHAPE:
        return call(row, node, real)
    if node.op not in BY_PARTS:
        raise Unsupported("of complex numbers")
    imaginary = [v.imaginary if isinstance(v, Complex) else v for v in given]
    halves = [call(row, node, part) for part in (real, imaginary)]
    if isinstance(halves[0], list):
        return [join(a, b) for a, b in zip(*halves, strict=True)]
    return join(*halves)


def _pair(op: Context, x: Value) -> Complex:
    """Return a stored complex tensor as a pair.

    Raises:
        Unsupported: The tensor is an input and not stored in the file.
    """
    array = op.weights[x.name].numpy() if x.name in op.weights else None
    if array is None:
        raise Unsupported("an input of complex numbers")
    return _constant(op, array)


def _constant(op: Context, array: np.ndarray) -> Complex:
    return join(
        op.constant(np.ascontiguousarray(array.real)), op.constant(np.ascontiguousarray(array.imag))
    )


def pair(operand: ProgramValue) -> Complex:
    """Check that a value is a complex tensor, and return it.

    Raises:
        Unsupported: It is not complex.
    """
    if not isinstance(operand, Complex):
        raise Unsupported(f"of a {type(operand).__name__.lower()} and a complex number")
    return operand


def both(op: Context, function: Callable[[Value], Value], x: Complex) -> Complex:
    """Apply a function to both parts."""
    del op
    return join(function(x.real), function(x.imaginary))


# -- construction and parts ------------------------------------------------------------------------


@of_complex("Const", "HostConst")
def _const(op: Context, node: Node) -> Complex:
    name = op.constants.get(op.place)
    if name is not None:
        return _constant(op, op.weights[name].numpy())
    found = read_constant(op, node.attribute("value"))
    array = Context.elements(op, found)
    if array is None:
        raise Unsupported("a constant of complex numbers that is not small")
    return _constant(op, array)


@tf_op("Complex")
def complex_of(op: Context, real: Value, imag: Value, /) -> Complex:
    """`real + i * imag`."""
    if real.shape != imag.shape or None in real.shape:
        zero = op.constant(0.0, real.dtype)
        real, imag = (
            op.add(real, op.mul(imag, zero)), op.add(imag, op.mul(real, zero))
        )  # fmt: skip
    return join(real, imag)


@tf_op("Real", any_input=True)
def real_part(op: Context, input: ProgramValue, /) -> Value:
    """The real part."""
    del op
    return pair(input).real


@tf_op("Imag", any_input=True)
def imaginary_part(op: Context, input: ProgramValue, /) -> Value:
    """The imaginary part."""
    del op
    return pair(input).imaginary


@tf_op("Conj", any_input=True)
def conj(op: Context, input: ProgramValue, /) -> ProgramValue:
    """The complex conjugate; real tensors are unchanged."""
    if isinstance(input, Value):
        return input
    x = pair(input)
    return join(x.real, op.unary("Neg", x.imaginary))


@tf_op("Angle", any_input=True)
def angle(op: Context, input: ProgramValue, /) -> Value:
    """The argument of a complex number, in radians."""
    x = pair(input)
    return atan2(op, x.imaginary, x.real)


@tf_op("ComplexAbs", any_input=True)
def complex_abs(op: Context, x: ProgramValue, /) -> Value:
    """`sqrt(real ** 2 + imag ** 2)`."""
    return op.unary("Sqrt", squared_size(op, pair(x)))


# -- arithmetic ------------------------------------------------------------------------------------


@of_complex("DivNoNan")
def _div_no_nan(op: Context, node: Node, x: ProgramValue, y: ProgramValue) -> Complex:
    over, under = pair(x), pair(y)
    is_zero = op.elementwise("Equal", squared_size(op, under), 0.0)
    whole = _div(op, node, over, join(op.where(is_zero, 1.0, under.real), under.imaginary))
    return both(op, lambda v: op.where(is_zero, 0.0, v), whole)


@of_complex("Mul")
def _mul(op: Context, node: Node, x: ProgramValue, y: ProgramValue) -> Complex:
    del node
    return multiply(op, pair(x), pair(y), op.mul)


@of_complex("Square")
def _square(op: Context, node: Node, x: ProgramValue) -> Complex:
    del node
    return multiply(op, pair(x), pair(x), op.mul)


@of_complex("Div", "RealDiv")
def _div(op: Context, node: Node, x: ProgramValue, y: ProgramValue) -> Complex:
    del node
    over, under = pair(x), pair(y)
    whole = multiply(op, over, _conjugate(op, under), op.mul)
    size = squared_size(op, under)
    return both(op, lambda v: op.div(v, size), whole)


def _conjugate(op: Context, x: Complex) -> Complex:
    return join(x.real, op.unary("Neg", x.imaginary))


def _compute(
    op: Context, node: Node, x: ProgramValue, *, function: complex_functions.Function
) -> Complex:
    del node
    return function(op, pair(x))


FUNCTIONS |= {
    name: partial(_compute, function=complex_functions.FUNCTIONS[name.lower()])
    for name in (
        "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Exp", "Expm1", "Log",
        "Log1p", "Reciprocal", "Rsqrt", "Sigmoid", "Sin", "Sinh", "Sqrt", "Tan", "Tanh",
    )
}  # fmt: skip
FUNCTIONS |= {
    "Inv": FUNCTIONS["Reciprocal"],
    "Sign": partial(_compute, function=complex_functions.sign),
}


@of_complex("Pow")
def _pow(op: Context, node: Node, x: ProgramValue, y: ProgramValue) -> Complex:
    del node
    return complex_functions.power(op, pair(x), pair(y))


@of_complex("Equal", "NotEqual")
def _equal(op: Context, node: Node, x: ProgramValue, y: ProgramValue) -> Value:
    a, b = pair(x), pair(y)
    same = op.elementwise(
        "And", op.elementwise("Equal", a.real, b.real),
        op.elementwise("Equal", a.imaginary, b.imaginary),
    )  # fmt: skip
    return same if node.op == "Equal" else op.unary("Not", same)


@of_complex("OnesLike")
def _ones_like(op: Context, node: Node, x: ProgramValue) -> Complex:
    del node
    zeros = zeros_like(op, pair(x).real)
    return join(op.add(zeros, 1.0), zeros)


@of_complex("ConjugateTranspose")
def _conjugate_transpose(op: Context, node: Node, x: ProgramValue, perm: Value) -> Complex:
    del node
    turned = both(op, lambda v: OPS["Transpose"].handler(op, v, perm), pair(x))
    return _conjugate(op, turned)


@of_complex("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def _matmul(op: Context, node: Node, x: ProgramValue, y: ProgramValue) -> Complex:
    sides = []
    for operand, turned, adjoint in ((x, "transpose_a", "adj_x"), (y, "transpose_b", "adj_y")):
        value = pair(operand)
        if node.attribute(turned) or node.attribute(adjoint):
            order = [*range(value.rank - 2), value.rank - 1, value.rank - 2]
            value = join(op.transpose(value.real, order), op.transpose(value.imaginary, order))
        sides.append(_conjugate(op, value) if node.attribute(adjoint) else value)
    return multiply(op, sides[0], sides[1], op.matmul)


@of_complex("Einsum")
def _einsum(op: Context, node: Node, *inputs: ProgramValue) -> Complex:
    handler = OPS["Einsum"].handler
    equation = node.attribute("equation")

    def real(*values: Value) -> Value:
        found = handler(op, *values, equation=equation)
        assert isinstance(found, Value)
        return found

    sides = [pair(v) for v in inputs]
    if len(sides) == 1:
        return both(op, real, sides[0])
    if len(sides) > 2:
        raise Unsupported("of more than two complex tensors")
    return multiply(op, sides[0], sides[1], real)
