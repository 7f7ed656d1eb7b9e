"""JSON: a parser for untrusted files with limits on size, depth and numbers, and a writer."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from formats.core.bundle import JSON
from formats.errors import CorruptError, LimitError

MAX_VALUES = 4_000_000  # commas and opening brackets; each value costs about 64 bytes
MAX_DEPTH = 200  # configurations of deeply nested models reach 60


def parse(data: bytes | str, *, where: str, limit: int) -> JSON:
    """Return what ``data`` says.

    Raises:
        CorruptError: It is no JSON, nests too deeply, or gives a key twice.
        LimitError: It is longer than ``limit`` bytes, or holds too many values.
    """
    if len(data) > limit:
        raise LimitError(f"JSON of {len(data)} bytes", expected=f"at most {limit}", where=where)
    values = sum(data.count(c) if isinstance(data, str) else data.count(ord(c)) for c in ",[{")
    if values > MAX_VALUES:
        raise LimitError(f"JSON of {values} values", expected=f"at most {MAX_VALUES}", where=where)
    try:
        # int digits are bounded by the interpreter (ValueError past 4300).
        result: JSON = json.loads(data, object_pairs_hook=_object)
    except (ValueError, RecursionError, UnicodeDecodeError) as e:
        reason = "nests too deeply" if isinstance(e, RecursionError) else str(e)
        raise CorruptError(f"is not valid JSON: {reason}", where=where) from e
    level: list[JSON] = [result]
    for _ in range(MAX_DEPTH):
        level = [v for outer in level for v in _inside(outer) if isinstance(v, dict | list)]
        if not level:
            return result
    raise CorruptError(f"is JSON that nests more than {MAX_DEPTH} deep", where=where)


def _inside(value: JSON) -> "list[JSON]":
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = Counter(k for k, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key {twice[:80]!r} occurs twice")
    return result


def laid_out(
    document: Mapping[str, Any],
    *,
    ensure_ascii: bool = True,
    allow_nan: bool = True,
    default: Callable[[Any], Any] | None = None,
) -> str:
    """Return a document as people and line-based tools read it best.

    Members of the top level are indented, except that each entry of a list of objects (tensors,
    files, findings) is one line. Those may be a hundred thousand, and indenting is 20 times slower.
    """
    compact = json.JSONEncoder(ensure_ascii=ensure_ascii, allow_nan=allow_nan, default=default)
    wide = json.JSONEncoder(
        ensure_ascii=ensure_ascii, allow_nan=allow_nan, default=default, indent=1
    )
    entries = []
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            body = "[\n" + ",\n".join(f"  {compact.encode(v)}" for v in value) + "\n ]"
        else:
            body = wide.encode(value).replace("\n", "\n ")
        entries.append(f" {compact.encode(key)}: {body}")
    return "{\n" + ",\n".join(entries) + "\n}" if entries else "{}"
