"""What flows along the edges of a TensorFlow graph and is no tensor: handles, lists, dead ends."""

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from converter.lower.graph import Shape
from converter.lower.ops.complex import Complex as Complex
from converter.lower.values import Value


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable: a resource, or TensorFlow 1's reference, which reads as its value.

    Attributes:
        key: What the state is found under: the node's name.
        dtype: Of its value.
        is_reference: Whether using it reads it.
        shared: A second name, under which other nodes may mean the same.
        shape: Of its value, as declared.
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
        key: What they are found under: the node's name.
        key_dtype: Of the keys.
        value_dtype: Of the values.
        shared: A second name.
    """

    key: str
    key_dtype: str
    value_dtype: str
    shared: str = ""


@dataclass(slots=True)
class Entries:
    """What a lookup table holds: keys and values, each a vector, in the order of their rows."""

    keys: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, slots=True)
class Stack:
    """A TensorArray or a list of tensors: equal elements, stacked along a first axis.

    Attributes:
        dtype: Of the elements.
        element: Shape of each, as far as it is known; None without even a rank.
        tensor: All elements, or None while they are not in one tensor.
        length: How many there are, a scalar; None where the tensor says it.
        items: The elements one by one, None for those not set; of static number.
        grows: Whether setting an element behind the last one makes it longer.
        loop: Inside a loop whose variable it is, the loop, and which variable; else None.
        written: Inside a loop, what one round sets: an index, None for the end, and an element.
        sought: Whether a loop is only walked to learn what its elements are like.
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
        """Return it with these elements, as many as there are."""
        return Stack(self.dtype, tensor.shape[1:], tensor, grows=self.grows)


@dataclass(frozen=True, slots=True)
class Handle:
    """The handle of something whose content flows along another edge (a TensorArray's)."""

    key: str
    dtype: str
    element: Shape | None
    length: "Value | None" = None
    grows: bool = False


@dataclass(frozen=True, slots=True)
class RaggedRows:
    """The rows of a ragged tensor, as a list of tensors of different lengths.

    Attributes:
        splits: [rows + 1]: index of the first value of each row, and behind the last one.
        values: The values of all rows, one after another.
    """

    splits: Value
    values: Value


@dataclass(frozen=True, slots=True)
class Unranked:
    """A tensor of which not even the number of axes is known."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Dead:
    """What a branch yields that is never taken."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """What a node would have yielded that is not supported."""


@dataclass(frozen=True, slots=True)
class Record:
    """Anything else that families hand to one another, by kind."""

    kind: str
    content: dict[str, object] = field(default_factory=dict)


DEAD, UNKNOWN = Dead(), Unknown()

ProgramValue: TypeAlias = (
    "Value | Variable | Table | Stack | Handle | RaggedRows | Complex | Unranked | Dead | Unknown"
    " | Record"
)
