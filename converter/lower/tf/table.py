"""THE table of TensorFlow's ops: a function each, whose signature is its specification.

A handler takes the builder and the op's tensors as positional arguments, in the order of the op's
definition; its attributes are keyword-only, under TensorFlow's names and defaults. An attribute
that is in no signature is unsupported, never ignored; what says only a type is told by the tensors.

To add an op, write its handler into the family it belongs to::

    @tf_op("Xlogy")
    def xlogy(op: Context, x: Value, y: Value, /) -> Value:
        \"\"\"X * log(y), and 0 where x is 0.\"\"\"
        return op.where(op.elementwise("Equal", x, 0.0), 0.0, op.mul(x, op.unary("Log", y)))

and a row into ``fixtures/tf_ops/rows/<family>.py``, which ``make.py`` runs with TensorFlow; of an
op that several front ends have, what it computes goes to `converter.lower.ops`, with a row beside
NumPy in ``tests/converter/lower/ops/test_one_meaning.py``, which needs no framework. An op that
reads variables, calls functions or decodes bytes declares ``op: Session``.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/api_def/base_api
"""

from collections.abc import Callable
from dataclasses import dataclass

from converter.lower.table import H, OpTable, Variant
from converter.lower.table import Row as OpRow
from converter.lower.unsupported import Unsupported as Unsupported

# Attributes that say nothing about what is computed: names and places of things, hints.
IGNORED = frozenset((
    "N", "Tin", "Tout", "container", "shared_name", "debug_name", "validate_shape",
    "validate_indices", "use_locking",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row(OpRow):
    """One op.

    Attributes:
        outputs: Names of its outputs where it has several, in order: functions refer to them so.
            ``name*N`` are as many as the attribute N says, or has types.
        takes_any: Whether its inputs may be what is no tensor: handles, lists, complex numbers.
    """

    outputs: tuple[str, ...] = ()
    takes_any: bool = False

    @property
    def takes_node(self) -> bool:
        """Whether it wants the node, for attributes that say types or functions."""
        return "node" in self.arguments


# A new family is named here.
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
    """Enter a handler into the table under the names of these ops.

    Args:
        names: Of the ops.
        outputs: Names of the op's outputs, where there are several.
        any_input: Whether it takes what is no tensor; else such an input is not supported.

    A handler that has the keyword ``node`` is given the node: for attributes that say types.

    Raises:
        ValueError: One of them is taken.
    """
    return OPS.enter(*names, outputs=outputs, takes_any=any_input)
