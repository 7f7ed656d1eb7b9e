"""Results as HTML tables, for `_repr_html_` in notebooks."""

from collections.abc import Iterable, Sequence
from html import escape

ROWS = 50  # shown per table


def render_table(caption: str, rows: Iterable[Sequence[object]], header: Sequence[str] = ()) -> str:
    """Return an HTML table; every cell is escaped, and the first column is set in bold.

    Args:
        caption: Title above the table.
        rows: Cells, row by row. Rows after the first `ROWS` are counted, not shown.
        header: Names of the columns, if any.
    """
    listed = list(rows)
    lines = [f"<tr><td>… and {len(listed) - ROWS} more</td></tr>"] if len(listed) > ROWS else []
    body = [
        f"<tr><th style='text-align:left'>{escape(str(first))}</th>"
        + "".join(f"<td style='text-align:left'>{escape(str(cell))}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in listed[:ROWS]
    ]
    if header:
        body.insert(0, "<tr>" + "".join(f"<th>{escape(name)}</th>" for name in header) + "</tr>")
    return f"<table><caption>{escape(caption)}</caption>{''.join(body + lines)}</table>"
