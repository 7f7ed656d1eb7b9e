"""Identical files of bundles become links: which, when, and what is left whatever happens."""

import contextlib
import errno
import fcntl
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from repository import ROOT
from safetensors.numpy import save_file

import converter
from converter.batch import links
from converter.batch.ledger import Ledger
from converter.batch.links import FICLONE, SMALLEST, Links
from converter.verification.bundle_check import check_folder
from formats.errors import StorageError, UnsupportedError, UsageError

SIZE = 3 * SMALLEST


def source(path, seed):
    values = np.random.default_rng(seed).integers(0, 256, SIZE, dtype="u1")
    save_file({"w": values, "b": values[:100]}, path)
    return path


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """Three bundles of two contents; the first two are of one."""
    folder = tmp_path_factory.mktemp("bundles")
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        converter.convert(source(folder / "model.safetensors", seed), out=folder / name)
    (folder / "model.safetensors").unlink()
    return folder


@pytest.fixture
def dest(bundles, tmp_path):
    return shutil.copytree(bundles, tmp_path / "dest")


@pytest.fixture
def index(tmp_path):
    return tmp_path / "dest.ledger.sqlite"


def weights(bundle):
    return bundle / "model.safetensors"


def inode(bundle):
    return weights(bundle).stat().st_ino


def passes(dest):
    return all(checked.exit_code == 0 for checked in check_folder(dest, "weights"))


def nothing_is_left(dest):
    return not [p for p in dest.rglob("*") if p.name.startswith(".") or p.name == "link"]


def look(dest, index, *names, kind="hardlink"):
    with Links(dest, index, kind) as found:
        for name in names:
            found.look(name)
        return found.found()


def test_the_same_file_is_stored_once(dest, index):
    found = look(dest, index, "a", "b", "c")
    assert inode(dest / "a") == inode(dest / "b") != inode(dest / "c")
    assert found.files == 1
    assert found.nbytes == weights(dest / "a").stat().st_size
    assert found.problems == ()
    assert passes(dest)
    assert nothing_is_left(dest)


def test_small_files_and_manifests_are_left_alone(dest, index):
    for name in ("a", "b"):
        (dest / name / "notes").write_text("same")
    look(dest, index, "a", "b")
    for file in ("manifest.json", "notes"):
        assert (dest / "a" / file).stat().st_nlink == 1


def test_a_later_run_finds_what_an_earlier_one_indexed(dest, index):
    look(dest, index, "a")
    found = look(dest, index, "b")
    assert found.files == 1
    assert inode(dest / "a") == inode(dest / "b")


def test_what_was_made_while_nobody_looked_is_caught_up_with_once(dest, index):
    with Links(dest, index, "hardlink") as found:
        found.catch_up(["a", "b", "c", "gone"])
        assert found.found().files == 1
    with Links(dest, index, "hardlink") as again:
        again.look = None  # would fail
        again.catch_up(["a", "b", "c"])


def test_an_output_that_was_made_anew_is_looked_at_again(dest, index, bundles):
    with Links(dest, index, "hardlink") as found:
        found.catch_up(["a", "b", "c"])
        shutil.rmtree(dest / "b")
        shutil.copytree(bundles / "c", dest / "b")
        os.utime(dest / "b/manifest.json")
        found.catch_up(["a", "b", "c"])
        assert inode(dest / "b") == inode(dest / "c")
        assert found.found().files == 2
    assert passes(dest)


def test_names_need_not_be_unicode(dest, index):
    names = [os.fsdecode(b"\xff\n -x"), "é" * 60 + "/" + "a"]
    for name in names:
        (dest / name).parent.mkdir(exist_ok=True)
        shutil.copytree(dest / "a", dest / name)
    found = look(dest, index, "a", *names)
    assert (found.files, found.problems) == (2, ())
    with Links(dest, index, "hardlink") as again:
        again.catch_up(names)
        assert again.found().files == 0
    assert len({inode(dest / name) for name in ("a", *names)}) == 1


