"""Lower a TensorFlow model to a graph: a signature of a SavedModel, or all outputs of a GraphDef.

The signature names the inputs and outputs. A GraphDef has no signature: its placeholders are the
inputs, and the nodes that nothing reads are the outputs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from converter.lower.graph import Graph, Shape, Spec, needed
from converter.lower.graph import Node as Made
from converter.lower.legalize import LETTERS
from converter.lower.tf import frames, unranked
from converter.lower.tf.body_state import BodyState
from converter.lower.tf.context import Context
from converter.lower.tf.decoded import Decoded
from converter.lower.tf.feeds_and_fetches import (
    DECODERS,
    FED,
    find_dependencies,
    find_dependents,
    is_output,
    is_pivot,
    list_given,
)
from converter.lower.tf.graphdef import Library, Port, in_graph, named_functions
from converter.lower.tf.program_values import (
    UNKNOWN,
    Dead,
    Handle,
    ProgramValue,
    Stack,
    Unknown,
    Unranked,
    Variable,
)
from converter.lower.tf.session import Session
from converter.lower.tf.state import State
from converter.lower.tf.table import OPS
from converter.lower.tf.walk import SKIPPED, Walker
from converter.lower.unsupported import Finding, Unsupported, describe, report
from converter.lower.values import Value
from formats.containers.protobuf.messages import Message, decode_bytes
from formats.core.bundle import Bundle, Signature, TensorSpec
from formats.core.storage import Span
from formats.errors import CorruptError, UnsupportedError, UsageError
from formats.limits import DEFAULT, Limits
from formats.tensorflow.graphdef import GRAPH, META_GRAPH, SAVED_MODEL, kind_of, parse
from formats.tensorflow.schemas import SCHEMA

DEFAULT_SIGNATURE = "serving_default"


@dataclass(frozen=True, slots=True)
class Plan:
    """The part of a model that is lowered.

    Attributes:
        name: Name of the signature; empty for a graph without one.
        inputs: Name, dtype and shape in ONNX, and the tensor in the source.
        outputs: Name in ONNX, and the tensor in the source.
        spare: Names of outputs that depend on no input and are not declared: those that cannot be
            lowered are left out.
    """

    name: str
    inputs: Sequence[tuple[TensorSpec, Port]]
    outputs: Sequence[tuple[str, Port]]
    spare: frozenset[str] = frozenset()


def lower(
    bundle: Bundle, *, opset: int, signature: str | None = None, state: str = "drop"
) -> Graph:
    """Return the graph of one signature.

    Args:
        bundle: The model.
        opset: ONNX opset version.
        signature: Name of the signature; the default one if None.
        state: ``io`` to make inputs and outputs of the variables that it assigns.

    Raises:
        UnsupportedError: The graph has unsupported ops; the message names all of them.
        CorruptError: The graph is damaged.
        UsageError: There is no such signature.
    """
    model = _Model(bundle)

    def lower_with(variables: Mapping[str, Variable]) -> tuple[Graph, Mapping[str, Variable]]:
        plan = model.plan(signature)
        graph = Graph(plan.name or "graph", opset, signature=plan.name)
        return model.lower(graph, plan, variables)

    try:
        # Constant folding may overflow, as TensorFlow may.
        with np.errstate(all="ignore"):
            graph, changed = lower_with({})
            return (
                lower_with(dict(sorted(changed.items())))[0] if state == "io" and changed else graph
            )
    except Unsupported as gap:  # not of a node: an output that cannot be returned
        raise UnsupportedError(str(gap)) from gap


def signatures(bundle: Bundle) -> list[str]:
    """Return the names of the signatures, the default one first."""
    names = [s.name for s in bundle.signatures if s.outputs]
    return sorted(names, key=lambda name: name != default(names))


def default(names: Sequence[str]) -> str | None:
    """Return the default one of several signatures."""
    for wanted in (DEFAULT_SIGNATURE, "predict", "default"):
        if wanted in names:
            return wanted
    return names[0] if names else None


class _Model:
    """A model being lowered."""

    def __init__(self, bundle: Bundle, limits: Limits = DEFAULT) -> None:
        self.bundle = bundle
        self.metas, self.graphs = _parse_graphs(bundle, limits)

    # -- inputs and outputs ------------------------------------------------------------------------

    def plan(self, signature: str | None) -> Plan:
        """Return the plan of a signature, and choose the graph that contains it."""
        declared = {s.name: s for s in self.bundle.signatures if s.outputs}
        if not declared:
            if signature is not None:
                raise UsageError(
                    f"signatures=[{signature!r}]", expected="none: the source declares none"
                )
            self._choose(0)
            return self._whole()
        name = default([*declared]) if signature is None else signature
        if name not in declared:
            raise UsageError(f"signatures=[{name!r}]", expected=", ".join(declared))
        return self._declared(declared[name])

    def _choose(self, number: int) -> None:
        self.meta = self.metas[number] if self.metas else None
        self.library = Library(self.graphs[number])
        frames.restructure(self.library.main)

    def _declared(self, signature: Signature) -> Plan:
        plain = signature.name.partition("@")[0]
        for number, meta in enumerate(self.metas):
            tags = ", ".join(meta.meta_info_def.tags) or "no tags"
            named = signature.name in (plain, f"{plain}@{tags}")
            if named and plain in meta.signature_def:
                self._choose(number)
                definition = meta.signature_def[plain]
                break
        else:
            raise CorruptError(f"signature {signature.name!r} is in no MetaGraph")
        inputs = [
            (spec, _port(definition.inputs[spec.name], spec.name)) for spec in signature.inputs
        ]
        used = {spec.name for spec in signature.inputs}
        outputs = [
            (_free(spec.name, used), _port(definition.outputs[spec.name], spec.name))
            for spec in signature.outputs
        ]
        return Plan(signature.name, inputs, outputs)

    def _whole(self) -> Plan:
        """Return a plan with all outputs and all inputs of a graph."""
        nodes = self.library.main.nodes
        read = {port.node for node in nodes.values() for port in node.inputs}
        unread = [n for n in nodes.values() if n.name not in read and is_output(n)]
        ends = [n for n in unread if not is_pivot(nodes, n)]
        if not ends:
            raise UnsupportedError("the graph yields nothing")
        behind = find_dependencies(nodes, [n.name for n in ends])
        inputs = []
        fed_too: set[str] = set()
        axes = iter(range(1 << 30))
        ports = {(p.node, p.number) for name in behind for p in nodes[name].inputs}
        ports |= {(n.name, 0) for n in ends}
        pictures = {n.inputs[0].node for n in nodes.values() if n.op in DECODERS and n.inputs}
        within = {*behind}
        for node in (nodes[name] for name in nodes if name in within):
            found = list_given(nodes, node)
            if node.op == "Const" and node.name in pictures:
                found = [("string", ())]  # an example image, which callers replace
                fed_too.add(node.name)
            for number, (dtype, shape) in enumerate(found):
                if (node.name, number) not in ports:
                    continue
                sizes = (
                    None
                    if shape is None
                    else tuple(n if isinstance(n, int) else f"unk__{next(axes)}" for n in shape)
                )
                name = f"{node.name}:{number}" if number else node.name
                inputs.append((TensorSpec(name, dtype, sizes), Port(node.name, "", number)))
        fed = find_dependents(nodes, {n.name for n in nodes.values() if n.op in FED} | fed_too)
        used = {spec.name for spec, _ in inputs}
        outputs = [(_free(n.name, used), Port(n.name, "", 0)) for n in ends]
        spare = {name for name, port in outputs if port.node not in fed}
        return Plan("", inputs, outputs, frozenset(spare if len(spare) < len(outputs) else ()))

    # -- lowering ----------------------------------------------------------------------------------

    def lower(
        self, graph: Graph, plan: Plan, variables: Mapping[str, Variable]
    ) -> tuple[Graph, Mapping[str, Variable]]:
        """Lower the outputs of a plan; return the graph, and the variables that it assigns.

        Args:
            graph: The graph to build.
            plan: Its inputs and outputs.
            variables: Variables that become state, by their keys.

        Raises:
            UnsupportedError: The graph has unsupported ops.
        """
        if not all((*(spec.name for spec, _ in plan.inputs), *(name for name, _ in plan.outputs))):
            raise UnsupportedError("an input or output without a name")
        op = Session(graph, self.bundle.weights)
        op.constants = {t.origin: n for n, t in self.bundle.weights.items()}
        walker = op.walker = Walker(op, self.library)
        op.state = walker.state = State(
            op, self.bundle, self._restorer(walker), self._filler(walker)
        )
        op.reserve([*(spec.name for spec, _ in plan.inputs), *(name for name, _ in plan.outputs)])
        op.decoded = Decoded(op)
        main = BodyState(self.library.main)
        for spec, port in plan.inputs:
            yielded = main.values.setdefault(port.node, [])
            assert isinstance(yielded, list)
            yielded += [UNKNOWN] * (port.number - len(yielded))  # outputs that nothing reads
            yielded.append(self._input(op, spec, port))
            graph.sources[spec.name] = f"{port.node}:{port.number}"
        op.state.start(variables)
        wanted = [port for name, port in plan.outputs if name not in plan.spare]
        known = {port.node for _, port in plan.inputs}
        walker.run(main, wanted)
        for name, port in plan.outputs:
            if name in plan.spare:
                self._spare(op, walker, main, name, port)
            else:
                self._outputs(op, walker, main, name, port, is_whole=not plan.name)
        if walker.findings:
            met = {finding.subject for finding in walker.findings}
            behind = [f for f in self._missing(known, wanted) if f.subject not in met]
            report([*walker.findings, *behind])
        if not graph.outputs:
            raise UnsupportedError("the graph yields no tensor")
        op.state.finish(variables)
        graph.unkept = sorted(op.state.changed.keys() - variables.keys())
        return op.decoded.settle(needed(graph)), op.state.changed

    def _input(self, op: Context, spec: TensorSpec, port: Port) -> ProgramValue:
        shape: Shape | None = spec.shape
        if shape is None:
            rank = unranked.rank_of(self.library.main, port.node)
            shape = None if rank is None else (None,) * rank
        if spec.dtype not in LETTERS:
            raise UnsupportedError(f"input {spec.name!r} is {spec.dtype}")
        try:
            value = op.input(spec.name, spec.dtype, shape or ())
        except ValueError as e:
            raise UnsupportedError(f"input {spec.name!r} of {spec.dtype}") from e
        if shape is not None:
            return value
        op.graph.specs[spec.name] = Spec(spec.dtype, (), unranked=True)
        return Unranked(spec.name, spec.dtype)

    def _outputs(
        self,
        op: Context,
        walker: Walker,
        main: BodyState,
        name: str,
        port: Port,
        *,
        is_whole: bool,
    ) -> None:
        """Make a tensor an output; for a graph without signatures, all outputs of its node."""
        self._output(op, walker, name, port, walker.value(main, port))
        yielded = main.values.get(port.node)
        if not is_whole or not isinstance(yielded, list):
            return
        if not self.library.main.nodes[port.node].op.startswith(ONE_OUTPUT):
            for number, operand in enumerate(yielded[1:], 1):
                other = f"{port.node}:{number}"
                op.reserve([other])
                self._output(op, walker, other, Port(port.node, "", number), operand)

    def _spare(self, op: Context, walker: Walker, main: BodyState, name: str, port: Port) -> None:
        """Make a tensor that depends on no input an output, if it can be lowered."""
        before = len(walker.findings)
        walker.run(main, [port])
        self._outputs(op, walker, main, name, port, is_whole=True)
        if len(walker.findings) > before:
            op.graph.left_out[name] = describe(walker.findings[before:])
            del walker.findings[before:]

    def _output(
        self, op: Context, walker: Walker, name: str, port: Port, operand: ProgramValue
    ) -> None:
        where = f"{port.node}:{port.number}"
        op.graph.sources[name] = where
        if isinstance(operand, Unknown):
            return
        if not op.graph.signature and isinstance(operand, Stack | Handle | Variable | Dead):
            return  # not declared as an output: graphs leave lists behind after the last read
        if isinstance(operand, Dead):
            walker.findings.append(
                Finding("TensorFlow op Merge", where, "an output that is never computed")
            )
            return
        try:
            value = walker.tensor(operand)
        except Unsupported as e:
            walker.findings.append(Finding("output", where, str(e)))
            return
        if isinstance(value, Unranked):
            op.graph.nodes.append(Made("Identity", [value.name], [name], {}, f"output/{name}"))
            op.graph.specs[name] = Spec(value.dtype, (), unranked=True)
            op.graph.outputs.append(name)
        elif isinstance(value, Value):
            op.output(value, name)

    def _restorer(self, walker: Walker) -> Callable[[], None]:
        def restore() -> None:
            if self.meta is not None and self.meta.saver_def.restore_op_name:
                name = self.meta.saver_def.restore_op_name
                self._run(walker, [in_graph(name).node])

        return restore

    def _filler(self, walker: Walker) -> Callable[[], None]:
        def fill() -> None:
            self._run(walker, [*self._init_ops()])

        return fill

    def _run(self, walker: Walker, names: Sequence[str]) -> None:
        """Interpret the ops that load the model; unsupported ones matter only if they are read."""
        main = BodyState(self.library.main)
        for node in self.library.main.nodes.values():
            if node.op == "Placeholder":  # the filename of the checkpoint
                main.values[node.name] = UNKNOWN
        for asset in self._files():
            name = np.array(f"assets/{asset.filename}", object)
            main.values[in_graph(asset.tensor_info.name).node] = [walker.op.constant(name)]
        findings = walker.findings
        walker.findings = []
        before, walker.current = walker.current, None
        try:
            walker.run(main, [], [n for n in names if n in self.library.main.nodes])
        finally:
            walker.findings, walker.current = findings, before

    def _files(self) -> Iterator[Message]:
        """Yield the tensors that hold filenames of the model's assets."""
        if self.meta is None:
            return
        yield from self.meta.asset_file_def
        collection = self.meta.collection_def.get("saved_model_assets")
        for packed in collection.any_list.value if collection is not None else ():
            yield decode_bytes(packed.value, SCHEMA["AssetFileDef"], DEFAULT, "an asset's name")

    def _init_ops(self) -> Iterator[str]:
        if self.meta is None:  # the file does not name the ops that load the graph
            filled = (n for n in self.library.main.nodes.values() if n.op.startswith(FILLING))
            yield from (n.name for n in filled)
            return
        definition = self.meta.signature_def.get("__saved_model_init_op")
        if definition is not None:
            yield from (in_graph(t.name).node for t in definition.outputs.values())
        for name in ("saved_model_main_op", "legacy_init_op", "table_initializer"):
            collection = self.meta.collection_def.get(name)
            if collection is not None:
                yield from (in_graph(n).node for n in collection.node_list.value)

    def _missing(self, given: set[str], wanted: Sequence[Port]) -> Iterator[Finding]:
        """Yield the nodes with unsupported ops in all functions that may be called.

        They include nodes that lowering did not reach, because they follow an unsupported op.
        """
        library = self.library
        seen: set[str] = set()
        waiting = [("", library.main, [port.node for port in wanted])]
        known: dict[str, bool] = {}
        while waiting:
            path, body, ends = waiting.pop()
            for name in find_dependencies(body.nodes, ends, given if not path else set()):
                node = body.nodes[name]
                if node.op not in known:
                    known[node.op] = (
                        node.op in library
                        or node.op in OPS
                        or node.op in SKIPPED
                        or node.op in BUILT_IN
                    )
                if not known[node.op]:
                    yield Finding(f"TensorFlow op {node.op}", f"{path}/{name}" if path else name)
                if isinstance(node, frames.LoopNode):
                    frame = frames.frame_of(node)
                    ends = [frame.condition.node, *(p.node for p in frame.results)]
                    waiting.append((f"{path}/{name}" if path else name, frame.body, ends))
                for function in (*named_functions(node), node.op):
                    if function in library and function not in seen:
                        seen.add(function)
                        inner = library.function(function)
                        frames.restructure(inner)
                        waiting.append((function, inner, [p.node for p in inner.results]))


