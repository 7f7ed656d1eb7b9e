"""THE table of Keras layers: a function each, whose signature is its specification.

A handler takes the builder, the layer's weights, and its tensors as positional arguments; the
layer's arguments and those of the call are keyword-only, under Keras's names and defaults. An
argument that is in no signature is a gap, never ignored. The docstring's first line is the cell of
the support matrix (``convert ops keras``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, TypeVar

from converter.lower.builder import Builder
from converter.lower.gap import Gap as Gap
from converter.lower.values import Value

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)

# What says nothing about inference: names, training, and what the dispatcher uses itself.
# fmt: off
IGNORED = frozenset((
    "name", "trainable", "dtype", "batch_input_shape", "batch_shape", "input_shape",
    "input_dtype", "autocast", "build_config", "shared_object_id", "training", "registered_name",
    "lora_rank", "lora_alpha", "quantization_config", "synchronized", "rng_type",
    # Keras 1 let every layer declare its input
    "cacheable", "create_input_layer", "is_placeholder", "sparse", "ragged",
))
IGNORED_ENDINGS = ("_initializer", "_regularizer", "_constraint", "initializer")
# fmt: on


@dataclass(frozen=True, slots=True)
class Row:
    """One layer of Keras.

    Attributes:
        handler: Builds it.
        arguments: Names of the keyword arguments it takes.
        mask: ``pass`` where Keras hands the mask of the input on, ``drop`` where it does not;
            a handler that takes ``mask`` decides itself.
        is_layer: Whether it has weights and a dtype. Operations have neither: their handlers take
            the arguments of the call as they stand, numbers, slices and lists among them.
        states: Of a cell that a trusted module lowers, which arguments size its states.
    """

    handler: Handler
    arguments: frozenset[str]
    mask: str
    is_layer: bool = True
    states: tuple[str, ...] = ()

    @property
    def takes_mask(self) -> bool:
        """Whether the handler wants the mask of its inputs."""
        return "mask" in self.arguments

    @property
    def takes_structure(self) -> bool:
        """Whether the handler wants the lists that its inputs come in."""
        return "structure" in self.arguments

    @property
    def takes_everything(self) -> bool:
        """Whether the handler looks through the configuration itself."""
        return "config" in self.arguments


@dataclass(frozen=True, slots=True)
class Masked:
    """A handler's result where it makes a mask of its own: of the first output, or of each."""

    value: Any
    mask: Value | Sequence[Value | None] | None


class Table(Mapping[str, Row]):
    """Rows by name, entered by families: modules that are imported when a row is looked for.

    A model needs few of them, and importing all takes longer than lowering it.
    """

    def __init__(self, *families: str) -> None:
        """Name the modules below this package, those first that most models need."""
        self.families = [f"{__package__}.{family}" for family in families]
        self._left = list(self.families)
        self._rows: dict[str, Row] = {}

    def enter(self, name: str, row: Row) -> None:
        """Enter a row.

        Raises:
            ValueError: The name is taken.
        """
        add_row(self._rows, name, row)

    def __getitem__(self, name: str) -> Row:
        while name not in self._rows and self._left:
            import_module(self._left.pop(0))
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        self._import_all()
        return iter(self._rows)

    def __len__(self) -> int:
        self._import_all()
        return len(self._rows)

    def _import_all(self) -> None:
        while self._left:
            import_module(self._left.pop(0))


LAYERS = Table(
    "core", "convolution", "normalization", "pooling", "activations", "merging", "reshaping",
    "applications", "wrappers", "recurrent", "cells", "legacy", "attention",
    "convolutional_recurrent", "quantized", "preprocessing", "images", "lookup", "audio", "lambdas",
)  # fmt: skip
# Classes of keras.ops, many of which are named as layers are.
OPERATIONS = Table(*(f"operations.{family}" for family in (
    "elementwise", "shaping", "indexing", "reductions", "products", "nn", "statistics", "pictures",
    "signals", "linalg",
)))  # fmt: skip
_TENSORFLOW = tuple(f"tensorflow_ops.{name}" for name in ("arithmetic", "arrays", "networks"))
TF_FUNCTIONS = Table(*_TENSORFLOW)  # "math.multiply": what a TFOpLambda calls
TF_OPS = Table(*_TENSORFLOW, "tensorflow_ops.nodes")  # "Mul": the op of a TensorFlowOpLayer
# What the code of a Lambda calls and no configuration names: keras.backend's functions, and those
# of TensorFlow's that are old, make something of nothing, or take their arguments in other orders.
_CALLED = ("lambda_tensorflow", "lambda_images")
BACKEND_FUNCTIONS = Table("lambda_backend", "lambda_arrays", *_CALLED)
TF_CALLED = Table(*_CALLED)

# A module begins with one of these; everything else is a layer.
TABLES = {
    "keras.src.ops.": OPERATIONS,
    "keras.src.activations.": OPERATIONS,
    "keras.src.quantizers.": OPERATIONS,
    "op of tensorflow": TF_OPS,  # as a rule calls these, which no configuration does
    "function of tensorflow": TF_FUNCTIONS,
}


def is_authors(module: str | None) -> bool:
    """Tell a class of the model's author, which may be named as one of Keras's, by its module."""
    if module is None or module.startswith(tuple(TABLES)):
        return False
    return module.split(".")[0] not in ("keras", "tf_keras", "tensorflow", "builtins")


