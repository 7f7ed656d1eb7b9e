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
import re
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RANDOM = re.compile(
    r"Stateful(Random|StandardNormal|TruncatedNormal|Uniform).*|Random.*|Multinomial"
    r"|(Parameterized)?TruncatedNormal|NonDeterministicInts|.*CandidateSampler|.*[dD]ropout.*"
)
STATEFUL = re.compile(
    r"Assign.*|Resource(Apply|SparseApply|Scatter|CountUpTo|StridedSliceAssign).*|CountUpTo"
    r"|(Sparse)?Apply[A-Z].*|Scatter(Nd)?(Add|Sub|Mul|Div|Min|Max|Update)|StridedSliceAssign"
    r"|LookupTableInsert.*|LookupTableRemove.*|MutableDenseHashTable.*|.*Queue.*(Enqueue|Dequeue).*"
    r"|Stack(Push|Pop).*|.*Iterator.*"
)
SAME = {"float64": 1e-9, "float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}  # parts of the scale
TOGETHER = 64  # tensors of one run
ALONE = 400  # runs for tensors that cannot be had together with others


def beside(name: str) -> Any:
    """Return a module of a path from this file's folder, which is no place to import from."""
    path = Path(__file__).parent / f"{name}.py"
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


files = beside("run_savedmodel")
devices = beside("run_tensorflow_device")
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
    yield lambda: Sessions(tf, question, device, *read[question["form"]](tf, question))
    if question["form"] == "SavedModel":
        yield lambda: Eager(tf, question, device, *files.choose_meta_graph(question))


# -- a source that is loaded ---------------------------------------------------------------------


class Sessions:
    """A graph, and Sessions of it with its variables.

    Attributes:
        random: Operations that draw random numbers, of those that the outputs need.
        is_stateful: Whether running it changes variables: each run then has a Session of its own.
        notes: What was done otherwise than usual.
        ran: What shows where things are: a Session is what TensorFlow Serving has, too.
    """

    ran = "a Session"

    def __init__(
        self,
        tf: Any,
        question: dict[str, Any],
        device: Any,
        graph_def: Any,
        signature: Any,
        import_graph: Callable[[], Any],
        restore: Callable[[Any, Any], None],
    ) -> None:
        self.tf = tf
        self.notes: list[str] = []
        self.placed = device
        self.restore = restore
        feeds = tensors(question["feeds"], signature and signature.inputs)
        fetches = tensors(question["fetches"], signature and signature.outputs)
        files.refuse(graph_def, fetches)
        needed = set(files.find_reached(graph_def, fetches))
        self.random = {op for op in needed if RANDOM.fullmatch(op)}
        self.states: list[str] = question.get("states", [])
        self.is_stateful = bool(self.states) or any(STATEFUL.fullmatch(op) for op in needed)
        self.graph = tf.Graph()
        with self.graph.as_default(), device.scope():
            self.saver = import_graph()
            self.kept = [files.find_variable(self.graph, key) for key in self.states]
            self.values = [files.read_variable(tf, variable) for variable in self.kept]
        self.feeds = [self.graph.get_tensor_by_name(name) for name in feeds]
        self.fetches = [self.graph.get_tensor_by_name(name) for name in fetches]
        self.session = self.fresh()

    def fresh(self) -> Any:
        """Return a Session in which nothing has been run."""
        config = self.tf.compat.v1.ConfigProto(
            allow_soft_placement=True, device_count=self.placed.counts()
        )
        session = self.tf.compat.v1.Session(graph=self.graph, config=config)
        with self.graph.as_default():
            self.restore(session, self.saver)
        return session

    def ready(self, arrays: list[Any]) -> tuple[Any, dict[Any, Any]]:
        """Return a Session in which no run has changed a variable, and what it is fed.

        Arrays beyond the inputs are assigned to the variables that are states.
        """
        if self.is_stateful:
            self.session.close()
            self.session = self.fresh()
        own, states = arrays[: len(self.feeds)], arrays[len(self.feeds) :]
        with self.graph.as_default():
            named = zip((variable.op.name for variable in self.kept), states, strict=False)
            for operation, fed in files.assigning(self.tf, dict(named)):
                self.session.run(operation, fed)
        return self.session, dict(zip(self.feeds, own, strict=True))

    def list_inputs(self) -> list[list[Any]]:
        """Return name, dtype and shape of the tensors that are fed, and of the states."""
        tensors = [*self.feeds, *self.values]
        return [[t.name, plain_name(t.dtype.base_dtype), sizes(t.shape)] for t in tensors]

    def dtypes(self) -> list[Any]:
        """Return TensorFlow's dtypes of what is fed, and of the states."""
        return [t.dtype.base_dtype for t in (*self.feeds, *self.values)]

    def run(self, arrays: list[Any]) -> list[tuple[Any, Any]]:
        """Return the outputs, the states after the run, and their dtypes."""
        session, fed = self.ready(arrays)
        values = [*session.run(self.fetches, fed), *session.run(self.values)]
        tensors = (*self.fetches, *self.values)
        return [(v, t.dtype.base_dtype) for v, t in zip(values, tensors, strict=True)]

    def places(self, arrays: list[Any]) -> list[tuple[str, str, str]]:
        """Run once more, and return what each variable and node is, its name and its device."""
        v1 = self.tf.compat.v1
        metadata = v1.RunMetadata()
        options = v1.RunOptions(output_partition_graphs=True)
        session, fed = self.ready(arrays)
        session.run(self.fetches, fed, options=options, run_metadata=metadata)
        return list(devices.of_partitions(metadata))

    def device(self) -> str:
        """Return where it runs: where a Session of it may put what."""
        return self.placed.name or device_name([d.name for d in self.session.list_devices()])

    def some(self, nodes: list[str], arrays: list[Any]) -> Iterator[tuple[str, int, Any, Any]]:
        """Yield name, number, value and dtype of outputs of nodes that can be fetched."""
        found = []
        for name in nodes:
            try:
                outputs = self.graph.get_operation_by_name(name).outputs
            except (KeyError, ValueError):
                continue
            plain = [t for t in outputs if t.dtype.name not in ("resource", "variant")]
            found += [t for t in plain if self.graph.is_fetchable(t)]
        budget = ALONE
        todo = [found[i : i + TOGETHER] for i in range(0, len(found), TOGETHER)]
        while todo and budget:
            part = todo.pop(0)
            try:
                session, fed = self.ready(arrays)
                values = session.run(part, fed)
            except Exception:  # one of them is in a loop, or in a branch that is not taken
                budget -= 1
                half = len(part) // 2
                todo[:0] = [part[:half], part[half:]] if half else []
                continue
            for tensor, value in zip(part, values, strict=True):
                yield tensor.op.name, tensor.value_index, value, tensor.dtype.base_dtype


class Eager:
    """A SavedModel as TensorFlow 2 loads it: only its signature can be had.

    Attributes:
        random: As of `Sessions`.
        notes: Likewise.
        ran: Likewise.
    """

    ran = "a signature's function"

    def __init__(
        self,
        tf: Any,
        question: dict[str, Any],
        device: Any,
        meta_graph: Any,
        tags: list[str],
        key: str,
    ) -> None:
        signature = meta_graph.signature_def[key]
        fetches = [signature.outputs[name].name for name in question["fetches"]]
        files.refuse(meta_graph.graph_def, fetches)
        needed = set(files.find_reached(meta_graph.graph_def, fetches))
        self.random = {op for op in needed if RANDOM.fullmatch(op)}
        self.is_stateful = any(STATEFUL.fullmatch(op) for op in needed)
        self.tf, self.key, self.names = tf, key, question["feeds"]
        self.path, self.tags, self.outputs = question["source"], tags, question["fetches"]
        self.states: list[str] = question.get("states", [])
        self.placed = device
        self.notes = ["loaded as TensorFlow 2 does it, for as TensorFlow 1 does it does not run"]
        self.load()

    def load(self) -> None:
        """Load it, as nothing has been run in it."""
        policy = "save_variable_devices" if self.placed.name else None
        options = self.tf.saved_model.LoadOptions(experimental_variable_policy=policy)
        with self.placed.scope():
            self.loaded = self.tf.saved_model.load(self.path, tags=self.tags, options=options)
        self.function = self.loaded.signatures[self.key]
        self.specs = self.function.structured_input_signature[1]
        variables = {v.name.partition(":")[0]: v for v in self.function.graph.variables}
        self.kept = [variables[key] for key in self.states]

    def list_inputs(self) -> list[list[Any]]:
        """Return name, dtype and shape of the tensors that are fed, and of the states."""
        specs = [*((n, self.specs[n]) for n in self.names), *((v.name, v) for v in self.kept)]
        return [[name, plain_name(spec.dtype), sizes(spec.shape)] for name, spec in specs]

    def dtypes(self) -> list[Any]:
        """Return TensorFlow's dtypes of what is fed, and of the states."""
        return [*(self.specs[n].dtype for n in self.names), *(v.dtype for v in self.kept)]

    def run(self, arrays: list[Any]) -> list[tuple[Any, Any]]:
        """Return the outputs, the states after the run, and their dtypes."""
        if self.is_stateful:
            self.load()
        own = len(self.names)
        for variable, array in zip(self.kept, arrays[own:], strict=False):
            variable.assign(array)
        return [*self.call(arrays[:own]), *((v.numpy(), v.dtype) for v in self.kept)]

    def call(self, arrays: list[Any]) -> list[tuple[Any, Any]]:
        """Return the outputs and their dtypes, whatever has been run before."""
        with self.placed.scope():
            given = {
                name: self.tf.constant(array, self.specs[name].dtype)
                for name, array in zip(self.names, arrays, strict=True)
            }
            found = self.function(**given)
        return [(found[name].numpy(), found[name].dtype) for name in self.outputs]

    def places(self, arrays: list[Any]) -> list[tuple[str, str, str]]:
        """Run once more, and return what each variable and node is, its name and its device."""
        self.load()  # the graph of a function that has run is not reported again
        with devices.collected() as metadata:
            self.call(arrays[: len(self.names)])
        rows = [
            ("variable", v.name, v.handle.device.rpartition("device:")[2])
            for v in self.function.graph.variables
        ]
        return rows + list(devices.of_partitions(metadata))

    def device(self) -> str:
        """Return where it runs."""
        names = [d.name for d in self.tf.config.list_logical_devices()]
        return self.placed.name or device_name(names)

    def some(self, nodes: list[str], arrays: list[Any]) -> Iterator[tuple[str, int, Any, Any]]:
        """Yield nothing: what is inside of a function stays there."""
        del nodes, arrays
        yield from ()


def tensors(names: list[str], infos: Any) -> list[str]:
    """Return the tensors that a signature's keys stand for; without one, these are tensors."""
    if infos is None:
        return names
    found = []
    for name in names:
        if infos[name].WhichOneof("encoding") != "name":
            raise ValueError(f"{name!r} is sparse or composite")
        found.append(infos[name].name)
    return found


def plain_name(dtype: Any) -> str:
    """Return numpy's name of a dtype; that of the integers under a quantised one."""
    return str(dtype.name).removeprefix("q")


def sizes(shape: Any) -> list[int | None] | None:
    """Return a TensorShape as a list; None where not even the rank is known."""
    return None if shape.rank is None else [None if n is None else int(n) for n in shape]


def device_name(names: list[str]) -> str:
    """Return the device of a runtime that computes: ``CPU:0``, or the first that is no CPU."""
    found = [name.rpartition("device:")[2] for name in names]
    others = [n for n in found if not n.startswith(("CPU", "XLA_CPU"))]
    return (others or found or [""])[0]


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
        return kept, plain_name(dtype)

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
