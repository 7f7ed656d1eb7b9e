"""Keras's weights as torch.nn's: names, layouts and what is written of each, without torch."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from repository import FIXTURES

import converter
from converter.lower.keras.lowering import model_of
from converter.normalise.layouts import permute, reshape, zeros
from converter.options import Options
from formats import catalog
from formats.artifact import Artifact
from formats.core.weights import DTYPES, Tensor


def convert(source: Path, out: Path, **others: object) -> Path:
    options = Options(to="torch", device="cuda:1", **others)
    converter.convert(source, to="torch", out=out, options=options)
    return out


def weights(path: Path) -> dict[str, np.ndarray]:
    return {n: t.numpy() for n, t in catalog.read(Artifact(path)).weights.items()}


def record(path: Path) -> dict:
    with zipfile.ZipFile(path) as z:
        return json.loads(z.read("archive/convert.json"))


# fmt: off
NAMES = {
    "keras/keras30_sequential.keras": {
        "conv2d.weight":                      ("conv2d/kernel",               (3, 2, 0, 1)),
        "conv2d.bias":                        ("conv2d/bias",                 None),
        "separable_conv2d.pointwise.weight":  ("separable_conv2d/pointwise_kernel", (3, 2, 0, 1)),
        "separable_conv2d.pointwise.bias":    ("separable_conv2d/bias",       None),
        "group_normalization.weight":         ("group_normalization/gamma",   None),
        "group_normalization.bias":           ("group_normalization/beta",    None),
        "dense.weight":                       ("dense/kernel",                (1, 0)),
        "dense_1.bias":                       ("dense_1/bias",                None),
    },
    "keras/tfkeras212_functional.h5": {
        "lstm.weight_ih_l0":                  ("lstm/lstm_cell/kernel",       (1, 0)),
        "lstm.weight_hh_l0":                  ("lstm/lstm_cell/recurrent_kernel", (1, 0)),
        "lstm.bias_ih_l0":                    ("lstm/lstm_cell/bias",         None),
        "batch_normalization.running_mean":   ("batch_normalization/moving_mean", None),
        "batch_normalization.running_var":    ("batch_normalization/moving_variance", None),
        "batch_normalization.weight":         ("batch_normalization/gamma",   None),
    },
    "keras/keras2_nested.h5": {
        "inner.dense.weight":                 ("inner/dense/kernel",          (1, 0)),
        "dense.bias":                         ("dense/dense_1/bias",          None),
    },
    "keras/keras1_theano_functional.h5": {
        "shared.weight":                      ("shared_W",                    (1, 0)),
        "shared.bias":                        ("shared_b",                    None),
    },
    "keras/keras315_assets.keras": {
        "embedding.weight":                   ("embedding/embeddings",        None),
    },
}
# fmt: on


@pytest.mark.parametrize("name", NAMES)
def test_names_and_layouts(tmp_path: Path, name: str) -> None:
    source = catalog.read(Artifact(FIXTURES / name)).weights
    out = convert(FIXTURES / name, tmp_path / "o.pt")
    found, said = weights(out), record(out)["tensors"]
    for new, (old, axes) in NAMES[name].items():
        expected = source[old].numpy()
        assert np.array_equal(found[new], expected if axes is None else expected.transpose(axes))
        assert said[new]["from"] == [old]
        assert ("as it is" in said[new]["layout"]) == (axes is None)
        assert old not in found


def test_a_depthwise_kernel(tmp_path: Path) -> None:
    path = FIXTURES / "keras" / "keras30_sequential.keras"
    kernel = catalog.read(Artifact(path)).weights["separable_conv2d/depthwise_kernel"].numpy()
    found = weights(convert(path, tmp_path / "o.pt"))["separable_conv2d.depthwise.weight"]
    rows, columns, channels, times = kernel.shape
    assert found.shape == (channels * times, 1, rows, columns)
    for c in range(channels):
        for m in range(times):
            assert np.array_equal(found[c * times + m, 0], kernel[:, :, c, m])


def test_gates_of_a_gru(tmp_path: Path) -> None:
    """Update, reset, new → reset, update, new; both rows of the bias."""
    path = FIXTURES / "keras" / "keras315_functional.keras"
    source = catalog.read(Artifact(path)).weights
    found = weights(convert(path, tmp_path / "o.pt"))
    for new, old in (("weight_ih_l0", "kernel"), ("weight_hh_l0", "recurrent_kernel")):
        update, reset, fresh = np.split(source[f"gru/gru_cell/{old}"].numpy(), 3, 1)
        assert np.array_equal(found[f"gru.{new}"], np.concatenate([reset, update, fresh], 1).T)
    for row, new in enumerate(("bias_ih_l0", "bias_hh_l0")):
        update, reset, fresh = np.split(source["gru/gru_cell/bias"].numpy()[row], 3)
        assert np.array_equal(found[f"gru.{new}"], np.concatenate([reset, update, fresh]))


def test_what_has_no_twin_stays_as_it_is_and_says_why(tmp_path: Path) -> None:
    path = FIXTURES / "keras" / "keras315_functional.keras"
    source = catalog.read(Artifact(path)).weights
    out = convert(path, tmp_path / "o.pt")
    found, said = weights(out), record(out)["tensors"]
    name = "attention/query/kernel"
    assert np.array_equal(found[name], source[name].numpy())
    assert said[name]["reason"] == "MultiHeadAttention: its heads are not parts of its features"
    assert set(said) == set(found)  # every tensor is named


def test_an_lstm_gets_a_second_bias_of_zeros(tmp_path: Path) -> None:
    out = convert(FIXTURES / "keras" / "tfkeras212_functional.h5", tmp_path / "o.pt")
    found, said = weights(out), record(out)["tensors"]
    assert not found["lstm.bias_hh_l0"].any()
    assert found["lstm.bias_hh_l0"].shape == found["lstm.bias_ih_l0"].shape
    assert said["lstm.bias_hh_l0"] == {"from": [], "layout": "zeros: Keras has one bias, torch two"}


def test_gates_that_stood_apart_in_keras_1_are_joined(tmp_path: Path) -> None:
    path = FIXTURES / "keras" / "keras1_theano_sequential.h5"
    source = catalog.read(Artifact(path)).weights
    out = convert(path, tmp_path / "o.pt")
    found = weights(out)
    parts = [source[f"lstm_1_W_{gate}"].numpy() for gate in "ifco"]
    assert np.array_equal(found["lstm_1.weight_ih_l0"], np.concatenate(parts, 1).T)
    parts = [source[f"lstm_1_b_{gate}"].numpy() for gate in "ifco"]
    assert np.array_equal(found["lstm_1.bias_ih_l0"], np.concatenate(parts))
    assert not [name for name in found if "_W_" in name]
    assert len(record(out)["tensors"]["lstm_1.weight_hh_l0"]["from"]) == 4
    kernel = source["conv_W"].numpy()  # Theano's, turned around, in its own order of axes
    assert sorted(found["conv.weight"].ravel()) == sorted(kernel.ravel())
    assert "Theano" in record(out)["tensors"]["conv.weight"]["layout"]


def test_the_portable_bundle_of_a_keras_model_does_as_well(tmp_path: Path) -> None:
    path = FIXTURES / "keras" / "keras30_sequential.keras"
    converter.convert(path, to="portable", out=tmp_path / "p.portable")
    direct = weights(convert(path, tmp_path / "a.pt"))
    around = weights(convert(tmp_path / "p.portable", tmp_path / "b.pt"))
    assert direct.keys() == around.keys()
    assert all(np.array_equal(direct[n], around[n]) for n in direct)


def test_without_a_topology_names_stay(tmp_path: Path) -> None:
    path = FIXTURES / "keras" / "keras30_functional.weights.h5"
    source = catalog.read(Artifact(path)).weights
    out = convert(path, tmp_path / "o.pt")
    assert weights(out).keys() == source.keys()
    assert "tensors" not in record(out)


def test_a_class_of_its_authors_is_said(tmp_path: Path) -> None:
    out = convert(FIXTURES / "keras" / "keras315_subclassed.keras", tmp_path / "o.pt")
    (warning,) = record(out)["warnings"]
    assert warning == "names and layouts stay Keras's: model class Subclassed of the author"


def test_optimizer_state_keeps_its_names(tmp_path: Path) -> None:
    path = FIXTURES / "keras" / "keras2_sequential.h5"
    leftovers = catalog.read(Artifact(path)).leftovers["optimizer"]
    assert leftovers
    found = weights(convert(path, tmp_path / "o.pt", include=("optimizer",)))
    every = {**found, **_leftovers(tmp_path / "o.pt")}
    assert set(leftovers) <= set(every)
    assert "conv2d_1.weight" in every
    assert model_of(catalog.read(Artifact(path)))


def _leftovers(path: Path) -> dict[str, Tensor]:
    return {n: t for g in catalog.read(Artifact(path)).leftovers.values() for n, t in g.items()}


def test_permuted_tensors_are_lazy_and_right() -> None:
    array = np.arange(2 * 3 * 4 * 5, dtype="f4").reshape(2, 3, 4, 5)
    plain = Tensor.inline(DTYPES["float32"], array.shape, array.tobytes())
    made = Tensor.computed(DTYPES["float32"], array.shape, lambda: [array.tobytes()])
    for tensor in (plain, made):
        for axes in ((3, 2, 0, 1), (0, 1, 2, 3), (1, 0, 3, 2)):
            expected = array.transpose(axes)
            assert np.array_equal(permute(tensor, axes).numpy(), expected)
            flat = permute(tensor, axes, (120,))
            assert np.array_equal(flat.numpy(), expected.reshape(-1))
        assert np.array_equal(reshape(tensor, (6, 20)).numpy(), array.reshape(6, 20))
    assert zeros(plain, (2, 3)).numpy().tolist() == [[0.0] * 3] * 2

    def never() -> list[bytes]:
        raise AssertionError

    lazy = Tensor.computed(DTYPES["float32"], (2, 3), never)
    assert permute(lazy, (1, 0)).shape == (3, 2)  # nothing is read before it is walked
