"""The table of TensorFlow ops: one handler each, whose signature is the op's specification.

A handler takes the builder and the op's tensors as positional arguments, in the order of the op's
definition; its attributes are keyword-only, under TensorFlow's names and defaults. An attribute
that is not in the signature is unsupported, never ignored, unless it is a type: tensors have that.

To add an op, write its handler in the module of its family::

    @tf_op("Xlogy")
    def xlogy(op: Context, x: Value, y: Value, /) -> Value:
        \"\"\"`x * log(y)`, and 0 where `x` is 0.\"\"\"
        return op.where(op.elementwise("Equal", x, 0.0), 0.0, op.mul(x, op.unary("Log", y)))

and add a row to ``fixtures/tf_ops/rows/<family>.py``, which ``make.py`` runs with TensorFlow. If
several front ends have the op, its computation goes to `converter.lower.ops`, with a row that
compares it with NumPy in ``tests/converter/lower/ops/test_one_meaning.py``. A handler that reads
variables, calls functions or decodes bytes declares ``op: Session``.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/api_def/base_api
"""

from collections.abc import Callable
from dataclasses import dataclass

from converter.lower.table import H, OpTable, Variant
from converter.lower.table import Row as OpRow
from converter.lower.unsupported import Unsupported as Unsupported

# Attributes that do not affect the result: counts, dtypes, names and hints.
IGNORED = frozenset((
    "N", "Tin", "Tout", "container", "shared_name", "debug_name", "validate_shape",
    "validate_indices", "use_locking",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row(OpRow):
    """One op.

    Attributes:
        outputs: Names of its outputs if it has several, in order; functions refer to them by name.
            ``name*N`` is N outputs, or one for each type if the attribute N is a list.
        takes_any: Whether its inputs may be other than tensors: handles, lists, complex tensors.
    """

    outputs: tuple[str, ...] = ()
    takes_any: bool = False

    @property
    def takes_node(self) -> bool:
        """Whether the handler takes the node, for attributes that are types or functions."""
        return "node" in self.arguments


# Modules of handlers, one for each family of ops.
OPS = OpTable(
    Row, __package__, (
    "basics", "elementwise", "activations", "arrays", "slices", "padding", "space_to_batch",
    "variables", "calls", "convolution", "fused_convolution", "pooling", "normalization",
    "products", "reductions", "indexing", "images", "lists", "topk_unique", "scatter", "recurrent",
    "tables", "strings", "quantization", "random", "segments", "linear_algebra", "diagonals",
    "signals", "sparse", "detection", "ragged", "bitwise", "special", "range_bincount", "quantized",
    "ctc_and_sets", "parsing", "decoding",
    ),
    supplied=("node",), is_ignored=lambda name: name in IGNORED or name.startswith("_"),
)  # fmt: skip


def tf_op(
    *names: str | Variant, outputs: tuple[str, ...] = (), any_input: bool = False
) -> Callable[[H], H]:
    """Enter a handler into the table under the names of ops.

    Args:
        names: Names of the ops.
        outputs: Names of the op's outputs, if it has several.
        any_input: Whether it takes inputs other than tensors; else they are not supported.

    A handler with the keyword ``node`` gets the node, for attributes that are types.

    Raises:
        ValueError: One of the names is already in the table.
    """
    return OPS.enter(*names, outputs=outputs, takes_any=any_input)
