"""Chunks of a tensor put together again are the tensor."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.core.weights import DTYPES, Tensor
from formats.errors import CorruptError, UnsupportedError
from formats.torch.concatenation import BAND, Chunk, check_tiling, join_chunks


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
    check(chunks, whole.shape)
    tensor = join_chunks(chunks, parts, whole.shape, origin="w")
    assert tensor.tobytes() == whole.tobytes()


def check(chunks: list[Chunk], shape: tuple[int, ...]) -> None:
    check_tiling(chunks, shape, 2, origin="w", charge=lambda work: None)


@given(grids(), st.integers(0, 100), st.integers(0, 2), st.sampled_from([-1, 1]))
@settings(max_examples=300, deadline=None)
def test_a_box_that_is_moved_is_noticed(
    grid: tuple[np.ndarray, list[Chunk]], which: int, axis: int, by: int
) -> None:
    whole, chunks = grid
    check(chunks, whole.shape)
    which, axis = which % len(chunks), axis % whole.ndim
    for moved in ("offsets", "sizes"):
        box = list(getattr(chunks[which], moved))
        box[axis] += by
        wrong = [*chunks]
        wrong[which] = replace(chunks[which], **{moved: tuple(box)})
        with pytest.raises(CorruptError):
            check(wrong, whole.shape)


def test_a_hole_beside_an_overlap_is_noticed() -> None:
    """They are as large as the whole, all inside, and all begin elsewhere."""
    boxes = [((0, 0), (2, 3)), ((0, 3), (2, 3)), ((2, 0), (2, 3)), ((1, 2), (3, 2))]
    with pytest.raises(CorruptError):
        check([Chunk(*box) for box in boxes], (4, 6))


def test_rows_larger_than_what_is_put_together_at_once() -> None:
    rng = np.random.default_rng(0)
    whole = rng.integers(0, 99, (2, 3, (BAND // 4) + 5), np.int16)
    cuts = [(0, 7), (7, whole.shape[2] - 7)]
    chunks = [Chunk((0, 0, o), (2, 3, n)) for o, n in cuts]
    parts = [inline(np.ascontiguousarray(whole[:, :, o : o + n])) for o, n in cuts]
    tensor = join_chunks(chunks, parts, whole.shape, origin="w")
    assert max(len(p) for p in tensor.chunks()) <= BAND
    assert tensor.tobytes() == whole.tobytes()


def test_chunks_that_are_read_whole_only_are_a_gap() -> None:
    part = Tensor.computed(DTYPES["int16"], (2, 3), lambda: [bytes(12)])
    chunks = [Chunk((0, 0), (2, 3)), Chunk((2, 0), (2, 3))]
    with pytest.raises(UnsupportedError):
        join_chunks(chunks, [part, part], (4, 3), origin="w")


def test_chunks_that_leave_a_gap_or_overlap_are_refused() -> None:
    for offsets in ([(0, 0), (0, 0)], [(0, 0), (3, 0)]):
        with pytest.raises(CorruptError):
            check([Chunk(o, (2, 3)) for o in offsets], (4, 3))
    with pytest.raises(CorruptError):
        check([Chunk((0, 0), (2, 3))], (4, 3))
