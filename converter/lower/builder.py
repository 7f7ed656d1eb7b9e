"""Nodes, one call each, with the dtypes and shapes of what they yield.

The methods take the source's order of axes and choose the graph's (see `converter.lower.values`).
Shapes are inferred here, because importing onnx takes as long as converting a model; tests compare
them with onnx's own inference.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from converter.lower import legalize
from converter.lower.double import FORMS
from converter.lower.graph import Attribute, Dim, Graph, Node, Shape, Spec, Weight
from converter.lower.unsupported import Unsupported
from converter.lower.values import Permutation, Value, broadcast, identity, inverse, without
from formats.core.weights import Tensor, numpy_dtype

Operand: TypeAlias = Value | float | int | bool

# fmt: off
COMPARISONS = frozenset((
    "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not",
    "IsNaN", "IsInf",
))
# fmt: on


class Builder:
    """A graph being built.

    Attributes:
        graph: The graph so far.
        weights: Tensors that its initializers may name.
        supplies: What the user's modules supply beside the source's own words, if anything.
        spent: What walking through code of the source's has cost so far, where there is any.
    """

    supplies: Any = None
    spent: Any = None

    def __init__(self, graph: Graph, weights: Mapping[str, Tensor]) -> None:
        self.graph = graph
        self.weights = weights
        # Tensors that inference does not read, as what knows their layer says.
        self.left: set[str] = set()
        self._outermost = graph
        self._scope: list[str] = []
        self._counts: dict[str, int] = {}
        self._constants: dict[object, Value] = {}
        self._called: dict[str, str] = {}  # tensors of the bundle -> their names in the graph
        self._cache: dict[object, Value] = {}

    # -- what comes in -----------------------------------------------------------------------

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Name what is built inside after a layer."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()

    @contextmanager
    def body(self, name: str) -> Iterator[Graph]:
        """Build an inner graph, as a loop's; it sees what is outside, and constants stay there."""
        outer, cache = self.graph, dict(self._cache)
        self.graph = Graph(
            self.unique(name), outer.opset, specs=outer.specs, initializers=outer.initializers
        )
        try:
            yield self.graph
        finally:
            self.graph.initializers = {}
            self.graph, self._cache = outer, cache

    def input(self, name: str, dtype: str, shape: Shape) -> Value:
        """Add an input to the graph.

        Raises:
            ValueError: ONNX has no such dtype.
        """
        if dtype not in ELEMENT_TYPES:
            raise ValueError(f"an input of dtype {dtype!r}")
        self.graph.inputs.append(name)
        self.graph.specs[name] = Spec(dtype, shape)
        self._counts.setdefault(name, 1)
        return Value(name, dtype, shape, identity(len(shape)))

    @property
    def is_outermost(self) -> bool:
        """Whether what is built is no part of a loop or a branch."""
        return self.graph is self._outermost

    def late_input(self, name: str, dtype: str, shape: Shape) -> str:
        """Add an input to the graph as a whole, wherever what is built stands; return its name.

        Raises:
            Unsupported: ONNX has no such dtype.
        """
        if dtype not in ELEMENT_TYPES:
            raise Unsupported(f"an input of dtype {dtype!r}")
        found = self._fresh(name)
        self._outermost.inputs.append(found)
        self._outermost.specs[found] = self.graph.specs[found] = Spec(dtype, shape)
        return found

    def output(self, value: Value, name: str) -> None:
        """Make a value an output of the graph under a name of its own."""
        self.graph.nodes.append(
            Node("Identity", [self.plain(value).name], [name], {}, f"output/{name}")
        )
        self.graph.specs[name] = Spec(value.dtype, value.shape)
        self.graph.outputs.append(name)

    def weight(self, tensor: str) -> Value:
        """Return a tensor of the bundle as it is stored there."""
        found = self.weights[tensor]
        name = self._called.get(tensor)
        if name is None:
            name = self._called[tensor] = (
                tensor if tensor not in self._counts else self._fresh(tensor)
            )
        self.graph.initializers.setdefault(name, Weight(tensor))
        self.graph.specs[name] = Spec(found.dtype.name, found.shape)
        self._counts.setdefault(name, 1)
        return Value(
            name, found.dtype.name, found.shape, identity(len(found.shape)), is_constant=True
        )

    def constant(self, value: object, dtype: str | None = None) -> Value:
        """Return a small constant; equal ones are one."""
        if dtype == "bfloat16":
            return self.cast(self.constant(value, "float32"), dtype)
        array = np.asarray(value, numpy_type(dtype) if dtype else None)
        if dtype is None and array.dtype == np.float64 and not isinstance(value, np.ndarray):
            array = array.astype(np.float32)
        kind = "string" if array.dtype.kind in "OUS" else array.dtype.name
        key = (kind, array.shape, array.tobytes() if kind != "string" else tuple(array.flat))
        if key not in self._constants:
            name = self.unique("const")
            self.graph.initializers[name] = array
            self.graph.specs[name] = Spec(kind, array.shape)
            self._constants[key] = Value(
                name, kind, array.shape, identity(array.ndim), is_constant=True
            )
        return self._constants[key]

    def value(self, operand: Operand, like: Value) -> Value:
        """Return an operand as a value: a number becomes a constant of ``like``'s dtype."""
        return operand if isinstance(operand, Value) else self.constant(operand, like.dtype)

    def array(self, value: Value) -> "np.ndarray | None":
        """Return a small constant's array, or None for anything else."""
        found = self.graph.initializers.get(value.name)
        if isinstance(found, np.ndarray) and value.is_plain:
            return found
        return None

    def reserve(self, names: Iterable[str]) -> None:
        """Keep names for the graph's inputs and outputs: nothing else gets one of them."""
        for name in names:
            self._counts.setdefault(name, 1)

    def unique(self, base: str) -> str:
        """Return a name that nothing has, in the current scope."""
        return self._fresh("/".join([*self._scope, base]))

    def _fresh(self, name: str) -> str:
        count = self._counts.get(name, 0) + 1
        found = name if count == 1 else f"{name}_{count}"
        while found in self._counts:
            count += 1
            found = f"{name}_{count}"
        self._counts[name] = count
        self._counts.setdefault(found, 1)
        return found

    def note(self, text: str) -> None:
        """Tell the reader of the graph something, once."""
        if text not in self._outermost.notes:
            self._outermost.notes.append(text)

    # -- what every operation is made with ---------------------------------------------------

    def node(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[tuple[str, Shape]],
        *,
        attributes: Mapping[str, Attribute] | None = None,
        stored: Permutation | None = None,
        domain: str = "",
    ) -> list[Value]:
        """Add a node whose inputs stand in the graph as they are, and return its outputs.

        Args:
            op_type: ONNX's name.
            inputs: None where an optional one is left out.
            outputs: dtype and shape of each, in the source's order of axes.
            attributes: Under ONNX's names.
            stored: Order of axes that the outputs have in the graph; the source's by default.
            domain: Of the operator, where it is not ONNX's own.

        Where onnxruntime has no kernel of a dtype, `legalize` says what is cast or made instead.

        Raises:
            Unsupported: There is no kernel, and nothing in its place.
        """
        dtypes = [None if v is None else v.dtype for v in inputs]
        replacement = None if domain else legalize.find_replacement(op_type, dtypes)
        if replacement is not None:
            if replacement.by_form:
                (_, shape), *_ = outputs
                found = FORMS[op_type](self, *inputs, **(attributes or {}))
                if found is not None:
                    return [replace(found, shape=shape)]
            return self._replace(
                replacement, op_type, inputs, outputs, attributes=attributes, stored=stored
            )
        for value in (attributes or {}).values():
            _check_range(value)
        if not domain:
            self.check(op_type, inputs, attributes or {})
        constant = all(v.is_constant for v in inputs if v is not None) and bool(inputs)
        name = self.unique(op_type)
        names = [name if len(outputs) == 1 else f"{name}:{i}" for i in range(len(outputs))]
        names_in = ["" if v is None else v.name for v in inputs]
        while names_in and not names_in[-1]:
            names_in.pop()
        # What is constant is made once, and never inside a loop.
        graph = self._outermost if constant else self.graph
        graph.nodes.append(Node(op_type, names_in, names, dict(attributes or {}), name, domain))
        result = []
        for out, (dtype, shape) in zip(names, outputs, strict=True):
            order = identity(len(shape)) if stored is None else stored
            self.graph.specs[out] = Spec(dtype, tuple(shape[i] for i in order))
            result.append(Value(out, dtype, tuple(shape), order, constant))
        return result

    def _replace(
        self,
        replacement: legalize.Replacement,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[tuple[str, Shape]],
        *,
        attributes: Mapping[str, Attribute] | None,
        stored: Permutation | None,
    ) -> list[Value]:
        """Add a node whose operands of one dtype are cast to another, and cast its outputs back."""
        lacking, wide, _, keeps_order = replacement
        if lacking == "float64":
            narrowed = self._outermost.narrowed
            narrowed[op_type] = narrowed.get(op_type, 0) + 1
        cast = self._flip_sign if keeps_order else self.cast
        is_index = op_type in legalize.MAKES_INDICES
        made = self.node(
            op_type,
            [cast(v, wide) if v and v.dtype == lacking else v for v in inputs],
            [(wide if d == lacking and not is_index else d, shape) for d, shape in outputs],
            attributes=attributes,
            stored=stored,
        )
        return [
            cast(v, dtype) if v.dtype != dtype else v
            for v, (dtype, _) in zip(made, outputs, strict=True)
        ]

    def _flip_sign(self, x: Value, dtype: str) -> Value:
        """Return uint64 as int64 of the same order, or the other way round."""
        flipped = self.elementwise("BitwiseXor", self.cast(x, "int64"), -(1 << 63))
        return self.cast(flipped, dtype)

    def check(
        self, op_type: str, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]
    ) -> None:
        """Raise where a node would not do; a source that is typed already needs no such check."""

    def emit(
        self, op_type: str, *inputs: Value | None, dtype: str, shape: Shape, **attributes: Attribute
    ) -> Value:
        """Add a node with one output whose operands must have the source's order of axes."""
        plain = [None if v is None else self.plain(v) for v in inputs]
        return self.node(op_type, plain, [(dtype, shape)], attributes=attributes)[0]

    def kept(self, value: Value, stored: Permutation) -> Value:
        """Return a value that stands in the graph with its axes in this order."""
        if value.stored == stored:
            return value
        key = ("kept", value.name, value.stored, stored)
        if key not in self._cache:
            back = inverse(value.stored)
            order = [back[axis] for axis in stored]
            moves = [i for i in order if value.shape[value.stored[i]] != 1]
            # A zero in a Reshape would stand for the size that was there.
            is_reshape = moves == sorted(moves) and 0 not in value.shape
            if is_reshape and _at_most_one_unknown(value.shape):
                sizes = [value.shape[axis] for axis in stored]
                target = self.constant(
                    [-1 if not isinstance(n, int) else n for n in sizes], "int64"
                )
                made = self.node(
                    "Reshape", [value, target], [(value.dtype, value.shape)], stored=stored
                )
            else:
                made = self.node(
                    "Transpose",
                    [value],
                    [(value.dtype, value.shape)],
                    stored=stored,
                    attributes={"perm": order},
                )
            self._cache[key] = made[0]
        return self._cache[key]

    def plain(self, value: Value) -> Value:
        """Return a value that stands in the graph with the source's order of axes."""
        return self.kept(value, identity(value.rank))

    # -- element by element ------------------------------------------------------------------

    def unary(
        self, op_type: str, x: Value, *, dtype: str | None = None, **attributes: Attribute
    ) -> Value:
        """Apply an operation to each element."""
        kind = dtype or ("bool" if op_type in COMPARISONS else x.dtype)
        return self.node(op_type, [x], [(kind, x.shape)], attributes=attributes, stored=x.stored)[0]

    def elementwise(
        self, op_type: str, *operands: Operand, dtype: str | None = None, **attributes: Attribute
    ) -> Value:
        """Apply an operation to elements of several values, which are broadcast."""
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
        """Return a value that broadcasts as it should against others kept in this order."""
        if value.rank == len(order):
            return self.kept(value, order)
        if value.rank == 0 or order == identity(len(order)):
            return self.plain(value)
        wide = self.reshape(value, (1,) * (len(order) - value.rank) + value.shape)
        return self.kept(wide, order)

    def add(self, a: Operand, b: Operand) -> Value:
        """A + b."""
        return self.elementwise("Add", a, b)

    def sub(self, a: Operand, b: Operand) -> Value:
        """A - b."""
        return self.elementwise("Sub", a, b)

    def mul(self, a: Operand, b: Operand) -> Value:
        """A * b."""
        return self.elementwise("Mul", a, b)

    def div(self, a: Operand, b: Operand) -> Value:
        """A / b; of integers, cut off towards zero."""
        return self.elementwise("Div", a, b)

    def where(self, condition: Value, a: Operand, b: Operand) -> Value:
        """A where the condition holds, else b."""
        like = a if isinstance(a, Value) else b
        if isinstance(like, Value) and like.dtype == "bool":
            # onnxruntime's Where does not take booleans.
            a, b = self.value(a, like), self.value(b, like)
            other = self.elementwise("And", self.unary("Not", condition), b)
            return self.elementwise("Or", self.elementwise("And", condition, a), other)
        return self.elementwise("Where", condition, a, b)

    def clip(self, x: Value, low: float | None, high: float | None) -> Value:
        """x, held between two bounds."""
        bounds = [None if n is None else self.constant(n, x.dtype) for n in (low, high)]
        return self.node("Clip", [x, *bounds], [(x.dtype, x.shape)], stored=x.stored)[0]

    def cast(self, x: Value, dtype: str) -> Value:
        """X in another dtype."""
        if x.dtype == dtype:
            return x
        key = ("cast", x.name, dtype)
        if key not in self._cache:
            self._cache[key] = self.unary("Cast", x, dtype=dtype, to=element_type(dtype))
        kept = self._cache[key]
        return Value(kept.name, dtype, x.shape, x.stored, kept.is_constant)

    # -- axes --------------------------------------------------------------------------------

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """X with axis ``i`` taken from ``order[i]``."""
        return x.transposed(order)

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        """X in another shape; of sizes that are not known, at most one may be new."""
        shape = tuple(shape)
        x = self.plain(x)
        if shape == x.shape and all(n is not None for n in shape):
            return x
        zero = {"allowzero": 1} if 0 in shape and all(isinstance(n, int) for n in shape) else {}
        return self.emit("Reshape", x, self.sizes(x, shape), dtype=x.dtype, shape=shape, **zero)

    def sizes(self, x: Value, shape: Shape) -> Value:
        """Return a shape as a tensor, where unknown sizes are those of ``x``, or what is left."""
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
            raise ValueError(f"shape {shape} has {free} sizes that nothing says")
        return self.concat(parts, 0)

    def size(self, x: Value, axis: int) -> Value:
        """Return the size of an axis, as a vector of one."""
        n = x.shape[axis]
        if isinstance(n, int):
            return self.constant([n], "int64")
        where = x.stored.index(axis)
        (found,) = self.node(
            "Shape", [x], [("int64", (1,))], attributes={"start": where, "end": where + 1}
        )
        return found

    def unsqueeze(self, x: Value, axes: Sequence[int]) -> Value:
        """X with new axes of one element, at these places of the result."""
        rank = x.rank + len(axes)
        places = sorted(a + rank if a < 0 else a for a in axes)
        rest = iter(x.shape)
        shape: Shape = tuple(1 if i in places else next(rest) for i in range(rank))
        # What is kept in another order stays so; each new axis stands before the one it precedes.
        kept = [i for i in range(rank) if i not in places]
        order = [kept[axis] for axis in x.stored]
        for place in reversed(places):
            order.insert(order.index(place + 1) if place + 1 < rank else len(order), place)
        axes_in = self.constant(sorted(order.index(place) for place in places), "int64")
        return self.node("Unsqueeze", [x, axes_in], [(x.dtype, shape)], stored=tuple(order))[0]

    def squeeze(self, x: Value, axes: Sequence[int]) -> Value:
        """X without axes of one element."""
        places = sorted(x.axis(a) for a in axes)
        stored = sorted(x.stored.index(a) for a in places)
        shape = tuple(n for i, n in enumerate(x.shape) if i not in places)
        axes_in = self.constant(stored, "int64")
        order = without(x.stored, places)
        return self.node("Squeeze", [x, axes_in], [(x.dtype, shape)], stored=order)[0]

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """Values one after another along an axis."""
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
        """A part of x; bounds as Python's, with 2**31 and beyond for the end."""
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
        """X cut along an axis."""
        axis = x.axis(axis)
        shapes = [(x.dtype, (*x.shape[:axis], n, *x.shape[axis + 1 :])) for n in sizes]
        cuts = self.constant(list(sizes), "int64")
        return self.node(
            "Split", [x, cuts], shapes, attributes={"axis": x.stored.index(axis)}, stored=x.stored
        )

    def pad(
        self, x: Value, before: Sequence[int], after: Sequence[int], *, mode: str = "constant",
        value: float | None = None,
    ) -> Value:  # fmt: skip
        """X with more elements at both ends of each axis."""
        if not any(before) and not any(after):
            return x
        shape = tuple(
            n + b + a if isinstance(n, int) else (n if a + b == 0 else None)
            for n, b, a in zip(x.shape, before, after, strict=True)
        )
        pads = [before[i] for i in x.stored] + [after[i] for i in x.stored]
        fill = None if value is None else self.constant(value, x.dtype)
        inputs = [x, self.constant(pads, "int64"), fill]
        return self.node(
            "Pad", inputs, [(x.dtype, shape)], attributes={"mode": mode}, stored=x.stored
        )[0]

    def expand(self, x: Value, shape: Shape, like: Value | None = None) -> Value:
        """X broadcast to a shape whose unknown sizes are those of ``like``."""
        source = like if like is not None else x
        return self.emit("Expand", x, self.sizes_of(source, shape), dtype=x.dtype, shape=shape)

    def sizes_of(self, like: Value, shape: Shape) -> Value:
        """Return a shape as a tensor, every unknown size of which is that of ``like``'s axis."""
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
        """Elements of x along an axis, by index."""
        axis = x.axis(axis)
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        if x.dtype == "string" and axis < x.rank - 1:
            return self._gathered_texts(x, indices, axis)
        return self.emit("Gather", x, indices, dtype=x.dtype, shape=shape, axis=axis)

    def _gathered_texts(self, x: Value, indices: Value, axis: int) -> Value:
        """Gather slices of texts: of each, onnxruntime 1.31's Gather takes the first text alone."""
        first = x.transposed([axis, *(i for i in range(x.rank) if i != axis)])
        places = self.unsqueeze(self.cast(indices, "int64"), [-1])
        shape = (*indices.shape, *first.shape[1:])
        made = self.emit("GatherND", first, places, dtype=x.dtype, shape=shape)
        count = indices.rank
        before = range(count, count + axis)
        return made.transposed([*before, *range(count), *range(count + axis, made.rank)])

    # -- sums and products -------------------------------------------------------------------

    def reduce(
        self, op_type: str, x: Value, axes: Sequence[int], *, keepdims: bool = False
    ) -> Value:
        """Reduce x over axes, by ``ReduceSum``, ``ReduceMean``, ``ReduceMax`` and the like."""
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
            return self.mul(made, float("nan"))  # onnxruntime has 0 for the mean of no elements
        return made

    def softmax(self, x: Value, axis: int = -1, op_type: str = "Softmax") -> Value:
        """Softmax, or LogSoftmax, along an axis."""
        where = x.stored.index(x.axis(axis))
        return self.node(
            op_type, [x], [(x.dtype, x.shape)], attributes={"axis": where}, stored=x.stored
        )[0]

    def matmul(self, a: Value, b: Value) -> Value:
        """The matrix product, as numpy's."""
        if a.rank == 1 or b.rank == 1:
            raise ValueError("matmul of a vector")
        shape = (*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        return self.emit("MatMul", a, b, dtype=a.dtype, shape=shape)


MAX_FLOAT = 3.4028234663852886e38
END = 1 << 31  # as the end of a slice: to the end


def total_of(sizes: Sequence[Dim]) -> Dim:
    """Return the sum of sizes, where all are known."""
    known_sizes = [n for n in sizes if isinstance(n, int)]
    return sum(known_sizes) if len(known_sizes) == len(sizes) else None


def known(sizes: Sequence[Dim]) -> Dim:
    """Return one of several equal sizes, the one that says most."""
    for kind in (int, str):
        for n in sizes:
            if isinstance(n, kind):
                return n
    return None


def _check_range(value: Attribute) -> None:
    """Raise where a number has no place in an ONNX attribute: 64-bit integers, 32-bit floats."""
    numbers = value if isinstance(value, list) else [value]
    for n in numbers:
        if isinstance(n, int) and not -(1 << 63) <= n < 1 << 63:
            raise ValueError(f"an integer of {n.bit_length()} bits")
        if isinstance(n, float) and abs(n) > MAX_FLOAT and n not in (float("inf"), -float("inf")):
            raise ValueError(f"{n} is no 32-bit number")


def _at_most_one_unknown(shape: Shape) -> bool:
    return sum(not isinstance(n, int) for n in shape) <= 1


# fmt: off
# TensorProto.DataType, https://github.com/onnx/onnx/blob/v1.23.0/onnx/onnx.in.proto
ELEMENT_TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7,
    "string": 8, "bool": 9, "float16": 10, "float64": 11, "uint32": 12, "uint64": 13,
    "complex64": 14, "complex128": 15, "bfloat16": 16, "float8_e4m3fn": 17, "float8_e4m3fnuz": 18,
    "float8_e5m2": 19, "float8_e5m2fnuz": 20, "uint4": 21, "int4": 22, "float4_e2m1fn": 23,
    "float8_e8m0fnu": 24, "uint2": 25, "int2": 26,
}
# fmt: on


def element_type(dtype: str) -> int:
    """Return ONNX's number of a dtype."""
    return ELEMENT_TYPES[dtype]


def numpy_type(dtype: str) -> "np.dtype[np.generic]":
    """Return numpy's dtype of a name, with objects for strings."""
    from formats.core.weights import DTYPES

    return np.dtype(object) if dtype == "string" else numpy_dtype(DTYPES[dtype])
