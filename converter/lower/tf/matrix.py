"""The support matrix of TensorFlow's ops, printed from the table."""

from typing import Any

from converter.lower.tf.table import OPS


def rows() -> list[dict[str, Any]]:
    """Return a row for each op."""
    return [
        {
            "name": name,
            "computes": (row.handler.__doc__ or "").strip().split("\n")[0],
            "arguments": sorted(row.arguments),
        }
        for name, row in sorted(OPS.items())
        if not name.startswith("_Loop")
    ]
