"""A store's promises, kept over a file system that fails, cuts and lists too much."""

import errno
import sys

import pytest
from stored_files import Files, passing

from converter.stores import fsspec_store
from converter.stores.fsspec_store import TRIES, FsspecStore, open_store
from converter.stores.store import Blob, Range
from formats.errors import (
    DependencyError,
    SourceError,
    StorageError,
    UnsupportedError,
    UsageError,
)


@pytest.fixture
def files(monkeypatch):
    monkeypatch.setattr(fsspec_store, "PAUSE_SECONDS", 0.001)
    return Files()


def test_names_are_relative_and_neighbours_are_no_part(files):
    for name in ("b/m/x", "b/m/y/z", "b/m2/x", "b/m/", "b/m/y/", "b/m"):
        files[name] = b"1"
    store = files.store("s3://b/m")
    assert [b.name for b in store.find()] == ["x", "y/z"]
    assert [b.name for b in store.find("y")] == ["y/z"]
    assert store.stat("x").nbytes == 1
    assert store.stat().name == ""
    assert store.stat("y") is None
    assert store.stat("none") is None
    assert store.find("none") == []


def test_a_state_is_told_alike_by_a_listing_and_by_a_look_at_one(files):
    files["b/m/x"] = b"1"
    store = files.store("s3://b/m")
    (before,) = store.find()
    assert before == store.stat("x")
    files["b/m/x"] = b"2"
    assert store.stat("x").token != before.token


