"""Tar archives as maps from member name to bytes: uncompressed, regular files only.

Spec: POSIX.1-2017 pax, "ustar Interchange Format"; GNU tar's long names and large sizes.
"""

import re

from formats.core.storage import Span
from formats.errors import CorruptError, LimitError
from formats.limits import Limits

BLOCK = 512
SIZE = re.compile(r"[0-9]{1,19}")  # in an extended header, of 64 bits
MAX_NAME = 4096
EXTENDED = (b"x", b"g", b"L", b"K")  # headers that describe the next member, or all


def is_tar(head: bytes) -> bool:
    """Return whether bytes begin with a tar header."""
    return head[257:262] == b"ustar"


def first_name(head: bytes) -> str:
    """Return the name of the first member, after extended headers; "" if the head ends before."""
    at = 0
    while at + BLOCK <= len(head):
        header = head[at : at + BLOCK]
        if header[156:157] not in EXTENDED:
            return _name(header).removeprefix("./")
        try:
            at += BLOCK + _round_up(_size(header, "tar", at))
        except CorruptError:
            return ""
    return ""


def tar_members(span: Span, where: str, limits: Limits) -> dict[str, Span]:
    """Return the regular files of an archive by name, without a leading ``./``.

    Raises:
        CorruptError: A header has no size, or a member reaches past the end.
        LimitError: There are too many members.
    """
    members: dict[str, Span] = {}
    at, long_name, long_size, count = 0, "", "", 0
    while at + BLOCK <= span.length:
        header = span.read(at, BLOCK)
        if not header.strip(b"\0"):
            break
        count += 1
        if count > limits.max_members:
            raise LimitError(f"tar archive of more than {count - 1} members", where=where)
        kind = header[156:157]
        stored = int(long_size) if kind not in EXTENDED and SIZE.fullmatch(long_size) else None
        data = span.sub(at + BLOCK, _size(header, where, at) if stored is None else stored)
        if kind == b"L":
            long_name = _text(data.read(0, min(data.length, MAX_NAME)))
        elif kind == b"x":
            records = _pax_records(data.read(0, min(data.length, 1 << 16)))
            long_name, long_size = records.get("path", ""), records.get("size", "")
        elif kind in (b"0", b"\0"):
            name = (long_name or _name(header)).removeprefix("./")
            if members.setdefault(name, data) is not data:
                raise CorruptError(f"two tar members are named {name!r:.80}", where=where)
            long_name = long_size = ""
        elif kind not in EXTENDED:
            long_name = long_size = ""
        at += BLOCK + _round_up(data.length)
    return members


def _round_up(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _size(header: bytes, where: str, at: int) -> int:
    field = header[124:136]
    try:
        if field[0] & 0x80:  # GNU: base 256
            return int.from_bytes(field[1:], "big")
        size = int(field.strip(b"\0 ") or b"0", 8)
    except ValueError:
        size = -1
    if size < 0:
        raise CorruptError("tar header without a size", where=where, offset=at)
    return size


def _name(header: bytes) -> str:
    name = _text(header[:100])
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _pax_records(data: bytes) -> dict[str, str]:
    """Return the records of an extended header, such as ``path`` and ``size``."""
    pairs = (record.partition(b" ")[2].partition(b"=") for record in data.split(b"\n"))
    return {_text(key): _text(value) for key, _, value in pairs}


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
