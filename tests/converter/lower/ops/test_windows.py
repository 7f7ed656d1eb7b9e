"""Convolution and pooling beside plain loops in NumPy."""

from itertools import product

import numpy as np
import op_by_hand
import pytest

from converter.lower.known_values import Numbers
from converter.lower.ops import conv, pool

RNG = np.random.default_rng(0)
TOLERANCE = {"float16": 5e-3, "float32": 1e-5, "float64": 1e-12}


def windows(x, kernel, strides, dilations, padding, fill):
    """Yield the index of each window of [batch, *spatial, channels], and its elements."""
    rank = len(kernel)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    widths = [(0, 0)] * rank
    if padding == "same":
        totals = [
            max((-(-n // s) - 1) * s + r - n, 0)
            for n, s, r in zip(x.shape[1:-1], strides, reach, strict=True)
        ]
        widths = [(t // 2, t - t // 2) for t in totals]
    padded = np.pad(x, [(0, 0), *widths, (0, 0)], constant_values=fill)
    counts = [
        (n - r) // s + 1
        for n, r, s in zip(padded.shape[1:-1], reach, strides, strict=True)
    ]  # fmt: skip
    for at in product(*map(range, counts)):
        part = tuple(
            slice(i * s, i * s + r, d)
            for i, s, r, d in zip(at, strides, reach, dilations, strict=True)
        )
        yield at, padded[(slice(None), *part)]


def convolved(x, kernel, bias, strides, dilations, padding, groups):
    result = {}
    for at, part in windows(x, kernel.shape[:-2], strides, dilations, padding, 0):
        outs = np.split(kernel, groups, -1)
        parts = np.split(part, groups, -1)
        axes = list(range(1, part.ndim)), list(range(part.ndim - 1))
        pieces = [np.tensordot(p, w, axes) for p, w in zip(parts, outs, strict=True)]
        result[at] = np.concatenate(pieces, -1) + bias
    return gathered(result)


def gathered(result):
    counts = np.array([*result]).max(0) + 1
    stacked = np.stack([result[at] for at in product(*map(range, counts))], 1)
    return stacked.reshape(len(stacked), *counts, -1)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize(
    ("sizes", "kernel", "strides", "dilations", "padding", "groups"),
    [
        ((9,), (3,), (1,), (1,), "valid", 1), ((9,), (3,), (2,), (1,), "same", 1),
        ((9, 8), (3, 2), (1, 1), (2, 3), "same", 2), ((9, 8), (1, 1), (2, 2), (1, 1), "valid", 1),
        ((9, 8), (3, 4), (2, 3), (1, 1), "same", 4), ((5, 6, 4), (2, 3, 2), (1, 2, 1), (1, 1, 2),
         "valid", 1),
    ],
)  # fmt: skip
def test_convolution(sizes, kernel, strides, dilations, padding, groups, data_format, dtype):
    x = RNG.normal(size=(2, *sizes, 4)).astype(dtype)
    weight = RNG.normal(size=(*kernel, 4 // groups, 8)).astype(dtype)
    bias = RNG.normal(size=8).astype(dtype)
    is_last = data_format == "channels_last"
    given = x if is_last else np.moveaxis(x, -1, 1)

    def function(op, x):
        found = conv.convolve(
            op, x, op.constant(weight), op.constant(bias), strides=strides, padding=padding,
            data_format=data_format, dilations=dilations, groups=groups,
        )  # fmt: skip
        return op.plain(found)

    def reference(x):
        image = x if is_last else np.moveaxis(x, 1, -1)
        wide = weight.astype("float64"), bias.astype("float64")
        found = convolved(image, *wide, strides, dilations, padding, groups)
        return found if is_last else np.moveaxis(found, -1, 1)

    # SAME padding of a stride depends on the size.
    is_static_only = dtype == "float64" or (padding == "same" and max(strides) > 1)
    op_by_hand.check(
        function, reference, given, tolerance=TOLERANCE[dtype], is_static_only=is_static_only
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(("op_type", "fill", "reduce"),
                         [("MaxPool", -np.inf, np.max),
                          ("AveragePool", np.nan, np.nanmean)])  # fmt: skip
@pytest.mark.parametrize(("sizes", "strides"), [((3,), None), ((2, 3), (1, 2)), ((2, 2, 2), 1)])
def test_pooling(sizes, strides, op_type, fill, reduce, padding, dtype):
    rank = len(sizes)
    x = RNG.normal(size=(*(2, 7, 8, 5)[: rank + 1], 3)).astype(dtype)
    steps = sizes if strides is None else strides if isinstance(strides, tuple) else (1,) * rank

    def reference(x):
        axes = tuple(range(1, rank + 1))
        return gathered({
            at: reduce(part, axes)
            for at, part in windows(x, sizes, steps, (1,) * rank, padding, fill)
        })  # fmt: skip

    op_by_hand.check(
        lambda op, x: op.plain(pool.pool(
            op, x, op_type, pool_size=sizes, strides=strides, padding=padding, data_format=None)),
        reference, x, tolerance=TOLERANCE["float32" if op_type == "AveragePool" else dtype]
        if dtype != "float16" else TOLERANCE[dtype],  # onnxruntime averages in float32
    )  # fmt: skip


@pytest.mark.parametrize(("size", "count"), [(10, 3), (7, 7), (3, 5), (9, 1), (1, 4)])
def test_adaptive_pooling(size, count):
    x = RNG.normal(size=(2, size, 3)).astype("float32")
    x[:, -1] = x[:, 0]  # of equal ones the first is found
    edges = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]

    def fixed(op, number):
        return Numbers(op, np.asarray(number, "int64"))

    op_by_hand.check(
        lambda op, x: pool.adaptive_mean(op, x, 1, fixed(op, size), fixed(op, count), count),
        lambda x: np.stack([x[:, a:b].mean(1) for a, b in edges], 1), x,
    )  # fmt: skip
    op_by_hand.check(
        lambda op, x: pool.adaptive_max(op, x, 1, fixed(op, size), fixed(op, count), count),
        lambda x: [
            np.stack([x[:, a:b].max(1) for a, b in edges], 1),
            np.stack([x[:, a:b].argmax(1) + a for a, b in edges], 1),
        ], x,
    )  # fmt: skip


def spread(x, weight, bias, strides, dilations, before, after, more, groups):
    """Return a transposed convolution of [N, C, *spatial], by adding a kernel at each element."""
    kernel, count = weight.shape[2:], weight.shape[1] * groups
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    whole = [(n - 1) * s + r for n, s, r in zip(x.shape[2:], strides, reach, strict=True)]
    result = np.zeros((len(x), count, *whole))
    for at in product(*map(range, x.shape[2:])):
        values = x[(slice(None), slice(None), *at)].reshape(len(x), groups, -1)
        grouped = weight.reshape(groups, -1, *weight.shape[1:])
        part = np.einsum("bgc,gcm...->bgm...", values, grouped).reshape(len(x), count, *kernel)
        where = tuple(
            slice(i * s, i * s + r, d)
            for i, s, r, d in zip(at, strides, reach, dilations, strict=True)
        )
        result[(slice(None), slice(None), *where)] += part
    result = np.pad(result, [(0, 0), (0, 0), *((0, e) for e in more)])
    ends = zip(result.shape[2:], before, after, strict=True)
    cut = tuple(slice(b, n - a) for n, b, a in ends)
    return result[(slice(None), slice(None), *cut)] + bias.reshape(-1, *[1] * len(kernel))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("kernel", "strides", "dilations", "before", "after", "more", "groups"),
    [
        ((3,), (2,), (1,), (0,), (0,), (0,), 1), ((3,), (2,), (1,), (1,), (1,), (1,), 2),
        ((2, 3), (1, 2), (2, 1), (0, 1), (1, 0), (0, 1), 1),
        ((2, 2), (1, 2), (2, 2), (0, 1), (0, 1), (1, 1), 1),  # beyond the reach of the kernel
        ((1, 2), (3, 1), (1, 1), (0, 0), (2, 0), (2, 2), 4),
    ],
)  # fmt: skip
def test_transposed_convolution(kernel, strides, dilations, before, after, more, groups, dtype):
    x = RNG.normal(size=(2, 4, 5, 4)[: 2 + len(kernel)]).astype(dtype)
    weight = RNG.normal(size=(4, 2, *kernel)).astype(dtype)
    bias = RNG.normal(size=2 * groups).astype(dtype)
    wide = [v.astype("float64") for v in (weight, bias)]
    expected = spread(
        x.astype("float64"), *wide, strides, dilations, before, after, more, groups
    ).shape

    def function(op, x):
        shape = (x.shape[0], *expected[1:])
        return op.plain(conv.emit_conv_transpose(
            op, x, op.constant(weight), op.constant(bias), shape, strides=strides,
            dilations=dilations, before=before, after=after, output_padding=more, groups=groups,
        ))  # fmt: skip

    op_by_hand.check(
        function,
        lambda x: spread(x, *wide, strides, dilations, before, after, more, groups),
        x, tolerance=TOLERANCE["float32"], is_static_only=True,
    )  # fmt: skip
