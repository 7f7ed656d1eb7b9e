"""Chunks of a tensor put together again are the tensor."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import CorruptError
from formats.torch_join import Chunk, joined
from formats.weights import DTYPES, Tensor


def inline(array: np.ndarray) -> Tensor:
    return Tensor.inline(DTYPES[array.dtype.name], array.shape, array.tobytes())


@st.composite
def grids(draw: st.DrawFn) -> tuple[np.ndarray, list[Chunk]]:
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    whole = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    cuts = [sorted({0, n, *draw(st.lists(st.integers(0, n), max_size=2))}) for n in shape]
    boxes = itertools.product(*(list(itertools.pairwise(c)) for c in cuts))
    chunks = [Chunk(tuple(a for a, _ in box), tuple(b - a for a, b in box)) for box in boxes]
    return whole, draw(st.permutations(chunks))


@given(grids())
@settings(max_examples=200, deadline=None)
def test_any_grid(grid: tuple[np.ndarray, list[Chunk]]) -> None:
    whole, chunks = grid
    parts = []
    for chunk in chunks:
        box = tuple(slice(o, o + n) for o, n in zip(chunk.offsets, chunk.sizes, strict=True))
        parts.append(inline(np.ascontiguousarray(whole[box])))
    tensor = joined(chunks, parts, whole.shape, origin="w")
    assert tensor.tobytes() == whole.tobytes()


def test_chunks_that_leave_a_gap_or_overlap_are_refused() -> None:
    part = inline(np.zeros((2, 3), np.int16))
    for offsets in ([(0, 0), (0, 0)], [(0, 0), (3, 0)]):
        with pytest.raises(CorruptError):
            joined([Chunk(o, (2, 3)) for o in offsets], [part, part], (4, 3), origin="w")
    with pytest.raises(CorruptError):
        joined([Chunk((0, 0), (2, 3))], [part], (4, 3), origin="w")
