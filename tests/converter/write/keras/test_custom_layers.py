"""Layers of trusted modules are kept in a `.keras` file, with their weights."""

import pytest
from repository import ROOT, SUPPORT

import converter
from converter.child.trust import Trusted
from converter.lower.keras.table import Unsupported
from converter.write.keras.custom_layers import find_custom_layers, locate_weights
from formats.core.weights import Tensor

TRUST = SUPPORT / "trust"
FIXTURES = ROOT / "fixtures" / "keras"


def tensor(origin):
    return Tensor.inline(FLOAT, (1,), b"\0" * 4, origin=origin)


FLOAT = converter.read(FIXTURES / "keras315_functional.h5").weights
FLOAT = next(t.dtype for t in FLOAT.values() if t.dtype.name == "float32")


def test_weights_stand_below_a_layer_as_they_stood():
    tensors = {
        "m/a/kernel": tensor("/layers/functional/layers/mine/vars/0"),
        "m/a/inner/bias": tensor("/layers/functional/layers/mine/parts/layers/dense/vars/1"),
    }
    weights = {"kernel": "m/a/kernel", "inner/bias": "m/a/inner/bias"}
    assert locate_weights(("m", "a"), weights, tensors) == {
        "m/a/kernel": "vars/0", "m/a/inner/bias": "parts/layers/dense/vars/1"
    }  # fmt: skip


def test_of_an_h5_file_only_what_is_the_layers_own_has_a_place():
    tensors = {"a/k": tensor("/model_weights/a/a/k"), "a/d/k": tensor("/model_weights/a/a/d/k")}
    assert locate_weights(("a",), {"k": "a/k"}, tensors) == {"a/k": "vars/0"}
    with pytest.raises(Unsupported, match="does not say which part"):
        locate_weights(("a",), {"d/k": "a/d/k"}, tensors)


def test_without_trust_or_before_keras_3_there_are_none():
    source = converter.read(FIXTURES / "keras315_functional.keras")
    old = converter.read(FIXTURES / "tfkeras24_functional.h5")
    assert find_custom_layers(None, source, ()) == {}
    assert find_custom_layers(None, old, (Trusted("layers", TRUST / "layers.py"),)) == {}
