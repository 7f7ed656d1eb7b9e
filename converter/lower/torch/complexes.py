"""Complex numbers: what ops do to pairs of real tensors.

What moves elements about, or is linear with real factors, is done to both parts by the op's own
handler. What multiplies, divides or tells apart has a function here.
Spec: https://docs.pytorch.org/docs/2.13/complex_numbers.html
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from converter.lower.ops import complex as complexes
from converter.lower.ops import complex_functions
from converter.lower.ops.elementwise import atan2
from converter.lower.torch.complex_tensors import Pair, is_complex
from converter.lower.torch.context import Context
from converter.lower.torch.linear import einsum, product
from converter.lower.torch.padding import constant_pad_nd
from converter.lower.torch.program_values import Int, Number, ProgramValue, Scalar, Size
from converter.lower.torch.promotion import kind
from converter.lower.torch.reductions import vector_norm
from converter.lower.torch.scattering import copy
from converter.lower.torch.table import Row, aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)

# What does to both parts what it does to real numbers.
BY_PARTS = frozenset((
    "alias", "as_strided", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to", "cat", "chunk",
    "clone", "concat", "concatenate", "contiguous", "cumsum", "detach", "diag_embed", "diagonal",
    "dropout", "empty_like", "expand", "expand_as", "flatten", "flip", "gather", "hstack", "index",
    "index_select", "lift_fresh_copy", "masked_select", "mean", "movedim", "moveaxis", "narrow",
    "neg", "permute", "repeat", "repeat_interleave", "reshape", "reshape_as", "roll", "rot90",
    "select", "slice", "split", "split_with_sizes", "squeeze", "stack", "sum", "swapaxes",
    "swapdims", "t", "take_along_dim", "tensor_split", "tile", "transpose", "tril", "triu",
    "unbind", "unflatten", "unfold", "unsqueeze", "view", "view_as", "vstack", "where",
    "zeros_like", "zero", "select_scatter", "slice_scatter", "_unsafe_view", "resolve_neg",
))  # fmt: skip
DTYPES = frozenset(complexes.PARTS)
FUNCTIONS: dict[str, Function] = {}


def of_complex(*names: str) -> Callable[[F], F]:
    """Enter what ops do where any of their arguments is complex: given what their handlers are."""

    def enter(function: F) -> F:
        for name in names:
            FUNCTIONS[name] = function
        return function

    return enter


def apply(op: Context, row: Row, given: Mapping[str, ProgramValue]) -> ProgramValue:
    """Return what an op yields, of which any argument is complex.

    Raises:
        Unsupported: We do not have it for complex numbers.
    """
    base = row.name.partition(".")[0]
    if base in FUNCTIONS:
        return FUNCTIONS[base](op, **given)
    if base not in BY_PARTS or given.get("dtype") in DTYPES:
        raise Unsupported("of complex numbers")
    halves = [
        row.handler(op, **{name: _part(op, value, i) for name, value in given.items()})
        for i in (0, 1)
    ]
    if isinstance(halves[0], list):
        return [Pair.of(a, b) for a, b in zip(*halves, strict=True)]
    return Pair.of(*halves)


def _part(op: Context, value: ProgramValue, which: int) -> ProgramValue:
    """Return the real or the imaginary part of an argument; what is no number has none."""
    if isinstance(value, Pair):
        return value.parts[which]
    if isinstance(value, list | tuple):
        return [_part(op, one, which) for one in value]
    if isinstance(value, complex):
        raise Unsupported("a complex number in place of a tensor")
    if isinstance(value, Value) and value.is_float:
        return value if which == 0 else complexes.zeros_like(op, value)
    return value


def pair(op: Context, value: ProgramValue, dtype: str = "float32") -> Pair:
    """Return a tensor or a number as a complex tensor, of parts of a dtype."""
    if isinstance(value, Pair):
        return value
    if isinstance(value, complex):
        return Pair.of(op.constant(value.real, dtype), op.constant(value.imag, dtype))
    if isinstance(value, int | float | Size | Number):
        return Pair.of(op.scalar(value, dtype), op.constant(0.0, dtype))
    if not isinstance(value, Value):
        raise Unsupported("what is no number in place of a complex one")
    real = op.cast(value, dtype)
    return Pair.of(real, complexes.zeros_like(op, real))


def both(op: Context, a: ProgramValue, b: ProgramValue) -> tuple[Pair, Pair]:
    """Return two operands, one of which is complex, as complex tensors alike."""
    known = [complexes.PARTS[x.dtype] for x in (a, b) if isinstance(x, Pair)]
    real = [x.dtype for x in (a, b) if isinstance(x, Value) and not isinstance(x, Pair)]
    dtype = max([*known, *(d for d in real if d == "float64")], default="float32")
    x, y = (pair(op, value, dtype) for value in (a, b))
    return tuple(  # type: ignore[return-value]
        v.each(lambda part: op.cast(part, dtype)) for v in (x, y)
    )


def _scale(op: Context, x: Pair, other: ProgramValue) -> Value | None:
    """Return a real operand as a tensor of the parts' dtype; None where it is complex."""
    if is_complex(other):
        return None
    dtype = x.real.dtype
    if isinstance(other, Value):
        return op.cast(other, dtype)
    return op.scalar(other, dtype)


