"""float64: forms of what onnxruntime computes in float32 alone, and what is said where none is."""

import math

import numpy as np
import onnx_run
import pytest

from converter.lower.builder import Builder
from converter.lower.double import FORMS
from converter.lower.graph import Graph

WIDE = np.concatenate([np.linspace(-8, 8, 401), [1e-9, -1e-5, 700.0, -700.0, 1e8, -1e17]])
UNIT = np.concatenate([np.linspace(-1, 1, 401), [1e-9, 1 - 1e-9, 1 - 1e-12, -1 + 1e-15]])
CASES = {
    "Acos": (np.arccos, UNIT), "Acosh": (np.arccosh, np.linspace(1, 90, 401)),
    "Asin": (np.arcsin, UNIT), "Asinh": (np.arcsinh, WIDE),
    "Atan": (np.arctan, np.concatenate([WIDE, [np.inf, -np.inf, 1e308]])),
    "Atanh": (np.arctanh, UNIT[1:-5]),
    "Celu": (lambda x: np.maximum(x, 0) + 0.7 * np.expm1(np.minimum(x, 0) / 0.7), WIDE),
    "Elu": (lambda x: np.maximum(x, 0) + 0.7 * np.expm1(np.minimum(x, 0)), WIDE),
    "HardSigmoid": (lambda x: np.clip(x / 6 + 0.1, 0, 1), WIDE),
    "LeakyRelu": (lambda x: np.where(x < 0, 0.7 * x, x), WIDE),
    "Selu": (lambda x: 1.1 * (np.maximum(x, 0) + 0.7 * np.expm1(np.minimum(x, 0))), WIDE),
    "Softplus": (lambda x: np.logaddexp(0, x), WIDE),
    "Shrink": (lambda x: np.sign(x) * np.where(abs(x) > 0.3, abs(x) - 0.1, 0), WIDE),
    "ThresholdedRelu": (lambda x: np.where(x > 0.7, x, 0), WIDE),
    "Cosh": (np.cosh, WIDE[:403]), "Erf": (np.vectorize(math.erf), WIDE),
    "Sinh": (np.sinh, WIDE[:403]), "Tan": (np.tan, WIDE[:403]),
}  # fmt: skip
ATTRIBUTES = {
    "Celu": {"alpha": 0.7}, "Elu": {"alpha": 0.7}, "HardSigmoid": {"alpha": 1 / 6, "beta": 0.1},
    "LeakyRelu": {"alpha": 0.7}, "Selu": {"alpha": 0.7, "gamma": 1.1},
    "Shrink": {"bias": 0.1, "lambd": 0.3}, "ThresholdedRelu": {"alpha": 0.7},
}  # fmt: skip


def computed(op_type, x, **attributes):
    graph = Graph("m", 18)
    op = Builder(graph, {})
    value = op.input("x", str(x.dtype), (None,))
    op.output(op.unary(op_type, value, **attributes), "y")
    return graph, onnx_run.run(graph, x)[0]


@pytest.mark.parametrize("op_type", CASES)
def test_a_form_is_as_exact_as_float64(op_type):
    reference, x = CASES[op_type]
    graph, found = computed(op_type, x, **ATTRIBUTES.get(op_type, {}))
    expected = reference(x)
    assert np.abs(found - expected).max() <= 5e-14 * max(1, np.abs(expected).max())
    assert np.all(np.abs(found - expected) <= 2e-11 * np.abs(expected) + 1e-15)
    assert graph.narrowed == {}


def test_nan_stays_nan():
    for op_type in CASES:
        if op_type not in ("Shrink", "ThresholdedRelu"):  # which compare
            attributes = ATTRIBUTES.get(op_type, {})
            assert np.isnan(computed(op_type, np.array([np.nan]), **attributes)[1]).all(), op_type


CONVOLUTIONS = [
    # channels, filters, kernel, groups, other attributes
    (3, 4, (3, 3), 1, {}), (3, 4, (2, 3), 1, {"strides": [2, 1], "pads": [1, 0, 2, 3]}),
    (4, 6, (3, 1), 2, {"dilations": [2, 1], "bias": True}), (5, 5, (3, 3), 5, {}),
    (40, 40, (2, 2), 40, {"pads": [1, 1, 1, 1], "bias": True}), (2, 3, (3,), 1, {"strides": [3]}),
]  # fmt: skip


@pytest.mark.parametrize(("channels", "filters", "kernel", "groups", "more"), CONVOLUTIONS)
@pytest.mark.parametrize("is_known", [True, False])
def test_a_convolution_is_as_exact_as_float64(channels, filters, kernel, groups, more, is_known):
    rng = np.random.default_rng(len(kernel) + groups)
    x = rng.normal(size=(2, channels, *([9, 8][: len(kernel)])))
    w = rng.normal(size=(filters, channels // groups, *kernel))
    bias = rng.normal(size=filters) if more.get("bias") else np.zeros(filters)
    attributes = {k: v for k, v in more.items() if k != "bias"}

    def model(dtype):
        graph = Graph("m", 18)
        op = Builder(graph, {})
        sizes = x.shape[2:] if is_known else (None,) * len(kernel)
        image = op.input("x", dtype, (None, channels, *sizes))
        given = [image, op.constant(w.astype(dtype))]
        given += [op.constant(bias.astype(dtype))] if more.get("bias") else []
        shape = (None, filters, *(None,) * len(kernel))
        made = op.emit("Conv", *given, dtype=dtype, shape=shape, group=groups, **attributes)
        op.output(made, "y")
        return graph

    exact = model("float64")
    found, single = onnx_run.run(exact, x)[0], onnx_run.run(model("float32"), x.astype("f4"))[0]
    assert found.shape == single.shape
    np.testing.assert_allclose(found, single, atol=1e-4, rtol=1e-4)
    assert exact.narrowed == {}
    # Scaled by a number of 50 bits, the result is so to the last bits: float32 keeps 24.
    factor = 1 + 2.0**-40
    scaled = onnx_run.run(exact, x * factor)[0]
    plain = found - bias.reshape(-1, *[1] * len(kernel))
    np.testing.assert_allclose(scaled - found, plain * 2.0**-40, rtol=1e-2, atol=1e-14)


def test_every_form_has_a_case():
    assert set(FORMS) == {*CASES, "Conv"}


def test_what_has_no_form_is_counted():
    graph = Graph("m", 18)
    op = Builder(graph, {})
    image = op.input("x", "float64", (None, 2, 6, 6))
    for _ in range(2):
        pooled = op.emit(
            "AveragePool", image, dtype="float64", shape=(None, 2, 5, 5), kernel_shape=[2, 2]
        )
    assert pooled.dtype == "float64"
    assert graph.narrowed == {"AveragePool": 2}
