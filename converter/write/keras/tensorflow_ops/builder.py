"""Build the Keras 3 operations of a TensorFlow call, and register what translates calls."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from converter.lower.keras.model import Call, Layer, Reference, references
from converter.lower.keras.table import Unsupported

Translator: TypeAlias = Callable[..., Any]
T = TypeVar("T", bound=Translator)

FUNCTIONS: dict[str, Translator] = {}  # "math.multiply" without its namespace
NODES: dict[str, Translator] = {}  # ops that take more than a function does
DTYPES = frozenset(("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8",
                    "uint16", "uint32", "uint64", "bool"))  # fmt: skip


def function(*names: str) -> Callable[[T], T]:
    """Register a translator of a TensorFlow function under these names.

    Raises:
        ValueError: One of them is taken.
    """
    return _register(FUNCTIONS, names)


def node(*names: str) -> Callable[[T], T]:
    """Register a translator of a TensorFlow op under these names.

    Raises:
        ValueError: One of them is taken.
    """
    return _register(NODES, names)


def _register(table: dict[str, Translator], names: Sequence[str]) -> Callable[[T], T]:
    def enter(translator: T) -> T:
        for name in names:
            if name in table:
                raise ValueError(f"two translators for {name}")
            table[name] = translator
        return translator

    return enter


@dataclass(frozen=True, slots=True)
class Known:
    """Dtype and sizes of a tensor; sizes are empty where they are unknown."""

    dtype: str
    sizes: tuple[int | None, ...]


class KerasOps:
    """Builds the operations that one TensorFlow call becomes.

    Attributes:
        layers: The operations, in the order of their calls.
    """

    def __init__(self, name: str, known: Mapping[Reference, Known], taken: Iterable[str]) -> None:
        self.layers: list[Layer] = []
        self._name = name
        self._step = f"{name}_step"  # prefix of the operations before the last; no layer has it
        while any(other.startswith(self._step) for other in taken):
            self._step += "_"
        self._known = dict(known)

    def call(
        self, kind: str, *arguments: Any, dtype: str | None = None,
        keywords: Mapping[str, Any] | None = None, **config: Any,
    ) -> Reference:  # fmt: skip
        """Add a call of a keras.ops operation and return its first output.

        Args:
            kind: Module and class: ``numpy.Add``.
            arguments: Of the call.
            dtype: Of its output, if other than the first tensor's.
            keywords: Keyword arguments of the call.
            config: Arguments of the class.
        """
        module, class_name = kind.split(".")
        name = f"{self._step}{len(self.layers)}"
        call = Call(arguments, keywords or {})
        layer = Layer(name, class_name, f"keras.src.ops.{module}", config, (call,))
        self.layers.append(layer)
        result = Reference(name, 0, 0)
        first = self._known.get(next(references(arguments)))
        if first is not None:
            self._known[result] = Known(dtype or first.dtype, ())
        return result

    def cast(self, x: Any, dtype: str, kind: str = "core.Cast") -> Reference:
        """Return a tensor in another dtype."""
        result = self.call(kind, x, dtype=dtype)
        self.layers[-1] = replace(self.layers[-1], config={"dtype": dtype})
        return result

    def dtype(self, x: Any) -> str:
        """Return the dtype of a tensor."""
        return self._lookup(x).dtype

    def rank(self, x: Any) -> int:
        """Return the rank of an input of the call."""
        return len(self.sizes(x))

    def sizes(self, x: Any) -> tuple[int | None, ...]:
        """Return the sizes of an input of the call; None where one is unknown.

        Raises:
            Unsupported: It is not an input, or its rank is unknown.
        """
        found = self._lookup(x).sizes
        if not found:
            raise Unsupported("a tensor of which no sizes are known")
        return found

    def _lookup(self, x: Any) -> Known:
        if not isinstance(x, Reference):
            raise Unsupported("a constant in the place of a tensor")
        if x not in self._known:
            raise Unsupported("a tensor of which nothing is known")
        return self._known[x]

    def is_float(self, x: Any) -> bool:
        """Return whether a tensor is of floating point numbers."""
        return "float" in self.dtype(x)

    def same_dtype(self, *values: Any) -> list[Any]:
        """Return operands: tensors, numbers, and lists as arrays of the first tensor's dtype."""
        tensors = [v for v in values if isinstance(v, Reference)]
        if not tensors:
            raise Unsupported("constants alone")
        return [self.constant(v, self.dtype(tensors[0])) for v in values]

    def constant(self, value: Any, dtype: str) -> Any:
        """Return a constant of a dtype; tensors and plain numbers as they are."""
        if isinstance(value, Reference | int | float):
            return value
        if dtype not in DTYPES or list(references(value)):
            raise Unsupported(f"a constant of {dtype}, or one that is computed in part")
        return np.asarray(value, dtype)

    def finish(self, result: Any) -> list[Layer]:
        """Return the operations; the last one gets the name of the call."""
        if not self.layers or result != Reference(self.layers[-1].name, 0, 0):
            raise Unsupported("a call that computes nothing")
        *others, last = self.layers
        return [*others, replace(last, name=self._name)]


def as_int(value: Any) -> Any:
    """Return an argument that must be static: an integer, or a list of integers.

    Raises:
        Unsupported: It is computed, or not an integer.
    """
    if list(references(value)):
        raise Unsupported("an argument that is computed")
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise Unsupported(f"an argument {value!r:.40} that is no integer")
    return array.tolist()


def as_list(value: Any) -> list[int]:
    """Return an argument of one or several integers as a list."""
    found = as_int(value)
    return [found] if isinstance(found, int) else [int(n) for n in found]
