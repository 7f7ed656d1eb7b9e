"""Options of single artifacts of a batch, from a TOML file.

Each table ``[[artifact]]`` has globs over names in the registry under ``name``, and options spelled
as the flags of ``convert batch`` are::

    [[artifact]]
    name = ["vision/*", "audio/vad.pt"]
    input = "image:float32:batch,3,224,224"
    atol = 1e-4

The command line has the options of all other artifacts. Of several tables that match an artifact, a
later one decides. The file may name code to run (``trust``), because the command line names it.
"""

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from converter.batch.request import Override
from converter.cli.configuration import KEYS
from converter.cli.parameters import parse_arch, rows_of
from converter.cli.rows import Row
from formats.errors import UsageError

TABLE, NAME = "artifact", "name"
ROWS: Mapping[str, Row] = {row.name: row for row in rows_of("batch")}


def read_overrides(path: Path) -> tuple[Override, ...]:
    """Return the overrides that a file lists.

    Raises:
        UsageError: It cannot be read, or a table has no name, an unknown option or a wrong value.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise UsageError(f"cannot be read: {e}", where=path) from e
    tables = document.pop(TABLE, [])
    if document or not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise UsageError("settings of artifacts", expected=f"tables [[{TABLE}]]", where=path)
    found = []
    for number, table in enumerate(tables, 1):
        try:
            found.append(_read_table(table))
        except UsageError as e:
            e.add_note(f"in table {number} of {path}")
            raise
    return tuple(found)


def _read_table(table: dict[str, Any]) -> Override:
    names = table.pop(NAME, None)
    globs = [names] if isinstance(names, str) else names
    if not globs or not isinstance(globs, list) or not all(isinstance(g, str) for g in globs):
        raise UsageError(f"{NAME}={names!r}", expected="a glob over names, or a list of them")
    fields: dict[str, object] = {}
    for key, value in table.items():
        row = _find_row(key)
        fields[row.field] = row.value(_convert(row, value))
    if "arch.factory" in fields or "arch.arguments" in fields:
        factory: Any = fields.pop("arch.factory", None)
        arguments: Any = fields.pop("arch.arguments", None)
        fields["arch"] = parse_arch(factory, arguments)
    return Override(tuple(globs), fields)


def _find_row(key: str) -> Row:
    plain = key.replace("-", "_")
    row = ROWS.get(KEYS.get(plain, plain))
    if row is None:
        flags = [one.flag.lstrip("-") for one in ROWS.values()]
        near = get_close_matches(key, flags, n=1)
        raise UsageError(
            f"sets the unknown option {key!r}", hint=f"Did you mean {near[0]!r}?" if near else None
        )
    return row


def _convert(row: Row, value: object) -> object:
    """Return a value of TOML as the command line would give it.

    Raises:
        UsageError: It is of another type.
    """
    types = get_args(row.type) or (row.type,)
    kind = next(t for t in types if t is not type(None))
    if kind is bool or isinstance(value, bool):
        if kind is bool and isinstance(value, bool):
            return value
    elif kind in (int, float):
        if isinstance(value, kind) or (kind is float and isinstance(value, int)):
            return kind(value)
    elif isinstance(value, str | int | float | list):
        items = [str(item) for item in (value if isinstance(value, list) else [value])]
        if kind is not str and kind is not Path:
            return items
        if len(items) == 1 or row.parse is not None:
            return kind(",".join(items))
    raise UsageError(
        f"{row.flag.lstrip('-')}={value!r}", expected=row.metavar or str(kind.__name__)
    )