def row_of(module: str | None, class_name: str) -> Row | None:
    """Return the row of a class, or None where there is none: an author's has none here."""
    return None if is_authors(module) else table_of(module).get(class_name)


def table_of(module: str | None) -> Table:
    """Return the table that has the classes of a module."""
    found = (table for prefix, table in TABLES.items() if (module or "").startswith(prefix))
    return next(found, LAYERS)


def keras_layer(*class_names: str, mask: str = "drop") -> Callable[[H], H]:
    """Enter a handler into the table under these class names.

    Raises:
        ValueError: One of them is taken.
    """

    def enter(handler: H) -> H:
        for name in class_names:
            LAYERS.enter(name, Row(handler, _keywords(handler), mask))
        return handler

    return enter


def operation(table: Table, *names: str) -> Callable[[H], H]:
    """Enter a handler into a table of operations under these names.

    It takes the builder, then what the call has, by position or under the names Keras gives it;
    the operation's own arguments are keyword-only.

    Raises:
        ValueError: One of them is taken.
    """

    def enter(handler: H) -> H:
        for name in names:
            table.enter(name, Row(handler, _keywords(handler), "drop", is_layer=False))
        return handler

    return enter


def _keywords(handler: Handler) -> frozenset[str]:
    """Return the names of the arguments that may be given by name."""
    code = getattr(handler, "__code__", None)
    if code is not None and not handler.__dict__:  # else it may say that it has another signature
        named = code.co_varnames[code.co_posonlyargcount : code.co_argcount]
        named += code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        return frozenset(named) - {"op", "w"}
    kinds = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    found = [p.name for p in signature(handler).parameters.values() if p.kind in kinds]
    return frozenset(found) - {"op", "w"}


def add_row(table: dict[str, Row], name: str, row: Row) -> None:
    """Enter a row into a table.

    Raises:
        ValueError: The name is taken.
    """
    if name in table:
        raise ValueError(f"two handlers for {name}")
    table[name] = row


def unknown_arguments(row: Row, config: Mapping[str, Any]) -> list[str]:
    """Return the arguments of a layer that its handler does not take."""
    if row.takes_everything:
        return []
    if not row.is_layer:
        return [name for name in config if name not in row.arguments and name != "name"]
    return [
        name
        for name in config
        if name not in row.arguments and name not in IGNORED and not name.endswith(IGNORED_ENDINGS)
    ]


def known_arguments(row: Row, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a layer that its handler takes."""
    found = {name: value for name, value in config.items() if name in row.arguments}
    if row.takes_everything:
        found["config"] = config
    return found


def compute_dtype(config: Mapping[str, Any]) -> str | None:
    """Return what a layer computes in, by its dtype policy; None where the config is silent."""
    policy = config.get("dtype")
    if isinstance(policy, Mapping):
        inner = policy.get("config")
        inner = inner if isinstance(inner, Mapping) else {}
        policy = inner.get("name") or inner.get("source_name")
    if not isinstance(policy, str):
        return None
    name = policy.removeprefix("mixed_").rpartition("_from_")[2].removeprefix("mixed_")
    return name if "float" in name else None


class Roles:
    """The weights of one layer, by role.

    Attributes:
        layer: Name of the layer.
        tensors: Name below the layer (``kernel``, ``lstm_cell/kernel``) → tensor of the bundle.
        dtype: What the layer computes in; floating point weights are cast to it.
    """

    def __init__(
        self, op: Builder, layer: str, tensors: Mapping[str, str], dtype: str | None = None
    ) -> None:
        self._op = op
        self.layer = layer
        self.tensors = tensors
        self.dtype = dtype

    def __getitem__(self, role: str) -> Value:
        """Return a weight in the layer's dtype.

        Raises:
            Gap: The layer has none of that name.
        """
        value = self._op.weight(self._tensor(role))
        return self._op.cast(value, self.dtype) if self.dtype and value.is_float else value

    def __contains__(self, role: str) -> bool:
        return self._found(role) is not None

    def exact(self, role: str) -> Value:
        """Return a weight in the dtype it is stored in."""
        return self._op.weight(self._tensor(role))

    def below(self, part: str) -> "Roles":
        """Return the weights of a part of the layer, such as a cell or a wrapped layer."""
        head = f"{part}/"
        inner = {n.removeprefix(head): t for n, t in self.tensors.items() if n.startswith(head)}
        return Roles(self._op, f"{self.layer}/{part}", inner, self.dtype)

    def leave(self, *roles: str) -> None:
        """Say of weights that inference does not read them; what is read is so nevertheless."""
        for role, tensor in self.tensors.items():
            if role.rpartition("/")[2] in roles:
                self._op.left.add(tensor)

    def parts(self) -> Iterator[str]:
        """Yield the names of parts that have weights."""
        yield from dict.fromkeys(n.split("/")[0] for n in self.tensors if "/" in n)

    def _tensor(self, role: str) -> str:
        found = self._found(role)
        if found is None:
            have = ", ".join(self.tensors) or "none"
            raise Gap(f"has no weight {role!r} (it has {have})")
        return found

    def _found(self, role: str) -> str | None:
        if role in self.tensors:
            return self.tensors[role]
        # "lstm_cell/kernel": the cell of a layer whose other weights, if any, have other names.
        ends = [t for n, t in self.tensors.items() if n.endswith(f"/{role}")]
        return ends[0] if len(ends) == 1 else None
