"""Ops of TensorFlow, as the node of a TensorFlowOpLayer names them: rows of TensorFlow's own table.

Inputs are in the order of the op's definition, with the layer's constants among them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.operations.operands import tensor
from converter.lower.keras.table import Row
from converter.lower.keras.tensorflow_rows import call_op_of_several, row_of_tensors
from converter.lower.keras.version_upgrades_of_operations import is_type
from converter.lower.values import Value

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
        KeyError: There is no such op.
    """
    row = row_of_tensors(name)
    return OpOfTensorFlow(
        name, partial(call_op_of_layer, op_type=name), row.summary, row.module, row.parameters,
        arguments=row.arguments, is_ignored=row.is_ignored, is_layer=False,
    )  # fmt: skip
