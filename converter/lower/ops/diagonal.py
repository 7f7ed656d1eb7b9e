"""Diagonals of matrices, and diagonal matrices of vectors, of static and of unknown sizes."""

from dataclasses import replace

import numpy as np

from converter.lower.builder import Builder
from converter.lower.known_values import count, size
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def take_diagonal(op: Builder, x: Value, offset: int = 0) -> Value:
    """Return a diagonal of the last two axes; a positive offset is above the main diagonal.

    Returns:
        Diagonals ``[..., n]``; n is 0 where the matrices have no such diagonal.
    """
    rows, columns = size(op, x, -2), size(op, x, -1)
    below, right = max(-offset, 0), max(offset, 0)
    length = (rows - below).least(columns - right).most(0)
    at = count(op, length)
    places = (at + below) * columns + at + right
    lead, sides = x.shape[:-2], [n for n in x.shape[-2:] if isinstance(n, int)]
    flat = sides[0] * sides[1] if len(sides) == 2 else None
    target = [*[0] * len(lead), -1]
    if 0 in x.shape:  # a zero in the shape of a Reshape would copy a size of the input
        shape = [n for n in lead if isinstance(n, int)]
        if len(shape) < len(lead):
            raise Unsupported("diagonals of matrices without elements, of unknown number")
        return op.constant(np.zeros((*shape, int(length.known or 0))), x.dtype)
    line = op.emit("Reshape", x, op.constant(target, "int64"), dtype=x.dtype, shape=(*lead, flat))
    dim = None if length.known is None else int(length.known)
    return op.emit("Gather", line, places.value, dtype=x.dtype, shape=(*lead, dim), axis=len(lead))


def make_diagonal(op: Builder, x: Value, offset: int = 0) -> Value:
    """Return square matrices with the last axis of x on a diagonal, and zeros elsewhere."""
    below, right = max(-offset, 0), max(offset, 0)
    if x.shape[-1] == 0:
        x = op.pad(x, [0] * (x.rank - 1) + [1], [0] * x.rank)
    own = size(op, x, -1)
    total = own + (below + right if x.shape[-1] else 0)
    rows, columns = count(op, total).column(), count(op, total)
    away = columns - rows
    here = (away >= offset) & (away <= offset)
    # Row i has element i - below, if it has any; the index is clamped for other rows.
    wanted = (count(op, total) - below).most(0).least(own - 1)
    dim = None if total.known is None else int(total.known)
    shape = (*x.shape[:-1], dim)
    spread = op.emit("Gather", x, wanted.value, dtype=x.dtype, shape=shape, axis=x.rank - 1)
    made = op.where(here.value, op.unsqueeze(spread, [-1]), op.constant(0, x.dtype))
    return replace(made, shape=(*shape, dim))