def test_what_may_succeed_in_a_moment_is_tried_again(files, tmp_path):
    files["b/m/x"] = b"123"
    store = files.store("s3://b/m")
    files.faults = [("get", "x", passing()), ("get", "x", ConnectionResetError("by peer"))]
    store.get(store.stat("x"), tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"123"
    assert [c for c in files.calls if c[0] == "get"] == [("get", "b/m/x")] * 3


def test_but_not_for_ever(files, tmp_path):
    files["b/m/x"] = b"123"
    files.faults = [("get", "x", passing()) for _ in range(TRIES + 3)]
    with pytest.raises(StorageError, match="reduce your request rate") as e:
        files.store("s3://b/m").get(Blob("x", 3, ""), tmp_path / "x")
    assert len([c for c in files.calls if c[0] == "get"]) == TRIES
    assert e.value.exit_code == 6


def test_nor_where_it_is_denied(files, tmp_path):
    files["b/m/x"] = b"123"
    files.faults = [("get", "x", PermissionError("Forbidden"))]
    with pytest.raises(StorageError, match=r"^s3://b/m/x: access denied: Forbidden$"):
        files.store("s3://b/m").get(Blob("x", 3, ""), tmp_path / "x")
    assert len(files.calls) == 1


@pytest.mark.parametrize("blob", [Blob("x", 4, ""), Blob("gone", 3, "")])
def test_what_comes_is_what_was_listed_or_nothing(files, tmp_path, blob):
    files["b/m/x"] = b"123"
    with pytest.raises(SourceError):
        files.store("s3://b/m").get(blob, tmp_path / "got")
    assert not (tmp_path / "got").exists()


def test_a_full_disk_here_is_no_fault_of_the_store(files, tmp_path):
    files.faults = [("get", "x", OSError(errno.ENOSPC, "No space left on device"))]
    with pytest.raises(StorageError, match="Free some space") as e:
        files.store("s3://b/m").get(Blob("x", 3, ""), tmp_path / "x")
    assert e.value.where == str(tmp_path / "x")


def test_ranges_that_cannot_be_read_do_not_cost_the_others(files):
    files["b/m/x"] = b"12345"
    files["b/m/y"] = b"abcde"
    files.faults = [("cat", "y", passing())]
    store = files.store("s3://b/m")
    read = store.read([Range("x", 1, 3), Range("none", 0, 2), Range("y", 0, 2)])
    assert read == [b"23", None, b"ab"]


def test_an_upload_that_arrives_short_is_none(files, tmp_path):
    class Cutting(Files):
        def put_file(self, local, path, **more):
            self[path] = b"1"

    cutting = Cutting()
    (tmp_path / "x").write_bytes(b"123")
    with pytest.raises(StorageError, match="1 bytes arrived"):
        cutting.store("s3://b/m").put(tmp_path / "x", "x")
    assert cutting.files == {}


def test_where_a_put_is_not_one_step_a_file_is_renamed_into_place(files, tmp_path):
    files["b/m/x"] = b"old"
    (tmp_path / "x").write_bytes(b"new one")
    store = files.store("sftp://b/m")
    files.faults = [("mv", "x", OSError(errno.EINVAL, "no"))]
    with pytest.raises(StorageError):
        store.put(tmp_path / "x", "x")
    assert files.files.keys() == {"b/m/x"}
    assert files["b/m/x"] == b"old"
    assert store.put(tmp_path / "x", "x").nbytes == 7
    assert files.below("b/m") == {"x": b"new one"}


def test_what_killed_uploads_left_is_swept_and_nothing_else(files):
    for name in (".x.convert-1", ".x.convert-2", ".xy.convert-1", "x", "y/.x.convert-1"):
        files[f"b/m/{name}"] = b""
    files.store("sftp://b/m").sweep("x")
    assert {*files.below("b/m")} == {".xy.convert-1", "x", "y/.x.convert-1"}


def test_a_name_is_no_glob(files):
    for name in ("[ab]", "a", "b", "*"):
        files[f"b/m/{name}"] = b"1"
    files.store("s3://b/m").remove(["[ab]", "*", "none"])
    assert {*files.below("b/m")} == {"a", "b"}


def test_chained_urls_are_a_named_gap():
    with pytest.raises(UnsupportedError, match="not supported: chained URLs"):
        open_store("simplecache::s3://b/x")


def test_fsspecs_own_store_keeps_the_same_promises(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    top = f"memory://promises-{tmp_path.name}"
    store = open_store(top)
    (tmp_path / "x").write_bytes(b"12345")
    put = store.put(tmp_path / "x", "m/ü [1]*")
    store.put(tmp_path / "x", "m2")
    try:
        assert [b.name for b in store.find()] == ["m/ü [1]*", "m2"]
        assert store.find("m") == [put] == [store.stat("m/ü [1]*")]
        assert store.find(starting="m") == [store.stat("m2")]
        assert store.stat("m") is None
        assert store.find("none") == []
        assert store.read([Range("m2", 1, 3), Range("none", 0, 1)]) == [b"23", None]
        store.get(put, tmp_path / "y")
        assert (tmp_path / "y").read_bytes() == b"12345"
        with pytest.raises(SourceError):
            store.get(Blob("none", 1, ""), tmp_path / "z")
        again = store.put(tmp_path / "x", "m2")
        assert again.token != put.token
        store.remove(["m/ü [1]*", "none"])
        assert [b.name for b in store.find()] == ["m2"]
        with pytest.raises(UsageError, match="nobody knows nope://"):
            open_store("nope://x")
    finally:
        memory.rm(top, recursive=True)


def test_a_missing_package_is_said_with_what_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(DependencyError, match=r"pip install .*s3fs"):
        open_store("s3://b/m")
    with pytest.raises(DependencyError, match=r"pip install .*gcsfs"):
        open_store("gs://b/m")
    with pytest.raises(DependencyError, match="pip install fsspec"):
        open_store("memory://b/m")


def test_a_bucket_that_is_not_there_is_never_an_empty_one():
    class Missing(Files):
        def find(self, path, **more):
            raise FileNotFoundError("The specified bucket does not exist")

        info = find

    store = FsspecStore(Missing(), "b/m", "s3://b/m")
    for ask in (store.find, store.stat):
        with pytest.raises(StorageError, match=r"^s3://b/m: no such bucket$"):
            ask()
