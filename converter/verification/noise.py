"""Measure what rounding does to a graph on given inputs, and compute its exact results.

Float32 results depend on the order of sums, on fused kernels and on approximations of functions,
none of which is part of what a model computes. How far such differences reach depends on the model
and its inputs, so it is measured: the graph is run with everything that does not matter changed
(see `children/measure_noise`). Its result in float64 tells which of two runtimes is nearer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from converter.child import process as child
from converter.child.process import Allowance
from converter.verification.exact_weights import find_exact_weights
from converter.verification.onnx_values import OnnxInterface
from converter.verification.runners import (
    CHILDREN,
    PreparedInputs,
    describe_sessions,
    onnx_python,
)
from converter.verification.verdict import Evidence, SourceNoise
from formats.core.storage import File
from formats.errors import DependencyError

MEASURE, EXACT = CHILDREN / "measure_noise.py", CHILDREN / "run_float64.py"
SPREAD_PREFIX, EXACT_PREFIX = "spread", "exact"
PERTURBED = frozenset(("float16", "float32", "float64"))  # dtypes of weights that are perturbed
# Bytes of weights up to which there are so many perturbed runs; larger graphs get the least.
RUNS = ((64 << 20, 8), (512 << 20, 4))
LEAST_RUNS = 2
SEED = 20_777
SOURCE_TIMES = 64.0  # the noise of a source, in the graph's: what is larger is no rounding
EXACT_BYTES = 512 << 20  # of weights: the evaluator holds them in float64
EXACT_ALL_BYTES = 4 << 20  # of weights, up to which all cases are evaluated; else the first


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of all outputs of a graph, as files.

    Attributes:
        folder: Folder of the files.
        runs: Number of runs.
        exact: Indices of the cases that were computed in float64.
        note: Why there is no exact result, or by what it was computed.
        source: The noise of the source in its own runtime, where that was measured, too.
    """

    folder: Path
    runs: int
    exact: frozenset[int] = frozenset()
    note: str = ""
    source: SourceNoise = field(default_factory=dict)

    def evidence(self, case: int, output: int) -> Evidence:
        """Return what is known of an output, by its index, in a case."""
        spread = np.load(self.folder / f"{SPREAD_PREFIX}-{case}-{output}.npy")
        exact = None
        if case in self.exact:
            exact = np.load(self.folder / f"{EXACT_PREFIX}-{case}-{output}.npy")
        known = Evidence(spread[0], spread[1], exact)
        own = self.source.get((case, output))
        if own is None or own.level > SOURCE_TIMES * known.level:
            return known
        return known.join(own)


def measure_noise(
    model: Path,
    file: OnnxInterface,
    prepared: PreparedInputs,
    cases: Sequence[int],
    values: Mapping[str, str],
    allowance: Allowance,
    *,
    scale: float = 1.0,
    with_exact: bool = True,
) -> Noise | None:
    """Measure the noise of a graph.

    Args:
        model: The ONNX file.
        file: Its interface.
        prepared: The inputs, by the names of the file's inputs.
        cases: Indices of the cases.
        values: Name → dtype of the values to measure: outputs, or values inside.
        allowance: Limits of each child process.
        scale: Size of a perturbation, in units in the last place.
        with_exact: Whether to compute the exact results, too.

    Returns:
        The noise; None where onnxruntime cannot measure it.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
    """
    weights = _weights(file)
    small = sum(4 * t.size for t in file.weights.values() if t.dtype.bits <= 8)  # once floats
    nbytes = small + sum(4 * prod(shape) for _, _, shape, _, _ in weights)
    names = {spec.name for spec in file.outputs}
    outputs = {name: dtype for name, dtype in values.items() if name in names}
    more = {name: dtype for name, dtype in values.items() if name not in names}
    runs = next((runs for limit, runs in RUNS if nbytes <= limit), LEAST_RUNS)
    runs = LEAST_RUNS if more else runs  # values inside are many, and large
    question = {
        **describe_sessions(model, prepared, cases, outputs, more, SPREAD_PREFIX),
        "weights": weights,
        "runs": runs,
        "scale": scale,
        "seed": SEED,
    }
    answer = _ask(MEASURE, prepared.folder, question, allowance, "onnxruntime")
    if answer.get("status") != "done":
        return None
    noise = Noise(prepared.folder, int(answer["runs"]))
    if not with_exact or nbytes > EXACT_BYTES:
        return noise
    chosen = [*cases][: None if nbytes <= EXACT_ALL_BYTES else 1]
    question = {
        "model": str(model.absolute()),
        "outputs": [*outputs, *more],
        "inputs": prepared.names,
        "cases": chosen,
        "prefix": EXACT_PREFIX,
    }
    try:
        answer = _ask(EXACT, prepared.folder, question, allowance, "onnx")
    except DependencyError as e:  # it is only slower, and larger, than what it explains
        return Noise(noise.folder, noise.runs, note=str(e))
    if answer.get("status") != "done":
        return Noise(noise.folder, noise.runs, note=str(answer.get("error", "")))
    return Noise(noise.folder, noise.runs, frozenset(chosen), f"onnx {answer['version']}")


def _ask(
    script: Path, folder: Path, question: Mapping[str, object], allowance: Allowance, what: str
) -> Mapping[str, Any]:
    python = onnx_python()
    return child.ask(
        script, folder, question, what=what, allowance=allowance, python=python, environment={}
    )


def _weights(file: OnnxInterface) -> list[tuple[str, str, tuple[int, ...], str, int]]:
    """Return name, dtype, shape, path and offset of the weights that can be perturbed."""
    exact = find_exact_weights(file)
    found = []
    for name, tensor in file.weights.items():
        span = tensor.extent()
        is_weight = tensor.dtype.name in PERTURBED and name not in exact
        if is_weight and span and isinstance(span.storage, File):
            path = str(span.storage.path.absolute())
            found.append((name, tensor.dtype.name, tensor.shape, path, span.offset))
    return found
