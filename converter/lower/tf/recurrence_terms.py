"""Expressions of what a round of a loop computes, as far as recurrent cells are made of them.

An expression is a tuple, its kind first; sums of products with matrices are `Linear`, and other
sums and products `Pair`. See `recurrence`.
"""

from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

Span: TypeAlias = tuple[int, int]
# A tuple whose first part is its kind, or a Linear or a Pair, which are read like one.
Symbol: TypeAlias = Any
Activation: TypeAlias = tuple[str, float | None, float | None]

LINEAR: Activation = ("Affine", 1.0, 0.0)
ACTIVATIONS = {
    "Sigmoid": (None, None), "Tanh": (None, None), "Relu": (None, None), "Softplus": (None, None),
    "Softsign": (None, None), "Elu": (1.0, None), "LeakyRelu": (0.01, None),
    "HardSigmoid": (0.2, 0.5),
}  # fmt: skip


class Other(Exception):  # noqa: N818 - no error: the loop stays one
    """A round computes what no cell does."""


class Pair:
    """A sum or a product of two; equal ones are one, so that comparing them costs nothing."""

    __slots__ = ("kind", "operands")

    def __init__(self, kind: str, operands: "frozenset[Symbol]") -> None:
        self.kind, self.operands = kind, operands

    def __getitem__(self, place: int) -> Any:
        return (self.kind, self.operands)[place]


@dataclass(frozen=True, slots=True)
class Term:
    """A product of something of a round and a part of a matrix from outside."""

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
        biases: Parts of vectors from outside.
        shift: A number that is added.
        peepholes: Vectors from outside by which something is multiplied, element by element.
    """

    width: int
    terms: tuple[Term, ...] = ()
    biases: tuple[tuple[str, Span], ...] = ()
    shift: float = 0.0
    peepholes: tuple[tuple[str, Symbol], ...] = ()

    def __getitem__(self, place: int) -> Any:
        """Return what kind of expression this is, as of any other."""
        if place:
            raise Other
        return "linear"

    def plus(self, other: "Linear") -> "Linear":
        """Return the sum of two."""
        if self.width != other.width:
            raise Other
        return Linear(
            self.width, self.terms + other.terms, self.biases + other.biases,
            self.shift + other.shift, self.peepholes + other.peepholes,
        )  # fmt: skip

    def cut(self, start: int, end: int) -> "Linear":
        """Return some of the columns."""
        if self.peepholes or not 0 <= start < end <= self.width:
            raise Other
        terms = (replace(t, columns=_within(t.columns, start, end)) for t in self.terms)
        biases = ((name, _within(span, start, end)) for name, span in self.biases)
        return Linear(end - start, tuple(terms), tuple(biases), self.shift)


def _within(span: Span, start: int, end: int) -> Span:
    return span[0] + start, span[0] + end


@dataclass(slots=True)
class Cell:
    """A cell that was found.

    Attributes:
        op_type: ONNX's operator.
        states: Numbers of its states: the output, and LSTM's other one.
        output: The expression of its output.
        gates: In ONNX's order.
        activations: As ONNX has them.
        inner: GRU's product of the state, if that is reset behind it.
        peepholes: LSTM's, for i, o and f.
    """

    op_type: str
    states: list[int]
    output: Symbol
    gates: list[Linear]
    activations: list[Activation]
    inner: Linear | None = None
    peepholes: list[str] = field(default_factory=list)
