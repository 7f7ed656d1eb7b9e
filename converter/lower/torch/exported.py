"""Programs of ``torch.export`` into a graph: ATen ops over named values, in a JSON document.

Both dialects are taken: that which torch.export gives (with ops that write in place), and the core
ATen that ``run_decompositions`` leaves. What torch recorded of each value's dtype and shape is held
against ours: where they differ, one of them is wrong, and that is not supported.
Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_export/serde/schema.py
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from converter.lower import dims
from converter.lower.graph import Graph, State, Trace, needed
from converter.lower.states import alias_states, make_state
from converter.lower.torch import calls, complex_tensors, higher_order
from converter.lower.torch.compound import Compound
from converter.lower.torch.context import Context
from converter.lower.torch.exported_values import SYMBOLS, GraphValues
from converter.lower.torch.mutable_tensors import Reference, find_written
from converter.lower.torch.program_document import (
    Object,
    all_names,
    list_or_empty,
    name_with_module,
    output_name,
    overload_of,
    read_program,
    require_object,
    short_name,
    value_names,
)
from converter.lower.torch.program_values import Number, ProgramValue, Scalar, Size
from converter.lower.torch.table import plain_name
from converter.lower.unsupported import Finding, Unsupported, report
from converter.lower.values import Value
from formats.core.bundle import Bundle, FixedInput, TensorSpec
from formats.core.plurals import count
from formats.errors import CorruptError, UnsupportedError, UsageError
from formats.torch.export import SCALAR_TYPES, entry_name, input_specs

WEIGHTS = {
    "parameter": "parameter_name", "buffer": "buffer_name",
    "tensor_constant": "tensor_constant_name",
}  # fmt: skip


def lower_exported(
    bundle: Bundle, *, opset: int, inputs: Sequence[TensorSpec] = (), state: str = "drop"
) -> Graph:
    """Return the graph of an exported program.

    Args:
        bundle: The model.
        opset: Version of ONNX's operators.
        inputs: Inputs that the user declares, with names for dynamic axes.
        state: ``io`` to make inputs and outputs of the weights that the program assigns.

    Raises:
        UnsupportedError: It needs what we do not do; all of it is named.
        CorruptError: It is damaged.
    """
    program = read_program(bundle)
    module = require_object(program.get("graph_module"), "a program without a graph")

    def lower_with(states: Collection[str] = ()) -> tuple[Graph, list[str]]:
        lowering = _Lowering(bundle, Graph("forward", opset), module, inputs, states)
        return lowering.lower(), lowering.assigned

    with np.errstate(all="ignore"):  # numbers beyond what a dtype holds, as torch has them
        graph, assigned = lower_with()
        return lower_with(assigned)[0] if state == "io" and assigned else graph


# Views by strides, of which a contiguous tensor alone is known to have the elements in order.
STRIDED = tuple(f"torch.ops.aten.as_strided{end}." for end in ("", "_copy", "_scatter"))


class _Lowering:
    """A program being lowered."""

    def __init__(
        self, bundle: Bundle, graph: Graph, module: Object, inputs: Sequence[TensorSpec],
        states: Collection[str],
    ) -> None:  # fmt: skip
        self.bundle = bundle
        self.states = states
        self.aliases = alias_states(bundle.weights, states)
        self.assigned: list[str] = []  # weights that the program assigns, by their names here
        self.results: dict[str, Any] = {}  # those that are results -> the arguments that say which
        self.op = Context(graph, bundle.weights)
        self.op.is_exported, self.op.keeps_state = True, bool(states)
        self.signature = require_object(module.get("signature"), "a program without a signature")
        self.module = module
        self.names: dict[str, str] = {}  # symbols of the program -> names of axes
        for spec in inputs:
            if isinstance(spec, FixedInput):
                raise UsageError(
                    f"inputs={spec.name!r}: an exported program records its constants",
                    hint="Export the program again with another value",
                )
        self.wanted = {spec.name: spec for spec in inputs}
        graph_of_program = require_object(module.get("graph"), "a program without a graph")
        self.current = GraphValues(self.op, graph_of_program, self.names)
        self.weights: dict[str, Reference] = {}  # tensors of the bundle that the program takes
        self.given: dict[str, Reference] = {}  # tensors that the user gives
        self.findings: list[Finding] = []
        self.origins = {t.origin: name for name, t in bundle.weights.items()}

    def lower(self) -> Graph:
        """Return the graph.

        Raises:
            UnsupportedError: Something is not supported.
        """
        outputs = [(name, arg) for name, arg in self._outputs() if name]
        self.op.reserve([name for name, _ in outputs])
        self._inputs()
        self._walk([arg for _, arg in (*outputs, *self.results.items())])
        self._note_assignments()
        outputs += [(state.output, self._result(state)) for state in self.op.graph.states]
        used = set(self.op.graph.inputs)
        for name, arg in outputs:
            self._output(name, arg, used)
        report(self.findings)
        if not self.op.graph.outputs:
            raise UnsupportedError("the program yields no tensor")
        return needed(self.op.graph)

    # -- inputs --------------------------------------------------------------------------------

    def _inputs(self) -> None:
        """Make weights and inputs of what the program is given, in its order."""
        specs = input_specs({"graph_module": self.module})
        given: list[tuple[str, Any]] = []
        kept: list[tuple[str, str]] = []
        for spec in specs:
            ((kind, entry),) = spec.items() if len(spec) == 1 else [("", None)]
            if not isinstance(entry, dict):
                raise CorruptError("an input of the program says nothing")
            if kind in WEIGHTS:
                name, tensor = entry_name(entry.get("arg")), str(entry.get(WEIGHTS[kind]))
                if name is not None and self._find_weight(tensor) in self.states:
                    kept.append((name, tensor))
                elif name is not None:
                    self.current.values[name] = self._weight(name, tensor)
            elif kind == "user_input":
                given.append((kind, entry.get("arg")))
            elif kind == "token":
                token = require_object(entry.get("arg"), "a token without a name")
                self.current.values[str(token.get("name"))] = None
            elif kind != "constant_input":
                name = entry_name(entry.get("arg")) or kind
                self.findings.append(Finding("input", name, kind.replace("_", " ")))
                self.current.unknown.add(name)
        if not specs:  # torch 2.1
            given = self._old_inputs()
        self._rename(arg for _, arg in given)
        for _, arg in given:
            self._input(require_object(arg, "an input that is no object"))
        for name, tensor in kept:
            self.current.values[name] = self._state(self._find_weight(tensor))
        self._find_symbols()

    def _old_inputs(self) -> list[tuple[str, Any]]:
        """Return user's inputs of torch 2.1, whose signature maps names."""
        given = []
        weights: dict[str, str] = {}
        for key in ("inputs_to_parameters", "inputs_to_buffers"):
            found = self.signature.get(key)
            weights.update(found if isinstance(found, dict) else {})
        for arg in list_or_empty(self.current.graph.get("inputs")):
            name = entry_name(arg)
            if name in weights:
                self.current.values[name] = self._weight(name, str(weights[name]))
            else:
                given.append(("user_input", arg))
        return given

    def _find_weight(self, tensor: str) -> str:
        """Return a tensor's name among the weights, or ""; a state of several names has one."""
        found = tensor if tensor in self.bundle.weights else self.origins.get(tensor, "")
        return self.aliases.get(found, found)

    def _state(self, tensor: str) -> Reference:
        """Return a weight whose value before the run is an input."""
        if tensor not in self.weights:
            weight = self.bundle.weights[tensor]
            state = make_state(tensor, weight.shape)
            try:
                value = self.op.input(state.input, weight.dtype.name, weight.shape)
            except ValueError as e:
                raise UnsupportedError(f"not supported: state {tensor!r} of {weight.dtype}") from e
            self.weights[tensor] = self.current.values[state.input] = Reference.to(value)
            self.op.graph.states.append(state)
        return self.weights[tensor]

    def _weight(self, name: str, tensor: str) -> ProgramValue:
        found = self._find_weight(tensor)
        if not found:
            if tensor in self.bundle.encodings:
                self.findings.append(
                    Finding("weight", tensor, f"{self.bundle.encodings[tensor].kind} tensors")
                )
                self.current.unknown.add(name)
                return None
            raise CorruptError(f"the program takes {tensor!r}, which is not among the weights")
        self.weights[found] = Reference.to(complex_tensors.weight(self.op, found))
        return self.weights[found]

    def _rename(self, args: Iterator[Any]) -> None:
        """Give dynamic axes the names that the user's inputs have."""
        for arg in args:
            name = entry_name(arg)
            if name is None:
                continue
            spec, meta = self.wanted.get(name), self.current.metas.get(name)
            if spec is None or spec.shape is None or not isinstance(meta, dict):
                continue
            for word, size in zip(spec.shape, self.current.shape(meta) or (), strict=False):
                if isinstance(word, str) and isinstance(size, str) and size.isidentifier():
                    self.names.setdefault(size, word)

    def _input(self, arg: Object) -> None:
        ((kind, content),) = arg.items() if len(arg) == 1 else [("", None)]
        if kind == "as_tensor":
            name = entry_name(arg)
            meta = self.current.metas.get(name or "")
            if name is None or not isinstance(meta, dict):
                raise CorruptError(f"input {name!r} without a shape")
            shape = self.current.shape(meta)
            dtype = SCALAR_TYPES.get(meta.get("dtype", 0), "unknown")
            try:
                value = self.op.input(name, dtype, tuple(shape))
            except ValueError as e:
                raise UnsupportedError(f"not supported: input {name!r} of {dtype}") from e
            self.given[name] = self.current.values[name] = Reference.to(value)
        elif kind in SYMBOLS and isinstance(content, dict):
            name = content.get("as_name")
            if isinstance(name, str):
                self._number(kind, name)
        else:  # a list or an object: constants alone have no name
            for name in value_names(content):
                what = kind.removeprefix("as_").replace("_", " ")
                self.findings.append(Finding("input", name, what))
                self.current.unknown.add(name)

    def _number(self, kind: str, name: str) -> None:
        """Add an input that is a number, and no tensor."""
        dtype = {"as_sym_int": "int64", "as_sym_float": "float64", "as_sym_bool": "bool"}[kind]
        value = self.op.input(name, dtype, ())
        if kind != "as_sym_int":
            self.current.values[name] = Number(value)
            return
        meta = require_object(self.current.graph.get("sym_int_values"), "no integers").get(name)
        size = self.current.dim(meta)
        symbol = size if isinstance(size, str) and size.isidentifier() else name
        self.current.values[name] = self.op.define(symbol, lambda: self.op.unsqueeze(value, [0]))

    def _find_symbols(self) -> None:
        """Say of each symbol which axis of which input it is the size of."""
        axes = [
            (n, self.current.values[name].read(), i)
            for name in self.op.graph.inputs
            if isinstance(self.current.values.get(name), Reference)
            for i, n in enumerate(self.op.graph.specs[name].shape)
            if isinstance(n, str)
        ]
        for n, value, i in axes:
            terms = dims.terms(n)
            if terms == {(n,): 1}:
                self.op.define(n, partial(self.op.measured, value, i))
        for n, value, i in axes:  # 2*s0 + 1
            terms = dict(dims.terms(n))
            offset = terms.pop((), 0)
            if len(terms) == 1:
                ((names, times),) = terms.items()
                if len(names) == 1:
                    self.op.define(names[0], partial(self._solved, value, i, offset, times))

    def _solved(self, value: Value, axis: int, offset: int, times: int) -> Value:
        found = self.op.measured(value, axis)
        return self.op.div(self.op.sub(found, offset), times)

    def _note_assignments(self) -> None:
        """Note the weights and inputs that the program writes to in place."""
        for tensor, reference in self.weights.items():
            if reference.storage.version:
                self._assign(tensor)
        self.op.graph.overwritten += find_written(self.given)

    def _assign(self, tensor: str) -> None:
        """Note a weight that the program writes to."""
        self.assigned += [tensor] * (tensor not in self.assigned)
        unkept = self.op.graph.unkept
        unkept += [tensor] * (tensor not in (*unkept, *self.states))

    def _result(self, state: State) -> Object:
        """Return the argument that is the value of a state after the run."""
        return self.results.get(state.tensor) or {"as_tensor": {"name": state.input}}

    def _walk(self, outputs: Sequence[Any]) -> None:
        """Build all nodes of the graph, of which these outputs are wanted."""
        nodes = list_or_empty(self.current.graph.get("nodes"))
        self.current.read = {name for arg in outputs for name in value_names(arg)}
        for node in self.current.select_nodes(nodes):
            self._node(node)

    def inner(self, graph: Any, given: Sequence[ProgramValue]) -> list[ProgramValue]:
        """Return what an inner graph yields of these values.

        Raises:
            Unsupported: It holds what is not supported; that is noted where it is.
        """
        content = require_object(graph, "an inner graph that is no object")
        names = [output_name(arg) for arg in list_or_empty(content.get("inputs"))]
        outputs = list_or_empty(content.get("outputs"))
        if len(names) != len(given):
            raise CorruptError(
                f"a graph of {count('input', len(names))} is given {count('value', len(given))}"
            )
        outside = self.current
        self.current = GraphValues(self.op, content, self.names)
        self.current.values.update(zip(names, given, strict=True))
        try:
            self._walk(outputs)
            if any(name in self.current.unknown for arg in outputs for name in value_names(arg)):
                raise Unsupported("holds what is not supported")
            return [self.argument(arg) for arg in outputs]
        finally:
            self.current = outside

    def argument(self, arg: Any) -> ProgramValue:
        """Return an argument of a node of the current graph."""
        return self.current.argument(arg)

    # -- nodes ---------------------------------------------------------------------------------

    def _node(self, node: Object) -> None:
        target = str(node.get("target", ""))
        outputs = list_or_empty(node.get("outputs"))
        where = next((n for n in map(output_name, outputs) if n), target)
        try:
            args = [
                require_object(a, "an argument that is no object")
                for a in list_or_empty(node.get("inputs"))
            ]
            if any(
                name in self.current.unknown for a in args for name in value_names(a.get("arg"))
            ):
                self.current.unknown.update(all_names(outputs))
                return
            if target == higher_order.EFFECTS:
                self._effect(args, outputs)
                return
            self.op.parts = _count_parts(outputs)
            self.current.bind(outputs, self._made(target, args))
            self._trace(name_with_module(short_name(target), node.get("metadata")), outputs)
        except Unsupported as gap:
            self.findings.append(Finding(f"torch {short_name(target)}", where, str(gap)))
            self.current.unknown.update(all_names(outputs))

    def _effect(self, args: Sequence[Object], outputs: Sequence[Any]) -> None:
        """Take an op that is kept for what it does beside: a token says which comes next.

        Raises:
            Unsupported: It does more than check something.
        """
        called = require_object(args[1].get("arg"), "an effect of no op").get("as_operator")
        if not isinstance(called, str) or plain_name(called) not in calls.DROPPED:
            raise Unsupported(f"of {short_name(str(called))}")
        self.current.values.update(dict.fromkeys(all_names(outputs)))

    def _trace(self, called: str, outputs: Sequence[Any]) -> None:
        """Note which values a node's outputs are: in torch's own graph they have these names."""
        for name in all_names(outputs):
            operand = self.current.values.get(name)
            if isinstance(operand, Reference):
                value = operand.read()
                if isinstance(value, Compound):
                    continue
                trace = Trace(name, called, 0, value.name, value.stored)
                self.op.graph.traces.append(trace)

    def _made(self, target: str, args: Sequence[Object]) -> ProgramValue:
        if target.startswith(higher_order.PREFIX):
            given = [require_object(a.get("arg"), "an argument that says nothing") for a in args]
            return higher_order.lower_higher_order(self, target, given)
        values = [(str(a.get("name") or ""), self.argument(a.get("arg"))) for a in args]
        if not target.startswith("torch.ops."):
            return calls.call(self.op, target, [t for _, t in values], overload="default")
        if target.startswith(STRIDED):
            self.current.check_order(args)
            target = f"{target.removeprefix('torch.ops.').rpartition('.')[0]}.in_order"
        positional = [t for name, t in values if not name]
        named = {name: t for name, t in values if name}
        return calls.call(self.op, target, positional, named, overload=overload_of(target))

    # -- outputs -------------------------------------------------------------------------------

    def _outputs(self) -> list[tuple[str, Any]]:
        """Return what the user is given: names, and arguments that say what of the program."""
        specs = list_or_empty(self.signature.get("output_specs"))
        if not specs:
            return [
                (output_name(arg), arg) for arg in list_or_empty(self.current.graph.get("outputs"))
            ]
        found = []
        for spec in specs:
            ((kind, entry),) = require_object(spec, "an output that says nothing").items()
            entry = require_object(entry, "an output that says nothing")
            if kind == "user_output":
                found.append((output_name(entry.get("arg")), entry.get("arg")))
            elif kind in ("buffer_mutation", "parameter_mutation"):
                tensor = str(entry.get("buffer_name", entry.get("parameter_name")))
                self._assign(self._find_weight(tensor) or tensor)
                self.results[self._find_weight(tensor)] = {"as_tensor": entry.get("arg")}
            elif kind == "user_input_mutation":
                self.op.graph.overwritten.append(str(entry.get("user_input_name")))
            elif kind != "token":
                self.findings.append(Finding("output", kind, kind.replace("_", " ")))
        return found

    def _output(self, name: str, arg: Any, used: set[str]) -> None:
        if name in self.current.unknown:
            return
        try:
            value = calls.values(self.argument(arg))
        except Unsupported as gap:
            self.findings.append(Finding("output", name, str(gap)))
            return
        if isinstance(value, bool | int | float) and name not in self.current.values:
            return  # the same at all times: torch's own signature gives it no name
        if isinstance(value, bool | int | float | Size | Number):
            value = self.op.scalar(value, _dtype_of(value))
        if isinstance(value, Compound):
            self.findings.append(Finding("output", name, "complex numbers"))
            return
        if not isinstance(value, Value):
            self.findings.append(Finding("output", name, "what is no tensor"))
            return
        free = name
        while free in used:
            free = f"{free}_out"
        used.add(free)
        self.op.output(value, free)


def _count_parts(outputs: Sequence[Any]) -> int | None:
    """Return how many tensors are in the list that a node yields; None if it yields no list."""
    if len(outputs) == 1 and isinstance(outputs[0], dict) and "as_tensors" in outputs[0]:
        return len(list_or_empty(outputs[0]["as_tensors"]))
    return None


def _dtype_of(number: Scalar) -> str:
    """Return the dtype of a number that is an output."""
    if isinstance(number, Number):
        return number.value.dtype
    if isinstance(number, bool):
        return "bool"
    return "float64" if isinstance(number, float) else "int64"
