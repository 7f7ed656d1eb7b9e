"""Diagonals of matrices: taking, setting, making."""

from converter.lower.tf.context import Context
from converter.lower.values import Value


def along_diagonal(op: Context, x: Value) -> Value:
    """Return the main diagonals of square matrices as a last axis."""
    size = op.emit("Squeeze", op.size(x, x.rank - 1), op.constant([0], "int64"), dtype="int64",
                   shape=())  # fmt: skip
    zero, one = op.constant(0, "int64"), op.constant(1, "int64")
    n = x.shape[-1]
    places = op.emit("Range", zero, size, one, dtype="int64", shape=(n,))
    wanted = op.unsqueeze(places, [1])
    shape = op.concat([*(op.size(x, i) for i in range(x.rank - 1)), op.constant([1], "int64")], 0)
    wide = op.emit("Expand", wanted, shape, dtype="int64", shape=(*x.shape[:-1], 1))
    found = op.emit("GatherElements", x, wide, dtype=x.dtype, shape=(*x.shape[:-1], 1),
                    axis=x.rank - 1)  # fmt: skip
    return op.squeeze(found, [-1])
