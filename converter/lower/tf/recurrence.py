"""Loops that are a recurrent layer, as ONNX's LSTM, GRU and RNN.

What a round computes is read as an expression of the states and of the step: sums of products with
matrices from outside the loop, cut into gates, activated and put together. Where it is exactly the
formula of a cell, in whichever order its gates and operands stand, the operator takes the loop's
place; else the loop stays. Cells on one another in one loop become one operator each.
Spec: https://onnx.ai/onnx/operators/onnx__LSTM.html
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np

from converter.lower.graph import Dim, Graph, Node
from converter.lower.tf import stacks
from converter.lower.tf.context import Context
from converter.lower.tf.recurrence_cells import (
    activated,
    activations,
    cell_of,
    hidden,
    input_of,
    term_of,
)
from converter.lower.tf.recurrence_terms import (
    ACTIVATIONS,
    Cell,
    Linear,
    Other,
    Pair,
    Symbol,
    Term,
)
from converter.lower.values import Value, total

MOST_NODES = 400  # of a round: cells have about forty


def recognised(
    op: Context, body: Graph, begin: Sequence[Value], counters: set[str], limits: Sequence[Value]
) -> list[Value] | None:
    """Return what a loop yields, made by ONNX's own operators, or None where it is no such loop.

    Args:
        op: The builder, outside the loop.
        body: Inputs are the number of the round, whether to go on, and the variables; outputs are
            whether to go on, the variables, and what is stacked.
        begin: What the variables are at the beginning.
        counters: Names of variables that count the rounds from zero.
        limits: Of the number of rounds: the least counts, and nothing else ends the loop.
    """
    if len(body.nodes) > MOST_NODES or not any(n.op_type == "MatMul" for n in body.nodes):
        return None
    try:
        return _Reading(op, body, begin, counters, limits).replaced()
    except (Other, TypeError, ValueError, KeyError, IndexError, AttributeError):
        return None  # whatever it is, of however odd a form: it can stay a loop


class _Reading:
    """One loop being read."""

    def __init__(
        self, op: Context, body: Graph, begin: Sequence[Value], counters: set[str],
        limits: Sequence[Value],
    ) -> None:  # fmt: skip
        self._op = op
        self._body = body
        self._begin = begin
        self._limits = limits
        self._counters = counters
        self._made = {name: n for n in body.nodes for name in n.outputs}
        self._numbers = {name: i for i, name in enumerate(body.inputs[2:])}
        self._symbols: dict[str, Symbol] = {}
        self._pairs: dict[tuple[str, frozenset[Symbol]], Pair] = {}
        self._lengths: str | None = None

    # -- reading -------------------------------------------------------------------------------

    def _symbol(self, name: str) -> Symbol:
        found = self._symbols.get(name)
        if found is None:
            found = self._symbols[name] = self._read(name)
        return found

    def _read(self, name: str) -> Symbol:
        if name in self._counters:
            return ("round",)
        if name in self._numbers:
            return ("state", self._numbers[name])
        node = self._made.get(name)
        if node is None:
            if name in self._body.inputs or not name:
                raise Other
            number = self._number(name)
            return ("outer", name) if number is None else ("number", number)
        reader = getattr(self, f"_{node.op_type.lower()}", None)
        if reader is not None:
            return reader(node, name)
        if node.op_type in ACTIVATIONS:
            return self._activation(node)
        raise Other

    def _pair(self, kind: str, a: Symbol, b: Symbol) -> Pair:
        operands = frozenset((a, b))
        return self._pairs.setdefault((kind, operands), Pair(kind, operands))

    def _number(self, name: str) -> float | None:
        """Return a scalar constant."""
        if self._shape(name) not in ((), (1,)):
            return None
        found = self._op.static(self._outer(name))
        return None if found is None or found.dtype.kind not in "fiu" else float(found.reshape(()))

    def _shape(self, name: str) -> tuple[Dim, ...]:
        return self._body.specs[name].shape

    def _outer(self, name: str) -> Value:
        spec = self._op.graph.specs[name]
        order = tuple(range(len(spec.shape)))
        return Value(name, spec.dtype, spec.shape, order, self._is_constant(name))

    def _is_constant(self, name: str) -> bool:
        if name in self._op.graph.initializers:
            return True
        node = next((n for n in self._op.enclosing[-1].nodes if name in n.outputs), None)
        return (
            node is not None
            and bool(node.inputs)
            and node.op_type not in ("If", "Loop", "Scan")
            and all(not n or self._is_constant(n) for n in node.inputs)
        )

    def _same(self, node: Node, name: str) -> Symbol:
        del name
        return self._symbol(node.inputs[0])

    _identity = _same

    def _cast(self, node: Node, name: str) -> Symbol:
        found = self._symbol(node.inputs[0])
        before, after = (self._body.specs[n].dtype for n in (node.inputs[0], name))
        if found != ("round",) and before != after:
            raise Other
        return found

    def _gather(self, node: Node, name: str) -> Symbol:
        del name
        source, index = (self._symbol(n) for n in node.inputs)
        rank = len(self._shape(node.inputs[0]))
        if source[0] != "outer" or index != ("round",) or node.attributes.get("axis", 0) != 0:
            raise Other
        if rank != 3:
            raise Other
        return ("step", node.inputs[0])

    def _concat(self, node: Node, name: str) -> Symbol:
        if len(self._shape(name)) != 2 or node.attributes["axis"] not in (1, -1):
            raise Other
        widths = [self._shape(n)[1] for n in node.inputs]
        if not all(isinstance(n, int) for n in widths):
            raise Other
        parts = [self._symbol(n) for n in node.inputs]
        return ("cat", tuple(zip(parts, widths, strict=True)))

    def _matmul(self, node: Node, name: str) -> Symbol:
        del name
        left, right = (self._symbol(n) for n in node.inputs)
        rows, columns = self._shape(node.inputs[1])
        if right[0] != "outer" or not isinstance(columns, int) or not isinstance(rows, int):
            raise Other
        parts = left[1] if not isinstance(left, Linear) and left[0] == "cat" else ((left, rows),)
        terms, start = [], 0
        for part, width in parts:
            terms.append(Term(part, node.inputs[1], (start, start + width), (0, columns)))
            start += width
        if start != rows:
            raise Other
        return Linear(columns, tuple(terms))

    def _split(self, node: Node, name: str) -> Symbol:
        if node.attributes.get("axis", 0) not in (1, -1):
            raise Other
        sizes = self._op.static(self._outer(node.inputs[1]))
        if sizes is None:
            raise Other
        number = node.outputs.index(name)
        start = int(sizes[:number].sum())
        return self._cut(self._symbol(node.inputs[0]), start, start + int(sizes[number]))

    def _slice(self, node: Node, name: str) -> Symbol:
        del name
        parts = [self._op.static(self._outer(n)) for n in node.inputs[1:]]
        if any(p is None or p.size != 1 for p in parts) or len(parts) != 4:
            raise Other
        start, end, axis, step = (int(p[0]) for p in parts if p is not None)
        width = self._shape(node.inputs[0])[-1]
        if axis not in (1, -1) or step != 1 or not isinstance(width, int):
            raise Other
        first, last, _ = slice(start, end).indices(width)
        return self._cut(self._symbol(node.inputs[0]), first, last)

    def _cut(self, symbol: Symbol, start: int, end: int) -> Symbol:
        if isinstance(symbol, Linear):
            return symbol.cut(start, end)
        if symbol[0] == "act":
            return ("act", symbol[1], self._cut(symbol[2], start, end))
        raise Other

    def _add(self, node: Node, name: str) -> Symbol:
        a, b = (self._symbol(n) for n in node.inputs)
        if isinstance(b, Linear):
            a, b = b, a
        width = self._shape(name)[-1] if self._shape(name) else None
        if isinstance(a, Linear):
            if isinstance(b, Linear):
                return a.plus(b)
            if b[0] == "number":
                return replace(a, shift=a.shift + b[1])
            if b[0] == "outer" and self._vector(b[1]) == width:
                return replace(a, biases=(*a.biases, (b[1], (0, a.width))))
            if b[0] == "mul":
                vector, other = self._peephole(b)
                return replace(a, peepholes=(*a.peepholes, (vector, other)))
            if b[0] == "reset":
                return ("reset sum", a, b[1], b[2])
        elif b[0] == "number" and a[0] == "scaled":
            return ("scaled", a[1], a[2] + b[1], a[3])
        elif a[0] == "number" and b[0] == "scaled":
            return ("scaled", b[1], b[2] + a[1], b[3])
        return self._pair("add", a, b)

    def _vector(self, name: str) -> Dim:
        """Return the size of a vector, or of one row."""
        shape = self._shape(name)
        if len(shape) == 1 or (len(shape) == 2 and shape[0] == 1):
            return shape[-1]
        return None

    def _peephole(self, product: Symbol) -> tuple[str, Symbol]:
        factors = list(product[1])
        vectors = [f for f in factors if f[0] == "outer" and self._vector(f[1]) is not None]
        if len(factors) != 2 or len(vectors) != 1:
            raise Other
        (other,) = (f for f in factors if f != vectors[0])
        return vectors[0][1], other

    def _sub(self, node: Node, name: str) -> Symbol:
        del name
        a, b = (self._symbol(n) for n in node.inputs)
        if a != ("number", 1.0):
            raise Other
        return ("rest", b)

    def _expand(self, node: Node, name: str) -> Symbol:
        """Return a number in many places; what is done with it must see to the shape."""
        found = self._symbol(node.inputs[0])
        if found[0] != "number" or None in self._shape(name):
            raise Other
        return ("numbers", found[1], self._shape(name))

    def _mul(self, node: Node, name: str) -> Symbol:
        a, b = (self._symbol(n) for n in node.inputs)
        for one, other in ((a, b), (b, a)):
            if one == ("numbers", 1.0, self._shape(name)):
                return other  # a dropout's, when it is off
        for one, other in ((a, b), (b, a)):
            if one[0] == "number":
                return self._scaled(other, one[1])
            if one[0] == "act" and isinstance(other, Linear):
                return ("reset", one, other)
        if isinstance(a, Linear) or isinstance(b, Linear):
            # An activation that is none: the sum itself.
            return self._pair("mul", activated(a), activated(b))
        return self._pair("mul", a, b)

    def _activation(self, node: Node) -> Symbol:
        alpha, beta = ACTIVATIONS[node.op_type]
        given = node.attributes
        kind = (node.op_type, given.get("alpha", alpha), given.get("beta", beta))
        return ("act", kind, self._symbol(node.inputs[0]))

    def _clip(self, node: Node, name: str) -> Symbol:
        del name
        low, high, *_ = [*(self._number(n) if n else None for n in node.inputs[1:]), None, None]
        return self._between(self._symbol(node.inputs[0]), low, high)

    def _min(self, node: Node, name: str) -> Symbol:
        del name
        return self._bounded(node, lambda x, n: self._between(x, None, n))

    def _max(self, node: Node, name: str) -> Symbol:
        del name
        return self._bounded(node, lambda x, n: self._between(x, n, None))

    def _bounded(self, node: Node, apply: Callable[[Symbol, float], Symbol]) -> Symbol:
        for one, other in permutations([self._symbol(n) for n in node.inputs]):
            if other[0] == "number":
                return apply(one, other[1])
        raise Other

    def _between(self, symbol: Symbol, low: float | None, high: float | None) -> Symbol:
        """Return what is held between bounds; that of 0 and 1 is the hard sigmoid."""
        if symbol[0] == "clipped":
            low = symbol[1] if low is None else low
            high, symbol = (symbol[2] if high is None else high), symbol[3]
        if symbol[0] == "scaled" and (low, high) == (0.0, 1.0):
            return ("act", ("HardSigmoid", symbol[1], symbol[2]), symbol[3])
        if symbol[0] in ("scaled", "linear"):
            return ("clipped", low, high, symbol)
        raise Other

    def _div(self, node: Node, name: str) -> Symbol:
        del name
        found, by = (self._symbol(n) for n in node.inputs)
        if by[0] != "number" or not by[1]:
            raise Other
        return self._scaled(found, 1 / by[1])

    def _scaled(self, symbol: Symbol, factor: float) -> Symbol:
        if symbol[0] == "linear":
            return ("scaled", factor, 0.0, symbol)
        if symbol[0] == "clipped" and symbol[3][0] == "linear":
            _, low, high, inner = symbol
            if low == 0.0 and high and abs(high * factor - 1) < 1e-6:
                return ("act", ("HardSigmoid", factor, 0.0), inner)
        raise Other

    # -- what ends sequences, and what is put out ----------------------------------------------

    def _greaterorequal(self, node: Node, name: str) -> Symbol:
        del name
        a, b = (self._symbol(n) for n in node.inputs)
        if a != ("round",) or b[0] != "outer" or len(self._shape(node.inputs[1])) != 1:
            raise Other
        return ("done", node.inputs[1])

    def _unsqueeze(self, node: Node, name: str) -> Symbol:
        found = self._symbol(node.inputs[0])
        shape = self._shape(name)
        if not isinstance(found, Linear) and found[0] == "done":
            if len(shape) == 2 and shape[1] == 1:
                return found
        elif len(shape) == 3 and shape[0] == 1:
            return ("row", found)
        raise Other

    def _where(self, node: Node, name: str) -> Symbol:
        del name
        condition, a, b = (self._symbol(n) for n in node.inputs)
        if isinstance(condition, Linear) or condition[0] != "done":
            raise Other
        return ("where", condition[1], a, b)

    def _scatternd(self, node: Node, name: str) -> Symbol:
        """A list of one element, which every round sets."""
        into, row = self._symbol(node.inputs[0]), self._symbol(node.inputs[2])
        places = self._op.static(self._outer(node.inputs[1]))
        if places is None:
            places = self._constant_index(node.inputs[1])
        if into[0] != "state" or row[0] != "row" or self._shape(name)[0] != 1:
            raise Other
        if places is None or places.tolist() != [[0]]:
            raise Other
        return ("last", into[1], row[1])

    def _constant_index(self, name: str) -> "np.ndarray | None":
        """Return an index that is only cast and reshaped."""
        shape = self._shape(name)
        while True:
            node = next((n for n in self._op.enclosing[-1].nodes if name in n.outputs), None)
            if node is None or node.op_type not in stacks.MOVED:
                break
            name = node.inputs[0]
        found = self._op.static(self._outer(name)) if name in self._op.graph.specs else None
        if found is None or not all(isinstance(n, int) for n in shape):
            return None
        return found.reshape([int(n) for n in shape if isinstance(n, int)])

    # -- finding cells -------------------------------------------------------------------------

    def replaced(self) -> list[Value]:
        """Return what the loop yields.

        Raises:
            Other: It is no recurrent layer.
        """
        count = len(self._begin)
        names = self._body.outputs[1:]
        after: list[Symbol] = []
        for i, name in enumerate(names[:count]):
            if self._body.inputs[2 + i] in self._counters:
                after.append(("round",))
                continue
            after.append(self._going_on(self._symbol(name), i))
        stacked = [self._symbol(name) for name in names[count:]]
        states = [i for i, s in enumerate(after) if s[0] not in ("round", "last")]
        made: dict[int, Value] = {}
        outputs: dict[Symbol, tuple[Value, Value]] = {}  # of a cell: all, and the last
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
        """Return what a state becomes while its sequence goes on."""
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
                found.append(op.cast(stacks.least(op, list(self._limits)), begin.dtype))
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
        return symbol[0] == "outer" and is_zero(self._op, self._outer(symbol[1]))

    # -- ONNX's operators ----------------------------------------------------------------------

    def _made_of(self, cell: Cell, outputs: dict[Symbol, tuple[Value, Value]]) -> list[Value]:
        """Return all outputs of a cell, and its last states."""
        op = self._op
        source = input_of(cell.gates[0], cell)
        x = self._outer(source[1]) if source[0] == "step" else outputs[source][0]
        units = cell.gates[0].width
        begin = [self._begin[i] for i in cell.states]
        if x.dtype != "float32" or any(b.rank != 2 or b.shape[1] != units for b in begin):
            raise Other
        if any(b.shape[0] == 1 != x.shape[1] for b in begin):
            raise Other  # one state for all of a batch, which the first round makes several
        if not all(self._covers(v, x.shape[0]) for v in self._limits):
            raise Other
        kernel = self._matrix([term_of(g, source) for g in cell.gates])
        recurrent = self._matrix([hidden(g, cell) for g in cell.gates])
        bias = self._bias(cell, units)
        lengths = None if self._lengths is None else self._lengths_within(x)
        starts = [None if is_zero(op, b) else op.unsqueeze(b, [0]) for b in begin]
        if any(s is not None for s in starts):
            starts = [op.unsqueeze(b, [0]) for b in begin]
        peepholes = None
        if cell.peepholes:
            rows = [op.reshape(self._outer(n), (units,)) for n in cell.peepholes]
            peepholes = op.unsqueeze(op.concat(rows, 0), [0])
        batch = x.shape[1] if x.shape[1] is not None else begin[0].shape[0]
        state = ("float32", (1, batch, units))
        attributes: dict[str, Any] = {"hidden_size": units, **activations(cell)}
        if cell.inner is not None:
            attributes["linear_before_reset"] = 1
        inputs = [x, kernel, recurrent, bias, lengths, *starts, peepholes]
        y, *last = op.node(
            cell.op_type, inputs,
            [("float32", (x.shape[0], 1, batch, units)), *[state] * len(begin)],
            attributes=attributes,
        )  # fmt: skip
        finals = [op.squeeze(v, [0]) for v in last]
        if lengths is not None:
            some = op.unsqueeze(op.elementwise("Greater", lengths, 0), [1])
            finals = [op.where(some, v, b) for v, b in zip(finals, begin, strict=True)]
        return [op.squeeze(y, [1]), *finals]

    def _lengths_within(self, x: Value) -> Value:
        op = self._op
        assert self._lengths is not None
        steps = op.cast(op.size(x, 0), "int32")
        given = op.cast(self._outer(self._lengths), "int32")
        low = op.elementwise("Max", given, op.constant([0], "int32"))
        return op.elementwise("Min", low, steps)

    def _covers(self, limit: Value, steps: Dim) -> bool:
        """Tell whether a limit is no less than the number of steps, or of those that count."""
        known = stacks.size_of(self._op, limit)
        if known is not None and (known == steps or _no_less(known, steps)):
            return True
        if isinstance(known, int) and self._lengths is not None:
            lengths = self._op.static(self._outer(self._lengths))
            if lengths is not None and known >= lengths.max(initial=0):
                return True
        node = next(
            (n for g in self._op.enclosing for n in g.nodes if limit.name in n.outputs), None
        )
        if node is None:
            return False
        if known is None and steps is None and self._says(limit.name):
            return True
        inside = [self._outer(n) for n in node.inputs if n]
        if node.op_type == "Min":
            return all(self._covers(v, steps) for v in inside)
        if node.op_type == "Max":
            return any(self._covers(v, steps) for v in inside)
        if node.op_type in stacks.MOVED:
            return self._covers(inside[0], steps)
        return node.op_type == "ReduceMax" and self._lengths == inside[0].name

    def _says(self, limit: str) -> bool:
        """Tell whether a number is the size of the axis of steps, of whatever size."""
        found = self._sizes(limit)
        axes = {self._origin(s[1]) for s in self._symbols.values() if s[0] == "step"}
        return len(found) == 1 and axes == {found[0]}

    def _origin(self, name: str, axis: int = 0) -> tuple[str, int]:
        """Return which axis of which tensor an axis is, before that was only moved."""
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
        """Return of which axes the sizes are that a tensor holds; None for other numbers."""
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
        index = self._op.static(self._outer(node.inputs[1])) if node.op_type == "Gather" else None
        if index is None or index.size != 1:
            return [None]
        return [self._sizes(node.inputs[0])[int(index.reshape(()))]]

    def _producer(self, name: str) -> Node | None:
        return next((n for g in self._op.enclosing for n in g.nodes if name in n.outputs), None)

    def _matrix(self, terms: Sequence[Term]) -> Value:
        """Return gates' matrices as ONNX has them: [1, gates * units, rows]."""
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
            whole = self._outer(term.matrix)
            axes = [a for a, s in enumerate((term.rows, term.columns)) if s != (0, whole.shape[a])]
            spans = [(term.rows, term.columns)[a] for a in axes]
            if axes:
                whole = op.slice(whole, axes, [s[0] for s in spans], [s[1] for s in spans])
            views.append(whole)
        together = op.concat(views, 1)
        return op.unsqueeze(op.plain(op.transpose(together, (1, 0))), [0])

    def _bias(self, cell: Cell, units: int) -> Value | None:
        """Return gates' biases as ONNX has them: [1, 2 * gates * units]."""
        inner = [Linear(units)] * len(cell.gates)
        if cell.inner is not None:
            inner[-1] = cell.inner
        every = [*cell.gates, *inner]
        if not any(g.biases or g.shift for g in every):
            return None
        return self._op.unsqueeze(
            self._op.concat([self._vector_of(g, units) for g in every], 0), [0]
        )

    def _vector_of(self, gate: Linear, units: int) -> Value:
        op = self._op
        total: Value | None = None
        for name, (start, end) in gate.biases:
            vector = self._outer(name)
            if vector.rank == 2:
                vector = op.reshape(vector, (vector.shape[1],))
            part = vector if vector.shape == (units,) else op.slice(vector, [0], [start], [end])
            total = part if total is None else op.add(total, part)
        if total is None:
            return op.constant(np.full(units, gate.shift, "float32"))
        return op.add(total, gate.shift) if gate.shift else total


def is_zero(op: Context, value: Value) -> bool:
    """Tell whether a value is zeros of whatever shape."""
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
    """Tell whether a term's columns are behind another's."""
    same = (before.matrix, before.rows) == (term.matrix, term.rows)
    return same and before.columns[1] == term.columns[0]