# -- made and taken apart --------------------------------------------------------------------------


@aten("complex")
def complex_of(op: Context, real: Value, imag: Value) -> Value:
    """`real + 1j * imag`."""
    if real.shape != imag.shape or None in real.shape:
        zero = op.constant(0.0, real.dtype)
        real, imag = op.add(real, op.mul(imag, zero)), op.add(imag, op.mul(real, zero))
    return Pair.of(real, imag)


@aten("polar")
def polar(op: Context, abs: Value, angle: Value) -> Value:
    """`abs * (cos(angle) + 1j * sin(angle))`."""
    return Pair.of(
        op.mul(abs, op.unary("Cos", angle)), op.mul(abs, op.unary("Sin", angle))
    )  # fmt: skip


@aten("view_as_complex", "view_as_complex_copy")
def view_as_complex(op: Context, self: Value) -> Value:
    """The complex tensor of pairs along the last axis."""
    parts = [op.squeeze(op.cut(self, -1, i, i + 1), [-1]) for i in (0, 1)]
    return Pair.of(parts[0], parts[1])


@of_complex("view_as_real", "view_as_real_copy")
@aten("view_as_real", "view_as_real_copy")
def view_as_real(op: Context, self: Value) -> Value:
    """The real and imaginary parts along a new last axis."""
    parts = pair(op, self).parts
    return op.concat([op.unsqueeze(part, [-1]) for part in parts], -1)


@of_complex("real")
@aten("real")
def real_part(op: Context, self: Value) -> Value:
    """The real part; a real tensor itself."""
    del op
    return self.real if isinstance(self, Pair) else self


@of_complex("imag")
@aten("imag")
def imaginary_part(op: Context, self: Value) -> Value:
    """The imaginary part."""
    return pair(op, self).imaginary


@of_complex("conj", "_conj", "conj_physical", "_conj_physical")
@aten("conj", "_conj", "conj_physical", "_conj_physical")
def conj(op: Context, self: Value) -> Value:
    """The conjugate; a real tensor itself."""
    if not isinstance(self, Pair):
        return self
    return Pair.of(self.real, op.unary("Neg", self.imaginary))


@of_complex("resolve_conj")
def _resolved(op: Context, self: Pair) -> Value:
    del op
    return self


@of_complex("angle")
@aten("angle")
def angle(op: Context, self: Value) -> Value:
    """The angle of each number in radians."""
    if isinstance(self, Pair):
        return atan2(op, self.imaginary, self.real)
    x = op.cast(self, self.dtype if kind(self.dtype) == 2 else "float32")
    zero = op.constant(0.0, x.dtype)
    found = op.where(op.elementwise("Less", x, zero), op.constant(3.141592653589793, x.dtype), zero)
    return op.where(op.unary("IsNaN", x), x, found)


