"""Folders of transformers' Flax and TensorFlow classes have the names and layouts of torch's."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from pretrained_folders import STORED, unpack_folders

import converter
from converter.normalise.pretrained_names import rename_for_torch
from formats.core.weights import DTYPES, Tensor
from formats.errors import CorruptError

EXPECTED = json.loads((STORED / "expected.json").read_text())
# What transformers 4.57 calls these tensors in torch.
WEIGHT_NORM = {"weight_g": "parametrizations.weight.original0",
               "weight_v": "parametrizations.weight.original1"}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return unpack_folders(tmp_path_factory.mktemp("folders"))


def describe(tensor):
    return [tensor.dtype.name, list(tensor.shape), hashlib.sha256(tensor.tobytes()).hexdigest()]


@pytest.mark.parametrize("name", [*EXPECTED])
def test_weights_are_those_that_transformers_makes_of_them(name, folders):
    bundle = rename_for_torch(converter.read(folders / name))
    held = {n: describe(tensor) for n, tensor in bundle.weights.items()}
    for old, new in WEIGHT_NORM.items():
        held = {n.replace(old, new) if n.endswith(old) else n: d for n, d in held.items()}
    expected = EXPECTED[name]
    assert {n: d for n, d in held.items() if n in expected} == {
        n: d for n, d in expected.items() if n in held
    }
    assert not held.keys() - expected.keys()
    contents = [*held.values()]  # what torch ties to another tensor, it has by that one's name
    assert [n for n, d in expected.items() if n not in held and d not in contents] == []
    (change,) = bundle.metadata.normalisations
    assert change.count == len(bundle.weights)


@pytest.mark.parametrize("target", ["hf", "portable"])
def test_outputs_have_torchs_names(target, folders, tmp_path):
    made = converter.convert(
        folders / "tensorflow-gpt2", to=target, out=tmp_path / "out", verify="weights"
    )
    written = converter.read(tmp_path / "out").weights
    assert {*written} <= {*EXPECTED["tensorflow-gpt2"]}
    for name, tensor in written.items():
        assert describe(tensor) == EXPECTED["tensorflow-gpt2"][name]
    assert made.verification.weights.tensors == len(written)
    if target == "hf":
        assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
            "config.json", "generation_config.json", "model.safetensors",
        ]  # fmt: skip


def test_a_file_keeps_its_own_names(folders):
    bundle = converter.read(folders / "flax-bert" / "flax_model.msgpack")
    assert rename_for_torch(bundle) is bundle


def test_a_variable_of_several_layers_is_kept_once_and_its_copies_are_named(folders):
    stored = converter.read(folders / "tensorflow-t5")
    renamed = rename_for_torch(stored)
    assert [x.name for x in renamed.metadata.left_out] == [
        "encoder/shared/shared/embeddings", "decoder/shared/shared/embeddings",
    ]  # fmt: skip
    name = "encoder/shared/shared/embeddings"
    other = stored.weights[name]
    changed = Tensor.inline(
        DTYPES["float32"], other.shape, np.zeros(other.shape, "f4").tobytes(), origin=other.origin
    )
    bundle = replace(stored, weights={**stored.weights, name: changed})
    with pytest.raises(CorruptError, match=r"is 'shared\.weight' in torch, as another tensor is"):
        rename_for_torch(bundle)
