"""Loops that are a recurrent layer, as ONNX's LSTM, GRU and RNN.

What a round computes is read as an expression of the states and of the step: sums of products with
matrices from outside the loop, cut into gates, activated and put together. Where it is exactly the
formula of a cell, in whichever order its gates and operands stand, the operator takes the loop's
place; else the loop stays. Cells on one another in one loop become one operator each.
Spec: https://onnx.ai/onnx/operators/onnx__LSTM.html
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any, TypeAlias

import numpy as np

from converter.lower.graph import Dim, Graph, Node
from converter.lower.tf import stacks
from converter.lower.tf.context import Context
from converter.lower.values import Value

MOST_NODES = 400  # of a round: cells have about forty

Span: TypeAlias = tuple[int, int]
Symbol: TypeAlias = "tuple[Any, ...] | Linear | Pair"
Activation: TypeAlias = tuple[str, float | None, float | None]

LINEAR: Activation = ("Affine", 1.0, 0.0)
ACTIVATIONS = {
    "Sigmoid": (None, None), "Tanh": (None, None), "Relu": (None, None), "Softplus": (None, None),
    "Softsign": (None, None), "Elu": (1.0, None), "LeakyRelu": (0.01, None),
    "HardSigmoid": (0.2, 0.5),
}  # fmt: skip


class _Other(Exception):  # noqa: N818 - no error: the loop stays one
    """A round computes what no cell does."""


class Pair:
    """A sum or a product of two; equal ones are one, so that comparing them costs nothing."""

    __slots__ = ("kind", "operands")

    def __init__(self, kind: str, operands: "frozenset[Symbol]") -> None:
        self.kind, self.operands = kind, operands

    def __getitem__(self, place: int) -> Any:
        return (self.kind, self.operands)[place]


@dataclass(frozen=True, slots=True)
class Term:
    """A product of something of a round and a part of a matrix from outside."""

    source: Symbol
    matrix: str
    rows: Span
    columns: Span


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum of products and biases.

    Attributes:
        width: Number of columns.
        terms: The products.
        biases: Parts of vectors from outside.
        shift: A number that is added.
        peepholes: Vectors from outside by which something is multiplied, element by element.
    """

    width: int
    terms: tuple[Term, ...] = ()
    biases: tuple[tuple[str, Span], ...] = ()
    shift: float = 0.0
    peepholes: tuple[tuple[str, Symbol], ...] = ()

    def __getitem__(self, place: int) -> Any:
        """Return what kind of expression this is, as of any other."""
        if place:
            raise _Other
        return "linear"

    def plus(self, other: "Linear") -> "Linear":
        """Return the sum of two."""
        if self.width != other.width:
            raise _Other
        return Linear(
            self.width, self.terms + other.terms, self.biases + other.biases,
            self.shift + other.shift, self.peepholes + other.peepholes,
        )  # fmt: skip

    def cut(self, start: int, end: int) -> "Linear":
        """Return some of the columns."""
        if self.peepholes or not 0 <= start < end <= self.width:
            raise _Other
        terms = (replace(t, columns=_within(t.columns, start, end)) for t in self.terms)
        biases = ((name, _within(span, start, end)) for name, span in self.biases)
        return Linear(end - start, tuple(terms), tuple(biases), self.shift)


def _within(span: Span, start: int, end: int) -> Span:
    return span[0] + start, span[0] + end


