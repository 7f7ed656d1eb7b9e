"""``--shard``: machines that know nothing of each other do a registry between them, each once."""

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from batches import Place, make_registry

from converter.batch.plan import _part

pytestmark = pytest.mark.thorough

COUNT = 60
PARTS = 3
DAMAGED = 3  # one in twenty is
PINNED = [1, 1, 0, 2, 3, 0, 3, 0]  # machines of several versions agree on them


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    return make_registry(tmp_path_factory.mktemp("registry"), COUNT)


@pytest.fixture(scope="module")
def whole(registry, tmp_path_factory):
    """What one machine makes of it."""
    place = Place(tmp_path_factory.mktemp("whole"), registry)
    assert place.run()[0] == 3
    return place


def finished(events):
    """Return the names of what a run has converted."""
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    return [line["name"] for line in lines if line.get("event") == "finished"]


def test_all_shards_at_once_give_everything_exactly_once(registry, whole, tmp_path):
    place = Place(tmp_path, registry)
    logs = [place.temporary.parent / f"events{n}" for n in range(1, PARTS + 1)]
    runs = [
        place.start("--shard", f"{n}/{PARTS}", "--events", str(log))
        for n, log in enumerate(logs, 1)
    ]
    ends = [(run.communicate(timeout=100)[1], run.returncode) for run in runs]
    shares = [finished(log) for log in logs]
    for log in logs:
        log.unlink()
    assert all(code in (0, 3) for _, code in ends), ends
    assert Counter(name for share in shares for name in share) == dict.fromkeys(whole.rows(), 1)
    assert all(3 < len(share) < COUNT - 10 for share in shares)
    place.check_same(whole)
    # Nothing is left to do for anybody: the registry is complete for every shard.
    assert place.run("--shard", f"1/{PARTS}")[0] in (0, 3)
    inodes = place.inodes()
    assert place.run()[0] == 3
    assert place.inodes() == inodes
    assert len(inodes) == COUNT - DAMAGED


def test_a_shard_says_how_its_own_part_ended(registry, tmp_path):
    """A machine's exit code is of what it was given: one without damage among it is well."""
    sources = sorted(str(path) for path in registry.rglob("*.safetensors"))
    damaged = {s for n, s in enumerate(sorted(sources, key=number)) if n % 20 == 7}
    parts = 8
    codes = dict.fromkeys(range(1, parts + 1), 0)
    for source in damaged:
        codes[_part(source, parts) + 1] = 3
    assert set(codes.values()) == {0, 3}
    place = Place(tmp_path, registry)
    for well in (min(n for n in codes if codes[n] == code) for code in (0, 3)):
        assert place.run("--shard", f"{well}/{parts}")[0] == codes[well]


def number(source):
    return int(Path(source).stem.removeprefix("model-"))


def test_a_part_is_an_artifacts_own():
    """What else there is, and where a registry is listed from, changes no artifact's machine."""
    assert [_part(f"/models/{n}.pt", 4) for n in range(8)] == PINNED
    assert _part("/models/\udcff.pt", 4) in range(4)  # a name that is no UTF-8
    shares = Counter(_part(f"s3://bucket/{n}", 10) for n in range(10_000))
    assert max(shares.values()) < 1.15 * min(shares.values())


# How schedulers number their tasks, and what names the second of three (docs/registries.md).
SCHEDULERS = [
    (
        {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "3"},
        "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT",
    ),
    ({"JOB_COMPLETION_INDEX": "1"}, "$((JOB_COMPLETION_INDEX + 1))/3"),
    ({"CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "3"}, "$CI_NODE_INDEX/$CI_NODE_TOTAL"),
]


@pytest.mark.parametrize(("variables", "words"), SCHEDULERS)
def test_parts_as_schedulers_number_them(registry, tmp_path, variables, words):
    place = Place(tmp_path, registry)
    base = [sys.executable, "-m", "converter", "batch", registry, "-o", place.out, "--dry-run"]
    command = f"{shlex.join(map(str, base))} --json --shard {words}"
    said = subprocess.run(
        ["/bin/sh", "-c", command], env={**os.environ, **variables}, capture_output=True, text=True
    )
    asked = subprocess.run(
        [*map(str, base), "--json", "--shard", "2/3"], capture_output=True, text=True
    )
    assert said.returncode == asked.returncode == 0, said.stderr
    assert said.stdout == asked.stdout
    assert '"todo":' in said.stdout
