"""Folders with what is no file in them, links that circle, and files that are not what they say."""

import os
import socket

import numpy as np
import pytest
from attacks.arena import Attack, a_file, a_folder, size
from attacks.bases import BASES_BY_KIND
from attacks.pickles import state_dict, torch_zip, weights
from safetensors.numpy import save

import converter
from formats.errors import ConvertError

# Every name that some sniffer or reader looks for.
TELLING = (
    "saved_model.pb", "saved_model.pbtxt", "model.safetensors", "model.safetensors.index.json",
    "model.onnx", "checkpoint", "ckpt.index", "ckpt.data-00000-of-00001", ".metadata",
    "__0_0.distcp", "pytorch_model.bin", "pytorch_model.bin.index.json", "config.json",
    "metadata.json", "model.weights.h5", "manifest.json", "model.h5", "data.pkl", "variables",
    "variables/variables.index", "assets", "keras_metadata.pb", "fingerprint.pb", "adapter.bin",
)  # fmt: skip


def a_fifo(path):
    os.mkfifo(path)


def a_socket(path):
    """Bind in the folder itself: a socket's path may not be long."""
    with socket.socket(socket.AF_UNIX) as s:
        here = os.open(path.parent, os.O_RDONLY)
        try:
            s.bind(f"/proc/self/fd/{here}/{path.name}")
        finally:
            os.close(here)


def a_link_to(target):
    def link(path):
        path.symlink_to(target)

    return link


def a_folder_of_that_name(path):
    path.mkdir()


def an_empty_file(path):
    path.touch()


# fmt: off
KINDS = {
    "FIFO": a_fifo,
    "socket": a_socket,
    "link to /dev/zero": a_link_to("/dev/zero"),
    "link to /dev/full": a_link_to("/dev/full"),
    "link to /proc/self/mem": a_link_to("/proc/self/mem"),
    "link to /etc/passwd": a_link_to("/etc/passwd"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to nothing": a_link_to("nothing/there"),
    "link to its folder": a_link_to("."),
    "folder": a_folder_of_that_name,
    "empty file": an_empty_file,
}
# fmt: on


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TELLING)
def test_what_is_no_file_under_a_telling_name(arena, name, kind):
    def build(folder):
        path = folder / "m" / name
        path.parent.mkdir(parents=True)
        KINDS[kind](path)
        return folder / "m"

    outcomes = arena.one(Attack(f"{name}: {kind}", build), ("inspect", "portable"))
    assert {o.code for o in outcomes} <= {3, 4, 5}, outcomes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", ["", ".pt", ".h5", ".keras", ".onnx", ".pb", ".safetensors"])
def test_what_is_no_file_as_the_source(arena, suffix, kind):
    def build(folder):
        path = folder / f"m{suffix}"
        KINDS[kind](path)
        return path

    outcomes = arena.one(Attack(f"source {kind}", build), ("inspect", "portable"))
    assert {o.code for o in outcomes} <= {3, 4, 5}, outcomes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("base", BASES_BY_KIND)
def test_a_sound_folder_with_strangers_in_it(arena, base, kind):
    """What is beside a model may be anything; one of its own files may not."""
    sound = BASES_BY_KIND[base]()

    def beside(folder):
        inner = a_folder(base, sound.files, sound.target).build(folder)
        KINDS[kind](folder / "stranger")
        KINDS[kind](folder / "stranger.bin")
        return inner

    def instead(folder):
        inner = a_folder(base, sound.files, sound.target).build(folder)
        path = folder / sound.damage[0]
        path.unlink()
        KINDS[kind](path)
        return inner

    outcomes = arena.one(Attack(f"{base} beside {kind}", beside), ("inspect", "portable"))
    assert {o.code for o in outcomes} <= {0, 3, 5}, outcomes
    outcomes = arena.one(Attack(f"{base} instead {kind}", instead), ("inspect", "portable"))
    assert {o.code for o in outcomes} <= {0, 3, 4, 5}, outcomes


