"""State of the interpretation of a graph or function body: the values of its nodes."""

from dataclasses import dataclass, field

from converter.lower.tf.graphdef import Body, Port
from converter.lower.tf.program_values import ProgramValue

Gates = frozenset[tuple[str, bool]]  # names of conditions, and their required values
NO_GATES: Gates = frozenset()


@dataclass(slots=True)
class BodyState:
    """A body that is being interpreted.

    Attributes:
        body: The graph or function.
        path: Names of the calls that lead here.
        values: Outputs of nodes; UNKNOWN or DEAD in place of a list where it holds for all outputs.
        gates: Conditions that the outputs of a node depend on (TensorFlow 1's Switch).
        read: Outputs of nodes that the interpreted part reads.
    """

    body: Body
    path: tuple[str, ...] = ()
    values: dict[str, "list[ProgramValue] | ProgramValue"] = field(default_factory=dict)
    gates: dict[str, Gates] = field(default_factory=dict)
    read: set[Port] = field(default_factory=set)