def test_a_damaged_file_is_never_linked_to(dest, index):
    look(dest, index, "a")
    with weights(dest / "a").open("r+b") as f:
        f.seek(SIZE // 2)
        f.write(b"damage")
    before = weights(dest / "b").read_bytes()
    found = look(dest, index, "b")
    assert found.files == 0
    assert weights(dest / "b").read_bytes() == before
    assert [c.path.name for c in check_folder(dest, None) if c.exit_code] == ["a"]
    shutil.copytree(dest / "b", dest / "d")
    assert look(dest, index, "d").files == 1  # with b; a is forgotten
    assert inode(dest / "d") == inode(dest / "b")


@pytest.mark.parametrize("there", ["nothing", "folder", "fifo", "link", "empty"])
def test_what_took_the_place_of_an_indexed_file_is_passed_over(dest, index, there):
    look(dest, index, "a")
    path = weights(dest / "a")
    path.unlink()
    if there == "folder":
        path.mkdir()
    elif there == "fifo":
        os.mkfifo(path)
    elif there == "link":
        path.symlink_to(weights(dest / "b"))
    elif there == "empty":
        path.touch()
    found = look(dest, index, "b")
    assert (found.files, found.problems) == (0, ())
    assert weights(dest / "b").stat().st_size > SIZE


def test_files_of_others_keep_their_permissions(dest, index):
    weights(dest / "a").chmod(0o600)
    found = look(dest, index, "a", "b")
    assert found.files == 0
    assert weights(dest / "b").stat().st_mode & 0o777 == 0o644 & ~current_umask()


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_damaged_manifest_is_told_and_nothing_is_done(dest, index):
    size = weights(dest / "b").stat().st_size
    for name, digest in ((3, "0" * 64), ("model.safetensors", [1]), ("model.safetensors", "é")):
        manifest = {"resources": [{"name": name, "digest": digest, "size": size}]}
        (dest / "b/manifest.json").write_text(json.dumps(manifest))
        found = look(dest, index, "a", "b")
        assert found.files == 0
        (problem,) = found.problems
        assert problem.startswith("b: ")


def test_names_that_lead_out_are_not_followed(dest, index, tmp_path):
    outside = tmp_path / "outside"
    shutil.copy(weights(dest / "a"), outside)
    manifest = json.loads((dest / "b/manifest.json").read_text())
    for name in ("../../outside", str(outside), "\ud800\0"):
        manifest["resources"][0]["name"] = name
        (dest / "b/manifest.json").write_text(json.dumps(manifest))
        assert look(dest, index, "a", "b").files == 0
    assert outside.stat().st_nlink == 1


def test_too_many_names_for_one_file_make_another_one(dest, index, monkeypatch):
    """A file system that grants two names to a file: every third is a file of its own."""
    link = os.link

    def two(a, b, **options):
        if Path(a).stat().st_nlink >= 2:
            raise OSError(errno.EMLINK, "Too many links")
        link(a, b, **options)

    monkeypatch.setattr(os, "link", two)
    for name in "defgh":
        shutil.copytree(dest / "a", dest / name)
    found = look(dest, index, *"abdefgh")
    assert found.files == 3
    assert found.problems == ()
    assert len({inode(dest / name) for name in "abdefgh"}) == 4
    assert passes(dest)


def test_a_failure_is_told_and_tried_again_by_the_next_run(dest, index, monkeypatch):
    with Links(dest, index, "hardlink") as found:
        found.look("a")
        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", fail_with(errno.EIO))
            found.look("b")
        assert found.found().problems == ("b: Input/output error",)
        assert inode(dest / "a") != inode(dest / "b")
        assert nothing_is_left(dest)
        found.catch_up(["a", "b"])
        assert inode(dest / "a") == inode(dest / "b")


def fail_with(code):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    return fail


def test_an_output_published_anew_meanwhile_keeps_its_new_files(dest, index, monkeypatch, bundles):
    """Between the look at a bundle and the link, another driver puts a new one in its place."""
    with Links(dest, index, "hardlink") as found:
        found.look("a")
        make = found._link

        def slowly(*arguments):
            (dest / "b").rename(dest / ".b.old")
            shutil.copytree(bundles / "c", dest / "b")
            return make(*arguments)

        found._link = slowly
        found.look("b")
    shutil.rmtree(dest / ".b.old")
    assert weights(dest / "b").read_bytes() == weights(bundles / "c").read_bytes()
    assert weights(dest / "b").stat().st_nlink == 1
    assert passes(dest)


LOOK = """
import sys
from pathlib import Path
from converter.batch.links import Links
with Links(Path(sys.argv[1]), Path(sys.argv[2]), "hardlink") as found:
    found.catch_up(sys.argv[3:])
"""


def looking(dest, index, names):
    return subprocess.Popen([sys.executable, "-c", LOOK, dest, index, *names], cwd=ROOT)


def test_several_drivers_at_once(dest, index):
    names = [f"n{i}" for i in range(20)]
    for i, name in enumerate(names):
        shutil.copytree(dest / "ac"[i % 2], dest / name)
    drivers = [looking(dest, index, names[i:] + names[:i]) for i in (0, 7, 13)]
    assert [driver.wait(60) for driver in drivers] == [0, 0, 0]
    assert passes(dest)
    assert nothing_is_left(dest)
    # The second one finds the first one's, so most are shared whatever the order.
    assert len({inode(dest / name) for name in names}) <= 10
    look(dest, index, *names)
    assert len({inode(dest / name) for name in names}) == 2


def test_killed_at_any_moment_there_is_the_file_or_the_link(dest, index):
    rng = random.Random(3)
    names = [f"n{i}" for i in range(60)]
    for name in names:
        shutil.copytree(dest / "a", dest / name)
    for _ in range(8):
        driver = looking(dest, index, names)
        time.sleep(0.15 + 0.15 * rng.random())
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        for name in names:
            assert weights(dest / name).stat().st_size > SIZE
    with Links(dest, index, "hardlink") as found:
        found.catch_up(names)
    assert passes(dest)
    assert nothing_is_left(dest)
    assert len({inode(dest / name) for name in names}) == 1


def test_what_a_run_left_that_was_killed_after_its_last_rename_is_removed(dest, index):
    look(dest, index, "a", "b")  # b is a link to a by now
    with contextlib.closing(sqlite3.connect(index)) as db, db:
        db.execute("DELETE FROM bundles_seen WHERE name = 'b'")
    (dest / ".b.convert-0").mkdir()
    with Links(dest, index, "hardlink") as found:
        found.catch_up(["a", "b"])
    assert nothing_is_left(dest)


def has_reflinks(folder):
    a, b = folder / "a.probe", folder / "b.probe"
    a.write_bytes(bytes(SMALLEST))
    try:
        with a.open("rb") as f, b.open("wb") as g:
            fcntl.ioctl(g, FICLONE, f.fileno())
    except OSError:
        return False
    finally:
        a.unlink()
        b.unlink()
    return True


def test_a_file_system_without_reflinks_is_told_before_anything_is_done(dest, index):
    if has_reflinks(dest):
        pytest.skip("this file system has them")
    with pytest.raises(UnsupportedError, match=r"reflinks, the file system has none.*hardlink may"):
        Links(dest, index, "reflink")
    assert not index.exists()
    assert nothing_is_left(dest)


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EPERM, errno.ENOTTY, errno.EINVAL])
def test_a_file_system_without_hard_links_is_told(dest, index, monkeypatch, code):
    monkeypatch.setattr(os, "link", fail_with(code))
    with pytest.raises(UnsupportedError, match="hardlinks, the file system has none"):
        Links(dest, index, "hardlink")
    assert nothing_is_left(dest)


