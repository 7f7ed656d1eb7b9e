"""Einstein's sums of two tensors as products of matrices, where they are that.

onnxruntime's Einsum takes two to seven times as long as the MatMul that it could be (dense layers,
attention scores). A sum is a product of matrices once its letters are in four groups: those of
both operands that stay (batches) or go (the sum), and those of one operand alone.
"""

from collections.abc import Sequence
from string import ascii_letters

from converter.lower.builder import Builder
from converter.lower.graph import Dim, Shape
from converter.lower.values import Value

DTYPES = ("float32", "float64")  # of others, what has a kernel differs between the two operators


def contract(op: Builder, equation: str, *operands: Value, shape: Shape) -> Value:
    """Return Einstein's sum of tensors: as a product of matrices, where it is one.

    Args:
        op: Builder.
        equation: With an arrow.
        operands: One for each term.
        shape: Of the result.
    """
    found = as_product(op, equation, operands, shape)
    if found is not None:
        return found
    dtype = operands[0].dtype
    return op.emit("Einsum", *operands, dtype=dtype, shape=shape, equation=equation)


def as_product(op: Builder, equation: str, operands: Sequence[Value], shape: Shape) -> Value | None:
    """Return an Einstein's sum as a MatMul, or None where it is none.

    Args:
        op: Builder.
        equation: With an arrow.
        operands: Of which there must be two.
        shape: Of the result.
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
    # Without batches the first operand's own axes need not be one.
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
    """Return terms with letters for what dots stand for, or None where dots are broadcast."""
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
    """Return a tensor with the axes of each group as one; a group of none is an axis of one."""
    if all(len(group) == 1 for group in groups):
        return x
    totals = [_total([sizes[c] for c in group]) for group in groups]
    return _reshape(op, x, totals, _untouched(groups))


def _apart(
    op: Builder, x: Value, groups: Sequence[Sequence[str]], sizes: dict[str, Dim]
) -> Value | None:
    """Return a tensor with the axes of each group on their own again."""
    if all(len(group) == 1 for group in groups):
        return x
    return _reshape(op, x, [sizes[c] for group in groups for c in group], _untouched(groups))


def _untouched(groups: Sequence[Sequence[str]]) -> int:
    """Return how many axes come before the first group that is not one of them."""
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
    """Return a tensor in another shape, or None where more than one size must be computed.

    Args:
        op: Builder.
        x: The tensor.
        target: Sizes, None for those that are not known.
        kept: How many axes, from the first, stay as they are.
    """
    if 0 in target:  # which stands for an axis as it is
        return None
    numbers = [n if isinstance(n, int) else 0 if i < kept else -1 for i, n in enumerate(target)]
    if numbers.count(-1) > 1:
        return None
    vector = op.constant(numbers, "int64")
    return op.emit("Reshape", x, vector, dtype=x.dtype, shape=tuple(target))
