""".keras archives, against the variables of the Keras that wrote them."""

import json
import zipfile

import numpy as np
import pytest
from repository import ROOT

from formats import catalog
from formats.artifact import Artifact
from formats.errors import ConvertError, CorruptError, UnsupportedError
from formats.keras.v3 import read, sniff

FIXTURES = ROOT / "fixtures" / "keras"
MODELS = {
    "keras30_functional.keras": "keras30_functional",
    "keras30_sequential.keras": "keras30_sequential",
    "keras315_functional.keras": "keras315_functional",
    "keras315_sequential.keras": "keras315_sequential",
    "keras315_sequential_deflated.keras": "keras315_sequential",
    "keras315_sequential_in_folder.keras": "keras315_sequential",
    "keras315_sequential_folder": "keras315_sequential",
    "keras315_dtypes.keras": "keras315_dtypes",
    "keras315_assets.keras": "keras315_assets",
    "keras315_lambda.keras": "keras315_lambda",
}


def bundle_of(name):
    return catalog.read(Artifact(FIXTURES / name))


@pytest.mark.parametrize("name", MODELS)
def test_names_and_values_are_those_of_keras(name):
    """Each name is Keras's own path of the variable, but for the models in front."""
    bundle, expected = bundle_of(name), np.load(FIXTURES / f"{MODELS[name]}.expected.npz")
    assert bundle.metadata.format == "keras"
    left = {k for k in expected.files if "|" not in k}
    for own, tensor in bundle.weights.items():
        (key,) = [k for k in left if k == own or k.endswith(f"/{own}")]
        left.remove(key)
        array = expected[key]
        assert tensor.shape == array.shape
        assert tensor.tobytes() == array.tobytes(), own
        wanted = "bfloat16" if array.dtype == np.uint16 else array.dtype.name
        assert tensor.dtype.name == wanted
    assert not left
    optimizer = [expected[k].tobytes() for k in expected.files if k.startswith("optimizer|")]
    assert [t.tobytes() for t in bundle.leftovers.get("optimizer", {}).values()] == optimizer


def test_what_is_recorded():
    bundle = bundle_of("keras315_functional.keras")
    assert bundle.metadata.recorded["keras_version"] == "3.15.1"
    assert set(bundle.metadata.recorded) == {"keras_version", "date_saved"}
    assert bundle.metadata.variant == "archive of Keras 3.15.1"
    assert not bundle.metadata.devices
    assert bundle.metadata.user["training_config"]["loss"] == "mse"
    (signature,) = bundle.signatures
    assert (signature.inputs[0].name, signature.inputs[0].shape) == ("x", ("batch", 6, 4))
    assert [o.name for o in signature.outputs] == ["realast"]
    assert bundle.topology.kind == "keras_config"


def test_order_is_that_of_the_layers():
    names = list(bundle_of("keras315_sequential.keras").weights)
    assert names[0] == "conv2d/kernel"
    assert names[-2:] == ["dense_1/kernel", "dense_1/bias"]


def test_custom_layers_keep_numbers_below_their_names():
    bundle = bundle_of("keras315_subclassed.keras")
    expected = np.load(FIXTURES / "keras315_subclassed.expected.npz")
    assert sorted(t.tobytes() for t in bundle.weights.values()) == sorted(
        expected[k].tobytes() for k in expected.files
    )
    assert {"block/0", "block/dense/0", "block/dense_1/1", "dense_2/0"} <= set(bundle.weights)
    assert [(f.kind, f.subject) for f in bundle.metadata.findings] == [
        ("custom-object", "mine>Subclassed")
    ]


def test_lambdas_are_findings_and_stay_closed():
    (finding,) = bundle_of("keras315_lambda.keras").metadata.findings
    assert (finding.kind, finding.subject) == ("lambda-bytecode", "layer 'lambda'")


def test_assets():
    (item,) = bundle_of("keras315_assets.keras").assets.items()
    assert item[0] == "layers/string_lookup/vocabulary.txt"
    assert item[1].read() == b"[UNK]\nb\na"


def test_tf_keras_2_12():
    bundle = bundle_of("tfkeras212_archive.keras")
    expected = np.load(FIXTURES / "tfkeras212_archive.expected.npz")
    by_name = {k.partition("|")[2].removesuffix(":0"): expected[k] for k in expected.files}
    assert {n: t.tobytes() for n, t in bundle.weights.items()} == {
        n: a.tobytes() for n, a in by_name.items()
    }


def test_hdf5_inside_is_left_to_the_other_reader(tmp_path):
    path = tmp_path / "m.keras"
    path.write_bytes((FIXTURES / "keras2_nested.h5").read_bytes())
    assert sniff(Artifact(path)) is None
    assert catalog.detect(Artifact(path)).format.id == "keras-h5"


def write(path, **members):
    with zipfile.ZipFile(path, "w") as z:
        for name, data in members.items():
            z.writestr(name.replace("__", "."), data)
    return path


CONFIG = json.dumps({"class_name": "Sequential", "config": {"layers": []}})


def test_bad_archives(tmp_path):
    metadata = '{"keras_version": "3.0.0"}'
    path = write(tmp_path / "a.keras", config__json=CONFIG, metadata__json=metadata)
    assert sniff(Artifact(path))
    with pytest.raises(CorruptError, match=r"no model\.weights\.h5"):
        read(Artifact(path))
    path = write(tmp_path / "b.keras", config__json="{", metadata__json="{}")
    with pytest.raises(CorruptError, match="JSON"):
        read(Artifact(path))
    path = write(
        tmp_path / "c.keras", config__json=CONFIG, metadata__json="{}", model__weights__h5=b"no"
    )
    with pytest.raises(CorruptError, match="no HDF5"):
        read(Artifact(path))
    path = write(
        tmp_path / "d.keras", config__json=CONFIG, metadata__json="{}", model__weights__npz=b"PK"
    )
    with pytest.raises(UnsupportedError, match="npz"):
        read(Artifact(path))
    assert sniff(Artifact(write(tmp_path / "e.zip", config__json=CONFIG))) is None
    path = write(tmp_path / "f.zip", config__json=CONFIG, metadata__json="{}")
    assert sniff(Artifact(path)) is None


@pytest.mark.parametrize(
    "config",
    [
        "[]",
        "3",
        "null",
        '"x"',
        "{}",
        '{"class_name": []}',
        '{"class_name": "Sequential", "config": [1, null, {}]}',
    ],
)
def test_odd_configs(tmp_path, config):
    store = FIXTURES / "keras30_sequential.keras"
    with zipfile.ZipFile(store) as z:
        weights = z.read("model.weights.h5")
    path = write(
        tmp_path / "m.keras", config__json=config, metadata__json="[]", model__weights__h5=weights
    )
    bundle = read(Artifact(path))
    assert len(bundle.weights) == 12
    assert "layers/dense/0" in bundle.weights


def test_truncation_is_our_error(tmp_path):
    data = (FIXTURES / "keras315_sequential.keras").read_bytes()
    path = tmp_path / "m.keras"
    for end in range(0, len(data), 997):
        path.write_bytes(data[:end])
        with pytest.raises(ConvertError):
            catalog.read(Artifact(path))
