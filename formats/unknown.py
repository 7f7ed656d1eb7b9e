"""Diagnosis of a file that is no known model, by its first bytes, with advice."""

import zlib

from formats import other_libraries
from formats.artifact import Artifact
from formats.errors import UnknownFormatError

# fmt: off
MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"version https://git-lfs.",   "a Git LFS pointer",    "Run `git lfs pull`"),
    (b"\x1f\x8b",                    "gzip data",            "Unpack it (`gunzip`) first"),
    (b"7z\xbc\xaf\x27\x1c",          "a 7z archive",         "Unpack it first"),
    (b"Rar!\x1a\x07",                "a RAR archive",        "Unpack it first"),
    (b"\xfd7zXZ\x00",                "xz data",              "Unpack it first"),
    (b"BZh",                         "bzip2 data",           "Unpack it first"),
    (b"\x28\xb5\x2f\xfd",            "zstandard data",       "Unpack it first"),
    (b"\x04\x22\x4d\x18",            "lz4 data",             "Unpack it first"),
    (b"\x93NUMPY",                   "a NumPy array (.npy)", "A single array is no model"),
    (b"%PDF",                        "a PDF document",       ""),
    (b"\x89PNG",                     "a PNG image",          ""),
    (b"\xff\xd8\xff",                "a JPEG image",         ""),
    (b"\x7fELF",                     "an ELF program",       ""),
    (b"MZ",                          "a Windows program",    ""),
    (b"#!",                          "a script",             ""),
    (b"SQLite format 3",             "an SQLite database",   ""),
    (b"PAR1",                        "a Parquet file",       ""),
    *other_libraries.MAGIC,
)
# fmt: on


def describe(artifact: Artifact) -> UnknownFormatError:
    """Return the error that says what the artifact seems to be instead of a model."""
    found, hint = _guess(artifact)
    return UnknownFormatError(
        f"is not a model that convert reads: {found}",
        where=artifact.path,
        hint=hint or "`convert formats` lists what is read",
    )


def zlib_head(data: bytes) -> bytes:
    """Return the first bytes of a zlib stream; empty for anything else."""
    try:
        return zlib.decompressobj().decompress(data, 16)
    except zlib.error:
        return b""


def _guess(artifact: Artifact) -> tuple[str, str]:
    if artifact.is_folder:
        names = artifact.names
        for files, found, hint in other_libraries.FOLDERS:
            if files <= set(names):
                return found, hint
        shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        return (f"a folder with {shown}" if names else "an empty folder"), ""
    head = artifact.head
    if not head:
        return "an empty file", "It was probably not downloaded to its end"
    for magic, found, hint in MAGIC:
        if head.startswith(magic):
            return found, hint
    if head[:1] == b"x" and zlib_head(head).startswith(b"\x80"):
        return "a compressed pickle, as joblib writes", "Load it with joblib and save its arrays"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for start, found, hint in other_libraries.XML:
        if start in text[:512] and text.startswith((b"<?xml", start)):
            return found, hint
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml")):
        what = "an XML document" if text.startswith(b"<?xml") else "an HTML page"
        return what, "A download that failed often leaves an error page under the model's name"
    if artifact.damage is not None:
        return f"a damaged zip archive ({artifact.damage.found})", "Fetch it again"
    if artifact.zip is not None:
        members = list(artifact.zip.members)
        shown = ", ".join(members[:5]) + (", …" if len(members) > 5 else "")
        return f"a zip archive with {shown or 'no members'}", ""
    if head[4:8] in other_libraries.FLATBUFFERS:
        return other_libraries.FLATBUFFERS[head[4:8]]
    if not head.strip(b"\0"):
        return "zero bytes only", "The download or copy was probably interrupted"
    if text.startswith((b"{", b"[")):
        return "a JSON document", ""
    try:
        head[:-4].decode()
    except UnicodeDecodeError:
        return f"it begins with {head[:8].hex(' ')}", ""
    return "a text file", ""
