"""Names of variables in weight stores, against what Keras itself calls them."""

import json

import pytest
from repository import ROOT

from formats.keras.variable_names import Object, candidates, objects, variables

FIXTURE = ROOT / "fixtures" / "keras" / "layer_names.json"
CASES = json.loads(FIXTURE.read_text())["cases"]
OLD_CASES = json.loads(FIXTURE.with_name("layer_names_tf_keras.json").read_text())["cases"]

# The wrapper's own list repeats the wrapped layer's kernel; the repetition keeps its number.
REPEATED = "layers/spectral_normalization/vars/0"


def derived(case, *, recorded, tf_keras=False):
    """Return store path -> derived name."""
    groups: dict[str, list[str]] = {}
    for path in case["stored"]:
        group, _, key = path.rpartition("/vars/")
        groups.setdefault(group, []).append(key)
    known = objects(case["config"], list(groups), tf_keras=tf_keras)
    names = {k.removesuffix("vars").rstrip("/"): v for k, v in case["names"].items()}
    found = {}
    for group, keys in groups.items():
        own = variables(known.get(group), len(keys))
        for key in keys:
            variable = own[int(key)] if own and own[int(key)] else key
            offers = candidates(group, variable, known, names if recorded else {})
            found[f"{group}/vars/{key}"] = offers[0]
    return found


@pytest.mark.parametrize("recorded", [True, False], ids=["names recorded", "config alone"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c["case"])
def test_names_are_those_of_keras(case, recorded):
    expected = {path: fact["path"] for path, fact in case["stored"].items()}
    found = derived(case, recorded=recorded)
    if REPEATED in expected:
        expected[REPEATED] = "the_layer/0"
    assert found == expected


@pytest.mark.parametrize("case", OLD_CASES, ids=lambda c: c["case"])
def test_names_are_those_of_tf_keras(case):
    expected = {path: fact["path"] for path, fact in case["stored"].items()}
    assert derived(case, recorded=False, tf_keras=True) == expected


def test_every_layer_with_variables_was_tried():
    data = json.loads(FIXTURE.read_text())
    tried = {c["case"].split()[0] for c in data["cases"]}
    assert {"Dense", "LSTM", "MultiHeadAttention", "GroupQueryAttention"} <= tried
    # No variables of their own: activations, pooling, merging, reshaping, random image layers.
    assert not {"Conv2D", "BatchNormalization", "Embedding"} & set(data["not_tried"])


def test_what_is_not_certain_keeps_its_number():
    config = {"name": "d", "use_bias": True}
    dense = Object("d", "Dense", config)
    assert variables(dense, 2) == ("kernel", "bias")
    assert variables(dense, 3) == ()  # LoRA, a subclass, whatever it is
    assert variables(Object("d", "", config), 2) == ()
    assert variables(None, 2) == ()
    assert candidates("layers/x", "0", {}, {}) == ["layers/x/0"]


def test_custom_classes_are_never_taken_for_keras_own():
    layer = {
        "module": "my.package",
        "class_name": "Dense",
        "registered_name": "my>Dense",
        "config": {"name": "mine"},
    }
    model = {"class_name": "Sequential", "module": "keras", "config": {"layers": [layer]}}
    known = objects(model, ["layers/dense"])
    assert known["layers/dense"] == Object("mine", "", {"name": "mine"})
    assert candidates("layers/dense", "0", known, {})[0] == "mine/0"


def test_configs_of_any_shape_are_survived():
    for config in (None, 3, [], {}, {"class_name": 3}, {"class_name": "Sequential", "config": 5}):
        assert isinstance(objects(config, ["layers/dense"]), dict)
    loop = {"class_name": "TimeDistributed", "module": "keras.layers", "config": {}}
    deep = loop
    for _ in range(5000):
        deep = {
            "class_name": "TimeDistributed",
            "module": "keras.layers",
            "config": {"layer": deep},
        }
    assert "" in objects(deep, ["layer/layer/layer"])


def test_tf_keras_2_12_lists_layers_with_weights_twice():
    def dense(name):
        return {"class_name": "Dense", "config": {"name": name, "use_bias": True}}

    model = {"class_name": "Functional", "config": {"layers": [dense("a"), dense("b")]}}
    base = "_layer_checkpoint_dependencies"
    known = objects(model, [f"{base}/dense", f"{base}/dense_2"])
    assert known[f"{base}/dense_2"].name == "b"


def test_models_come_into_the_name_only_where_they_must():
    names = {
        "layers/functional": "fn",
        "layers/functional/layers/dense": "dense",
        "layers/functional/layers/dense/x": "x",
    }
    offers = candidates("layers/functional/layers/dense/x", "kernel", {}, names)
    assert offers == [
        "dense/x/kernel",
        "fn/dense/x/kernel",
        "layers/functional/layers/dense/x/kernel",
    ]
