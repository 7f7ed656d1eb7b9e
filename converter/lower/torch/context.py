"""The builder that handlers of torch's ops are given: nodes, and sizes that have names.

A dynamic size is a polynomial of names; what a name stands for (an axis of an input, the rounded
quotient of two sizes, an element of a tensor) is kept here, and becomes nodes only where an
operator wants the size as a tensor.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from converter.lower import dims
from converter.lower.builder import Builder
from converter.lower.graph import Attribute, Dim, Graph, Shape, Weight
from converter.lower.node_checks import check_sizes
from converter.lower.torch.compound import Compound
from converter.lower.torch.program_values import Number, Scalar, Size
from converter.lower.unsupported import Unsupported
from converter.lower.values import Permutation, Value, broadcast, identity
from formats.core.plurals import count
from formats.core.weights import Tensor

SMALL = 1 << 16  # bytes of a weight that is read when something asks for its elements
MOST_AXES = 64  # as torch has it
OF_COMPOUNDS = "of complex or quantized numbers"
MOST_STORED = 1 << 12  # elements of a range that is a constant


class Context(Builder):
    """A graph being built from a torch program.

    Attributes:
        is_exported: Whether torch has exported it, and so knows that no dynamic size is 1.
        nonzero: Names of sizes that are not zero.
        keeps_state: Whether the state that the program assigns is computed.
        parts: Number of tensors in the list that the current op yields, where torch recorded it.
    """

    is_exported = keeps_state = False
    parts: int | None = None

    def __init__(self, graph: Graph, weights: Mapping[str, Tensor]) -> None:
        super().__init__(graph, weights)
        self.nonzero: set[str] = set()
        self._atoms: dict[str, Callable[[], Value]] = {}
        self._fresh_sizes = 0
        self._short_names: dict[tuple[str, Dim, Dim], str] = {}

    @contextmanager
    def body(self, name: str) -> Iterator[Graph]:
        """Build an inner graph; sizes that are measured in it are not known outside."""
        atoms = dict(self._atoms)
        try:
            with super().body(name) as graph:
                yield graph
        finally:
            self._atoms = atoms

    # -- nodes in dtypes that onnxruntime has --------------------------------------------------

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
        """Add a node as `Builder.node` does.

        Raises:
            Unsupported: No kernel takes the dtypes, or an input is complex or quantized.
        """
        if any(isinstance(v, Compound) for v in inputs):
            raise Unsupported(OF_COMPOUNDS)
        return super().node(
            op_type, inputs, outputs, attributes=attributes, stored=stored, domain=domain
        )

    def check(
        self, op_type: str, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]
    ) -> None:
        """Raise Unsupported where onnxruntime would refuse a node."""
        check_sizes(op_type, inputs, attributes, self.array)

    # -- numbers and tensors -------------------------------------------------------------------

    def array(self, value: Value) -> "np.ndarray | None":
        """Return the elements of a small constant or a small weight, or None for anything else."""
        found = super().array(value)
        weight = self.graph.initializers.get(value.name)
        if found is None and isinstance(weight, Weight) and value.is_plain:
            tensor = self.weights[weight.tensor]
            if tensor.nbytes <= SMALL:
                found = tensor.numpy()
        return found

    def scalar(self, operand: Scalar, dtype: str) -> Value:
        """Return a number as a tensor without axes, of a dtype."""
        if isinstance(operand, Number):
            return self.cast(operand.value, dtype)
        if isinstance(operand, Size):
            return self.cast(self.squeeze(self.vector([operand]), [0]), dtype)
        return self.constant(operand, dtype)

    def scalar_of(self, n: Dim, dtype: str) -> Value:
        """Return a size as a tensor without axes, of a dtype."""
        if isinstance(n, int):
            return self.constant(n, dtype)
        return self.cast(self.squeeze(self.vector([n]), [0]), dtype)

    # -- sizes ---------------------------------------------------------------------------------

    def define(self, name: str, make: Callable[[], Value]) -> Size:
        """Say what makes a named size: a function that gives it as a vector of one."""
        self._atoms.setdefault(name, make)
        return Size(name)

    def axis_of(self, x: Value, axis: int) -> Dim:
        """Return the size of an axis; one that has no name gets one."""
        axis = x.axis(axis)
        n = x.shape[axis]
        if n is not None:
            return n
        if isinstance(x, Compound):
            return self.axis_of(x.real, axis)
        self._fresh_sizes += 1
        return self.define(f"unk__{self._fresh_sizes}", lambda: self.measured(x, axis))

    def named(self, x: Value) -> Value:
        """Return a value with a name for each of its sizes."""
        if None not in x.shape:
            return x
        if isinstance(x, Compound):
            return x.shaped(self.named(x.real).shape)
        return replace(x, shape=tuple(self.axis_of(x, i) for i in range(x.rank)))

    def measured(self, x: Value, axis: int) -> Value:
        """Return the size that an axis has when the graph runs, as a vector of one."""
        where = x.stored.index(axis)
        attributes: dict[str, Attribute] = {"start": where, "end": where + 1}
        return self.node("Shape", [x], [("int64", (1,))], attributes=attributes)[0]

    def size(self, x: Value, axis: int) -> Value:
        """Return the size of an axis, as a vector of one."""
        n = x.shape[axis]
        if isinstance(n, str) and self.is_known(n):
            return self.vector([n])
        if isinstance(n, int):
            return self.constant([n], "int64")
        return self.measured(x, axis)

    def is_known(self, name: str) -> bool:
        """Return whether all terms of a size are known."""
        return all(atom in self._atoms for names in dims.terms(name) for atom in names)

    def vector(self, dims: Sequence[Dim]) -> Value:
        """Return sizes as a vector of int64.

        Raises:
            Unsupported: Nothing says what one of them is.
        """
        parts: list[Value] = []
        run: list[int] = []
        for n in dims:
            if isinstance(n, int):
                run.append(n)
                continue
            if run:
                parts.append(self.constant(run, "int64"))
                run = []
            parts.append(self._made(n))
        if run or not parts:
            parts.append(self.constant(np.asarray(run, np.int64)))
        return self.concat(parts, 0)

    def _made(self, name: Dim) -> Value:
        """Return a named size as a vector of one."""
        if not isinstance(name, str):
            raise Unsupported("a size that nothing says")
        key = ("dim", str(name))
        if key not in self._cache:
            total: Value | None = None
            for names, times in dims.terms(name).items():
                product: Value | None = None
                for atom in names:
                    found = self._atom(atom)
                    product = found if product is None else self.mul(product, found)
                if product is None:
                    product = self.constant([times], "int64")
                elif times != 1:
                    product = self.mul(product, times)
                total = product if total is None else self.add(total, product)
            self._cache[key] = total if total is not None else self.constant([0], "int64")
        return self._cache[key]

    def _atom(self, name: str) -> Value:
        key = ("atom", name)
        if key not in self._cache:
            if name not in self._atoms:
                raise Unsupported(f"size {name}, which no input says")
            self._cache[key] = self._atoms[name]()
        return self._cache[key]

    def combine(self, op_type: str, found: Dim, a: Dim, b: Dim) -> Dim:
        """Return a size that is made of two others; one whose name is too long gets a short one."""
        if found is not None or a is None or b is None:
            return found
        key = (op_type, a, b)
        if key not in self._short_names:
            self._short_names[key] = self.unique("size")
        return self.define(self._short_names[key], lambda: self._combined(op_type, a, b))

    def _opaque(self, found: Dim, op_type: str, a: Dim, b: Dim) -> Dim:
        """Say what makes a size that is no polynomial."""
        if isinstance(found, str) and not self.is_known(found):
            self.define(found, lambda: self._combined(op_type, a, b))
        return self.combine(op_type, found, a, b)

    def product(self, sizes: Sequence[Dim]) -> Dim:
        """Return the product of sizes."""
        result: Dim = 1
        for n in sizes:
            result = self.combine("Mul", dims.mul(result, n), result, n)
        return result

    def _combined(self, op_type: str, a: Dim, b: Dim) -> Value:
        left, right = self.vector([a]), self.vector([b])
        if op_type == "Div":  # ONNX cuts off towards zero
            left = self.sub(left, self.elementwise("Mod", left, right))
        return self.elementwise(op_type, left, right)

    def floordiv(self, a: Dim, b: Dim) -> Dim:
        """A / b, rounded down."""
        return self._opaque(dims.floordiv(a, b), "Div", a, b)

    def ceildiv(self, a: Dim, b: Dim) -> Dim:
        """A / b, rounded up."""
        exact = dims.divide_exactly(a, b)
        if exact is not None:
            return exact
        return self.floordiv(dims.add(a, dims.sub(b, 1)), b)

    def modulo(self, a: Dim, b: Dim) -> Dim:
        """A modulo b."""
        return self._opaque(dims.modulo(a, b), "Mod", a, b)

    def least(self, a: Dim, b: Dim) -> Dim:
        """The smaller one."""
        return self._opaque(dims.least(a, b), "Min", a, b)

    def most(self, a: Dim, b: Dim) -> Dim:
        """The larger one."""
        return self._opaque(dims.most(a, b), "Max", a, b)

    # -- shapes --------------------------------------------------------------------------------

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        """X in another shape, all of whose sizes are known or have names."""
        shape = tuple(shape)
        if len(shape) > MOST_AXES:
            raise Unsupported(f"a shape of {count('axis', len(shape))}")
        x = self.plain(x)
        if shape == x.shape and None not in shape:
            return x
        vector, zero = self._target(x, shape)
        more: dict[str, Attribute] = {"allowzero": 1} if zero else {}
        return self.emit("Reshape", x, vector, dtype=x.dtype, shape=shape, **more)

    def _target(self, x: Value, shape: Shape) -> tuple[Value, bool]:
        """Return a shape as a vector, and whether a zero in it is one."""
        named = [i for i, n in enumerate(shape) if not isinstance(n, int)]
        if 0 in shape:
            return self.vector(shape), True
        if len(named) <= 1:
            return self.constant([n if isinstance(n, int) else -1 for n in shape], "int64"), False
        # A zero copies the size of the axis.
        same = [i for i in named if i < x.rank and shape[i] is not None and x.shape[i] == shape[i]]
        if len(named) - len(same) <= 1:
            found = [
                n if isinstance(n, int) else 0 if i in same else -1 for i, n in enumerate(shape)
            ]
            return self.constant(found, "int64"), False
        if len([n for n in shape if n is None]) == 1:
            return self.vector([-1 if n is None else n for n in shape]), False
        return self.vector(shape), None not in shape  # sizes that may be zero when the graph runs

    def sizes(self, x: Value, shape: Shape) -> Value:
        """Return a shape as a tensor."""
        return self._target(x, shape)[0]

    def sizes_of(self, like: Value, shape: Shape) -> Value:
        """Return a shape as a tensor; what has no name is the size of ``like``'s axis."""
        named = self.named(like)
        return self.vector([named.shape[i] if n is None else n for i, n in enumerate(shape)])

    def expand(self, x: Value, shape: Shape, like: Value | None = None) -> Value:
        """X broadcast to a shape."""
        shape = tuple(shape)
        if x.shape == shape and None not in shape:
            return x
        source = like if like is not None else x
        return self.emit("Expand", x, self.sizes_of(source, shape), dtype=x.dtype, shape=shape)

    def shaped(self, value: Value, shape: Shape) -> Value:
        """Return a value of which more is known than was inferred: nothing changes in the graph."""
        return (
            value.shaped(shape)
            if isinstance(value, Compound)
            else replace(value, shape=tuple(shape))
        )

    def range(self, count: Dim, dtype: str = "int64") -> Value:
        """Return 0, 1, ... up to a size."""
        if isinstance(count, int) and count <= MOST_STORED:
            return self.constant(np.arange(count), dtype)
        bounds = [self.scalar_of(n, "int64") for n in (0, count, 1)]
        return self.cast(self.emit("Range", *bounds, dtype="int64", shape=(count,)), dtype)

    def broadcast(self, *shapes: Shape) -> Shape:
        """Return what shapes broadcast to: of two sizes of different names, the larger one."""
        found: Shape = ()
        for shape in shapes:
            rank = max(len(found), len(shape))
            pairs = zip(*((1,) * (rank - len(s)) + s for s in (found, shape)), strict=True)
            known = broadcast(found, shape)
            found = tuple(
                self.most(*pair) if n is None else n for n, pair in zip(known, pairs, strict=True)
            )
        return found

    def filled(self, shape: Sequence[Dim], number: Scalar, dtype: str) -> Value:
        """Return a tensor all of whose elements are one number."""
        value = self.scalar(number, dtype)
        shape = tuple(shape)
        if not shape:
            return value
        target = self.vector(shape)
        return self.emit("Expand", value, target, dtype=dtype, shape=shape)

    def cut(self, x: Value, axis: int, start: Dim, end: Dim, step: int = 1) -> Value:
        """A part of x along an axis, between bounds that are not negative and lie within it."""
        axis = x.axis(axis)
        length = self.ceildiv(dims.sub(end, start), step)
        if start == 0 and end == x.shape[axis] and step == 1:
            return x
        whole = end == x.shape[axis]
        numbers = [
            self.constant([start], "int64") if isinstance(start, int) else self.vector([start]),
            self.constant([1 << 62], "int64") if whole else self.vector([end]),
            self.constant([x.stored.index(axis)], "int64"),
            self.constant([step], "int64"),
        ]
        shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
        return self.node("Slice", [x, *numbers], [(x.dtype, shape)], stored=x.stored)[0]

    def kept(self, value: Value, stored: Permutation) -> Value:
        """Return a value whose axes in the graph are in this order.

        Raises:
            Unsupported: It is complex or quantized, and no value of the graph.
        """
        if isinstance(value, Compound):
            raise Unsupported(
                "complex or quantized numbers that go into a branch or a loop, or are an output"
            )
        return super().kept(value, stored)

    def outer(self, x: Value) -> Value:
        """Return a value whose order of axes in the graph is the program's own."""
        return x if x.stored == identity(x.rank) else self.plain(x)
