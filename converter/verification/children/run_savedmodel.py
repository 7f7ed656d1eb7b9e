"""The files of TensorFlow graphs, as `run_tensorflow` imports and fills them; plain like it.

Each of `graph_file`, `meta_graph_file` and `saved_model` returns the nodes, the signature that is
wanted (or None), a function that imports the nodes into the current graph, and one that fills a
Session with what the first function returned.
"""

import contextlib
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

# Operations that read or write files whose paths may be constants of the graph. The loader's own
# restoring is run apart. Spec: tensorflow/core/ops/io_ops.cc
WRITES = frozenset(("Save", "SaveV2", "SaveSlices", "MergeV2Checkpoints", "WriteFile"))
READS = frozenset(("Restore", "RestoreV2", "RestoreSlice", "ReadFile", "MatchingFiles"))
CODE = frozenset(("PyFunc", "PyFuncStateless", "EagerPyFunc"))
VARIABLES = frozenset(("Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp"))
OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"  # shared name of every anonymous resource


class RefusedError(Exception):
    """Running the graph would access files, or run code that is not TensorFlow's."""


def choose_meta_graph(question: dict[str, Any]) -> tuple[Any, list[str], str]:
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
    clear_devices(graph_def, question)
    tables = [n.name for n in graph_def.node if n.op.startswith("InitializeTable")]
    refuse(graph_def, tables)

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
    clear_devices(graph_def, question)
    tables = meta_graph.collection_def["table_initializer"].node_list.value
    refuse(graph_def, tables)
    refuse(graph_def, [meta_graph.saver_def.restore_op_name], WRITES | CODE)
    if question["layers"]:
        signature = meta_graph.signature_def[key].outputs.values() if key else ()
        inline(tf, meta_graph, [t.name for t in signature] or question["fetches"])

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


def find_variable(graph: Any, key: str) -> Any:
    """Return the variable of a graph with a shared name or, where it has none, a node's name.

    Raises:
        ValueError: There is none.
    """
    for operation in graph.get_operations():
        if operation.type in VARIABLES:
            shared = operation.get_attr("shared_name").decode()
            if key == (operation.name if shared in ("", ANONYMOUS) else shared):
                return operation.outputs[0]
    raise ValueError(f"there is no variable {key!r}")


def read_variable(tf: Any, variable: Any) -> Any:
    """Return the value of a variable, resource or reference, as a tensor."""
    if variable.dtype != tf.resource:
        return variable
    dtype, shape = (variable.op.get_attr(name) for name in ("dtype", "shape"))
    value = tf.raw_ops.ReadVariableOp(resource=variable, dtype=dtype)
    value.set_shape(shape)
    return value


def parse(message: Any, question: dict[str, Any]) -> None:
    """Fill a message from the source's file, binary or text."""
    data = Path(question["source"]).read_bytes()
    if question["is_text"]:
        importlib.import_module("google.protobuf.text_format").Parse(data.decode(), message)
    else:
        message.ParseFromString(data)


def saved_model(tf: Any, question: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return the same of a SavedModel's MetaGraph."""
    chosen, tags, key = choose_meta_graph(question)
    library: Any = importlib.import_module("tensorflow.python.saved_model.loader_impl")
    loader = library.SavedModelLoader(question["source"])
    own = loader.get_meta_graph_def_from_tags(tags)  # this is what it loads
    own.CopyFrom(chosen)
    clear_devices(own.graph_def, question)
    starts = [s.outputs[k].name for k, s in own.signature_def.items() if k.startswith("__saved")]
    for name in ("saved_model_main_op", "legacy_init_op"):
        if name in own.collection_def:
            starts += list(own.collection_def[name].node_list.value)
    refuse(own.graph_def, starts)
    if own.HasField("saver_def"):
        refuse(own.graph_def, [own.saver_def.restore_op_name], WRITES | CODE)
    if question["layers"]:
        inline(tf, own, [t.name for t in own.signature_def[key].outputs.values()] + starts)
    graph_def = own.graph_def

    def import_graph() -> Any:
        return loader.load_graph(tf.compat.v1.get_default_graph(), tags)[0]

    def restore(session: Any, saver: Any) -> None:
        loader.restore_variables(session, saver)
        loader.run_init_ops(session, tags)

    return graph_def, own.signature_def[key] if key else None, import_graph, restore


def inline(tf: Any, meta_graph: Any, wanted: Iterable[str]) -> None:
    """Put the bodies of functions that are called in place of the calls: ``call/node``."""
    library: Any = importlib.import_module("tensorflow.python.grappler.tf_optimizer")
    copy = tf.compat.v1.MetaGraphDef()
    copy.CopyFrom(meta_graph)
    fetched = [*wanted, copy.saver_def.restore_op_name]
    fetched += copy.collection_def["table_initializer"].node_list.value
    copy.collection_def["train_op"].node_list.value[:] = [name for name in fetched if name]
    config = tf.compat.v1.ConfigProto()
    options = config.graph_options.rewrite_options
    options.min_graph_nodes = -1
    options.optimizers.append("function")
    with contextlib.suppress(Exception):  # without it, less can be looked at
        meta_graph.graph_def.CopyFrom(library.OptimizeGraph(config, copy))


def clear_devices(graph_def: Any, question: dict[str, Any]) -> None:
    """Take the devices out of a graph and its functions, unless it shall run as it is placed."""
    if question.get("device") and question.get("as_placed"):
        return
    for nodes in (graph_def.node, *(f.node_def for f in graph_def.library.function)):
        for node in nodes:
            node.ClearField("device")


def find_reached(graph_def: Any, names: Iterable[str]) -> Iterator[str]:
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
    """Return the node name of a tensor or a control edge."""
    return name.removeprefix("^").partition(":")[0]


def refuse(
    graph_def: Any, names: Iterable[str], forbidden: frozenset[str] = READS | WRITES | CODE
) -> None:
    """Refuse to run what needs such operations.

    Raises:
        RefusedError: It does.
    """
    found = sorted({op for op in find_reached(graph_def, names) if op in forbidden})
    if found:
        raise RefusedError(", ".join(found))
