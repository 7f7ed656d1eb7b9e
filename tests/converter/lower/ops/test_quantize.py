"""Quantization means the same in every front end: rounding, saturation, bounds that move."""

import numpy as np
import onnx_run
import pytest
import spellings as s

X = np.array([[-7.1, -6.0, -0.1, -0.0, 0.0, 0.012, 0.0235, 0.5, 2.5, 5.99, 6.0, 1e9, np.inf,
               -np.inf]], "float32")  # fmt: skip


def fake_quantized(x, low, high, num_bits=8, narrow_range=False):
    """Return TensorFlow's functor in float32."""
    one = np.float32
    first, last = one(narrow_range), one(2**num_bits - 1)
    low, high = np.asarray(low, "float32"), np.asarray(high, "float32")
    with np.errstate(all="ignore"):
        scale = (high - low) / (last - first)
        start = first - low / scale
        zero = np.clip(np.sign(start) * np.floor(np.abs(start) + one(0.5)), first, last)
        bottom, top = (first - zero) * scale, (last - zero) * scale
        inverse = one(1) / scale
        offset = np.floor(-bottom * inverse + one(0.5))
        clamped = np.clip(x, bottom, top) - bottom
        result = np.floor(clamped * inverse - offset + one(0.5)) * scale
    return np.where(scale > 0, result, 0).astype("float32")


def quantized(x, scale, zero, low, high):
    return np.clip(np.round(x / np.float32(scale)) + zero, low, high)


@pytest.mark.parametrize("bounds", [(-6.0, 6.0), (-0.1, 5.03), (0.0, 0.0), (1.0, 3.0)])
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("front_end", ["tensorflow", "keras"])
def test_fake_quantization(front_end, narrow, bounds, tmp_path):
    if front_end == "tensorflow":
        attributes = f'attr {{ key: "narrow_range" value {{ b: {str(narrow).lower()} }} }} '
        graph, weights = s.tensorflow(
            tmp_path, "FakeQuantWithMinMaxVars", [("float32", (None, X.shape[1]))],
            [np.float32(n) for n in bounds], attributes, types=(),
        )  # fmt: skip
    else:
        specs = [("float32", (None, X.shape[1])), ("float32", (1,)), ("float32", (1,))]
        config = {"narrow_range": narrow}
        graph, weights = s.keras_operation(tmp_path, "FakeQuantWithMinMaxVars", specs, "nn", config)
    given = [np.array([n], "float32") for n in bounds] if front_end == "keras" else []
    (found,) = onnx_run.run(graph, X, *given, weights=weights)
    np.testing.assert_allclose(found, fake_quantized(X, *bounds, 8, narrow), rtol=1e-6)


def test_fake_quantization_of_float16_is_computed_in_float32(tmp_path):
    x = np.linspace(-3, 3, 97).astype("float16")[None]
    specs = [("float16", (None, 97)), ("float16", (1,)), ("float16", (1,))]
    graph, weights = s.keras_operation(tmp_path, "FakeQuantWithMinMaxVars", specs, "nn")
    bounds = [np.array([n], "float16") for n in (-2.0, 1.7)]
    (found,) = onnx_run.run(graph, x, *bounds, weights=weights)
    expected = fake_quantized(x.astype("float32"), *(b.astype("float32") for b in bounds))
    np.testing.assert_array_equal(found, expected.astype("float16"))


def test_fake_quantization_by_channel(tmp_path):
    x = np.linspace(-4, 4, 30).astype("float32").reshape(2, 5, 3)
    low, high = np.array([-1, -2, -3, 0, -1], "float32"), np.array([1, 2, 0.5, 3, 4], "float32")
    specs = [("float32", (None, 5, 3)), ("float32", (5,)), ("float32", (5,))]
    graph, weights = s.keras_operation(
        tmp_path, "FakeQuantWithMinMaxVars", specs, "nn", {"axis": 1}
    )
    (found,) = onnx_run.run(graph, x, low, high, weights=weights)
    expected = fake_quantized(x, low[:, None], high[:, None])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("dtype", "bounds"), [("uint8", (0, 255)), ("int8", (-127, 127))])
@pytest.mark.parametrize("scale", [0.1, 0.5])
def test_affine_integers(dtype, bounds, scale, tmp_path):
    """Halves go to even; what is beyond the bounds saturates, infinity too."""
    x = np.array([[-1e9, -40.3, -0.75, -0.25, 0.0, 0.25, 0.75, 1.25, 30.0, np.inf]], "float32")
    specs = [("float32", x.shape)]
    number = {"uint8": 13, "int8": 12}[dtype]  # as torch numbers quint8 and qint8
    call = f"torch.quantize_per_tensor(x0, {scale}, 3, {number})"
    graph, weights = s.torch_script(tmp_path, f"torch.dequantize({call})", specs)
    (found,) = onnx_run.run(graph, x, weights=weights)
    full = (np.iinfo(dtype).min, np.iinfo(dtype).max)
    expected = (quantized(x, scale, 3, *full) - 3) * np.float32(scale)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    graph, weights = s.torch_program(
        tmp_path, "quantized_decomposed.quantize_per_tensor.default", specs, [(dtype, x.shape)],
        (scale, 3, *bounds), {"dtype": {"uint8": 0, "int8": 1}[dtype]},
    )  # fmt: skip
    (found,) = onnx_run.run(graph, x, weights=weights)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, quantized(x, scale, 3, *bounds).astype(dtype))
