"""The door to TensorFlow's table: here alone, Keras's front end calls TensorFlow's ops.

Operations of TensorFlow stand in models of tf.keras under the names of ops (a TensorFlowOpLayer)
and of functions (a TFOpLambda, the code of a Lambda). What an op computes, its row in TensorFlow's
table says; `tensorflow_ops` says which ops a function calls.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.operations.operands import tensor
from converter.lower.keras.table import Row
from converter.lower.keras.version_upgrades_of_operations import is_type
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.rows import call_row
from converter.lower.tf.session import Session
from converter.lower.tf.table import OPS
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

# Rows that take variables and the like as well as tensors.
OF_TENSORS = frozenset((
    "Cast", "CheckNumerics", "Identity", "IdentityN", "PreventGradient", "Shape", "Snapshot",
    "StopGradient",
))  # fmt: skip
# Which constants among the inputs have the dtype of the tensors: all of an op's, or some.
ALL = slice(None)
OF_DTYPE_T = {
    **dict.fromkeys((
        "Add", "AddN", "AddV2", "Atan2", "BatchMatMul", "BatchMatMulV2", "BiasAdd",
        "ClipByValue", "Div", "DivNoNan", "Einsum", "Equal", "FloorDiv", "FloorMod",
        "Greater", "GreaterEqual", "Less", "LessEqual", "MatMul", "Maximum", "Minimum", "Mod",
        "Mul", "MulNoNan", "NotEqual", "Pack", "Pow", "RealDiv", "SquaredDifference", "Sub",
        "TruncateDiv", "Xdivy", "Xlogy",
    ), ALL),
    "Concat": slice(1, None), "ConcatV2": slice(-1), "Fill": slice(1, 2), "OneHot": slice(2, 4),
    "PadV2": slice(2, 3), "Select": slice(1, 3), "SelectV2": slice(1, 3),
}  # fmt: skip


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
        name: Of the op.
        inputs: In the order of its definition.
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


def call_op_of_layer(op: Builder, *inputs: Any, op_type: str, **attributes: Any) -> list[Value]:
    """Return what the op of a TensorFlowOpLayer yields of tensors and constants."""
    dtype = attributes.get("T") or next((v.dtype for v in inputs if isinstance(v, Value)), None)
    alike = range(len(inputs))[OF_DTYPE_T.get(op_type, slice(0))]
    values = [
        v if isinstance(v, Value) else tensor(op, v, dtype if i in alike else None)
        for i, v in enumerate(inputs)
    ]
    return call_op_of_several(op, op_type, *values, **attributes)


@dataclass(frozen=True, slots=True)
class OpOfTensorFlow(Row):
    """A row of TensorFlow's table as one of Keras's."""

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Return those names that say more than a dtype and that the handler does not take."""
        return [name for name in Row.unknown(self, names) if not is_type(name)]

    def known(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return all attributes."""
        return dict(given)


def row_of_op(name: str) -> Row:
    """Return the row of an op that computes tensors of tensors alone.

    Raises:
        KeyError: There is none.
    """
    row = OPS[name]
    takes_more = row.takes_any or row.kinds.get("op") is Session
    if (takes_more and name not in OF_TENSORS) or not (row.positional or row.is_variadic):
        raise KeyError(name)
    return OpOfTensorFlow(
        name, partial(call_op_of_layer, op_type=name), row.summary, row.module, row.parameters,
        arguments=row.arguments, is_ignored=row.is_ignored, is_layer=False,
    )  # fmt: skip
