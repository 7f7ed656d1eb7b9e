"""What the comparison of arrays measures, and what it never lets pass."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from converter.verification.compare import (
    Array,
    Tolerance,
    coarsest_dtype,
    compare,
    merge_cases,
    merge_measures,
    says_little,
)
from converter.verification.engine import _with_layers
from converter.verification.first_difference import LayerComparison
from converter.verification.measure import Runtime
from converter.verification.report import CaseReport, GraphReport, LayerDifference

STRICT = Tolerance(atol={"": 0.0})


def measured(expected, found, tolerance=STRICT, dtypes=None):
    expected, found = np.asarray(expected), np.asarray(found)
    names = dtypes or (expected.dtype.name, found.dtype.name)
    return compare("y", Array(expected, names[0]), Array(found, names[1]), tolerance, "case")


def f4(*values):  # also rows
    return np.array(values, "f4")


def test_equal_arrays_pass_and_say_how_much_was_compared():
    m = measured(f4(1, -2, 3), f4(1, -2, 3))
    assert m.passed
    assert (m.elements, m.scale, m.max_abs, m.max_rel) == (3, 3.0, 0.0, 0.0)
    assert m.cosine == pytest.approx(1)
    assert (m.smallest_atol, m.smallest_rtol) == (0.0, 0.0)


def test_the_figures_of_a_difference():
    m = measured(f4([1, 4], [-8, 2]), f4([1, 4], [-8, 3]))
    assert not m.passed
    assert (m.max_abs, m.max_rel) == (1.0, 1 / 8)
    assert (m.worst_index, m.expected, m.found) == ((1, 1), 2.0, 3.0)
    assert (m.smallest_atol, m.smallest_rtol) == (1.0, 0.5)
    assert m.problems == ("1 of 4 elements differ by more than is allowed",)
    for bounds in ({"atol": {"": 1.0}}, {"atol": {"": 0.0}, "rtol": {"": 0.5}}):
        assert measured(f4([1, 4], [-8, 2]), f4([1, 4], [-8, 3]), Tolerance(**bounds)).passed
    for bounds in ({"atol": {"": 0.99}}, {"atol": {"": 0.0}, "rtol": {"": 0.49}}):
        assert not measured(f4([1, 4], [-8, 2]), f4([1, 4], [-8, 3]), Tolerance(**bounds)).passed


def test_by_default_noise_is_a_part_of_the_scale():
    assert measured(f4(1000, 0), f4(1000, 0.09), Tolerance()).passed
    assert not measured(f4(1000, 0), f4(1000, 0.11), Tolerance()).passed
    assert not measured(f4(1e-3, 0), f4(1e-3, 0.09), Tolerance()).passed


@pytest.mark.parametrize(
    ("precision", "error", "passes"),
    [
        ("float32", 9e-5, True), ("float32", 2e-4, False),
        ("float16", 9e-3, True), ("float16", 2e-2, False),
        ("bfloat16", 4e-2, True), ("bfloat16", 6e-2, False),
    ],
)  # fmt: skip
def test_a_model_is_as_exact_as_its_coarsest_part(precision, error, passes):
    assert measured(f4(1, 0), f4(1, error), Tolerance(precision=precision)).passed is passes


def test_the_coarsest_dtype():
    assert coarsest_dtype({"float32", "float16", "int64"}) == "float16"
    assert coarsest_dtype({"float64", "float32"}) == "float32"
    assert coarsest_dtype({"int64"}) == "float64"


def test_doubles_are_compared_as_such():
    tolerance = Tolerance(precision=coarsest_dtype({"float64"}))
    assert not measured(np.array([1.0]), np.array([1.00001]), tolerance).passed
    assert measured(np.array([1.0]), np.array([1.00000001]), tolerance).passed


def test_a_bound_of_one_output_is_not_that_of_another():
    tolerance = Tolerance(atol={"x": 5.0})
    assert not measured(f4(1), f4(3), tolerance).passed
    assert measured(f4(1), f4(3), Tolerance(atol={"y": 5.0, "": 0.0})).passed


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_must_be_so_in_place(odd):
    loose = Tolerance(atol={"": 1e30}, rtol={"": 1e30})
    assert measured(f4(1, odd), f4(1, odd), loose).passed
    for other in (f4(1, 2), f4(odd, 1), f4(1, -odd if math.isinf(odd) else math.inf)):
        m = measured(f4(1, odd), other, loose)
        assert not m.passed
        assert "not finite on one side only" in m.problems[0]
    assert not measured(f4(1, 2), f4(1, odd), loose).passed


def test_infinite_only_on_our_side_is_the_worst_there_is():
    m = measured(f4(1, 2, 3), f4(1, math.inf, 9))
    assert (m.worst_index, m.max_abs) == ((1,), math.inf)


def test_nothing_compared_is_a_failure():
    assert measured(np.zeros((0, 3), "f4"), np.zeros((0, 3), "f4")).problems == (
        "has no element to compare",
    )
    all_nan = measured(f4(math.nan), f4(math.nan))
    assert all_nan.problems == ("has no finite element to compare",)


def test_what_is_empty_on_both_sides_is_no_failure_beside_what_is_compared():
    empty, full = np.zeros((0, 3), "f4"), f4(1, 2)
    measures = {"none": [measured(empty, empty)] * 2, "some": [measured(full, full)]}
    outputs = merge_measures(measures)
    assert all(m.passed for m in outputs.values())
    assert outputs["none"].elements == 0
    assert not merge_measures({"none": measures["none"]})["none"].passed
    at_times = merge_measures({"at times": [measured(empty, empty), measured(full, full)]})
    assert at_times["at times"].passed
    wrong = merge_measures({"some": measures["some"], "none": [measured(empty, full)]})
    assert not wrong["none"].passed


def test_where_outputs_are_always_empty_layers_are_compared_in_their_place():
    empty = np.zeros((1, 0), "f4")
    outputs = merge_measures({"a": [measured(empty, empty), measured(empty, empty)]})
    report = GraphReport("failed", "differs", outputs=outputs)
    passed = _with_layers(report, LayerComparison(None, equal=5, measured=3))
    assert (passed.status, passed.reason, passed.layers) == ("passed", "", 5)
    assert passed.outputs["a"].passed
    assert "3 layers were compared in its place" in passed.notes[0]
    assert (
        _with_layers(report, LayerComparison(None, equal=5)).status == "failed"
    )  # those were empty, too
    wider = merge_measures({"a": [measured(empty, np.zeros((1, 0, 2), "f4"))]})
    report = replace(report, outputs=outputs | wider)
    assert _with_layers(report, LayerComparison(None, equal=5, measured=3)).status == "failed"


def test_dtype_and_shape_must_be_the_same():
    m = measured(f4(1), np.array([[1.0]]))
    assert m.problems == ("is float64, not float32", "has shape [1, 1], not [1]")
    assert not measured(f4(1, 1), f4(1)).passed
    assert not measured(f4(1), f4(1), dtypes=("bfloat16", "float32")).passed


def test_integers_are_equal_or_not():
    loose = Tolerance(atol={"": 10.0})
    assert measured(np.array([1, 2]), np.array([1, 2]), loose).passed
    assert not measured(np.array([1, 2]), np.array([1, 3]), loose).passed
    assert not measured(np.array([True]), np.array([False]), loose).passed
    big = 2**60
    assert not measured(np.array([big]), np.array([big + 1]), loose).passed


def test_texts_are_equal_or_not():
    kinds = ("string", "string")
    assert measured(["a", "b"], ["a", "b"], dtypes=kinds).passed
    m = measured(["a", "b"], ["a", "c"], dtypes=kinds)
    assert (m.worst_index, m.expected, m.found) == ((1,), "b", "c")
    assert not m.passed


def test_scalars_and_zeros():
    assert measured(np.float32(2), np.float32(2)).passed
    assert measured(f4(0, 0), f4(0, 0), Tolerance()).passed
    m = measured(f4(0, 0), f4(0, 1), Tolerance())
    assert (m.max_rel, m.smallest_rtol, m.cosine) == (math.inf, math.inf, 0.0)


def test_the_cosine_of_large_and_of_opposite_numbers():
    assert measured(f4(1e38, 1e38), f4(1e38, 1e38)).cosine == pytest.approx(1)
    assert measured(f4(1, 2), f4(-1, -2)).cosine == pytest.approx(-1)


def test_several_cases_are_one_measure_with_the_worst_of_each():
    fine = compare("y", Array(f4(100), "float32"), Array(f4(100.005), "float32"), Tolerance(), "A")
    bad = compare("y", Array(f4(1, 2), "float32"), Array(f4(1, 2.1), "float32"), Tolerance(), "B")
    m = merge_cases([fine, bad])
    assert (m.worst_case, m.elements) == ("B", 3)
    assert m.problems == ("1 of 2 elements differ by more than is allowed (B)",)
    assert merge_cases([fine, fine]).passed


@pytest.mark.parametrize(
    ("outputs", "little"),
    [
        ([f4([0, 1, 0]), f4([1, 0, 0], [0, 0, 1])], True),  # a saturated softmax
        ([f4([0.2, 0.5, 0.3]), f4([0.2, 0.5, 0.3], [0.2, 0.5, 0.3])], True),  # always the same
        ([f4([0.2, 0.5, 0.3]), f4([0.2, 0.5, 0.3], [0.1, 0.6, 0.3])], False),
        ([f4([0.2]), f4([0.4], [0.7], [0.1])], False),
        ([f4([math.nan, 1, 1])], True),
        ([np.array([[3], [5], [9]])], False),
        ([np.array([["a"], ["a"]])], False),
    ],
)
def test_outputs_that_hide_what_goes_before(outputs, little):
    assert says_little(outputs, 1e-4) is little


def test_a_report_is_plain_json_whatever_it_holds():
    m = measured(f4(1, 2), f4(1, math.nan))
    runtime = Runtime("keras", "3.15", "CPU:0", {"numpy": "2"})
    report = GraphReport(
        "failed",
        "differs",
        None,
        runtime,
        runtime,
        7,
        (CaseReport("1x2", {"x": ("float32", (1, 2))}),),
        outputs={"y": m},
        first_difference=LayerDifference("a/b", "Dense", m, ("c",), "z"),
    )
    plain = json.loads(json.dumps(report.plain(), allow_nan=False))
    assert plain["outputs"][0]["found"] is None
    assert plain["outputs"][0]["max_abs"] is None
    assert plain["first_difference"]["merged"] == ["c"]
    assert report.max_rel == math.inf
    assert str(report.first_difference) == "'a/b' (Dense) with 'c' folded into it"


def test_differences_are_counted_by_their_power_of_ten():
    m = measured(f4(*[1000] * 6), f4(1000, 1000, 1000.5, 1005, 1150, math.nan))
    assert m.decades == (2, 0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1)  # 5e-4, 5e-3, 0.15, no number
    exact = measured(f4(1, 2), f4(1, 2))
    assert exact.decades == (2, *[0] * 11)
    assert merge_cases([m, exact]).decades == (4, *m.decades[1:])
    assert measured(f4(0, 0), f4(0, 1)).decades == (1, *[0] * 10, 1)  # of no scale
    assert measured(np.array(["a", "b"]), np.array(["a", "c"])).decades == (1, *[0] * 10, 1)
    assert measured(f4(), f4()).decades == ()
    assert merge_cases([measured(f4(), f4()), exact]).decades == exact.decades
    assert sum(m.decades) == m.elements
