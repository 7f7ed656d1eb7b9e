"""The child that runs a TensorFlow graph in TensorFlow: ``python run_tensorflow.py FOLDER``.

Plain, and nothing of the project but the files beside it, so that any Python (3.10 and later) that
has TensorFlow can run it. ``question.json``:

    source      the folder of a SavedModel, or the file of a GraphDef or MetaGraphDef
    form        ``SavedModel``, ``GraphDef`` or ``MetaGraphDef``
    is_text     whether a GraphDef or MetaGraphDef is text
    signature   name of the signature, as the bundle has it; empty for a graph without
    checkpoint  prefix of the checkpoint with a GraphDef's or MetaGraphDef's variables, or null
    inputs      names of the converted graph's inputs, in order
    feeds       for each of them: the signature's key, or the tensor in a graph without signature
    fetches     the same for the outputs
    cases       for each case the numbers of its alternatives: inputs are ``in-NUMBER-INPUT.npy``
    states      variables that each run begins with other values of, by their shared names or nodes:
                ``in-NUMBER-INPUT.npy`` after those of the inputs; their values after the run are
                further outputs
    own         number of the inputs that come before these
    first       numbers of the inputs that are run from what the variables hold when loaded
    prefix      what these files begin with, where it is not ``in``
    base64      numbers of the inputs that are bytes, in base64
    layers      nodes whose outputs are wanted too; those of functions as ``call/node``
    device      to run on, as ``GPU:0`` or, of logical ones, ``CPU:1``; need not be there
    as_placed   whether the graph's own devices hold there; else all is placed on that device
    allow_tf32  whether products may be rounded to TF32 there

``answer.json``: a status, ``done``, ``absent`` (not installed, or broken), ``cannot load`` or
``refused`` (running it would touch files); versions and device; for each case the alternative that
ran, its outputs' dtypes (they are in ``out-NUMBER-OUTPUT.npy``), and how others were refused; which
outputs are not the same when run again, and the random operations; name, number and dtype of the
wanted nodes' outputs that could be fetched (in ``layer-K.npy``); with a device, where variables and
nodes were (see `converter.verification.placement`).

A Session loads graphs of every age and fetches any tensor; what it does not load is tried as
TensorFlow 2 loads it. Devices are taken out of the graph, which says nothing about its numbers,
unless it is to run on a device as it is placed.
"""

