"""Sizes and numbers beside tensors: what shapes say, and Python's own arithmetic of that.

Where a result depends only on shapes it is a number or a name, and no node.
"""

import math
from collections.abc import Callable

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.torch.context import Context
from converter.lower.torch.promotion import kind
from converter.lower.torch.table import aten
from converter.lower.torch.things import Int, Number, Scalar, Size, Thing, integer
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
    """How many elements there are."""
    return integer(dims.product(op.named(self).shape))


@aten("dim")
def dim(op: Context, self: Value) -> int:
    """How many axes there are."""
    del op
    return self.rank


@aten("item", "_local_scalar_dense")
def item(op: Context, self: Value) -> Scalar:
    """A tensor's only element, as a number."""
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


def _is_plain(*things: Thing) -> bool:
    return all(isinstance(t, int | float) for t in things)


def _is_size(*things: Thing) -> bool:
    return all(isinstance(t, int | Size) and not isinstance(t, bool) for t in things)


def _sided(op: Context, a: Scalar, b: Scalar) -> tuple[Value, Value, str]:
    """Return two numbers as tensors of float64, or int64 where both are whole."""
    whole = all(_is_size(t) or (isinstance(t, Number) and kind(t.value.dtype) == 1) for t in (a, b))
    dtype = "int64" if whole else "float64"
    return op.scalar(a, dtype), op.scalar(b, dtype), dtype


def _binary(
    name: str, plain: Callable[[Plain, Plain], Plain],
    named: Callable[[Context, Dim, Dim], Dim] | None, op_type: str, what: str,
) -> None:  # fmt: skip
    def handler(op: Context, a: Scalar, b: Scalar) -> Scalar:
        if _is_plain(a, b):
            return plain(a, b)  # type: ignore[arg-type]
        if named is not None and _is_size(a, b):
            return integer(named(op, a, b))  # type: ignore[arg-type]
        left, right, _ = _sided(op, a, b)
        return Number(op.elementwise(op_type, left, right))

    handler.__doc__ = what
    aten(name)(handler)


def _compared(name: str, plain: Callable[[Plain, Plain], bool], op_type: str, what: str) -> None:
    def handler(op: Context, a: Scalar, b: Scalar) -> Scalar:
        if _is_plain(a, b):
            return plain(a, b)  # type: ignore[arg-type]
        if _is_size(a, b):
            difference = dims.sub(a, b)  # type: ignore[arg-type]
            if isinstance(difference, int):
                return plain(difference, 0)
        left, right, _ = _sided(op, a, b)
        found = op.elementwise(op_type.removeprefix("Not"), left, right)
        return Number(op.unary("Not", found) if op_type.startswith("Not") else found)

    handler.__doc__ = what
    aten(name)(handler)


# fmt: off
for _names, _plain, _named, _type, _what in (
    ("_operator.add", lambda a, b: a + b, lambda _, a, b: dims.add(a, b), "Add", "A + b."),
    ("_operator.sub", lambda a, b: a - b, lambda _, a, b: dims.sub(a, b), "Sub", "A - b."),
    ("_operator.mul", lambda a, b: a * b, lambda _, a, b: dims.mul(a, b), "Mul", "A * b."),
    ("_operator.floordiv", lambda a, b: a // b, Context.floordiv, "Div", "A // b."),
    ("_operator.mod", lambda a, b: a % b, Context.modulo, "Mod", "A % b."),
    ("torch.sym_max", max, Context.most, "Max", "The larger one."),
    ("torch.sym_min", min, Context.least, "Min", "The smaller one."),
):
    _binary(_names, _plain, _named, _type, _what)
for _names, _question, _type, _what in (
    ("_operator.eq", lambda a, b: a == b, "Equal", "A == b."),
    ("_operator.ne", lambda a, b: a != b, "NotEqual", "A != b."),
    ("_operator.lt", lambda a, b: a < b, "Less", "A < b."),
    ("_operator.le", lambda a, b: a <= b, "LessOrEqual", "A <= b."),
    ("_operator.gt", lambda a, b: a > b, "Greater", "A > b."),
    ("_operator.ge", lambda a, b: a >= b, "GreaterOrEqual", "A >= b."),
):
    _compared(_names, _question, _type, _what)
# fmt: on


@aten("_operator.truediv")
def truediv(op: Context, a: Scalar, b: Scalar) -> Scalar:
    """A / b."""
    if _is_plain(a, b):
        return a / b  # type: ignore[operator]
    return Number(op.div(op.scalar(a, "float64"), op.scalar(b, "float64")))


@aten("_operator.neg")
def neg(op: Context, a: Scalar) -> Scalar:
    """-a."""
    if isinstance(a, Size):
        return integer(dims.mul(a, -1))
    if isinstance(a, Number):
        return Number(op.unary("Neg", a.value))
    return -a


@aten("_operator.pow", "torch.sym_pow")
def power(op: Context, a: Scalar, b: Scalar) -> Scalar:
    """A ** b."""
    if isinstance(a, Size) and isinstance(b, int) and 0 <= b <= 4:
        return integer(dims.product([a] * b))
    if _is_plain(a, b):
        return a**b  # type: ignore[operator]
    return Number(op.elementwise("Pow", op.scalar(a, "float64"), op.scalar(b, "float64")))


@aten("torch.sym_float")
def sym_float(op: Context, a: Scalar) -> Scalar:
    """A number with a fraction."""
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
    """Not a."""
    if isinstance(a, Number):
        return Number(op.unary("Not", a.value))
    return not a


@aten("_operator.and_")
def both(op: Context, a: Scalar, b: Scalar) -> Scalar:
    """A and b."""
    if isinstance(a, bool) and isinstance(b, bool):
        return a and b
    return Number(op.elementwise("And", op.scalar(a, "bool"), op.scalar(b, "bool")))


@aten("_operator.or_")
def either(op: Context, a: Scalar, b: Scalar) -> Scalar:
    """A or b."""
    if isinstance(a, bool) and isinstance(b, bool):
        return a or b
    return Number(op.elementwise("Or", op.scalar(a, "bool"), op.scalar(b, "bool")))


def _whole(name: str, plain: Callable[[float], int], op_type: str | None, what: str) -> None:
    def handler(op: Context, a: Scalar) -> Scalar:
        if isinstance(a, int | float):
            return plain(a)
        if isinstance(a, Size):
            return a
        value = op.cast(a.value, "float64")
        if op_type is not None:
            value = op.unary(op_type, value)
        flat = op.reshape(value, (1,))
        return op.define(op.unique("whole"), lambda: op.cast(flat, "int64"))

    handler.__doc__ = what
    aten(name)(handler)


_whole("math.trunc", math.trunc, None, "A number without its fraction.")
_whole("math.floor", math.floor, "Floor", "The next integer below.")
_whole("math.ceil", math.ceil, "Ceil", "The next integer above.")
_whole("builtins.round", round, "Round", "The nearest integer.")


@aten("_operator.getitem")
def getitem(op: Context, a: list[Thing], b: int) -> Thing:
    """One of several."""
    del op
    return a[b]
