"""What stands inside layers: activations, wrapped layers, cells. And whose a class of a name is.

Lowerings need no Keras; classes and functions of Keras 3 and of tf_keras are compared with what
their Keras computes, in the Python that has it.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from repository import SUPPORT

import converter
from converter.child.process import PYTHON_VARIABLE
from converter.child.trust import Trusted
from converter.cli.app import run
from converter.lower import emit
from converter.lower.keras.lowering import lower
from converter.reading import read
from formats.core.bundle import Bundle, Metadata, Topology
from formats.core.weights import DTYPES, Tensor
from formats.errors import UnsupportedError

onnxruntime = pytest.importorskip("onnxruntime")

FOLDER = SUPPORT / "trust"
LOWERINGS = (Trusted("lowerings_inside", FOLDER / "lowerings_inside.py"),)
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(2, 5, 3)).astype("float32")


def entry(kind, name, **config):
    return {"class_name": kind, "config": {"name": name, **config}}


def bundle(*layers, shape=(None, 5, 3), weights=None, version="2.9.0"):
    first = entry("InputLayer", "x", batch_input_shape=list(shape), dtype="float32")
    config = {"class_name": "Sequential", "config": {"name": "m", "layers": [first, *layers]}}
    metadata = Metadata("keras", "archive", framework="keras", recorded={"keras_version": version})
    tensors = {
        name: Tensor.inline(DTYPES[a.dtype.name], a.shape, a.tobytes())
        for name, a in (weights or {}).items()
    }
    return Bundle(metadata, tensors, topology=Topology("keras_config", {}, config))


def random(*shape):
    return RANDOM.normal(size=shape).astype("float32")


def computed(source, x=X, trust=LOWERINGS):
    graph = lower(source, trust=trust)
    pieces = emit.model(graph, source.weights).pieces()
    model = b"".join(bytes(p if isinstance(p, bytes) else p.read()) for p in pieces)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})


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
        with pytest.raises(
            UnsupportedError, match=r"activation '.*mine' \(Activation a\)"
        ) as found:
            lower(bundle(entry("Activation", "a", activation=spec)), trust=trust)
        assert "--trust MODULE=PATH" in found.value.hint


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
    with pytest.raises(UnsupportedError, match=r"alpha -0.5 \(.*TimeDistributed t\)"):
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
    said = "layer class Flatten (a): Keras's own does not use its W [3], b [5]"
    assert said in str(caught.value)
    assert "Flatten (b)" not in str(caught.value)
    assert "--trust MODULE=PATH" in caught.value.hint


def test_weights_more_than_keras_has():
    w = {"d/kernel": random(3, 4), "d/bias": random(4)}
    (y,) = computed(bundle(entry("Dense", "d", units=4), weights=w), trust=())
    np.testing.assert_allclose(y, X @ w["d/kernel"] + w["d/bias"], rtol=1e-4, atol=1e-5)
    more = w | {"d/temperature": random(1)}
    with pytest.raises(UnsupportedError, match=r"Dense \(d\): .* temperature \[1\]"):
        lower(bundle(entry("Dense", "d", units=4), weights=more))
    with pytest.raises(UnsupportedError, match=r"Dense \(d\): .* bias \[4\]"):
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


# -- classes and functions, in Keras -------------------------------------------------------------

has_keras = [
    pytest.mark.keras,
    pytest.mark.usefixtures("warm_tensorflow"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not os.environ.get(PYTHON_VARIABLE) and importlib.util.find_spec("keras") is None,
        reason="needs Keras",
    ),
]
RIGHT = {
    "inside": ("functions", "wrapped", "cells", "whole", "pairs"),
    "legacy": ("attended", "block", "looked", "shared"),
}
GAPS = {
    "undecided": "cannot be traced",
    "by_chance": "computes with weights or random numbers what Keras does not record",
    "started": "cell Started: starts with states that are not zero",
    "counted": "cannot be traced: changes its variables",
}
MODULE = {name: module for module, names in RIGHT.items() for name in names}
MODULE |= {name: "legacy" if name == "counted" else "inside" for name in GAPS}
FORMS = [(name, "h5" if name in ("wrapped", *RIGHT["legacy"]) else "keras") for name in MODULE]
FORMS = [(name, form) for name, form in FORMS if name not in GAPS]


@pytest.fixture(scope="module")
def models(tmp_path_factory, warm_tensorflow):
    """Write the models, with weights that are none of the initial ones, and what Keras makes."""
    folder = tmp_path_factory.mktemp("models")
    python = os.environ.get(PYTHON_VARIABLE) or sys.executable
    for module in RIGHT:
        names = [name for name, of in MODULE.items() if of == module]
        command = [python, str(FOLDER / f"make_{module}.py"), str(folder), *names]
        which = {"TF_USE_LEGACY_KERAS": "1"} if module == "legacy" else {}
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | which)
        assert done.returncode == 0, done.stderr[-2000:]
    return folder


def trusted(name):
    return (Trusted(MODULE[name], FOLDER / f"{MODULE[name]}.py"),)


NOT_RECORDED = "computes with weights or random numbers what Keras does not record"
ODD = {
    "gives_nothing": "returns NoneType, no tensor of its inputs",
    "gives_a_number": "outputs must be tensors",
    "gives_an_array": "outputs must be tensors",
    "raises": "no such luck",
    "leaves": "SystemExit: 0",
    "counts": NOT_RECORDED,
    "by_chance": NOT_RECORDED,
    "decides": "as a Python `bool` is not allowed",
    "loops": "KerasTensor",
    "init": "no such luck",
    "build": "no such luck",
    "call": "no such luck",
    "argument": "Unrecognized keyword arguments passed to Fails: {'beside': 1}",
    "chance": NOT_RECORDED,
}
DONE = {
    "by_chance_in_tensorflow": ["InputLayer", "Relu", "RandomUniform", "Mul"],  # a gap in lowering
    "calls_a_function": ["InputLayer", "Square", "AddV2"],
    "table": ["InputLayer", "Add"],
    "training": ["InputLayer", "Dropout"],
}


class TestInKeras:
    pytestmark = has_keras

    @pytest.mark.parametrize(("name", "form"), FORMS)
    def test_what_a_module_has_is_what_keras_makes_of_it(self, models, name, form):
        out = models / f"{name}.{form}.onnx"
        options = converter.Options(trust=trusted(name), verify="none")
        converter.convert(models / f"{name}.{form}", to="onnx", out=out, options=options)
        kept = np.load(models / f"{name}.npz")
        session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
        given = {i.name: kept[f"x{n}"] for n, i in enumerate(session.get_inputs())}
        found = session.run(None, given)
        assert len(found) == sum(key.startswith("y") for key in kept)
        for n, y in enumerate(found):
            scale = np.abs(kept[f"y{n}"]).max()
            np.testing.assert_allclose(y, kept[f"y{n}"], rtol=0, atol=1e-5 * scale)

    def test_an_old_file_of_an_authors_model_has_no_shapes(self, models):
        with pytest.raises(UnsupportedError, match="Whole without the shapes of its inputs"):
            lower(read(models / "whole.h5"), trust=trusted("whole"))

    @pytest.mark.parametrize("module", ["standalone", "updated"])
    def test_code_for_the_keras_that_was_no_part_of_tensorflow(self, module):
        weight = random(3, 1)
        source = bundle(entry("Weighted", "w", power=3), weights={"w/W": weight}, version="2.2.4")
        (y,) = computed(source, trust=(Trusted(module, FOLDER / f"{module}.py"),))
        share = np.exp((X @ weight)[..., 0])
        share /= share.sum(-1, keepdims=True)
        np.testing.assert_allclose(y, (X**3 * share[..., None]).sum(1), rtol=1e-4, atol=1e-5)

    def test_code_that_does_what_it_should_not_is_a_gap(self):
        python = os.environ.get(PYTHON_VARIABLE) or sys.executable
        command = [python, str(FOLDER / "odd.py"), str(Path(converter.__file__).parents[1])]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        found = json.loads(done.stdout.splitlines()[-1])
        assert found.keys() == ODD.keys() | DONE.keys()
        for name, complaint in ODD.items():
            status, gap, _ = found[name]
            assert status == "gap"
            assert complaint in gap
            assert gap.isprintable()
        for name, ops in DONE.items():
            assert found[name] == ["done", "", ops]

    def test_a_model_of_an_authors_class_is_compared_in_keras(self, models, tmp_path, capsys):
        trust = ["--trust", f"inside={FOLDER / 'inside.py'}"]
        command = ["SOURCE", str(models / "pairs.keras"), "--to", "onnx", *trust]
        assert run([*command, "-o", str(tmp_path / "m.onnx"), "--require", "cpu"]) == 0
        assert "2 outputs" in capsys.readouterr().err

    @pytest.mark.parametrize("name", GAPS)
    def test_what_cannot_be_traced_is_a_gap(self, models, name):
        form = "h5" if name == "counted" else "keras"
        with pytest.raises(UnsupportedError, match=GAPS[name]):
            lower(read(models / f"{name}.{form}"), trust=trusted(name))
