"""The support matrix of Keras, printed from the tables."""

from typing import Any

from converter.lower.keras.activations import FUNCTIONS
from converter.lower.keras.table import LAYERS, OPERATIONS, TF_FUNCTIONS, TF_OPS

# What stands in front of the names of a table.
TABLES = (
    ("", LAYERS), ("keras.ops ", OPERATIONS), ("tf ", TF_FUNCTIONS), ("TensorFlow op ", TF_OPS),
)  # fmt: skip


def rows() -> list[dict[str, Any]]:
    """Return a row for each layer and operation, and for each activation that is a string."""
    layers = [
        {
            "name": f"{prefix}{name}",
            "computes": _first_line(row.handler.__doc__),
            "arguments": sorted(row.arguments - {"config", "mask"}),
        }
        for prefix, table in TABLES
        for name, row in sorted(table.items())
        if row.handler.__module__ in table.families
    ]
    activations = [
        {"name": f"activation {name}", "computes": _first_line(f.__doc__), "arguments": []}
        for name, f in sorted(FUNCTIONS.items())
    ]
    return layers + activations


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0]
