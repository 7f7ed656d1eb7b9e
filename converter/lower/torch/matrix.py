"""The support matrix of torch's ops, printed from the table."""

from typing import Any

from converter.lower.torch.table import OPS


def rows() -> list[dict[str, Any]]:
    """Return a row for each overload of each op."""
    return [
        {
            "name": name,
            "computes": (row.handler.__doc__ or "").strip().split("\n")[0],
            "arguments": list(row.parameters),
        }
        for name, row in sorted(OPS.items())
    ]
