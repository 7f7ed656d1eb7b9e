"""What is inside layers: activations, wrapped layers, cells. And whose a class of a name is.

Lowerings need no Keras; classes and functions of Keras 3 and of tf_keras are compared with what
their Keras computes, in the Python that has it.
"""

import json
from functools import partial

import numpy as np
import onnx_run
import pytest
from keras_bundles import bundle as bundle_of
from keras_bundles import entry
from repository import SUPPORT

from converter.child.trust import Trusted
from converter.cli.app import run
from converter.lower.keras.lowering import lower
from formats.errors import UnsupportedError

FOLDER = SUPPORT / "trust"
bundle = partial(bundle_of, shape=(None, 5, 3))
LOWERINGS = (Trusted("lowerings_inside", FOLDER / "lowerings_inside.py"),)
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(2, 5, 3)).astype("float32")


def random(*shape):
    return RANDOM.normal(size=shape).astype("float32")


def computed(source, x=X, trust=LOWERINGS):
    graph = lower(source, trust=trust)
    return onnx_run.run(graph, x, weights=source.weights)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# -- lowerings -----------------------------------------------------------------------------------

KERAS_3 = {"module": "builtins", "class_name": "function", "registered_name": "function"}


@pytest.mark.parametrize(
    "spec", ["my_swish", "my_package>my_swish", {**KERAS_3, "config": "my_package>my_swish"}]
)
def test_an_activation_by_its_name(spec):
    kernel, bias = random(3, 4), random(4)
    layers = [
        entry("Activation", "a", activation=spec),
        entry("Dense", "d", units=4, activation=spec),
    ]
    (y,) = computed(bundle(*layers, weights={"d/kernel": kernel, "d/bias": bias}))
    x = X * sigmoid(0.5 * X) @ kernel + bias
    np.testing.assert_allclose(y, x * sigmoid(0.5 * x), rtol=1e-5, atol=1e-5)


def test_an_activation_of_a_recurrence():
    w = {"l/kernel": random(3, 8), "l/recurrent_kernel": random(2, 8), "l/bias": random(8)}
    layer = entry("LSTM", "l", units=2, activation="my_swish", recurrent_activation="swish")
    (y,) = computed(bundle(layer, weights=w))
    h, c = np.zeros((2, 2), "float32"), np.zeros((2, 2), "float32")

    def gate(x):
        return x * sigmoid(1.5 * x)

    def act(x):
        return x * sigmoid(0.5 * x)

    for t in range(5):
        i, f, g, o = np.split(
            X[:, t] @ w["l/kernel"] + h @ w["l/recurrent_kernel"] + w["l/bias"], 4, -1
        )
        c = gate(f) * c + gate(i) * act(g)
        h = gate(o) * act(c)
    np.testing.assert_allclose(y, h, rtol=1e-4, atol=1e-5)


