"""Checkpoints of TF 1.15, 2.4 and 2.21, against what those versions read in them."""

import shutil

import pytest
from repository import FIXTURES
from tf_expected import read, stored

from formats import catalog
from formats.artifact import Artifact
from formats.errors import CorruptError, SourceError, UnknownFormatError
from formats.tensorflow import checkpoint as tf_checkpoint

HERE = FIXTURES / "tensorflow"
# fmt: off
CASES = {  # fixture → how it is given, variant
    "v1_single":                 ("v1_single/model.ckpt-1",             "V1, name-based"),
    "v1_sharded":                ("v1_sharded",                         "V1, name-based"),
    "v2_named":                  ("v2_named/model.ckpt-1",              "V2, name-based"),
    "v2_sharded":                ("v2_sharded/model.ckpt-1.index",      "V2, name-based"),
    "replicas":                  ("replicas",                           "V2, name-based"),
    "dtypes_checkpoint":         ("dtypes_checkpoint/ckpt",             "V2, object-based"),
    "manager_checkpoint":        ("manager_checkpoint",                 "V2, object-based"),
    "mirrored_checkpoint":       ("mirrored_checkpoint",                "V2, object-based"),
    "keras3_checkpoint":         ("keras3_checkpoint",                  "V2, object-based"),
    "keras2_weights_checkpoint": ("keras2_weights_checkpoint",          "V2, object-based"),
    "keras24_weights":           ("keras24_weights/w.index",            "V2, object-based"),
    "sharded_variable":          ("sharded_variable/ckpt",              "V2, object-based"),
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_every_tensor_is_what_tensorflow_reads(name):
    path, variant = CASES[name]
    artifact = Artifact(HERE / path)
    assert catalog.detect(artifact).format.id == "tf-checkpoint"
    bundle = catalog.read(artifact)
    assert bundle.metadata.variant == variant
    expected = {k.removeprefix("key/"): v for k, v in stored(HERE / f"{name}.expected.npz").items()}
    assert read(bundle, "origin") == expected


def names(path):
    bundle = catalog.read(Artifact(HERE / path))
    return list(bundle.weights), {g: list(m) for g, m in bundle.leftovers.items()}


def test_tf1_slots_and_counters_are_leftovers():
    weights, leftovers = names("v2_named")
    assert weights == [
        "columns", "count", "dense/bias", "dense/kernel", "flag", "rows", "words.bytes",
        "words.offsets",
    ]  # fmt: skip
    assert leftovers["training"] == ["global_step"]
    assert leftovers["optimizer"] == [
        "beta1_power", "beta2_power", "dense/bias/Adam", "dense/bias/Adam_1", "dense/kernel/Adam",
        "dense/kernel/Adam_1", "dense/kernel/Momentum",
    ]  # fmt: skip


def test_object_paths_are_names_and_slots_are_leftovers():
    weights, leftovers = names("manager_checkpoint")
    assert weights == ["model/layer_with_weights-0/kernel", "model/layer_with_weights-0/bias"]
    assert leftovers["training"] == ["step", "save_counter"]
    assert "opt/learning_rate" in leftovers["optimizer"]
    assert "model/layer_with_weights-0/bias/.OPTIMIZER_SLOT/opt/rms" in leftovers["optimizer"]


def test_weights_whose_key_leads_through_the_optimizer_are_weights():
    weights, leftovers = names("keras3_checkpoint")
    assert weights == [
        "model/_functional/_operations/1/_kernel",
        "model/_functional/_operations/1/bias",
    ]
    assert len(leftovers["optimizer"]) == 6


def test_equal_replicas_come_out_once_and_different_ones_stay():
    bundle = catalog.read(Artifact(HERE / "replicas"))
    assert list(bundle.weights) == ["own", "own/replica_1", "w"]
    assert bundle.metadata.distribution == {"replicas": 2, "variables": 1}
    assert [n.name for n in bundle.metadata.normalisations] == ["per-replica variables"]
    assert bundle.metadata.tensor_notes["w"]["also_stored_as"] == ["w/replica_1"]


def test_partitioned_variables_are_joined_and_counted():
    bundle = catalog.read(Artifact(HERE / "v2_sharded"))
    (note,) = bundle.metadata.normalisations
    assert (note.name, note.count) == ("partitioned variables", 2)
    assert bundle.weights["columns"].shape == (7, 5)


def test_the_meta_graph_gives_topology_devices_and_versions():
    bundle = catalog.read(Artifact(HERE / "v2_sharded"))
    assert bundle.topology.kind == "graphdef"
    assert bundle.topology.summary["nodes"] > 100
    assert bundle.metadata.devices["/device:CPU:1"] > 0
    assert bundle.metadata.recorded["tensorflow_version"] == "1.15.5"
    assert bundle.metadata.recorded["shards"] == "2"


def test_quantised_types_are_noted():
    bundle = catalog.read(Artifact(HERE / "dtypes_checkpoint/ckpt"))
    assert bundle.weights["qint8"].dtype.name == "int8"
    assert bundle.metadata.tensor_notes["qint8"] == {"dtype": "qint8"}
    assert bundle.weights["int4"].nbytes == 5


@pytest.mark.parametrize(
    "given", ["model.ckpt-1.meta", "model.ckpt-1.data-00000-of-00002", "checkpoint"]
)
def test_any_of_its_files_names_a_checkpoint(given):
    bundle = tf_checkpoint.read(Artifact(HERE / "v2_sharded" / given))
    assert len(bundle.weights) == 9


def test_one_part_of_a_v1_checkpoint_stands_for_all():
    bundle = catalog.read(Artifact(HERE / "v1_sharded" / "model.ckpt-1-00001-of-00002"))
    assert "second" in bundle.weights
    assert "dense/kernel" in bundle.weights


def test_reading_touches_no_weights(tmp_path):
    shutil.copytree(HERE / "v2_named", tmp_path / "c")
    shard = tmp_path / "c" / "model.ckpt-1.data-00000-of-00001"
    bundle = catalog.read(Artifact(tmp_path / "c"))
    size = shard.stat().st_size
    shard.write_bytes(bytes(size - 1))
    with pytest.raises(CorruptError, match="truncated"):
        catalog.read(Artifact(tmp_path / "c"))
    assert bundle.weights["dense/kernel"].shape == (4, 3)


def test_a_missing_shard_is_named(tmp_path):
    shutil.copytree(HERE / "v2_named", tmp_path / "c")
    (tmp_path / "c" / "model.ckpt-1.data-00000-of-00001").unlink()
    with pytest.raises(SourceError, match="data-00000-of-00001"):
        catalog.read(Artifact(tmp_path / "c" / "model.ckpt-1"))


def test_several_checkpoints_without_a_state_file_must_be_chosen_from(tmp_path):
    for step in (1, 2):
        for part in ("index", "data-00000-of-00001"):
            shutil.copy(HERE / "manager_checkpoint" / f"ckpt-{step}.{part}", tmp_path)
    with pytest.raises(SourceError, match="2 checkpoints"):
        tf_checkpoint.read(Artifact(tmp_path))
    with pytest.raises(UnknownFormatError):
        catalog.detect(Artifact(tmp_path))


def test_the_state_file_of_another_machine_is_understood(tmp_path):
    shutil.copytree(HERE / "manager_checkpoint", tmp_path / "c")
    state = 'model_checkpoint_path: "C:\\\\runs\\\\7\\\\ckpt-1"\n'
    (tmp_path / "c" / "checkpoint").write_text(state)
    bundle = catalog.read(Artifact(tmp_path / "c"))
    assert bundle.leftovers["training"]["save_counter"].numpy() == 1


def test_a_folder_around_one_v1_table(tmp_path):
    shutil.copy(HERE / "v1_single" / "model.ckpt-1", tmp_path / "inception_v3.ckpt")
    bundle = catalog.read(Artifact(tmp_path))
    assert bundle.metadata.variant == "V1, name-based"
    assert bundle.topology is None
