"""The child that measures the rounding noise of a graph: ``python measure_noise.py FOLDER``.

It imports only its siblings in this folder, and nothing of the project imports it. The graph is run
again and again in onnxruntime while nothing changes that matters: without optimisation, with one
thread, and with inputs and weights moved at random by up to two units in the last place, the error
of a good approximation of exp or tanh. The weights are replaced in memory; a perturbed weight acts
like the rounding of the products that it takes part in, so the spread of the results is what
rounding does to this graph on these inputs.

``question.json`` has the fields of `run_onnxruntime`, and:

    weights    [name, dtype, shape, path, offset] of each floating point initializer
    runs       number of perturbed runs
    scale      size of a perturbation, in units in the last place of each array's dtype
    seed       seed of the perturbations

and ``answer.json``: the number of runs that were made, or why there are none. Each output becomes
``PREFIX-CASE-OUTPUT.npy`` with one more leading axis: the mean square and the largest change of
each element; of an output without floating point numbers, whether the element changed.
"""

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
# Largest perturbation of each run in turn, in units in the last place. Some are larger, and their
# effect is divided by that: so a decision (argmax, rounding) that is close is seen to change.
SIZES = (2.0, 2.0, 2.0, 8.0)
BFLOAT16 = "tensor(bfloat16)"


def load_sibling(name: str) -> Any:
    """Return a module that lies in this folder, which is not on the path of imports."""
    spec: Any = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(folder: Path) -> None:
    """Answer the question in the folder."""
    question = json.loads((folder / "question.json").read_text())
    runner = load_sibling("run_onnxruntime")
    onnxruntime = importlib.import_module("onnxruntime")
    onnxruntime.set_default_logger_severity(4)
    try:
        answer = {"status": "done", "runs": measure(onnxruntime, runner, question, folder)}
    except Exception as e:  # whatever it fails with, its words are the answer
        answer = {"status": "failed", "error": runner.describe_error(e)}
    (folder / "answer.json").write_text(json.dumps(answer))


def measure(onnxruntime: Any, runner: Any, question: dict[str, Any], folder: Path) -> int:
    """Run all variants of each session, write the spread of each output; return their number.

    A variant that onnxruntime fails on, since it lacks a kernel that a fusion would avoid, is left
    out. There must be another.
    """
    first = runs = 0
    for extra, names in zip(question["extras"], question["outputs"], strict=True):
        spreads: dict[tuple[int, int], Spread] = {}
        runs, error = 0, None
        for open_session, rng, size in variants(onnxruntime, runner, question, folder, extra):
            try:
                found = run_all(
                    onnxruntime, runner, question, folder, open_session(), rng, size, names
                )
            except Exception as e:
                error = e
                continue
            runs += 1
            for (case, i), result in found.items():
                if (case, first + i) not in spreads:
                    spreads[case, first + i] = Spread(result)
                else:
                    spreads[case, first + i].add(
                        result, max(size / (question["scale"] * SIZES[0]), 1.0)
                    )
        if runs < 2 and error is not None:
            raise error
        for (case, i), spread in spreads.items():
            np.save(folder / f"{question['prefix']}-{case}-{i}.npy", spread.result())
        first += len(names)
    return runs


def run_all(
    onnxruntime: Any, runner: Any, question: dict[str, Any], folder: Path, session: Any,
    rng: "np.random.Generator", size: float, names: list[str],
) -> dict[tuple[int, int], Array]:  # fmt: skip
    """Run a session on all cases, with perturbed inputs; return the outputs by case and index."""
    types = {spec.name: spec.type for spec in session.get_inputs()}
    found: dict[tuple[int, int], Array] = {}
    for case in question["cases"]:
        arrays = {}
        for i, name in enumerate(question["inputs"]):
            array = perturb(rng, np.load(folder / f"in-{case}-{i}.npy"), size / 2, types[name])
            arrays[name] = runner.prepare_input(array, types[name])
        results = runner.run(onnxruntime, session, names, arrays, types)
        found |= {(case, i): runner.plain(result) for i, result in enumerate(results)}
    return found


