"""Expressions of a loop's iteration that occur in recurrent cells.

An expression is a tuple whose first item is its kind. Sums of products with matrices are `Linear`,
other sums and products are `Pair`. See `recurrence`.
"""

from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

Span: TypeAlias = tuple[int, int]
# A tuple whose first item is its kind, or a Linear or a Pair, which are indexed alike.
Symbol: TypeAlias = Any
Activation: TypeAlias = tuple[str, float | None, float | None]

LINEAR: Activation = ("Affine", 1.0, 0.0)
ACTIVATIONS = {
    "Sigmoid": (None, None), "Tanh": (None, None), "Relu": (None, None), "Softplus": (None, None),
    "Softsign": (None, None), "Elu": (1.0, None), "LeakyRelu": (0.01, None),
    "HardSigmoid": (0.2, 0.5),
}  # fmt: skip


class Other(Exception):  # noqa: N818 - not an error: the loop is kept
    """Raised where an iteration is not a recurrent cell."""


class Pair:
    """A sum or product of two operands. Equal pairs are one object, so they compare by identity."""

    __slots__ = ("kind", "operands")

    def __init__(self, kind: str, operands: "frozenset[Symbol]") -> None:
        self.kind, self.operands = kind, operands

    def __getitem__(self, place: int) -> Any:
        return (self.kind, self.operands)[place]


@dataclass(frozen=True, slots=True)
class Term:
    """A product of an expression and a part of a matrix from outside the loop."""

    source: Symbol
    matrix: str
    rows: Span
    columns: Span


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum of products and biases.

    Attributes:
        width: Number of columns.
        terms: The products.
        biases: Parts of vectors from outside the loop.
        shift: Constant that is added.
        peepholes: Vectors from outside the loop, and the expressions that they are multiplied with.
    """

    width: int
    terms: tuple[Term, ...] = ()
    biases: tuple[tuple[str, Span], ...] = ()
    shift: float = 0.0
    peepholes: tuple[tuple[str, Symbol], ...] = ()

    def __getitem__(self, place: int) -> Any:
        """Return the kind of the expression, as index 0 of a tuple does."""
        if place:
            raise Other
        return "linear"

    def plus(self, other: "Linear") -> "Linear":
        """Return the sum with another."""
        if self.width != other.width:
            raise Other
        return Linear(
            self.width, self.terms + other.terms, self.biases + other.biases,
            self.shift + other.shift, self.peepholes + other.peepholes,
        )  # fmt: skip

    def cut(self, start: int, end: int) -> "Linear":
        """Return the columns from `start` to before `end`."""
        if self.peepholes or not 0 <= start < end <= self.width:
            raise Other
        terms = (replace(t, columns=_within(t.columns, start, end)) for t in self.terms)
        biases = ((name, _within(span, start, end)) for name, span in self.biases)
        return Linear(end - start, tuple(terms), tuple(biases), self.shift)


def _within(span: Span, start: int, end: int) -> Span:
    return span[0] + start, span[0] + end


@dataclass(slots=True)
class Cell:
    """A recurrent cell.

    Attributes:
        op_type: ONNX operator.
        states: Indices of its states: h, and c of an LSTM.
        output: Expression of its output.
        gates: Gates in ONNX's order.
        activations: Activations in ONNX's order.
        inner: Product with the state of a GRU that applies the reset gate after it.
        peepholes: Peephole vectors of an LSTM for i, o and f.
    """

    op_type: str
    states: list[int]
    output: Symbol
    gates: list[Linear]
    activations: list[Activation]
    inner: Linear | None = None
    peepholes: list[str] = field(default_factory=list)
