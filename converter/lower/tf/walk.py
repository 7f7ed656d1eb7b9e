"""Traverse a graph from its outputs, including called functions, and lower each node.

Only nodes that the outputs depend on are lowered: not gradients, optimizers, savers and summaries.
Control edges matter if they lead to an assignment that a later read must see.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from converter.lower.graph import Trace
from converter.lower.tf import branches, complexes, unranked
from converter.lower.tf.body_state import NO_GATES, BodyState, Gates
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import (
    Library,
    Node,
    Port,
    named_functions,
)
from converter.lower.tf.program_values import (
    DEAD,
    UNKNOWN,
    Complex,
    Dead,
    ProgramValue,
    Unknown,
    Unranked,
    Variable,
)
from converter.lower.tf.rows import arguments_of, call_row
from converter.lower.tf.state import State
from converter.lower.tf.table import OPS, Row
from converter.lower.unsupported import MISFITS, Finding, Unsupported, explain_misfit
from converter.lower.values import Value
from formats.core.plurals import count
from formats.errors import CorruptError, LimitError

DEEPEST = 100  # maximum depth of nested function calls
MOST_NODES = 200_000  # maximum number of lowered nodes, those of a function counted per call
MOST_CALLS = 10_000  # maximum number of calls of functions, conditions and loop bodies

# Ops that change state.
SCATTERED = ("Update", "Add", "Sub", "Mul", "Div", "Max", "Min")
EFFECTS = frozenset((
    "Assign", "AssignAdd", "AssignSub", "AssignVariableOp", "AssignAddVariableOp",
    "AssignSubVariableOp", "InitializeTable", "InitializeTableV2", "InitializeTableFromTextFile",
    "InitializeTableFromTextFileV2", "LookupTableImport", "LookupTableImportV2",
    "LookupTableInsert", "LookupTableInsertV2", "LookupTableRemoveV2",
    *(f"{of}Scatter{by}{how}" for of in ("", "Resource") for by in ("", "Nd") for how in SCATTERED),
    "ResourceStridedSliceAssign", "StridedSliceAssign",
))  # fmt: skip
# Ops without outputs or effects on values.
SKIPPED = frozenset(("NoOp", "Assert", "PrintV2", "ControlTrigger"))

CALLS = frozenset(("PartitionedCall", "StatefulPartitionedCall", "IdentityN"))
# Ops whose outputs may be known although an input is not: an argument that a function does not use,
# or the file name of the checkpoint, which is not read.
LENIENT = frozenset((
    "PartitionedCall", "StatefulPartitionedCall", "IdentityN", "RestoreV2", "Restore",
    "RestoreSlice",
))  # fmt: skip

COMPLEX = ("complex64", "complex128")


class Walker:
    """Lowers the nodes of a model.

    Attributes:
        op: The builder.
        library: Graph and functions.
        findings: Unsupported nodes among those lowered.
        state: Variables and tables.
    """

    state: State

    def __init__(self, op: Context, library: Library) -> None:
        self.op = op
        self.library = library
        self.findings: list[Finding] = []
        self.current: BodyState | None = None
        self._with_effects: dict[str, bool] = {}
        self._conditions: dict[str, Value] = {}  # name -> condition of Switch nodes
        self._depth = self._walked = self._called = 0

    # -- bodies --------------------------------------------------------------------------------

    def call(
        self, name: str, arguments: Sequence[ProgramValue], at: str = ""
    ) -> list[ProgramValue]:
        """Lower the nodes of a function inline, and return its results.

        Args:
            name: Name of the function.
            arguments: Arguments in order.
            at: Name of the node that calls it.

        Raises:
            CorruptError: There is no such function, or the number of arguments differs.
        """
        body = self.library.function(name)
        if len(body.arguments) != len(arguments):
            raise CorruptError(
                f"function {name!r} is called with {count('argument', len(arguments))}",
                expected=str(len(body.arguments)),
            )
        path = (*self.current.path, at or name) if self.current is not None else ()
        inner = BodyState(body, path)
        for argument, operand in zip(body.arguments, arguments, strict=True):
            inner.values[argument] = [operand]
        return self.run(inner, body.results, body.effects)

    def run(
        self, body_state: BodyState, wanted: Sequence[Port], effects: Iterable[str] = ()
    ) -> list[ProgramValue]:
        """Lower the nodes that `wanted` and `effects` depend on; return the wanted values.

        Raises:
            CorruptError: The nodes form a cycle, or read a node that does not exist.
        """
        self._depth += 1
        self._called += self._depth > 1
        if self._called > MOST_CALLS:
            raise LimitError(f"a graph that calls functions more than {MOST_CALLS} times")
        if self._depth > DEEPEST:
            raise CorruptError(f"functions that call functions, more than {DEEPEST} deep")
        before, self.current = self.current, body_state
        try:
            nodes = self._order(body_state, wanted, effects)
            body_state.read.update(port for node in nodes for port in node.inputs)
            body_state.read.update(wanted)
            for node in nodes:
                self._walk(body_state, node)
            return [self.value(body_state, port) for port in wanted]
        finally:
            self.current = before
            self._depth -= 1

    def read(self, node: Node) -> set[int]:
        """Return the numbers of a node's outputs that are read in the current body."""
        assert self.current is not None
        return {_number(p, node) for p in self.current.read if p.node == node.name}

    def value(self, body_state: BodyState, port: Port) -> ProgramValue:
        """Return the value of one output of a lowered node."""
        found = body_state.values.get(port.node)
        if not isinstance(found, list):
            return UNKNOWN if found is None else found
        number = _number(port, body_state.body.nodes[port.node])
        if not 0 <= number < len(found):
            raise CorruptError(
                f"node {port.node!r} has {count('output', len(found))}, and not {number + 1}"
            )
        return found[number]

    def _order(
        self, body_state: BodyState, wanted: Sequence[Port], effects: Iterable[str]
    ) -> list[Node]:
        """Return the nodes to lower, in topological order."""
        nodes = body_state.body.nodes
        reached = self._postorder(body_state, [*(p.node for p in wanted), *effects])
        needed = {p.node for p in wanted}
        needed.update(name for name in reached if self.has_effects(nodes[name]))
        for name in reversed(reached):
            if name in needed and name not in body_state.values:
                node = nodes[name]
                needed.update(port.node for port in node.inputs)
                if not node.inputs:  # a constant of a branch: its control inputs tell which
                    needed.update(
                        c
                        for c in node.controls
                        if c in nodes and nodes[c].op in ("Identity", "Switch", "NoOp")
                    )
        return [nodes[n] for n in reached if n in needed and n not in body_state.values]

    def _postorder(self, body_state: BodyState, roots: Iterable[str]) -> list[str]:
        nodes, done = body_state.body.nodes, body_state.values
        state: dict[str, int] = {}  # 1: being visited, 2: visited
        order: list[str] = []
        for root in roots:
            stack = [root]
            while stack:
                name = stack[-1]
                if state.get(name) == 2:
                    stack.pop()
                    continue
                node = nodes.get(name)
                if node is None:
                    raise CorruptError(
                        f"a node reads {name!r}, which is not there",
                        where=body_state.body.name or None,
                    )
                if state.get(name) == 1:
                    stack.pop()
                    state[name] = 2
                    order.append(name)
                    continue
                state[name] = 1
                if name in done:
                    continue
                for before in (*(p.node for p in node.inputs), *node.controls):
                    seen = state.get(before)
                    if seen is None:
                        stack.append(before)
                    elif seen == 1:  # a cycle
                        raise CorruptError(f"node {before!r} depends on itself")
        return order

    def has_effects(self, node: Node) -> bool:
        """Return whether a node changes state, or calls a function that does."""
        if node.op in EFFECTS:
            return True
        called = [node.op] if node.op in self.library else named_functions(node)
        for name in called:
            known = self._with_effects.get(name)
            if known is None:
                self._with_effects[name] = False  # ends the recursion of a recursive function
                known = name in self.library and any(
                    self.has_effects(n) for n in self.library.function(name).nodes.values()
                )
                self._with_effects[name] = known
            if known:
                return True
        return False

    # -- single nodes --------------------------------------------------------------------------

    def _walk(self, body_state: BodyState, node: Node) -> None:
        self._walked += 1
        if self._walked > MOST_NODES:
            raise LimitError(f"a graph of more than {MOST_NODES} nodes, functions inlined")
        where = "/".join((*body_state.path, node.name))
        try:
            made = self._lower(body_state, node, where)
        except Unsupported as gap:
            self.findings.append(Finding(f"TensorFlow op {node.op}", where, str(gap)))
            made = UNKNOWN
        except MISFITS as e:
            self.findings.append(Finding(f"TensorFlow op {node.op}", where, explain_misfit(e)))
            made = UNKNOWN
        body_state.values[node.name] = made

    def _lower(
        self, body_state: BodyState, node: Node, where: str
    ) -> "list[ProgramValue] | ProgramValue":
        inputs = [self.value(body_state, port) for port in node.inputs]
        gates = self._gates(body_state, node)
        if gates:
            body_state.gates[node.name] = gates
        if node.op in ("Merge", "RefMerge"):
            return self._merged(body_state, node, inputs)
        if node.op not in LENIENT and any(isinstance(v, Unknown) for v in inputs):
            return UNKNOWN
        if any(isinstance(v, Dead) for v in inputs) or self._is_dead(body_state, node):
            return DEAD
        if node.op in SKIPPED:
            return []
        if node.op in self.library:  # a call of TensorFlow 1: the op is the function's name
            return self.call(node.op, inputs, node.name)
        row = OPS.get(node.op)
        if row is None:
            raise Unsupported
        body = body_state.body.name
        self.op.at, self.op.place = where, f"{body}/{node.name}" if body else node.name
        with self.op.scope(node.name):
            if _has_complex(node, inputs):
                made = complexes.lower_complex(self.op, row, node, inputs, self._call)
            else:
                given = inputs if row.takes_any else [self.tensor(v) for v in inputs]
                made = self._unranked(row, node, given) if _any_unranked(given) else None
                if made is None:
                    made = self._call(row, node, given)
        results: list[ProgramValue] = list(made) if isinstance(made, list | tuple) else [made]
        _check_shapes(node, results)
        # A reference that is passed on would show later changes of the variable in a trace.
        changing = node.op == "Identity" and isinstance(inputs[0], Variable)
        if self.op.is_outermost and not changing:
            self._trace(node, where, results)
        return results

    def _unranked(self, row: Row, node: Node, inputs: "list[ProgramValue]") -> Any:
        """Lower a node with inputs of unknown rank; return None if it is lowered like any other."""
        if node.op in CALLS:
            return None
        known = unranked.rank_inputs(node, inputs)
        if known is None:
            return unranked.lower_any_rank(self.op, node, inputs)
        return self._call(row, node, known)

    def tensor(self, operand: ProgramValue) -> ProgramValue:
        """Return a value as a tensor; a variable reference is read.

        Raises:
            Unsupported: The value is not a tensor.
        """
        if isinstance(operand, Variable) and operand.is_reference:
            return self.state.read(operand)
        if not isinstance(operand, Value | Unranked):
            raise Unsupported(f"of a {type(operand).__name__.lower()}")
        return operand

    def _call(self, row: Row, node: Node, inputs: Sequence[ProgramValue]) -> Any:
        return call_row(self.op, row, node, inputs, arguments_of(node, row))

    def _trace(self, node: Node, where: str, results: Sequence[ProgramValue]) -> None:
        if node.op in ("Const", "Placeholder"):
            return
        for number, operand in enumerate(results):
            if isinstance(operand, Value) and not operand.is_constant:
                trace = Trace(where, node.op, number, operand.name, operand.stored)
                self.op.graph.traces.append(trace)

    # -- branches of TensorFlow 1 --------------------------------------------------------------

    def _is_dead(self, body_state: BodyState, node: Node) -> bool:
        return not node.inputs and any(
            isinstance(body_state.values.get(c), Dead) for c in node.controls
        )

    def _gates(self, body_state: BodyState, node: Node) -> Gates:
        """Return the conditions under which a node is executed."""
        if not body_state.gates:
            return NO_GATES
        found: Gates = NO_GATES
        for port in node.inputs:
            found |= body_state.gates.get(f"{port.node}:{port.number}", NO_GATES)
            found |= body_state.gates.get(port.node, NO_GATES)
        if not node.inputs:
            for name in node.controls:
                found |= body_state.gates.get(name, NO_GATES)
        return found

    def switched(self, node: Node, condition: Value) -> None:
        """Record the condition of a Switch's outputs."""
        assert self.current is not None
        gates = self.current.gates
        before = gates.get(node.name, NO_GATES)
        gates[f"{node.name}:0"] = before | {(condition.name, False)}
        gates[f"{node.name}:1"] = before | {(condition.name, True)}
        self._conditions[condition.name] = condition

    def _merged(
        self, body_state: BodyState, node: Node, inputs: Sequence[ProgramValue]
    ) -> "list[ProgramValue] | ProgramValue":
        alive = [(i, v) for i, v in enumerate(inputs) if not isinstance(v, Dead)]
        if not alive:
            return DEAD
        if any(isinstance(v, Unknown) for _, v in alive):
            return UNKNOWN
        if len(alive) == 1:
            index, only = alive[0]
            return [only, self.op.constant(index, "int32")]
        if len(alive) > 2:
            raise Unsupported("joins more than two branches")
        sides = [self._port_gates(body_state, node.inputs[i]) for i, _ in alive]
        alone = sides[0] ^ sides[1]
        if not (sides[0] and sides[1]) and len(alone) == 1:
            # A constant whose control edges were removed by a tool: the opposite of the other side.
            ((name, holds),) = alone
            sides = [sides[i] or frozenset(((name, not holds),)) for i in range(2)]
        for name, holds in sides[0]:
            if (name, not holds) in sides[1]:
                rest = (sides[0] | sides[1]) - {(name, True), (name, False)}
                body_state.gates[node.name] = rest
                (_, taken), (_, other) = alive if holds else reversed(alive)
                condition = self._conditions[name]
                with self.op.scope(node.name):
                    chosen = branches.chosen(self.op, self.state, condition, taken, other)
                    second = self.op.unary("Not", condition) if holds else condition
                    which = self.op.cast(second, "int32")
                return [chosen, which]
        raise Unsupported("joins branches of which no condition is known")

    def _port_gates(self, body_state: BodyState, port: Port) -> Gates:
        gates = body_state.gates
        return gates.get(f"{port.node}:{port.number}", NO_GATES) | gates.get(port.node, NO_GATES)


