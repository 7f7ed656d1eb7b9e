"""Look up the devices and dtypes for which TensorFlow has kernels of an op.

The table kernels.json is written by fixtures/tensorflow/make_kernels.py from TensorFlow's registry.
Soft placement cannot be relied upon (servers and sessions turn it off), so an op without a kernel
on the device is not placed there.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from converter.devices.savedmodel.scopes import Node

_PATH = Path(__file__).with_name("kernels.json")
_STRING, _RESOURCE, _VARIANT = 7, 20, 21
_REFERENCE = 100  # added to a type by ref edges of TF 1
_HANDLES = (_STRING, _RESOURCE, _VARIANT)

# Never placed: control flow, calls of functions, files, Python, strings. "Assert" and "Print" have
# GPU kernels that do nothing.
_UNPLACED = frozenset((
    "NoOp", "Placeholder", "PlaceholderV2", "PlaceholderWithDefault", "Assert", "Print", "PrintV2",
    "PartitionedCall", "StatefulPartitionedCall", "RemoteCall", "SymbolicGradient", "Case",
    "StatelessCase", "If", "StatelessIf", "While", "StatelessWhile", "For", "ControlTrigger",
    "PyFunc", "PyFuncStateless", "EagerPyFunc", "XlaLaunch", "XlaCallModule",
))  # fmt: skip


def has_cpu_kernel(op: str) -> bool:
    """Return whether an op runs on a CPU; unknown ops are assumed to."""
    return op not in _table()["gpu_only"]


def has_gpu_kernel(node: Node) -> bool:
    """Return whether a node, with its dtypes, runs on a GPU."""
    rows = _table()["gpu"].get(node.op)
    if rows is None:
        return False
    defaults = _table()["default"].get(node.op, {})

    def fits(row: dict[str, list[int]]) -> bool:
        for attribute, allowed in row.items():
            types = node.types.get(attribute)
            if types is None and attribute in defaults:
                types = (defaults[attribute],)
            if types is None or not {t % _REFERENCE for t in types} <= set(allowed):
                return False
        return True

    return any(fits(row) for row in rows)


def follows_resource(node: Node) -> bool:
    """Return whether a node must be on the device of the variable or table that it works on."""
    return node.op in _table()["follows"]


def is_variable(node: Node) -> bool:
    """Return whether a node is a variable, which can be placed."""
    return node.op in ("VarHandleOp", "VariableV2", "Variable")


def may_be_placed(node: Node, kind: str) -> bool:
    """Return whether a node can be placed on a device of a kind.

    Ops on strings, resources and variants run where these are.
    """
    if node.op in _UNPLACED or node.calls or follows_resource(node):
        return False
    held = {t % _REFERENCE for types in node.types.values() for t in types}
    if held & set(_HANDLES):
        return False
    return has_gpu_kernel(node) if kind == "GPU" else node.op in _known_ops()


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_PATH.read_text())
    return table | {"gpu_only": set(table["gpu_only"]), "follows": set(table["follows"])}


@cache
def _known_ops() -> frozenset[str]:
    table = _table()
    return frozenset(name for name in table["gpu"] if name not in table["gpu_only"])
