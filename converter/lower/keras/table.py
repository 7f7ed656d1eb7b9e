"""THE table of Keras layers: a function each, whose signature is its specification.

A handler takes the builder, the layer's weights, and its tensors as positional arguments; the
layer's arguments and those of the call are keyword-only, under Keras's names and defaults. An
argument that is in no signature is unsupported, never ignored.

To add a layer, write its handler into the family it belongs to::

    @keras_layer("UnitNormalization")
    def unit_normalization(op: Builder, w: Roles, x: Value, /, *, axis: int = -1) -> Value:
        \"\"\"X / sqrt(sum(x * x)) along an axis.\"\"\"
        length = op.unary("Sqrt", op.reduce("ReduceSum", op.mul(x, x), [axis], keepdims=True))
        return op.div(x, length)

and a row into ``fixtures/keras_layers/rows/<family>.py``, which ``make.py`` runs with both Keras
versions.
Weights are ``w["kernel"]``, by the names that files have. An operation of keras.ops is entered with
``@operation(OPERATIONS, "Logaddexp")``; what it computes goes to `converter.lower.ops`, with a row
beside NumPy in ``tests/converter/lower/ops/test_one_meaning.py``, which needs no framework.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from converter.lower.builder import Builder
from converter.lower.table import H, OpTable, Variant
from converter.lower.table import Row as OpRow
from converter.lower.unsupported import Unsupported as Unsupported
from converter.lower.values import Value

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
class Row(OpRow):
    """One layer of Keras, or one operation.

    Attributes:
        mask: ``pass`` where Keras hands the mask of the input on, ``drop`` where it does not;
            a handler that takes ``mask`` decides itself.
        is_layer: Whether it has weights and a dtype. Operations have neither: their handlers take
            the arguments of the call as they are, numbers, slices and lists among them.
        states: For a cell that a trusted module lowers, the arguments that are the sizes of its
            states.
    """

    mask: str = "drop"
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

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Return those names that the handler does not take: none if it takes ``config``."""
        return [] if "config" in self.arguments else OpRow.unknown(self, names)

    def known(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that the handler takes, all of them together as ``config``."""
        found = OpRow.known(self, given)
        return found | {"config": given} if "config" in self.arguments else found


@dataclass(frozen=True, slots=True)
class Masked:
    """A handler's result where it makes a mask of its own: of the first output, or of each."""

    value: Any
    mask: Value | Sequence[Value | None] | None


SUPPLIED = ("config", "mask", "structure")


def is_without_meaning(name: str) -> bool:
    """Return whether inference does not depend on an argument of a layer."""
    return name in IGNORED or name.endswith(IGNORED_ENDINGS)


def _operations(*families: str) -> OpTable[Row]:
    return OpTable(Row, __package__, families, is_ignored="name".__eq__)


class OpsOfTensorFlow(Mapping[str, Row]):
    """The rows of TensorFlow's own table, which is imported on first use."""

    def __getitem__(self, name: str) -> Row:
        row: Row = import_module(f"{__package__}.tensorflow_ops.nodes").row_of_op(name)
        return row

    def __iter__(self) -> Iterator[str]:
        return (name for name in import_module("converter.lower.tf.table").OPS if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


LAYERS = OpTable(
    Row, __package__, (
    "core", "convolution", "normalization", "pooling", "activations", "merging", "reshaping",
    "applications", "wrappers", "recurrent", "cells", "legacy", "attention",
    "convolutional_recurrent", "quantized", "preprocessing", "images", "lookup", "hashing", "audio",
    "lambdas",
    ),
    leading=2, supplied=SUPPLIED, is_ignored=is_without_meaning,
)  # fmt: skip
# Classes of keras.ops, many of which are named as layers are.
OPERATIONS = _operations(*(f"operations.{family}" for family in (
    "elementwise", "binary", "shaping", "indexing", "reductions", "products", "nn", "statistics",
    "images", "signals", "linalg",
)))  # fmt: skip
_TENSORFLOW = tuple(f"tensorflow_ops.{name}" for name in (
    "elementwise", "arrays", "indexing", "reductions", "products", "networks", "images",
))  # fmt: skip
TF_FUNCTIONS = _operations(*_TENSORFLOW)  # "math.multiply": what a TFOpLambda calls
TF_OPS = OpsOfTensorFlow()  # "Mul": the op of a TensorFlowOpLayer
# What the code of a Lambda calls and no configuration names: keras.backend's functions, and those
# of TensorFlow's that are old, make something of nothing, or take their arguments in other orders.
_CALLED = ("lambda_tensorflow", "lambda_images")
BACKEND_FUNCTIONS = _operations("lambda_backend", "lambda_arrays", *_CALLED)
TF_CALLED = _operations(*_CALLED)

# A module begins with one of these; everything else is a layer.
TABLES: dict[str, Mapping[str, Row]] = {
    "keras.src.ops.": OPERATIONS,
    "keras.src.activations.": OPERATIONS,
    "keras.src.quantizers.": OPERATIONS,
    "op of tensorflow": TF_OPS,  # as a rule calls these, which no configuration does
    "function of tensorflow": TF_FUNCTIONS,
}


def is_authors(module: str | None) -> bool:
    """Return whether a class is the model author's, by its module."""
    if module is None or module.startswith(tuple(TABLES)):
        return False
    return module.split(".")[0] not in ("keras", "tf_keras", "tensorflow", "builtins")


def row_of(module: str | None, class_name: str) -> Row | None:
    """Return the row of a class of Keras, or None."""
    return None if is_authors(module) else table_of(module).get(class_name)


def table_of(module: str | None) -> Mapping[str, Row]:
    """Return the table that has the classes of a module."""
    found = (table for prefix, table in TABLES.items() if (module or "").startswith(prefix))
    return next(found, LAYERS)


def keras_layer(*class_names: str | Variant, mask: str = "drop") -> Callable[[H], H]:
    """Enter a handler into the table under these class names.

    Raises:
        ValueError: One of them is taken.
    """
    return LAYERS.enter(*class_names, mask=mask)


def operation(table: OpTable[Row], *names: str | Variant) -> Callable[[H], H]:
    """Enter a handler into a table of operations under these names.

    It takes the builder, then what the call has, by position or under the names Keras gives it;
    the operation's own arguments are keyword-only.

    Raises:
        ValueError: One of them is taken.
    """
    return table.enter(*names, is_layer=False)


def compute_dtype(config: Mapping[str, Any]) -> str | None:
    """Return what a layer computes in, by its dtype policy; None where that is no float."""
    name = policy_dtype(config)
    return name if name is not None and "float" in name else None


def policy_dtype(config: Mapping[str, Any]) -> str | None:
    """Return the dtype of a layer's policy, as ``uint8``; None where the config is silent."""
    policy = config.get("dtype")
    if isinstance(policy, Mapping):
        inner = policy.get("config")
        inner = inner if isinstance(inner, Mapping) else {}
        policy = inner.get("name") or inner.get("source_name")
    if not isinstance(policy, str):
        return None
    return policy.removeprefix("mixed_").rpartition("_from_")[2].removeprefix("mixed_")


class Roles:
    """The weights of one layer, by role.

    Attributes:
        layer: Name of the layer.
        tensors: Name below the layer (``kernel``, ``lstm_cell/kernel``) → tensor of the bundle.
        dtype: Dtype in which the layer computes; floating-point weights are cast to it.
        policy: dtype of its policy, which images become, integers among them.
        adds_lora: Whether the product of ``lora_kernel_a`` and ``_b`` is added to ``kernel``.
    """

    def __init__(
        self, op: Builder, layer: str, tensors: Mapping[str, str], dtype: str | None = None,
        policy: str | None = None, adds_lora: bool = False,
    ) -> None:  # fmt: skip
        self._op = op
        self.layer = layer
        self.tensors = tensors
        self.dtype = dtype
        self.policy = policy or dtype
        self.adds_lora = adds_lora

    def __getitem__(self, role: str) -> Value:
        """Return a weight in the layer's dtype, with what LoRA adds to it.

        Raises:
            Unsupported: The layer has none of that name.
        """
        op, value = self._op, self._op.weight(self._tensor(role))
        value = op.cast(value, self.dtype) if self.dtype and value.is_float else value
        if not self.adds_lora or f"lora_{role}_a" not in self.tensors:
            return value
        return op.add(value, op.matmul(self[f"lora_{role}_a"], self[f"lora_{role}_b"]))

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
            raise Unsupported(f"has no weight {role!r} (it has {have})")
        return found

    def _found(self, role: str) -> str | None:
        if role in self.tensors:
            return self.tensors[role]
        # "lstm_cell/kernel": the cell of a layer whose other weights, if any, have other names.
        ends = [t for n, t in self.tensors.items() if n.endswith(f"/{role}")]
        return ends[0] if len(ends) == 1 else None


def roles_of(
    op: Builder, layer: str, tensors: Mapping[str, str], config: Mapping[str, Any]
) -> Roles:
    """Return the weights of a layer by its configuration.

    Raises:
        Unsupported: They include LoRA's, with another factor than Keras loads them with.
    """
    rank, alpha = config.get("lora_rank"), config.get("lora_alpha")
    # A .keras file has the sum of kernel and product; an HDF5 file has both.
    adds_lora = bool(rank) and any(role.startswith("lora_") for role in tensors)
    if adds_lora and alpha not in (None, rank):
        raise Unsupported(
            f"lora_alpha {alpha} and lora_rank {rank}: Keras loads such a file with {rank}"
        )
    return Roles(op, layer, tensors, compute_dtype(config), policy_dtype(config), adds_lora)
