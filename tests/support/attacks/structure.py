"""Where the joints of a file are: the offsets at which a lie or a cut means something.

Deliberately naive and written without the readers under test. `joints` never fails: what it does
not understand has joints at regular distances.
"""

import io
import pickletools
import re
import struct
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache

HDF5_SIGNATURES = re.compile(
    rb"\x89HDF|TREE|SNOD|HEAP|OHDR|OCHK|FRHP|FHDB|FHIB|FSHD|FSSE|BTHD|BTIN|BTLF|FAHD|FADB|EAHD|EAIB"
    rb"|EASB|EADB|GCOL|SMTB|SMLI"
)
ZIP_HEADERS = {  # signature → offsets of the fields in its record
    b"PK\x03\x04": (4, 6, 8, 10, 14, 18, 22, 26, 28, 30),
    b"PK\x01\x02": (4, 6, 8, 10, 12, 16, 20, 24, 28, 30, 32, 34, 36, 38, 42, 46),
    b"PK\x05\x06": (4, 6, 8, 10, 12, 16, 20, 22),
    b"PK\x06\x06": (4, 12, 14, 16, 20, 24, 32, 40, 48, 56),
    b"PK\x06\x07": (4, 8, 16, 20),
}
SSTABLE_FOOTER = b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"
TEXT = re.compile(rb"[{}\[\],:\"<>]|-?\d+")


@lru_cache(maxsize=4)  # a file is cut first, and damaged then
def joints(data: bytes) -> Sequence[int]:
    """Return offsets in ``data``, sorted, each once."""
    found = {0, len(data), *_joints(data, 0, depth=3)}
    return sorted(at for at in found if 0 <= at <= len(data))


def _joints(data: bytes, base: int, depth: int) -> Iterator[int]:
    if not data or not depth:
        return
    if data[:4] == b"PK\x03\x04":
        yield from _zip(data, base, depth)
    elif data[:4] == b"\x89HDF":
        yield from _hdf5(data, base)
    elif data[-8:] == SSTABLE_FOOTER:
        yield from _sstable(data, base, depth)
    elif len(data) > 262 and data[257:262] == b"ustar":
        yield from range(base, base + len(data), 512)
        for at in range(0, len(data), 512):
            yield from (base + at + n for n in (100, 124, 136, 148, 156, 257))
            yield from _pickle(data[at:], base + at)
    elif len(data) > 16 and data[8:9] == b"{" and data[5:8] == b"\0\0\0":
        header = 8 + struct.unpack("<Q", data[:8])[0]
        yield base + 8
        yield base + header
        yield from (base + m.start() for m in TEXT.finditer(data, 0, header))
    elif data[:1] in b"\x80(}]c" and (found := list(_stream(data, base))):
        yield from found
    elif found := list(_message(data, 0, len(data), 6) or ()):
        yield from (base + at for at in found)
    elif data[:200].isascii():
        yield from (base + m.start() for m in TEXT.finditer(data[:100_000]))
    else:
        yield from range(base, base + len(data), max(1, len(data) // 500))


def _zip(data: bytes, base: int, depth: int) -> Iterator[int]:
    for match in re.finditer(rb"PK(?:\x03\x04|\x01\x02|\x05\x06|\x06\x06|\x06\x07)", data):
        at = match.start()
        yield base + at
        yield from (base + at + n for n in ZIP_HEADERS[match.group()])
        if match.group() == b"PK\x03\x04" and at + 30 <= len(data):
            packed, _, names, extra = struct.unpack_from("<LLHH", data, at + 18)
            start = at + 30 + names + extra
            end = start + packed if packed and packed < 0xFFFFFFFF else start + 4096
            yield base + start
            yield base + end
            yield from _joints(data[start:end], base + start, depth - 1)


def _hdf5(data: bytes, base: int) -> Iterator[int]:
    yield from range(base, base + min(len(data), 112))
    if len(data) < 1 << 15:
        yield from range(base, base + len(data), 8)
    for match in HDF5_SIGNATURES.finditer(data):
        yield from range(base + match.start(), base + match.start() + 48)


def _stream(data: bytes, base: int) -> Iterator[int]:
    """Pickles back to back, as torch wrote them before 1.6."""
    at = 0
    while at < len(data):
        found = list(_pickle(data[at:], base + at))
        if not found:
            return
        yield from found
        at = found[-1] + 1 - base


def _pickle(data: bytes, base: int) -> Iterator[int]:
    stream = io.BytesIO(data)
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that Python 2 wrote
            for _, _, at in pickletools.genops(stream):
                if at is not None:
                    yield base + at
    except (ValueError, OverflowError, IndexError, struct.error):
        return


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        shift += 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError


def _message(data: bytes, at: int, end: int, depth: int) -> list[int] | None:
    """Return the field boundaries of what may be a protobuf message, or None."""
    found: list[int] = []
    try:
        while at < end:
            found.append(at)
            tag, at = varint(data, at)
            found.append(at)
            wire = tag & 7
            if not 0 < tag >> 3 < 20_000:
                return None
            if wire == 0:
                at = varint(data, at)[1]
            elif wire in (1, 5):
                at += 8 if wire == 1 else 4
            elif wire == 2:
                length, at = varint(data, at)
                if at + length > end:
                    return None
                found.append(at)
                if depth:
                    found += _message(data, at, at + length, depth - 1) or ()
                at += length
            else:
                return None
    except (IndexError, ValueError):
        return None
    return found if at == end else None


def _sstable(data: bytes, base: int, depth: int) -> Iterator[int]:
    footer = len(data) - 48
    yield from range(base + footer, base + len(data))
    handles: list[tuple[int, int]] = []
    try:
        at = footer
        for _ in range(2):
            offset, at = varint(data, at)
            size, at = varint(data, at)
            handles.append((offset, size))
        offset, size = handles[-1]
        at, end = offset, offset + size
        while at < end - 8:  # entries of the index block: keys and the handles of data blocks
            yield base + at
            shared, at = varint(data, at)
            rest, at = varint(data, at)
            length, at = varint(data, at)
            value = at + rest
            handles.append((varint(data, value)[0], varint(data, varint(data, value)[1])[0]))
            at = value + length
            del shared
    except (IndexError, ValueError):
        pass
    for offset, size in handles:
        yield base + offset
        yield base + offset + size
        yield from range(base + offset + size - 12, base + offset + size + 5)
        at = offset
        try:
            while at < offset + size - 8:
                yield base + at
                _, at = varint(data, at)
                rest, at = varint(data, at)
                length, at = varint(data, at)
                yield base + at
                yield base + at + rest
                value = at + rest
                inner = _message(data, value, value + length, depth) or ()
                yield from (base + n for n in inner)
                at = value + length
        except (IndexError, ValueError):
            continue
