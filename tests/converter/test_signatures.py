"""One graph for each signature of a SavedModel: files, what is left out, what is said of state."""

import json
import zipfile

import jsonschema
import numpy as np
import onnx_run
import pytest
from repository import ROOT

import converter
from converter.graphs import lower_signature as lower
from converter.lower.graph import Graph
from converter.lower.graph_equality import equality_key
from converter.options import Options
from converter.write.graph_files import file_names
from formats.errors import UnsupportedError, UsageError

MODELS = ROOT / "fixtures" / "verify_tensorflow"
HEADS, COUNTER = MODELS / "heads", MODELS / "counter"
NOT_RUN = Options(verify="weights")


def computed(path, **inputs):
    return onnx_run.run_named(path, inputs)


@pytest.fixture
def given():
    rng = np.random.default_rng(5)
    return {n: rng.standard_normal((3, 6)).astype("f4") for n in ("zeta", "alpha")}


def test_each_signature_has_a_file_and_those_that_are_alike_one(tmp_path, given):
    out = tmp_path / "heads"
    result = converter.convert(HEADS, to="onnx", out=out, options=NOT_RUN)
    signatures = {s.name for s in result.bundle.signatures if s.outputs}
    files = {p.name for p in out.iterdir()}
    left = {x.name for x in result.bundle.metadata.left_out}
    assert len(files) + sum(f"signature {s}" in left for s in signatures) == len(signatures)
    assert "model.onnx" in files
    bundle = converter.read(HEADS)
    kernel, bias = (bundle.weights[n].numpy() for n in ("kernel", "bias"))
    found = computed(out / "model.onnx", **given)
    mixed = np.tanh(given["zeta"] @ kernel + bias)
    np.testing.assert_allclose(found["far"], given["alpha"] @ kernel - mixed, rtol=1e-5, atol=1e-5)


def test_one_file_holds_the_default_signature_and_the_others_are_named(tmp_path):
    result = converter.convert(HEADS, to="onnx", out=tmp_path / "heads.onnx", options=NOT_RUN)
    assert result.path.is_file()
    left = {x.name: x.reason for x in result.bundle.metadata.left_out}
    named = [name for name in left if name.startswith("signature ")]
    assert len(named) == len([s for s in result.bundle.signatures if s.outputs]) - 1
    assert "signatures=" in left[named[0]]


def test_a_signature_can_be_asked_for(tmp_path):
    out = tmp_path / "one.onnx"
    options = Options(verify="weights", signatures=("kept",))
    converter.convert(HEADS, to="onnx", out=out, options=options)
    bias = converter.read(HEADS).weights["bias"].numpy()
    np.testing.assert_array_equal(computed(out)["bias"], bias)


def test_two_signatures_in_one_file_are_wrong_usage(tmp_path):
    options = Options(signatures=("kept", "serving_default"))
    with pytest.raises(UsageError, match="one file"):
        converter.convert(HEADS, to="onnx", out=tmp_path / "one.onnx", options=options)


def test_a_signature_that_is_not_there_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match="kept"):
        converter.convert(
            HEADS, to="onnx", out=tmp_path / "x", options=Options(signatures=("missing",))
        )
    assert not (tmp_path / "x").exists()


def test_a_bundle_describes_every_graph(tmp_path, given):
    out = tmp_path / "heads.portable"
    converter.convert(HEADS, out=out, options=NOT_RUN)
    manifest = json.loads((out / "manifest.json").read_text())
    schema = json.loads((ROOT / "formats" / "manifest.schema.json").read_text())
    jsonschema.validate(manifest, schema)
    described = [manifest["graph"], *manifest["graphs"]]
    assert {g["file"] for g in described} == {p.name for p in out.glob("*.onnx")}
    for graph in described:
        names = [i["name"] for i in graph["inputs"]]
        found = computed(out / graph["file"], **{n: given[n] for n in names})
        assert [*found] == [o["name"] for o in graph["outputs"]]
        assert graph["signature"] in {s.name for s in converter.read(HEADS).signatures}


def test_state_that_changes_is_said_to_be_left_out(tmp_path):
    result = converter.convert(COUNTER, to="onnx", out=tmp_path / "c.onnx", options=NOT_RUN)
    changes = {n.name: n.detail for n in result.bundle.metadata.normalisations}
    assert "no state" in changes["assignments to variables left out"]
    x = np.array([[1.5, -2.0, 0.25]], "f4")
    np.testing.assert_array_equal(computed(tmp_path / "c.onnx", x=x)["y"], x + 1)


def test_what_tensorflow_alone_can_do_is_named_and_nothing_is_written(tmp_path):
    source = ROOT / "fixtures" / "tensorflow" / "frozen.pb"
    with pytest.raises(UnsupportedError, match="PyFunc"):
        converter.convert(source, to="onnx", out=tmp_path / "f.onnx")
    assert not list(tmp_path.iterdir())


def test_graphs_are_alike_whatever_their_values_are_called():
    bundle = converter.read(HEADS)
    first, again = (lower(bundle, signature="serving_default") for _ in range(2))
    other = lower(bundle, signature="kept")
    assert equality_key(first) == equality_key(again)
    assert equality_key(first) != equality_key(other)
    again.nodes[0].op_type = "Other"
    assert equality_key(first) != equality_key(again)


def test_the_graph_says_which_tensors_of_the_source_it_is_of():
    graph = lower(converter.read(HEADS), signature="serving_default")
    assert graph.signature == "serving_default"
    assert set(graph.sources) == {*graph.inputs, *graph.outputs}
    assert all(":" in tensor for tensor in graph.sources.values())


def test_the_same_model_gives_the_same_bytes():
    bundle = converter.read(HEADS)
    assert len({onnx_run.onnx_bytes(lower(bundle), bundle.weights) for _ in range(2)}) == 1


def test_newer_operators_are_taken_where_a_model_needs_them(tmp_path):
    with zipfile.ZipFile(ROOT / "fixtures" / "tensorflow" / "multi_gpu.zip") as archive:
        for member in archive.namelist():
            if member.startswith("explicit/"):
                archive.extract(member, tmp_path)
    source = tmp_path / "explicit"
    result = converter.convert(source, to="onnx", out=tmp_path / "x.onnx", options=NOT_RUN)
    assert any("opset 20" in step.text for step in result.steps)
    options = Options(verify="weights", opset=18)
    with pytest.raises(UnsupportedError, match="opset=20"):
        converter.convert(source, to="onnx", out=tmp_path / "y.onnx", options=options)


def test_files_are_called_as_their_signatures_as_far_as_files_can_be():
    wanted = ["default", "tensorflow/serving/regress", "предсказать/a", "a b", "a/b", "n" * 500]
    files = file_names([Graph("g", 18, signature=name) for name in wanted])
    assert files[:4] == [
        "model.onnx", "model.tensorflow_serving_regress.onnx", "model.предсказать_a.onnx",
        "model.a_b.onnx",
    ]  # fmt: skip
    assert files[4] == "model.a_b_2.onnx"
    assert len(files[5]) < 100
