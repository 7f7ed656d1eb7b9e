"""Keras files in HDF5, against what the Keras that wrote them said its weights were."""

import json

import numpy as np
import pytest
from repository import ROOT

from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import SafetyFinding
from formats.errors import CorruptError, LimitError, SafetyError, SourceError
from formats.keras.h5 import _candidates, read, sniff
from formats.limits import Limits

FIXTURES = ROOT / "fixtures" / "keras"
OLD = sorted(p for p in FIXTURES.glob("*.h5") if not p.name.startswith("keras3"))


def expected_of(path):
    return np.load(path.with_name(path.name.split(".")[0] + ".expected.npz"))


def bundle_of(name, limits=None):
    return catalog.read(Artifact(FIXTURES / name, *([limits] if limits else [])))


@pytest.mark.parametrize("path", OLD, ids=lambda p: p.name)
def test_weights_are_those_that_keras_saved(path):
    bundle = catalog.read(Artifact(path))
    by_origin = {t.origin: t for t in bundle.weights.values()}
    by_origin |= {t.origin: t for group in bundle.leftovers.values() for t in group.values()}
    alone = "only_weights" in path.name
    expected = expected_of(path)
    whole = "model_config" not in bundle.metadata.user and bundle.topology is not None
    checked = 0
    for key in expected.files:
        layer, _, name = key.partition("|")
        if layer == "optimizer":
            origin = f"/optimizer_weights/{name}"
            if alone:
                continue
        else:
            origin = f"{'/model_weights' if whole else ''}/{layer}/{name}"
        tensor, array = by_origin[origin], expected[key]
        assert tensor.shape == array.shape, origin
        assert tensor.dtype.name == array.dtype.name
        assert tensor.tobytes() == array.tobytes(), origin
        checked += 1
    named = len(bundle.weights)
    assert checked >= named > 0
    assert bundle.metadata.framework == "keras"
    assert not bundle.metadata.left_out


def test_keras_1_with_theano():
    bundle = bundle_of("keras1_theano_sequential.h5")
    assert dict(bundle.metadata.recorded) == {"keras_version": "1.2.2"}
    assert list(bundle.weights)[:3] == ["conv_W", "conv_b", "batchnormalization_1_gamma"]
    assert bundle.weights["conv_W"].shape == (3, 2, 2, 2)  # as Theano has it
    assert bundle.topology.summary["class_name"] == "Sequential"
    assert bundle.metadata.user["training_config"]["loss"] == "mse"
    bundle = bundle_of("keras1_theano_functional.h5")
    assert [f.kind for f in bundle.metadata.findings] == ["lambda-bytecode"]


def test_keras_2_whole_model():
    bundle = bundle_of("keras2_sequential.h5")
    assert dict(bundle.metadata.recorded) == {"keras_version": "2.2.4", "backend": "tensorflow"}
    assert bundle.metadata.variant == "whole model of Keras 2.2.4"
    assert list(bundle.weights)[:2] == ["conv2d_1/kernel", "conv2d_1/bias"]
    assert "with/slash/kernel" in bundle.weights
    assert bundle.metadata.findings == (
        SafetyFinding("lambda-bytecode", "layer 'plus'", "model_config"),
    )
    optimizer = bundle.leftovers["optimizer"]
    assert "optimizer/Adam/iterations" in optimizer
    assert not set(optimizer) & set(bundle.weights)
    assert bundle.metadata.user["training_config"]["loss"] == "mse"
    (signature,) = bundle.signatures
    assert [(s.name, s.shape) for s in signature.inputs] == [
        ("conv2d_1", ("batch", 6, 5, 2)),
    ]
    assert bundle.topology.content["class_name"] == "Sequential"


def test_nested_models_take_the_outer_name_where_they_must():
    bundle = bundle_of("keras2_nested.h5")
    assert sorted(bundle.weights) == [
        "dense/dense_1/bias",
        "dense/dense_1/kernel",
        "inner/dense/bias",
        "inner/dense/kernel",
    ]


def test_multi_gpu_model():
    bundle = bundle_of("keras2_multi_gpu.h5")
    assert bundle.metadata.distribution == {"strategy": "multi_gpu_model", "replicas": 2}
    assert list(bundle.weights) == [
        "dense_1/kernel",
        "dense_1/bias",
        "dense_2/kernel",
        "dense_2/bias",
    ]


def test_names_split_over_attributes():
    bundle = bundle_of("tfkeras24_split_names.h5")
    assert list(bundle.weights)[:2] == ["layer_00/kernel", "layer_01/kernel"]
    assert len(bundle.weights) == 18 + 30
    assert bundle.metadata.variant == "weights of Keras 2.4.0"


def test_subclassed_models_keep_their_own_weights():
    weights = bundle_of("tfkeras212_subclassed.h5").weights
    assert list(weights)[:3] == ["dense_1/kernel", "dense_1/bias", "dense_2/kernel"]
    assert weights["scale"].origin == "/top_level_model_weights/scale:0"


