"""Max-pooling that propagates NaN and -inf, beside the maximum of each window by NumPy."""

from itertools import product
from math import inf, nan

import numpy as np
import onnx_run
import pytest
import spellings

import converter
from converter.lower.graph import Graph, Node, Spec
from converter.options import Options, parse_inputs
from converter.passes.propagate_nan import propagate_nan
from formats.errors import UnsupportedError

MADE = np.random.default_rng(0).choice([nan, inf, -inf, -inf, -inf, 1, -2, -6e4], (2, 3, 7, 9, 5))
ENDS = MADE.astype("float32")


def pool_graph(x, op_type="MaxPool", dynamic=False, outputs=("y",), opset=18, **attributes):
    shape = (*x.shape[:2], *((f"n{i}" if dynamic else n) for i, n in enumerate(x.shape[2:])))
    node = Node(op_type, ["x"], [*outputs], attributes, "pool")
    graph = Graph("g", opset, [node], ["x"], [*outputs])
    kinds = (x.dtype.name, "int64")
    graph.specs = {"x": Spec(x.dtype.name, shape)}
    for name, dtype in zip(outputs, kinds, strict=False):
        graph.specs[name] = Spec(dtype, (None,) * x.ndim)
    return graph


def pool_by_numpy(x, kernel, strides, before, after, dilations, counts):
    """Return the maximum of each window: NumPy's propagates NaN."""
    around = [(0, 0), (0, 0), *((b, a + 99) for b, a in zip(before, after, strict=True))]
    padded = np.pad(x, around, constant_values=-inf)
    made = np.empty((*x.shape[:2], *counts), x.dtype)
    for at in product(*map(range, counts)):
        window = tuple(
            slice(i * s, i * s + (k - 1) * d + 1, d)
            for i, s, k, d in zip(at, strides, kernel, dilations, strict=True)
        )
        found = padded[(slice(None), slice(None), *window)]
        made[(slice(None), slice(None), *at)] = found.max(axis=tuple(range(2, x.ndim)))
    return made


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "before", "after"),
    [(3, 1, 1, 1, 1), (3, 2, 1, 1, 0), (2, 2, 1, 0, 0), (1, 2, 1, 0, 0), (1, 1, 1, 0, 0),
     (2, 1, 3, 1, 1), (2, 3, 2, 1, 1)],
)  # fmt: skip
def test_each_window_has_its_maximum(kernel, stride, dilation, before, after, rank, dynamic, dtype):
    x = ENDS[(slice(None), slice(None), *[slice(None)] * rank, *[0] * (3 - rank))].astype(dtype)
    each = {"kernel_shape": kernel, "strides": stride, "dilations": dilation}
    graph = pool_graph(
        x, dynamic=dynamic, **{name: [n] * rank for name, n in each.items()},
        pads=[before] * rank + [after] * rank,
    )  # fmt: skip
    propagate_nan(graph)
    (found,) = onnx_run.run(graph, x)
    reach = (kernel - 1) * dilation + 1
    counts = [(n + before + after - reach) // stride + 1 for n in x.shape[2:]]
    many = ([n] * rank for n in (kernel, stride, before, after, dilation))
    np.testing.assert_array_equal(found, pool_by_numpy(x, *many, counts))


@pytest.mark.parametrize(
    ("n", "kernel", "stride", "pads", "mode", "begins"),
    [
        (7, 3, 2, None, "SAME_UPPER", [-1, 1, 3, 5]), (8, 3, 2, None, "SAME_UPPER", [0, 2, 4, 6]),
        (8, 3, 2, None, "SAME_LOWER", [-1, 1, 3, 5]), (8, 3, 2, None, "VALID", [0, 2, 4]),
        (8, 3, 2, (0, 0), "ceil", [0, 2, 4, 6]), (9, 3, 2, (0, 0), "ceil", [0, 2, 4, 6]),
        (4, 2, 3, (1, 1), "ceil", [-1, 2]), (7, 2, 3, (1, 1), "ceil", [-1, 2, 5]),
        (6, 3, 1, None, "SAME_LOWER", [-1, 0, 1, 2, 3, 4]),
    ],
)  # fmt: skip
def test_padding_is_that_of_the_mode(n, kernel, stride, pads, mode, begins):
    """As ONNX defines it: onnxruntime's own MaxPool gives the same for finite numbers."""
    finite = np.random.default_rng(n).normal(size=(1, 2, n)).astype("float32")
    given = {"kernel_shape": [kernel], "strides": [stride]}
    given |= {"ceil_mode": 1} if mode == "ceil" else {"auto_pad": mode}
    given |= {"pads": [*pads]} if pads else {}
    (wanted,) = onnx_run.run(pool_graph(finite, **given), finite)
    graph = pool_graph(finite, **given)
    propagate_nan(graph)
    assert "MaxPool" not in [node.op_type for node in graph.nodes]
    (found,) = onnx_run.run(graph, finite)
    np.testing.assert_array_equal(found, wanted)
    x = np.where(finite > 0.7, np.float32(nan), finite)
    (found,) = onnx_run.run(graph, x)
    before = -begins[0]
    counts = [len(begins)]
    expected = pool_by_numpy(x, [kernel], [stride], [before], [0], [1], counts)
    np.testing.assert_array_equal(found, expected)


def test_poolings_in_branches_and_of_integers():
    body = pool_graph(ENDS, kernel_shape=[2, 2, 2])
    outer = Graph("g", 18, [Node("If", ["c"], ["z"], {"then_branch": body})], ["x", "c"], ["z"])
    outer.specs = {"c": Spec("bool", ())}
    propagate_nan(outer)
    assert {node.op_type for node in body.nodes} == {"Slice", "Max"}
    integers = pool_graph(np.ones((1, 1, 4, 4, 4), "uint8"), kernel_shape=[2, 2, 2])
    propagate_nan(integers)
    assert [node.op_type for node in integers.nodes] == ["MaxPool"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"outputs": ("y", "indices")}, "indices of maxima, as pool has"),
        ({"dynamic": True, "strides": [2, 2, 2], "auto_pad": "SAME_UPPER"}, "SAME_UPPER of a dyn"),
        ({"dynamic": True, "strides": [2, 2, 2], "ceil_mode": 1}, "ceil_mode of a dynamic size"),
        ({"opset": 12}, "MaxPool of float32, opset 12, as pool is"),
        ({"dtype": "bfloat16"}, "MaxPool of bfloat16, opset 18, as pool is"),
        ({"op_type": "GlobalMaxPool"}, "GlobalMaxPool of float32"),
    ],
)
def test_what_is_not_supported_is_named(given, words):
    dtype = given.pop("dtype", "float32")
    graph = pool_graph(ENDS, kernel_shape=[2, 2, 2], **given)
    graph.specs["x"] = Spec(dtype, graph.specs["x"].shape)
    with pytest.raises(UnsupportedError, match=words):
        propagate_nan(graph)


@pytest.mark.parametrize("is_asked", [False, True])
def test_the_option_reaches_the_written_graph(is_asked, tmp_path):
    spellings.torch_script(tmp_path, "torch.max_pool1d(x0, [2], [1])", [("float32", (1, 1, 3))])
    inputs = parse_inputs(["x0:float32:1,1,3"])
    out = tmp_path / "pool.onnx"
    converter.convert(
        tmp_path / "script.pt",
        to="onnx",
        inputs=inputs,
        out=out,
        options=Options(propagate_nan=is_asked),
    )
    (found,) = onnx_run.run(out, np.float32([[[-inf, -inf, nan]]]))
    if is_asked:
        np.testing.assert_array_equal(found, [[[-inf, nan]]])
    else:
        assert np.isfinite(found[0, 0, 0])  # the lowest finite float, in onnxruntime