def _check_shapes(node: Node, results: Sequence[ProgramValue]) -> None:
    """Compare the inferred shapes of a node's outputs with those recorded in the file, if any.

    Raises:
        Unsupported: They differ: one of them is wrong, possibly the inferred one.
    """
    if "_output_shapes" not in node.raw:
        return
    for operand, recorded in zip(results, node.attribute("_output_shapes"), strict=False):
        if not isinstance(operand, Value) or recorded is None:
            continue
        differs = len(recorded) != operand.rank or any(
            isinstance(m, int) and isinstance(n, int) and m != n
            for m, n in zip(recorded, operand.shape, strict=True)
        )
        if differs:
            raise Unsupported(
                f"the file records the shape {list(recorded)}, and not {list(operand.shape)}"
            )


def _number(port: Port, node: Node) -> int:
    """Return the index of a port among all outputs of its node."""
    row = OPS.get(node.op) if port.arg else None
    before = 0
    for output in row.outputs if row is not None else ():
        name, _, several = output.partition("*")
        if name == port.arg:
            return before + port.number
        before += _many(node.attribute(several, 0)) if several else 1
    return port.number


def _many(said: Any) -> int:
    """Return the number of outputs in an attribute: an integer, or a list of their types."""
    return len(said) if isinstance(said, list) else int(said)


def _any_unranked(operands: Sequence[ProgramValue]) -> bool:
    return any(isinstance(t, Unranked) for t in operands)


def _has_complex(node: Node, inputs: Sequence[ProgramValue]) -> bool:
    """Return whether a node has complex inputs or is a complex constant."""
    for operand in inputs:
        if isinstance(operand, Complex) or (
            isinstance(operand, Value) and operand.dtype in COMPLEX
        ):
            return True
    return node.op == "Const" and node.attribute("dtype") in COMPLEX
