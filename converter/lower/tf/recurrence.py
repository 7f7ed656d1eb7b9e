"""Replace loops that compute a recurrent layer by ONNX's LSTM, GRU and RNN.

An iteration is read as an expression of the states and the time step's input: sums of products with
matrices from outside the loop, split into gates, activated and combined. If it is exactly the
formula of a cell, with gates and operands in any order, the operator replaces the loop; otherwise
the loop is kept. Stacked cells in one loop become one operator each.
Spec: https://onnx.ai/onnx/operators/onnx__LSTM.html
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from converter.lower.graph import Dim, Graph, Node
from converter.lower.ops.recurrent import Weights, run_layer
from converter.lower.tf import stacks
from converter.lower.tf.context import Context
from converter.lower.tf.recurrence_cells import (
    activations,
    cell_of,
    hidden,
    input_of,
    term_of,
)
from converter.lower.tf.recurrence_expressions import ExpressionReader
from converter.lower.tf.recurrence_terms import (
    Cell,
    Linear,
    Other,
    Symbol,
    Term,
)
from converter.lower.tf.rounds import least
from converter.lower.values import Value, total

MOST_NODES = 400  # of an iteration: cells have about forty


def recognise_recurrence(
    op: Context, body: Graph, begin: Sequence[Value], counters: set[str], limits: Sequence[Value]
) -> list[Value] | None:
    """Return a loop's outputs, computed by ONNX's recurrent operators, or None if it has no cell.

    Args:
        op: The builder, outside the loop.
        body: Its inputs are the iteration number, the condition and the loop variables; its outputs
            are the condition, the loop variables and the scan outputs.
        begin: Initial values of the loop variables.
        counters: Names of loop variables that count the iterations from zero.
        limits: Upper bounds of the trip count: it is exactly their minimum.
    """
    if len(body.nodes) > MOST_NODES or not any(n.op_type == "MatMul" for n in body.nodes):
        return None
    try:
        return _Replacement(op, body, begin, counters, limits).replaced()
    except (Other, TypeError, ValueError, KeyError, IndexError, AttributeError):
        return None  # an unexpected form: the loop is kept


class _Replacement:
    """Replaces one loop by ONNX's recurrent operators."""

    def __init__(
        self, op: Context, body: Graph, begin: Sequence[Value], counters: set[str],
        limits: Sequence[Value],
    ) -> None:  # fmt: skip
        self._op = op
        self._body = body
        self._begin = begin
        self._limits = limits
        self._counters = counters
        self._reader = ExpressionReader(op, body, counters)
        self._lengths: str | None = None

    def replaced(self) -> list[Value]:
        """Return the loop's outputs.

        Raises:
            Other: The loop is not a recurrent layer.
        """
        count = len(self._begin)
        names = self._body.outputs[1:]
        after: list[Symbol] = []
        for i, name in enumerate(names[:count]):
            if self._body.inputs[2 + i] in self._counters:
                after.append(("round",))
                continue
            after.append(self._going_on(self._reader.read(name), i))
        stacked = [self._reader.read(name) for name in names[count:]]
        states = [i for i, s in enumerate(after) if s[0] not in ("round", "last")]
        made: dict[int, Value] = {}
        outputs: dict[Symbol, tuple[Value, Value]] = {}  # cell -> all outputs, and the last
        while states:
            cells = (cell_of(after, i) for i in states)
            found = next((c for c in cells if c is not None and self._fed(c, outputs)), None)
            if found is None:
                raise Other
            results = self._made_of(found, outputs)
            for number, value in zip(found.states, results[1:], strict=True):
                made[number] = value
                states.remove(number)
            outputs[found.output] = results[0], results[1]
        return self._results(after, stacked, made, outputs)

    def _going_on(self, symbol: Symbol, number: int) -> Symbol:
        """Return the update of a state within its sequence length."""
        if isinstance(symbol, Linear) or symbol[0] != "where":
            return symbol
        _, lengths, ended, new = symbol
        if ended != ("state", number) or self._lengths not in (None, lengths):
            raise Other
        self._lengths = lengths
        return new

    def _fed(self, cell: Cell, outputs: Iterable[Symbol]) -> bool:
        sources = {input_of(gate, cell) for gate in cell.gates}
        (source,) = sources if len(sources) == 1 else (None,)
        return source is not None and (source[0] == "step" or source in outputs)

    def _results(
        self, after: Sequence[Symbol], stacked: Sequence[Symbol], made: dict[int, Value],
        outputs: dict[Symbol, tuple[Value, Value]],
    ) -> list[Value]:  # fmt: skip
        op, found = self._op, []
        for i, (symbol, begin) in enumerate(zip(after, self._begin, strict=True)):
            if i in made:
                found.append(made[i])
            elif symbol == ("round",):
                found.append(op.cast(least(op, list(self._limits)), begin.dtype))
            else:
                _, number, row = symbol
                if number != i or row not in outputs or self._lengths is not None:
                    raise Other
                found.append(op.unsqueeze(outputs[row][1], [0]))
        for symbol in stacked:
            if self._lengths is not None:
                if isinstance(symbol, Linear) or symbol[:2] != ("where", self._lengths):
                    raise Other
                if not self._is_zero(symbol[2]):
                    raise Other
                symbol = symbol[3]
            if symbol not in outputs:
                raise Other
            found.append(outputs[symbol][0])
        return found

    def _is_zero(self, symbol: Symbol) -> bool:
        if symbol == ("number", 0.0):
            return True
        return symbol[0] == "outer" and is_zero(self._op, self._reader.outer(symbol[1]))

    # -- ONNX's operators ----------------------------------------------------------------------

    def _made_of(self, cell: Cell, outputs: dict[Symbol, tuple[Value, Value]]) -> list[Value]:
        """Return a cell's outputs at all time steps, and its final states."""
        op = self._op
        source = input_of(cell.gates[0], cell)
        x = self._reader.outer(source[1]) if source[0] == "step" else outputs[source][0]
        units = cell.gates[0].width
        begin = [self._begin[i] for i in cell.states]
        if x.dtype != "float32" or any(b.rank != 2 or b.shape[1] != units for b in begin):
            raise Other
        if any(b.shape[0] == 1 != x.shape[1] for b in begin):
            raise Other  # one state for the whole batch, which the first iteration broadcasts
        if not all(self._covers(v, x.shape[0]) for v in self._limits):
            raise Other
        kernel = self._matrix([term_of(g, source) for g in cell.gates])
        recurrent = self._matrix([hidden(g, cell) for g in cell.gates])
        bias = self._bias(cell, units)
        lengths = None if self._lengths is None else self._lengths_within(x)
        starts = [] if all(is_zero(op, b) for b in begin) else [op.unsqueeze(b, [0]) for b in begin]
        rows = [op.reshape(self._reader.outer(n), (units,)) for n in cell.peepholes]
        weights = Weights(kernel, recurrent, bias, op.concat(rows, 0) if rows else None)
        batch = begin[0].shape[0]
        if isinstance(batch, int) and batch > 1 and not isinstance(x.shape[1], int):
            # A state of a fixed batch, with which TensorFlow broadcasts one sequence.
            shape = (x.shape[0], batch, x.shape[2])
            x = op.emit(
                "Expand", x, op.constant([1, batch, 1], "int64"), dtype=x.dtype, shape=shape
            )
        if x.shape[1] is None:
            x = replace(x, shape=(x.shape[0], begin[0].shape[0], x.shape[2]))
        attributes = activations(cell)
        if cell.inner is not None:
            attributes["linear_before_reset"] = 1
        y, last = run_layer(
            op, cell.op_type, x, [weights], starts, lengths=lengths, attributes=attributes
        )
        finals = [op.squeeze(v, [0]) for v in last]
        if lengths is not None:
            some = op.unsqueeze(op.elementwise("Greater", lengths, 0), [1])
            finals = [op.where(some, v, b) for v, b in zip(finals, begin, strict=True)]
        return [op.squeeze(y, [1]), *finals]

    def _lengths_within(self, x: Value) -> Value:
        op = self._op
        assert self._lengths is not None
        steps = op.cast(op.size(x, 0), "int32")
        given = op.cast(self._reader.outer(self._lengths), "int32")
        low = op.elementwise("Max", given, op.constant([0], "int32"))
        return op.elementwise("Min", low, steps)

    def _covers(self, limit: Value, steps: Dim) -> bool:
        """Return whether a limit is at least the number of time steps, or the longest sequence."""
        known = stacks.size_of(self._op, limit)
        if known is not None and (known == steps or _no_less(known, steps)):
            return True
        if isinstance(known, int) and self._lengths is not None:
            lengths = self._op.static(self._reader.outer(self._lengths))
            if lengths is not None and known >= lengths.max(initial=0):
                return True
        node = next(
            (n for g in self._op.enclosing for n in g.nodes if limit.name in n.outputs), None
        )
        if node is None:
            return False
        if known is None and steps is None and self._says(limit.name):
            return True
        inside = [self._reader.outer(n) for n in node.inputs if n]
        if node.op_type == "Min":
            return all(self._covers(v, steps) for v in inside)
        if node.op_type == "Max":
            return any(self._covers(v, steps) for v in inside)
        if node.op_type in stacks.MOVED:
            return self._covers(inside[0], steps)
        return node.op_type == "ReduceMax" and self._lengths == inside[0].name

    def _says(self, limit: str) -> bool:
        """Return whether a limit is the size of the time axis, itself unknown."""
        found = self._sizes(limit)
        axes = {self._origin(s[1]) for s in self._reader.symbols.values() if s[0] == "step"}
        return len(found) == 1 and axes == {found[0]}

    def _origin(self, name: str, axis: int = 0) -> tuple[str, int]:
        """Return the tensor and axis from which an axis comes by transposes."""
        while (node := self._producer(name)) is not None:
            if node.op_type == "Transpose":
                order = node.attributes["perm"]
                assert isinstance(order, list)
                axis = int(order[axis])
            elif node.op_type != "Identity":
                break
            name = node.inputs[0]
        return name, axis

    def _sizes(self, name: str) -> list[tuple[str, int] | None]:
        """Return the axes whose sizes are a tensor's elements; None for each other element."""
        node = self._producer(name)
        if node is None:
            return [None] * max(1, total(self._op.graph.specs[name].shape) or 1)
        if node.op_type == "Shape":
            shape = self._op.graph.specs[node.inputs[0]].shape
            start, end = (
                int(str(node.attributes.get(k, n))) for k, n in (("start", 0), ("end", len(shape)))
            )
            return [self._origin(node.inputs[0], axis) for axis in range(start, end)]
        if node.op_type == "Concat":
            return [n for part in node.inputs for n in self._sizes(part)]
        if node.op_type in stacks.MOVED:
            return self._sizes(node.inputs[0])
        index = (
            self._op.static(self._reader.outer(node.inputs[1]))
            if node.op_type == "Gather"
            else None
        )
        if index is None or index.size != 1:
            return [None]
        return [self._sizes(node.inputs[0])[int(index.reshape(()))]]

    def _producer(self, name: str) -> Node | None:
        return next((n for g in self._op.enclosing for n in g.nodes if name in n.outputs), None)

    def _matrix(self, terms: Sequence[Term]) -> Value:
        """Return the gates' matrices in ONNX's layout: [gates * units, rows]."""
        op = self._op
        parts: list[Term] = []
        for term in terms:
            before = parts[-1] if parts else None
            if before is not None and _is_next(before, term):
                parts[-1] = replace(before, columns=(before.columns[0], term.columns[1]))
            else:
                parts.append(term)
        views = []
        for term in parts:
            whole = self._reader.outer(term.matrix)
            axes = [a for a, s in enumerate((term.rows, term.columns)) if s != (0, whole.shape[a])]
            spans = [(term.rows, term.columns)[a] for a in axes]
            if axes:
                whole = op.slice(whole, axes, [s[0] for s in spans], [s[1] for s in spans])
            views.append(whole)
        together = op.concat(views, 1)
        return op.plain(op.transpose(together, (1, 0)))

    def _bias(self, cell: Cell, units: int) -> Value | None:
        """Return the gates' biases in ONNX's layout: [2 * gates * units]."""
        inner = [Linear(units)] * len(cell.gates)
        if cell.inner is not None:
            inner[-1] = cell.inner
        every = [*cell.gates, *inner]
        if not any(g.biases or g.shift for g in every):
            return None
        return self._op.concat([self._vector_of(g, units) for g in every], 0)

    def _vector_of(self, gate: Linear, units: int) -> Value:
        op = self._op
        total: Value | None = None
        for name, (start, end) in gate.biases:
            vector = self._reader.outer(name)
            if vector.rank == 2:
                vector = op.reshape(vector, (vector.shape[1],))
            part = vector if vector.shape == (units,) else op.slice(vector, [0], [start], [end])
            total = part if total is None else op.add(total, part)
        if total is None:
            return op.constant(np.full(units, gate.shift, "float32"))
        return op.add(total, gate.shift) if gate.shift else total


def is_zero(op: Context, value: Value) -> bool:
    """Return whether a value is known to be all zeros."""
    found = op.static(value)
    if found is not None:
        return found.dtype.kind in "fiu" and not found.any()
    node = next((n for g in op.enclosing for n in g.nodes if value.name in n.outputs), None)
    if node is None or node.op_type not in ("Expand", *stacks.MOVED):
        return False
    spec = op.graph.specs[node.inputs[0]]
    order = tuple(range(len(spec.shape)))
    constant = node.inputs[0] in op.graph.initializers
    return is_zero(op, Value(node.inputs[0], spec.dtype, spec.shape, order, constant))


def _no_less(a: Dim, b: Dim) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a >= b


def _is_next(before: Term, term: Term) -> bool:
    """Return whether a term's columns directly follow those of `before`."""
    same = (before.matrix, before.rows) == (term.matrix, term.rows)
    return same and before.columns[1] == term.columns[0]