@dataclass(slots=True)
class Cell:
    """A cell that was found.

    Attributes:
        op_type: ONNX's operator.
        states: Numbers of its states: the output, and LSTM's other one.
        output: The expression of its output.
        gates: In ONNX's order.
        activations: As ONNX has them.
        inner: GRU's product of the state, if that is reset behind it.
        peepholes: LSTM's, for i, o and f.
    """

    op_type: str
    states: list[int]
    output: Symbol
    gates: list[Linear]
    activations: list[Activation]
    inner: Linear | None = None
    peepholes: list[str] = field(default_factory=list)


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
    except (_Other, TypeError, ValueError, KeyError, IndexError, AttributeError):
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
                raise _Other
            number = self._number(name)
            return ("outer", name) if number is None else ("number", number)
        reader = getattr(self, f"_{node.op_type.lower()}", None)
        if reader is not None:
            return reader(node, name)  # type: ignore[no-any-return]
        if node.op_type in ACTIVATIONS:
            return self._activation(node)
        raise _Other

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
            raise _Other
        return found

    def _gather(self, node: Node, name: str) -> Symbol:
        del name
        source, index = (self._symbol(n) for n in node.inputs)
        rank = len(self._shape(node.inputs[0]))
        if source[0] != "outer" or index != ("round",) or node.attributes.get("axis", 0) != 0:  # type: ignore[index]
            raise _Other
        if rank != 3:
            raise _Other
        return ("step", node.inputs[0])

    def _concat(self, node: Node, name: str) -> Symbol:
        if len(self._shape(name)) != 2 or node.attributes["axis"] not in (1, -1):
            raise _Other
        widths = [self._shape(n)[1] for n in node.inputs]
        if not all(isinstance(n, int) for n in widths):
            raise _Other
        parts = [self._symbol(n) for n in node.inputs]
        return ("cat", tuple(zip(parts, widths, strict=True)))

    def _matmul(self, node: Node, name: str) -> Symbol:
        del name
        left, right = (self._symbol(n) for n in node.inputs)
        rows, columns = self._shape(node.inputs[1])
        if right[0] != "outer" or not isinstance(columns, int) or not isinstance(rows, int):  # type: ignore[index]
            raise _Other
        parts = left[1] if not isinstance(left, Linear) and left[0] == "cat" else ((left, rows),)
        terms, start = [], 0
        for part, width in parts:
            terms.append(Term(part, node.inputs[1], (start, start + width), (0, columns)))
            start += width
        if start != rows:
            raise _Other
        return Linear(columns, tuple(terms))

    def _split(self, node: Node, name: str) -> Symbol:
        if node.attributes.get("axis", 0) not in (1, -1):
            raise _Other
        sizes = self._op.static(self._outer(node.inputs[1]))
        if sizes is None:
            raise _Other
        number = node.outputs.index(name)
        start = int(sizes[:number].sum())
        return self._cut(self._symbol(node.inputs[0]), start, start + int(sizes[number]))

    def _slice(self, node: Node, name: str) -> Symbol:
        del name
        parts = [self._op.static(self._outer(n)) for n in node.inputs[1:]]
        if any(p is None or p.size != 1 for p in parts) or len(parts) != 4:
            raise _Other
        start, end, axis, step = (int(p[0]) for p in parts if p is not None)
        width = self._shape(node.inputs[0])[-1]
        if axis not in (1, -1) or step != 1 or not isinstance(width, int):
            raise _Other
        first, last, _ = slice(start, end).indices(width)
        return self._cut(self._symbol(node.inputs[0]), first, last)

    def _cut(self, symbol: Symbol, start: int, end: int) -> Symbol:
        if isinstance(symbol, Linear):
            return symbol.cut(start, end)
        if symbol[0] == "act":
            return ("act", symbol[1], self._cut(symbol[2], start, end))
        raise _Other

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
        elif b[0] == "number" and a[0] == "scaled":  # type: ignore[index]
            return ("scaled", a[1], a[2] + b[1], a[3])
        elif a[0] == "number" and b[0] == "scaled":  # type: ignore[index]
            return ("scaled", b[1], b[2] + a[1], b[3])  # type: ignore[index]
        return self._pair("add", a, b)

    def _vector(self, name: str) -> Dim:
        """Return the size of a vector, or of one row."""
        shape = self._shape(name)
        if len(shape) == 1 or (len(shape) == 2 and shape[0] == 1):
            return shape[-1]
        return None

    def _peephole(self, product: Symbol) -> tuple[str, Symbol]:
        factors = list(product[1])  # type: ignore[index]
        vectors = [f for f in factors if f[0] == "outer" and self._vector(f[1]) is not None]
        if len(factors) != 2 or len(vectors) != 1:
            raise _Other
        (other,) = (f for f in factors if f != vectors[0])
        return vectors[0][1], other

    def _sub(self, node: Node, name: str) -> Symbol:
        del name
        a, b = (self._symbol(n) for n in node.inputs)
        if a != ("number", 1.0):
            raise _Other
        return ("rest", b)

    def _mul(self, node: Node, name: str) -> Symbol:
        del name
        a, b = (self._symbol(n) for n in node.inputs)
        for one, other in ((a, b), (b, a)):
            if one[0] == "number":
                return self._scaled(other, one[1])
            if one[0] == "act" and isinstance(other, Linear):
                return ("reset", one, other)
        if isinstance(a, Linear) or isinstance(b, Linear):
            # An activation that is none: the sum itself.
            return self._pair("mul", _activated(a), _activated(b))
        return self._pair("mul", a, b)

    def _activation(self, node: Node) -> Symbol:
        alpha, beta = ACTIVATIONS[node.op_type]
        alpha = node.attributes.get("alpha", alpha)  # type: ignore[assignment]
        beta = node.attributes.get("beta", beta)  # type: ignore[assignment]
        return ("act", (node.op_type, alpha, beta), self._symbol(node.inputs[0]))

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
        raise _Other

    def _between(self, symbol: Symbol, low: float | None, high: float | None) -> Symbol:
        """Return what is held between bounds; that of 0 and 1 is the hard sigmoid."""
        if symbol[0] == "clipped":
            low = symbol[1] if low is None else low
            high, symbol = (symbol[2] if high is None else high), symbol[3]
        if symbol[0] == "scaled" and (low, high) == (0.0, 1.0):
            return ("act", ("HardSigmoid", symbol[1], symbol[2]), symbol[3])
        if symbol[0] in ("scaled", "linear"):
            return ("clipped", low, high, symbol)
        raise _Other

    def _div(self, node: Node, name: str) -> Symbol:
        del name
        found, by = (self._symbol(n) for n in node.inputs)
        if by[0] != "number" or not by[1]:
            raise _Other
        return self._scaled(found, 1 / by[1])

    def _scaled(self, symbol: Symbol, factor: float) -> Symbol:
        if symbol[0] == "linear":
            return ("scaled", factor, 0.0, symbol)
        if symbol[0] == "clipped" and symbol[3][0] == "linear":
            _, low, high, inner = symbol
            if low == 0.0 and high and abs(high * factor - 1) < 1e-6:
                return ("act", ("HardSigmoid", factor, 0.0), inner)
        raise _Other

    # -- what ends sequences, and what is put out ----------------------------------------------

    def _greaterorequal(self, node: Node, name: str) -> Symbol:
        del name
        a, b = (self._symbol(n) for n in node.inputs)
        if a != ("round",) or b[0] != "outer" or len(self._shape(node.inputs[1])) != 1:  # type: ignore[index]
            raise _Other
        return ("done", node.inputs[1])

    def _unsqueeze(self, node: Node, name: str) -> Symbol:
        found = self._symbol(node.inputs[0])
        shape = self._shape(name)
        if not isinstance(found, Linear) and found[0] == "done":
            if len(shape) == 2 and shape[1] == 1:
                return found
        elif len(shape) == 3 and shape[0] == 1:
            return ("row", found)
        raise _Other

    def _where(self, node: Node, name: str) -> Symbol:
        del name
        condition, a, b = (self._symbol(n) for n in node.inputs)
        if isinstance(condition, Linear) or condition[0] != "done":
            raise _Other
        return ("where", condition[1], a, b)

    def _scatternd(self, node: Node, name: str) -> Symbol:
        """A list of one element, which every round sets."""
        into, row = self._symbol(node.inputs[0]), self._symbol(node.inputs[2])
        places = self._op.static(self._outer(node.inputs[1]))
        if places is None:
            places = self._constant_index(node.inputs[1])
        if into[0] != "state" or row[0] != "row" or self._shape(name)[0] != 1:  # type: ignore[index]
            raise _Other
        if places is None or places.tolist() != [[0]]:
            raise _Other
        return ("last", into[1], row[1])  # type: ignore[index]

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
            _Other: It is no recurrent layer.
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
        states = [i for i, s in enumerate(after) if s[0] not in ("round", "last")]  # type: ignore[index]
        made: dict[int, Value] = {}
        outputs: dict[Symbol, tuple[Value, Value]] = {}  # of a cell: all, and the last
        while states:
            cells = (_cell(after, i) for i in states)
            found = next((c for c in cells if c is not None and self._fed(c, outputs)), None)
            if found is None:
                raise _Other
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
            raise _Other
        self._lengths = lengths
        return new  # type: ignore[no-any-return]

    def _fed(self, cell: Cell, outputs: Iterable[Symbol]) -> bool:
        sources = {_input_of(gate, cell) for gate in cell.gates}
        (source,) = sources if len(sources) == 1 else (None,)
        return source is not None and (source[0] == "step" or source in outputs)  # type: ignore[index]

    def _results(
        self, after: Sequence[Symbol], stacked: Sequence[Symbol], made: dict[int, Value],
        outputs: dict[Symbol, tuple[Value, Value]],
    ) -> list[Value]:  # fmt: skip
        from converter.lower.tf.loops import least

        op, found = self._op, []
        for i, (symbol, begin) in enumerate(zip(after, self._begin, strict=True)):
            if i in made:
                found.append(made[i])
            elif symbol == ("round",):
                found.append(op.cast(least(op, list(self._limits)), begin.dtype))
            else:
                _, number, row = symbol  # type: ignore[misc]
                if number != i or row not in outputs or self._lengths is not None:
                    raise _Other
                found.append(op.unsqueeze(outputs[row][1], [0]))
        for symbol in stacked:
            if self._lengths is not None:
                if isinstance(symbol, Linear) or symbol[:2] != ("where", self._lengths):
                    raise _Other
                if not self._is_zero(symbol[2]):
                    raise _Other
                symbol = symbol[3]
            if symbol not in outputs:
                raise _Other
            found.append(outputs[symbol][0])
        return found

    def _is_zero(self, symbol: Symbol) -> bool:
        if symbol == ("number", 0.0):
            return True
        return symbol[0] == "outer" and is_zero(self._op, self._outer(symbol[1]))  # type: ignore[index]

    # -- ONNX's operators ----------------------------------------------------------------------

    def _made_of(self, cell: Cell, outputs: dict[Symbol, tuple[Value, Value]]) -> list[Value]:
        """Return all outputs of a cell, and its last states."""
        op = self._op
        source = _input_of(cell.gates[0], cell)
        x = self._outer(source[1]) if source[0] == "step" else outputs[source][0]  # type: ignore[index]
        units = cell.gates[0].width
        begin = [self._begin[i] for i in cell.states]
        if x.dtype != "float32" or any(b.rank != 2 or b.shape[1] != units for b in begin):
            raise _Other
        if not all(self._covers(v, x.shape[0]) for v in self._limits):
            raise _Other
        kernel = self._matrix([_term(g, source) for g in cell.gates])
        hidden = [_hidden(g, cell) for g in cell.gates]
        recurrent = self._matrix(hidden)
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
        attributes: dict[str, Any] = {"hidden_size": units, **_activations(cell)}
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
        inside = [self._outer(n) for n in node.inputs if n]
        if node.op_type == "Min":
            return all(self._covers(v, steps) for v in inside)
        if node.op_type == "Max":
            return any(self._covers(v, steps) for v in inside)
        if node.op_type in stacks.MOVED:
            return self._covers(inside[0], steps)
        return node.op_type == "ReduceMax" and self._lengths == inside[0].name

    def _matrix(self, terms: Sequence[Term]) -> Value:
        """Return gates' matrices as ONNX has them: [1, gates * units, rows]."""
        op, parts = self._op, []
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


