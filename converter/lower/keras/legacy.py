"""Layers that only older Keras versions have.

Spec: https://github.com/keras-team/keras/tree/2.2.4/keras/layers/local.py and, of Keras 1,
https://github.com/keras-team/keras/tree/1.2.2/keras/layers
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.graph import Dim
from converter.lower.keras.activations import activate
from converter.lower.keras.core import product as dense_product
from converter.lower.keras.merging import dot
from converter.lower.keras.table import Roles, Unsupported, keras_layer
from converter.lower.ops.conv import numbers
from converter.lower.values import Value

# -- convolutions with a kernel for each position --------------------------------------------------


@keras_layer("LocallyConnected1D", "LocallyConnected2D")
def locally_connected(
    op: Builder, w: Roles, x: Value, /, *,
    filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
    data_format: str | None = "channels_last", activation: Any = None, use_bias: bool = True,
    implementation: int = 1,
) -> Value:  # fmt: skip
    """A convolution with a separate kernel at each position."""
    rank = x.rank - 2
    first = data_format == "channels_first"
    axes = range(2, x.rank) if first else range(1, x.rank - 1)
    sizes = [n for n in (x.shape[a] for a in axes) if isinstance(n, int)]
    channels = x.shape[1 if first else -1]
    if len(sizes) < rank or not isinstance(channels, int):
        raise Unsupported("an image of unknown size")
    places = _Places(sizes, numbers(kernel_size, rank), numbers(strides, rank), padding)
    out = places.count
    shape: tuple[Dim, ...] = (x.shape[0], *out, filters)
    if first:
        shape = (x.shape[0], filters, *out)
    kernel = w["kernel"]
    if implementation == 1:
        result = _by_patch(op, x, kernel, places, first=first)
    else:
        whole = _whole_matrix(op, kernel, places, channels, filters, implementation, first=first)
        flat = op.reshape(x, (x.shape[0], prod(sizes) * channels))
        result = op.matmul(flat, whole)
    result = op.reshape(result, shape)
    if use_bias:
        bias = w["bias"]  # [*positions, filters]; Keras does not transpose it for channels first
        result = op.add(result, op.reshape(bias, (1, filters, *out) if first else (1, *bias.shape)))
    return activate(op, result, activation)


class _Places:
    """The windows of a convolution.

    Attributes:
        sizes: Sizes of the image.
        count: Number of windows along each axis.
    """

    def __init__(
        self, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], padding: str
    ) -> None:
        self.sizes = tuple(sizes)
        self._axes = []
        for n, k, s in zip(sizes, kernel, strides, strict=True):
            before = k // 2 if padding == "same" else 0
            count = -(-n // s) if padding == "same" else (n - k) // s + 1
            windows = [
                range(max(i * s - before, 0), min(i * s - before + k, n)) for i in range(count)
            ]
            self._axes.append(windows)
        self.count = tuple(len(windows) for windows in self._axes)

    def windows(self) -> Iterator[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
        """Yield the index of each window, and the indices of the pixels that it covers."""
        for place in product(*(range(n) for n in self.count)):
            ranges = (windows[i] for windows, i in zip(self._axes, place, strict=True))
            yield place, list(product(*ranges))


def _by_patch(op: Builder, x: Value, kernel: Value, places: _Places, *, first: bool) -> Value:
    """Multiply each patch with its own matrix: [positions, window * channels, filters]."""
    covered = [[np.ravel_multi_index(at, places.sizes) for at in window]
               for _, window in places.windows()]  # fmt: skip
    indices = op.constant(np.asarray(covered), "int64")  # [positions, window]
    count = indices.shape[0]
    batch, pixels = x.shape[0], prod(places.sizes)
    channels = x.shape[1 if first else -1]
    if first:
        cut = op.gather(op.reshape(x, (batch, channels, pixels)), indices, 2)
        patches = op.transpose(cut, [2, 0, 1, 3])  # [positions, batch, channels, window]
    else:
        cut = op.gather(op.reshape(x, (batch, pixels, channels)), indices, 1)
        patches = op.transpose(cut, [1, 0, 2, 3])  # [positions, batch, window, channels]
    features = kernel.shape[1]
    flat = op.reshape(op.plain(patches), (count, None if batch is None else batch, features))
    result = op.matmul(flat, kernel)  # [positions, batch, filters]
    return op.plain(op.transpose(result, [1, 2, 0] if first else [1, 0, 2]))


def _whole_matrix(
    op: Builder, kernel: Value, places: _Places, channels: int, filters: int, implementation: int,
    *, first: bool,
) -> Value:  # fmt: skip
    """Return the matrix of all inputs and outputs, most of which is zero."""
    inputs, outputs = (channels, *places.sizes), (filters, *places.count)
    if not first:
        inputs, outputs = (*places.sizes, channels), (*places.count, filters)

    def at(place: tuple[int, ...], channel: int, whole: tuple[int, ...]) -> int:
        index = (channel, *place) if first else (*place, channel)
        return int(np.ravel_multi_index(index, whole))

    pairs = [
        (at(target, b, outputs), at(source, a, inputs))
        for target, window in places.windows()
        for source in window
        for a in range(channels)
        for b in range(filters)
    ]
    size = (prod(inputs), prod(outputs))
    if implementation == 2:
        mask = np.zeros(size, np.float32)
        for target_index, source_index in pairs:
            mask[source_index, target_index] = 1
        return op.mul(op.reshape(kernel, size), op.constant(mask, kernel.dtype))
    if implementation != 3:
        raise Unsupported(f"implementation {implementation}")
    # The weights alone, in the order of (output, input).
    zeros = op.constant(np.zeros((size[1], size[0]), np.float32), kernel.dtype)
    indices = op.constant(np.asarray(sorted(pairs)), "int64")
    matrix = op.emit(
        "ScatterND", zeros, indices, kernel, dtype=kernel.dtype, shape=(size[1], size[0])
    )
    return op.transpose(matrix, [1, 0])


# -- Keras 2's experiments -----------------------------------------------------------------------


@keras_layer("RandomFourierFeatures")
def random_fourier_features(
    op: Builder, w: Roles, x: Value, /, *, output_dim: int, scale: float | None = None
) -> Value:
    """Return cos(x @ kernel / scale + bias), in float32."""
    del output_dim, scale  # they are in the weights
    single = op.cast(x, "float32")
    kernel = op.div(w.exact("unscaled_kernel"), w.exact("kernel_scale"))
    return op.unary("Cos", dense_product(op, single, kernel, w.exact("bias")))


# -- Keras 1 -------------------------------------------------------------------------------------


@keras_layer("MaxoutDense")
def maxout_dense(
    op: Builder, w: Roles, x: Value, /, *, units: int, nb_feature: int = 4, use_bias: bool = True
) -> Value:
    """The largest of several products x @ kernel + bias."""
    del units, nb_feature
    result = op.matmul(op.unsqueeze(x, [0]), w["0"])  # [features, batch, out]
    if use_bias:
        result = op.add(result, op.unsqueeze(w["1"], [1]))
    return op.reduce("ReduceMax", result, [0])


@keras_layer("Highway", mask="pass")
def highway(
    op: Builder, w: Roles, x: Value, /, *, activation: Any = None, use_bias: bool = True
) -> Value:
    """Return t * activation(x @ kernel + bias) + (1 - t) * x, t = sigmoid(x @ carry + bias)."""
    inner = dense_product(op, x, w["0"], w["2"] if use_bias else None)
    carry = dense_product(op, x, w["1"], w["3"] if use_bias else None)
    share = op.unary("Sigmoid", carry)
    return op.add(op.mul(activate(op, inner, activation), share), op.mul(op.sub(1.0, share), x))


@keras_layer("ParametricSoftplus", mask="pass")
def parametric_softplus(op: Builder, w: Roles, x: Value, /) -> Value:
    """`alpha * softplus(beta * x)`, with both learned."""
    return op.mul(op.unary("Softplus", op.mul(x, w["1"])), w["0"])


@keras_layer("SReLU", mask="pass")
def srelu(op: Builder, w: Roles, x: Value, /, *, held_below: bool = False) -> Value:
    """X between two thresholds, and with a slope of its own beyond each; all four learned."""
    low, below, width, above = w["0"], w["1"], w["2"], w["3"]
    room = op.unary("Abs", width)
    moved = op.sub(x, low)
    positive = op.elementwise("Min", op.unary("Relu", moved), room)
    negative = op.mul(op.elementwise("Min", moved, op.constant(0.0, x.dtype)), below)
    if held_below:
        negative = op.elementwise("Min", negative, room)
    over = op.unary("Relu", op.sub(x, op.add(low, room)))
    return op.add(op.add(low, op.add(positive, negative)), op.mul(over, above))


@keras_layer("Merge")
def cosine(op: Builder, w: Roles, a: Value, b: Value, /, *, mode: Any, dot_axes: Any = -1) -> Value:
    """The cosine of the angle between two inputs; other modes are layers of their own."""
    if mode != "cos":
        raise Unsupported(f"mode {mode!r:.40}")
    squares = op.mul(dot(op, w, a, a, axes=dot_axes), dot(op, w, b, b, axes=dot_axes))
    least = op.constant(1e-7, a.dtype)
    length = op.elementwise("Max", op.unary("Sqrt", squares), least)
    return op.unsqueeze(op.div(dot(op, w, a, b, axes=dot_axes), length), [1])
