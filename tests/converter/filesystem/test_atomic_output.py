"""An output is whole or absent, and what a dead run left behind goes away with the next."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from converter.filesystem.atomic_output import check_target, publish, staging, sweep
from formats.errors import UsageError


def test_a_file_and_a_folder_are_published(tmp_path):
    for name, is_folder in (("a.bin", False), ("b.portable", True)):
        target = tmp_path / name
        with staging(target) as folder:
            payload = folder / "payload"
            if is_folder:
                payload.mkdir()
                (payload / "manifest.json").write_text("1")
            else:
                payload.write_text("1")
            assert not target.exists()
            publish(payload, target, force=False)
        assert target.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.bin", "b.portable"]


def test_a_failure_leaves_the_old_output(tmp_path):
    target = tmp_path / "out"
    target.write_text("old")

    def fail():
        with staging(target) as folder:
            (folder / "payload").write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_force_replaces_files_and_outputs_and_nothing_else(tmp_path):
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "manifest.json").write_text("old")
    with staging(ours) as folder:
        (folder / "payload").mkdir()
        (folder / "payload" / "manifest.json").write_text("new")
        with pytest.raises(UsageError, match="overwrite=True"):
            publish(folder / "payload", ours, force=False)
        publish(folder / "payload", ours, force=True)
    assert (ours / "manifest.json").read_text() == "new"
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("precious")
    with pytest.raises(UsageError, match="will not replace"):
        check_target(home, force=True)


@pytest.mark.parametrize("old", ["file", "folder", "link"])
@pytest.mark.parametrize("new", ["file", "folder"])
def test_force_replaces_one_kind_by_another(tmp_path, old, new):
    target = tmp_path / "out"
    if old == "folder":
        target.mkdir()
        (target / "manifest.json").write_text("old")
    else:
        target.write_text("old") if old == "file" else target.symlink_to("nowhere")
    with staging(target) as folder:
        payload = folder / "payload"
        payload.write_text("new") if new == "file" else payload.mkdir()
        publish(payload, target, force=True)
    assert target.is_dir() == (new == "folder")
    assert not target.is_symlink()
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("names", "is_ours"),
    [
        ({"config.pbtxt", "1/model.onnx"}, True),
        ({"config.pbtxt", "1/model.onnx", "2/model.onnx"}, False),
        ({"model.onnx", "model.other.onnx"}, True),
        ({"model.onnx", "model.onnx.data"}, True),
        ({"model.onnx", "notes.txt"}, False),
        ({"model.onnx", "config.json", "vocab.txt"}, True),
        ({"encoder_model.onnx", "decoder_model.onnx", "config.json", "spiece.model"}, True),
        ({"model.onnx", "config.json", "model.safetensors"}, False),
        ({"config.json", "vocab.txt"}, False),
    ],
)
def test_a_folder_is_ours_by_what_is_in_it(tmp_path, names, is_ours):
    for name in names:
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    if is_ours:
        check_target(tmp_path / "out", force=True)
    else:
        with pytest.raises(UsageError, match="did not write"):
            check_target(tmp_path / "out", force=True)


def test_what_appears_meanwhile_is_not_replaced(tmp_path):
    target = tmp_path / "out"
    with staging(target) as folder:
        (folder / "payload").write_text("new")
        target.write_text("somebody else's")
        with pytest.raises(UsageError):
            publish(folder / "payload", target, force=False)
    assert target.read_text() == "somebody else's"


def test_only_abandoned_staging_folders_are_removed(tmp_path):
    target = tmp_path / "a[b]*.bin"
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from converter.filesystem.atomic_output import staging\n"
        "with staging(Path(sys.argv[1])) as f:\n"
        "    (f / 'x').write_text('x'); print(f, flush=True); sys.stdin.read(1); os._exit(9)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    held = Path(child.stdout.readline().strip())
    with staging(target) as other:
        assert held.exists()
        assert other != held
    child.communicate("x")
    assert held.exists()
    with staging(target) as other:
        assert other == held  # its place is free again, and empty
        assert list(other.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


def test_abandoned_folders_are_swept_and_others_are_left(tmp_path):
    target = tmp_path / "out"
    foreign = tmp_path / ".out.convert-3"
    foreign.write_text("a file of somebody's")
    link = tmp_path / ".out.convert-4"
    link.symlink_to(tmp_path)
    with staging(target) as held:
        assert not sweep(target)
        assert held.exists()
        abandoned = tmp_path / ".out.convert-1"
        (abandoned / "deep").mkdir(parents=True)
        with staging(target) as other:
            assert other == abandoned
            assert list(other.iterdir()) == []
        (abandoned / "deep").mkdir(parents=True)
        sweep(target)
        assert not abandoned.exists()
        assert held.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == [foreign.name, link.name]


def test_a_name_as_long_as_the_file_system_takes(tmp_path):
    target = tmp_path / ("é" * 127)
    with staging(target) as folder:
        (folder / "payload").write_text("1")
        publish(folder / "payload", target, force=False)
    assert list(tmp_path.iterdir()) == [target]


def test_more_at_once_than_there_are_places(tmp_path):
    with ExitStack() as stack:
        held = {stack.enter_context(staging(tmp_path / "out")) for _ in range(10)}
        assert len(held) == 10
    assert list(tmp_path.iterdir()) == []


def test_missing_folders_are_made_and_removed_where_nothing_is_written(tmp_path):
    with staging(tmp_path / "absent" / "too" / "out") as folder:
        assert folder.parent == tmp_path / "absent" / "too"
    assert not (tmp_path / "absent").exists()
    with staging(tmp_path / "absent" / "out") as folder:
        (folder.parent / "out").touch()
    assert (tmp_path / "absent" / "out").exists()
