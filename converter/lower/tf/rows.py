"""Call the handler of an op; fold the op to a constant if all output elements are known."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from converter.lower.tf import contents
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node, attribute, is_type
from converter.lower.tf.program_values import ProgramValue
from converter.lower.tf.table import Row
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

MOST_OUTPUTS = 1 << 16  # maximum number of outputs or inputs of one node
FLOATS = 16  # maximum number of elements of a float tensor that is folded
DTYPE_OF = {"Select": 1, "SelectV2": 1, "Fill": 1}  # ops -> the input that has the output's dtype


def call_row(
    op: Context,
    row: Row,
    node: Node,
    inputs: Sequence[ProgramValue],
    attributes: Mapping[str, Any],
) -> Any:
    """Return the output of an op, or the list of its outputs.

    Args:
        op: Builder.
        row: Row of the op.
        node: Node, passed to handlers that take it.
        inputs: Inputs in the order of the op's definition.
        attributes: Attributes that the handler takes.

    Raises:
        Unsupported: The handler does not support the inputs or attributes.
    """
    elements = _fold(op, node, inputs, attributes)
    if elements is not None and contents.known(elements):
        if elements.dtype == object:
            elements = elements.astype(_dtype(node, inputs, elements))
        return op.constant(elements)
    made = row.handler(op, *inputs, **attributes, **({"node": node} if row.takes_node else {}))
    if elements is not None and isinstance(made, Value):
        op.remember(made, elements)
    return made


def arguments_of(node: Node, row: Row) -> dict[str, Any]:
    """Return a node's attributes as the keyword arguments of its handler.

    Raises:
        Unsupported: The handler does not take one of the attributes.
    """
    found = {}
    for name, proto in node.raw.items():
        if name in row.arguments:
            value = found[name] = attribute(proto)
            is_count = name.startswith("num") and name != "num_buckets"  # a modulus
            if is_count and isinstance(value, int) and value > MOST_OUTPUTS:
                raise Unsupported(f"{name} = {value}")
        elif not row.is_ignored(name) and not is_type(proto):
            raise Unsupported(f"attribute {name}")
    return found


def _fold(
    op: Context, node: Node, inputs: Sequence[ProgramValue], attributes: Mapping[str, Any]
) -> np.ndarray | None:
    """Return the known elements of an op's output, or None if none can be inferred."""
    if not inputs or not contents.follows(node.op):
        return None
    arrays = []
    for operand in inputs:
        if not isinstance(operand, Value) or operand.dtype == "string":
            return None
        found = op.elements(operand)
        if found is None or (found.dtype.kind == "f" and found.size > FLOATS):
            return None
        arrays.append(found)
    if node.op == "Cast":
        attributes = {"DstT": node.attribute("DstT")}
    return contents.fold(node.op, arrays, attributes)


def _dtype(node: Node, inputs: Sequence[ProgramValue], elements: np.ndarray) -> Any:
    """Return the dtype of folded elements that are Python numbers."""
    if elements.size and all(isinstance(n, bool | np.bool_) for n in elements.flat):
        return np.bool_
    if node.op == "Cast":
        return np.dtype(node.attribute("DstT"))
    first = inputs[DTYPE_OF.get(node.op, 0)]
    return np.dtype(first.dtype) if isinstance(first, Value) else elements.dtype
