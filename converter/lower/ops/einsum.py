"""Einsum of two tensors, as a matrix product where it is one.

onnxruntime's Einsum takes two to seven times as long as an equivalent MatMul (dense layers,
attention scores). An einsum is a matrix product if its letters form four groups: letters of both
operands that are kept (batch) or summed, and letters of only one of the operands.
"""

from collections.abc import Sequence
from string import ascii_letters

from converter.lower.builder import Builder
from converter.lower.graph import Dim, Shape
from converter.lower.values import Value

DTYPES = ("float32", "float64")  # for others, MatMul and Einsum have different kernels


def contract(op: Builder, equation: str, *operands: Value, shape: Shape) -> Value:
    """Return the einsum of tensors, by MatMul where it is a matrix product.

    Args:
        op: Builder.
        equation: Equation with an arrow.
        operands: One tensor for each term.
        shape: Shape of the result.
    """
    found = as_product(op, equation, operands, shape)
    if found is not None:
        return found
    dtype = operands[0].dtype
    return op.emit("Einsum", *operands, dtype=dtype, shape=shape, equation=equation)


def as_product(op: Builder, equation: str, operands: Sequence[Value], shape: Shape) -> Value | None:
    """Return an einsum as a MatMul, or None where it is not a matrix product.

    Args:
        op: Builder.
        equation: Equation with an arrow.
        operands: Tensors; None is returned unless there are two.
        shape: Shape of the result.
    """
    left, _, out = equation.partition("->")
    terms = left.split(",")
    if len(terms) != 2 or len(operands) != 2 or operands[0].dtype not in DTYPES:
        return None
    spelled = _expand_ellipses(terms, out, operands)
    if spelled is None:
        return None
    (one, other), out = spelled
    batch = [c for c in out if c in one and c in other]
    summed = [c for c in one if c in other and c not in out]
    alone = [c for c in out if c in one and c not in other]
    others = [c for c in out if c in other and c not in one]
    if not summed or {*batch, *summed, *alone} != {*one} or {*batch, *summed, *others} != {*other}:
        return None
    a, b = operands
    if alone and others and out.index(others[0]) < out.index(alone[0]):
        a, b, one, other, alone, others = b, a, other, one, others, alone
    sizes = dict(zip(one, a.shape, strict=True))
    for c, n in zip(other, b.shape, strict=True):
        if not isinstance(sizes.get(c), int):
            sizes[c] = n
    first = op.transpose(a, [one.index(c) for c in (*batch, *alone, *summed)])
    second = op.transpose(b, [other.index(c) for c in (*batch, *summed, *others)])
    # Without batch axes, the own axes of the first operand need not be merged.
    rows = [[c] for c in alone] if not batch else [alone]
    left_side = _group_axes(op, first, [*([c] for c in batch), *rows, summed], sizes)
    right_side = _group_axes(op, second, [*([c] for c in batch), summed, others], sizes)
    if left_side is None or right_side is None:
        return None
    found = [*batch, *alone, *others]
    middle: Shape = (*left_side.shape[:-1], right_side.shape[-1])
    made = op.emit("MatMul", left_side, right_side, dtype=a.dtype, shape=middle)
    groups = [*([c] for c in batch), *rows, others]
    apart = _apart(op, made, groups, sizes)
    if apart is None:
        return None
    result = op.transpose(apart, [found.index(c) for c in out])
    return Value(result.name, result.dtype, shape, result.stored, result.is_constant)


def _expand_ellipses(
    terms: Sequence[str], out: str, operands: Sequence[Value]
) -> tuple[list[str], str] | None:
    """Return terms with ellipses replaced by letters; None where ellipses are broadcast."""
    free = [c for c in ascii_letters if c not in "".join(terms) + out]
    dots = ""
    for term, x in zip(terms, operands, strict=True):
        if "..." in term:
            count = x.rank - len(term.replace("...", ""))
            if count < 0 or (dots and len(dots) != count) or count > len(free):
                return None
            dots = "".join(free[:count])
    if sum("..." in term for term in terms) == 2 and dots:
        shapes = [
            x.shape[t.index("...") : t.index("...") + len(dots)]
            for t, x in zip(terms, operands, strict=True)
        ]
        if shapes[0] != shapes[1] or None in shapes[0]:
            return None
    spelled = [term.replace("...", dots) for term in terms]
    out = out.replace("...", dots)
    texts = [*spelled, out]
    fits = all(len(t) == x.rank for t, x in zip(spelled, operands, strict=True))
    return (spelled, out) if fits and all(len(set(t)) == len(t) for t in texts) else None


def _group_axes(
    op: Builder, x: Value, groups: Sequence[Sequence[str]], sizes: dict[str, Dim]
) -> Value | None:
    """Merge the axes of each group to one axis; an empty group becomes an axis of size 1."""
    if all(len(group) == 1 for group in groups):
        return x
    totals = [_total([sizes[c] for c in group]) for group in groups]
    return _reshape(op, x, totals, _untouched(groups))


def _apart(
    op: Builder, x: Value, groups: Sequence[Sequence[str]], sizes: dict[str, Dim]
) -> Value | None:
    """Split merged axes into the axes of each group, which undoes `_group_axes`."""
    if all(len(group) == 1 for group in groups):
        return x
    return _reshape(op, x, [sizes[c] for group in groups for c in group], _untouched(groups))


def _untouched(groups: Sequence[Sequence[str]]) -> int:
    """Return the number of groups of one axis before the first other group."""
    return next(i for i, group in enumerate(groups) if len(group) != 1)


def _total(sizes: Sequence[Dim]) -> Dim:
    if len(sizes) == 1:
        return sizes[0]
    result = 1
    for n in sizes:
        if not isinstance(n, int):
            return None
        result *= n
    return result


def _reshape(op: Builder, x: Value, target: Sequence[Dim], kept: int) -> Value | None:
    """Reshape a tensor; return None where more than one size must be inferred.

    Args:
        op: Builder.
        x: Tensor.
        target: New shape; sizes may be symbolic or None.
        kept: Number of leading axes that do not change.
    """
    if 0 in target:  # in a Reshape, 0 copies the size of the input's axis
        return None
    numbers = [n if isinstance(n, int) else 0 if i < kept else -1 for i, n in enumerate(target)]
    if numbers.count(-1) > 1:
        return None
    vector = op.constant(numbers, "int64")
    return op.emit("Reshape", x, vector, dtype=x.dtype, shape=tuple(target))
