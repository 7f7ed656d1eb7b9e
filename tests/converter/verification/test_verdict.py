"""Verdicts: rounding explains a difference, or it does not, or nothing can be said."""

import numpy as np
import pytest

from converter.verification.compare import Array, Tolerance, compare, merge_cases
from converter.verification.verdict import Evidence

RNG = np.random.default_rng(3)
SHAPE = (4, 50, 6)
NOISE = 1e-6


def evidence(shape=SHAPE, noise=NOISE, exact=None):
    """Return the noise of an output whose elements change by so much."""
    return Evidence(np.full(shape, noise**2), np.full(shape, 3 * noise), exact)


def judge(expected, found, known=None, tolerance=None):
    known = known or evidence(expected.shape)
    tolerance = tolerance or Tolerance()
    dtype = expected.dtype.name if expected.dtype.kind != "U" else "string"
    return compare("y", Array(expected, dtype), Array(found, dtype), tolerance, "case", known)


def values(scale=1.0, shape=SHAPE):
    return (RNG.standard_normal(shape) * scale).astype("f4")


def test_equal_bits_are_equal():
    a = values()
    assert judge(a, a.copy()).verdict == "equal"


def test_a_difference_of_the_size_of_the_noise_is_explained():
    a = values()
    measure = judge(a, a + RNG.normal(0, NOISE, SHAPE).astype("f4"))
    assert (measure.verdict, measure.passed) == ("explained", True)
    assert measure.noise == pytest.approx(NOISE, rel=0.1)


def test_ten_times_the_noise_is_not():
    a = values()
    measure = judge(a, a + RNG.normal(0, 10 * NOISE, SHAPE).astype("f4"))
    assert (measure.verdict, measure.passed) == ("unexplained", False)
    assert "times the rounding noise" in measure.problems[0]


def test_a_small_channel_is_held_against_its_own_noise():
    """Boxes in pixels do not hide that scores of 0 to 1 are wrong."""
    a = values()
    a[..., :3] *= 1000
    known = evidence()
    known.mean_square[..., :3] *= 1e6
    b = a.copy()
    b[..., 5] += np.float32(3e-5)
    measure = judge(a, b, known)
    assert measure.verdict == "unexplained"
    assert "index 5 of axis 2" in measure.problems[0]


def test_one_element_is_held_against_its_own_noise():
    a = values()
    b = a.copy()
    b[2, 30, 4] += np.float32(20 * NOISE)
    measure = judge(a, b)
    assert measure.verdict == "unexplained"
    assert "[2, 30, 4]" in measure.problems[0]


def test_noise_as_large_as_the_values_says_nothing():
    a = values()
    measure = judge(a, values(), evidence(noise=0.5))
    assert (measure.verdict, measure.passed) == ("ill-conditioned", True)


def test_elements_that_jump_are_left_out():
    """A choice between near equals moves an element far, in one of many runs."""
    a = values()
    known = evidence()
    known.largest[0, :5] = 2.0
    b = a.copy()
    b[0, :5] += 2
    assert judge(a, b, known).verdict == "explained"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_on_one_side_only_differs(value):
    a = values()
    b = a.copy()
    b[0, 0, 0] = value
    measure = judge(a, b)
    assert measure.verdict == "unexplained"
    assert "not finite on one side only" in measure.problems[0]
    assert judge(b, b.copy()).verdict == "equal"


def test_an_infinite_result_is_equal_and_nan_alone_says_nothing():
    assert judge(*2 * [np.full((2, 3), np.inf, "f4")], evidence((2, 3))).verdict == "equal"
    nothing = judge(*2 * [np.full((2, 3), np.nan, "f4")], evidence((2, 3)))
    assert (nothing.verdict, nothing.passed) == ("ill-conditioned", True)


def test_both_errors_are_reported_against_the_exact_result():
    exact = RNG.standard_normal(SHAPE)
    a, b = exact.astype("f4"), (exact + 3e-7).astype("f4")
    measure = judge(a, b, evidence(exact=exact))
    assert measure.verdict == "explained"
    assert measure.source_error < measure.converted_error < 4e-7


def test_an_exact_result_that_is_far_off_is_not_trusted():
    a = values()
    b = a + RNG.normal(0, 10 * NOISE, SHAPE).astype("f4")
    measure = judge(a, b, evidence(exact=a.astype("f8") + 1))
    assert (measure.verdict, measure.source_error) == ("unexplained", None)


def test_a_graph_that_is_itself_off_by_more_than_its_noise_is_explained():
    """The source may be as far from the exact result as the graph is."""
    exact = RNG.standard_normal(SHAPE)
    a = (exact + RNG.normal(0, 8 * NOISE, SHAPE)).astype("f4")
    b = (exact + RNG.normal(0, 8 * NOISE, SHAPE)).astype("f4")
    assert judge(a, b, evidence(exact=exact)).verdict == "explained"
    assert judge(a, b).verdict == "unexplained"


@pytest.mark.parametrize("dtype", ["int64", "bool", "U8"])
def test_choices_may_differ_only_where_rounding_changes_them(dtype):
    a = RNG.integers(0, 2, (3, 40)).astype(dtype)
    b = a.copy()
    b[1, 7] = np.array(1 - int(a.astype("U8")[1, 7] in ("1", "True"))).astype(dtype)
    known = Evidence(np.zeros(a.shape), np.zeros(a.shape))
    assert judge(a, a.copy(), known).verdict == "equal"
    assert judge(a, b, known).verdict == "unexplained"
    known.largest[1, 7] = 1
    measure = judge(a, b, known)
    assert (measure.verdict, measure.passed) == ("explained", True)
    known.largest[...] = 1
    assert judge(a, b, known).verdict == "ill-conditioned"


def test_a_tolerance_of_the_user_decides():
    a = values()
    b = a + RNG.normal(0, 10 * NOISE, SHAPE).astype("f4")
    assert judge(a, b, tolerance=Tolerance(atol={"": 1e-3})).verdict == "tolerated"
    assert judge(a, b, tolerance=Tolerance(atol={"y": 1e-3})).verdict == "tolerated"
    assert judge(a, b, tolerance=Tolerance(atol={"z": 1e-3})).verdict == "unexplained"
    assert judge(a, b, tolerance=Tolerance(atol={"": 1e-9})).verdict == "unexplained"


def test_the_worst_case_that_can_be_decided_counts():
    a = values()
    equal, unclear = judge(a, a.copy()), judge(a, values(), evidence(noise=0.5))
    assert merge_cases([equal, unclear]).verdict == "equal"
    assert merge_cases([unclear, unclear]).verdict == "ill-conditioned"
    wrong = judge(a, a + 1)
    assert merge_cases([equal, wrong, unclear]).verdict == "unexplained"


def test_tiny_numbers_that_a_runtime_flushes_are_explained():
    a = np.full((2, 30), 1e-42, "f4")
    assert judge(a, np.zeros_like(a), evidence((2, 30), 0.0)).verdict == "explained"


def test_an_output_without_elements_passes_nothing():
    a = np.zeros((0, 3), "f4")
    assert not judge(a, a, evidence((0, 3))).passed
