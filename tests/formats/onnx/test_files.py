"""ONNX models of every way to hold a tensor, against what the onnx package reads in them."""

import shutil

import pytest
from repository import FIXTURES
from tf_expected import read, stored

from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import SafetyFinding, TensorSpec
from formats.errors import (
    ConvertError,
    CorruptError,
    LimitError,
    SafetyError,
    SourceError,
    UnsupportedError,
)
from formats.onnx import files as onnx_files

HERE = FIXTURES / "onnx"


def opened(path):
    artifact = Artifact(HERE / path)
    assert catalog.detect(artifact).format.id == "onnx"
    return catalog.read(artifact)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("dtypes.onnx", "dtypes"),
        ("external_one/model.onnx", "external_one"),
        ("external_many/model.onnx", "external_many"),
        ("external_many", "external_many"),
    ],
)
def test_every_initialiser_is_what_onnx_reads(path, name):
    assert read(opened(path), "name") == stored(HERE / f"{name}.expected.npz")


def test_tensors_of_nodes_subgraphs_functions_and_sparse_ones():
    bundle = opened("structures.onnx")
    found = read(bundle, "name")
    assert found.pop("momentum")[1] == (4,)
    assert found == stored(HERE / "structures.expected.npz")
    assert list(bundle.leftovers["training"]) == ["momentum"]
    linear = bundle.encodings["linear"]
    assert (linear.kind, linear.shape, linear.parameters) == (
        "sparse_coo", (3, 3), {"indices": "linear"},
    )  # fmt: skip
    assert bundle.encodings["pairs"].parameters == {"indices": "coordinates"}


def test_what_the_model_says_of_itself():
    bundle = opened("structures.onnx")
    (signature,) = bundle.signatures
    assert signature.inputs == (
        TensorSpec("x", "float32", ("batch", "unk__0", 2)),
        TensorSpec("flag", "bool", ()),
    )
    assert signature.outputs == (
        TensorSpec("z", "float32", None),
        TensorSpec("s", "sequence(float32)", None),
    )
    assert bundle.metadata.user == {"author": "fixtures", "labels": "[1, 2]"}
    assert bundle.metadata.recorded["opset_import"] == "ai.onnx 21, local 1"
    assert bundle.metadata.findings == (SafetyFinding("py-func", "PyOp", "p"),)
    assert bundle.topology.summary["functions"] == 1
    assert bundle.topology.summary["subgraphs"] == 2


def test_large_weights_stay_in_their_file():
    bundle = opened("external_one/model.onnx")
    extent = bundle.weights["w1"].extent()
    assert extent.storage.path.name == "model.onnx_data"
    assert extent.length == 1600
    assert opened("dtypes.onnx").weights["raw_float32"].extent() is not None
    assert opened("dtypes.onnx").weights["typed_float32"].extent() is not None


def model(tmp_path, change):
    """Write a model that the onnx package builds, changed."""
    onnx = pytest.importorskip("onnx")
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[2], raw_data=bytes(8))
    graph = onnx.helper.make_graph([], "g", [], [], [tensor])
    proto = onnx.helper.make_model(graph)
    change(proto.graph.initializer[0])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return Artifact(path)


def external(location, **numbers):
    def change(tensor):
        tensor.ClearField("raw_data")
        tensor.data_location = 1
        for key, value in {"location": location, **numbers}.items():
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)

    return change


@pytest.mark.parametrize("location", ["../w", "/etc/passwd", "a/../../w", "link", "C:\\w", ".."])
def test_external_data_may_not_lead_out(location, tmp_path):
    (tmp_path / "w").write_bytes(bytes(8))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "w")
    with pytest.raises(SafetyError):
        onnx_files.read(model(folder, external(location)))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (external("nowhere"), SourceError),
        (external("w", offset=4), CorruptError),
        (external("w", offset=-1), CorruptError),
        (external("w", length=4), CorruptError),
        (external("w", offset="9" * 5000), CorruptError),
        (external(""), UnsupportedError),
        (external("*/_ORT_MEM_ADDR_/*"), UnsupportedError),
        (lambda t: t.dims.append(3), CorruptError),
        (lambda t: t.dims.append(-1), CorruptError),
        (lambda t: t.dims.extend([1 << 40] * 3), CorruptError),
        (lambda t: t.dims.extend([1] * 100), CorruptError),
        (lambda t: setattr(t, "data_type", 99), UnsupportedError),
        (lambda t: setattr(t, "data_type", 8), CorruptError),
        (lambda t: t.ClearField("raw_data"), CorruptError),
    ],
)
def test_lies_are_our_errors(change, error, tmp_path):
    (tmp_path / "w").write_bytes(bytes(8))
    with pytest.raises(error):
        onnx_files.read(model(tmp_path, change))


def test_truncation_everywhere_is_our_error(tmp_path):
    data = (HERE / "structures.onnx").read_bytes()
    path = tmp_path / "cut.onnx"
    for end in range(len(data)):
        path.write_bytes(data[:end])
        artifact = Artifact(path)
        onnx_files.sniff(artifact)
        try:
            for tensor in onnx_files.read(artifact).weights.values():
                tensor.tobytes()
        except ConvertError:
            continue


def test_deep_nesting_is_a_limit(tmp_path):
    def field(number, content):
        return bytes([number << 3 | 2]) + wire(len(content)) + content

    def wire(n):
        return bytes([n & 127 | 128]) + wire(n >> 7) if n > 127 else bytes([n])

    graph = b""
    for _ in range(90):
        attribute = field(1, b"then_branch") + field(6, graph)
        graph = field(1, field(2, b"o") + field(4, b"If") + field(5, attribute))
    path = tmp_path / "deep.onnx"
    path.write_bytes(b"\x08\x08" + field(7, graph))
    with pytest.raises(LimitError, match="deeper"):
        onnx_files.read(Artifact(path))


def test_text_protobufs_are_read_and_other_text_is_not(tmp_path):
    onnx = pytest.importorskip("onnx")
    from google.protobuf import text_format

    proto = onnx.load(HERE / "dtypes.onnx")
    path = tmp_path / "m.txt"
    path.write_text(text_format.MessageToString(proto))
    bundle = catalog.read(Artifact(path))
    assert read(bundle, "name") == stored(HERE / "dtypes.expected.npz")
    for text in (
        "< ir_version: 7 > g (float x) => (float y) {}",
        '{"irVersion": "7", "graph": {}}',
    ):
        path.write_text(text)
        with pytest.raises(UnsupportedError, match="written as text"):
            catalog.read(Artifact(path))


def test_a_folder_of_two_models_is_none(tmp_path):
    for name in ("a.onnx", "b.onnx"):
        shutil.copy(HERE / "dtypes.onnx", tmp_path / name)
    assert onnx_files.sniff(Artifact(tmp_path)) is None
