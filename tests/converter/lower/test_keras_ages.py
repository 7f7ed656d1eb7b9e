"""Files of every age of Keras: our graph gives what the Keras that wrote them gave."""

import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import onnx_run
import pytest
from repository import ROOT

import converter
from converter.lower.keras.behaviour_notes import since
from converter.lower.keras.lowering import lower, model_of
from converter.lower.keras.model import parse
from converter.write.keras.config_values import activation
from formats.errors import UnsupportedError

FIXTURES = ROOT / "fixtures" / "keras"
# With the Keras that computed the outputs: the one that saved the file, but for tf.keras.
FILES = [
    ("keras1_theano_sequential.h5", "keras 1.2.2 on theano"),
    ("keras2_multi_gpu.h5", "keras 2.2.4 on tensorflow"),
    ("keras2_nested.h5", "keras 2.2.4 on tensorflow"),
    ("keras2_recurrent.h5", "keras 2.2.4 on tensorflow"),
    ("tfkeras24_functional.h5", "tf_keras 2.21.0 on tensorflow"),
    ("tfkeras212_functional.h5", "tf_keras 2.21.0 on tensorflow"),
    ("keras30_functional.keras", "keras 3.0.5 on tensorflow"),
    ("keras30_sequential.keras", "keras 3.0.5 on tensorflow"),
    ("keras30_sequential.h5", "keras 3.0.5 on tensorflow"),
    ("keras30_nested.h5", "keras 3.0.5 on tensorflow"),
    ("keras315_functional.keras", "keras 3.15.1 on tensorflow"),
    ("keras315_functional.h5", "keras 3.15.1 on tensorflow"),
    ("keras315_sequential.keras", "keras 3.15.1 on tensorflow"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "by"), FILES, ids=[name for name, _ in FILES])
def test_the_graph_computes_what_its_own_keras_computed(tmp_path, name, by):
    source = FIXTURES / name
    with np.load(source.with_name(f"{source.stem}.outputs.npz")) as archive:
        stored = dict(archive)
    assert str(stored["by"]) == by
    bundle = converter.read(source)
    given = [stored[key] for key in stored if key.startswith("in")]
    found = onnx_run.run(lower(bundle), *given, weights=bundle.weights)
    expected = [stored[key] for key in stored if key.startswith("out")]
    assert len(found) == len(expected) > 0
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        scale = np.abs(theirs[np.isfinite(theirs)]).max()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-5 * scale, equal_nan=True)


def test_replicas_of_one_model_are_that_model():
    model = model_of(converter.read(FIXTURES / "keras2_multi_gpu.h5"))
    assert {layer.class_name for layer in model.layers.values()} == {
        "InputLayer", "Sequential", "Identity",
    }  # fmt: skip
    assert [len(layer.calls) for layer in model.layers.values() if layer.model] == [1]


@pytest.mark.parametrize(
    ("name", "op_type", "number"),
    [("keras1_theano_functional.h5", "Mul", 2), ("keras2_sequential.h5", "Add", 1)],
)
def test_code_of_old_pythons_is_read(name, op_type, number):
    """``lambda t: t * 2`` of Python 3.6, ``lambda t: t + 1`` of 3.7; neither loads in another."""
    graph = lower(converter.read(FIXTURES / name))
    last = graph.nodes[-2]  # before the output's name
    assert last.op_type == op_type
    assert graph.initializers[last.inputs[1]] == number
    assert ["its code was read, not run" in note for note in graph.notes] == [True]


def test_unrecorded_theano_is_told_by_the_names_of_its_weights():
    """Its convolutions turn kernels around; Keras 1 on TensorFlow writes the same otherwise."""
    bundle = converter.read(FIXTURES / "keras1_theano_sequential.h5")
    assert "backend" not in bundle.metadata.recorded
    assert model_of(bundle).layers["conv"].config["flipped"]


def test_functions_of_tensorflow_go_by_their_names_inside(tmp_path):
    """Keras before 2.13 calls tf.nn.log_softmax ``log_softmax_v2``, and reads it so."""
    source = tmp_path / "model.keras"
    with zipfile.ZipFile(FIXTURES.parent / "keras_layers" / "activations.zip") as archive:
        source.write_bytes(archive.read("function-log_softmax.keras.keras"))
    bundle = converter.read(source)
    assert bundle.topology is not None
    named = json.loads(json.dumps(bundle.topology.content).replace("log_softmax", "log_softmax_v2"))
    graph = lower(replace(bundle, topology=replace(bundle.topology, content=named)))
    assert [node.op_type for node in graph.nodes if node.op_type != "Identity"] == ["LogSoftmax"]
    assert activation("log_softmax_v2", None) == "log_softmax"


@pytest.mark.parametrize(
    ("version", "said"), [("3.0.5", True), ("3.3.3", True), ("3.4.1", False), ("2.15.0", False)]
)
def test_what_keras_3_changed_since_is_said(tmp_path, version, said):
    source = tmp_path / "model.keras"
    with zipfile.ZipFile(FIXTURES.parent / "keras_layers" / "models_masks.zip") as archive:
        name = next(
            n for n in archive.namelist()
            if n.endswith(".keras") and b'"Add"' in _config(archive.read(n))
            and b'"Embedding"' in _config(archive.read(n))
        )  # fmt: skip
        source.write_bytes(archive.read(name))
    bundle = converter.read(source)
    recorded = {**bundle.metadata.recorded, "keras_version": version}
    old = replace(bundle, metadata=replace(bundle.metadata, recorded=recorded))
    notes = [note for note in lower(old).notes if note.startswith("Add ")]
    assert [f"of Keras {version} joined the masks" in note for note in notes] == [True] * said


@pytest.mark.parametrize(
    ("version", "said"), [("2.4.0", True), ("2.9.0", True), ("2.10.0", False), ("3.0.5", False)]
)
def test_attention_once_heeded_no_masks(version, said):
    parts = [("Embedding", {"mask_zero": True}), ("MultiHeadAttention", {"num_heads": 2})]
    layers = [{"class_name": kind, "config": {"name": kind, **more}} for kind, more in parts]
    model = parse({"class_name": "Sequential", "config": {"name": "m", "layers": layers}})
    assert len(list(since(model, version))) == said
    layers[0]["config"]["mask_zero"] = False
    model = parse({"class_name": "Sequential", "config": {"name": "m", "layers": layers}})
    assert not list(since(model, version))


def _config(data):
    with zipfile.ZipFile(io.BytesIO(data)) as inner:
        return inner.read("config.json")


def test_padding_that_theano_alone_has_is_a_gap(tmp_path):
    """The same model of TensorFlow is a row; its windows of two Theano pads on both sides."""
    source = tmp_path / "model.h5"
    with zipfile.ZipFile(FIXTURES.parent / "keras_layers" / "keras1_tensorflow.zip") as archive:
        source.write_bytes(archive.read("pooling2d-th.keras1.h5"))
    bundle = converter.read(source)
    recorded = {**bundle.metadata.recorded, "backend": "theano"}
    moved = replace(bundle, metadata=replace(bundle.metadata, recorded=recorded))
    with pytest.raises(UnsupportedError, match="AveragePooling2D padded by Theano"):
        lower(moved)