def test_a_destination_that_cannot_be_written_is_told(dest, index, monkeypatch):
    monkeypatch.setattr(os, "link", fail_with(errno.ENOSPC))
    with pytest.raises(StorageError, match="No space left"):
        Links(dest, index, "hardlink")


@pytest.fixture(params=["btrfs", "xfs"])
def mounted(request, tmp_path):
    """A file system with reflinks, in a file; only root can mount one."""
    make = shutil.which(f"mkfs.{request.param}", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if os.geteuid() != 0 or make is None:
        pytest.skip(f"needs root and mkfs.{request.param}")
    image, place = tmp_path / "image", tmp_path / "mounted"
    place.mkdir()
    with image.open("wb") as f:
        f.truncate(320 << 20)
    subprocess.run([make, "-q", image], check=True)
    done = subprocess.run(["mount", "-o", "loop", image, place], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def used(folder):
    subprocess.run(["sync", "-f", folder], check=True)
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def test_reflinks_share_blocks_and_are_files_of_their_own(mounted, bundles, index):
    dest = shutil.copytree(bundles, mounted / "dest")
    for i in range(30):
        with weights(dest / "a").open("rb") as f:  # a copy that shares nothing
            data = f.read()
        shutil.copytree(dest / "a", dest / f"n{i}", ignore=shutil.ignore_patterns("*.safetensors"))
        weights(dest / f"n{i}").write_bytes(data)
    weights(dest / "n3").chmod(0o640)
    before = used(mounted)
    found = look(dest, index, "a", "b", *(f"n{i}" for i in range(30)), kind="reflink")
    assert (found.files, found.problems) == (31, ())
    end = time.monotonic() + 20  # XFS gives back what was removed when it finds the time
    while (saved := before - used(mounted)) <= 0.8 * 31 * SIZE:
        assert time.monotonic() < end, saved
        time.sleep(0.1)
    assert weights(dest / "n3").stat().st_mode & 0o777 == 0o640
    assert passes(dest)
    assert nothing_is_left(dest)
    with weights(dest / "n7").open("r+b") as f:  # what is done to one is not done to others
        f.write(b"damage")
    assert [c.path.name for c in check_folder(dest, None) if c.exit_code] == ["n7"]


def test_a_destination_on_several_file_systems(mounted, dest, index):
    shutil.copytree(dest / "a", mounted / "far")
    shutil.copytree(mounted / "far", dest / "near")
    look(dest, index, "a")
    (dest / "other").symlink_to(mounted)
    found = look(dest, index, "other/far", "near")
    assert found.problems == ()
    assert inode(dest / "near") == inode(dest / "a")
    assert weights(mounted / "far").stat().st_nlink == 1


@pytest.mark.parametrize(
    ("kind", "is_local", "target", "says"),
    [
        ("softlink", True, "portable", "reflink or hardlink"),
        ("hardlink", False, "portable", "a local folder"),
        ("hardlink", True, "onnx", "to='portable'"),
    ],
)
def test_what_has_no_links_is_refused(kind, is_local, target, says):
    with pytest.raises(UsageError, match=says):
        links.check(kind, is_local=is_local, target=target)
    links.check(None, is_local=is_local, target=target)


def batch(*arguments, cwd):
    command = [sys.executable, "-m", "converter", "batch", *map(str, arguments)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=100)


def test_a_batch_stores_identical_weights_once(tmp_path):
    models = tmp_path / "models"
    for n, seed in enumerate((1, 1, 2, 1)):
        (models / f"m{n}").mkdir(parents=True)
        source(models / f"m{n}/model.safetensors", seed)
    asked = ["models", "-o", "out", "--link", "hardlink", "--json", "--engine", "inline"]
    done = batch(*asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = [f"m{n}/model.portable" for n in range(4)]
    one, two, other, three = (inode(tmp_path / "out" / name) for name in names)
    assert one == two == three != other
    assert '"files": 2' in done.stdout
    assert passes(tmp_path / "out")
    with Ledger(tmp_path / "out.ledger.sqlite", read_only=True) as ledger:
        found = {row.name: record.weights_digest for row, record in ledger.rows_with_records()}
    assert [name for name in names if found[name] == found[names[0]]] == [
        names[0],
        names[1],
        names[3],
    ]
    assert len(found[names[0]]) == 64
    # An output that is made anew leaves the file of the others as it was.
    source(models / "m1/model.safetensors", 3)
    done = batch(*asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    one, two, other, three = (inode(tmp_path / "out" / name) for name in names)
    assert one == three
    assert len({one, two, other}) == 3
    assert passes(tmp_path / "out")


def test_a_file_that_a_graph_points_into_is_no_hard_link(tmp_path):
    """onnx refuses external data that has several names."""
    for n in range(2):
        (tmp_path / f"models/m{n}").mkdir(parents=True)
        shutil.copy(ROOT / "fixtures/verify/image.keras", tmp_path / f"models/m{n}/model.keras")
    asked = ["models", "-o", "out", "--engine", "inline", "--verify", "weights"]
    assert batch(*asked, "--link", "hardlink", cwd=tmp_path).returncode == 0
    found = [tmp_path / f"out/m{n}/model.portable" for n in range(2)]
    assert [weights(bundle).stat().st_nlink for bundle in found] == [1, 1]
    assert passes(tmp_path / "out")
    os.link(weights(found[0]), tmp_path / "other")
    (checked,) = check_folder(found[0], "weights")
    assert checked.exit_code == 1
    assert any("a link, which onnx refuses to load" in problem for problem in checked.problems)


def test_a_batch_without_links_is_linked_by_a_later_run(tmp_path):
    for n in range(3):
        (tmp_path / f"models/m{n}").mkdir(parents=True)
        source(tmp_path / f"models/m{n}/model.safetensors", 1)
    asked = ["models", "-o", "out", "--engine", "inline"]
    assert batch(*asked, cwd=tmp_path).returncode == 0
    places = [tmp_path / f"out/m{n}/model.portable" for n in range(3)]
    assert len({inode(place) for place in places}) == 3
    done = batch(*asked, "--link", "hardlink", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "linked      2 files, 384" in done.stderr
    assert len({inode(place) for place in places}) == 1


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (["-o", "out", "--link", "soft"], 2),
        (["-o", "s3://nowhere/x", "--link", "hardlink"], 2),
        (["-o", "out", "--to", "onnx", "--link", "hardlink"], 2),
    ],
)
def test_a_batch_refuses_links_that_cannot_be(tmp_path, given, code):
    source(tmp_path / "a.safetensors", 1)
    done = batch("a.safetensors", *given, cwd=tmp_path)
    assert done.returncode == code
    assert "--link" in done.stderr
    assert not (tmp_path / "out").exists()
