"""SavedModels of TF 1.15, 2.4 and 2.21, against what those versions read in them."""

import shutil

import pytest
from repository import FIXTURES
from tf_expected import read, stored

from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import TensorSpec
from formats.errors import CorruptError, SafetyError

HERE = FIXTURES / "tensorflow"
CASES = [
    "keras3_export", "keras2_sequential", "keras2_legacy_optimizer", "module_tf2", "vocabulary",
    "mirrored_default", "mirrored_expanded", "mirrored_devices", "loss_scale_savedmodel",
    "multi_tags", "simple_save", "keras24_mirrored",
]  # fmt: skip


def savedmodel(name):
    return catalog.read(Artifact(HERE / name))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("given", ["", "saved_model.pb"])
def test_every_variable_is_what_tensorflow_reads(name, given):
    artifact = Artifact(HERE / name / given)
    assert catalog.detect(artifact).format.id == "savedmodel"
    bundle = catalog.read(artifact)
    expected = {k.removeprefix("key/"): v for k, v in stored(HERE / f"{name}.expected.npz").items()}
    found = {k: v for k, v in read(bundle, "origin").items() if k in expected}
    assert found == expected
    extra = [n for n, t in bundle.weights.items() if t.origin not in expected]
    assert all(n.startswith("const/") for n in extra)


def test_keras3_export_comes_out_once_under_its_own_names():
    bundle = savedmodel("keras3_export")
    assert list(bundle.weights) == [
        "sequential/dense/kernel",
        "sequential/dense/bias",
        "sequential/batch_normalization/gamma",
        "sequential/batch_normalization/beta",
        "sequential/batch_normalization/moving_mean",
        "sequential/batch_normalization/moving_variance",
        "sequential/dense_1/kernel",
        "sequential/dense_1/bias",
    ]
    (note,) = bundle.metadata.normalisations
    assert (note.name, note.count) == ("duplicate variables", 8)
    kernel = bundle.weights["sequential/dense/kernel"]
    assert kernel.origin == "variables/0/.ATTRIBUTES/VARIABLE_VALUE"
    notes = bundle.metadata.tensor_notes["sequential/dense/kernel"]
    assert notes["also_stored_as"] == ["_all_variables/5/.ATTRIBUTES/VARIABLE_VALUE"]
    assert {s.name for s in bundle.signatures} == {"serve", "serving_default"}


def test_copies_with_other_bytes_stay(tmp_path):
    """A duplicate is dropped for its checksum, not for its name."""
    shutil.copytree(HERE / "keras3_export", tmp_path / "m")
    index = tmp_path / "m" / "variables" / "variables.index"
    from formats.core.storage import File, Span
    from formats.limits import DEFAULT
    from formats.tensorflow.tensor_bundle import TensorBundle

    bundle = TensorBundle(Span.whole(File(index)), lambda n: File(n), DEFAULT)
    crc = bundle.entries["_all_variables/0/.ATTRIBUTES/VARIABLE_VALUE"].crc.to_bytes(4, "little")
    data = index.read_bytes()
    at = data.index(crc)
    changed = bytearray(data)
    changed[at] ^= 1
    index.write_bytes(changed)
    with pytest.raises(CorruptError, match="checksum"):
        catalog.read(Artifact(tmp_path / "m"))


def test_keras_models_keep_training_apart():
    bundle = savedmodel("keras2_sequential")
    assert list(bundle.weights) == ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]
    assert "Adam/m/dense/kernel" in bundle.leftovers["optimizer"]
    assert len(bundle.leftovers["training"]) == 4
    assert bundle.topology.summary["keras"]["root"] == {
        "class_name": "Sequential",
        "name": "sequential",
    }
    assert set(bundle.topology.content) == {"saved_model.pb", "object_graph", "keras_metadata.pb"}
    assert bundle.signatures[0].inputs == (TensorSpec("dense_input", "float32", ("unk__0", 4)),)


def test_loss_scales_are_training():
    bundle = savedmodel("loss_scale_savedmodel")
    assert {"current_loss_scale", "good_steps"} <= bundle.leftovers["training"].keys()
    assert "learning_rate" in bundle.leftovers["optimizer"]


