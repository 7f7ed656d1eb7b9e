"""What a walk through a TensorFlow graph knows: the values of a body's nodes, and gaps."""

from dataclasses import dataclass, field

from converter.lower.tf.graphdef import Body, Port
from converter.lower.tf.program_values import ProgramValue

Gates = frozenset[tuple[str, bool]]  # names of conditions, and what they must be
NO_GATES: Gates = frozenset()


@dataclass(slots=True)
class Activation:
    """A body being walked.

    Attributes:
        body: The graph or function.
        path: Names of the calls that lead here.
        values: What nodes yielded; UNKNOWN or DEAD where all of a node's outputs are that.
        gates: Conditions that a node's outputs depend on (TensorFlow 1's Switch).
        read: Which outputs of nodes are read by what is walked.
    """

    body: Body
    path: tuple[str, ...] = ()
    values: dict[str, "list[ProgramValue] | ProgramValue"] = field(default_factory=dict)
    gates: dict[str, Gates] = field(default_factory=dict)
    read: set[Port] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Found:
    """One gap: the op that has it, the node, and what it is."""

    op: str
    where: str
    reason: str

    @property
    def what(self) -> str:
        """The gap by the same words in every model."""
        why = "" if self.reason == "not in the table" else f": {self.reason}"
        return f"TensorFlow op {self.op}{why}"
