"""The rounding of a source in its own runtime explains differences, and no others."""

from dataclasses import dataclass

import numpy as np
import pytest
from onnx_by_hand import value, written

import converter
from converter.verification.inputs.draw import Case
from converter.verification.measure import Runtime
from converter.verification.noise import SOURCE_TIMES, Noise
from converter.verification.runners import RunSkipped, SourceRun, load_output, write_inputs
from converter.verification.source_noise import describe_changes, measure_source_noise, move_inputs
from converter.verification.verdict import Evidence
from formats.core.bundle import TensorSpec

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.thorough
SPECS = [TensorSpec("x", "float32", (None, 3)), TensorSpec("n", "int64", (None,))]


def scaled(path, nodes, factor=1.0):
    """Write a graph that returns what it gets, by way of some nodes."""
    weights = {"more": np.float32(21), "less": np.float32(20), "one": np.float32(factor)}
    outputs = [value("y", "float32", "n", 64)]
    return written(path, nodes, [value("x", "float32", "n", 64)], outputs, weights)


DIFFERENCE = [("Mul", "x more", "a"), ("Mul", "x less", "b"), ("Sub", "a b", "y")]
PRODUCT = [("Mul", "x one", "y")]


def test_a_source_that_rounds_more_than_the_graph_passes(tmp_path):
    source, graph = scaled(tmp_path / "a.onnx", DIFFERENCE), scaled(tmp_path / "b.onnx", PRODUCT)
    (report,) = converter.verify(source, graph).graphs.values()
    assert report.status == "passed", report.reason
    assert report.outputs["y"].verdict == "explained"
    assert any("the rounding noise of the source" in note for note in report.notes)


def test_the_larger_noise_hides_no_fault(tmp_path):
    source = scaled(tmp_path / "a.onnx", DIFFERENCE)
    graph = scaled(tmp_path / "b.onnx", PRODUCT, 1 + 2e-5)
    (report,) = converter.verify(source, graph).graphs.values()
    assert (report.status, report.outputs["y"].verdict) == ("failed", "unexplained")


@dataclass
class Mean:
    """A model that adds the first and the last number of each row, and finds the largest."""

    precise: bool = False
    fails: bool = False

    def run(self, prepared, dtype="float32"):
        if self.fails:
            return RunSkipped("it fails", is_missing=False)
        for number in range(len(prepared.cases)):
            x = np.load(prepared.folder / f"in-{number}-0.npy").astype(dtype)
            np.save(prepared.folder / f"out-{number}-0.npy", x[:, 0] + x[:, -1])
            np.save(prepared.folder / f"out-{number}-1.npy", x.argmax(axis=1))
        chosen = tuple(range(len(prepared.cases)))
        dtypes = dict.fromkeys(chosen, ("float32", "int64"))
        return SourceRun(Runtime("stub", "1", "cpu"), chosen, dtypes, (), ())


class PreciseMean(Mean):
    def run_in_float64(self, prepared):
        return self.run(prepared, "float64")


ROWS = np.array([[1e8, 3, 7], [1, 2, 1e-9], [5, 1, np.inf]], "f4")


@pytest.mark.parametrize("precise", [True, False])
def test_errors_are_measured_in_each_case(precise, tmp_path):
    model = (PreciseMean if precise else Mean)()
    cases = [Case("a", (ROWS, np.arange(3))), Case("b", (ROWS[1:], np.arange(2)))]
    prepared = write_inputs(tmp_path, SPECS, [[case] for case in cases])
    run = model.run(prepared)
    noise = measure_source_noise(model, SPECS, prepared, run)
    assert [*noise] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    largest = noise[0, 0].largest
    if precise:
        np.testing.assert_allclose(largest, [1.0, 1e-9, 0], rtol=1e-6)
    else:
        assert 0 < largest[0] <= 16
        assert largest[2] == 0
    np.testing.assert_array_equal(noise[1, 1].largest, [0, 0])
    np.testing.assert_array_equal(load_output(prepared, "out", 0, 0, "float32").data[2], np.inf)


class Exact(Mean):
    def run_in_float64(self, prepared):
        return self.run(prepared)


def test_inputs_are_moved_where_float64_changes_nothing(tmp_path):
    """A model of float16 rounds in float64 as it did."""
    prepared = write_inputs(tmp_path, SPECS, [[Case("a", (ROWS, np.arange(3)))]])
    noise = measure_source_noise(Exact(), SPECS, prepared, Mean().run(prepared))
    assert noise[0, 0].largest[0] > 0


def test_nothing_is_known_of_what_fails_or_has_no_numbers(tmp_path):
    prepared = write_inputs(tmp_path, SPECS, [[Case("a", (ROWS, np.arange(3)))]])
    run = Mean().run(prepared)
    assert measure_source_noise(Mean(fails=True), SPECS, prepared, run) == {}
    assert measure_source_noise(Mean(), SPECS[1:], prepared, run) == {}


def test_inputs_are_moved_by_a_unit_and_stay_one_array():
    numbers = np.array([1.5, 0, -3e38, np.nan, np.inf], "f4")
    case = Case("a", (numbers, np.arange(5), numbers), is_first=True)
    specs = [SPECS[0], SPECS[1], SPECS[0]]
    seen = set()
    for seed in range(20):
        moved = move_inputs(np.random.default_rng(seed), case, specs)
        assert moved.arrays[0] is moved.arrays[2]
        assert moved.arrays[1] is case.arrays[1]
        assert moved.is_first
        first, *_ = moved.arrays
        assert first.dtype == np.float32
        assert abs(int(first.view("i4")[0]) - int(numbers.view("i4")[0])) <= 1
        np.testing.assert_array_equal(first[[1, 3, 4]], numbers[[1, 3, 4]])
        seen.add(float(first[0]))
    assert len(seen) == 3


def test_shapes_and_texts_that_change():
    first = np.array(["a", "b"])
    changed = describe_changes(first, [first, np.array(["a", "c"])])
    np.testing.assert_array_equal(changed.largest, [0, 1])
    assert np.isinf(describe_changes(np.ones(2), [np.ones(3)]).largest).all()
    assert np.isinf(describe_changes(np.ones(1), [np.array([np.nan])]).largest).all()


def test_what_is_too_large_is_no_rounding(tmp_path):
    np.save(tmp_path / "spread-0-0.npy", np.stack([np.full(4, 1e-14), np.full(4, 1e-7)]))
    for times, expected in ((SOURCE_TIMES / 2, True), (SOURCE_TIMES * 2, False)):
        own = Evidence(np.full(4, 1e-14 * times**2), np.full(4, 1e-7 * times))
        known = Noise(tmp_path, 8, source={(0, 0): own}).evidence(0, 0)
        assert (known.level > 1e-7 * 1.01) is expected
