"""Measure what rounding does to a source in its own runtime.

A source may add what the graph multiplies: torch's GroupNorm scales the mean before it subtracts
it, so where means are large its results are ten times as far from the exact ones as the graph's.
What the noise of the graph does not explain (see `converter.verification.noise`), that of the
source may. The source is run again on inputs moved at random by at most a unit in the last place:
its weights stay as they are, so of a source without floating point inputs nothing is learnt.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from converter.verification.inputs.draw import Case
from converter.verification.runners import (
    Model,
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
    """Run a source on inputs moved by rounding.

    Args:
        source: The source.
        specs: Specs of its inputs.
        prepared: The inputs that it has been run on.
        run: That run.

    Returns:
        What is known of each output, by the indices of its case and of the output; nothing where
        no input can be moved, or the source fails on moved ones.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
    """
    if not any(spec.dtype in EPSILON for spec in specs):
        return {}
    rng = np.random.default_rng(SEED)
    cases = [move_inputs(rng, prepared.cases[n], specs) for n in run.chosen for _ in range(RUNS)]
    folder = prepared.folder / "moved"
    folder.mkdir()
    moved = write_inputs(folder, specs, [[case] for case in cases])
    again = source.run(replace(moved, names=prepared.names))
    if isinstance(again, RunSkipped) or again.refused:
        return {}
    return {
        (number, i): describe_changes(
            load_output(prepared, "out", number, i, dtype).data,
            [
                load_output(moved, "out", at * RUNS + n, i, dtype).data for n in range(RUNS)
            ],
        )
        for at, number in enumerate(run.chosen)
        for i, dtype in enumerate(run.dtypes[number])
    }  # fmt: skip


def move_inputs(rng: np.random.Generator, case: Case, specs: Sequence[TensorSpec]) -> Case:
    """Return a case with each floating point number at most a unit in the last place away.

    An array that feeds two inputs stays one array.
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
    return replace(case, arrays=arrays, is_first=False)


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
