"""Sources that were renamed or moved: their outputs follow them, exactly, or are made again."""

import json
import os
import shutil
from pathlib import Path

import pytest
from batch_runs import batch, rows, statuses, write
from repository import FIXTURES

from converter.options import Options
from converter.registries.filters import Filters
from converter.verification import bundle_check

TIMES = ("environment",)  # of a manifest: where and when it was made


@pytest.fixture
def registry(tmp_path):
    folder = tmp_path / "registry"
    write(folder / "a.safetensors", 0)
    shutil.copy(FIXTURES / "keras/keras315_functional.h5", folder / "net.h5")
    shutil.copytree(FIXTURES / "tensorflow/simple_save", folder / "saved")
    return folder


def content(bundle):
    """Return all that a bundle says, and holds."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    for key in TIMES:
        manifest.pop(key)
    files = {p.relative_to(bundle).as_posix(): p for p in bundle.rglob("*") if p.is_file()}
    return manifest, {n: p.read_bytes() for n, p in files.items() if n != "manifest.json"}


def check_as_new(tmp_path):
    """Compare all that is there with what a first run makes of the same sources."""
    known = {row.name: row for row in rows(tmp_path).values()}
    there = {p.parent for p in (tmp_path / "out").rglob("manifest.json")}
    assert {p.relative_to(tmp_path / "out").as_posix() for p in there} == set(known)
    for row in known.values():
        single = tmp_path / "anew"
        batch(single, Path(row.source))
        (fresh,) = (p.parent for p in (single / "out").rglob("manifest.json"))
        assert content(tmp_path / "out" / row.name) == content(fresh)
        shutil.rmtree(single)


def inodes(tmp_path):
    found = (tmp_path / "out").rglob("model.safetensors")
    return {p.parent.relative_to(tmp_path / "out").as_posix(): p.stat().st_ino for p in found}


def test_sources_that_are_renamed(registry, tmp_path):
    batch(tmp_path)
    before = inodes(tmp_path)
    (registry / "a.safetensors").rename(registry / "b.safetensors")
    (registry / "deep").mkdir()
    (registry / "net.h5").rename(registry / "deep/network.h5")
    (registry / "saved").rename(registry / "kept")
    _, outcomes, summary = batch(tmp_path)
    names = {"b.portable": "a", "deep/network.portable": "net", "kept.portable": "saved"}
    assert statuses(outcomes) == dict.fromkeys(names, "moved")
    assert summary.exit_code == 0
    assert inodes(tmp_path) == {new: before[f"{old}.portable"] for new, old in names.items()}
    check_as_new(tmp_path)
    assert [c.problems for c in bundle_check.check_folder(tmp_path / "out", None)] == [()] * 3
    plan, outcomes, _ = batch(tmp_path)
    assert (len(plan.done), plan.todo) == (3, [])
    assert not list((tmp_path / "out").rglob(".*"))


def test_what_the_ledger_says_of_a_moved_output(registry, tmp_path):
    first = batch(tmp_path)[1]["a.portable"].record
    (registry / "a.safetensors").rename(registry / "b.safetensors")
    batch(tmp_path)
    from converter.batch.ledger import Ledger

    with Ledger(tmp_path / "out.ledger.sqlite", read_only=True) as ledger:
        recorded = {row.name: (row, record) for row, record in ledger.rows_with_records()}
    assert "a.portable" not in recorded
    row, record = recorded["b.portable"]
    assert (row.status, row.source) == ("done", str(registry / "b.safetensors"))
    assert record.moved_from == "a.portable"
    assert record.output == str(tmp_path / "out/b.portable")
    for key in ("verification", "source_digest", "weights_digest", "format", "seconds"):
        assert getattr(record, key) == getattr(first, key)
    os.truncate(tmp_path / "out/b.portable/manifest.json", 7)
    assert list(batch(tmp_path)[0].damaged) == ["b.portable"]
    write(registry / "a.safetensors", 0)  # another one of the old name has its name again
    assert statuses(batch(tmp_path)[1]) == {"a.portable": "done"}


def test_a_registry_that_is_moved_keeps_the_names_of_its_outputs(registry, tmp_path):
    batch(tmp_path)
    before = inodes(tmp_path)
    registry.rename(tmp_path / "models")
    _, outcomes, _ = batch(tmp_path, tmp_path / "models")
    assert statuses(outcomes) == dict.fromkeys(before, "unchanged")
    assert inodes(tmp_path) == before
    check_as_new(tmp_path)
    assert {Path(row.source).parent.name for row in rows(tmp_path).values()} == {"models"}
    assert batch(tmp_path, tmp_path / "models")[1] == {}


def test_a_registry_that_is_copied_elsewhere_with_its_times(registry, tmp_path):
    batch(tmp_path)
    shutil.copytree(registry, tmp_path / "models")  # as cp -a does, and rsync -a
    shutil.rmtree(registry)
    _, outcomes, _ = batch(tmp_path, tmp_path / "models")
    found = statuses(outcomes)
    assert (found["a.portable"], found["net.portable"]) == ("unchanged", "unchanged")
    assert batch(tmp_path, tmp_path / "models")[1] == {}


@pytest.mark.parametrize("to", ["portable", "safetensors"])
def test_a_registry_by_another_path_is_the_same(registry, tmp_path, to):
    options = Options(to=to)
    (tmp_path / "way").symlink_to(registry)
    batch(tmp_path, options=options)
    names = set(rows(tmp_path))
    for path in (tmp_path / "way", registry):
        _, outcomes, _ = batch(tmp_path, path, options=options)
        assert statuses(outcomes) == dict.fromkeys(names, "unchanged")
        assert {str(Path(row.source).parent) for row in rows(tmp_path).values()} == {str(path)}
        assert batch(tmp_path, path, options=options)[1] == {}
    (registry / "b.safetensors").symlink_to("a.safetensors")  # and is no reason to lose a's
    _, outcomes, _ = batch(tmp_path, options=options, filters=Filters(exclude=("a.*",)))
    assert list(outcomes) == [f"b.{to}"]
    assert set(rows(tmp_path)) == names | set(outcomes)


def test_a_harmed_output_of_a_registry_that_is_moved_is_made_again(registry, tmp_path):
    batch(tmp_path)
    os.truncate(tmp_path / "out/a.portable/model.safetensors", 3)
    registry.rename(tmp_path / "models")
    plan, outcomes, _ = batch(tmp_path, tmp_path / "models")
    assert list(plan.damaged) == ["a.portable"]
    assert statuses(outcomes)["a.portable"] == "done"


def test_a_suffix_that_changes_keeps_the_name_and_corrects_the_manifest(tmp_path):
    registry = tmp_path / "registry"
    registry.mkdir()
    shutil.copy(next((FIXTURES / "torch").rglob("*.pt")), registry / "m.pt")
    assert list(statuses(batch(tmp_path)[1])) == ["m.portable"]
    (registry / "m.pt").rename(registry / "m.pth")
    assert statuses(batch(tmp_path)[1]) == {"m.portable": "moved"}
    check_as_new(tmp_path)


def test_two_that_are_there_are_two(registry, tmp_path):
    batch(tmp_path)
    shutil.copy2(registry / "a.safetensors", registry / "b.safetensors")
    assert statuses(batch(tmp_path)[1]) == {"b.portable": "done"}
    (registry / "a.safetensors").unlink()
    shutil.copy2(registry / "b.safetensors", registry / "c.safetensors")
    shutil.copy2(registry / "b.safetensors", registry / "d.safetensors")
    outcomes = statuses(batch(tmp_path)[1])  # the first one has it
    assert outcomes == {"c.portable": "moved", "d.portable": "done"}
    assert not (tmp_path / "out/a.portable").exists()
    check_as_new(tmp_path)


@pytest.mark.parametrize(
    "why", ["other bytes", "other options", "harmed", "other manifest", "name elsewhere", "theirs"]
)
def test_what_is_not_exactly_that_is_converted(registry, tmp_path, why, monkeypatch):
    batch(tmp_path)
    output = tmp_path / "out/a.portable"
    options = Options()
    (registry / "a.safetensors").rename(registry / "b.safetensors")
    if why == "other bytes":
        status = (registry / "b.safetensors").stat()
        write(registry / "b.safetensors", 5)
        os.utime(registry / "b.safetensors", ns=(status.st_atime_ns, status.st_mtime_ns))
    elif why == "other options":
        options = Options(max_shard_size=1 << 20)
    elif why == "harmed":
        os.truncate(output / "model.safetensors", 3)
    elif why in ("other manifest", "name elsewhere"):
        manifest = json.loads((output / "manifest.json").read_text())
        if why == "other manifest":
            manifest["source"]["digest"]["value"] = "0" * 64
        else:
            manifest["source"]["recorded"]["of"] = "from a.safetensors"
        (output / "manifest.json").write_text(json.dumps(manifest))
    else:
        (tmp_path / "out/b.portable").mkdir()
    before = content(output) if why != "theirs" else None
    outcomes, summary = batch(tmp_path, options=options)[1:]
    expected = "failed" if why == "theirs" else "done"
    assert statuses(outcomes)["b.portable"] == expected, summary
    if before is not None:
        assert content(output) == before  # it is the user's to remove


def test_a_source_that_cannot_be_looked_at_is_not_gone(registry, tmp_path, monkeypatch):
    batch(tmp_path)
    (registry / "a.safetensors").rename(registry / "b.safetensors")
    real = os.lstat

    def lstat(path, **more):
        if str(path).endswith("a.safetensors"):
            raise PermissionError(13, "Permission denied")
        return real(path, **more)

    monkeypatch.setattr("converter.batch.renamed_sources.os.lstat", lstat)
    assert statuses(batch(tmp_path)[1]) == {"b.portable": "done"}


def test_killed_in_the_middle_of_a_move(registry, tmp_path, monkeypatch):
    """Wherever that is: it is made again, and nothing is refused or left."""
    batch(tmp_path)
    (registry / "a.safetensors").rename(registry / "b.safetensors")
    (tmp_path / "out/a.portable").rename(tmp_path / "out/b.portable")  # and nobody wrote it down
    from converter.batch.ledger import Ledger

    with Ledger(tmp_path / "out.ledger.sqlite") as ledger:
        ledger._db.execute("INSERT INTO claims VALUES('b.portable', '', 'free')")
    assert statuses(batch(tmp_path)[1]) == {"b.portable": "done"}
    assert batch(tmp_path)[1] == {}
