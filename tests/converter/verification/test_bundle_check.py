"""`convert verify DIR`: bundles against their own manifests, and what may be wrong."""

import json
import os
import random
import shutil
import subprocess
import sys

import pytest
from repository import ROOT

import converter
from converter.options import Options
from converter.verification.bundle_check import check_folder
from formats.core import digests
from formats.errors import SourceError, VerificationError

WEIGHTS = ROOT / "fixtures/demo/checkpoint.pt"
GRAPH = ROOT / "fixtures/keras/keras315_functional.keras"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two bundles: of weights alone, and with a graph."""
    folder = tmp_path_factory.mktemp("made")
    converter.convert(WEIGHTS, out=folder / "weights.portable")
    converter.convert(GRAPH, out=folder / "graph.portable", options=Options(verify="weights"))
    return folder


@pytest.fixture
def dest(made, tmp_path):
    return shutil.copytree(made, tmp_path / "dest")


def edit(bundle, change):
    path = bundle / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def verified_on(level):
    """Return a change that records a verification of the graph."""

    def change(manifest):
        device = {"status": "passed", "reason": ""} if level == "device" else None
        report = {"status": "passed", "reason": "", "outputs": [], "device": device}
        manifest["verification"] |= {"reached": level, "graph": report}

    return change


def by_name(folder, require=None):
    return {str(c.path.relative_to(folder)): c for c in check_folder(folder, require)}


def only(folder, require=None):
    (checked,) = check_folder(folder, require)
    return checked


def run(*arguments, cwd=None):
    command = [sys.executable, "-m", "converter", "verify", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)


def test_what_was_written_passes(dest):
    found = by_name(dest)
    assert list(found) == ["graph.portable", "weights.portable"]
    for checked in found.values():
        assert (checked.exit_code, checked.reached, checked.problems) == (0, "weights", ())
    one = only(dest / "graph.portable")
    assert one.files == 2
    sizes = [
        (dest / "graph.portable" / n).stat().st_size for n in ("model.onnx", "model.safetensors")
    ]
    assert one.nbytes == sum(sizes)


def test_the_digest_of_each_tensor_is_checked(dest):
    """A manifest whose own digests add up may still be of other tensors."""

    def change(manifest):
        manifest["tensors"][0]["digest"] = "0" * 64
        tensors = {t["name"]: (t["dtype"], t["shape"], t["digest"]) for t in manifest["tensors"]}
        manifest["weights_digest"]["value"] = digests.of_weights(tensors)

    edit(dest / "weights.portable", change)
    checked = only(dest / "weights.portable")
    assert checked.exit_code == 1
    (problem,) = checked.problems
    assert "is not what the manifest records: its digest differs" in problem


def test_outputs_are_found_at_any_depth_and_hidden_ones_are_not(dest):
    (dest / "a/b").mkdir(parents=True)
    (dest / "weights.portable").rename(dest / "a/b/w")
    shutil.copytree(dest / "a/b/w", dest / ".w.portable.convert-12345678")
    (dest / "README.md").write_text("# models\n")
    (dest / "empty.bin").touch()
    assert list(by_name(dest)) == ["a/b/w", "graph.portable"]


def test_links_to_folders_are_followed_and_loops_end(dest, tmp_path):
    shutil.move(dest / "weights.portable", tmp_path / "elsewhere")
    (dest / "current").symlink_to(tmp_path / "elsewhere")
    (dest / "graph.portable").rename(dest / "v1")
    (dest / "latest").symlink_to("v1")
    (dest / "loop").symlink_to(dest)
    (dest / "broken").symlink_to(dest / "nowhere")
    found = by_name(dest)
    assert {name: c.exit_code for name, c in found.items()} == {
        "broken": 3,
        "current": 0,
        "latest": 0,
    }


@pytest.mark.parametrize(
    ("recorded", "require", "passes"),
    [
        ("weights", "weights", True), ("weights", "cpu", False), ("weights", "device", False),
        ("cpu", "weights", True), ("cpu", "cpu", True), ("cpu", "device", False),
        ("device", "cpu", True), ("device", "device", True),
    ],
)  # fmt: skip
def test_what_is_recorded_must_reach_as_far_as_is_required(dest, recorded, require, passes):
    bundle = dest / "graph.portable"
    if recorded != "weights":
        edit(bundle, verified_on(recorded))
    checked = only(bundle, require)
    assert checked.reached == recorded
    assert checked.exit_code == (0 if passes else 1)
    if not passes:
        assert checked.problems == (f"verified as far as {recorded}; required: {require}",)


def test_the_least_verified_part_counts(dest):
    bundle = dest / "graph.portable"
    edit(bundle, verified_on("cpu"))
    shutil.copy(bundle / "model.onnx", bundle / "model.second.onnx")

    def second(manifest):
        (first,) = (r for r in manifest["resources"] if r["name"] == "model.onnx")
        manifest["resources"].insert(1, first | {"name": "model.second.onnx"})
        manifest["graphs"] = [manifest["graph"] | {"file": "model.second.onnx"}]
        report = {"status": "not run", "reason": "it has no inputs", "outputs": []}
        manifest["verification"]["graphs"] = {"second": report}

    edit(bundle, second)
    checked = only(bundle, "cpu")
    assert checked.reached == "weights"
    assert checked.reason == "it has no inputs"
    # The root digest no longer follows from what it covers; that is reported as well.
    assert len(checked.problems) == 2


def test_a_manifest_that_claims_more_than_its_parts_is_not_believed(dest):
    bundle = dest / "graph.portable"
    edit(bundle, lambda m: m["verification"].update(reached="device"))
    checked = only(bundle, "cpu")
    assert (checked.exit_code, checked.reached) == (1, "weights")


def test_no_byte_of_any_file_can_change(dest):
    rng = random.Random(5)
    bundle = dest / "graph.portable"
    for path in (bundle / "model.safetensors", bundle / "model.onnx"):
        whole = path.read_bytes()
        places = {0, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(40))}
        for place in places:
            changed = bytearray(whole)
            changed[place] ^= 1 << rng.randrange(8)
            path.write_bytes(changed)
            checked = only(bundle)
            assert checked.exit_code == 1, (path.name, place)
            assert checked.problems == (f"{path.name} is not what was written: its digest differs",)
        path.write_bytes(whole)
    assert only(bundle).exit_code == 0


def test_files_that_are_missing_extra_or_of_another_size_are_all_named(dest):
    bundle = dest / "graph.portable"
    (bundle / "model.safetensors").unlink()
    with (bundle / "model.onnx").open("ab") as f:
        f.write(b"\0")
    (bundle / "assets").mkdir()
    (bundle / "assets/python_model.pkl").touch()
    (bundle / "MLmodel.bak").touch()
    checked = only(bundle)
    size = (bundle / "model.onnx").stat().st_size
    assert checked.exit_code == 1
    assert checked.problems == (
        f"model.onnx has {size} bytes; expected {size - 1}",
        "model.safetensors is missing",
        "MLmodel.bak is not in the manifest",
        "assets/python_model.pkl is not in the manifest",
    )


def test_what_signing_and_mlflow_put_beside_is_theirs(dest):
    bundle = dest / "weights.portable"
    (bundle / "model.sig").write_text("{}")
    (bundle / "requirements.txt").touch()
    assert only(bundle).problems == ("requirements.txt is not in the manifest",)
    (bundle / "MLmodel").touch()
    assert only(bundle).exit_code == 0


def test_models_without_a_record_fail(dest):
    shutil.copy(WEIGHTS, dest / "model.pt")
    shutil.copy(dest / "weights.portable/model.safetensors", dest / "a.safetensors")
    saved = dest / "saved"
    saved.mkdir()
    (saved / "saved_model.pb").write_bytes(b"\x08\x01")
    found = by_name(dest)
    failed = {name: c for name, c in found.items() if c.exit_code}
    assert set(failed) == {"model.pt", "a.safetensors", "saved"}
    for checked in failed.values():
        assert checked.problems == ("has no record of its digests and its verification",)


def test_a_bundle_that_lost_its_manifest_fails(dest):
    (dest / "graph.portable/manifest.json").unlink()
    found = by_name(dest)
    assert [name for name, c in found.items() if c.exit_code] == [
        "graph.portable/model.onnx",
        "graph.portable/model.safetensors",
    ]


def test_a_manifest_cut_anywhere_is_unreadable(dest):
    path = dest / "weights.portable/manifest.json"
    whole = path.read_bytes()
    for length in [0, 1, 20, *range(50, len(whole) - 2, 397)]:
        path.write_bytes(whole[:length])
        assert only(path.parent).exit_code == 3, length


VALUES = (
    None,
    0,
    -1,
    1.5,
    "",
    "x",
    [],
    {},
    True,
    [None],
    {"x": 1},
    "../../etc/passwd",
    "/etc/passwd",
)


def test_whatever_a_manifest_says_nothing_is_raised(dest):
    """Each value is replaced by values of other kinds: it is reported as failed, or ignored."""
    path = dest / "graph.portable/manifest.json"
    whole = json.loads(path.read_text())
    rng = random.Random(7)

    def places(value, at=()):
        yield at
        children = enumerate(value) if isinstance(value, list) else ()
        for key, child in value.items() if isinstance(value, dict) else children:
            yield from places(child, (*at, key))

    everywhere = [
        at
        for at in places(whole)
        if at and at[0] not in ("topology", "source")
        if len(at) == 1 or not isinstance(at[1], int) or at[1] < 2  # entries are alike
    ]
    codes = set()
    for at in everywhere * 3:
        manifest = json.loads(json.dumps(whole))
        holder = manifest
        for key in at[:-1]:
            holder = holder[key]
        holder[at[-1]] = rng.choice(VALUES)
        path.write_text(json.dumps(manifest))
        codes.add(only(path.parent, "weights").exit_code)
    assert codes <= {0, 1, 3, 4, 5}
    assert {1, 3} <= codes


def test_names_that_lead_out_are_refused(dest):
    bundle = dest / "weights.portable"

    def renamed(name):
        return lambda m: m["resources"][0].update(name=name)

    edit(bundle, renamed("../../etc/passwd"))
    assert only(bundle).exit_code == 1  # there is no such file, and nothing was opened
    edit(bundle, renamed("/etc/passwd"))
    assert only(bundle).exit_code == 5
    edit(bundle, renamed("model.safetensors"))
    (bundle / "model.safetensors").rename(dest.parent / "outside")
    (bundle / "model.safetensors").symlink_to(dest.parent / "outside")
    assert only(bundle).exit_code == 5


def test_a_graph_points_into_its_bundle_only(dest, tmp_path):
    """Digests that were made to fit do not help a graph that points elsewhere."""
    from formats.core import digests
    from formats.core.storage import File, Span

    bundle = dest / "graph.portable"
    graph = bundle / "model.onnx"
    whole = graph.read_bytes()
    assert whole.count(b"model.safetensors") > 1
    for name, code in (
        (b"../ther/file12345", 5),
        (b"/absolute/fileabc", 5),
        (b"other.safetensors", 3),
    ):
        assert len(name) == len(b"model.safetensors")
        graph.write_bytes(whole.replace(b"model.safetensors", name))

        def fitted(manifest):
            for r in manifest["resources"]:
                r["digest"] = digests.of_span(Span.whole(File(bundle / r["name"])))
            found = {r["name"]: r["digest"] for r in manifest["resources"]}
            manifest["digest"]["value"] = digests.of_files(found)

        edit(bundle, fitted)
        assert only(bundle).exit_code == code, name
    # A file of the folder that is none of the bundle's: reported twice, as extra and as a target.
    shutil.copy(bundle / "model.safetensors", bundle / "other.safetensors")
    assert only(bundle).problems == ("other.safetensors is not in the manifest",)
    (bundle / "other.safetensors").rename(bundle / "model.sig")  # which may lie there
    graph.write_bytes(whole.replace(b"model.safetensors", b"././././model.sig"))
    edit(bundle, fitted)
    (problem,) = only(bundle).problems
    assert problem.startswith("model.onnx points to ././././model.sig")


def test_a_later_schema_is_not_guessed_at(dest):
    bundle = dest / "weights.portable"
    edit(bundle, lambda m: m.update(schema_version=2))
    assert only(bundle).exit_code == 4
    edit(bundle, lambda m: m.pop("schema_version"))
    assert only(bundle).exit_code == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_is_told(dest):
    (dest / "graph.portable").chmod(0)
    try:
        assert by_name(dest)["graph.portable"].exit_code == 3
    finally:
        (dest / "graph.portable").chmod(0o755)


def test_a_gate_that_compared_nothing_fails(tmp_path):
    with pytest.raises(VerificationError, match="nothing was verified"):
        list(check_folder(tmp_path, None))
    (tmp_path / "notes.txt").write_text("none here")
    with pytest.raises(VerificationError, match="nothing was verified"):
        list(check_folder(tmp_path, None))
    for path in (tmp_path / "notes.txt", tmp_path / "nowhere"):
        with pytest.raises(SourceError):
            list(check_folder(path, None))


def test_leaving_early_does_not_wait_for_the_rest(made, tmp_path):
    for i in range(200):
        shutil.copytree(made / "weights.portable", tmp_path / f"{i:03}")
    checking = check_folder(tmp_path, None, threads=1)
    assert next(checking).path.name == "000"
    checking.close()


def test_the_command_says_it_and_its_exit_code_is_the_worst(dest):
    done = run(dest)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("checked     2 passed; 3 files, ")
    done = run(dest, "--require", "cpu")
    assert done.returncode == 1
    assert (
        f"compare again: convert verify SOURCE {dest}/graph.portable --require cpu" in done.stdout
    )
    assert "2 of 2 failed" in done.stdout
    (dest / "weights.portable/manifest.json").write_text("{")
    done = run(dest, "--json")
    document = json.loads(done.stdout)
    assert done.returncode == document["exit_code"] == 3
    assert [o["passed"] for o in document["outputs"]] == [True, False]
    assert document["failed"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["fixtures/verify", "--seed", "3"], 2, "--seed with one argument"),
        (["fixtures/verify", "--atol", "1"], 2, "--atol with one argument"),
        (["fixtures/verify", "--from-checkpoint", "x"], 2, "--from-checkpoint with one argument"),
        (
            ["fixtures/verify", "--require", "most"],
            2,
            "--require most is unknown",
        ),
        (["fixtures/demo/checkpoint.pt"], 3, "is not a folder"),
        (["fixtures/nowhere"], 3, "no such folder"),
        (["fixtures/demo/checkpoint.pt", "x", "--report", "r.xml"], 2, "--report with two"),
        (["fixtures/verify", "--report", "r.pdf"], 2, "--report r.pdf"),
    ],
)
def test_wrong_usage_is_told(arguments, code, says):
    done = run(*arguments, cwd=ROOT)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_odd_names_are_spelled(dest):
    (dest / "graph.portable").rename(dest / "-o \n\x1b[31m é")
    done = run(dest)
    assert done.returncode == 0
    assert "\\n\\x1b[31m é" in done.stdout


def test_reports_have_every_output(dest, tmp_path):
    edit(dest / "weights.portable", lambda m: m.update(schema_version=2))
    paths = [tmp_path / f"r.{suffix}" for suffix in ("jsonl", "xml", "html")]
    asked = [word for path in paths for word in ("--report", path)]
    done = run(dest, "--require", "weights", *asked)
    assert done.returncode == 4, done.stderr
    lines = [json.loads(line) for line in paths[0].read_text().splitlines()]
    found = {line["name"]: line for line in lines if "name" in line}
    good, bad = found["graph.portable"], found["weights.portable"]
    assert (good["status"], good["error"], good["tensors"]) == ("done", None, 27)
    assert good["verification"]["reached"] == "weights"
    assert (bad["status"], bad["error"]["type"]) == ("failed", "UnsupportedError")
    assert 'failures="' in paths[1].read_text()
    assert "graph.portable" in paths[2].read_text()


def test_what_manifests_hold_in_place_of_objects_does_not_break_reports(dest, tmp_path):
    for key in ("source", "verification", "graph", "weights_digest", "environment", "left_out"):
        path = dest / "graph.portable/manifest.json"
        kept = path.read_text()
        edit(path.parent, lambda m, key=key: m.update({key: "text"}))
        done = run(dest, "--report", tmp_path / "r.jsonl", "--report", tmp_path / "r.html")
        assert done.returncode in (0, 1, 3), (key, done.stderr)
        assert "Traceback" not in done.stderr
        path.write_text(kept)
