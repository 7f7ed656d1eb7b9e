"""Recurrent layers mean the same in every front end: LSTM and GRU, from one set of weights.

The reference keeps gates apart, by ONNX's letters; each spelling joins them in its own order.
"""

import numpy as np
import onnx_run
import pytest
import spellings as s

RANDOM = np.random.default_rng(5)
FEATURES, UNITS, STEPS, BATCH = 3, 4, 5, 2
ORDERS = {"keras LSTM": "ifco", "keras GRU": "zrh", "torch LSTM": "ifco", "torch GRU": "rzh"}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def drawn(gates):
    """Return for each gate: kernel, recurrent kernel, and two biases."""
    shapes = (FEATURES, UNITS), (UNITS, UNITS), (UNITS,), (UNITS,)
    return {g: [RANDOM.normal(size=n).astype("float32") for n in shapes] for g in gates}


def lstm(x, weights, h, c):
    outputs = []
    for step in x.swapaxes(0, 1):
        i, o, f, g = (step @ w + h @ u + a + b for w, u, a, b in (weights[k] for k in "iofc"))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs, 1)


def gru(x, weights, h, reset_after=True):
    outputs = []
    for step in x.swapaxes(0, 1):
        z, r = (sigmoid(step @ w + h @ u + a + b) for w, u, a, b in (weights[k] for k in "zr"))
        w, u, a, b = weights["h"]
        inner = r * (h @ u + b) if reset_after else (r * h) @ u + b
        h = z * h + (1 - z) * np.tanh(step @ w + a + inner)
        outputs.append(h)
    return np.stack(outputs, 1)


def joined(weights, order, part, axis=-1):
    return np.concatenate([weights[gate][part] for gate in order], axis)


def torch(folder, kind, x, weights, *, is_reversed=False):
    """Return the outputs of torch.lstm or torch.gru, whose weights and states are inputs."""
    order = ORDERS[f"torch {kind}"]
    ways = 2 if is_reversed else 1
    parts = [joined(weights, order, 0).T, joined(weights, order, 1).T,
             joined(weights, order, 2), joined(weights, order, 3)]  # fmt: skip
    parts = [np.ascontiguousarray(part) for part in parts]
    inputs = [x, np.zeros((ways, BATCH, UNITS), "float32"), *parts]
    names = ", ".join(["x2, x3, x4, x5"] * ways)
    states = "[x1, x1]" if kind == "LSTM" else "x1"
    both = "True" if is_reversed else "False"
    call = f"torch.{kind.lower()}(x0, {states}, [{names}], True, 1, 0., False, {both}, True)"
    made = "_0, _1, _2" if kind == "LSTM" else "_0, _1"
    specs = [(v.dtype.name, v.shape) for v in inputs]
    graph, held = s.torch_script(folder, [f"{made} = {call}", "return _0"], specs)
    return onnx_run.run(graph, *inputs, weights=held)[0]


def keras(folder, kind, x, weights, *, steps=STEPS, **config):
    order = ORDERS[f"keras {kind}"]
    bias = [joined(weights, order, part) for part in (2, 3)]
    two = kind == "GRU" and config.get("reset_after", True)
    held = {
        "made/kernel": joined(weights, order, 0),
        "made/recurrent_kernel": joined(weights, order, 1),
        "made/bias": np.stack(bias) if two else bias[0] + bias[1],
    }  # fmt: skip
    config = {"units": UNITS, "return_sequences": True, **config}
    specs = [("float32", (None, steps, FEATURES))]
    graph, held = s.keras_layer(folder, kind, specs, config, held)
    return onnx_run.run(graph, x, weights=held)[0]


X = RANDOM.normal(size=(BATCH, STEPS, FEATURES)).astype("float32")
ZERO = np.zeros((BATCH, UNITS))


@pytest.mark.parametrize("steps", [STEPS, None])
def test_lstm(steps, tmp_path):
    weights = drawn("iofc")
    expected = lstm(X, weights, ZERO, ZERO)
    for found in (
        torch(tmp_path, "LSTM", X, weights), keras(tmp_path, "LSTM", X, weights, steps=steps),
    ):  # fmt: skip
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("steps", [STEPS, None])
def test_gru(steps, tmp_path):
    weights = drawn("zrh")
    expected = gru(X, weights, ZERO)
    for found in (
        torch(tmp_path, "GRU", X, weights), keras(tmp_path, "GRU", X, weights, steps=steps),
    ):  # fmt: skip
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_gru_whose_reset_is_before_the_product(tmp_path):
    weights = drawn("zrh")
    found = keras(tmp_path, "GRU", X, weights, reset_after=False)
    expected = gru(X, weights, ZERO, reset_after=False)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    # TensorFlow's op takes the gates r and u (which is z) together.
    kernel = [np.concatenate([joined(weights, g, 0), joined(weights, g, 1)]) for g in ("rz", "h")]
    bias = [joined(weights, g, 2) + joined(weights, g, 3) for g in ("rz", "h")]
    specs = [("float32", (None, FEATURES)), ("float32", (None, UNITS))]
    graph, held = s.tensorflow(
        tmp_path, "GRUBlockCell", specs, constants=[*kernel, *bias], output="y:3"
    )
    (found,) = onnx_run.run(graph, X[:, 0], ZERO.astype("float32"), weights=held)
    np.testing.assert_allclose(found, expected[:, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", "iofc"), ("GRU", "zrh")])
def test_both_directions(kind, gates, tmp_path):
    weights = drawn(gates)
    function = (lambda x: lstm(x, weights, ZERO, ZERO)) if kind == "LSTM" else (
        lambda x: gru(x, weights, ZERO))  # fmt: skip
    expected = np.concatenate([function(X), function(X[:, ::-1])[:, ::-1]], -1)
    found = torch(tmp_path, kind, X, weights, is_reversed=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    found = keras(tmp_path, kind, X, weights, go_backwards=True)
    np.testing.assert_allclose(found, expected[:, ::-1, UNITS:], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", "iofc"), ("GRU", "zrh")])
def test_scan_computes_what_the_operator_does(kind, gates, tmp_path):
    """Float64 goes step by step, through `lstm_step` and `gru_step`."""
    weights = drawn(gates)
    single = keras(tmp_path, kind, X, weights)
    wide = {gate: [part.astype("float64") for part in parts] for gate, parts in weights.items()}
    function = lstm(X, wide, ZERO, ZERO) if kind == "LSTM" else gru(X, wide, ZERO)
    order = ORDERS[f"keras {kind}"]
    bias = [joined(wide, order, part) for part in (2, 3)]
    held = {
        "made/kernel": joined(wide, order, 0), "made/recurrent_kernel": joined(wide, order, 1),
        "made/bias": np.stack(bias) if kind == "GRU" else sum(bias),
    }  # fmt: skip
    config = {"units": UNITS, "return_sequences": True}
    specs = [("float64", (None, STEPS, FEATURES))]
    graph, held = s.keras_layer(tmp_path, kind, specs, config, held)
    assert "Scan" in {node.op_type for node in graph.nodes}
    (found,) = onnx_run.run(graph, X.astype("float64"), weights=held)
    np.testing.assert_allclose(found, function, rtol=1e-12)
    np.testing.assert_allclose(found, single, rtol=1e-5, atol=1e-6)
