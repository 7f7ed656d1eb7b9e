"""Functions of complex numbers beside NumPy's, near zero, across branch cuts and far away."""

import numpy as np
import onnx_run
import pytest
import spellings as s

from converter.lower.ops import complex_functions

GRID = [-3.0, -1.0, -0.5, -1e-3, 0.0, 1e-3, 0.5, 1.0, 2.0]
PARTS = np.meshgrid(GRID, [y + 1e-2 for y in GRID])
POINTS = (PARTS[0] + 1j * PARTS[1]).reshape(-1)
TINY = np.array([1e-9 + 2e-9j, -3e-9 + 1e-9j])
REFERENCES = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atanh": np.arctanh, "reciprocal": np.reciprocal,
    "rsqrt": lambda z: 1 / np.sqrt(z), "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
}  # fmt: skip


def run(tmp_path, expression, *operands):
    """Return what a TorchScript expression of complex numbers z and w computes."""
    inputs = [part for z in operands for part in (z.real, z.imag)]
    names = ["torch.complex(x0, x1)", "torch.complex(x2, x3)"]
    for letter, made in zip("zw", names, strict=True):
        expression = expression.replace(f"<{letter}>", made)
    specs = [("float64", p.shape) for p in inputs]
    graph, weights = s.torch_script(tmp_path, f"torch.view_as_real({expression})", specs)
    (found,) = onnx_run.run(graph, *inputs, weights=weights)
    return found[..., 0] + 1j * found[..., 1]


@pytest.mark.parametrize("name", sorted(complex_functions.FUNCTIONS))
def test_a_function_is_numpys(tmp_path, name):
    reference = REFERENCES.get(name) or getattr(np, name)
    found = run(tmp_path, f"torch.{name}(<z>)", POINTS)
    np.testing.assert_allclose(found, reference(POINTS), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["asin", "asinh", "atan", "atanh", "expm1", "log1p", "sin", "tan"])
def test_nothing_is_lost_near_zero(tmp_path, name):
    found = run(tmp_path, f"torch.{name}(<z>)", TINY)
    np.testing.assert_allclose(found, TINY, rtol=1e-7)


def test_powers_of_complex_numbers(tmp_path):
    z = np.array([1 + 2j, -0.5 + 0.1j, 0, 0, 3 - 1j])
    w = np.array([0.5 - 1j, 2 + 0j, 1 + 0j, 0, 0])
    found = run(tmp_path, "torch.pow(<z>, <w>)", z, w)
    np.testing.assert_allclose(found, [*np.power(z[:2], w[:2]), 0, 1, 1], rtol=1e-9, atol=1e-12)