# -- the formulas ----------------------------------------------------------------------------------


def _activated(symbol: Symbol) -> Symbol:
    return ("act", LINEAR, symbol) if isinstance(symbol, Linear) else symbol


def _pairs(symbol: Symbol, kind: str) -> list[tuple[Symbol, Symbol]]:
    """Return the two operands of a sum or a product, in both orders."""
    if kind == "mul" and not isinstance(symbol, Linear) and symbol[0] == "reset":
        a, b = symbol[1], _activated(symbol[2])
        return [(a, b), (b, a)]
    if isinstance(symbol, Linear) or symbol[0] != kind or len(symbol[1]) != 2:
        return []
    a, b = symbol[1]
    return [(a, b), (b, a)]


def _gate(symbol: Symbol) -> tuple[Activation, Linear] | None:
    symbol = _activated(symbol)
    if symbol[0] == "act" and isinstance(symbol[2], Linear):  # type: ignore[index]
        return symbol[1], symbol[2]  # type: ignore[index]
    return None


def _cell(after: Sequence[Symbol], number: int) -> Cell | None:
    """Return the cell of which a state is the output."""
    return _lstm(after, number) or _gru(after, number) or _rnn(after, number)


def _lstm(after: Sequence[Symbol], number: int) -> Cell | None:
    """Match h = o * act(c), c = f * c + i * act(g)."""
    for out, active in _pairs(after[number], "mul"):
        o = _gate(out)
        kind, c = (active[1], active[2]) if active[0] == "act" else (LINEAR, active)  # type: ignore[index]
        if o is None or c not in after:
            continue
        place = list(after).index(c)
        for kept, new in _pairs(c, "add"):
            for forget, before in _pairs(kept, "mul"):
                f = _gate(forget)
                if f is None or before != ("state", place):
                    continue
                for first, second in _pairs(new, "mul"):
                    i, g = _gate(first), _gate(second)
                    if i is None or g is None or not i[0] == f[0] == o[0]:
                        continue
                    gates = [i[1], o[1], f[1], g[1]]
                    seen = [("state", place), c, ("state", place), None]
                    peepholes = _peepholes(gates, seen)
                    cell = Cell("LSTM", [number, place], after[number], gates, [o[0], g[0], kind])
                    if peepholes is None or not all(_is_recurrent(x, cell) for x in gates):
                        continue
                    cell.peepholes = peepholes
                    return cell
    return None