def test_a_folder_of_very_many_files(arena):
    count = size(20_000, 200_000)

    def build(folder):
        here = os.open(folder, os.O_RDONLY)
        for i in range(count):
            os.close(os.open(f"{i}.bin", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.close(here)
        return folder

    outcomes = arena.one(Attack("many files", build), ("inspect",))
    assert {o.code for o in outcomes} == {3}


def test_a_folder_of_very_many_shards(arena):
    """Sound shards, more than a process may have open at once."""
    one = {f"{i}.safetensors": save({f"w{i}": np.float32([i])}) for i in range(1200)}
    arena.read(a_folder("1200 shards", one))


def test_folders_without_end(arena):
    def build(folder):
        path = folder
        for _ in range(300):
            path /= "d"
            path.mkdir()
        (path / "saved_model.pb").touch()
        return folder

    arena.refused(Attack("deep folders", build))


@pytest.mark.parametrize("name", ["a\0b", "\0", "\ud800", "x" * 5000, ""])
def test_names_that_no_file_has(tmp_path, name):
    for do in (converter.read, lambda p: converter.convert(p, out=tmp_path / "o")):
        with pytest.raises(ConvertError) as caught:
            do(name)
        assert caught.value.exit_code in (2, 3)


def test_a_name_as_long_as_can_be(arena):
    arena.read(a_file("long name", "x" * 230 + ".pt", torch_zip(state_dict(weights()))))


# fmt: off
NAMES = {
    "blanks": " m .pt", "a dash": "-m.pt", "escapes": "\x1b[2J.pt", "a line break": "a\nb.pt",
    "glob": "*[?.pt", "no UTF-8": "\udcff\udcfe.pt", "no suffix": ".pt", "dots": "....pt",
    "colon": "s3:x.pt", "unicode": "모델.pt",
}
# fmt: on


@pytest.mark.parametrize("name", NAMES)
def test_names_of_sources(arena, name):
    arena.read(a_file(name, NAMES[name], torch_zip(state_dict(weights()))))


def test_a_file_without_rights(arena):
    """Root may read it all the same."""

    def build(folder):
        path = folder / "m.pt"
        path.write_bytes(torch_zip(state_dict(weights())))
        path.chmod(0)
        return path

    outcomes = arena.one(Attack("no rights", build))
    assert {o.code for o in outcomes} <= {0, 3}


@pytest.mark.parametrize("size", [1 << 40, 1 << 62])
def test_sparse_files_of_any_size(arena, size):
    """A terabyte of nothing costs nothing."""

    def build(folder):
        path = folder / "m.bin"
        with path.open("wb") as file:
            try:
                file.truncate(size)
            except OSError:
                file.truncate(1 << 40)
        return path

    arena.refused(Attack(f"sparse {size}", build))


@pytest.mark.parametrize("start", [
    b"PK\x03\x04", b"\x89HDF\r\n\x1a\n", b"\x80\x02", b"\x08\x01\x12\x02tf",
    b"\x0a\x80\x80\x80\x80\x04",
    b"\x10\0\0\0\0\0\0\0{\"", b"{", b"(", b"node {", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.",
])  # fmt: skip
def test_a_terabyte_behind_a_sound_start(arena, start):
    def build(folder):
        path = folder / "m"
        with path.open("wb") as file:
            file.write(start)
            file.truncate(1 << 40)
        return path

    outcomes = arena.one(Attack(f"terabyte {start!r}", build))
    assert {o.code for o in outcomes} <= {3, 4}, outcomes


def test_the_source_is_never_written_to(tmp_path):
    """The arena compares all files; here the folder itself may not be written either."""
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "m.pt").write_bytes(torch_zip(state_dict(weights())))
    before = [p.stat().st_mtime_ns for p in (folder, folder / "m.pt")]
    converter.convert(folder / "m.pt", to="portable", out=tmp_path / "o")
    assert [p.stat().st_mtime_ns for p in (folder, folder / "m.pt")] == before
    assert [p.name for p in folder.iterdir()] == ["m.pt"]
