"""Call a row of the table on tensors: a constant where all elements are known, else nodes."""

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

MOST_OUTPUTS = 1 << 16  # of one node, or inputs
FLOATS = 16  # elements of floating point numbers that are computed beforehand
DTYPE_OF = {"Select": 1, "SelectV2": 1, "Fill": 1}  # ops -> the input that has the output's dtype


def call_row(
    op: Context,
    row: Row,
    node: Node,
    inputs: Sequence[ProgramValue],
    attributes: Mapping[str, Any],
) -> Any:
    """Return what an op yields: one tensor, or a list of several.

    Args:
        op: Builder.
        row: The op's.
        node: Given to handlers that ask for it.
        inputs: In the order of the op's definition.
        attributes: Those that the handler takes.

    Raises:
        Unsupported: The handler does not support them.
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
    """Return a node's attributes as its handler takes them.

    Raises:
        Unsupported: It has one that the handler does not take.
    """
    found = {}
    for name, proto in node.raw.items():
        if name in row.arguments:
            value = found[name] = attribute(proto)
            is_count = name.startswith("num") and name != "num_buckets"  # which says how large
            if is_count and isinstance(value, int) and value > MOST_OUTPUTS:
                raise Unsupported(f"{name} = {value}")
        elif not row.is_ignored(name) and not is_type(proto):
            raise Unsupported(f"attribute {name}")
    return found


def _fold(
    op: Context, node: Node, inputs: Sequence[ProgramValue], attributes: Mapping[str, Any]
) -> np.ndarray | None:
    """Return what is known of the elements that an op yields, or None for nothing."""
    if not inputs or not contents.follows(node.op):
        return None
    arrays = []
    for thing in inputs:
        if not isinstance(thing, Value) or thing.dtype == "string":
            return None
        found = op.elements(thing)
        if found is None or (found.dtype.kind == "f" and found.size > FLOATS):
            return None
        arrays.append(found)
    if node.op == "Cast":
        attributes = {"DstT": node.attribute("DstT")}
    return contents.fold(node.op, arrays, attributes)


def _dtype(node: Node, inputs: Sequence[ProgramValue], elements: np.ndarray) -> Any:
    """Return the dtype of elements that were followed as Python's numbers."""
    if elements.size and all(isinstance(n, bool | np.bool_) for n in elements.flat):
        return np.bool_
    if node.op == "Cast":
        return np.dtype(node.attribute("DstT"))
    first = inputs[DTYPE_OF.get(node.op, 0)]
    return np.dtype(first.dtype) if isinstance(first, Value) else elements.dtype
