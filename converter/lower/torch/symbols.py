"""Sizes and numbers beside tensors: what shapes say, and Python's own arithmetic of that.

Where a result depends only on shapes it is a number or a name, and no node.
"""

import math
import operator
from collections.abc import Callable

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.table import Variant
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Int, Number, ProgramValue, Scalar, Size, integer
from converter.lower.torch.promotion import kind
from converter.lower.torch.table import aten
from converter.lower.values import Value


@aten("sym_size.int", "size.int")
def size_of(op: Context, self: Value, dim: int) -> Int:
    """The size of an axis."""
    return integer(op.axis_of(self, dim))


@aten("sym_size", "size")
def sizes_of(op: Context, self: Value) -> list[Int]:
    """The sizes of all axes."""
    return [integer(n) for n in op.named(self).shape]


@aten("sym_numel", "numel")
def numel(op: Context, self: Value) -> Int:
    """The number of elements."""
    return integer(op.product(op.named(self).shape))


@aten("dim")
def dim(op: Context, self: Value) -> int:
    """The number of axes."""
    del op
    return self.rank


@aten("item", "_local_scalar_dense")
def item(op: Context, self: Value) -> Scalar:
    """The only element of a tensor as a number."""
    known = op.array(self)
    if known is not None and known.size == 1:
        found: Scalar = known.reshape(-1)[0].item()
        return found
    flat = op.reshape(self, (1,))
    if kind(self.dtype) != 1:
        return Number(op.squeeze(flat, [0]))
    return op.define(op.unique("item"), lambda: op.cast(flat, "int64"))


# -- arithmetic ------------------------------------------------------------------------------------

Plain = int | float | bool


def _is_plain(*operands: ProgramValue) -> bool:
    return all(isinstance(t, int | float) for t in operands)


def _is_size(*operands: ProgramValue) -> bool:
    return all(isinstance(t, int | Size) and not isinstance(t, bool) for t in operands)


def _same_dtype(op: Context, a: Scalar, b: Scalar) -> tuple[Value, Value, str]:
    """Return two numbers as tensors of float64, or int64 where both are whole."""
    whole = all(_is_size(t) or (isinstance(t, Number) and kind(t.value.dtype) == 1) for t in (a, b))
    dtype = "int64" if whole else "float64"
    return op.scalar(a, dtype), op.scalar(b, dtype), dtype


def _of_sizes(function: Callable[[Dim, Dim], Dim]) -> Callable[[Context, Dim, Dim], Dim]:
    return lambda _, a, b: function(a, b)


@aten(
    Variant(
        "_operator.add", "`a + b`.", plain=operator.add, named=_of_sizes(dims.add), op_type="Add"
    ),
    Variant(
        "_operator.sub", "`a - b`.", plain=operator.sub, named=_of_sizes(dims.sub), op_type="Sub"
    ),
    Variant(
        "_operator.mul", "`a * b`.", plain=operator.mul, named=_of_sizes(dims.mul), op_type="Mul"
    ),
    Variant(
        "_operator.floordiv",
        "`a // b`.",
        plain=operator.floordiv,
        named=Context.floordiv,
        op_type="Div",
    ),
    Variant("_operator.mod", "`a % b`.", plain=operator.mod, named=Context.modulo, op_type="Mod"),
    Variant("torch.sym_max", "The larger number.", plain=max, named=Context.most, op_type="Max"),
    Variant("torch.sym_min", "The smaller number.", plain=min, named=Context.least, op_type="Min"),
)
def binary(
    op: Context, a: Scalar, b: Scalar, *, plain: Callable[[Plain, Plain], Plain],
    named: Callable[[Context, Dim, Dim], Dim] | None, op_type: str,
) -> Scalar:  # fmt: skip
    """Arithmetic of numbers that may be sizes."""
    if _is_plain(a, b):
        return plain(a, b)  # type: ignore[arg-type]
    if named is not None and _is_size(a, b):
        size = named(op, a, b)  # type: ignore[arg-type]
        return integer(op.combine(op_type, size, a, b))  # type: ignore[arg-type]
    left, right, _ = _same_dtype(op, a, b)
    return Number(op.elementwise(op_type, left, right))