def test_a_name_of_keras_is_keras_in_files_that_would_say_otherwise():
    layer = entry("Activation", "a", activation="swish")
    (old,) = computed(bundle(layer))
    np.testing.assert_allclose(old, X * sigmoid(1.5 * X), rtol=1e-5, atol=1e-6)
    (new,) = computed(bundle(layer, version="3.15.0"))
    np.testing.assert_allclose(new, X * sigmoid(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spec", ["mine", {**KERAS_3, "config": "my_package>mine"}])
def test_an_activation_that_nobody_has_is_named(spec):
    for trust in ((), LOWERINGS):
        with pytest.raises(UnsupportedError, match=r"activation '.*mine', at a") as found:
            lower(bundle(entry("Activation", "a", activation=spec)), trust=trust)
        assert "trust=['MODULE=PATH']" in found.value.hint


@pytest.mark.parametrize("kind", ["LeakyReLU", "my_package>LeakyReLU"])
def test_an_authors_activation_is_not_taken_for_one_of_keras(kind):
    spec = {"class_name": kind, "module": "mine", "config": {"alpha": 0.1}}
    with pytest.raises(UnsupportedError, match="LeakyReLU' of mine"):
        lower(bundle(entry("Activation", "a", activation=spec)))


def test_a_layer_in_time_distributed():
    scale = random(3)
    layer = entry("TimeDistributed", "t", layer=entry("Scaled", "s", alpha=0.5))
    (y,) = computed(bundle(layer, weights={"t/scale": scale}))
    np.testing.assert_allclose(y, X * scale * 0.5, rtol=1e-6)
    layer = entry("TimeDistributed", "t", layer=entry("Scaled", "s", alpha=-0.5))
    with pytest.raises(UnsupportedError, match=r"TimeDistributed: alpha -0.5, at t"):
        lower(bundle(layer), trust=LOWERINGS)
    layer = entry("TimeDistributed", "t", layer=entry("Scaled", "s", beta=1))
    with pytest.raises(UnsupportedError, match="argument beta of Scaled inside it"):
        lower(bundle(layer), trust=LOWERINGS)


def minimal_steps(w, x, backwards=False):
    h, found = np.zeros((len(x), 4), "float32"), []
    for t in reversed(range(5)) if backwards else range(5):
        h = np.tanh(x[:, t] @ w["kernel"] + h @ w["recurrent"])
        found.append(h)
    return np.stack(found, 1)


@pytest.mark.parametrize("backwards", [False, True])
def test_a_cell(backwards):
    w = {"kernel": random(3, 4), "recurrent": random(4, 4)}
    config = {"cell": entry("Minimal", "c", units=4), "return_sequences": True}
    layer = entry("RNN", "r", **config, go_backwards=backwards)
    (y,) = computed(bundle(layer, weights={f"r/{k}": v for k, v in w.items()}))
    np.testing.assert_allclose(y, minimal_steps(w, X, backwards), rtol=1e-5, atol=1e-6)


def test_a_cell_in_bidirectional():
    w = {d: {"kernel": random(3, 4), "recurrent": random(4, 4)} for d in ("forward", "backward")}
    inner = entry("RNN", "r", cell=entry("Minimal", "c", units=4), return_sequences=True)
    weights = {f"b/{d}_r/{k}": v for d, own in w.items() for k, v in own.items()}
    (y,) = computed(bundle(entry("Bidirectional", "b", layer=inner), weights=weights))
    back = minimal_steps(w["backward"], X, backwards=True)[:, ::-1]
    right = np.concatenate([minimal_steps(w["forward"], X), back], -1)
    np.testing.assert_allclose(y, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("sequences", [False, True])
def test_a_cell_whose_output_is_no_state(masked, stacked, sequences):
    x = X.copy()
    if masked:
        x[0, 2:4] = 0
    w, v = {"kernel": random(3, 4)}, {"kernel": random(5, 4), "recurrent": random(4, 4)}
    cell = entry("Apart", "a", units=4, more=1)
    weights = {f"r/a/{k}": a for k, a in w.items()}
    if stacked:
        cell = entry("StackedRNNCells", "s", cells=[cell, entry("Minimal", "m", units=4)])
        weights |= {f"r/m/{k}": a for k, a in v.items()}
    layer = entry("RNN", "r", cell=cell, return_sequences=sequences)
    mask = [entry("Masking", "mask")] if masked else []
    (y,) = computed(bundle(*mask, layer, weights=weights), x)
    h, c, m = np.zeros((2, 4), "float32"), np.zeros((2, 1), "float32"), np.zeros((2, 4), "float32")
    out, found = np.zeros((2, 4 if stacked else 5), "float32"), []
    for t in range(5):
        counts = (x[:, t] != 0).any(-1, keepdims=True)
        h_new = np.tanh(x[:, t] @ w["kernel"] + h)
        c_new = 0.5 * c + h_new.mean(-1, keepdims=True)
        made = np.concatenate([c_new, h_new], -1)
        if stacked:
            made = m_new = np.tanh(made @ v["kernel"] + m @ v["recurrent"])
            m = np.where(counts, m_new, m)
        h, c, out = (
            np.where(counts, h_new, h),
            np.where(counts, c_new, c),
            np.where(counts, made, out),
        )
        found.append(out)
    right = np.stack(found, 1) if sequences else out
    np.testing.assert_allclose(y, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        (entry("Unsaid", "c"), "cell Unsaid, whose lowering does not name its states"),
        (entry("Short", "c", units=4), "cell Short returns 1 tensors, not 2"),
        (entry("Minimal", "c", units=None), "units=None of Minimal, which is to size a state"),
        (entry("Minimal", "c", units=4, more=1), "argument more of Minimal inside it"),
        (entry("Nobody", "c"), "cell Nobody"),
        (entry("LSTMCell", "c", units=2) | {"module": "mine"}, "cell LSTMCell"),
    ],
)
def test_cells_that_are_none(cell, complaint):
    with pytest.raises(UnsupportedError, match=complaint):
        lower(bundle(entry("RNN", "r", cell=cell)), trust=LOWERINGS)


# -- whose a class is ----------------------------------------------------------------------------


def test_weights_that_keras_does_not_use_say_that_a_class_is_anothers():
    weights = {"a/W": random(3), "a/b": random(5)}
    with pytest.raises(UnsupportedError) as caught:
        lower(bundle(entry("Flatten", "a"), entry("Flatten", "b"), weights=weights))
    said = "that is not Keras's own, at a (Keras's own does not use its W [3], b [5])"
    assert said in str(caught.value)
    assert "at b" not in str(caught.value)
    assert "trust=['MODULE=PATH']" in caught.value.hint


def test_weights_more_than_keras_has():
    w = {"d/kernel": random(3, 4), "d/bias": random(4)}
    (y,) = computed(bundle(entry("Dense", "d", units=4), weights=w), trust=())
    np.testing.assert_allclose(y, X @ w["d/kernel"] + w["d/bias"], rtol=1e-4, atol=1e-5)
    more = w | {"d/temperature": random(1)}
    with pytest.raises(UnsupportedError, match=r"Dense .*at d .*temperature \[1\]"):
        lower(bundle(entry("Dense", "d", units=4), weights=more))
    with pytest.raises(UnsupportedError, match=r"Dense .*at d .*bias \[4\]"):
        lower(bundle(entry("Dense", "d", units=4, use_bias=False), weights=w))


@pytest.mark.parametrize(
    ("shapes", "complaint"),
    [
        (((5, 4), (4,)), r"a kernel \[5, 4\] for 3 features"),
        (((4, 3), (4,)), r"a kernel \[4, 3\] where its arguments say \[None, 4\]"),
        (((3, 4), (3,)), r"a bias \[3\] for a kernel \[3, 4\]"),
    ],
)
def test_weights_of_other_shapes_than_keras_has(shapes, complaint):
    weights = {"d/kernel": random(*shapes[0]), "d/bias": random(*shapes[1])}
    with pytest.raises(UnsupportedError, match=complaint):
        lower(bundle(entry("Dense", "d", units=4), weights=weights))


def test_a_kernel_of_another_size_than_a_convolution_has():
    weights = {"c/kernel": random(3, 3, 4), "c/bias": random(4)}
    layer = entry("Conv1D", "c", filters=4, kernel_size=[3])
    lower(bundle(layer, weights=weights))
    for change in ({"filters": 2}, {"kernel_size": [2]}):
        other = entry("Conv1D", "c", **{"filters": 4, "kernel_size": [3], **change})
        with pytest.raises(UnsupportedError, match=r"a kernel \[3, 3, 4\] where its arguments say"):
            lower(bundle(other, weights=weights))


def test_a_bundle_keeps_the_weights_of_a_class_that_is_anothers(tmp_path, capsys):
    h5py = pytest.importorskip("h5py")
    source = bundle(entry("Attention", "att"))
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.attrs["model_config"] = json.dumps(source.topology.content)
        file.attrs["keras_version"], file.attrs["backend"] = "2.2.4", "tensorflow"
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = [b"att"]
        for name in ("W", "b"):
            group.create_dataset(f"att/att/{name}:0", data=random(3))
        group["att"].attrs["weight_names"] = [b"att/W:0", b"att/b:0"]
    out = tmp_path / "out.portable"
    assert run(["SOURCE", str(tmp_path / "m.h5"), "-o", str(out), "--verify", "weights"]) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert len(manifest["tensors"]) == 2
    assert not (out / "model.onnx").exists()
    command = ["SOURCE", str(tmp_path / "m.h5"), "--to", "onnx", "-o", str(tmp_path / "m.onnx")]
    assert run(command) == 4
    assert not (tmp_path / "m.onnx").exists()
