"""Values on the edges of a TensorFlow graph that are not tensors: handles, lists, dead branches."""

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from converter.lower.graph import Shape
from converter.lower.ops.complex import Complex as Complex
from converter.lower.values import Value


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable: a resource, or a reference of TensorFlow 1, which reads as its value.

    Attributes:
        key: Key of its state: the node's name.
        dtype: Dtype of its value.
        is_reference: Whether it is read wherever it is used as a tensor.
        shared: Second name (`shared_name`), by which other nodes may refer to it.
        shape: Declared shape of its value.
    """

    key: str
    dtype: str
    is_reference: bool = False
    shared: str = ""
    shape: Shape | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A lookup table; its entries are state.

    Attributes:
        key: Key of its entries: the node's name.
        key_dtype: Dtype of the keys.
        value_dtype: Dtype of the values.
        shared: Second name (`shared_name`).
    """

    key: str
    key_dtype: str
    value_dtype: str
    shared: str = ""


@dataclass(slots=True)
class Entries:
    """The entries of a lookup table: a vector of keys and one of values, in the same order."""

    keys: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, slots=True)
class Stack:
    """A TensorArray or TensorList: elements of one shape, stacked along a first axis.

    Attributes:
        dtype: Dtype of the elements.
        element: Shape of each element, as far as known; None if the rank is unknown.
        tensor: All elements stacked, or None while they are not in one tensor.
        length: Number of elements, a scalar; None if it is the size of `tensor`.
        items: The single elements if their number is static; None for those not set.
        grows: Whether setting an element after the last one appends it.
        loop: The loop of which it is a loop variable, and the variable's index; else None.
        written: The index (None appends) and element that an iteration of the loop writes.
        sought: Whether the loop is lowered only to infer dtype and shape of the elements.
    """

    dtype: str
    element: Shape | None
    tensor: Value | None = None
    length: Value | None = None
    items: "tuple[Value | None, ...] | None" = None
    grows: bool = False
    loop: "tuple[object, int] | None" = None
    written: "tuple[Value | None, Value] | None" = None
    sought: bool = False

    def filled(self, tensor: Value) -> "Stack":
        """Return a stack of all rows of a tensor."""
        return Stack(self.dtype, tensor.shape[1:], tensor, grows=self.grows)


@dataclass(frozen=True, slots=True)
class Handle:
    """A handle whose content is on another edge (TensorArray: handle and flow)."""

    key: str
    dtype: str
    element: Shape | None
    length: "Value | None" = None
    grows: bool = False


@dataclass(frozen=True, slots=True)
class RaggedRows:
    """The rows of a ragged tensor, as a list of tensors of different lengths.

    Attributes:
        splits: Row splits [rows + 1]: row `i` has the values `splits[i]:splits[i + 1]`.
        values: The concatenated values of all rows.
    """

    splits: Value
    values: Value


@dataclass(frozen=True, slots=True)
class Unranked:
    """A tensor of unknown rank."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Dead:
    """An output of a branch that is never taken."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """An output of a node that is not supported."""


@dataclass(frozen=True, slots=True)
class Record:
    """Any other value that op families pass to one another, by kind."""

    kind: str
    content: dict[str, object] = field(default_factory=dict)


DEAD, UNKNOWN = Dead(), Unknown()

ProgramValue: TypeAlias = (
    "Value | Variable | Table | Stack | Handle | RaggedRows | Complex | Unranked | Dead | Unknown"
    " | Record"
)
