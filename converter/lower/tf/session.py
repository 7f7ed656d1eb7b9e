"""The builder of handlers that also access variables, functions or encoded inputs."""

from converter.lower.tf.context import Context
from converter.lower.tf.decoded import Decoded
from converter.lower.tf.state import State
from converter.lower.tf.walk import Walker


class Session(Context):
    """A builder with the state of one lowering run.

    A handler that needs it declares ``op: Session``; the others use the builder alone.

    Attributes:
        state: Variables and tables.
        walker: Lowers the nodes of the graph, and those of functions that ops call.
        decoded: Encoded graph inputs (bytes), and the decoded inputs that replace them.
    """

    state: State
    walker: Walker
    decoded: Decoded
