"""The child that runs a TensorFlow graph in TensorFlow: ``python runner_tensorflow.py FOLDER``.

Plain, and nothing of the project, so that any Python (3.10 and later) that has TensorFlow can run
it. ``question.json``:

    source      the folder of a SavedModel, or the file of a GraphDef or MetaGraphDef
    form        ``SavedModel``, ``GraphDef`` or ``MetaGraphDef``
    is_text     whether a GraphDef or MetaGraphDef is text
    signature   name of the signature, as the bundle has it; empty for a graph without
    checkpoint  prefix of the checkpoint with a GraphDef's or MetaGraphDef's variables, or null
    inputs      names of the converted graph's inputs, in order
    feeds       for each of them: the signature's key, or the tensor in a graph without signature
    fetches     the same for the outputs
    cases       for each case the numbers of its alternatives: inputs are ``in-NUMBER-INPUT.npy``
    layers      nodes whose outputs are wanted too; those of functions as ``call/node``

``answer.json``: a status, ``done``, ``absent`` (not installed, or broken), ``cannot load`` or
``refused`` (running it would touch files); versions and device; for each case the alternative that
ran, its outputs' dtypes (they are in ``out-NUMBER-OUTPUT.npy``), and how others were refused; which
outputs are not the same when run again, and the random operations; name, number and dtype of the
wanted nodes' outputs that could be fetched (in ``layer-K.npy``).

A Session loads graphs of every age and fetches any tensor; what it does not load is tried as
TensorFlow 2 loads it. Devices are taken out of the graph, which says nothing about its numbers.
"""

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

