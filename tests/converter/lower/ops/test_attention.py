"""Attention means the same in every front end that has it: masks, causal, heads in groups."""

import math

import numpy as np
import onnx_run
import pytest
import spellings as s

RANDOM = np.random.default_rng(3)
LENGTHS = {"static": lambda n: n, "symbolic": lambda n: None}
MASK = np.array([[True, False, True, True], [False, False, False, False], [True, True, True, True]])
HIDDEN = np.where(MASK, 0, -np.inf).astype("float32")
BIAS = RANDOM.normal(size=(3, 4)).astype("float32")


def drawn(heads=2, dtype="float32", scale=1.0, length=3):
    """Return q [1, 2, length, 8], k [1, heads, 4, 8] and v [1, heads, 4, 8]."""
    shapes = (1, 2, length, 8), (1, heads, 4, 8), (1, heads, 4, 8)
    return [(RANDOM.normal(size=shape) * scale).astype(dtype) for shape in shapes]


def attention(q, k, v, bias=0.0, mask=True, none=0.0):
    """Return the reference; ``none`` is what a query yields that sees no key: zero, or the mean."""
    q, k, v = (x.astype("float64") for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = np.where(mask, q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]) + bias, -np.inf)
    seen = np.isfinite(scores).any(-1, keepdims=True)
    powers = np.exp(scores - np.where(seen, scores.max(-1, keepdims=True), 0))
    weights = powers / np.where(seen, powers.sum(-1, keepdims=True), 1)
    return np.where(seen, weights @ v, none * v.mean(-2, keepdims=True)).astype("float32")


def torch(folder, inputs, length, arguments):
    """Return the TorchScript graph; a fourth input is the mask or the bias."""
    specs = [(x.dtype.name, (*x.shape[:-2], length(x.shape[-2]), x.shape[-1])) for x in inputs]
    mask = "x3" if len(inputs) == 4 else "None"
    call = f"torch.scaled_dot_product_attention(x0, x1, x2, {mask}, 0., {arguments})"
    return s.torch_script(folder, call, specs)


def keras(folder, inputs, length, *, is_causal=False):
    """Return the graph of keras.ops.dot_product_attention; heads are its axis 2."""
    specs = []
    for x in inputs:
        *lead, n, width = x.shape
        shape = (*lead, length(n), width) if len(inputs) == 4 and x is inputs[3] else None
        specs.append((x.dtype.name, shape or (lead[0], length(n), lead[1], width)))
    kwargs = {"is_causal": is_causal}
    args = [0, 1, 2, None, 3] if len(inputs) == 4 else [0, 1, 2]
    return s.keras_operation(folder, "DotProductAttention", specs, "nn", kwargs, args)


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_of_heads_in_groups(is_causal, heads, length, tmp_path):
    # An axis of the same name has the same size in all inputs of a script.
    q, k, v = drawn(heads, length=4 if length(1) is None else 3)
    expected = attention(q, k, v, mask=np.tri(q.shape[2], 4, dtype=bool) if is_causal else True)
    graph, weights = torch(tmp_path, [q, k, v], length, f"{is_causal}, None, True")
    (found,) = onnx_run.run(graph, q, k, v, weights=weights)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    graph, weights = keras(tmp_path, [q, k, v], length, is_causal=is_causal)
    (found,) = onnx_run.run(graph, *(x.swapaxes(1, 2) for x in (q, k, v)), weights=weights)
    np.testing.assert_allclose(found.swapaxes(1, 2), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
def test_a_query_that_sees_no_key(length, tmp_path):
    """torch yields zeros, for a mask of booleans and for one that is added; Keras the mean."""
    q, k, v = drawn()
    for mask in (MASK, HIDDEN):
        graph, weights = torch(tmp_path, [q, k, v, mask], length, "False")
        (found,) = onnx_run.run(graph, q, k, v, mask, weights=weights)
        np.testing.assert_allclose(found, attention(q, k, v, mask=MASK), rtol=1e-5, atol=1e-6)
    every = MASK[None, None]
    graph, weights = keras(tmp_path, [q, k, v, every], length)
    (found,) = onnx_run.run(graph, *(x.swapaxes(1, 2) for x in (q, k, v)), every, weights=weights)
    expected = attention(q, k, v, mask=MASK, none=1.0)
    np.testing.assert_allclose(found.swapaxes(1, 2), expected, rtol=1e-5, atol=1e-6)


def test_a_bias_of_the_scores(tmp_path):
    q, k, v = drawn()
    graph, weights = torch(tmp_path, [q, k, v, BIAS], lambda n: n, "False")
    (found,) = onnx_run.run(graph, q, k, v, BIAS, weights=weights)
    np.testing.assert_allclose(found, attention(q, k, v, bias=BIAS), rtol=1e-5, atol=1e-6)


def test_scores_of_half_precision_do_not_overflow(tmp_path):
    """Products of 200 and 200 are beyond float16; torch sums them in float32."""
    q, k, v = drawn(dtype="float16", scale=200.0)
    expected = attention(q, k, v)
    graph, weights = torch(tmp_path, [q, k, v], lambda n: n, "False")
    (found,) = onnx_run.run(graph, q, k, v, weights=weights)
    assert found.dtype == "float16"
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=0.3)


def test_heads_that_do_not_divide(tmp_path):
    q, k, v = drawn(3)
    with pytest.raises(Exception, match="2 heads of queries for 3 of keys"):
        torch(tmp_path, [q, k, v], lambda n: n, "False, None, True")
