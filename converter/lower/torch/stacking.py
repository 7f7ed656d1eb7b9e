"""Tensors side by side and cut apart, under the names that numpy has for it; and whole comparisons.

Spec: https://docs.pytorch.org/docs/2.13/torch.html#indexing-slicing-joining-mutating-ops
"""

from collections.abc import Callable, Sequence

from converter.lower import dims
from converter.lower.table import Variant
from converter.lower.torch.arithmetic import isclose
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Number, Tensors
from converter.lower.torch.promotion import together
from converter.lower.torch.reductions import total
from converter.lower.torch.slicing import tensor_split, tensor_split_indices
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


@aten("ravel")
def ravel(op: Context, self: Value) -> Value:
    """The flattened tensor."""
    x = op.named(self)
    return op.reshape(x, (dims.product(x.shape),))


def _columns(op: Context, x: Value) -> Value:
    return op.reshape(op.named(x), (dims.product(op.named(x).shape), 1)) if x.rank < 2 else x


@aten("column_stack")
def column_stack(op: Context, tensors: Tensors) -> Value:
    """Tensors stacked as columns."""
    return op.concat([_columns(op, x) for x in together(op, list(tensors))], 1)


@aten("dstack")
def dstack(op: Context, tensors: Tensors) -> Value:
    """Tensors stacked along the third axis."""
    wide = []
    for x in together(op, list(tensors)):
        if x.rank == 0:
            wide.append(op.reshape(x, (1, 1, 1)))
        elif x.rank == 1:
            wide.append(op.unsqueeze(x, [0, 2]))
        else:
            wide.append(op.unsqueeze(x, [2]) if x.rank == 2 else x)
    return op.concat(wide, 2)


def _second(x: Value) -> int:
    return 1 if x.rank > 1 else 0


@aten(
    Variant("vsplit.int", "The first axis split into a number of parts.", axis_of=lambda _: 0),
    Variant("hsplit.int", "The second axis split into a number of parts.", axis_of=_second),
    Variant("dsplit.int", "The third axis split into a number of parts.", axis_of=lambda _: 2),
)
def split_by_count(
    op: Context, self: Value, sections: int, *, axis_of: Callable[[Value], int],
) -> list[Value]:  # fmt: skip
    """An axis split into a number of parts."""
    return tensor_split(op, self, sections, axis_of(self))


@aten(
    Variant("vsplit.array", "The first axis split at indices.", axis_of=lambda _: 0),
    Variant("hsplit.array", "The second axis split at indices.", axis_of=_second),
    Variant("dsplit.array", "The third axis split at indices.", axis_of=lambda _: 2),
)
def split_at(
    op: Context, self: Value, indices: Sequence[int], *, axis_of: Callable[[Value], int],
) -> list[Value]:  # fmt: skip
    """An axis split at indices."""
    return tensor_split_indices(op, self, indices, axis_of(self))


@aten("pad_sequence")
def pad_sequence(
    op: Context, sequences: Tensors, batch_first: bool = False, padding_value: float = 0.0,
    padding_side: str = "right",
) -> Value:  # fmt: skip
    """Sequences of static lengths stacked, with shorter ones padded by a number."""
    lengths = [x.shape[0] for x in sequences]
    known = [n for n in lengths if isinstance(n, int)]
    if len(known) != len(lengths):
        raise Unsupported("sequences of lengths that depend on the inputs")
    rows = []
    for x, n in zip(sequences, known, strict=True):
        more, none = [max(known) - n] + [0] * (x.rank - 1), [0] * x.rank
        sides = (none, more) if padding_side == "right" else (more, none)
        padded = op.pad(x, *sides, value=float(padding_value))
        rows.append(op.unsqueeze(padded, [0 if batch_first else 1]))
    return op.concat(rows, 0 if batch_first else 1)


@aten("linalg_vecdot")
def vecdot(op: Context, x: Value, y: Value, dim: int = -1) -> Value:
    """Sums of products along an axis."""
    a, b = together(op, [x, y])
    return total(op, op.mul(a, b), [dim])


@aten("fill_diagonal")
def fill_diagonal(op: Context, self: Value, fill_value: float, wrap: bool = False) -> Value:
    """A matrix with its diagonal filled with a number."""
    if self.rank != 2 or wrap:
        raise Unsupported("the diagonal of what is no matrix")
    rows, columns = op.named(self).shape
    here = op.elementwise(
        "Equal", op.unsqueeze(op.range(rows), [1]), op.unsqueeze(op.range(columns), [0])
    )
    return op.where(here, op.constant(fill_value, self.dtype), self)


# -- whole comparisons -----------------------------------------------------------------------------


def _all(op: Context, same: Value) -> Number:
    flat = op.cast(ravel(op, same), "int32")
    inputs = [flat, op.constant([0], "int64")]
    (least,) = op.node("ReduceMin", inputs, [("int32", ())], attributes={"keepdims": 0})
    return Number(op.cast(least, "bool"))


@aten("equal")
def equal(op: Context, self: Value, other: Value) -> bool | Number:
    """Whether two tensors have equal shapes and elements."""
    shapes = op.named(self).shape, op.named(other).shape
    if shapes[0] != shapes[1]:
        if len(shapes[0]) != len(shapes[1]) or all(isinstance(n, int) for s in shapes for n in s):
            return False
        raise Unsupported("tensors whose shapes may be equal")
    a, b = together(op, [self, other])
    return _all(op, op.elementwise("Equal", a, b))


@aten("allclose")
def allclose(
    op: Context, self: Value, other: Value, rtol: float = 1e-5, atol: float = 1e-8,
    equal_nan: bool = False,
) -> Number:  # fmt: skip
    """Whether `abs(a - b) <= atol + rtol * abs(b)` for all elements."""
    return _all(op, isclose(op, self, other, rtol, atol, equal_nan))


@aten("_chunk_cat")
def chunk_cat(op: Context, tensors: Tensors, dim: int, num_chunks: int) -> Value:
    """Chunks of tensors, filled up with zeros, flattened and side by side."""
    made = []
    for tensor in tensors:
        x = op.named(tensor)
        axis = x.axis(dim)
        n, rest = x.shape[axis], x.shape[axis + 1 :]
        if not isinstance(n, int):
            raise Unsupported("chunks of an axis of unknown size")
        size = -(-n // num_chunks)
        short = (*x.shape[:axis], size * num_chunks - n, *rest)
        full = op.concat([x, op.filled(short, 0, x.dtype)], axis) if size * num_chunks > n else x
        flat = dims.mul(size, dims.product(rest))
        made.append(op.reshape(full, (*x.shape[:axis], num_chunks, flat)))
    return op.concat(made, made[0].rank - 1)
