"""Files that change, are no files, or are named where they must not be."""

import os
import threading

import pytest

from formats.core.storage import Blocks, Buffer, File, Span, resolve_member
from formats.errors import CorruptError, SafetyError, SourceError


def test_reads_are_exact_or_errors(tmp_path):
    (tmp_path / "f").write_bytes(b"0123456789")
    for storage in (File(tmp_path / "f"), Buffer(b"0123456789", "buffer")):
        assert storage.read(2, 3) == b"234"
        assert storage.read(10, 0) == b""
        for offset, length in ((8, 3), (-1, 2), (0, -1), (1 << 70, 1)):
            with pytest.raises(CorruptError):
                storage.read(offset, length)
        assert Span(storage, 2, 5).sub(1, 3).read(1) == b"45"


def test_a_closed_file_reopens_only_if_it_is_still_the_same(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"before")
    file = File(path)
    file.close()
    assert file.read(0, 6) == b"before"
    path.with_name("g").write_bytes(b"behind")
    path.with_name("g").replace(path)
    file.close()
    with pytest.raises(SourceError, match="changed"):
        file.read(0, 6)


def test_a_file_that_shrinks_is_an_error(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"x" * 100)
    file = File(path)
    os.truncate(path, 10)
    with pytest.raises(SourceError, match="changed"):
        file.read(0, 100)
    with pytest.raises(SourceError, match="changed"):
        file.check_unchanged()


def test_what_is_no_regular_file_is_refused_without_hanging(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, tmp_path / "absent", "/dev/null", "bad\0name"):
        with pytest.raises(SourceError):
            File(path)


def test_a_thousand_files_stay_readable(tmp_path):
    files = []
    for i in range(1200):
        path = tmp_path / str(i)
        path.write_bytes(b"%d" % i)
        files.append(File(path))
    assert files[7].read(0, 1) == b"7"


def test_members_stay_inside_their_folder(tmp_path):
    root = tmp_path / "model"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "a.bin").write_bytes(b"a")
    (tmp_path / "secret").write_bytes(b"s")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "in").symlink_to("sub/a.bin")
    (root / "loop").symlink_to("loop")
    assert resolve_member(root, "sub/a.bin").read_bytes() == b"a"
    assert resolve_member(root, "in").read_bytes() == b"a"
    for name in (
        "../secret",
        "/etc/passwd",
        "sub/../../secret",
        "out",
        "c:/x",
        "..\\secret",
        "a\0b",
    ):
        with pytest.raises(SafetyError):
            resolve_member(root, name)
    for name in ("absent", "loop"):
        with pytest.raises(SourceError):
            resolve_member(root, name)


def test_the_hugging_face_cache_may_link_to_its_blobs(tmp_path):
    repository = tmp_path / "models--x"
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "d1").write_bytes(b"weights")
    (snapshot / "model.safetensors").symlink_to("../../blobs/d1")
    (snapshot / "other").symlink_to("/etc/hostname")
    assert resolve_member(snapshot, "model.safetensors").read_bytes() == b"weights"
    with pytest.raises(SafetyError):
        resolve_member(snapshot, "other")


@pytest.mark.parametrize("size", [64, 512, 1 << 20])
def test_blocks_return_what_single_reads_would(tmp_path, monkeypatch, size):
    monkeypatch.setattr(Blocks, "SIZE", size)
    data = bytes(i * 7 % 251 for i in range(5000))
    (tmp_path / "f").write_bytes(data)
    file, buffer = File(tmp_path / "f"), Buffer(data[::-1], "b")
    blocks = Blocks()
    for i in range(3000):
        offset, length = (i * i * 31 + i // 3) % 4800, i % 190
        if i % 5 < 3:
            offset = i + 40 * (i % 5)
        if i % 7 == 0:
            blocks.read_ahead()
        storage = buffer if i % 50 == 0 else file
        span = Span(storage, offset, length)
        assert blocks.read(span) == storage.read(offset, length)
        assert all(0 < len(view) <= size for view in blocks.views(span))
    with pytest.raises(CorruptError):
        blocks.read(Span(file, 4990, 11))
    blocks.read(Span(file, 4990, 10))
    blocks.read_ahead()  # there is nothing behind it


@pytest.mark.parametrize(("count", "most"), [(3, 2.5), (20, 2.5), (60, 1)])
def test_tensors_spread_over_many_files_do_not_read_blocks_for_each_part(
    tmp_path, monkeypatch, count, most
):
    """A distributed checkpoint: each tensor has a part in every file."""
    part, parts = Blocks.SIZE // 8, 16
    files = []
    for i in range(count):
        (tmp_path / str(i)).write_bytes(bytes(part * parts))
        files.append(File(tmp_path / str(i)))
    blocks, read = Blocks(), []
    plain = File.read
    monkeypatch.setattr(File, "read", lambda *a: read.append(a[2]) or plain(*a))
    for start in range(0, part * parts, part):
        for file in files:
            blocks.read(Span(file, start, part))
    assert sum(read) <= most * part * parts * count


def test_two_threads_read_each_block_once(tmp_path, monkeypatch):
    """Who comes second finds it; nobody starts to read what another is reading."""
    (tmp_path / "f").write_bytes(bytes(Blocks.SIZE * 40))
    file, blocks = File(tmp_path / "f"), Blocks()
    reads: list[int] = []
    plain = File.read

    def counted(self, offset, length):
        reads.append(offset)
        return plain(self, offset, length)

    monkeypatch.setattr(File, "read", counted)
    gate = threading.Barrier(2)

    def go():
        for start in range(0, file.size, Blocks.SIZE):
            gate.wait()
            assert len(blocks.read(Span(file, start, Blocks.SIZE))) == Blocks.SIZE

    threads = [threading.Thread(target=go) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reads == list(range(0, file.size, Blocks.SIZE))
