"""TensorFlow's functions and ops among layers, as operations that Keras 3 has in its graphs.

One becomes one operation of keras.ops or a few; the last bears its name, so that all that refer to
it stay as they are. What Keras 3 would compute otherwise, in another dtype or not at all, is a gap.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, TypeAlias, TypeVar

import numpy as np

from converter.child.trust import Trusted
from converter.lower.graph import Dim
from converter.lower.keras.lowering import input_spec, lower
from converter.lower.keras.model import Call, Layer, Model, Reference, references
from converter.lower.keras.owners import Path, layers_of
from converter.lower.keras.table import TF_FUNCTIONS, TF_OPS, Gap, table_of
from converter.lower.values import inverse
from formats.core.bundle import Bundle
from formats.errors import CorruptError, UnsupportedError

Translator: TypeAlias = Callable[..., Any]
T = TypeVar("T", bound=Translator)

FUNCTIONS: dict[str, Translator] = {}  # "math.multiply" without its namespace
NODES: dict[str, Translator] = {}  # ops that take more than a function does
DTYPES = frozenset(("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8",
                    "uint16", "uint32", "uint64", "bool"))  # fmt: skip


def function(*names: str) -> Callable[[T], T]:
    """Enter a translator of a function of TensorFlow under these names.

    Raises:
        ValueError: One of them is taken.
    """
    return _entered(FUNCTIONS, names)


def node(*names: str) -> Callable[[T], T]:
    """Enter a translator of an op of TensorFlow's graphs; likewise."""
    return _entered(NODES, names)


def _entered(table: dict[str, Translator], names: Sequence[str]) -> Callable[[T], T]:
    def enter(translator: T) -> T:
        for name in names:
            if name in table:
                raise ValueError(f"two translators for {name}")
            table[name] = translator
        return translator

    return enter


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a tensor."""

    dtype: str
    sizes: tuple[int | None, ...]


class Steps:
    """The operations that one call of TensorFlow becomes.

    Attributes:
        layers: They, in the order of their calls.
    """

    def __init__(self, name: str, known: Mapping[Reference, Known], taken: Iterable[str]) -> None:
        self.layers: list[Layer] = []
        self._name = name
        self._step = f"{name}_step"  # of those before the last, which nothing else is called
        while any(other.startswith(self._step) for other in taken):
            self._step += "_"
        self._known = dict(known)

    def op(
        self, kind: str, *arguments: Any, dtype: str | None = None,
        keywords: Mapping[str, Any] | None = None, **config: Any,
    ) -> Reference:  # fmt: skip
        """Call an operation of keras.ops and return its first output.

        Args:
            kind: Module and class: ``numpy.Add``.
            arguments: Of the call.
            dtype: Of its output, where that is not the first tensor's.
            keywords: Of the call, likewise.
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
        result = self.op(kind, x, dtype=dtype)
        self.layers[-1] = replace(self.layers[-1], config={"dtype": dtype})
        return result

    def dtype(self, x: Any) -> str:
        """Return the dtype of a tensor."""
        return self._found(x).dtype

    def rank(self, x: Any) -> int:
        """Return the number of axes of a tensor that the call was given."""
        return len(self.sizes(x))

    def sizes(self, x: Any) -> tuple[int | None, ...]:
        """Return the sizes of a tensor that the call was given; None where one is not known.

        Raises:
            Gap: It was not, or is a number.
        """
        found = self._found(x).sizes
        if not found:
            raise Gap("a tensor of which no sizes are known")
        return found

    def _found(self, x: Any) -> Known:
        if not isinstance(x, Reference):
            raise Gap("a constant in the place of a tensor")
        if x not in self._known:
            raise Gap("a tensor of which nothing is known")
        return self._known[x]

    def is_float(self, x: Any) -> bool:
        """Tell whether a tensor has floating point numbers."""
        return "float" in self.dtype(x)

    def alike(self, *values: Any) -> list[Any]:
        """Return operands: tensors, numbers, and lists as arrays of the first tensor's dtype."""
        tensors = [v for v in values if isinstance(v, Reference)]
        if not tensors:
            raise Gap("constants alone")
        return [self.constant(v, self.dtype(tensors[0])) for v in values]

    def constant(self, value: Any, dtype: str) -> Any:
        """Return a constant of a dtype; tensors and plain numbers as they are."""
        if isinstance(value, Reference | int | float):
            return value
        if dtype not in DTYPES or list(references(value)):
            raise Gap(f"a constant of {dtype}, or one that is computed in part")
        return np.asarray(value, dtype)

    def finish(self, result: Any) -> list[Layer]:
        """Return the operations, the last of which bears the name of the call."""
        if not self.layers or result != Reference(self.layers[-1].name, 0, 0):
            raise Gap("a call that computes nothing")
        *others, last = self.layers
        return [*others, replace(last, name=self._name)]