@of_complex("abs")
def _abs(op: Context, self: Pair) -> Value:
    return op.unary("Sqrt", complexes.squared_size(op, self.split))


@of_complex("sgn")
def _sgn(op: Context, self: Pair) -> Value:
    size = _abs(op, self)
    none = op.elementwise("Equal", size, op.constant(0.0, size.dtype))
    under = op.where(none, op.constant(1.0, size.dtype), size)
    return self.each(lambda part: op.div(part, under))


@of_complex("to", "_to_copy", "type_as")
def _to(
    op: Context, self: Value, dtype: str | None = None, other: Value | None = None,
    copy: bool = False,
) -> Value:  # fmt: skip
    """Complex numbers cast to another precision, or to their real parts."""
    del copy
    to = other.dtype if other is not None else dtype or self.dtype
    if to in complexes.PARTS:
        x = pair(op, self, complexes.PARTS[to])
        return x.each(lambda part: op.cast(part, complexes.PARTS[to]))
    return op.cast(self.real, to) if isinstance(self, Pair) else op.cast(self, to)


# -- arithmetic ------------------------------------------------------------------------------------


def _add(
    op: Context, self: ProgramValue, other: ProgramValue, alpha: Scalar = 1, *, op_type: str
) -> Value:
    x, y = both(op, self, other)
    if alpha != 1:
        scale = op.scalar(alpha, y.real.dtype)
        y = y.each(lambda part: op.mul(part, scale))
    parts = zip(x.parts, y.parts, strict=True)
    return Pair.of(*(op.elementwise(op_type, a, b) for a, b in parts))


of_complex("add")(partial(_add, op_type="Add"))
of_complex("sub")(partial(_add, op_type="Sub"))


@of_complex("rsub")
def _rsub(op: Context, self: ProgramValue, other: ProgramValue, alpha: Scalar = 1) -> ProgramValue:
    return FUNCTIONS["sub"](op, other, self, alpha)


@of_complex("mul", "multiply")
def _mul(op: Context, self: ProgramValue, other: ProgramValue) -> Value:
    for x, y in ((self, other), (other, self)):
        if isinstance(x, Pair):
            scale = _scale(op, x, y)
            if scale is not None:
                return x.each(lambda part, by=scale: op.mul(part, by))  # type: ignore[misc]
    a, b = both(op, self, other)
    return Pair.joined(complexes.multiply(op, a.split, b.split, op.mul))


@of_complex("div", "true_divide", "divide")
def _div(op: Context, self: ProgramValue, other: ProgramValue) -> Value:
    if isinstance(self, Pair):
        scale = _scale(op, self, other)
        if scale is not None:
            return self.each(lambda part: op.div(part, scale))
    a, b = both(op, self, other)
    over = complexes.multiply(op, a.split, _conjugate(op, b).split, op.mul)
    size = complexes.squared_size(op, b.split)
    return Pair.joined(over).each(lambda part: op.div(part, size))


def _conjugate(op: Context, x: Pair) -> Pair:
    return Pair.of(x.real, op.unary("Neg", x.imaginary))


@of_complex("reciprocal")
def _reciprocal(op: Context, self: Pair) -> Value:
    return _div(op, 1.0, self)


@of_complex("square")
def _square(op: Context, self: Pair) -> Value:
    return _mul(op, self, self)


@of_complex("pow")
def _pow(op: Context, self: ProgramValue, exponent: ProgramValue) -> Value:
    if isinstance(exponent, int) and isinstance(self, Pair) and 0 < exponent <= 8:
        found: Value = self
        for _ in range(exponent - 1):
            found = _mul(op, found, self)
        return found
    a, b = both(op, self, exponent)
    return Pair.joined(complex_functions.power(op, a.split, b.split))


def _compute(op: Context, self: Pair, *, function: complex_functions.Function) -> Value:
    return Pair.joined(function(op, self.split))


