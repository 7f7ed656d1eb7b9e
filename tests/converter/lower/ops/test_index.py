"""Elements taken along an axis, and one-hot vectors, mean the same in every front end."""

import math

import numpy as np
import onnx_run
import pytest
import spellings as s

X = np.array([[3, math.nan, -1, 0.5], [math.inf, 2, -math.inf, -0.0]], "float32")
PLACES = np.array([[0, 3, 1], [2, 2, 0]], "int64")
CLASSES = np.array([[0, 3, 1], [2, 5, -1]], "int64")  # two of them are none of the four


def keras(name, module="numpy", **config):
    return lambda folder, specs: s.keras_operation(folder, name, specs, module, config)


def script(code):
    return lambda folder, specs: s.torch_script(folder, code, specs)


def one_hot_op(folder, specs):
    constants = [np.array(4, "int32"), np.array(1, "float32"), np.array(0, "float32")]
    return s.tensorflow(folder, "OneHot", specs, constants, result="float32")


def one_hot(x, axis=-1):
    return np.moveaxis(x[..., None] == np.arange(4), -1, axis).astype("float32")


# Operation -> several inputs, reference, spellings.
ROWS = {
    "along an axis": (
        [[X, PLACES], [X, PLACES[:, :1]], [X.astype("float64"), PLACES],
         [np.arange(8, dtype="int32").reshape(2, 4), PLACES], [X, PLACES[:, :0]]],
        lambda x, i: np.take_along_axis(x, i, 1),
        [keras("TakeAlongAxis", axis=-1), script("torch.take_along_dim(x0, x1, 1)")],
    ),
    "along an axis, indices broadcast": (
        [[X, PLACES[:1]]], lambda x, i: np.take_along_axis(x, i, 1),
        [keras("TakeAlongAxis", axis=1), script("torch.take_along_dim(x0, x1, -1)")],
    ),
    "along an axis, elements broadcast": (
        [[X[:1], PLACES]], lambda x, i: np.take_along_axis(x, i, 1),
        [keras("TakeAlongAxis", axis=1), script("torch.take_along_dim(x0, x1, 1)")],
    ),
    "one-hot": (
        [[CLASSES], [CLASSES[0]], [CLASSES[:0]]], one_hot,
        [keras("OneHot", "nn", num_classes=4), one_hot_op,
         script("torch.to(torch.one_hot(x0, 4), 6)")],
    ),
    "one-hot of a scalar": (
        [[np.array(3)]], one_hot,
        [one_hot_op, script("torch.to(torch.one_hot(x0, 4), 6)")],
    ),
    "one-hot along the first axis": (
        [[CLASSES], [CLASSES[0]]], lambda x: one_hot(x, 0),
        [keras("OneHot", "nn", num_classes=4, axis=0)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "way"), [(row, i) for row, (*_, ways) in ROWS.items() for i in range(len(ways))]
)
def test_an_index(row, way, tmp_path):
    inputs, reference, ways = ROWS[row]
    for xs in inputs:
        expected = reference(*xs)
        unknown = [(x.dtype.name, (None, *x.shape[1:])[: x.ndim]) for x in xs]
        for specs in ([(x.dtype.name, x.shape) for x in xs], unknown):
            if "broadcast" in row and specs is unknown:
                continue  # whether an axis of unknown size is broadcast is not known
            graph, weights = ways[way](tmp_path, specs)
            (found,) = onnx_run.run(graph, *xs, weights=weights)
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            np.testing.assert_array_equal(found, expected)
