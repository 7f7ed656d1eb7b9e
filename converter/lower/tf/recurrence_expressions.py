"""Read a loop's iteration as expressions of its states and of the time step's input.

See `recurrence`, which finds cells in them.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import numpy as np

from converter.lower.graph import Dim, Graph, Node
from converter.lower.tf import stacks
from converter.lower.tf.context import Context
from converter.lower.tf.recurrence_cells import activated
from converter.lower.tf.recurrence_terms import ACTIVATIONS, Linear, Other, Pair, Symbol, Term
from converter.lower.values import Value


class ExpressionReader:
    """Reads the expressions of one loop's body.

    Attributes:
        symbols: Names of values -> the expressions read.
    """

    def __init__(self, op: Context, body: Graph, counters: set[str]) -> None:
        self.symbols: dict[str, Symbol] = {}
        self._op = op
        self._body = body
        self._counters = counters
        self._made = {name: n for n in body.nodes for name in n.outputs}
        self._numbers = {name: i for i, name in enumerate(body.inputs[2:])}
        self._pairs: dict[tuple[str, frozenset[Symbol]], Pair] = {}

    def read(self, name: str) -> Symbol:
        """Return the expression of a value of the body.

        Raises:
            Other: It is part of no recurrent cell.
        """
        found = self.symbols.get(name)
        if found is None:
            found = self.symbols[name] = self._read_node(name)
        return found

    def _read_node(self, name: str) -> Symbol:
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
        reader = getattr(self, f"_read_{node.op_type.lower()}", None)
        if reader is not None:
            return reader(node, name)
        if node.op_type in ACTIVATIONS:
            return self._activation(node)
        raise Other

    def _pair(self, kind: str, a: Symbol, b: Symbol) -> Pair:
        operands = frozenset((a, b))
        return self._pairs.setdefault((kind, operands), Pair(kind, operands))

    def _number(self, name: str) -> float | None:
        """Return the number of a scalar constant; None of any other value."""
        if self._shape(name) not in ((), (1,)):
            return None
        found = self._op.static(self.outer(name))
        return None if found is None or found.dtype.kind not in "fiu" else float(found.reshape(()))

    def _shape(self, name: str) -> tuple[Dim, ...]:
        return self._body.specs[name].shape

    def outer(self, name: str) -> Value:
        """Return a value from outside the loop."""
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

    def _read_identity(self, node: Node, name: str) -> Symbol:
        del name
        return self.read(node.inputs[0])

    def _read_cast(self, node: Node, name: str) -> Symbol:
        found = self.read(node.inputs[0])
        before, after = (self._body.specs[n].dtype for n in (node.inputs[0], name))
        if found != ("round",) and before != after:
            raise Other
        return found

    def _read_gather(self, node: Node, name: str) -> Symbol:
        del name
        source, index = (self.read(n) for n in node.inputs)
        rank = len(self._shape(node.inputs[0]))
        if source[0] != "outer" or index != ("round",) or node.attributes.get("axis", 0) != 0:
            raise Other
        if rank != 3:
            raise Other
        return ("step", node.inputs[0])

    def _read_concat(self, node: Node, name: str) -> Symbol:
        if len(self._shape(name)) != 2 or node.attributes["axis"] not in (1, -1):
            raise Other
        widths = [self._shape(n)[1] for n in node.inputs]
        if not all(isinstance(n, int) for n in widths):
            raise Other
        parts = [self.read(n) for n in node.inputs]
        return ("cat", tuple(zip(parts, widths, strict=True)))

    def _read_matmul(self, node: Node, name: str) -> Symbol:
        del name
        left, right = (self.read(n) for n in node.inputs)
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

    def _read_split(self, node: Node, name: str) -> Symbol:
        if node.attributes.get("axis", 0) not in (1, -1):
            raise Other
        sizes = self._op.static(self.outer(node.inputs[1]))
        if sizes is None:
            raise Other
        number = node.outputs.index(name)
        start = int(sizes[:number].sum())
        return self._cut(self.read(node.inputs[0]), start, start + int(sizes[number]))

    def _read_slice(self, node: Node, name: str) -> Symbol:
        del name
        parts = [self._op.static(self.outer(n)) for n in node.inputs[1:]]
        if any(p is None or p.size != 1 for p in parts) or len(parts) != 4:
            raise Other
        start, end, axis, step = (int(p[0]) for p in parts if p is not None)
        width = self._shape(node.inputs[0])[-1]
        if axis not in (1, -1) or step != 1 or not isinstance(width, int):
            raise Other
        first, last, _ = slice(start, end).indices(width)
        return self._cut(self.read(node.inputs[0]), first, last)

    def _cut(self, symbol: Symbol, start: int, end: int) -> Symbol:
        if isinstance(symbol, Linear):
            return symbol.cut(start, end)
        if symbol[0] == "act":
            return ("act", symbol[1], self._cut(symbol[2], start, end))
        raise Other

    def _read_add(self, node: Node, name: str) -> Symbol:
        a, b = (self.read(n) for n in node.inputs)
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
        """Return the size of a vector or of a matrix of one row, else None."""
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

    def _read_sub(self, node: Node, name: str) -> Symbol:
        del name
        a, b = (self.read(n) for n in node.inputs)
        if a != ("number", 1.0):
            raise Other
        return ("rest", b)

    def _read_expand(self, node: Node, name: str) -> Symbol:
        """Return a broadcast number and its shape, which the reader of it has to check."""
        found = self.read(node.inputs[0])
        if found[0] != "number" or None in self._shape(name):
            raise Other
        return ("numbers", found[1], self._shape(name))

    def _read_mul(self, node: Node, name: str) -> Symbol:
        a, b = (self.read(n) for n in node.inputs)
        for one, other in ((a, b), (b, a)):
            if one == ("numbers", 1.0, self._shape(name)):
                return other  # the mask of an inactive dropout
        for one, other in ((a, b), (b, a)):
            if one[0] == "number":
                return self._scaled(other, one[1])
            if one[0] == "act" and isinstance(other, Linear):
                return ("reset", one, other)
        if isinstance(a, Linear) or isinstance(b, Linear):
            # A linear activation: the sum itself.
            return self._pair("mul", activated(a), activated(b))
        return self._pair("mul", a, b)

    def _activation(self, node: Node) -> Symbol:
        alpha, beta = ACTIVATIONS[node.op_type]
        given = node.attributes
        kind = (node.op_type, given.get("alpha", alpha), given.get("beta", beta))
        return ("act", kind, self.read(node.inputs[0]))

    def _read_clip(self, node: Node, name: str) -> Symbol:
        del name
        low, high, *_ = [*(self._number(n) if n else None for n in node.inputs[1:]), None, None]
        return self._between(self.read(node.inputs[0]), low, high)

    def _read_min(self, node: Node, name: str) -> Symbol:
        del name
        return self._bounded(node, lambda x, n: self._between(x, None, n))

    def _read_max(self, node: Node, name: str) -> Symbol:
        del name
        return self._bounded(node, lambda x, n: self._between(x, n, None))

    def _bounded(self, node: Node, apply: Callable[[Symbol, float], Symbol]) -> Symbol:
        for one, other in permutations([self.read(n) for n in node.inputs]):
            if other[0] == "number":
                return apply(one, other[1])
        raise Other

    def _between(self, symbol: Symbol, low: float | None, high: float | None) -> Symbol:
        """Return a clipped symbol; clipping to [0, 1] is the hard sigmoid."""
        if symbol[0] == "clipped":
            low = symbol[1] if low is None else low
            high, symbol = (symbol[2] if high is None else high), symbol[3]
        if symbol[0] == "scaled" and (low, high) == (0.0, 1.0):
            return ("act", ("HardSigmoid", symbol[1], symbol[2]), symbol[3])
        if symbol[0] in ("scaled", "linear"):
            return ("clipped", low, high, symbol)
        raise Other

    def _read_div(self, node: Node, name: str) -> Symbol:
        del name
        found, by = (self.read(n) for n in node.inputs)
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

    # -- sequence lengths and outputs ----------------------------------------------------------

    def _read_greaterorequal(self, node: Node, name: str) -> Symbol:
        del name
        a, b = (self.read(n) for n in node.inputs)
        if a != ("round",) or b[0] != "outer" or len(self._shape(node.inputs[1])) != 1:
            raise Other
        return ("done", node.inputs[1])

    def _read_unsqueeze(self, node: Node, name: str) -> Symbol:
        found = self.read(node.inputs[0])
        shape = self._shape(name)
        if not isinstance(found, Linear) and found[0] == "done":
            if len(shape) == 2 and shape[1] == 1:
                return found
        elif len(shape) == 3 and shape[0] == 1:
            return ("row", found)
        raise Other

    def _read_where(self, node: Node, name: str) -> Symbol:
        del name
        condition, a, b = (self.read(n) for n in node.inputs)
        if isinstance(condition, Linear) or condition[0] != "done":
            raise Other
        return ("where", condition[1], a, b)

    def _read_scatternd(self, node: Node, name: str) -> Symbol:
        """Read a list of one element that every iteration overwrites."""
        into, row = self.read(node.inputs[0]), self.read(node.inputs[2])
        places = self._op.static(self.outer(node.inputs[1]))
        if places is None:
            places = self._constant_index(node.inputs[1])
        if into[0] != "state" or row[0] != "row" or self._shape(name)[0] != 1:
            raise Other
        if places is None or places.tolist() != [[0]]:
            raise Other
        return ("last", into[1], row[1])

    def _constant_index(self, name: str) -> "np.ndarray | None":
        """Return a constant index that is only cast and reshaped, else None."""
        shape = self._shape(name)
        while True:
            node = next((n for n in self._op.enclosing[-1].nodes if name in n.outputs), None)
            if node is None or node.op_type not in stacks.MOVED:
                break
            name = node.inputs[0]
        found = self._op.static(self.outer(name)) if name in self._op.graph.specs else None
        if found is None or not all(isinstance(n, int) for n in shape):
            return None
        return found.reshape([int(n) for n in shape if isinstance(n, int)])
