"""The builder that handlers get that read or change more than tensors."""

from converter.lower.tf.context import Context
from converter.lower.tf.decoded import Decoded
from converter.lower.tf.state import State
from converter.lower.tf.walk import Walker


class Session(Context):
    """A builder, and what one run of the lowering knows besides.

    A handler that needs it declares ``op: Session``; all others see the builder alone.

    Attributes:
        state: Variables and tables.
        walker: What walks the graph: for ops that call functions.
        decoded: Inputs of bytes that are decoded.
    """

    state: State
    walker: Walker
    decoded: Decoded
