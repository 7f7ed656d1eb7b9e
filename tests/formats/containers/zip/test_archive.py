"""Our zip directory against Python's zipfile, and against archives that lie."""

import io
import random
import struct
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formats.containers.zip.archive import ZipArchive
from formats.core.storage import Buffer, Span
from formats.errors import CorruptError, LimitError, SourceError, UnsupportedError
from formats.limits import Limits

LIMITS = Limits()


def archive(members, *, compression=zipfile.ZIP_STORED, prefix=b"", force_zip64=False):
    buffer = io.BytesIO()
    buffer.write(prefix)
    with zipfile.ZipFile(buffer, "a" if prefix else "w", compression) as z:
        for name, data in members.items():
            with z.open(name, "w", force_zip64=force_zip64) as f:
                f.write(data)
    return buffer.getvalue()


def opened(data, limits=LIMITS):
    return ZipArchive(Span.whole(Buffer(data, "test.zip")), limits)


MEMBERS = {
    "m/data.pkl": random.Random(1).randbytes(5000),
    "m/data/0": bytes(300_000),
    "m/größe": b"x",
    "m/empty": b"",
}


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("prefix", [b"", b"#!shebang\n"])
@pytest.mark.parametrize("force_zip64", [False, True])
def test_members_equal_zipfiles(compression, prefix, force_zip64):
    found = opened(
        archive(MEMBERS, compression=compression, prefix=prefix, force_zip64=force_zip64)
    )
    assert {n: found.read(n) for n in found.members} == MEMBERS
    assert found.root == "m"


def test_a_deflated_member_reads_at_any_offset():
    data = random.Random(2).randbytes(1000) * 700
    span = opened(archive({"a": data}, compression=zipfile.ZIP_DEFLATED))["a"].span()
    rng = random.Random(3)
    for _ in range(60):
        start = rng.randrange(len(data))
        length = rng.randrange(len(data) - start)
        assert span.read(start, length) == data[start : start + length]


def test_a_damaged_deflated_member_fails_its_crc():
    data = bytearray(
        archive({"a": random.Random(4).randbytes(4000)}, compression=zipfile.ZIP_DEFLATED)
    )
    data[2000] ^= 1
    with pytest.raises(CorruptError):
        opened(bytes(data)).read("a")


def test_a_bomb_stops_at_its_declared_size():
    data = bytearray(archive({"a": bytes(10_000_000)}, compression=zipfile.ZIP_DEFLATED))
    at = data.rindex(b"PK\x01\x02")
    struct.pack_into("<L", data, at + 24, 1000)  # the directory's uncompressed size
    with pytest.raises(CorruptError, match="more than"):
        opened(bytes(data)).read("a")
    with pytest.raises(LimitError):
        opened(archive({"a": bytes(5000)}), Limits()).read("a", 4999)


def test_two_members_of_one_name_are_refused():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as z:
        z.writestr("a", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            z.writestr("a", b"22")
    with pytest.raises(CorruptError, match="two zip members"):
        opened(buffer.getvalue())


def test_encryption_and_other_methods_are_named():
    data = bytearray(archive({"a": b"abc"}))
    at = data.rindex(b"PK\x01\x02")
    data[at + 8] |= 1
    with pytest.raises(UnsupportedError, match="encrypted"):
        opened(bytes(data)).read("a")
    packed = archive({"a": b"abc" * 100}, compression=zipfile.ZIP_LZMA)
    with pytest.raises(UnsupportedError, match="method 14"):
        opened(packed).read("a")


def test_too_many_members():
    with pytest.raises(LimitError):
        opened(archive({str(i): b"" for i in range(20)}), Limits(max_members=19))


SAMPLE = archive(MEMBERS, compression=zipfile.ZIP_DEFLATED) + b""


@pytest.mark.parametrize(
    "cut", [0, 3, 4, 29, 30, 31, 100, len(SAMPLE) - 23, len(SAMPLE) - 22, len(SAMPLE) - 1]
)
def test_truncation_is_our_error(cut):
    with pytest.raises(SourceError):
        opened(SAMPLE[:cut])


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255))
def test_any_flipped_byte_is_our_error_or_harmless(position, value):
    data = bytearray(SAMPLE)
    data[position] = value
    try:
        found = opened(bytes(data))
        for name in found.members:
            found.read(name)
    except (SourceError, UnsupportedError):
        pass