@pytest.mark.parametrize(
    ("layer", "weight", "name"),
    [
        ("dense", "dense/kernel:0", "dense/kernel"),
        ("dense", "my_model/dense/kernel:0", "dense/kernel"),
        ("dense", "dense_1/kernel:0", "dense/kernel"),
        ("dense", "kernel", "dense/kernel"),
        ("dense_1", "dense_1_W", "dense_1_W"),
        ("layer_0", "param_1", "layer_0/param_1"),
        ("model_1", "conv/kernel:0", "conv/kernel"),
        ("block/conv", "net/block/conv/kernel:0", "block/conv/kernel"),
        ("bert", "tf_bert_model/bert/pooler/kernel:0", "bert/pooler/kernel"),
        ("", "my_model/scale:0", "my_model/scale"),
    ],
)
def test_rule_of_names(layer, weight, name):
    assert _candidates(layer, weight)[0] == name


@pytest.mark.parametrize("version", ["keras30", "keras315"])
def test_keras_3_weight_stores_alone(version):
    bundle = bundle_of(f"{version}_functional.weights.h5")
    whole = bundle_of(f"{version}_functional.keras")
    assert bundle.metadata.variant == "weight store of Keras 3 (.weights.h5)"
    assert {t.origin: t.tobytes() for t in bundle.weights.values()} == {
        t.origin: t.tobytes() for t in whole.weights.values()
    }
    assert set(bundle.leftovers) == {"optimizer"}
    if version == "keras315":  # which writes layers' names beside their variables
        assert "bidirectional/forward_bi/lstm_cell/0" in bundle.weights
    else:
        assert "layers/functional/layers/bidirectional/forward_layer/cell/0" in bundle.weights


def test_keras_3_h5():
    bundle, archive = bundle_of("keras30_sequential.h5"), bundle_of("keras30_sequential.keras")
    assert {n: t.tobytes() for n, t in bundle.weights.items()} == {
        n: t.tobytes() for n, t in archive.weights.items()
    }
    bundle = bundle_of("keras315_functional.h5")
    assert {"last/kernel", "bidirectional/forward_bi/lstm_cell/kernel"} <= set(bundle.weights)


def test_bfloat16_in_a_whole_model(tmp_path):
    """Keras 3 writes two opaque bytes there, without the note that its stores have."""
    h5py = pytest.importorskip("h5py")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kernel = np.random.default_rng(1).standard_normal((6, 3)).astype(ml_dtypes.bfloat16)
    with h5py.File(tmp_path / "m.h5", "w") as f:
        f.attrs["keras_version"] = "3.15.1"
        top = f.create_group("model_weights")
        top.attrs["layer_names"] = ["d"]
        top.create_group("d").attrs["weight_names"] = ["d/kernel"]
        top["d/d/kernel"] = kernel.view("V2")
        top["d/d/stray"] = kernel.view("V2")  # listed nowhere: it may be anything
    bundle = catalog.read(Artifact(tmp_path / "m.h5"))
    (tensor,) = bundle.weights.values()
    assert (tensor.dtype.name, tensor.shape) == ("bfloat16", (6, 3))
    assert tensor.tobytes() == kernel.tobytes()
    (left,) = bundle.metadata.left_out
    assert "stray" in str(left)
    assert "opaque" in str(left)


def test_shards(tmp_path):
    bundle, whole = (
        bundle_of("keras315_sharded.weights.json"),
        bundle_of("keras315_sequential.keras"),
    )
    assert sniff(Artifact(FIXTURES / "keras315_sharded.weights.json"))
    assert sorted(t.tobytes() for t in bundle.weights.values()) == sorted(
        t.tobytes() for t in whole.weights.values()
    )
    assert "dense_1/0" in bundle.weights
    index = json.loads((FIXTURES / "keras315_sharded.weights.json").read_text())
    bad = tmp_path / "m.weights.json"
    for name, error in (("../x.weights.h5", SafetyError), ("none.weights.h5", SourceError)):
        bad.write_text(json.dumps(index | {"weight_map": {"/vars": name}}))
        with pytest.raises(error):
            read(Artifact(bad))
    bad.write_text('{"weight_map": {"a": 3, "b": "x.weights.h5"}}')
    with pytest.raises(CorruptError):
        read(Artifact(bad))


def test_truncated(tmp_path):
    data = (FIXTURES / "keras2_nested.h5").read_bytes()
    path = tmp_path / "m.h5"
    path.write_bytes(data[:-1000])
    assert sniff(Artifact(path)) == "HDF5 signature"
    with pytest.raises(CorruptError, match="truncated"):
        read(Artifact(path))


def test_foreign_files_are_not_claimed(tmp_path):
    for n, data in enumerate(
        (b"", b"{}", b'{"weight_map": {"a": "b.safetensors"}}', b"PK\3\4" * 99)
    ):
        path = tmp_path / f"f{n}.h5"
        path.write_bytes(data)
        assert sniff(Artifact(path)) is None
    assert sniff(Artifact(tmp_path)) is None


def test_limits():
    with pytest.raises(LimitError):
        bundle_of("keras2_sequential.h5", Limits(max_header_bytes=2000))


