"""GraphDefs and MetaGraphDefs, binary and text, against what TF 1.15 reads in them."""

import shutil

import pytest
from repository import FIXTURES
from tf_expected import read, stored

from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import SafetyFinding, TensorSpec
from formats.errors import ConvertError
from formats.onnx import files as onnx_files
from formats.tensorflow import checkpoint as tf_checkpoint
from formats.tensorflow import graphdef, savedmodel

HERE = FIXTURES / "tensorflow"


@pytest.mark.parametrize("name", ["frozen.pb", "frozen.pbtxt"])
def test_every_constant_is_what_tensorflow_reads(name):
    artifact = Artifact(HERE / name)
    assert catalog.detect(artifact).format.id == "graphdef"
    bundle = catalog.read(artifact)
    expected = stored(HERE / "frozen.expected.npz")
    assert {f"const/{k}": v for k, v in read(bundle, "name").items()} == expected
    assert bundle.metadata.tensor_notes == {"typed_quint8": {"dtype": "quint8"}}


def test_devices_findings_and_inputs():
    bundle = catalog.read(Artifact(HERE / "frozen.pb"))
    assert bundle.metadata.devices == {"/device:GPU:3": 1}
    assert bundle.metadata.findings == (
        SafetyFinding("py-func", "PyFunc", "script"),
        SafetyFinding("file-op", "ReadFile", "file"),
    )
    (signature,) = bundle.signatures
    assert signature.inputs == (TensorSpec("x", "float32", ("unk__0", 4)),)
    assert bundle.topology.summary["ops"]["Const"] == 24


def test_a_meta_graph_alone_names_its_variables(tmp_path):
    shutil.copy(HERE / "v2_named" / "model.ckpt-1.meta", tmp_path / "graph.meta")
    bundle = catalog.read(Artifact(tmp_path / "graph.meta"))
    assert bundle.metadata.variant == "MetaGraphDef, binary, with variables"
    assert "dense/kernel" in {x.name for x in bundle.metadata.left_out}
    assert bundle.metadata.recorded["tensorflow_version"] == "1.15.5"


FILES = {
    "tensorflow/frozen.pb": "graphdef",
    "tensorflow/frozen.pbtxt": "graphdef",
    "tensorflow/v2_named/model.ckpt-1.meta": "graphdef",
    "tensorflow/module_tf2/saved_model.pb": "savedmodel",
    "tensorflow/text_savedmodel/saved_model.pbtxt": "savedmodel",
    "tensorflow/multi_tags/saved_model.pb": "savedmodel",
    "onnx/dtypes.onnx": "onnx",
    "onnx/structures.onnx": "onnx",
    "tensorflow/v1_single/model.ckpt-1": "tf-checkpoint",
    "tensorflow/keras2_sequential/keras_metadata.pb": None,
    "tensorflow/v2_named/checkpoint": None,
}
SNIFFERS = {
    "graphdef": graphdef,
    "savedmodel": savedmodel,
    "onnx": onnx_files,
    "tf-checkpoint": tf_checkpoint,
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_told_apart_by_content_alone(name, tmp_path):
    path = tmp_path / "file"
    shutil.copy(FIXTURES / name, path)
    claims = [kind for kind, module in SNIFFERS.items() if module.sniff(Artifact(path))]
    assert claims == ([FILES[name]] if FILES[name] else [])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x0a",
        b"\x0a\x00",
        b"\x08\x01",
        b"\x12\x00",
        b"node",
        b"\x08\x01" * 100,
        b"\x0a\x05hello\x12\x05world",
        bytes(range(256)) * 40,
        b"\x18\x00\x00\x00TFL3" + bytes(100),
        b"\x12\x02\x0a\x00",
        b"\x0a\x04\x0a\x02\x10\x01" * 50,
        b"\xff" * 5000,
    ],
)
def test_foreign_bytes_are_claimed_by_nobody(content, tmp_path):
    path = tmp_path / "file.pb"
    path.write_bytes(content)
    for module in SNIFFERS.values():
        assert module.sniff(Artifact(path)) is None


def test_a_constant_without_a_value_is_named(tmp_path):
    path = tmp_path / "trimmed.pbtxt"
    path.write_text('node { name: "a" op: "Const" } node { name: "b" op: "Identity" input: "a" }')
    bundle = catalog.read(Artifact(path))
    assert [x.name for x in bundle.metadata.left_out] == ["a"]


def test_truncation_everywhere_is_our_error(tmp_path):
    data = (HERE / "frozen.pb").read_bytes()
    path = tmp_path / "cut.pb"
    read_whole = 0
    for end in range(0, len(data), 7):
        path.write_bytes(data[:end])
        try:
            bundle = graphdef.read(Artifact(path))
            for tensor in bundle.weights.values():
                tensor.tobytes()
            read_whole += 1
        except ConvertError:
            pass
    assert read_whole < 40  # only where a node ends