# Operations that read or write files whose paths may be constants of the graph. The loader's own
# restoring is run apart. Spec: tensorflow/core/ops/io_ops.cc
WRITES = frozenset(("Save", "SaveV2", "SaveSlices", "MergeV2Checkpoints", "WriteFile"))
READS = frozenset(("Restore", "RestoreV2", "RestoreSlice", "ReadFile", "MatchingFiles"))
CODE = frozenset(("PyFunc", "PyFuncStateless", "EagerPyFunc"))
RANDOM = re.compile(
    r"(Stateful)?(Random|ParameterizedTruncatedNormal|TruncatedNormal|Multinomial|StandardNormal"
    r"|Uniform(Full)?Int|NonDeterministicInts).*|.*CandidateSampler|.*[dD]ropout.*"
)
VARIABLES = frozenset(("Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp"))
OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
STATEFUL = re.compile(
    r"Assign.*|Resource(Apply|SparseApply|Scatter|CountUpTo|StridedSliceAssign).*|CountUpTo"
    r"|(Sparse)?Apply[A-Z].*|Scatter(Nd)?(Add|Sub|Mul|Div|Min|Max|Update)|StridedSliceAssign"
    r"|LookupTableInsert.*|LookupTableRemove.*|MutableDenseHashTable.*|.*Queue.*(Enqueue|Dequeue).*"
    r"|Stack(Push|Pop).*|.*Iterator.*"
)
SAME = {"float64": 1e-9, "float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}  # parts of the scale
TOGETHER = 64  # tensors of one run
ALONE = 400  # runs for tensors that cannot be had together with others


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
        return {"status": "absent", "error": one_line(e)}
    about = {"versions": {"tensorflow": tf.__version__, "numpy": np.__version__}}
    try:
        source = load(tf, question)
    except RefusedError as e:
        return about | {"status": "refused", "error": str(e)}
    except Exception as e:
        return about | {"status": "cannot load", "error": one_line(e)}
    runner = Runner(tf, np, folder, question, source)
    cases = [runner.first_that_runs(alternatives) for alternatives in question["cases"]]
    return about | {
        "status": "done",
        "cases": cases,
        "device": runner.device,
        "inputs": source.declared(),
        "layers": runner.layers([c["chosen"] for c in cases if c["chosen"] is not None]),
        "unstable": sorted(runner.unstable),
        "random": sorted(source.random),
        "notes": source.notes,
    }


class RefusedError(Exception):
    """Running the graph would touch files, or run code that is none of TensorFlow's."""


def load(tf: Any, question: dict[str, Any]) -> Any:
    """Return the source, as a graph for Sessions or as TensorFlow 2 loads it.

    Raises:
        RefusedError: It would touch files.
        Exception: Whatever TensorFlow raises; where both ways fail, of the first.
    """
    if question["form"] == "GraphDef":
        return Sessions(tf, question, *graph_file(tf, question))
    if question["form"] == "MetaGraphDef":
        return Sessions(tf, question, *meta_graph_file(tf, question))
    meta_graph, tags, key = chosen_meta_graph(question)
    try:
        return Sessions(tf, question, *saved_model(tf, question, meta_graph, tags, key))
    except RefusedError:
        raise
    except Exception as first:
        try:
            return Eager(tf, question, meta_graph, tags, key, one_line(first))
        except RefusedError:
            raise
        except Exception:
            raise first from None


# -- what is in the file -------------------------------------------------------------------------


def chosen_meta_graph(question: dict[str, Any]) -> tuple[Any, list[str], str]:
    """Return the MetaGraph of a signature, its tags, and the signature's name in it.

    Of a SavedModel with several, the bundle calls signatures of all but the first ``name@tags``.
    """
    loader: Any = importlib.import_module("tensorflow.python.saved_model.loader_impl")
    found = loader.parse_saved_model(question["source"]).meta_graphs
    wanted = question["signature"]
    for i, meta_graph in enumerate(found):
        tags = list(meta_graph.meta_info_def.tags)
        ending = f"@{', '.join(tags) or 'no tags'}" if i else ""
        key = wanted.removesuffix(ending)
        if not wanted or (wanted.endswith(ending) and key in meta_graph.signature_def):
            return meta_graph, tags, key
    raise ValueError(f"there is no signature {wanted!r}")


def graph_file(tf: Any, question: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return the nodes of a GraphDef, no signature, and how to import and to fill it."""
    graph_def = tf.compat.v1.GraphDef()
    parse(graph_def, question)
    clear_devices(graph_def)
    tables = [n.name for n in graph_def.node if n.op.startswith("InitializeTable")]
    refuse(graph_def, tables, READS | WRITES | CODE)

    variables = [n for n in graph_def.node if n.op in VARIABLES]
    values = found_in(tf, question["checkpoint"], variables) if question["checkpoint"] else {}

    def import_graph() -> dict[Any, Any]:
        tf.import_graph_def(graph_def, name="")
        return dict(assigning(tf, values))

    def fill(session: Any, assignments: dict[Any, Any]) -> None:
        for operation, fed in assignments.items():
            session.run(operation, fed)
        session.run([session.graph.get_operation_by_name(name) for name in tables])

    return graph_def, None, import_graph, fill


def meta_graph_file(tf: Any, question: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return the same of a MetaGraphDef, its signature, and its variables from a checkpoint."""
    meta_graph = tf.compat.v1.MetaGraphDef()
    parse(meta_graph, question)
    graph_def, key, prefix = meta_graph.graph_def, question["signature"], question["checkpoint"]
    clear_devices(graph_def)
    tables = meta_graph.collection_def["table_initializer"].node_list.value
    refuse(graph_def, tables, READS | WRITES | CODE)
    refuse(graph_def, [meta_graph.saver_def.restore_op_name], WRITES | CODE)

    def import_graph() -> Any:
        return tf.compat.v1.train.import_meta_graph(meta_graph)

    def restore(session: Any, saver: Any) -> None:
        if prefix is not None and saver is not None:
            try:
                saver.restore(session, prefix)
            except Exception:  # made by another Saver, or by none
                variables = [n for n in graph_def.node if n.op in VARIABLES]
                for operation, fed in assigning(tf, found_in(tf, prefix, variables)):
                    session.run(operation, fed)
        session.run(tf.compat.v1.tables_initializer())

    return graph_def, meta_graph.signature_def[key] if key else None, import_graph, restore


def found_in(tf: Any, prefix: str, variables: list[Any]) -> dict[str, Any]:
    """Return node → value of the variables that a checkpoint knows by their names."""
    reader = tf.train.load_checkpoint(prefix)
    keys = {key: key for key in reader.get_variable_to_shape_map()}
    if OBJECTS in keys:
        module = "tensorflow.core.protobuf.trackable_object_graph_pb2"
        graph = importlib.import_module(module).TrackableObjectGraph()
        graph.ParseFromString(reader.get_tensor(OBJECTS))
        for node in graph.nodes:
            keys |= {a.full_name: a.checkpoint_key for a in node.attributes if a.full_name}
    found = {}
    for node in variables:
        names = [node.attr["shared_name"].s.decode(), node.name]
        key = next((keys[name] for name in names if name in keys), None)
        if key is not None:
            found[node.name] = reader.get_tensor(key)
    return found


def assigning(tf: Any, values: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield operations of the current graph that give variables values, and what they are fed."""
    for name, value in values.items():
        variable = tf.compat.v1.get_default_graph().get_operation_by_name(name).outputs[0]
        dtype = value.dtype
        if variable.dtype == tf.resource:
            dtype = tf.dtypes.as_dtype(variable.op.get_attr("dtype"))
        fed = tf.compat.v1.placeholder(dtype, value.shape)
        if variable.dtype == tf.resource:
            yield tf.raw_ops.AssignVariableOp(resource=variable, value=fed), {fed: value}
        else:
            yield tf.raw_ops.Assign(ref=variable, value=fed).op, {fed: value}


def parse(message: Any, question: dict[str, Any]) -> None:
    """Fill a message from the source's file, binary or text."""
    data = Path(question["source"]).read_bytes()
    if question["is_text"]:
        importlib.import_module("google.protobuf.text_format").Parse(data.decode(), message)
    else:
        message.ParseFromString(data)


def saved_model(
    tf: Any, question: dict[str, Any], chosen: Any, tags: list[str], key: str
) -> tuple[Any, Any, Any, Any]:
    """Return the same of a SavedModel's MetaGraph."""
    library: Any = importlib.import_module("tensorflow.python.saved_model.loader_impl")
    loader = library.SavedModelLoader(question["source"])
    own = loader.get_meta_graph_def_from_tags(tags)  # this is what it loads
    own.CopyFrom(chosen)
    clear_devices(own.graph_def)
    graph_def = own.graph_def
    starts = [s.outputs[k].name for k, s in own.signature_def.items() if k.startswith("__saved")]
    for name in ("saved_model_main_op", "legacy_init_op"):
        if name in own.collection_def:
            starts += list(own.collection_def[name].node_list.value)
    refuse(graph_def, starts, READS | WRITES | CODE)
    if own.HasField("saver_def"):
        refuse(graph_def, [own.saver_def.restore_op_name], WRITES | CODE)

    def import_graph() -> Any:
        return loader.load_graph(tf.compat.v1.get_default_graph(), tags)[0]

    def restore(session: Any, saver: Any) -> None:
        loader.restore_variables(session, saver)
        loader.run_init_ops(session, tags)

    return graph_def, own.signature_def[key] if key else None, import_graph, restore


def clear_devices(graph_def: Any) -> None:
    """Take the devices out of a graph and its functions."""
    for nodes in (graph_def.node, *(f.node_def for f in graph_def.library.function)):
        for node in nodes:
            node.ClearField("device")


def reached(graph_def: Any, names: Iterable[str]) -> Iterator[str]:
    """Yield the operations that tensors and nodes need, those of functions that are called too."""
    nodes = {node.name: node for node in graph_def.node}
    functions = {f.signature.name: f for f in graph_def.library.function}
    todo, seen, called = [base(name) for name in names], set(), set()
    while todo:
        name = todo.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        todo += [base(given) for given in nodes[name].input]
        bodies = [nodes[name]]
        while bodies:
            node = bodies.pop()
            yield node.op
            for function in [node.op, *functions_of(node)]:
                if function in functions and function not in called:
                    called.add(function)
                    bodies += functions[function].node_def


def functions_of(node: Any) -> Iterator[str]:
    """Yield the functions that a node's attributes name."""
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        elif value.HasField("list"):
            yield from (function.name for function in value.list.func)


def base(name: str) -> str:
    """Return the node of a tensor or of a control edge."""
    return name.removeprefix("^").partition(":")[0]


def refuse(graph_def: Any, names: Iterable[str], forbidden: frozenset[str]) -> None:
    """Refuse to run what needs such operations.

    Raises:
        RefusedError: It does.
    """
    found = sorted({op for op in reached(graph_def, names) if op in forbidden})
    if found:
        raise RefusedError(", ".join(found))


# -- a source that is loaded ---------------------------------------------------------------------


class Sessions:
    """A graph, and Sessions of it with its variables.

    Attributes:
        random: Operations that draw random numbers, of those that the outputs need.
        is_stateful: Whether running it changes variables: each run then has a Session of its own.
        notes: What was done otherwise than usual.
    """

    def __init__(
        self,
        tf: Any,
        question: dict[str, Any],
        graph_def: Any,
        signature: Any,
        import_graph: Callable[[], Any],
        restore: Callable[[Any, Any], None],
    ) -> None:
        self.tf = tf
        self.notes: list[str] = []
        self.restore = restore
        feeds = tensors(question["feeds"], signature and signature.inputs)
        fetches = tensors(question["fetches"], signature and signature.outputs)
        refuse(graph_def, fetches, READS | WRITES | CODE)
        needed = set(reached(graph_def, fetches))
        self.random = {op for op in needed if RANDOM.fullmatch(op)}
        self.is_stateful = any(STATEFUL.fullmatch(op) for op in needed)
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.saver = import_graph()
        self.feeds = [self.graph.get_tensor_by_name(name) for name in feeds]
        self.fetches = [self.graph.get_tensor_by_name(name) for name in fetches]
        self.session = self.fresh()

    def fresh(self) -> Any:
        """Return a Session in which nothing has been run."""
        config = self.tf.compat.v1.ConfigProto(allow_soft_placement=True)
        session = self.tf.compat.v1.Session(graph=self.graph, config=config)
        with self.graph.as_default():
            self.restore(session, self.saver)
        return session

    def declared(self) -> list[list[Any]]:
        """Return name, dtype and shape of the tensors that are fed."""
        return [[t.name, plain_name(t.dtype.base_dtype), sizes(t.shape)] for t in self.feeds]

    def dtypes(self) -> list[Any]:
        """Return TensorFlow's dtypes of what is fed."""
        return [t.dtype.base_dtype for t in self.feeds]

    def run(self, arrays: list[Any]) -> list[tuple[Any, Any]]:
        """Return the outputs and their dtypes."""
        if self.is_stateful:
            self.session.close()
            self.session = self.fresh()
        values = self.session.run(self.fetches, dict(zip(self.feeds, arrays, strict=True)))
        return [(v, t.dtype.base_dtype) for v, t in zip(values, self.fetches, strict=True)]

    def device(self) -> str:
        """Return where it runs: where a Session of it may put what."""
        return device_name([d.name for d in self.session.list_devices()])

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
        fed, budget = dict(zip(self.feeds, arrays, strict=True)), ALONE
        todo = [found[i : i + TOGETHER] for i in range(0, len(found), TOGETHER)]
        while todo and budget:
            part = todo.pop(0)
            try:
                values = self.session.run(part, fed)
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
    """

    def __init__(
        self,
        tf: Any,
        question: dict[str, Any],
        meta_graph: Any,
        tags: list[str],
        key: str,
        reason: str,
    ) -> None:
        signature = meta_graph.signature_def[key]
        fetches = [signature.outputs[name].name for name in question["fetches"]]
        refuse(meta_graph.graph_def, fetches, READS | WRITES | CODE)
        needed = set(reached(meta_graph.graph_def, fetches))
        self.random = {op for op in needed if RANDOM.fullmatch(op)}
        self.is_stateful = any(STATEFUL.fullmatch(op) for op in needed)
        self.tf, self.key, self.names = tf, key, question["feeds"]
        self.path, self.tags, self.outputs = question["source"], tags, question["fetches"]
        self.notes = [f"loaded as TensorFlow 2 does it, for a Session does not ({reason})"]
        self.load()

    def load(self) -> None:
        """Load it, as nothing has been run in it."""
        self.loaded = self.tf.saved_model.load(self.path, tags=self.tags)
        self.function = self.loaded.signatures[self.key]
        self.specs = self.function.structured_input_signature[1]

    def declared(self) -> list[list[Any]]:
        """Return name, dtype and shape of the tensors that are fed."""
        return [
            [n, plain_name(self.specs[n].dtype), sizes(self.specs[n].shape)] for n in self.names
        ]

    def dtypes(self) -> list[Any]:
        """Return TensorFlow's dtypes of what is fed."""
        return [self.specs[n].dtype for n in self.names]

    def run(self, arrays: list[Any]) -> list[tuple[Any, Any]]:
        """Return the outputs and their dtypes."""
        if self.is_stateful:
            self.load()
        given = {
            name: self.tf.constant(array, self.specs[name].dtype)
            for name, array in zip(self.names, arrays, strict=True)
        }
        found = self.function(**given)
        return [(found[name].numpy(), found[name].dtype) for name in self.outputs]

    def device(self) -> str:
        """Return where it runs."""
        return device_name([d.name for d in self.tf.config.list_logical_devices()])

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
        self.unstable: set[int] = set()
        self.device = source.device()
        self.has_run = False

    def first_that_runs(self, alternatives: list[int]) -> dict[str, Any]:
        """Run the source on the first of several inputs that it takes."""
        refused = {}
        for number in alternatives:
            try:
                arrays = self.inputs(number)
                found = [self.plain(*output) for output in self.source.run(arrays)]
                self.compare_runs(found, arrays)
            except Exception as e:
                refused[number] = one_line(e)
                continue
            for i, (array, _) in enumerate(found):
                self.np.save(self.folder / f"out-{number}-{i}.npy", array)
            return {"chosen": number, "dtypes": [dtype for _, dtype in found], "refused": refused}
        return {"chosen": None, "dtypes": [], "refused": refused}

    def inputs(self, number: int) -> list[Any]:
        """Return a case's arrays as TensorFlow takes them."""
        found = []
        for i, dtype in enumerate(self.source.dtypes()):
            array = self.np.load(self.folder / f"in-{number}-{i}.npy")
            if dtype.name == "string":
                texts = [str(t).encode("utf-8", "surrogateescape") for t in array.flat]
                array = self.np.array(texts, object).reshape(array.shape)
            else:
                array = array.astype(dtype.as_numpy_dtype)
            found.append(array)
        return found

    def compare_runs(self, found: list[tuple[Any, str]], arrays: list[Any]) -> None:
        """Run once more where outputs may be random, and note those that are."""
        if self.source.random and self.source.is_stateful:
            # A Session of its own begins with the same seed: nothing can be told.
            self.unstable.update(range(len(found)))
        if self.has_run and not self.source.random:
            return
        self.has_run = True
        again = [self.plain(*output) for output in self.source.run(arrays)]
        for i, ((a, dtype), (b, _)) in enumerate(zip(found, again, strict=True)):
            if not self.is_same(a, b, dtype):
                self.unstable.add(i)

    def is_same(self, a: Any, b: Any, dtype: str) -> bool:
        """Tell whether two runs gave the same, but for sums in another order."""
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


def one_line(error: Exception) -> str:
    """Return an exception as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


if __name__ == "__main__":
    # This file's folder is no place to import from: its modules may be called like others'.
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    main(Path(sys.argv[1]))
