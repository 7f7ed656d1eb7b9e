"""Graphs and checkpoints, joined: which value belongs to which variable."""

import shutil

import numpy as np
import pytest
from repository import ROOT

import converter
from formats import catalog
from formats.artifact import Artifact
from formats.errors import SourceError, UnsupportedError, UsageError
from formats.tensorflow.checkpoint import read as read_checkpoint

TENSORFLOW = ROOT / "fixtures" / "tensorflow"
HERE = TENSORFLOW / "joined"


def joined(graph, checkpoint):
    return converter.read(HERE / graph, checkpoint=HERE / checkpoint)


def arrays(weights):
    return {name: (t.dtype.name, t.shape, t.tobytes()) for name, t in weights.items()}


@pytest.mark.parametrize("graph", ["graph.pb", "graph.pbtxt"])
def test_a_name_based_checkpoint(graph):
    bundle = joined(graph, "named")
    assert {n: t.origin for n, t in bundle.weights.items()} == {
        "dense/bias": "dense/bias",
        "dense/kernel": "dense/kernel",
        "table": "table",
        "const/large": "large",
    }
    stored = read_checkpoint(Artifact(HERE / "named")).weights
    found = arrays(bundle.weights)
    assert {n: found[n] for n in stored} == arrays(stored)
    assert bundle.metadata.format == "graphdef"
    assert bundle.metadata.variant.endswith("values of 3 variables from a checkpoint")
    assert list(bundle.topology.content) == [graph]
    assert not any("variable" in x.reason for x in bundle.metadata.left_out)


def test_an_object_based_checkpoint_records_the_names():
    bundle = joined("graph.pb", "objects")
    assert {n: t.origin for n, t in bundle.weights.items()} == {
        "dense/bias": "layer/b/.ATTRIBUTES/VARIABLE_VALUE",
        "dense/kernel": "layer/k/.ATTRIBUTES/VARIABLE_VALUE",
        "table": "t/.ATTRIBUTES/VARIABLE_VALUE",
        "const/large": "large",
    }
    assert arrays(bundle.weights) == arrays(joined("graph.pb", "named").weights)
    assert set(bundle.topology.content) == {"graph.pb", "object_graph"}


def test_a_variable_in_parts_is_one_in_the_checkpoint():
    bundle = joined("parts.meta", "parts")
    assert bundle.weights["table"].shape == (5, 3)
    assert not any("variable" in x.reason for x in bundle.metadata.left_out)
    assert bundle.metadata.recorded["saver_version"] == "V2"


def test_a_meta_graph_beside_its_checkpoint_is_joined_without_being_told():
    artifact = Artifact(HERE / "parts.meta")
    assert catalog.detect(artifact).format.id == "tf-checkpoint"
    bundle = converter.read(HERE / "parts.meta")
    assert {"dense/kernel", "dense/bias", "table"} <= set(bundle.weights)
    assert bundle.topology.kind == "graphdef"


def test_all_files_of_both_are_the_source(tmp_path):
    shutil.copy(HERE / "graph.pb", tmp_path)
    artifact = Artifact(tmp_path / "graph.pb")
    catalog.read(artifact, None, Artifact(HERE / "named"))
    assert list(artifact.opened) == ["graph.pb", "named.data-00000-of-00001", "named.index"]
    alike = tmp_path / "graph.pb.index"  # of the same name in another folder
    shutil.copy(HERE / "named.index", alike)
    shutil.copy(HERE / "named.data-00000-of-00001", tmp_path / "graph.pb.data-00000-of-00001")
    artifact = Artifact(HERE / "graph.pb")
    catalog.read(artifact, None, Artifact(alike))
    assert len(artifact.opened) == 3


@pytest.mark.parametrize("checkpoint", ["v2_named", "v2_sharded", "v1_single", "v1_sharded"])
def test_checkpoints_of_every_age_and_however_named(tmp_path, checkpoint):
    folder = TENSORFLOW / checkpoint
    meta = tmp_path / "graph.meta"
    shutil.copy(folder / "model.ckpt-1.meta", meta)
    plain = read_checkpoint(Artifact(folder))
    bundle = converter.read(meta, checkpoint=folder)
    assert arrays(plain.weights).items() <= arrays(bundle.weights).items()
    assert {g: set(t) for g, t in bundle.leftovers.items()} == {
        g: set(t) for g, t in plain.leftovers.items()
    }


def test_variables_without_a_value_are_named(tmp_path):
    meta = tmp_path / "graph.meta"
    shutil.copy(TENSORFLOW / "v2_sharded" / "model.ckpt-1.meta", meta)  # has one more
    bundle = converter.read(meta, checkpoint=TENSORFLOW / "v2_named")
    missing = [x.name for x in bundle.metadata.left_out if "no value" in x.reason]
    assert missing == ["second"]


def test_what_does_not_belong_together():
    with pytest.raises(SourceError, match="is 4 x 2 in the checkpoint; expected 4 x 3"):
        joined("graph.pb", "other")
    with pytest.raises(UnsupportedError, match="2 variables of the checkpoint are called 'dense/k"):
        joined("graph.pb", "twins")
    with pytest.raises(SourceError, match="none of the graph's 3 variables"):
        joined("graph.pb", "../mirrored_checkpoint/ckpt")
    with pytest.raises(UsageError, match="has no variables"):
        joined("../frozen.pb", "named")
    with pytest.raises(UsageError, match="source that is savedmodel"):
        joined("../module_tf2", "named")
    with pytest.raises(UsageError, match="source that is tf-checkpoint"):
        joined("named", "named")
    with pytest.raises(SourceError, match="no such file"):
        joined("graph.pb", "nowhere")
    with pytest.raises(SourceError, match="is no TensorFlow checkpoint"):
        joined("graph.pb", "outputs.npz")


def test_damaged_checkpoints_are_corrupt(tmp_path):
    for name in ("named.index", "named.data-00000-of-00001"):
        shutil.copy(HERE / name, tmp_path)
    index = tmp_path / "named.index"
    index.write_bytes(index.read_bytes()[:-30])
    with pytest.raises(SourceError):
        joined("graph.pb", tmp_path / "named")


def test_nothing_is_read_of_the_weights():
    bundle = joined("graph.pb", "named")
    with np.load(HERE / "outputs.npz") as outputs:
        assert outputs["y|graph"].shape == (6, 11)
    kernel = bundle.weights["dense/kernel"]
    assert kernel.data.span.storage.path.name == "named.data-00000-of-00001"