FILLING = ("InitializeTable", "LookupTableImport", "LookupTableInsert", "LookupTableRemove")
# Ops whose other outputs are for training.
ONE_OUTPUT = ("FusedBatchNorm", "Switch", "Merge", "LRN")
BUILT_IN = frozenset(("_Arg", "Merge", "RefMerge", "Placeholder"))


def _port(info: Message, key: str) -> Port:
    if info.which("encoding") not in ("name", None):
        raise UnsupportedError(f"{key!r} is a {info.which('encoding')}, and no plain tensor")
    return in_graph(info.name)


def _free(name: str, used: set[str]) -> str:
    base = name if name not in used else f"{name}_out"
    found, number = base, 1
    while found in used:
        found, number = f"{base}_{number}", number + 1
    used.add(found)
    return found


def _parse_graphs(bundle: Bundle, limits: Limits) -> tuple[list[Message], list[Message]]:
    """Return the MetaGraphs, if any, and the graphs."""
    content = None if bundle.topology is None else bundle.topology.content
    for name, span in content.items() if isinstance(content, dict) else ():
        if not isinstance(span, Span) or name == "object_graph":
            continue
        found = kind_of(span)
        if bundle.metadata.format == "savedmodel":  # the reader has determined the kind
            found = (SAVED_MODEL, found[1] if found else name.endswith(".pbtxt"))
        if found is None:
            continue
        kind, is_text = found
        message = parse(span, kind, limits, is_text=is_text)
        if kind == SAVED_MODEL:
            return list(message.meta_graphs), [m.graph_def for m in message.meta_graphs]
        if kind == META_GRAPH:
            return [message], [message.graph_def]
        if kind == GRAPH:
            return [], [message]
    raise UnsupportedError("the source has no TensorFlow graph")
