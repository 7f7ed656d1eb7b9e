"""Killed at any moment, or with a full disk: the output is the old one, the new one, or absent."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

pytestmark = pytest.mark.thorough

POINTS = 20  # of a bundle that replaces another; of what is much the same, fewer
FEWER = 8


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    paths = []
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        path = folder / f"{seed}.safetensors"
        save_file(
            {f"w{i}": rng.standard_normal((1000, 500 + i)).astype("f4") for i in range(20)}, path
        )
        paths.append(path)
    return paths


def command(source, target, out, *more):
    return [sys.executable, "-m", "converter", source, "--to", target, "-o", out, "-q", *more]


def content(out):
    """Return which source an output holds, having checked that it is whole."""
    path = out / "model.safetensors" if out.is_dir() else out
    if out.is_dir():
        manifest = json.loads((out / "manifest.json").read_text())
        assert {r["name"]: r["size"] for r in manifest["resources"]} == {
            path.name: path.stat().st_size
        }
    return load_file(path)["w19"].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["portable", "safetensors"])
@pytest.mark.parametrize("force", [False, True])
def test_killed_at_random_points(sources, tmp_path, target, force):
    old, new = sources
    out = tmp_path / "out"
    wanted = [load_file(s)["w19"].tobytes() for s in sources]
    start = time.perf_counter()
    subprocess.run(command(new, target, out), check=True, stdout=subprocess.DEVNULL)
    lasts = time.perf_counter() - start
    rng = random.Random(f"{target}{force}")
    seen = {"absent": 0, "old": 0, "new": 0}
    for _ in range(POINTS if (target, force) == ("portable", True) else FEWER):
        for path in tmp_path.iterdir():
            if path == out or not path.name.startswith(".out"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if force:
            subprocess.run(command(old, target, out), check=True, stdout=subprocess.DEVNULL)
        more = ["--force"] if force else []
        child = subprocess.Popen(command(new, target, out, *more), stdout=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, lasts))
        child.send_signal(signal.SIGKILL)
        child.wait()
        if not out.exists():
            seen["absent"] += 1
        else:
            found = content(out)
            assert found in wanted
            seen["new" if found == wanted[1] else "old"] += 1
    subprocess.run(command(new, target, out, "--force"), check=True, stdout=subprocess.DEVNULL)
    assert content(out) == wanted[1]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    # Without an old output there is nothing to fall back to, and with one it is never lost for
    # longer than between two renames.
    assert seen["old" if force else "absent"] > 0, seen


def test_interrupted_by_the_user(sources, tmp_path):
    child = subprocess.Popen(
        command(sources[0], "portable", tmp_path / "out"), stderr=subprocess.PIPE, text=True
    )
    for _ in range(500):
        if any(tmp_path.iterdir()):
            break
        time.sleep(0.005)
    child.send_signal(signal.SIGINT)
    message = child.communicate()[1]
    if child.returncode == 0:  # it was faster than the signal
        assert content(tmp_path / "out")
    else:
        assert child.returncode == 130
        assert "Traceback" not in message
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["portable", "safetensors"])
@pytest.mark.parametrize("size", ["64k", "1m", "20m", "38m"])
def test_a_full_disk_leaves_nothing(sources, tmp_path, target, size):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        done = subprocess.run(
            command(sources[0], target, disk / "out"), capture_output=True, text=True
        )
        assert done.returncode == 6, done.stderr
        assert "No space left" in done.stderr
        assert "Traceback" not in done.stderr
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_read_only_folder(sources, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", disk]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        done = subprocess.run(
            command(sources[0], "portable", disk / "out"), capture_output=True, text=True
        )
        assert done.returncode == 6
        assert "Read-only" in done.stderr
    finally:
        subprocess.run(["umount", disk], check=True)