FUNCTIONS |= {
    name: partial(_compute, function=function)
    for name, function in complex_functions.FUNCTIONS.items()
}
FUNCTIONS |= {
    "log2": partial(_compute, function=complex_functions.log_to(2)),
    "log10": partial(_compute, function=complex_functions.log_to(10)),
    "sgn": partial(_compute, function=complex_functions.sign),
}


@of_complex("eq")
def _eq(op: Context, self: ProgramValue, other: ProgramValue) -> Value:
    a, b = both(op, self, other)
    same = [op.elementwise("Equal", x, y) for x, y in zip(a.parts, b.parts, strict=True)]
    return op.elementwise("And", *same)


@of_complex("ne")
def _ne(op: Context, self: ProgramValue, other: ProgramValue) -> Value:
    return op.unary("Not", _eq(op, self, other))


@of_complex("matmul", "mm", "bmm")
def _matmul(
    op: Context, self: ProgramValue, other: ProgramValue = None, mat2: ProgramValue = None
) -> Value:
    a, b = both(op, self, other if other is not None else mat2)
    return Pair.joined(complexes.multiply(op, a.split, b.split, lambda x, y: product(op, x, y)))


@of_complex("einsum")
def _einsum(
    op: Context, equation: str, tensors: Sequence[ProgramValue], path: ProgramValue = None
) -> Value:
    del path

    def real(*values: Value) -> Value:
        return einsum(op, equation, values)

    if len(tensors) == 1:
        return pair(op, tensors[0]).each(real)
    if len(tensors) != 2:
        raise Unsupported("of more than two complex tensors")
    a, b = both(op, tensors[0], tensors[1])
    return Pair.joined(complexes.multiply(op, a.split, b.split, real))


@of_complex("constant_pad_nd", "pad")
def _pad(
    op: Context, self: Pair, pad: Sequence[int], mode: str = "constant", value: ProgramValue = None
) -> Value:
    if mode != "constant" or value not in (None, 0):
        raise Unsupported("padding of complex numbers with others than zeros")
    return self.each(lambda part: constant_pad_nd(op, part, pad))


@of_complex("copy")
def _copy(op: Context, self: ProgramValue, src: ProgramValue, non_blocking: bool = False) -> Value:
    del non_blocking
    if not isinstance(self, Pair):
        raise Unsupported("complex numbers that are put among real ones")
    parts = zip(self.parts, pair(op, src, self.real.dtype).parts, strict=True)
    return Pair.of(*(copy(op, a, b) for a, b in parts))


@of_complex("masked_fill")
def _masked_fill(op: Context, self: Pair, mask: Value, value: ProgramValue) -> Value:
    filler = pair(op, value, self.real.dtype)
    parts = zip(filler.parts, self.parts, strict=True)
    return Pair.of(*(op.where(mask, a, b) for a, b in parts))


@of_complex("linalg_vector_norm")
def _norm(op: Context, self: Pair, **more: ProgramValue) -> Value:
    return vector_norm(op, _abs(op, self), **more)


@of_complex("zeros", "full", "empty")
def _filled(
    op: Context, size: Sequence[Int], fill_value: ProgramValue = 0, dtype: str | None = None
) -> Value:
    number = pair(op, fill_value, complexes.PARTS[dtype or "complex64"])
    return number.each(lambda part: op.expand(op.reshape(part, (1,) * len(size)), tuple(size)))


@of_complex("scalar_tensor")
def _scalar_tensor(op: Context, s: ProgramValue, dtype: str | None = None) -> Value:
    return pair(op, s, complexes.PARTS[dtype or "complex64"])


@of_complex("ones_like", "full_like")
def _ones_like(op: Context, self: Pair, fill_value: Scalar = 1, dtype: str | None = None) -> Value:
    to = dtype or self.dtype
    filled = op.filled(op.named(self).shape, fill_value, complexes.PARTS.get(to, to))
    return pair(op, filled, filled.dtype) if to in complexes.PARTS else filled
