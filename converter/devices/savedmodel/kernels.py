"""Which ops TensorFlow has kernels of, for which device and which types, as TensorFlow says itself.

The table is kernels.json, written by fixtures/tensorflow/make_kernels.py from TensorFlow's own
registry. Soft placement is not to be relied upon (servers and sessions have it off), so what has
no kernel on the device is not put there.
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

# Who runs these is decided by what they are for: control, other functions, files, Python, text.
# "Assert" and "Print" have GPU kernels that do nothing.
_UNPLACED = frozenset((
    "NoOp", "Placeholder", "PlaceholderV2", "PlaceholderWithDefault", "Assert", "Print", "PrintV2",
    "PartitionedCall", "StatefulPartitionedCall", "RemoteCall", "SymbolicGradient", "Case",
    "StatelessCase", "If", "StatelessIf", "While", "StatelessWhile", "For", "ControlTrigger",
    "PyFunc", "PyFuncStateless", "EagerPyFunc", "XlaLaunch", "XlaCallModule",
))  # fmt: skip


def has_cpu_kernel(op: str) -> bool:
    """Tell whether an op runs on a CPU; those we do not know are taken to."""
    return op not in _table()["gpu_only"]


def has_gpu_kernel(node: Node) -> bool:
    """Tell whether a node, with the types it has, runs on a GPU."""
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


def follows(node: Node) -> bool:
    """Tell whether a node must stand where the variable or table is that it works on."""
    return node.op in _table()["follows"]


def is_variable(node: Node) -> bool:
    """Tell whether a node is a variable, which a place can be chosen for."""
    return node.op in ("VarHandleOp", "VariableV2", "Variable")


def may_be_placed(node: Node, kind: str) -> bool:
    """Tell whether a node can be told to run on a device of this kind.

    What handles text, resources or variants of whatever type goes where those are.
    """
    if node.op in _UNPLACED or node.calls or follows(node):
        return False
    held = {t % _REFERENCE for types in node.types.values() for t in types}
    if held & set(_HANDLES):
        return False
    return has_gpu_kernel(node) if kind == "GPU" else node.op in _known()


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_PATH.read_text())
    return table | {"gpu_only": set(table["gpu_only"]), "follows": set(table["follows"])}


@cache
def _known() -> frozenset[str]:
    table = _table()
    return frozenset(name for name in table["gpu"] if name not in table["gpu_only"])
