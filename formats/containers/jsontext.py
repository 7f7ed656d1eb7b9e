"""JSON from untrusted files: size, depth and numbers bounded, duplicate keys refused."""

import json
from typing import Any

from formats.bundle import JSON
from formats.errors import CorruptError, LimitError


def parse(data: bytes | str, *, where: str, limit: int) -> JSON:
    """Return what ``data`` says.

    Raises:
        CorruptError: It is no JSON, nests too deeply, or gives a key twice.
        LimitError: It is longer than ``limit`` bytes.
    """
    if len(data) > limit:
        raise LimitError(f"JSON of {len(data)} bytes", expected=f"at most {limit}", where=where)
    try:
        # int digits are bounded by the interpreter (ValueError past 4300).
        result: JSON = json.loads(data, object_pairs_hook=_object)
    except (ValueError, RecursionError, UnicodeDecodeError) as e:
        reason = "nests too deeply" if isinstance(e, RecursionError) else str(e)
        raise CorruptError(f"is not valid JSON: {reason}", where=where) from e
    return result


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [k for k, _ in pairs]
        twice = next(k for k in keys if keys.count(k) > 1)
        raise ValueError(f"key {twice!r} stands twice")
    return result
