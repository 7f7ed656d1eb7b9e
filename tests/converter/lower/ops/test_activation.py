"""Activations mean the same in every front end: one reference in NumPy, edges included.

A row is a function of x, and how each front end spells it. What frameworks do not agree about (NaN
in thresholds) is the reference of its own rows.
"""

import math

import numpy as np
import onnx_run
import pytest
import spellings as s

X = [0.0, -0.0, 1e-6, 0.3, -0.3, 0.5, -0.5, 1.0, -1.0, 2.5, -2.5, 3.0, -3.0, 6.0, -6.0, 20.0, -20.0,
     100.0, -100.0, 1e4, -1e4, 1e20, -1e20, math.inf, -math.inf, math.nan]  # fmt: skip
TOLERANCE = {"float16": 2e-3, "float32": 4e-6, "float64": 1e-9}


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def shrink(x, threshold, bias):
    return np.where(np.abs(x) > threshold, x - np.sign(x) * bias, 0)


def keeping_nan(function):
    return lambda x: np.where(np.isnan(x), x, function(x))


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def log_softmax(x):
    away = x - x.max(-1, keepdims=True)
    return away - np.log(np.exp(away).sum(-1, keepdims=True))


def erf(x):
    return np.vectorize(math.erf, otypes=["float64"])(x)


def glu(x):
    a, b = np.split(x, 2, -1)
    return a * sigmoid(b)


def keras(name, **config):
    """Return the spelling of an activation by its name, or of an operation with arguments."""
    if config:
        return lambda folder, specs: s.keras_operation(folder, name, specs, "nn", config)
    return lambda folder, specs: s.keras_layer(folder, "Activation", specs, {"activation": name})


def layer(name, **config):
    return lambda folder, specs: s.keras_layer(folder, name, specs, config)


def tf(name, **options):
    return lambda folder, specs: s.tensorflow(folder, name, specs, **options)


def torch(call):
    return lambda folder, specs: s.torch_script(folder, f"torch.{call}", specs)


# Name: reference, and spellings by front end.
ROWS = {
    "relu": (lambda x: np.maximum(x, 0),
             {"keras": keras("relu"), "tf": tf("Relu"), "torch": torch("relu(x0)")}),
    "relu with a threshold": (lambda x: np.where(x > 1, x, 0),
                              {"keras": layer("ReLU", threshold=1.0)}),
    "relu with all": (
        lambda x: np.where(x > 1, np.clip(x, 0, 5), 0.1 * (x - 1)),
        {"keras": layer("ReLU", threshold=1.0, max_value=5.0, negative_slope=0.1)},
    ),
    "thresholded relu": (lambda x: x * (x > 1), {"keras": layer("ThresholdedReLU", theta=1.0)}),
    "relu6": (lambda x: np.clip(x, 0, 6),
              {"keras": keras("relu6"), "tf": tf("Relu6"), "torch": torch("relu6(x0)")}),
    "hard tanh": (lambda x: np.clip(x, -1, 1),
                  {"keras": keras("hard_tanh"), "torch": torch("hardtanh(x0)")}),
    "leaky relu": (lambda x: np.where(x > 0, x, 0.25 * x),
                   {"keras": keras("LeakyRelu", negative_slope=0.25),
                    "torch": torch("leaky_relu(x0, 0.25)")}),
    "elu": (lambda x: np.where(x > 0, x, np.expm1(x)),
            {"keras": keras("elu"), "tf": tf("Elu"), "torch": torch("elu(x0)")}),
    "elu of torch": (lambda x: 3 * np.where(x > 0, x, 0.5 * np.expm1(2 * x)),
                     {"torch": torch("elu(x0, 0.5, 3., 2.)")}),
    "celu": (lambda x: np.maximum(x, 0) + np.minimum(0.5 * np.expm1(x / 0.5), 0),
             {"keras": keras("Celu", alpha=0.5), "torch": torch("celu(x0, 0.5)")}),
    "selu": (lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
             {"keras": keras("selu"), "tf": tf("Selu"), "torch": torch("selu(x0)")}),
    "softplus": (softplus, {"keras": keras("softplus"), "tf": tf("Softplus"),
                            "torch": torch("softplus(x0)")}),
    "softplus with a threshold": (lambda x: np.where(2 * x > 3, x, softplus(2 * x) / 2),
                                  {"torch": torch("softplus(x0, 2., 3.)")}),
    "log sigmoid": (lambda x: -softplus(-x),
                    {"keras": keras("log_sigmoid"), "torch": torch("log_sigmoid(x0)")}),
    "hard sigmoid": (lambda x: np.clip(x / 6 + 0.5, 0, 1),
                     {"keras": keras("hard_sigmoid"), "torch": torch("hardsigmoid(x0)")}),
    "hard swish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
                   {"keras": keras("hard_silu"), "torch": torch("hardswish(x0)")}),
    "mish": (lambda x: x * np.tanh(softplus(x)),
             {"keras": keras("mish"), "torch": torch("mish(x0)")}),
    "silu": (lambda x: x * sigmoid(x), {"keras": keras("silu"), "torch": torch("silu(x0)")}),
    "gelu": (lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2))),
             {"keras": keras("gelu"), "torch": torch("gelu(x0, approximate='none')")}),
    "gelu by tanh": (
        lambda x: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))),
        {"keras": keras("Gelu", approximate=True),
         "torch": torch("gelu(x0, approximate='tanh')")},
    ),
    "soft shrink": (lambda x: shrink(x, 0.5, 0.5), {"keras": keras("soft_shrink")}),
    "hard shrink": (lambda x: shrink(x, 0.5, 0), {"keras": keras("hard_shrink")}),
    "threshold": (lambda x: np.where(x > 0.5, x, -7),
                  {"keras": keras("Threshold", threshold=0.5, default_value=-7.0)}),
    "soft shrink that keeps NaN": (keeping_nan(lambda x: shrink(x, 0.5, 0.5)),
                                   {"torch": torch("softshrink(x0)")}),
    "hard shrink that keeps NaN": (keeping_nan(lambda x: shrink(x, 0.5, 0)),
                                   {"torch": torch("hardshrink(x0)")}),
    "threshold that keeps NaN": (keeping_nan(lambda x: np.where(x > 0.5, x, -7)),
                                 {"torch": torch("threshold(x0, 0.5, -7.)")}),
    "softsign": (lambda x: x / (1 + np.abs(x)), {
        "keras": keras("softsign"), "tf": tf("Softsign")}),
}  # fmt: skip
# Over the last axis, of a matrix.
OVER_AXIS = {
    "softmax": (softmax, {"keras": keras("softmax"), "tf": tf("Softmax"),
                          "torch": torch("softmax(x0, -1)")}),
    "log softmax": (log_softmax,
                    {"keras": keras("log_softmax"), "tf": tf("LogSoftmax"),
                     "torch": torch("log_softmax(x0, -1)")}),
    "glu": (glu, {"keras": keras("Glu", axis=-1), "torch": torch("glu(x0, -1)")}),
}  # fmt: skip
CASES = [(name, way) for name, (_, ways) in ROWS.items() for way in ways]


