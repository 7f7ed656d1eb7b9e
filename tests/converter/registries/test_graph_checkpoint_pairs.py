"""A graph without its values and the checkpoint beside it that has them are one artifact."""

import json
import os
import shutil
from pathlib import Path

import pytest
from repository import ROOT

from converter.batch import driver
from converter.batch.driver import Finished, Planned
from converter.batch.request import Request
from converter.options import Options
from converter.registries import graph_checkpoint_pairs
from converter.registries.catalog import open_registry
from converter.registries.entry import Entry
from converter.registries.filters import Filters

JOINED = ROOT / "fixtures/tensorflow/joined"
STATE = b'model_checkpoint_path: "model.ckpt"\n'


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "registry"
    path.mkdir()
    return path


def put(folder, name, like=None):
    """Put a graph, or a checkpoint under a prefix."""
    found = [p for p in JOINED.iterdir() if p.name.partition(".")[0] == (like or name)]
    if "." in (like or ""):
        shutil.copy(JOINED / like, folder / name)
    else:
        for path in found:
            if path.suffix not in (".pb", ".pbtxt", ".meta"):
                shutil.copy(path, folder / (name + path.name[path.name.index(".") :]))


def look(folder, filters=None):
    found = list(open_registry(str(folder), filters or Filters()).find())
    entries = {e.name: Path(e.checkpoint).name for e in found if isinstance(e, Entry)}
    return entries, {Path(s.source).name: s.reason for s in found if not isinstance(s, Entry)}


def run(folder, tmp_path, out="out", **more):
    options = Options(verify="weights")
    request = Request((str(folder),), str(tmp_path / out), options, engine="inline", **more)
    events = list(driver.run(request))
    (plan,) = (e.plan for e in events if isinstance(e, Planned))
    return plan, {e.outcome.name: e.outcome for e in events if isinstance(e, Finished)}


@pytest.mark.parametrize("checkpoint", ["named", "objects"])
@pytest.mark.parametrize("graph", ["graph.pb", "graph.pbtxt"])
def test_one_graph_and_its_checkpoint_are_converted_as_by_hand(folder, tmp_path, graph, checkpoint):
    import converter

    put(folder, graph, like=graph)
    put(folder, "model.ckpt", like=checkpoint)
    (folder / "checkpoint").write_bytes(STATE)
    assert look(folder) == ({graph: "model.ckpt"}, {})
    plan, outcomes = run(folder, tmp_path)
    assert plan.formats == {"graphdef": 1}
    assert {n: o.status for n, o in outcomes.items()} == {"graph.portable": "done"}
    by_hand = tmp_path / "by-hand.portable"
    options = Options(verify="weights", checkpoint=folder / "model.ckpt")
    converter.convert(folder / graph, to="portable", out=by_hand, options=options)
    made = tmp_path / "out/graph.portable"
    for name in ("model.onnx", "model.safetensors"):
        assert (made / name).read_bytes() == (by_hand / name).read_bytes()
    assert json.loads((made / "manifest.json").read_text())["source"]["files"] == 3


def test_whatever_of_it_changes_it_is_done_again(folder, tmp_path):
    put(folder, "graph.pb", like="graph.pb")
    put(folder, "model.ckpt", like="named")
    run(folder, tmp_path)
    assert run(folder, tmp_path)[1] == {}
    data = folder / "model.ckpt.data-00000-of-00001"
    os.utime(data, (1, 1))
    assert [o.status for o in run(folder, tmp_path)[1].values()] == ["unchanged"]
    content = bytearray(data.read_bytes())
    content[3] ^= 1
    data.write_bytes(content)
    _, outcomes = run(folder, tmp_path)
    assert [o.status for o in outcomes.values()] != ["unchanged"]
    folder.rename(tmp_path / "elsewhere")
    put(tmp_path / "elsewhere", "model.ckpt", like="named")
    assert [o.status for o in run(tmp_path / "elsewhere", tmp_path)[1].values()] == ["done"]