@aten(
    Variant("_operator.eq", "`a == b`.", plain=operator.eq, op_type="Equal"),
    Variant("_operator.ne", "`a != b`.", plain=operator.ne, op_type="NotEqual"),
    Variant("_operator.lt", "`a < b`.", plain=operator.lt, op_type="Less"),
    Variant("_operator.le", "`a <= b`.", plain=operator.le, op_type="LessOrEqual"),
    Variant("_operator.gt", "`a > b`.", plain=operator.gt, op_type="Greater"),
    Variant("_operator.ge", "`a >= b`.", plain=operator.ge, op_type="GreaterOrEqual"),
)
def comparison(
    op: Context, a: Scalar, b: Scalar, *, plain: Callable[[Plain, Plain], bool], op_type: str,
) -> Scalar:  # fmt: skip
    """A comparison of numbers that may be sizes."""
    if _is_plain(a, b):
        return plain(a, b)  # type: ignore[arg-type]
    if _is_size(a, b):
        difference = dims.sub(a, b)  # type: ignore[arg-type]
        if isinstance(difference, int):
            return plain(difference, 0)
    left, right, _ = _same_dtype(op, a, b)
    found = op.elementwise(op_type.removeprefix("Not"), left, right)
    return Number(op.unary("Not", found) if op_type.startswith("Not") else found)


@aten("_operator.truediv")
def truediv(op: Context, a: Scalar, b: Scalar) -> Scalar:
    """`a / b`."""
    if _is_plain(a, b):
        return a / b  # type: ignore[operator]
    return Number(op.div(op.scalar(a, "float64"), op.scalar(b, "float64")))


@aten("_operator.neg")
def neg(op: Context, a: Scalar) -> Scalar:
    """`-a`."""
    if isinstance(a, Size):
        return integer(op.product([a, -1]))
    if isinstance(a, Number):
        return Number(op.unary("Neg", a.value))
    return -a


@aten("_operator.pow", "torch.sym_pow")
def power(op: Context, a: Scalar, b: Scalar) -> Scalar:
    """`a ** b`."""
    if _is_plain(a, b):
        return a**b  # type: ignore[operator]
    dtype = "float64"
    if isinstance(a, int | Size) and isinstance(b, int) and b >= 0:
        if b <= 4:
            return integer(op.product([a] * b))
        dtype = "int64"
    return Number(op.elementwise("Pow", op.scalar(a, dtype), op.scalar(b, dtype)))


@aten("torch.sym_float")
def sym_float(op: Context, a: Scalar) -> Scalar:
    """A number as a float."""
    if isinstance(a, int | float):
        return float(a)
    return Number(op.scalar(a, "float64"))


@aten("torch._sym_sqrt", "math.sqrt")
def square_root(op: Context, a: Scalar) -> Scalar:
    """The square root."""
    if isinstance(a, int | float):
        return math.sqrt(a)
    return Number(op.unary("Sqrt", op.scalar(a, "float64")))


@aten("torch.sym_not", "_operator.not_")
def sym_not(op: Context, a: Scalar) -> Scalar:
    """`not a`."""
    if isinstance(a, Number):
        return Number(op.unary("Not", a.value))
    return not a


@aten("_operator.and_")
def both(op: Context, a: Scalar, b: Scalar) -> Scalar:
    """`a and b`."""
    if isinstance(a, bool) and isinstance(b, bool):
        return a and b
    return Number(op.elementwise("And", op.scalar(a, "bool"), op.scalar(b, "bool")))


@aten("_operator.or_")
def either(op: Context, a: Scalar, b: Scalar) -> Scalar:
    """`a or b`."""
    if isinstance(a, bool) and isinstance(b, bool):
        return a or b
    return Number(op.elementwise("Or", op.scalar(a, "bool"), op.scalar(b, "bool")))


@aten(
    Variant("math.trunc", "A number rounded towards zero.", plain=math.trunc, op_type=None),
    Variant("math.floor", "A number rounded down.", plain=math.floor, op_type="Floor"),
    Variant("math.ceil", "A number rounded up.", plain=math.ceil, op_type="Ceil"),
    Variant(
        "builtins.round", "A number rounded to the nearest integer.", plain=round, op_type="Round"
    ),
)
def rounding(
    op: Context, a: Scalar, *, plain: Callable[[float], int], op_type: str | None,
) -> Scalar:  # fmt: skip
    """A number rounded to an integer."""
    if isinstance(a, int | float):
        return plain(a)
    if isinstance(a, Size):
        return a
    value = op.cast(a.value, "float64")
    if op_type is not None:
        value = op.unary(op_type, value)
    flat = op.reshape(value, (1,))
    return op.define(op.unique("whole"), lambda: op.cast(flat, "int64"))


@aten("_operator.getitem")
def getitem(op: Context, a: list[ProgramValue], b: int) -> ProgramValue:
    """An element of a list."""
    del op
    return a[b]