def whole(value: Any) -> Any:
    """Return an argument that must be known: an integer, or a list of them.

    Raises:
        Gap: It is computed.
    """
    if list(references(value)):
        raise Gap("an argument that is computed")
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise Gap(f"an argument {value!r:.40} that is no integer")
    return array.tolist()


def listed(value: Any) -> list[int]:
    """Return an argument of one integer or several as a list."""
    found = whole(value)
    return [found] if isinstance(found, int) else [int(n) for n in found]


def with_operations(
    model: Model, bundle: Bundle, trust: Sequence[Trusted] = ()
) -> tuple[Model, dict[Path, str]]:
    """Return a model without functions of TensorFlow, and why others of them are still there.

    A model that has none is returned as it is; one that has is lowered, to know dtypes.
    """
    if not _has_any(model):
        return model, {}
    try:
        graph = lower(bundle, trust=trust)
    except (CorruptError, UnsupportedError) as e:
        reason = f"whose dtypes are not known, as the model is not lowered: {e.found:.120}"
        return model, {p: reason for p, layer in layers_of(model) if _is_tensorflow(layer)}
    known: dict[tuple[str, int], Known] = {}
    for trace in graph.traces:
        spec = graph.specs[trace.value]
        shape = [spec.shape[axis] for axis in inverse(trace.stored)]
        known.setdefault((trace.layer, trace.output), Known(spec.dtype, _sizes(shape)))
    lacking: dict[Path, str] = {}
    return _rewritten(model, (), known, lacking), lacking


def _sizes(shape: Sequence[Dim]) -> tuple[int | None, ...]:
    return tuple(n if isinstance(n, int) else None for n in shape)


def _is_tensorflow(layer: Layer) -> bool:
    table = table_of(layer.module)
    return table is TF_FUNCTIONS or table is TF_OPS


def _has_any(model: Model) -> bool:
    return any(
        _is_tensorflow(layer) or (layer.model is not None and _has_any(layer.model))
        for layer in model.layers.values()
    )


def _rewritten(
    model: Model, path: Path, known: Mapping[tuple[str, int], Known], lacking: dict[Path, str]
) -> Model:
    layers: dict[str, Layer] = {}
    for name, layer in model.layers.items():
        own = (*path, name)
        if layer.model is not None:
            layers[name] = replace(layer, model=_rewritten(layer.model, own, known, lacking))
        elif not _is_tensorflow(layer):
            layers[name] = layer
        else:
            try:
                made = _translated(model, layer, path, known)
            except Gap as gap:
                lacking[own] = str(gap)
                made = [layer]
            except (TypeError, ValueError, KeyError, IndexError, AttributeError) as e:
                lacking[own] = f"arguments that do not go together, {e!r:.80},"
                made = [layer]
            layers |= {step.name: step for step in made}
    return replace(model, layers=layers)


def _translated(
    model: Model, layer: Layer, path: Path, known: Mapping[tuple[str, int], Known]
) -> list[Layer]:
    if len(layer.calls) != 1:
        raise Gap("several calls of one function")
    (call,) = layer.calls
    given: dict[Reference, Known] = {}
    for reference in references([call.arguments, dict(call.keywords)]):
        source = model.layers[reference.layer]
        if source.class_name == "InputLayer":
            shape, dtype = input_spec(source)
            given[reference] = Known(dtype, _sizes(shape))
        elif (
            found := known.get(("/".join((*path, reference.layer)), reference.tensor))
        ) is not None:
            given[reference] = found
    is_node = table_of(layer.module) is TF_OPS
    translator = (NODES if is_node else FUNCTIONS).get(layer.class_name)
    if translator is None:
        raise Gap("which Keras 3 has no operation for")
    keywords = {key: part for key, part in call.keywords.items() if key != "name"}
    if is_node:
        keywords |= layer.config
    steps = Steps(layer.name, given, model.layers)
    try:
        signature(translator).bind(steps, *call.arguments, **keywords)
    except TypeError as e:
        raise Gap(f"an argument that is not known ({e})") from e
    return steps.finish(translator(steps, *call.arguments, **keywords))
