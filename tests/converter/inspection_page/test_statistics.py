"""Statistics of tensors: exact where they are read whole, stated where they are a sample."""

import numpy as np
import pytest

from converter.inspection_page.statistics import (
    BANDS,
    RUN,
    compute_statistics,
    element_limit,
    sample_elements,
)
from formats.core.storage import File, Span
from formats.core.weights import DTYPES, Tensor, numpy_dtype

RNG = np.random.default_rng(7)
ALL = 1 << 30


def inline(array, dtype=None):
    name = dtype or array.dtype.name
    return Tensor.inline(DTYPES[name], array.shape, array.tobytes())


def figures(array, dtype=None, limit=ALL):
    return compute_statistics(inline(np.asarray(array), dtype), limit)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn",
                                   "float8_e5m2", "float8_e4m3fnuz"])  # fmt: skip
def test_floats_are_as_numpy_has_them(dtype):
    array = RNG.normal(size=(3, 5, 7)).astype(numpy_dtype(DTYPES[dtype]))
    wide = array.astype(np.float64)
    found = figures(array, dtype)
    assert (found.minimum, found.maximum) == (wide.min(), wide.max())
    assert found.mean == pytest.approx(wide.mean(), rel=1e-6, abs=1e-9)
    assert found.deviation == pytest.approx(wide.std(), rel=1e-6)
    assert found.zeros == np.count_nonzero(wide == 0)
    assert (found.elements, found.sampled, found.nan, found.infinite) == (105, False, 0, 0)
    expected, _ = np.histogram(wide, BANDS, (wide.min(), wide.max()))
    assert len(found.histogram) == BANDS
    assert sum(found.histogram) == 105
    assert np.abs(np.array(found.histogram) - expected).sum() <= 4  # on borders of bands


def test_nan_and_infinities_are_counted_and_left_out_of_the_others():
    found = figures(np.array([np.nan, 1, -np.inf, 0, np.inf, np.nan, -3], np.float32))
    assert (found.nan, found.infinite, found.zeros) == (2, 2, 1)
    assert (found.minimum, found.maximum) == (-3, 1)
    assert sum(found.histogram) == 3
    nothing = figures(np.full(4, np.nan, np.float32))
    assert (nothing.nan, nothing.minimum, nothing.mean, nothing.histogram) == (4, None, None, ())


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_of_nothing_there_are_no_figures(shape):
    found = figures(np.empty(shape, np.float32))
    assert (found.elements, found.minimum, found.histogram, found.zeros) == (0, None, (), 0)


def test_a_scalar_and_equal_elements_have_one_band():
    assert figures(np.array(2.5, np.float32)).histogram == (1,)
    assert figures(np.zeros((2, 3), np.int8)).histogram == (6,)


def test_bool_and_integers():
    found = figures(np.array([True, False, True, True]))
    assert (found.minimum, found.maximum, found.mean, found.zeros) == (0, 1, 0.75, 1)
    assert (found.histogram[0], found.histogram[-1]) == (1, 3)
    wide = figures(np.array([-(1 << 62), 0, 1 << 62], np.int64))
    assert (wide.minimum, wide.maximum) == (-float(1 << 62), float(1 << 62))
    assert sum(wide.histogram) == 3


def test_elements_of_less_than_a_byte():
    tensor = Tensor.inline(DTYPES["int4"], (4,), bytes([0x1F, 0x07]))  # -1, 1, 7, 0
    found = compute_statistics(tensor, ALL)
    assert (found.minimum, found.maximum, found.zeros) == (-1, 7, 1)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_of_complex_numbers_absolute_values(dtype):
    found = figures(np.array([3 + 4j, 0, 1j], dtype))
    assert (found.minimum, found.maximum, found.absolute) == (0, 5, True)


def test_the_largest_doubles_have_a_histogram():
    most = np.finfo(np.float64).max
    found = figures(np.array([-most, 0, most]))
    assert found.histogram[0] == found.histogram[-1] == 1
    assert sum(found.histogram) == 3


@pytest.mark.parametrize(
    ("sizes", "budget", "limit"),
    [
        ([], 100, 50),
        ([10, 20], 1 << 20, 50),
        ([RUN * 4, RUN * 100, RUN * 100], RUN * 64, 50),
    ],
)
def test_the_limit_is_at_most_the_given_one(sizes, budget, limit):
    assert element_limit(sizes, budget, limit) in (limit, RUN)


def test_small_tensors_leave_their_share_to_large_ones():
    sizes = [RUN * 4, RUN * 100, RUN * 100]
    limit = element_limit(sizes, RUN * 64, RUN * 1000)
    assert limit == RUN * 30
    assert sum(min(size, limit) for size in sizes) == RUN * 64


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int4"])
@pytest.mark.parametrize("where", ["file", "memory", "computed"])
def test_a_sample_is_of_runs_at_equal_distances(tmp_path, dtype, where):
    known = DTYPES[dtype]
    size = RUN * 10 + 6
    data = RNG.integers(0, 120, known.nbytes(size), np.uint8).tobytes()
    path = tmp_path / "data"
    path.write_bytes(data)
    whole = Tensor.inline(known, (size,), data)
    tensor = {
        "file": lambda: Tensor.contiguous(known, (size,), Span.whole(File(path))),
        "memory": lambda: whole,
        "computed": lambda: Tensor.computed(
            known, (size,), lambda: (data[i : i + 1000] for i in range(0, len(data), 1000))
        ),
    }[where]()
    got = sample_elements(tensor, 3 * RUN + 17)
    step = size // 3 // RUN * RUN
    elements = whole.numpy()
    expected = np.concatenate([elements[i * step : i * step + RUN] for i in range(3)])
    assert got.tobytes() == expected.tobytes()
    found = compute_statistics(tensor, 3 * RUN)
    assert (found.sampled, found.elements) == (True, 3 * RUN)
