"""Outputs in a store are whole or absent, ours or refused, and known again without a ledger."""

import errno
import json
import shutil
from pathlib import Path

import pytest
from repository import ROOT
from stored_files import opened

from converter.batch import driver
from converter.batch.driver import Finished, Planned, Summary
from converter.batch.request import Request
from converter.destinations import upload_one
from converter.destinations.catalog import open_destination
from converter.destinations.upload import find_damage, find_marker, upload
from converter.destinations.url import Remote
from converter.options import Options
from formats.errors import DependencyError, StorageError, UnsupportedError, UsageError

FIXTURES = ROOT / "fixtures/keras"
PORTABLE = Options(verify="weights")


@pytest.fixture
def files(monkeypatch):
    with opened(monkeypatch) as files:
        yield files


@pytest.fixture
def models(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("a", "b"):
        shutil.copy(FIXTURES / "keras315_functional.h5", folder / f"{name}.h5")
    return folder


def run(source, ledger, options=PORTABLE, out="s3://b/out", **more):
    request = Request((str(source),), out, options, ledger=ledger, engine="inline", **more)
    events = list(driver.run(request))
    (plan,) = (e.plan for e in events if isinstance(e, Planned))
    (summary,) = (e for e in events if isinstance(e, Summary))
    return plan, {e.outcome.name: e.outcome for e in events if isinstance(e, Finished)}, summary


def test_a_batch_into_a_store_is_one_into_a_folder(files, models, tmp_path):
    _, outcomes, summary = run(models, tmp_path / "l")
    assert summary.exit_code == 0
    assert {o.record.output for o in outcomes.values()} == {
        "s3://b/out/a.portable",
        "s3://b/out/b.portable",
    }
    run(models, tmp_path / "l2", out=str(tmp_path / "local"))
    for name in ("a", "b"):
        local = tmp_path / "local" / f"{name}.portable"
        there = files.below(f"b/out/{name}.portable")
        assert {*there} == {p.relative_to(local).as_posix() for p in local.rglob("*")}
        assert there["model.safetensors"] == (local / "model.safetensors").read_bytes()
    puts = [p for op, p in files.calls if op == "put" and "/a.portable/" in p]
    assert puts[-1].endswith("manifest.json")
    assert {p for p in files.files if "/.convert/" in p} == {
        f"b/out/.convert/{name}.json" for name in ("about", "a.portable", "b.portable")
    }


def test_a_new_output_is_looked_for_once(files, models, tmp_path):
    """Each question takes as long as an upload of a small file does."""
    run(models / "a.h5", tmp_path / "l")
    asked = [op for op, path in files.calls if "/a.portable" in path and op in ("find", "rm")]
    assert asked == ["find"]


def test_a_second_run_does_nothing_and_a_changed_source_is_done_again(files, models, tmp_path):
    files.load(models, "b/in")
    run("s3://b/in", tmp_path / "l")
    files.calls.clear()
    plan, outcomes, _ = run("s3://b/in", tmp_path / "l")
    assert (len(plan.done), plan.todo, outcomes) == (2, [], {})
    assert len([c for c in files.calls if c[0] == "find"]) <= 3  # not one for each output
    assert not [c for c in files.calls if c[0] == "get"]
    files["b/in/a.h5"] = (FIXTURES / "keras1_theano_sequential.h5").read_bytes()
    old = files["b/out/a.portable/manifest.json"]
    _, outcomes, _ = run("s3://b/in", tmp_path / "l")
    assert {n: o.status for n, o in outcomes.items()} == {"a.portable": "done"}
    assert files["b/out/a.portable/manifest.json"] != old
    files["b/in/b.h5"] = files["b/in/b.h5"]  # touched, and the same
    _, outcomes, _ = run("s3://b/in", tmp_path / "l")
    assert {n: o.status for n, o in outcomes.items()} == {"b.portable": "unchanged"}


def test_outputs_inside_a_registry_are_no_sources(files, models, tmp_path):
    files.load(models, "b/in")
    run("s3://b", tmp_path / "l", out="s3://b/in/out")
    plan, outcomes, _ = run("s3://b", tmp_path / "l", out="s3://b/in/out")
    assert (len(plan.done), outcomes) == (2, {})
    assert {s.reason for s in plan.skipped} == {"in the destination"}
    with pytest.raises(UsageError, match="the registry itself"):
        run("s3://b/in/", tmp_path / "l2", out="s3://b/in")


@pytest.mark.parametrize("harm", ["gone", "no manifest", "cut", "replaced"])
def test_an_output_that_is_not_as_it_was_left_is_made_again(files, models, tmp_path, harm):
    run(models, tmp_path / "l")
    at = "b/out/a.portable"
    if harm == "gone":
        for name in files.below(at):
            del files.files[f"{at}/{name}"]
    elif harm == "no manifest":
        del files.files[f"{at}/manifest.json"]
    elif harm == "cut":
        files[f"{at}/model.safetensors"] = files[f"{at}/model.safetensors"][:-1]
    else:
        files[f"{at}/model.safetensors"] = bytes(len(files[f"{at}/model.safetensors"]))
    _, outcomes, _ = run(models, tmp_path / "l")
    assert {n: o.status for n, o in outcomes.items()} == {"a.portable": "done"}
    plan, _, _ = run(models, tmp_path / "l")
    assert len(plan.done) == 2


def test_another_machine_without_the_ledger_knows_what_is_done(files, models, tmp_path):
    files.load(models, "b/in")
    run("s3://b/in", tmp_path / "l")
    plan, outcomes, _ = run("s3://b/in", tmp_path / "of another machine")
    assert (len(plan.done), outcomes) == (2, {})
    del files.files["b/out/a.portable/manifest.json"]
    for i, junk in enumerate((b"[", b"{}", b"[]", b"7", b'{"record": 7, "name": []}')):
        files[f"b/out/.convert/{i}.json"] = junk
    _, outcomes, _ = run("s3://b/in", tmp_path / "of a third one")
    assert {n: o.status for n, o in outcomes.items()} == {"a.portable": "done"}


def test_an_upload_that_fails_leaves_nothing_that_looks_complete(files, models, tmp_path):
    files.faults = [("put", "a.portable/model.safetensors", OSError(errno.EINVAL, "no"))]
    _, outcomes, summary = run(models, tmp_path / "l")
    assert summary.exit_code == 6
    assert {n: o.status for n, o in outcomes.items()} == {
        "a.portable": "failed",
        "b.portable": "done",
    }
    assert files.below("b/out/a.portable") == {}
    _, outcomes, summary = run(models, tmp_path / "l")
    assert summary.exit_code == 0
    assert {n: o.status for n, o in outcomes.items()} == {"a.portable": "done"}


def test_what_a_killed_run_left_is_replaced(files, models, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def stops(local, path, **more):
        if path.endswith("a.portable/manifest.json"):
            raise Killed
        Path(local).stat()
        files[path] = Path(local).read_bytes()

    with monkeypatch.context() as patch:
        patch.setattr(files, "put_file", stops)
        patch.setattr(Remote, "sweep", lambda *_: False)  # who is killed does not
        with pytest.raises(Killed):
            run(models, tmp_path / "l")
    assert "model.safetensors" in files.below("b/out/a.portable")
    files["b/out/a.portable/stale"] = b""
    _, outcomes, _ = run(models, tmp_path / "another ledger")
    assert {o.status for o in outcomes.values()} == {"done"}
    assert "stale" not in files.below("b/out/a.portable")
    assert "manifest.json" in files.below("b/out/a.portable")


def test_what_is_the_users_stays(files, models, tmp_path):
    files["b/out/a.portable"] = b"mine"
    _, outcomes, summary = run(models, tmp_path / "l")
    assert outcomes["a.portable"].exit_code == 2
    assert "exists" in outcomes["a.portable"].record.error.message
    assert files["b/out/a.portable"] == b"mine"
    assert summary.exit_code == 2
    run(models, tmp_path / "l2", Options(verify="weights", overwrite=True))
    assert "b/out/a.portable" not in files
    assert "manifest.json" in files.below("b/out/a.portable")


def test_a_single_file_is_one_put(files, models, tmp_path):
    _, outcomes, _ = run(models, tmp_path / "l", Options(to="safetensors", verify="weights"))
    assert {*outcomes} == {"a.safetensors", "b.safetensors"}
    assert "b/out/a.safetensors" in files
    plan, _, _ = run(models, tmp_path / "l", Options(to="safetensors", verify="weights"))
    assert len(plan.done) == 2


@pytest.mark.parametrize("fault", [PermissionError("Access Denied"), FileNotFoundError("bucket")])
def test_a_place_that_cannot_be_written_is_found_out_first(files, models, tmp_path, fault):
    files.faults = [("put", "b/out", fault)]
    with pytest.raises(StorageError):
        run(models, tmp_path / "l")
    assert files.files == {}


def test_an_old_output_loses_its_manifest_before_anything_of_it_is_replaced(files, tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    for name in ("manifest.json", "a", "b"):
        (made / name).write_text("new")
        files[f"b/o/{name}"] = b"old"
    files["b/o/gone"] = b"old"
    upload(files.store("s3://b"), made, "o")
    changes = [(op, p) for op, p in files.calls if op in ("put", "rm")]
    assert changes[0] == ("rm", "b/o/manifest.json")
    assert changes[-1] == ("put", "b/o/manifest.json")
    assert {*files.below("b/o").values()} == {b"new"}
    assert "gone" not in files.below("b/o")


def test_the_marker_of_each_kind_of_output():
    assert find_marker(["a", "manifest.json", "model.safetensors"]) == "manifest.json"
    assert find_marker(["saved_model.pb", "variables/x", "convert.json"]) == "convert.json"
    assert (
        find_marker(["a-1.safetensors", "a.safetensors.index.json"]) == "a.safetensors.index.json"
    )
    assert find_marker(["1/model.onnx", "config.pbtxt"]) == "config.pbtxt"
    assert find_marker(["a", "b"]) == "b"
    assert find_damage("x", {}, {}) == "is gone"


def test_one_output_of_one_conversion(files, tmp_path):
    made = tmp_path / "m.onnx"
    made.write_bytes(b"123")
    upload_one.check("s3://b/x/m.onnx", force=False)
    upload_one.publish(made, "s3://b/x/m.onnx")
    assert files["b/x/m.onnx"] == b"123"
    with pytest.raises(UsageError, match="exists"):
        upload_one.check("s3://b/x/m.onnx", force=False)
    upload_one.check("s3://b/x/m.onnx", force=True)
    for wrong in ("s3://b", "models:/x"):
        with pytest.raises(UsageError):
            upload_one.check(wrong, force=False)
    with pytest.raises(UnsupportedError):
        upload_one.check("https://host/x", force=True)
    with pytest.raises(UnsupportedError):
        open_destination("https://host/x")


def test_no_password_reaches_a_ledger_and_no_package_is_a_plain_word(monkeypatch):
    with pytest.raises(UsageError):
        open_destination("sftp://me:SECRET@host/out")
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(DependencyError):
        open_destination("s3://b/out")


def test_notes_hold_no_more_than_the_record(files, models, tmp_path):
    run(models, tmp_path / "l")
    note = json.loads(files["b/out/.convert/a.portable.json"])
    assert note["name"] == "a.portable"
    assert note["record"]["status"] == "done"
    assert {*note["record"]["published"]} == {*files.below("b/out/a.portable")}


def test_a_batch_in_fsspecs_own_memory(models, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    top = f"memory://{tmp_path.name}"
    memory.put(str(models), f"{top}/in", recursive=True)
    try:
        _, outcomes, summary = run(f"{top}/in", tmp_path / "l", out=f"{top}/out")
        assert ({o.status for o in outcomes.values()}, summary.exit_code) == ({"done"}, 0)
        for ledger in ("l", "of another machine"):
            plan, outcomes, _ = run(f"{top}/in", tmp_path / ledger, out=f"{top}/out")
            assert (len(plan.done), outcomes) == (2, {})
    finally:
        memory.rm(top, recursive=True)
