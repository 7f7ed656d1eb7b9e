"""Damage at every structural boundary of every container is our error, never another one."""

import random
import struct
import tarfile
from pathlib import Path

import pytest
from repository import ROOT

from formats import catalog
from formats.artifact import Artifact
from formats.core.storage import Buffer, Span
from formats.errors import ConvertError, CorruptError, LimitError
from formats.torch.containers import Session, read_any

FIXTURES = ROOT / "fixtures" / "torch"
SMALL = (
    "torch2.13-stream.pth",
    "torch2.13-zip.pth",
    "torch2.13-legacy.pth.tar",
    "torch2.13-bare2.pkl",
    "torch1.0-script.pt",
    "torch1.0-py27-checkpoint.pth",
    "torch2.13-layouts.pth",
)


def read_all(path: Path) -> None:
    bundle = catalog.read(Artifact(path))
    for group in (bundle.weights, *bundle.leftovers.values()):
        for tensor in group.values():
            tensor.tobytes()


@pytest.mark.parametrize("name", SMALL)
def test_truncation(name: str, tmp_path: Path) -> None:
    data = (FIXTURES / name).read_bytes()
    path = tmp_path / name
    last = len(data.rstrip(b"\0"))  # a tar archive ends with blocks of zeros
    for end in sorted({*range(0, last, 97), *range(64), last - 1}):
        path.write_bytes(data[:end])
        with pytest.raises(ConvertError):
            read_all(path)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_tar_archives_with_extended_headers(form: int, tmp_path: Path) -> None:
    source, path = FIXTURES / "torch2.13-legacy.pth.tar", tmp_path / "again.pth.tar"
    headers = {"comment": "a = b", "mtime": "1234.5", "path": "./x"}
    with tarfile.open(source) as old, tarfile.open(path, "w", format=form) as new:
        for member in old.getmembers():
            member.pax_headers = {**headers, "path": f"./{member.name}"}
            new.addfile(member, old.extractfile(member))
    again, first = (catalog.read(Artifact(p)) for p in (path, source))
    assert {n: t.tobytes() for n, t in again.weights.items()} == {
        n: t.tobytes() for n, t in first.weights.items()
    }


@pytest.mark.parametrize("size", ["9" * 5000, "²", "-1", "99999999999999", "1e3", ""])
def test_sizes_in_extended_headers_that_no_file_has(size: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.pth.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("sys_info")
        member.pax_headers = {"size": size}
        archive.addfile(member)
    with pytest.raises(ConvertError):
        read_all(path)


@pytest.mark.parametrize("name", SMALL)
def test_flipped_bytes(name: str, tmp_path: Path) -> None:
    data = (FIXTURES / name).read_bytes()
    path = tmp_path / name
    chance = random.Random(name)
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(chance.randrange(1, 5)):
            damaged[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        path.write_bytes(damaged)
        try:
            read_all(path)
        except ConvertError:
            continue


def test_stream_counted_in_bytes() -> None:
    """A storage's count is of elements; one of bytes is understood, another one refused."""
    data = (FIXTURES / "torch2.13-stream.pth").read_bytes()
    at = data.rindex(struct.pack("<q", 6) + b"")  # w: 6 floats
    for count, good in ((24, True), (5, False)):
        changed = data[:at] + struct.pack("<q", count) + data[at + 8 :]
        span = Span.whole(Buffer(changed, "x"))
        if good:
            read_any(span, Session.begin(Artifact(FIXTURES).limits), "x")
        else:
            with pytest.raises(CorruptError):
                read_any(span, Session.begin(Artifact(FIXTURES).limits), "x")


def test_nested_files_are_limited() -> None:
    """A file in a file in a file …: each storage's bytes are a stream with one more inside."""
    inner = b"\x80\x02N."
    for _ in range(12):
        inner = (
            b"\x80\x02ctorch.storage\n_load_from_bytes\nB"
            + struct.pack("<I", len(inner))
            + inner
            + b"\x85R."
        )
    with pytest.raises(LimitError):
        read_any(Span.whole(Buffer(inner, "x")), Session.begin(Artifact(FIXTURES).limits), "x")
