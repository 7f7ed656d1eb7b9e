"""Color spaces and projective transforms mean the same in every front end (`ops/image*.py`)."""

import colorsys

import numpy as np
import onnx_run
import pytest
import spellings as s

from formats.errors import UnsupportedError

RNG = np.random.default_rng(3)
COLORS = RNG.uniform(0, 1, (2, 4, 5, 3)).astype("float32")
COLORS[0, 0] = [[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5], [1, 0, 0], [0.25, 0.5, 0.5]]
SHIFTS = [(0.5, 0.25), (-1.0, 2.0), (-3.5, 4.5)]  # of columns and rows, none beyond one reflection


def convert(function):
    return lambda x: np.apply_along_axis(lambda c: function(*map(float, c)), -1, x)


SPELLINGS = {
    "tensorflow": s.tensorflow,
    "keras.ops": lambda folder, name, specs: s.keras_operation(folder, name, specs, "image"),
}


@pytest.mark.parametrize("sizes", [(2, 4, 5, 3), (None, None, None, 3)])
@pytest.mark.parametrize("front_end", SPELLINGS)
@pytest.mark.parametrize("name", ["RGBToHSV", "HSVToRGB"])
def test_colors_are_converted_as_colorsys_converts_them(tmp_path, name, front_end, sizes):
    function = {"RGBToHSV": colorsys.rgb_to_hsv, "HSVToRGB": colorsys.hsv_to_rgb}[name]
    graph, weights = SPELLINGS[front_end](tmp_path, name, [("float32", sizes)])
    (found,) = onnx_run.run(graph, COLORS, weights=weights)
    np.testing.assert_allclose(found, convert(function)(COLORS), atol=1e-6)


def index(at, size, mode):
    """Return the index of the pixel at an integer coordinate, or None for the fill value."""
    if 0 <= at < size:
        return at
    if mode == "constant":
        return None
    if mode == "nearest":
        return min(max(at, 0), size - 1)
    at %= 2 * size
    return at if at < size else 2 * size - 1 - at


def moved(x, shift, mode, fill):
    """Return images read at coordinates that are shifted, by the definition of bilinear."""
    found = np.zeros_like(x, "float64")
    for row, column in np.ndindex(x.shape[1:3]):
        at = np.array([row + shift[1], column + shift[0]])
        if mode != "constant":  # coordinates are moved into the image before they are rounded
            at = [fold(v, n, mode) for v, n in zip(at, x.shape[1:3], strict=True)]
        low = np.floor(at).astype(int)
        for corner in np.ndindex(2, 2):
            share = np.prod(1 - np.abs(np.asarray(at) - (low + corner)))
            y, z = (index(v, n, mode) for v, n in zip(low + corner, x.shape[1:3], strict=True))
            taken = fill if y is None or z is None else x[:, y, z]
            # A corner outside the image has a share only where coordinates are filled.
            found[:, row, column] += share * (taken if share else 0)
    return found


def fold(at, size, mode):
    if mode == "reflect":
        at = -at - 1 if at < 0 else at
        at = 2 * size - at - 1 if at >= size else at
    return min(max(at, 0), size - 1)


def transformed(folder, factors, mode, fill, how, spec):
    """Return a node of TensorFlow that transforms images of 4 by 5 pixels."""
    return s.tensorflow(
        folder, "ImageProjectiveTransformV3", [spec],
        [factors, np.array([4, 5], "int32"), np.float32(fill)],
        f'attr {{ key: "interpolation" value {{ s: "{how.upper()}" }} }}'
        f'attr {{ key: "fill_mode" value {{ s: "{mode.upper()}" }} }}',
        types=("dtype",),
    )  # fmt: skip


@pytest.mark.parametrize("sizes", [(2, 4, 5, 3), (None, None, None, 3)])
@pytest.mark.parametrize("mode", ["constant", "nearest", "reflect"])
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("front_end", ["tensorflow", "keras.ops"])
def test_shifted_images_are_interpolated_and_filled(tmp_path, front_end, shift, mode, sizes):
    factors = np.array([[1, 0, shift[0], 0, 1, shift[1], 0, 0]], "float32")
    arrays = [COLORS]
    if front_end == "tensorflow":
        graph, weights = transformed(tmp_path, factors, mode, 0.5, "bilinear", ("float32", sizes))
    else:
        config = {"interpolation": "bilinear", "fill_mode": mode, "fill_value": 0.5}
        specs = [("float32", sizes), ("float32", (1, 8))]
        graph, weights = s.keras_operation(tmp_path, "AffineTransform", specs, "image", config)
        arrays.append(factors)
    (found,) = onnx_run.run(graph, *arrays, weights=weights)
    np.testing.assert_allclose(found, moved(COLORS, shift, mode, 0.5), atol=1e-5)


def test_nearest_pixels_of_integers_are_taken(tmp_path):
    x = RNG.integers(0, 256, (2, 4, 5, 3)).astype("uint8")
    factors = np.array([[1, 0, 1, 0, 1, 0, 0, 0]], "float32")
    spec = ("uint8", x.shape)
    graph, weights = transformed(tmp_path, factors, "nearest", 0, "nearest", spec)
    (found,) = onnx_run.run(graph, x, weights=weights)
    np.testing.assert_array_equal(found, np.concatenate([x[:, :, 1:], x[:, :, -1:]], 2))


def test_bilinear_interpolation_of_integers_is_not_supported(tmp_path):
    config = {"interpolation": "bilinear"}
    specs = [("uint8", (2, 4, 5, 3)), ("float32", (1, 8))]
    with pytest.raises(UnsupportedError, match="bilinear interpolation of images of uint8"):
        s.keras_operation(tmp_path, "AffineTransform", specs, "image", config)