def test_replicas_and_devices_are_facts_about_the_source():
    plain, expanded = savedmodel("mirrored_default"), savedmodel("mirrored_expanded")
    assert list(plain.weights) == list(expanded.weights) == ["w", "b", "steps", "total"]
    assert plain.metadata.distribution == {}
    assert expanded.metadata.distribution == {"replicas": 2, "variables": 4}
    (note,) = expanded.metadata.normalisations
    assert (note.name, note.count) == ("per-replica variables", 4)
    second = "/job:localhost/replica:0/task:0/device:CPU:1"
    assert second not in plain.metadata.devices
    assert expanded.metadata.devices[second] > 4
    assert [*expanded.metadata.tensor_devices["w"]] == [second.replace("CPU:1", "CPU:0"), second]
    assert expanded.metadata.tensor_notes["total"]["synchronization"] == "on_read"
    assert expanded.metadata.tensor_notes["w"]["replicas"] == ["w", "w/replica_1"]
    placed = savedmodel("mirrored_devices").metadata.devices
    assert placed["/job:localhost/replica:0/task:0/device:CPU:0"] >= 4


def test_names_of_mirrored_variables_come_from_the_saved_object_graph():
    bundle = savedmodel("keras24_mirrored")
    assert "embedding/embeddings" in bundle.weights
    assert bundle.metadata.recorded["tensorflow_version"] == "2.4.4"


def test_tables_strings_and_assets():
    bundle = savedmodel("vocabulary")
    assert list(bundle.assets) == ["vocab.txt"]
    assert bundle.assets["vocab.txt"].read() == b"red\ngreen\nblue\n"
    assert set(bundle.encodings) == {"words", "mutable/table-keys"}
    assert bundle.encodings["words"].shape == (3,)
    assert bundle.weights["mutable/table-values"].shape == (2,)


def test_several_meta_graphs():
    bundle = savedmodel("multi_tags")
    assert bundle.metadata.recorded["tags"] == "train; serve, gpu"
    assert [s.name for s in bundle.signatures] == ["serving_default", "serving_default@serve, gpu"]
    assert bundle.metadata.devices["/device:GPU:0"] == 1
    assert set(bundle.topology.summary["meta_graphs"]) == {"train", "serve, gpu"}


def test_constants_are_weights_where_there_are_no_variables():
    bundle = savedmodel("text_savedmodel")
    expected = stored(HERE / "text_savedmodel.expected.npz")
    found = {f"const/{k}": v for k, v in read(bundle, "name").items()}
    assert found == expected
    assert bundle.metadata.variant == "TF 1, text, one MetaGraph"


def test_what_stays_in_the_graph_is_said():
    bundle = savedmodel("simple_save")
    reasons = {x.name: x.reason for x in bundle.metadata.left_out}
    name = next(name for name in reasons if "of at most 16 elements" in name)
    assert reasons[name] == "part of the graph, not weights"


def test_variables_without_values_are_named(tmp_path):
    shutil.copy(HERE / "simple_save" / "saved_model.pb", tmp_path)
    bundle = catalog.read(Artifact(tmp_path))
    names = {x.name for x in bundle.metadata.left_out}
    assert "dense/kernel" in names


def test_a_graph_under_the_name_of_a_savedmodel_is_a_graph(tmp_path):
    shutil.copy(HERE / "frozen.pb", tmp_path / "saved_model.pb")
    for given in (tmp_path, tmp_path / "saved_model.pb"):
        artifact = Artifact(given)
        assert catalog.detect(artifact).format.id == "graphdef"
        assert "dense/kernel" in catalog.read(artifact).weights


def test_assets_may_not_lead_out(tmp_path):
    shutil.copytree(HERE / "vocabulary", tmp_path / "m")
    (tmp_path / "m" / "assets" / "x").symlink_to("/etc/passwd")
    with pytest.raises(SafetyError):
        catalog.read(Artifact(tmp_path / "m"))


def test_a_cut_graph_is_corrupt(tmp_path):
    shutil.copytree(HERE / "module_tf2", tmp_path / "m")
    file = tmp_path / "m" / "saved_model.pb"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CorruptError):
        catalog.read(Artifact(tmp_path / "m"))
