"""Builder that the handlers of TensorFlow ops use: adds nodes, and tracks known elements."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from converter.lower import dims
from converter.lower.builder import Builder
from converter.lower.graph import Attribute, Dim, Graph, Shape, Weight
from converter.lower.node_checks import check_sizes
from converter.lower.tf import contents
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value
from formats.core.weights import Tensor

Axis: TypeAlias = int  # `Context.int` hides the type below
MOST_AXES = 254  # TensorFlow's limit
SMALL = 1 << 16  # bytes of a weight that is read when its elements are requested


class Context(Builder):
    """A graph being built from a TensorFlow graph.

    Attributes:
        constants: Names of constants in the source -> names of weights in the bundle.
        at: Name of the node that is being lowered, prefixed with the calls that lead to it.
        place: Name of that node in the file: the name of its function, and its own.
    """

    constants: Mapping[str, str]

    def __init__(self, graph: Graph, weights: Mapping[str, Tensor]) -> None:
        super().__init__(graph, weights)
        self.at = self.place = ""
        self._contents: dict[str, np.ndarray] = {}
        self._enclosing = [graph]

    @contextmanager
    def body(self, name: str) -> Iterator[Graph]:
        """Build a subgraph; it captures outer values, and constants stay outside."""
        with super().body(name) as graph:
            self._enclosing.append(graph)
            try:
                yield graph
            finally:
                self._enclosing.pop()

    @property
    def enclosing(self) -> list[Graph]:
        """The graphs being built, the innermost first."""
        return self._enclosing[::-1]

    def check(
        self, op_type: str, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]
    ) -> None:
        """Raise Unsupported for a node that onnxruntime would reject."""
        specs = [self.graph.specs.get(v.name) for v in inputs if v is not None]
        if not any(spec is None or spec.unranked for spec in specs):
            check_sizes(op_type, inputs, attributes, self.static)

    # -- known elements ------------------------------------------------------------------------

    def remember(self, value: Value, elements: np.ndarray) -> Value:
        """Record the known elements of a value: numbers, symbolic dimensions and None."""
        if elements.size <= contents.MOST:
            self._contents[value.name] = elements
        return value

    def elements(self, value: Value) -> np.ndarray | None:
        """Return the known elements of a value, or None if nothing is known.

        An array of a numeric dtype, or of objects: Python integers, symbolic dimensions and None.
        """
        found = self._contents.get(value.name)
        if found is not None:
            return found if found.shape == value.shape else None
        array = super().array(value)
        weight = self.graph.initializers.get(value.name)
        if isinstance(weight, Weight):
            tensor = self.weights[weight.tensor]
            if tensor.nbytes <= SMALL and value.is_plain:
                array = self._contents[value.name] = tensor.numpy()
        return array

    def static(self, value: Value) -> np.ndarray | None:
        """Return the elements of a value if all are known, else None."""
        found = self.elements(value)
        if found is None or value.dtype == "string":
            return found
        if not contents.known(found):
            return None
        return found.astype(_numpy(value.dtype)) if found.dtype == object else found

    def ints(self, value: Value, what: str) -> list[int]:
        """Return the elements of a vector or scalar of integers.

        Args:
            value: The tensor.
            what: Description of the value for the message.

        Raises:
            Unsupported: They are computed from the inputs.
        """
        found = self.static(value)
        if found is None or found.dtype.kind not in "iub":
            raise Unsupported(
                f"{what} that {'is' if value.rank == 0 else 'are'} computed from the inputs"
            )
        return [int(n) for n in found.reshape(-1)]

    def int(self, value: Value, what: str) -> int:
        """Return a scalar.

        Raises:
            Unsupported: It is computed from the inputs.
        """
        found = self.ints(value, what)
        if len(found) != 1:
            raise Unsupported(f"{what} of {len(found)} numbers")
        return found[0]

    def number(self, value: Value, what: str) -> Any:
        """Return a scalar of any dtype.

        Raises:
            Unsupported: It is computed from the inputs.
        """
        found = self.static(value)
        if found is None or found.size != 1:
            raise Unsupported(f"{what} that is computed from the inputs")
        return found.reshape(-1)[0].item()

    def dims(self, value: Value) -> list[Dim]:
        """Return the known dimensions in a vector (or the one in a scalar).

        Raises:
            Unsupported: Their number is unknown.
        """
        found = self.elements(value)
        if found is not None:
            return [n if n is None or isinstance(n, str) else int(n) for n in found.reshape(-1)]
        length = 1 if value.rank == 0 else value.shape[0]
        if not isinstance(length, int):
            raise Unsupported("a shape whose number of axes is computed from the inputs")
        if length > MOST_AXES:
            raise Unsupported(f"a shape of {length} axes")
        return [None] * length

    def array(self, value: Value) -> "np.ndarray | None":
        """Return the elements of a value if all are known, else None."""
        return self.static(value)

    # -- shapes --------------------------------------------------------------------------------

    def size(self, x: Value, axis: Axis) -> Value:
        """Return the size of an axis as a vector of one; equal symbolic sizes share a node."""
        n = x.shape[axis]
        if not isinstance(n, str):
            return super().size(x, axis)
        key = ("size", n)
        if key not in self._cache:
            self._cache[key] = super().size(x, axis)
        return self._cache[key]

    def shape_vector(self, x: Value, dtype: str = "int32") -> Value:
        """Return the shape of a value as a vector."""
        if all(isinstance(n, int) for n in x.shape):
            return self.constant(np.asarray(x.shape, dtype))
        vector = self.cast(self.concat([self.size(x, i) for i in range(x.rank)], 0), dtype)
        return self.remember(vector, contents.objects(x.shape))

    def shaped(self, x: Value, shape: Value, sizes: Sequence[Dim]) -> Value:
        """Reshape a value.

        Args:
            x: The value.
            shape: Target shape, as a vector; -1 is inferred.
            sizes: Its known dimensions; -1 or None for unknown ones.
        """
        target = _infer_shape(x.shape, sizes)
        if target == x.shape and None not in target:
            return self.plain(x)
        strings = self.static(x) if x.dtype == "string" else None
        if strings is not None and all(isinstance(n, int) for n in target):
            return self.constant(strings.reshape([int(str(n)) for n in target]))
        symbolic = [n for n in target if not isinstance(n, int)]
        if 0 not in target and len(symbolic) <= 1:
            vector = self.constant([n if isinstance(n, int) else -1 for n in target], "int64")
            return self.emit("Reshape", x, vector, dtype=x.dtype, shape=target)
        if not symbolic:
            vector = self.constant(list(target), "int64")
        elif all(n is not None and n in x.shape for n in symbolic):
            vector = self.sizes(self.plain(x), target)
        else:
            vector = self.cast(shape, "int64")
        # Without `allowzero`, a zero would mean the size of the same axis of the input.
        return self.emit("Reshape", x, vector, dtype=x.dtype, shape=target, allowzero=1)


def _infer_shape(source: Shape, sizes: Sequence[Dim]) -> Shape:
    """Return the target shape of a reshape; one unknown size is inferred from the others.

    Raises:
        Unsupported: No reshape of the source has these sizes.
    """
    negative = [n for n in sizes if isinstance(n, int) and n < 0]
    if negative not in ([], [-1]):
        raise Unsupported(f"a reshape to {list(sizes)}")
    target = [None if isinstance(n, int) and n < 0 else n for n in sizes]
    if target.count(None) == 1:
        known = dims.product([n for n in target if n is not None])
        count = dims.product(source)
        target[target.index(None)] = dims.divide_exactly(count, known) if known != 0 else None
        if isinstance(count, int) and isinstance(known, int) and known and count % known:
            raise Unsupported(f"{list(source)} cannot be reshaped to {target}")
    return tuple(target)


def _numpy(dtype: str) -> Any:
    return np.dtype(dtype if dtype != "bfloat16" else "float32")
