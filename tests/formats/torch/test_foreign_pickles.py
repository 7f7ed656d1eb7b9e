"""Pickles of other libraries are named for what they are, and nothing of them is converted."""

import pickle
import sys
import types
import zlib

import numpy as np
import pytest

import converter
from converter.cli.app import run
from formats.errors import UnknownFormatError, UnsupportedError


def make_instance(monkeypatch, name, **attributes):
    """Return an object of a class that pickles under this dotted name."""
    module, _, cls = name.rpartition(".")
    parts = module.split(".")
    for i in range(len(parts)):
        path = ".".join(parts[: i + 1])
        monkeypatch.setitem(sys.modules, path, types.ModuleType(path))
    made = type(cls, (), {"__module__": module})
    setattr(sys.modules[module], cls, made)
    found = made()
    vars(found).update(attributes)
    return found


ESTIMATOR = {"_sklearn_version": "1.5.2", "coef_": np.ones((2, 3)), "n_features_in_": 3}


@pytest.mark.parametrize(
    ("name", "attributes", "said"),
    [
        ("sklearn.linear_model._base.LinearRegression", ESTIMATOR, "of scikit-learn 1.5.2"),
        ("sklearn.tree._tree.Tree", {"values": np.ones(3)}, "of scikit-learn"),
        ("xgboost.core.Booster", {"handle": b"..."}, "xgboost.core.Booster of XGBoost"),
        ("lightgbm.basic.Booster", {"a": np.ones(2)}, "of LightGBM"),
        ("my.own.Thing", {"weights": np.ones(3)}, "is a pickle of a my.own.Thing, not"),
    ],
)
def test_an_object_is_named(monkeypatch, tmp_path, name, attributes, said):
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(make_instance(monkeypatch, name, **attributes)))
    with pytest.raises(UnsupportedError, match=said):
        converter.read(path)
    out = tmp_path / "out.safetensors"
    assert run(["SOURCE", str(path), "--to", "safetensors", "-o", str(out)]) == 4
    assert not out.exists()


def test_an_object_inside_a_dict_is_named(monkeypatch, tmp_path):
    scaler = make_instance(monkeypatch, "sklearn.preprocessing._data.StandardScaler", **ESTIMATOR)
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps({"w": np.ones(3), "scaler": scaler}))
    with pytest.raises(UnsupportedError, match=r"objects of scikit-learn \(sklearn\.preprocessing"):
        converter.read(path)


def test_a_dict_of_arrays_is_a_checkpoint(tmp_path):
    path = tmp_path / "weights.pkl"
    path.write_bytes(pickle.dumps({"w": np.ones((2, 3), "f4"), "steps": 3}))
    assert list(converter.read(path).weights) == ["w"]


@pytest.mark.parametrize("value", [{"a": [1, 2]}, {"w": np.zeros(3, [("a", "f4"), ("b", "i4")])}])
def test_a_pickle_without_tensors_is_unsupported(tmp_path, value):
    path = tmp_path / "weights.pkl"
    path.write_bytes(pickle.dumps(value))
    out = str(tmp_path / "out.safetensors")
    assert run(["SOURCE", str(path), "--to", "safetensors", "-o", out]) == 4


def test_a_compressed_pickle_is_named(tmp_path):
    path = tmp_path / "model.joblib"
    path.write_bytes(zlib.compress(pickle.dumps({"w": np.ones(3)})))
    with pytest.raises(UnknownFormatError, match="a compressed pickle, as joblib writes"):
        converter.read(path)
