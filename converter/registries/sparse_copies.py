"""Sparse local copies of remote files, so that the same rules probe both.

A stand-in has the name and the size of its file, the bytes that detection looks at, and a hole for
all others: a listing and two ranges of each large file say what there is, and a terabyte of it
takes no disk.
"""

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from converter.stores.store import Blob, Range, Store
from formats.errors import StorageError

WHOLE_BYTES: Final = 1 << 17  # of files that are fetched whole
INDEX_BYTES: Final = 8 << 20  # likewise, where another file's name is in them
EDGE_BYTES: Final = 1 << 16  # at both ends of all others: what the sniffers of `formats` read
DIRECTORY_BYTES: Final = 16 << 20  # of a zip's directory that is fetched
AT_ONCE: Final = 512  # files between two rounds of ranges
INDEXES: Final = (".json", ".index", "MLmodel", ".pb", ".pbtxt", ".meta")
_UNFIT = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL)
_TAR, _TAR_AT = b"ustar", 257
_PICKLE = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
_ZIP_START, _ZIP_END, _ZIP64_END = b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06"


def fits(name: str) -> bool:
    """Return whether a blob's key is a valid file name."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in name:
        return False
    return all(len(os.fsencode(part)) <= 255 for part in parts)


def create_stand_ins(blobs: Sequence[Blob], folder: Path) -> Iterator[Blob]:
    """Create stand-ins without content; yield those that could be created.

    The others' names are no file's, or are a folder's as well.

    Raises:
        StorageError: The folder cannot be written.
    """
    for blob in blobs:
        path = folder / blob.name
        if not fits(blob.name):
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.truncate(blob.nbytes)
        except OSError as e:
            if e.errno not in _UNFIT:
                raise StorageError.writing(path, e) from e
            continue
        yield blob


def fill(store: Store, blobs: Sequence[Blob], folder: Path) -> None:
    """Write the bytes that detection reads into stand-ins.

    Raises:
        StorageError: The store cannot be read, or the folder not written.
    """
    for begin in range(0, len(blobs), AT_ONCE):
        some = blobs[begin : begin + AT_ONCE]
        _write(store, [r for blob in some for r in _edges(blob)], folder)
        _write(store, [r for blob in some for r in _more(blob, folder)], folder)


def _write(store: Store, ranges: Sequence[Range], folder: Path) -> None:
    for one, data in zip(ranges, store.read(ranges), strict=True):
        if data is None:
            continue
        try:
            with (folder / one.name).open("r+b") as file:
                file.seek(one.start)
                file.write(data[: one.end - one.start])
        except OSError as e:
            raise StorageError.writing(folder / one.name, e) from e


def _edges(blob: Blob) -> list[Range]:
    name, size = blob.name, blob.nbytes
    whole = INDEX_BYTES if PurePosixPath(name).name.endswith(INDEXES) else WHOLE_BYTES
    if size <= whole:
        return [Range(name, 0, size)] if size else []
    return [Range(name, 0, EDGE_BYTES), Range(name, size - EDGE_BYTES, size)]


def is_open(path: Path) -> bool:
    """Return whether detection needs the whole file: a large tar."""
    if path.stat().st_size <= INDEX_BYTES:
        return False
    with path.open("rb") as file:
        file.seek(_TAR_AT)
        return file.read(len(_TAR)) == _TAR


def _more(blob: Blob, folder: Path) -> list[Range]:
    """Return further ranges to read, as the edges tell: a zip's directory, tars, pickles."""
    if blob.nbytes <= WHOLE_BYTES:
        return []
    with (folder / blob.name).open("rb") as file:
        head = file.read(EDGE_BYTES)
        begin = blob.nbytes - EDGE_BYTES
        file.seek(begin)
        tail = file.read()
    is_through = head.startswith(_PICKLE) or head[_TAR_AT:].startswith(_TAR)
    if is_through and blob.nbytes <= INDEX_BYTES:
        return [Range(blob.name, EDGE_BYTES, begin)]
    at = tail.rfind(_ZIP_END) if head.startswith(_ZIP_START) else -1
    if at < 0 or at + 22 > len(tail):
        return []
    (start,) = struct.unpack_from("<I", tail, at + 16)
    if start == 0xFFFFFFFF and (large := tail.rfind(_ZIP64_END)) >= 0 and large + 56 <= len(tail):
        (start,) = struct.unpack_from("<Q", tail, large + 48)
    if begin - DIRECTORY_BYTES <= start < begin:
        return [Range(blob.name, start, begin)]
    return []
