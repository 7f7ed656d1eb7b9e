"""What we cannot lower is said, all of it, before anything is built."""

import pickle
from contextlib import nullcontext
from dataclasses import replace

import pytest

from converter.lower.builder import Builder
from converter.lower.graph import Graph
from converter.lower.keras.lowering import lower
from converter.lower.keras.table import Unsupported, roles_of
from formats.core.bundle import Bundle, Metadata, Topology
from formats.errors import UnsupportedError


def bundle(*layers, **first):
    """A Sequential model of Keras 3: class names with their arguments."""
    shape = {"batch_shape": [None, 4], "dtype": "float32", "name": "x"} | first
    entries = [{"class_name": "InputLayer", "config": shape}]
    entries += [
        {"class_name": kind, "module": "keras.layers", "config": {"name": f"l{i}", **config}}
        for i, (kind, config) in enumerate(layers)
    ]
    config = {"class_name": "Sequential", "config": {"name": "m", "layers": entries}}
    metadata = Metadata("keras", "archive", framework="keras", recorded={"keras_version": "3.15.1"})
    return Bundle(metadata, {}, topology=Topology("keras_config", {}, config))


INT8 = {
    "class_name": "QuantizedDTypePolicy",
    "config": {"mode": "int8", "source_name": "float32"},
}


@pytest.mark.parametrize("policy", [INT8, "int8_from_float32", "float8_from_mixed_bfloat16"])
def test_a_quantised_layer_never_reaches_the_plain_one(policy):
    with pytest.raises(UnsupportedError, match=r"UnitNorm.*: (int8|float8) quantisation, at l0"):
        lower(bundle(("UnitNormalization", {"dtype": policy})))


def test_a_mode_of_quantisation_that_nobody_knows_is_named():
    with pytest.raises(UnsupportedError, match=r"layer class Dense int2, at l0"):
        lower(bundle(("Dense", {"units": 3, "dtype": "int2_from_float32"})))


def of_keras_2(*layers, **first):
    model = bundle(*layers, **first)
    return replace(model, metadata=replace(model.metadata, recorded={"keras_version": "2.15.0"}))


def test_what_keras_2_wraps_around_is_refused():
    size = {"height": 3, "width": 3, "interpolation": "bicubic", "dtype": "uint8"}
    model = of_keras_2(("Resizing", size), batch_shape=[None, 5, 5, 3], dtype="uint8")
    with pytest.raises(UnsupportedError, match=r"'bicubic' to uint8: Keras 2 wraps"):
        lower(model)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_means_of_integers_are_refused_where_keras_2_keeps_them_integers(dtype):
    layer = ("GlobalAveragePooling2D", {})
    model = of_keras_2(layer, batch_shape=[None, 5, 5, 3], dtype=dtype)
    with pytest.raises(UnsupportedError, match=f"whole numbers, {dtype}"):
        lower(model)


@pytest.mark.parametrize(("alpha", "is_refused"), [(3.0, True), (2, False), (None, False)])
def test_the_factor_of_lora_is_the_one_that_keras_loads(alpha, is_refused):
    config = {"lora_rank": 2, "lora_alpha": alpha}
    apart = dict.fromkeys(("kernel", "lora_kernel_a", "lora_kernel_b"), "")
    with pytest.raises(Unsupported, match="lora_alpha 3") if is_refused else nullcontext():
        assert roles_of(Builder(Graph("g", 18), {}), "l0", apart, config).adds_lora
    assert not roles_of(Builder(Graph("g", 18), {}), "l0", {"kernel": ""}, config).adds_lora


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("Softmax", {"axis": 7}),
        ("GroupNormalization", {"groups": 1, "epsilon": "odd"}),
        ("Permute", {"dims": 0}),
        ("ELU", {"alpha": "odd"}),
    ],
)
def test_arguments_that_do_not_fit_are_said_in_a_sentence(kind, config):
    with pytest.raises(UnsupportedError) as caught:
        lower(bundle((kind, config)))
    assert f"Keras {kind}: its inputs and arguments do not go together" in str(caught.value)
    assert ", at l0" in str(caught.value)


def test_all_gaps_are_said_at_once():
    model = bundle(
        ("Dens", {}), ("Dense", {"units": 3, "shape": "round"}), ("Activation", {"activation": "x"})
    )
    with pytest.raises(UnsupportedError) as caught:
        lower(model)
    assert caught.value.found.splitlines() == [
        "not supported:",
        "  Keras layer class Dens, at l0 (near match Dense)",
        "  Keras Dense: argument shape, at l1",
    ]


def test_gaps_found_while_building_name_their_layer():
    with pytest.raises(UnsupportedError, match=r"Activation: activation 'loud', at l0"):
        lower(bundle(("Activation", {"activation": "loud"})))


@pytest.mark.parametrize(
    "kind", ["LeakyReLU", "Softmax", "LayerNormalization", "UnitNormalization"]
)
def test_whole_numbers_into_what_not_every_keras_takes_are_a_gap(kind):
    with pytest.raises(
        UnsupportedError, match=rf"{kind}: whole numbers, int64, as its input, at l0"
    ):
        lower(bundle((kind, {}), dtype="int64"))


@pytest.mark.parametrize("activation", ["linear", "relu"])
def test_whole_numbers_stay_whole_in_activations_that_keep_them(activation):
    graph = lower(bundle(("Activation", {"activation": activation}), dtype="int64"))
    assert [graph.specs[name].dtype for name in graph.outputs] == ["int64"]
    with pytest.raises(UnsupportedError, match="whole numbers"):
        lower(bundle(("Activation", {"activation": "tanh"}), dtype="int64"))


@pytest.mark.parametrize(
    ("wrapper", "kind"), [("Bidirectional", "LSTM"), ("TimeDistributed", "Dense")]
)
def test_a_wrapper_that_computes_in_another_dtype_than_its_layer_is_a_gap(wrapper, kind):
    inner = {
        "class_name": kind,
        "module": "keras.layers",
        "config": {"name": "inner", "units": 3, "dtype": "float32"},
    }
    model = bundle((wrapper, {"layer": inner, "dtype": "float64"}), batch_shape=[None, 5, 4])
    with pytest.raises(UnsupportedError, match=rf"in float64, and {kind} inside it in float32"):
        lower(model)


def test_gaps_are_counted_by_what_is_the_same_in_every_model():
    model = bundle(("Dens", {}), ("Dens", {"units": 7}), ("Dense", {"units": 3, "shape": "round"}))
    with pytest.raises(UnsupportedError) as caught:
        lower(model)
    kinds = {"Keras layer class Dens": 2, "Keras Dense: argument shape": 1}
    assert dict(caught.value.gaps) == kinds
    assert pickle.loads(pickle.dumps(caught.value)).gaps == caught.value.gaps
    with pytest.raises(UnsupportedError) as caught:
        lower(bundle(("Activation", {"activation": "loud"})))
    assert dict(caught.value.gaps) == {"Keras Activation: activation 'loud'": 1}