def _peepholes(gates: Sequence[Linear], seen: "Sequence[Symbol | None]") -> list[str] | None:
    """Return the vectors of i, o and f, none for none, or None where they are no such thing."""
    found = [g.peepholes for g in gates]
    if not any(found):
        return []
    if found[3] or any(len(p) != 1 for p in found[:3]):
        return None
    if any(p[0][1] != s for p, s in zip(found[:3], seen, strict=False)):
        return None
    return [p[0][0] for p in found[:3]]


def _gru(after: Sequence[Symbol], number: int) -> Cell | None:
    """Match h = z * h + (1 - z) * act(g), g with r before or after the product of h."""
    own = ("state", number)
    for kept, new in _pairs(after[number], "add"):
        for update, before in _pairs(kept, "mul"):
            z = _gate(update)
            if z is None or before != own:
                continue
            for rest, candidate in _pairs(new, "mul"):
                if rest != ("rest", update) or candidate[0] != "act":  # type: ignore[index]
                    continue
                found = _candidate(candidate[2], own)  # type: ignore[index]
                if found is None:
                    continue
                reset, g, inner = found
                r = _gate(reset)
                if r is None or r[0] != z[0]:
                    continue
                activations = [z[0], candidate[1]]  # type: ignore[index]
                gates = [z[1], r[1], g]
                cell = Cell("GRU", [number], after[number], gates, activations, inner)
                if any(x.peepholes for x in gates) or len(g.terms) != (2 if inner is None else 1):
                    continue
                if all(_is_recurrent(x, cell) for x in gates[:2]):
                    return cell
    return None