import importlib
import importlib.util
import json
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SAME = {"float64": 1e-9, "float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}  # parts of the scale


def beside(name: str) -> Any:
    """Return a module of a path from this file's folder, which is no place to import from."""
    path = Path(__file__).parent / f"{name}.py"
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sources = beside("load_tensorflow")
files, devices = sources.files, sources.devices
describe_error = beside("../../child/describe_error").describe_error


def main(folder: Path) -> None:
    """Answer the question in the folder."""
    question = json.loads((folder / "question.json").read_text())
    answer = {"python": sys.version.split()[0]} | run(folder, question)
    (folder / "answer.json").write_text(json.dumps(answer))


def run(folder: Path, question: dict[str, Any]) -> dict[str, Any]:
    """Load the source and run it on every case."""
    try:
        tf: Any = importlib.import_module("tensorflow")
        np: Any = importlib.import_module("numpy")
    except Exception as e:  # a broken installation may raise anything
        return {"status": "absent", "error": describe_error(e)}
    about = {"versions": {"tensorflow": tf.__version__, "numpy": np.__version__}}
    device = devices.Device(tf, question)
    if why := device.lacks():
        return about | {"status": "no device", "error": why}
    answers: list[dict[str, Any]] = []
    for load in loaders(tf, question, device):
        try:
            source = load()
        except files.RefusedError as e:
            return about | {"status": "refused", "error": str(e)}
        except Exception as e:
            answers.append({"status": "cannot load", "error": describe_error(e)})
            continue
        device.make_deterministic(is_random=bool(source.random))
        runner = Runner(tf, np, folder, question, source)
        answers.append(run_cases(runner, question["cases"], device))
        if any(case["chosen"] is not None for case in answers[-1]["cases"]):
            return about | answers[-1]
    return about | answers[0]


def run_cases(runner: "Runner", cases: list[list[int]], device: Any) -> dict[str, Any]:
    """Run a source that is loaded on every case."""
    found = [runner.first_that_runs(alternatives) for alternatives in cases]
    places = {}
    ran = [case["chosen"] for case in found if case["chosen"] is not None]
    if device.name and ran:
        rows = runner.source.places(runner.inputs(ran[0]))
        places = {"placement": device.answer(rows, runner.source.ran)}
    return places | {
        "status": "done",
        "cases": found,
        "device": runner.device,
        "inputs": runner.source.list_inputs(),
        "layers": runner.layers([c["chosen"] for c in found if c["chosen"] is not None]),
        "unstable": sorted(runner.unstable),
        "random": sorted(runner.source.random),
        "notes": runner.source.notes,
    }


def loaders(tf: Any, question: dict[str, Any], device: Any) -> Iterator[Callable[[], Any]]:
    """Yield the ways to load the source, the next for where one does not load or run it."""
    read = {"GraphDef": files.graph_file, "MetaGraphDef": files.meta_graph_file}
    read["SavedModel"] = files.saved_model
    yield lambda: sources.Sessions(tf, question, device, *read[question["form"]](tf, question))
    if question["form"] == "SavedModel":
        yield lambda: sources.Eager(tf, question, device, *files.choose_meta_graph(question))


# -- running -------------------------------------------------------------------------------------


class Runner:
    """The cases of a question, one after the other.

    Attributes:
        unstable: Numbers of outputs that were not the same when they were computed again.
    """

    def __init__(
        self, tf: Any, np: Any, folder: Path, question: dict[str, Any], source: Any
    ) -> None:
        self.tf, self.np, self.folder, self.source = tf, np, folder, source
        self.wanted: list[str] = question["layers"]
        self.prefix = question.get("prefix", "in")
        self.in_base64 = set(question.get("base64", ()))
        self.own, self.first = question.get("own", 0), question.get("first", [])
        self.unstable: set[int] = set()
        self.device = source.device()
        self.has_run = False

    def first_that_runs(self, alternatives: list[int]) -> dict[str, Any]:
        """Run the source on the first of several inputs of which it makes something."""
        refused = {}
        chosen: tuple[int, list[tuple[Any, str]]] | None = None
        best = False, False  # whether it has elements, and numbers among them
        for number in alternatives:
            try:
                found = [self.plain(*output) for output in self.source.run(self.inputs(number))]
            except Exception as e:
                refused[number] = describe_error(e)
                continue
            is_finite = all(self.is_finite(array) for array, _ in found)
            worth = not found or any(array.size for array, _ in found), is_finite
            if chosen is None or worth > best:
                chosen, best = (number, found), worth
            if all(worth):
                break
        if chosen is None:
            return {"chosen": None, "dtypes": [], "refused": refused}
        number, found = chosen
        self.compare_runs(found, self.inputs(number))
        for i, (array, _) in enumerate(found):
            self.np.save(self.folder / f"out-{number}-{i}.npy", array)
        return {"chosen": number, "dtypes": [dtype for _, dtype in found], "refused": refused}

    def is_finite(self, array: Any) -> bool:
        """Return whether an output of floats has a finite element; others always pass."""
        is_real = array.dtype.kind == "f" and array.size
        return not is_real or bool(self.np.isfinite(array).any())

    def inputs(self, number: int) -> list[Any]:
        """Return a case's arrays as TensorFlow takes them; no states for a first run."""
        found = []
        dtypes = self.source.dtypes()
        own = len(dtypes) - len(self.source.states)
        for i, dtype in enumerate(dtypes[:own] if number in self.first else dtypes):
            place = (
                f"{self.prefix}-{number}-{i}" if i < own else f"in-{number}-{self.own + i - own}"
            )
            array = self.np.load(self.folder / f"{place}.npy")
            if dtype.name == "string":
                is_bytes = i in self.in_base64
                texts = [b64decode(t) if is_bytes else encode(t) for t in array.flat]
                array = self.np.array(texts, object).reshape(array.shape)
            else:
                array = array.astype(dtype.as_numpy_dtype)
            found.append(array)
        return found

    def compare_runs(self, found: list[tuple[Any, str]], arrays: list[Any]) -> None:
        """Run once more where outputs may be random, and note those that are."""
        if self.source.random and self.source.is_stateful:
            # A Session of its own begins with the same seed: randomness does not show.
            self.unstable.update(range(len(found)))
        if self.has_run and not self.source.random:
            return
        self.has_run = True
        again = [self.plain(*output) for output in self.source.run(arrays)]
        for i, ((a, dtype), (b, _)) in enumerate(zip(found, again, strict=True)):
            if not self.is_same(a, b, dtype):
                self.unstable.add(i)

    def is_same(self, a: Any, b: Any, dtype: str) -> bool:
        """Return whether two runs are equal but for rounding errors."""
        np = self.np
        if a.shape != b.shape:
            return False
        if dtype not in SAME:
            return bool(np.array_equal(a, b))
        a, b = a.astype("float64"), b.astype("float64")
        finite = np.isfinite(a)
        scale = float(np.abs(a[finite]).max()) if finite.any() else 0.0
        return bool(np.allclose(a, b, rtol=0, atol=SAME[dtype] * scale, equal_nan=True))

    def plain(self, value: Any, dtype: Any) -> tuple[Any, str]:
        """Return an output as an .npy file can keep it, and the dtype it really has."""
        np = self.np
        array = np.asarray(value)
        if dtype.name == "string":
            texts = [t if isinstance(t, str) else t.decode("utf-8", "replace") for t in array.flat]
            return np.array(texts, "U").reshape(array.shape), "string"
        if array.dtype.names:  # TensorFlow's quantised types
            array = array[array.dtype.names[0]]
        kept = array if array.dtype.kind in "fiubc" else array.astype("float32")
        return kept, sources.plain_name(dtype)

    def layers(self, chosen: list[int]) -> list[tuple[str, int, str]]:
        """Write the outputs of nodes that are wanted too, and return what they are."""
        found: list[tuple[str, int, str]] = []
        for number in chosen if self.wanted else ():
            for name, i, value, dtype in self.source.some(self.wanted, self.inputs(number)):
                array, kind = self.plain(value, dtype)
                self.np.save(self.folder / f"layer-{len(found)}.npy", array)
                found.append((name, i, kind))
        return found


def encode(text: Any) -> bytes:
    """Return a string as TensorFlow encodes it."""
    return str(text).encode("utf-8", "surrogateescape")


if __name__ == "__main__":
    # This file's folder is no place to import from: its modules may be called like others'.
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    main(Path(sys.argv[1]))