class TestHandmade:
    """Files made here with h5py, where it is installed."""

    @pytest.fixture
    def h5(self, tmp_path):
        h5py = pytest.importorskip("h5py")
        path = tmp_path / "m.h5"
        with h5py.File(path, "w") as f:
            yield f, lambda: (f.close(), catalog.read(Artifact(path)))[1]

    def test_plain_datasets(self, h5):
        f, read_it = h5
        f["net/w"], f["net/deep/b"] = np.ones((2, 3), "f4"), np.arange(4)
        f["words"] = np.array([b"a", b"bc"])
        f.attrs["note"] = "hello"
        bundle = read_it()
        assert bundle.metadata.variant == "plain HDF5 datasets"
        assert bundle.metadata.framework is None
        assert set(bundle.weights) == {"net/w", "net/deep/b"}
        assert [o.name for o in bundle.metadata.left_out] == ["/words"]
        assert bundle.metadata.user == {"note": "hello"}

    def test_the_oldest_weights(self, h5):
        f, read_it = h5
        f.attrs["nb_layers"] = 2
        for n in range(2):
            group = f.create_group(f"layer_{n}")
            group.attrs["nb_params"] = 2 * n
            for k in range(2 * n):
                group[f"param_{k}"] = np.full((2,), k, "f4")
        bundle = read_it()
        assert list(bundle.weights) == ["layer_1/param_0", "layer_1/param_1"]
        assert "not recorded" in bundle.metadata.variant

    def test_strays_and_gaps_are_named(self, h5):
        import h5py

        f, read_it = h5
        f.attrs["layer_names"] = [b"a", b"gone", b"tied"]
        f["a/w:0"], f["stray"] = np.ones(2, "f4"), np.ones(3, "f4")
        f["a"].attrs["weight_names"] = [b"w:0", b"out:0"]
        f["a/out:0"] = h5py.ExternalLink("elsewhere.h5", "/x")
        f["tied"] = f["a"]
        bundle = read_it()
        assert list(bundle.weights) == ["a/w", "tied/w", "stray"]
        assert bundle.weights["a/w"].identity == bundle.weights["tied/w"].identity
        assert {o.name for o in bundle.metadata.left_out} == {"/a/out:0", "/gone", "/tied/out:0"}
        assert {f.kind for f in bundle.metadata.findings} == {"link"}

    def test_missing_weights_are_an_error(self, h5):
        f, read_it = h5
        f.attrs["layer_names"] = [b"a"]
        f.create_group("a").attrs["weight_names"] = [b"w:0"]
        with pytest.raises(CorruptError, match="'w:0'"):
            read_it()

    def test_datasets_as_layers(self, h5):
        """Shards of transformers list the weights themselves."""
        f, read_it = h5
        f.attrs["layer_names"] = [b"net/a/kernel:0"]
        f["net/a/kernel:0"] = np.ones(2, "f4")
        assert list(read_it().weights) == ["net/a/kernel"]

    def test_shards_of_transformers(self, h5, tmp_path):
        import h5py

        for n, name in enumerate(("net/a/kernel:0", "net/b/kernel:0")):
            with h5py.File(tmp_path / f"tf_model-0000{n + 1}-of-00002.h5", "w") as f:
                f.attrs["layer_names"] = [name.encode()]
                f[name] = np.full(2, n, "f4")
        index = {
            "weight_map": {
                "net/a/kernel:0": "tf_model-00001-of-00002.h5",
                "net/b/kernel:0": "tf_model-00002-of-00002.h5",
            }
        }
        path = tmp_path / "tf_model.h5.index.json"
        path.write_text(json.dumps(index))
        assert sniff(Artifact(path))
        bundle = read(Artifact(path))
        assert {n: t.numpy().tolist() for n, t in bundle.weights.items()} == {
            "net/a/kernel": [0, 0],
            "net/b/kernel": [1, 1],
        }
        assert bundle.weights["net/b/kernel"].origin == (
            "tf_model-00002-of-00002.h5:/net/b/kernel:0"
        )

    def test_hostile_configs_are_limited(self, h5, monkeypatch):
        f, read_it = h5
        monkeypatch.setattr("formats.keras.config.MAX_NODES", 1000)
        f.attrs["model_config"] = "[" + "[0]," * 1100 + "0]"
        with pytest.raises(LimitError, match="configuration"):
            read_it()

    def test_custom_objects(self, h5):
        f, read_it = h5
        layers = [
            {"class_name": "Addons>GELU", "config": {"name": "g"}},
            {
                "class_name": "Lambda",
                "config": {"name": "l", "function": "f", "function_type": "function"},
            },
            {"class_name": "Dense", "config": {"name": "d", "trainable": True}},
        ]
        f.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": layers})
        f.create_group("model_weights").attrs["layer_names"] = np.array([], "S1")
        bundle = read_it()
        assert [f.subject for f in bundle.metadata.findings] == [
            "Addons>GELU",
            "function 'f' of layer 'l'",
        ]

    def test_damaged_config(self, h5):
        f, read_it = h5
        f.attrs["model_config"] = '{"class_name": '
        with pytest.raises(CorruptError, match="JSON"):
            read_it()