def variants(
    onnxruntime: Any, runner: Any, question: dict[str, Any], folder: Path, extra: str | None
) -> Iterator[tuple[Callable[[], Any], "np.random.Generator", float]]:
    """Yield what opens a session, the graph as it is first, with the size of perturbations."""
    model = question["model"]
    data: str | bytes = model
    if extra is not None:
        data = Path(model).read_bytes() + (folder / extra).read_bytes()

    def open_session(weights: dict[str, Any], *, threads: int = 0, optimise: bool = True) -> Any:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        if not optimise:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        if extra is not None:
            options.add_session_config_entry(runner.EXTERNAL_FOLDER, str(Path(model).parent))
        for name, value in weights.items():
            options.add_initializer(name, value)
        return onnxruntime.InferenceSession(data, options, providers=[runner.CPU])

    rng = np.random.default_rng(question["seed"])
    yield partial(open_session, {}), rng, 0.0
    yield partial(open_session, {}, threads=1), rng, 0.0
    yield partial(open_session, {}, optimise=False), rng, 0.0
    for number in range(question["runs"]):
        size = question["scale"] * SIZES[number % len(SIZES)]
        weights = {  # they must outlive the session
            name: onnxruntime.OrtValue.ortvalue_from_numpy(perturb(rng, array, size))
            for name, array in load_weights(question["weights"])
        }
        yield partial(open_session, weights, optimise=False), rng, size


def load_weights(rows: list[Any]) -> Iterator[tuple[str, Array]]:
    """Yield the weights to perturb, by name."""
    for name, dtype, shape, path, offset in rows:
        count = int(np.prod(shape, dtype=np.int64))
        yield name, np.fromfile(path, dtype, count, offset=offset).reshape(shape)


def perturb(rng: "np.random.Generator", array: Array, size: float, kind: str = "") -> Array:
    """Return floating point numbers moved at random, by at most so many units of their dtype.

    Along its first and its last axis a kernel is moved as a whole, too: a factor of a channel, as
    a normalisation has, is rounded once for all that it multiplies.
    """
    if not size or array.dtype.kind != "f":
        return array
    unit = 2.0**-7 if kind == BFLOAT16 else float(np.finfo(array.dtype).eps)  # it is in float32
    moves: Any = 2 * rng.random(array.shape) - 1
    for axis in {0, array.ndim - 1} if array.ndim > 1 else ():
        channels = [n if i == axis else 1 for i, n in enumerate(array.shape)]
        moves = moves + 2 * rng.random(channels) - 1
    moved = array * (1 + size * unit * moves)
    return np.asarray(moved.astype(array.dtype))


class Spread:
    """The changes of an output over several runs, against the first run."""

    def __init__(self, first: Array) -> None:
        self.first = first
        self.squares = np.zeros(first.shape)
        self.largest = np.zeros(first.shape)
        self.count = 0

    def add(self, other: Array, size: float) -> None:
        """Add a run whose perturbations had a size, in units."""
        if other.shape != self.first.shape:
            self.largest[...] = np.inf
            return
        if self.first.dtype.kind != "f":
            self.largest = np.maximum(self.largest, other != self.first)
            return
        with np.errstate(all="ignore"):
            change = np.abs(other.astype(np.float64) - self.first) / size
        same = (other == self.first) | (np.isnan(other) & np.isnan(self.first))
        change = np.where(same, 0, np.where(np.isfinite(change), change, np.inf))
        self.squares += np.where(np.isfinite(change), change, 0) ** 2
        self.largest = np.maximum(self.largest, change)
        self.count += 1

    def result(self) -> Array:
        """Return the mean square and the largest change of each element."""
        return np.stack([self.squares / max(self.count, 1), self.largest])


if __name__ == "__main__":
    # Modules of this folder may have the names of others: it must not be on the path.
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    main(Path(sys.argv[1]))
