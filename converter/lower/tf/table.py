"""THE table of TensorFlow's ops: a function each, whose signature is its specification.

A handler takes the builder and the op's tensors as positional arguments, in the order of the op's
definition; its attributes are keyword-only, under TensorFlow's names and defaults. An attribute
that is in no signature is a gap, never ignored; what says only a type is told by the tensors. The
docstring's first line is the cell of the support matrix (``convert ops tf``).
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/api_def/base_api
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from converter.lower.gap import Gap as Gap

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)

# Attributes that say nothing about what is computed: names and places of things, hints.
IGNORED = frozenset((
    "N", "Tin", "Tout", "container", "shared_name", "debug_name", "validate_shape",
    "validate_indices", "use_locking",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One op.

    Attributes:
        handler: Builds it.
        arguments: Names of the attributes it takes.
        outputs: Names of its outputs where it has several, in order: functions refer to them so.
            ``name*N`` are as many as the attribute N says, or has types.
        takes_any: Whether its inputs may be what is no tensor: handles, lists, complex numbers.
        takes_node: Whether it wants the node, for attributes that say types or functions.
    """

    handler: Handler
    arguments: frozenset[str]
    outputs: tuple[str, ...] = ()
    takes_any: bool = False
    takes_node: bool = False


class Table(Mapping[str, Row]):
    """Rows by op, entered by families: modules that are imported when a row is looked for.

    A model needs few of them, and importing all takes longer than lowering it.
    """

    def __init__(self, *families: str) -> None:
        """Name the modules below this package, those first that most models need."""
        self._left = [f"{__package__}.{family}" for family in families]
        self._rows: dict[str, Row] = {}

    def enter(self, name: str, row: Row) -> None:
        """Enter a row.

        Raises:
            ValueError: The name is taken.
        """
        if name in self._rows:
            raise ValueError(f"two handlers for {name}")
        self._rows[name] = row

    def __getitem__(self, name: str) -> Row:
        while name not in self._rows and self._left:
            import_module(self._left.pop(0))
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        while self._left:
            import_module(self._left.pop(0))
        return iter(self._rows)

    def __len__(self) -> int:
        return sum(1 for _ in self)


# A new family is named here.
OPS = Table(
    "basics", "elementwise", "activations", "arrays", "slices", "padding", "blocks",
    "variables", "calls", "convolution", "pooling", "normalization", "products",
    "reductions", "indexing", "images", "lists", "selection", "scatter", "recurrent",
    "tables", "strings", "quantization", "random", "segments", "linear_algebra",
    "diagonals", "signals", "sparse", "detection", "ragged", "bits", "special", "counting",
    "quantized", "rows", "parsing", "decoding",
)  # fmt: skip


def tf_op(*names: str, outputs: tuple[str, ...] = (), any_input: bool = False) -> Callable[[H], H]:
    """Enter a handler into the table under the names of these ops.

    Args:
        names: Of the ops.
        outputs: Names of the op's outputs, where there are several.
        any_input: Whether it takes what is no tensor; else such an input is a gap.

    A handler that has the keyword ``node`` is given the node: for attributes that say types.

    Raises:
        ValueError: One of them is taken.
    """

    def enter(handler: H) -> H:
        code = handler.__code__
        arguments = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        named = frozenset(arguments)
        row = Row(handler, named - {"node"}, outputs, any_input, "node" in named)
        for name in names:
            OPS.enter(name, row)
        return handler

    return enter
