"""Measure what rounding does to a source in its own runtime.

A source may round where the graph does not: torch's GroupNorm of a transposed batch subtracts the
squared mean from the mean square, so where means are large its results are many times as far from
the exact ones as the graph's. What the noise of the graph does not explain (see
`converter.verification.noise`), that of the source may.

Where the runtime can compute in float64, the source's error is what it differs by from that. Else
the source is run again on inputs moved at random by at most a unit in the last place. Its weights
stay as they are: of a source without floating point inputs nothing is learnt so.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from converter.verification.inputs.draw import Case
from converter.verification.runners import (
    Model,
    PreciseModel,
    PreparedInputs,
    RunSkipped,
    SourceRun,
    load_output,
    write_inputs,
)
from converter.verification.verdict import EPSILON, Evidence, SourceNoise
from formats.core.bundle import TensorSpec

RUNS = 6
SEED = 20_778
Array = np.ndarray


def measure_source_noise(
    source: Model, specs: Sequence[TensorSpec], prepared: PreparedInputs, run: SourceRun
) -> SourceNoise:
    """Measure the rounding errors of a source.

    Args:
        source: The source.
        specs: Specs of its inputs.
        prepared: The inputs that it has been run on.
        run: That run.

    Returns:
        What is known of each output, by the indices of its case and of the output; nothing where
        the source can neither compute in float64 nor on inputs that are moved.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
    """
    cases = [prepared.cases[number] for number in run.chosen]
    if isinstance(source, PreciseModel):
        exact = _prepare(prepared, "float64", specs, cases)
        noise = _compare_runs(prepared, run, exact, source.run_in_float64(exact))
        if any(known.largest.any() for known in noise.values()):
            return noise  # a source in float16 rounds as it did, and its errors are not seen
    if not any(spec.dtype in EPSILON for spec in specs):
        return {}
    rng = np.random.default_rng(SEED)
    moved = [move_inputs(rng, case, specs) for case in cases for _ in range(RUNS)]
    again = _prepare(prepared, "moved", specs, moved)
    return _compare_runs(prepared, run, again, source.run(again))


def _prepare(
    prepared: PreparedInputs, name: str, specs: Sequence[TensorSpec], cases: Sequence[Case]
) -> PreparedInputs:
    """Write inputs of further runs to a folder of their own."""
    folder = prepared.folder / name
    folder.mkdir()
    return replace(write_inputs(folder, specs, [[case] for case in cases]), names=prepared.names)


def _compare_runs(
    prepared: PreparedInputs, run: SourceRun, others: PreparedInputs, again: SourceRun | RunSkipped
) -> SourceNoise:
    """Return how far further runs, as many for each case, are from the first."""
    if isinstance(again, RunSkipped) or again.refused:
        return {}
    count = len(others.cases) // len(run.chosen)
    return {
        (number, i): describe_changes(
            load_output(prepared, "out", number, i, dtype).data,
            [load_output(others, "out", at * count + n, i, dtype).data for n in range(count)],
        )
        for at, number in enumerate(run.chosen)
        for i, dtype in enumerate(run.dtypes[number])
    }


def move_inputs(rng: np.random.Generator, case: Case, specs: Sequence[TensorSpec]) -> Case:
    """Return a case with each floating point number at most a unit in the last place away.

    An array that feeds two inputs stays one array. A source that runs from the state that it stores
    does so again.
    """
    moved: dict[int, Array] = {}
    for array, spec in zip(case.arrays, specs, strict=True):
        if spec.dtype in EPSILON and id(array) not in moved:
            steps = 2 * rng.random(array.shape) - 1
            with np.errstate(all="ignore"):  # infinities and the largest numbers
                moved[id(array)] = np.asarray(
                    (array * (1 + EPSILON[spec.dtype] * steps)).astype(array.dtype)
                )
    arrays = tuple(moved.get(id(array), array) for array in case.arrays)
    return replace(case, arrays=arrays)


def describe_changes(first: Array, others: Sequence[Array]) -> Evidence:
    """Return how far the elements of several runs are from those of the first."""
    squares, largest = np.zeros(first.shape), np.zeros(first.shape)
    for other in others:
        if other.shape != first.shape:
            return Evidence(squares, np.full(first.shape, np.inf))
        if first.dtype.kind != "f":
            largest = np.maximum(largest, other != first)
            continue
        with np.errstate(all="ignore"):
            change = np.abs(other.astype(np.float64) - first)
        same = (other == first) | (np.isnan(other) & np.isnan(first))
        change = np.where(same, 0, np.where(np.isfinite(change), change, np.inf))
        squares += np.where(np.isfinite(change), change, 0) ** 2 / len(others)
        largest = np.maximum(largest, change)
    return Evidence(squares, largest)