@pytest.mark.parametrize(
    ("checkpoint", "why"),
    [
        ("other", "has 'dense/kernel' as 4 x 2, not as 4 x 3"),
        ("twins", "has 2 values that 'dense/kernel' may mean"),
        ("named", "has no value of 'dense/bics'"),
    ],
)
def test_what_does_not_fit_is_converted_apart_and_says_why(folder, tmp_path, checkpoint, why):
    graph = (JOINED / "graph.pb").read_bytes()
    renamed = graph.replace(b"dense/bias", b"dense/bics")
    (folder / "graph.pb").write_bytes(renamed if checkpoint == "named" else graph)
    put(folder, "model.ckpt", like=checkpoint)
    assert look(folder) == ({"graph.pb": "", "model.ckpt": ""}, {})
    _, outcomes = run(folder, tmp_path)
    warnings = outcomes["graph.portable"].record.warnings
    assert warnings == (f"no checkpoint beside it fits: model.ckpt {why}",)
    assert {o.status for o in outcomes.values()} == {"done"}


@pytest.mark.parametrize(
    ("put_more", "reason"),
    [
        (lambda f: put(f, "ckpt-2", like="objects"), graph_checkpoint_pairs.SEVERAL),
        (
            lambda f: shutil.copy(f / "graph.pb", f / "model.ckpt.meta"),
            graph_checkpoint_pairs.OWN_GRAPH,
        ),
        (lambda f: put(f, "graph.pbtxt", like="graph.pbtxt"), graph_checkpoint_pairs.OTHERS),
    ],
)
def test_where_it_is_not_the_only_one_it_is_not_guessed(folder, put_more, reason):
    put(folder, "graph.pb", like="graph.pb")
    put(folder, "model.ckpt", like="named")
    put_more(folder)
    entries, skipped = look(folder)
    assert skipped["graph.pb"] == reason
    assert set(entries.values()) == {""}
    assert "model.ckpt" in entries


def test_two_graphs_with_a_checkpoint_each(folder):
    put(folder, "graph.pb", like="graph.pb")
    put(folder, "model.ckpt", like="named")
    graph = (folder / "graph.pb").read_bytes()
    for before in (b"\x08\x04", b"\x08\x05", b":\x04"):  # TensorShapeProto: the last size, 3
        graph = graph.replace(before + b"\x12\x02\x08\x03", before + b"\x12\x02\x08\x02")
    (folder / "second.pb").write_bytes(graph)
    put(folder, "values", like="other")
    assert look(folder)[0] == {"graph.pb": "model.ckpt", "second.pb": "values"}


def test_what_is_not_wanted_is_not_joined(folder):
    put(folder, "graph.pb", like="graph.pb")
    put(folder, "model.ckpt", like="named")
    assert look(folder, Filters(exclude=("*.pb",)))[0] == {"model.ckpt": ""}
    assert look(folder, Filters(include=("model.ckpt*",)))[0] == {"graph.pb": "model.ckpt"}
    assert look(folder / "graph.pb")[0] == {"graph.pb": "model.ckpt"}
    assert look(folder / "model.ckpt")[0] == {"model.ckpt": ""}
    before = [e.token for e in open_registry(str(folder / "model.ckpt"), Filters()).find()]
    os.utime(folder / "model.ckpt.index", (1, 1))
    assert [e.token for e in open_registry(str(folder / "model.ckpt"), Filters()).find()] != before


@pytest.mark.parametrize("harm", ["index", "graph", "empty"])
def test_what_is_damaged_is_named_apart(folder, harm):
    put(folder, "graph.pb", like="graph.pb")
    put(folder, "model.ckpt", like="named")
    path = folder / ("model.ckpt.index" if harm == "index" else "graph.pb")
    path.write_bytes(b"" if harm == "empty" else path.read_bytes()[:-20])
    entries, skipped = look(folder)
    assert set(entries) | set(skipped) >= {"graph.pb", "model.ckpt"}
    assert set(entries.values()) == {""}


def test_from_a_store(folder, tmp_path, monkeypatch):
    from stored_files import opened

    put(folder, "graph.pb", like="graph.pb")
    put(folder, "model.ckpt", like="named")
    with opened(monkeypatch) as files:
        files.load(folder, "b/in")
        request = Request(
            ("s3://b/in",), str(tmp_path / "far"), Options(verify="weights"), engine="inline"
        )
        events = list(driver.run(request))
        (plan,) = (e.plan for e in events if isinstance(e, Planned))
        assert [(j.source, j.checkpoint) for j in plan.todo] == [
            ("s3://b/in/graph.pb", "s3://b/in/model.ckpt")
        ]
        (outcome,) = (e.outcome for e in events if isinstance(e, Finished))
        assert outcome.status == "done", outcome.record.error
    run(folder, tmp_path)
    for name in ("model.onnx", "model.safetensors"):
        far, near = (tmp_path / place / "graph.portable" / name for place in ("far", "out"))
        assert far.read_bytes() == near.read_bytes()