def compare(graph, weights, x, expected):
    (found,) = onnx_run.run(graph, x, weights=weights)
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE[x.dtype.name], atol=3e-7)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("name", "way"), CASES)
def test_functions_of_each_element(name, way, dtype, tmp_path):
    function, ways = ROWS[name]
    # The runtime's own forms are not exact at infinity, as the frameworks' are not.
    odd = name.startswith(("gelu", "elu of torch", "mish", "silu"))
    numbers = [v for v in X if not (odd and math.isinf(v)) and not (odd and abs(v) > 1e15)]
    with np.errstate(all="ignore"):
        x = np.array([numbers], "float64").astype(dtype)
        expected = function(x.astype("float64")).astype(dtype)
    graph, weights = ways[way](tmp_path, [(dtype, (None, x.shape[1]))])
    compare(graph, weights, x, expected)


@pytest.mark.parametrize("size", [6, None])
@pytest.mark.parametrize(
    ("name", "way"), [(name, way) for name, (_, ways) in OVER_AXIS.items() for way in ways]
)
def test_functions_over_an_axis(name, way, size, tmp_path):
    function, ways = OVER_AXIS[name]
    x = np.array([[1e4, 2, -3, 0.5, 7, -1e4], [-math.inf, 0, 1, 2, 3, 4]], "float32")
    with np.errstate(all="ignore"):
        expected = function(x.astype("float64")).astype("float32")
    graph, weights = ways[way](tmp_path, [("float32", (None, size))])
    compare(graph, weights, x, expected)


@pytest.mark.parametrize("axes", [[0, 2], [1, 2]])
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_softmax_over_several_axes(name, axes, tmp_path):
    x = np.array([[[1e4, 2], [-3, 0.5]], [[7, -1e4], [9999, 0]]], "float32")
    away = x - x.max(tuple(axes), keepdims=True).astype("float64")
    logs = away - np.log(np.exp(away).sum(tuple(axes), keepdims=True))
    graph, weights = s.keras_operation(
        tmp_path, name, [("float32", (None, 2, 2))], "nn", {"axis": axes}
    )
    compare(graph, weights, x, np.exp(logs) if name == "Softmax" else logs)


@pytest.mark.parametrize("call", ["softmax(x0, 0)", "log_softmax(x0, -1)"])
def test_softmax_of_a_scalar(call, tmp_path):
    graph, weights = torch(call)(tmp_path, [("float32", ())])
    (found,) = onnx_run.run(graph, np.array(3, "float32"), weights=weights)
    assert found == (1 if call.startswith("softmax") else 0)


@pytest.mark.parametrize(
    ("name", "row"),
    [("Relu", "relu"), ("Relu6", "relu6"), ("Elu", "elu"), ("LeakyRelu", "leaky relu")],
)  # fmt: skip
def test_activations_that_an_optimizer_fused_with_a_product(name, row, tmp_path):
    x = np.array([[0.5, -2.0, 7.0], [-0.1, 3.0, 1.0]], "float32")
    fused = (
        f'attr {{ key: "fused_ops" value {{ list {{ s: "{name}" }} }} }} '
        'attr { key: "leakyrelu_alpha" value { f: 0.25 } } '
    )
    specs = [("float32", (None, 3))]
    kernel = np.eye(3, dtype="float32")
    graph, weights = s.tensorflow(tmp_path, "_FusedMatMul", specs, [kernel], attributes=fused)
    compare(graph, weights, x, ROWS[row][0](x.astype("float64")))
