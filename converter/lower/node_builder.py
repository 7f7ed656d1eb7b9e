"""Nodes of a graph being built: names, inputs and outputs, constants, dtypes and shapes.

Values have the source's order of axes; the graph may store them in another (see
`converter.lower.values`). Shapes are inferred here and in `converter.lower.builder`, because
importing onnx takes as long as converting a model; tests compare them with onnx's shape inference.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from converter.lower import legalize
from converter.lower.double import FORMS
from converter.lower.element_types import ELEMENT_TYPES, element_type, numpy_type
from converter.lower.graph import Attribute, Graph, Node, Shape, Spec, Weight
from converter.lower.unsupported import Unsupported
from converter.lower.values import Permutation, Value, identity, inverse
from formats.core.weights import Tensor

Operand: TypeAlias = Value | float | int | bool
MAX_FLOAT = 3.4028234663852886e38


class NodeBuilder:
    """A graph being built.

    Attributes:
        graph: Graph or subgraph being built.
        weights: Tensors that its initializers may name.
        supplies: Layers and functions that trusted modules supply, if any.
        layer_states: States of the layers of a Keras model, if they are inputs and outputs.
        spent: Budget used so far to interpret Python code of the source, if it has any.
    """

    supplies: Any = None
    layer_states: Any = None
    spent: Any = None

    def __init__(self, graph: Graph, weights: Mapping[str, Tensor]) -> None:
        self.graph = graph
        self.weights = weights
        # Tensors that inference does not read, as the handlers of their layers report.
        self.left: set[str] = set()
        self._outermost = graph
        self._scope: list[str] = []
        self._counts: dict[str, int] = {}
        self._constants: dict[object, Value] = {}
        self._called: dict[str, str] = {}  # tensor of the bundle -> its name in the graph
        self._cache: dict[object, Value] = {}

    # -- inputs, weights and constants -------------------------------------------------------

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefix the names of values built in this context with the name of a layer."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()

    @contextmanager
    def body(self, name: str) -> Iterator[Graph]:
        """Build a subgraph, as of a Loop; it reads outer values, and its constants are outside."""
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
        """Whether the graph being built is the main graph, not a subgraph."""
        return self.graph is self._outermost

    def late_input(self, name: str, dtype: str, shape: Shape) -> str:
        """Add an input to the main graph, even while a subgraph is built; return its name.

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
        """Make a value an output of the graph under a new name."""
        self.graph.nodes.append(
            Node("Identity", [self.plain(value).name], [name], {}, f"output/{name}")
        )
        self.graph.specs[name] = Spec(value.dtype, value.shape)
        self.graph.outputs.append(name)

    def weight(self, tensor: str) -> Value:
        """Return an unchanged tensor of the bundle as a value."""
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
        """Return a small constant; equal constants share one initializer."""
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
        """Reserve names for the graph's inputs and outputs, so that no other value gets them."""
        for name in names:
            self._counts.setdefault(name, 1)

    def unique(self, base: str) -> str:
        """Return a new unique name in the current scope."""
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
        """Add a note to the reader to the main graph, once."""
        if text not in self._outermost.notes:
            self._outermost.notes.append(text)

    # -- nodes -------------------------------------------------------------------------------

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
        """Add a node that reads its inputs in their stored order of axes; return its outputs.

        Args:
            op_type: ONNX's name of the operator.
            inputs: Inputs; None for an optional input that is omitted.
            outputs: Dtype and shape of each output, in the source's order of axes.
            attributes: Attributes under ONNX's names.
            stored: Stored order of axes of the outputs; the source's by default.
            domain: Domain of the operator, where it is not ONNX's own.

        Where onnxruntime has no kernel for a dtype, `legalize` chooses casts or other operators.

        Raises:
            Unsupported: There is no kernel and no replacement.
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
        # Constant nodes are computed once in the main graph, not in each iteration of a loop.
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
        """Map uint64 to int64 (or back) by flipping the sign bit, which keeps the order."""
        sign = self.constant(-(1 << 63), "int64")
        given = [self.cast(x, "int64"), sign]
        (flipped,) = self.node("BitwiseXor", given, [("int64", x.shape)], stored=x.stored)
        return self.cast(flipped, dtype)

    def check(
        self, op_type: str, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]
    ) -> None:
        """Check a node and raise where it is invalid; by default sources are taken to be valid."""

    def emit(
        self, op_type: str, *inputs: Value | None, dtype: str, shape: Shape, **attributes: Attribute
    ) -> Value:
        """Add a node with one output; its inputs are stored in the source's order of axes first."""
        plain = [None if v is None else self.plain(v) for v in inputs]
        return self.node(op_type, plain, [(dtype, shape)], attributes=attributes)[0]

    def kept(self, value: Value, stored: Permutation) -> Value:
        """Return a value stored with its axes in this order."""
        if value.stored == stored:
            return value
        key = ("kept", value.name, value.stored, stored)
        if key not in self._cache:
            back = inverse(value.stored)
            order = [back[axis] for axis in stored]
            moves = [i for i in order if value.shape[value.stored[i]] != 1]
            # A zero in the shape of a Reshape would copy a size of the input.
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
        """Return a value stored in the source's order of axes."""
        return self.kept(value, identity(value.rank))

    def cast(self, x: Value, dtype: str) -> Value:
        """Cast x to another dtype."""
        if x.dtype == dtype:
            return x
        key = ("cast", x.name, dtype)
        if key not in self._cache:
            (self._cache[key],) = self.node(
                "Cast", [x], [(dtype, x.shape)], attributes={"to": element_type(dtype)},
                stored=x.stored,
            )  # fmt: skip
        kept = self._cache[key]
        return Value(kept.name, dtype, x.shape, x.stored, kept.is_constant)


def _check_range(value: Attribute) -> None:
    """Raise where a number does not fit an ONNX attribute: 64-bit integer or 32-bit float."""
    numbers = value if isinstance(value, list) else [value]
    for n in numbers:
        if isinstance(n, int) and not -(1 << 63) <= n < 1 << 63:
            raise ValueError(f"an integer of {n.bit_length()} bits")
        if isinstance(n, float) and abs(n) > MAX_FLOAT and n not in (float("inf"), -float("inf")):
            raise ValueError(f"{n} does not fit a 32-bit float")


def _at_most_one_unknown(shape: Shape) -> bool:
    return sum(not isinstance(n, int) for n in shape) <= 1