def _candidate(symbol: Symbol, own: Symbol) -> tuple[Symbol, Linear, Linear | None] | None:
    """Return the reset gate, the sum, and the product of the state where it is reset behind it."""
    if not isinstance(symbol, Linear):
        if symbol[0] != "reset sum":
            return None
        _, outer, reset, inner = symbol
        terms = [t.source for t in inner.terms]
        return (reset, outer, inner) if terms == [own] and not inner.peepholes else None
    for term in symbol.terms:
        for reset, before in _pairs(term.source, "mul"):
            if before == own and _gate(reset) is not None:
                return reset, symbol, None
    return None


def _rnn(after: Sequence[Symbol], number: int) -> Cell | None:
    """Match h = act(g)."""
    found = _gate(after[number])
    if found is None or found[1].peepholes:
        return None
    cell = Cell("RNN", [number], after[number], [found[1]], [found[0]])
    return cell if _is_recurrent(found[1], cell) else None


def _is_recurrent(gate: Linear, cell: Cell) -> bool:
    """Tell whether a gate is a product of the input and one of the state."""
    own = ("state", cell.states[0])
    return len(gate.terms) == 2 and sum(t.source == own for t in gate.terms) == 1


def _is_hidden(term: Term, cell: Cell) -> bool:
    own = ("state", cell.states[0])
    source = term.source
    if source == own:
        return True
    return cell.op_type == "GRU" and any(b == own for _, b in _pairs(source, "mul"))


def _input_of(gate: Linear, cell: Cell) -> "Symbol | None":
    others = [t.source for t in gate.terms if not _is_hidden(t, cell)]
    return others[0] if len(others) == 1 else None


def _term(gate: Linear, source: "Symbol | None") -> Term:
    return next(t for t in gate.terms if t.source == source)


def _hidden(gate: Linear, cell: Cell) -> Term:
    """Return the product with the state."""
    if cell.inner is not None and gate is cell.gates[-1]:
        return cell.inner.terms[0]
    return next(t for t in gate.terms if _is_hidden(t, cell))


def _activations(cell: Cell) -> dict[str, Any]:
    usual = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
    names = [name for name, _, _ in cell.activations]
    if names == usual[cell.op_type]:
        return {}
    found: dict[str, Any] = {"activations": names}
    alphas = [float(a) for _, a, _ in cell.activations if a is not None]
    betas = [float(b) for _, _, b in cell.activations if b is not None]
    if alphas:
        found["activation_alpha"] = alphas  # of those that have one
    if betas:
        found["activation_beta"] = betas
    return found
