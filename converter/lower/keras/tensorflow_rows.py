"""Access to TensorFlow's op table: only here, Keras's front end calls TensorFlow's ops.

Operations of TensorFlow appear in models of tf.keras under the names of ops (a TensorFlowOpLayer)
and of functions (a TFOpLambda, the code of a Lambda). What an op computes, its row in TensorFlow's
table says; `tensorflow_ops` says which ops a function calls.
"""

from collections.abc import Mapping
from typing import Any

from converter.lower.builder import Builder
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.rows import call_row
from converter.lower.tf.session import Session
from converter.lower.tf.table import OPS, Row
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

# Rows that take variables and the like as well as tensors.
OF_TENSORS = frozenset((
    "Cast", "CheckNumerics", "Identity", "IdentityN", "PreventGradient", "Shape", "Snapshot",
    "StopGradient",
))  # fmt: skip


class OpCall(Node):
    """An op that is called, with its attributes as Python has them."""

    __slots__ = ("given",)

    def __init__(self, op: str, given: Mapping[str, Any]) -> None:
        Node.__init__(self, op, op, [], [], {})
        self.given = given

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return one attribute."""
        return self.given.get(name, default)


def call_op(op: Builder, name: str, *inputs: Value, **attributes: Any) -> Value:
    """Return the tensor that an op of TensorFlow yields.

    Args:
        op: Builder.
        name: Name of the op.
        inputs: Inputs in the order of the op's definition.
        attributes: Under its names; dtypes as strings.

    Raises:
        Unsupported: The op's handler does not support them.
    """
    (made,) = call_op_of_several(op, name, *inputs, **attributes)
    return made


def call_op_of_several(op: Builder, name: str, *inputs: Value, **attributes: Any) -> list[Value]:
    """Return the tensors that an op of TensorFlow yields, as `call_op` does for one."""
    row = OPS[name]
    assert isinstance(op, Context)
    known = {key: value for key, value in attributes.items() if key in row.arguments}
    made = call_row(op, row, OpCall(name, attributes), inputs, known)
    tensors = list(made) if isinstance(made, list | tuple) else [made]
    for found in tensors:
        if not isinstance(found, Value):
            raise Unsupported(f"of a {type(found).__name__.lower()}")
    return tensors


def row_of_tensors(name: str) -> Row:
    """Return the row of an op that computes tensors of tensors alone.

    Raises:
        KeyError: There is no such row.
    """
    row = OPS[name]
    takes_more = row.takes_any or row.kinds.get("op") is Session
    if (takes_more and name not in OF_TENSORS) or not (row.positional or row.is_variadic):
        raise KeyError(name)
    return row
