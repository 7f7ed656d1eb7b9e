"""What `run_tensorflow` runs: a graph in a Session, or a function of TensorFlow 2, called alike.

Plain, and nothing of the project but the files beside it. A source says what of its inputs it
declares, runs on arrays, says where its nodes are, and passes on what they return.
"""

import importlib
import importlib.util
import re
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
