"""The zip archives of torch, laid out: every record where torch's own reader computes it to be."""

import zipfile
import zlib
from pathlib import Path

import pytest

from formats.artifact import Artifact
from formats.containers.pickle.encoder import dumps
from formats.core.output import Output
from formats.core.storage import Blocks, File, Span
from formats.core.weights import DTYPES, Tensor
from formats.errors import StorageError
from formats.torch.writer import Archive, Content
from formats.torch.zip_records import Record, directory

BYTES = DTYPES["uint8"]


def content(data: bytes) -> Content:
    return Content(Tensor.inline(BYTES, (len(data),), data))


def written(archive: Archive, path: Path) -> list[int]:
    with Output(path) as out:
        out.reserve(archive.nbytes)
        return list(archive.write(out, Blocks()))


def test_the_archive_is_as_planned(tmp_path: Path) -> None:
    data = [b"abc" * 100, b"", b"x", bytes(range(256)) * 40]
    archive = Archive(dumps({"a": 1}), [content(d) for d in data])
    path = tmp_path / "a.pt"
    positions = written(archive, path)
    assert positions == sorted(positions)
    assert positions[-1] == archive.nbytes == path.stat().st_size
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None
        assert z.namelist() == [
            "archive/data.pkl", "archive/.format_version", "archive/.storage_alignment",
            "archive/byteorder", "archive/data/0", "archive/data/1", "archive/data/2",
            "archive/data/3", "archive/version", "archive/.data/serialization_id",
        ]  # fmt: skip
        assert [z.read(f"archive/data/{i}") for i in range(4)] == data
        assert z.read("archive/byteorder") == b"little"
        assert z.read("archive/version") == b"3\n"
        assert len(z.read("archive/.data/serialization_id")) == 40
        assert all(i.compress_type == zipfile.ZIP_STORED for i in z.infolist())
    raw = path.read_bytes()
    for record, stored in zip(archive.storages, data, strict=True):
        assert record.start % 64 == 0
        assert raw[record.start : record.start + record.size] == stored
    assert archive.start == archive.storages[0].start


def test_the_same_gives_the_same(tmp_path: Path) -> None:
    for name in ("a", "b"):
        written(Archive(dumps([1]), [content(b"123")]), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_record_is_appended_behind_the_others(tmp_path: Path) -> None:
    archive = Archive(dumps([1]), [content(b"123")])
    path = tmp_path / "a.pt"
    written(archive, path)
    archive.append(path, "convert.json", b"{}" * 40, sync=True)
    assert path.stat().st_size == archive.nbytes
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None
        assert z.namelist()[-1] == "archive/convert.json"
        assert z.read("archive/data/0") == b"123"
    assert Artifact(path).zip is not None


def test_a_known_crc_is_taken_and_files_are_copied_by_the_kernel(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"0123456789" * 20_000)
    span = Span.whole(File(source)).sub(5, 150_000)
    tensor = Tensor.contiguous(BYTES, (span.length,), span)
    for crc in (None, zlib.crc32(span.read())):
        path = tmp_path / f"{crc}.pt"
        written(Archive(dumps([1]), [Content(tensor, crc)]), path)
        with zipfile.ZipFile(path) as z:
            assert z.testzip() is None
            assert z.read("archive/data/0") == span.read()


@pytest.mark.parametrize("offset", [0, 64, 4096 + 640, 4095 - 63])
def test_storages_stand_in_their_pages_as_at_the_source(tmp_path: Path, offset: int) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(range(251)) * 2000)
    span = Span.whole(File(source)).sub(offset, 200_000)
    archive = Archive(
        dumps([1]), [Content(Tensor.contiguous(BYTES, (span.length,), span)), content(b"x")]
    )
    assert (archive.start - offset) % 4096 == 0
    path = tmp_path / "a.pt"
    written(archive, path)
    assert path.stat().st_size == archive.nbytes
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None
        assert z.read("archive/data/0") == span.read()
        assert z.read("archive/data/1") == b"x"


@pytest.mark.parametrize(
    ("offset", "size", "extra", "footer"),
    [
        (0, 10, 0, 16),
        (0, 0, 0, 0),
        ((1 << 32) - 2, 10, 0, 16),
        ((1 << 32) - 1, 10, 12, 24),  # zip64 says the offset
        (1 << 33, 1 << 20, 12, 24),
        (100, (1 << 32) - 1, 20, 24),  # both sizes
        (1 << 33, 1 << 32, 28, 24),
    ],
)
def test_records_past_4_gib(offset: int, size: int, extra: int, footer: int) -> None:
    record = Record("archive/data/7", offset, size)
    assert record.start % 64 == 0
    assert len(record.descriptor(1)) == footer
    assert record.end == record.start + size + footer
    # As torch's reader computes it: get_record_offset_no_read, getPadding of inline_container.cc
    begin = offset + 30 + len(record.name) + 4 + extra
    assert record.start == begin + -begin % 64
    assert len(record.central(0)) == 46 + len(record.name) + extra


def test_the_directory_of_many_records() -> None:
    records = [Record(f"archive/data/{i}", 0, 1) for i in range(70_000)]
    end = directory(records, [0] * len(records), 1 << 34)[-22:]
    assert end[:4] == b"PK\x05\x06"
    assert end[8:12] == b"\xff\xff\xff\xff"  # counts past 16 bits are in zip64's record
    assert end[16:20] == b"\xff\xff\xff\xff"


def test_a_full_disk_is_an_error_of_storage() -> None:
    archive = Archive(dumps([1]), [content(bytes(1 << 22))])
    with pytest.raises(StorageError), Output(Path("/dev/full"), at=0) as out:
        list(archive.write(out, Blocks()))
