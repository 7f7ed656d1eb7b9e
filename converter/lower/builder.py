"""Basic operations for all front ends: one method each, which adds one node or a few.

Axes are in the source's order; the methods choose the graph's order (see `converter.lower.values`).
"""

from collections.abc import Sequence

import numpy as np

from converter.lower.graph import Attribute, Dim, Shape
from converter.lower.node_builder import NodeBuilder, Operand
from converter.lower.values import Permutation, Value, broadcast, identity, without

# fmt: off
COMPARISONS = frozenset((
    "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not",
    "IsNaN", "IsInf",
))
# fmt: on


class Builder(NodeBuilder):
    """A graph being built, operation by operation."""

    # -- elementwise -------------------------------------------------------------------------

    def unary(
        self, op_type: str, x: Value, *, dtype: str | None = None, **attributes: Attribute
    ) -> Value:
        """Apply an operation to each element."""
        kind = dtype or ("bool" if op_type in COMPARISONS else x.dtype)
        return self.node(op_type, [x], [(kind, x.shape)], attributes=attributes, stored=x.stored)[0]

    def elementwise(
        self, op_type: str, *operands: Operand, dtype: str | None = None, **attributes: Attribute
    ) -> Value:
        """Apply an elementwise operation to several values, which are broadcast."""
        like = next(v for v in reversed(operands) if isinstance(v, Value))
        for v in operands:
            if isinstance(v, Value) and v.dtype != "bool":
                like = v
                break
        values = [self.value(v, like) for v in operands]
        shape: Shape = ()
        for v in values:
            shape = broadcast(shape, v.shape)
        order = next(
            (
                v.stored
                for v in sorted(values, key=lambda v: v.is_constant)
                if v.rank == len(shape) and not v.is_plain
            ),
            identity(len(shape)),
        )
        kind = dtype or ("bool" if op_type in COMPARISONS else like.dtype)
        aligned = [self._aligned(v, order) for v in values]
        return self.node(op_type, aligned, [(kind, shape)], attributes=attributes, stored=order)[0]

    def _aligned(self, value: Value, order: Permutation) -> Value:
        """Return a value that broadcasts correctly against values stored in this order of axes."""
        if value.rank == len(order):
            return self.kept(value, order)
        if value.rank == 0 or order == identity(len(order)):
            return self.plain(value)
        return self.kept(self.unsqueeze(value, range(len(order) - value.rank)), order)

    def add(self, a: Operand, b: Operand) -> Value:
        """`a + b`."""
        return self.elementwise("Add", a, b)

    def sub(self, a: Operand, b: Operand) -> Value:
        """`a - b`."""
        return self.elementwise("Sub", a, b)

    def mul(self, a: Operand, b: Operand) -> Value:
        """`a * b`."""
        return self.elementwise("Mul", a, b)

    def div(self, a: Operand, b: Operand) -> Value:
        """`a / b`; integer quotients are truncated towards zero."""
        return self.elementwise("Div", a, b)

    def where(self, condition: Value, a: Operand, b: Operand) -> Value:
        """`a` where the condition holds, else `b`."""
        like = a if isinstance(a, Value) else b
        if isinstance(like, Value) and like.dtype == "bool":
            # onnxruntime's Where does not support booleans.
            a, b = self.value(a, like), self.value(b, like)
            other = self.elementwise("And", self.unary("Not", condition), b)
            return self.elementwise("Or", self.elementwise("And", condition, a), other)
        return self.elementwise("Where", condition, a, b)

    def clip(self, x: Value, low: float | None, high: float | None) -> Value:
        """Clip x to two bounds; None means no bound."""
        bounds = [None if n is None else self.constant(n, x.dtype) for n in (low, high)]
        return self.node("Clip", [x, *bounds], [(x.dtype, x.shape)], stored=x.stored)[0]

    # -- axes --------------------------------------------------------------------------------

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """Transpose x: axis ``i`` of the result is axis ``order[i]`` of x."""
        return x.transposed(order)

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        """Reshape x; at most one unknown size may differ from the sizes of x."""
        shape = tuple(shape)
        x = self.plain(x)
        if shape == x.shape and all(n is not None for n in shape):
            return x
        zero = {"allowzero": 1} if 0 in shape and all(isinstance(n, int) for n in shape) else {}
        return self.emit("Reshape", x, self.sizes(x, shape), dtype=x.dtype, shape=shape, **zero)

    def sizes(self, x: Value, shape: Shape) -> Value:
        """Return a shape as a tensor; unknown sizes are those of ``x``, or -1 for one of them."""
        unknown = [i for i, n in enumerate(shape) if not isinstance(n, int)]
        if len(unknown) <= 1:
            return self.constant([n if isinstance(n, int) else -1 for n in shape], "int64")
        parts: list[Value] = []
        free = 0
        for i, n in enumerate(shape):
            axis = i if i < x.rank and x.shape[i] == n and n is not None else None
            if axis is None and isinstance(n, str) and n in x.shape:
                axis = x.shape.index(n)
            if isinstance(n, int):
                parts.append(self.constant([n], "int64"))
            elif axis is not None:
                parts.append(self.size(x, axis))
            else:
                free += 1
                parts.append(self.constant([-1], "int64"))
        if free > 1:
            raise ValueError(f"shape {shape} has {free} sizes that cannot be inferred")
        return self.concat(parts, 0)

    def size(self, x: Value, axis: int) -> Value:
        """Return the size of an axis as a vector of one element."""
        n = x.shape[axis]
        if isinstance(n, int):
            return self.constant([n], "int64")
        where = x.stored.index(axis)
        (found,) = self.node(
            "Shape", [x], [("int64", (1,))], attributes={"start": where, "end": where + 1}
        )
        return found

    def unsqueeze(self, x: Value, axes: Sequence[int]) -> Value:
        """Insert axes of size 1 at these indices of the result."""
        rank = x.rank + len(axes)
        places = sorted(a + rank if a < 0 else a for a in axes)
        rest = iter(x.shape)
        shape: Shape = tuple(1 if i in places else next(rest) for i in range(rank))
        # The stored order is kept; each new axis is inserted before the axis that follows it.
        kept = [i for i in range(rank) if i not in places]
        order = [kept[axis] for axis in x.stored]
        for place in reversed(places):
            order.insert(order.index(place + 1) if place + 1 < rank else len(order), place)
        axes_in = self.constant(sorted(order.index(place) for place in places), "int64")
        return self.node("Unsqueeze", [x, axes_in], [(x.dtype, shape)], stored=tuple(order))[0]

    def squeeze(self, x: Value, axes: Sequence[int]) -> Value:
        """Remove axes of size 1."""
        places = sorted(x.axis(a) for a in axes)
        stored = sorted(x.stored.index(a) for a in places)
        shape = tuple(n for i, n in enumerate(x.shape) if i not in places)
        axes_in = self.constant(stored, "int64")
        order = without(x.stored, places)
        return self.node("Squeeze", [x, axes_in], [(x.dtype, shape)], stored=order)[0]

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """Concatenate values along an axis."""
        if len(values) == 1:
            return values[0]
        axis = values[0].axis(axis)
        orders = [v.stored for v in values if not v.is_plain]
        order = orders[0] if orders else values[0].stored
        sizes = [v.shape[axis] for v in values]
        shape: Shape = tuple(
            total_of(sizes) if i == axis else known([v.shape[i] for v in values])
            for i in range(values[0].rank)
        )
        kept = [self.kept(v, order) for v in values]
        dtype = values[0].dtype
        where = order.index(axis)
        return self.node(
            "Concat", kept, [(dtype, shape)], attributes={"axis": where}, stored=order
        )[0]

    def slice(
        self, x: Value, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int],
        steps: Sequence[int] | None = None,
    ) -> Value:  # fmt: skip
        """Slice x along axes, with Python's bounds; an end of 2**31 or more means the end."""
        places = [x.axis(a) for a in axes]
        steps = list(steps) if steps is not None else [1] * len(places)
        shape = list(x.shape)
        for a, start, end, step in zip(places, starts, ends, steps, strict=True):
            n = shape[a]
            if isinstance(n, int):
                stop = None if step < 0 and end < -n else end
                shape[a] = len(range(n)[slice(start, stop, step)])
            elif (start, step) not in ((0, 1), (-1, -1)) or abs(end) < END:
                shape[a] = None
        stored = [x.stored.index(a) for a in places]
        inputs = [
            self.constant(list(numbers), "int64") for numbers in (starts, ends, stored, steps)
        ]
        return self.node("Slice", [x, *inputs], [(x.dtype, tuple(shape))], stored=x.stored)[0]

    def split(self, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
        """Split x along an axis."""
        axis = x.axis(axis)
        shapes = [(x.dtype, (*x.shape[:axis], n, *x.shape[axis + 1 :])) for n in sizes]
        cuts = self.constant(list(sizes), "int64")
        return self.node(
            "Split", [x, cuts], shapes, attributes={"axis": x.stored.index(axis)}, stored=x.stored
        )

    def pad(
        self, x: Value, before: Sequence[int], after: Sequence[int], *, mode: str = "constant",
        value: float | Value | None = None,
    ) -> Value:  # fmt: skip
        """Pad x before and after each axis; the constant is zero by default."""
        if not any(before) and not any(after):
            return x
        shape = tuple(
            n + b + a if isinstance(n, int) else (n if a + b == 0 else None)
            for n, b, a in zip(x.shape, before, after, strict=True)
        )
        pads = [before[i] for i in x.stored] + [after[i] for i in x.stored]
        fill = self.constant(value, x.dtype) if isinstance(value, int | float) else value
        inputs = [x, self.constant(pads, "int64"), fill]
        return self.node(
            "Pad", inputs, [(x.dtype, shape)], attributes={"mode": mode}, stored=x.stored
        )[0]

    def expand(self, x: Value, shape: Shape, like: Value | None = None) -> Value:
        """Broadcast x to a shape whose unknown sizes are those of ``like``."""
        source = like if like is not None else x
        return self.emit("Expand", x, self.sizes_of(source, shape), dtype=x.dtype, shape=shape)

    def sizes_of(self, like: Value, shape: Shape) -> Value:
        """Return a shape as a tensor; each unknown size is that of the same axis of ``like``."""
        if all(isinstance(n, int) for n in shape):
            return self.constant(list(shape), "int64")
        parts = []
        for i, n in enumerate(shape):
            if isinstance(n, int):
                parts.append(self.constant([n], "int64"))
            else:
                axis = like.shape.index(n) if n is not None and n in like.shape else i
                parts.append(self.size(like, axis))
        return self.concat(parts, 0)

    def gather(self, x: Value, indices: Value, axis: int = 0) -> Value:
        """Gather elements of x along an axis by index."""
        axis = x.axis(axis)
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        if x.dtype == "string" and axis < x.rank - 1:
            return self._gathered_texts(x, indices, axis)
        return self.emit("Gather", x, indices, dtype=x.dtype, shape=shape, axis=axis)

    def _gathered_texts(self, x: Value, indices: Value, axis: int) -> Value:
        """Gather slices of strings by GatherND: onnxruntime 1.31's Gather copies only the first."""
        first = x.transposed([axis, *(i for i in range(x.rank) if i != axis)])
        places = self.unsqueeze(self.cast(indices, "int64"), [-1])
        shape = (*indices.shape, *first.shape[1:])
        made = self.emit("GatherND", first, places, dtype=x.dtype, shape=shape)
        count = indices.rank
        before = range(count, count + axis)
        return made.transposed([*before, *range(count), *range(count + axis, made.rank)])

    # -- reductions and products -------------------------------------------------------------

    def reduce(
        self, op_type: str, x: Value, axes: Sequence[int], *, keepdims: bool = False
    ) -> Value:
        """Reduce x over axes by ``ReduceSum``, ``ReduceMean``, ``ReduceMax`` or another op."""
        places = sorted(x.axis(a) for a in axes)
        stored = sorted(x.stored.index(a) for a in places)
        if keepdims:
            shape: Shape = tuple(1 if i in places else n for i, n in enumerate(x.shape))
            order = x.stored
        else:
            shape = tuple(n for i, n in enumerate(x.shape) if i not in places)
            order = without(x.stored, places)
        made = self.node(
            op_type,
            [x, self.constant(stored, "int64")],
            [(x.dtype, shape)],
            attributes={"keepdims": int(keepdims)},
            stored=order,
        )[0]
        if op_type == "ReduceMean" and any(x.shape[a] == 0 for a in places) and x.is_float:
            return self.mul(made, float("nan"))  # onnxruntime's mean of no elements is 0
        return made

    def softmax(self, x: Value, axis: int = -1, op_type: str = "Softmax") -> Value:
        """Softmax or LogSoftmax along an axis."""
        where = x.stored.index(x.axis(axis))
        return self.node(
            op_type, [x], [(x.dtype, x.shape)], attributes={"axis": where}, stored=x.stored
        )[0]

    def matmul(self, a: Value, b: Value) -> Value:
        """Matrix product, as in NumPy; neither operand may be a vector."""
        if a.rank == 1 or b.rank == 1:
            raise ValueError("matmul of a vector")
        shape = (*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        sizes = [n for n in shape if isinstance(n, int)]
        if a.shape[-1] == 0 and len(sizes) == len(shape):  # onnxruntime leaves what was in memory
            return self.constant(np.zeros(sizes), a.dtype)
        return self.emit("MatMul", a, b, dtype=a.dtype, shape=shape)


END = 1 << 31  # end of a slice that means the end of the axis


def total_of(sizes: Sequence[Dim]) -> Dim:
    """Return the sum of sizes, or None where one is not static."""
    known_sizes = [n for n in sizes if isinstance(n, int)]
    return sum(known_sizes) if len(known_sizes) == len(sizes) else None


def known(sizes: Sequence[Dim]) -> Dim:
    """Return one of several equal sizes: a static one, else a symbolic one, else None."""
    for kind in (int, str):
        for n in sizes:
            if isinstance(n, kind):
                return n
    return None
