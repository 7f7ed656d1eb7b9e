"""Functions of `converter.lower.ops` called on inputs of a graph, and what the graph computes.

A function is run twice, with inputs of static sizes and of symbolic ones, and is compared with a
reference that gets the inputs in float64: one meaning for all sizes and dtypes.
"""

import numpy as np
import onnx_run

from converter.lower.builder import Builder
from converter.lower.graph import Graph
from converter.lower.ops.complex import Complex

TOLERANCE = {"float16": 4e-3, "float32": 4e-6, "float64": 1e-10}


def compute(function, *arrays, is_symbolic=False, opset=18):
    """Return what a function of a builder and values gives for arrays, as a list of arrays.

    Equal sizes share a name where they are symbolic.
    """
    graph = Graph("m", opset)
    op = Builder(graph, {})
    values = [
        op.input(f"x{i}", str(x.dtype), tuple(f"n{n}" if is_symbolic else n for n in x.shape))
        for i, x in enumerate(arrays)
    ]
    results = function(op, *values)
    for i, result in enumerate(results if isinstance(results, (list, tuple)) else [results]):
        parts = (result.real, result.imaginary) if isinstance(result, Complex) else (result,)
        for j, part in enumerate(parts):
            op.output(part, f"y{i}.{j}")
    found = onnx_run.run(graph, *arrays)
    for name, array in zip(graph.outputs, found, strict=True):
        onnx_run.as_declared(graph.specs[name], array)
    return found


def check(function, reference, *arrays, tolerance=None, is_static_only=False):
    """Compare a function with its reference: equal shapes, and values within a relative tolerance.

    Args:
        function: Of a builder and values.
        reference: Of the arrays, floating-point ones in float64.
        arrays: The inputs; all floating-point ones have one dtype, which gives the tolerance.
        tolerance: Relative to the largest value of the reference, or to 1.
        is_static_only: Whether sizes must be known.
    """
    wide = [x.astype("float64") if x.dtype.kind == "f" else x for x in arrays]
    with np.errstate(all="ignore"):
        expected = reference(*wide)
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    dtypes = {str(x.dtype) for x in arrays if x.dtype.kind == "f"}
    within = tolerance or max((TOLERANCE[dtype] for dtype in dtypes), default=0)
    for is_symbolic in (False,) if is_static_only else (False, True):
        found = compute(function, *arrays, is_symbolic=is_symbolic)
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            wanted = np.asarray(theirs)
            assert ours.shape == wanted.shape, is_symbolic
            if dtypes and ours.dtype.kind == "f":
                wanted = wanted.astype(ours.dtype)  # an overflow of the dtype is infinite
            finite = np.abs(wanted[np.isfinite(wanted)].astype("float64"))
            scale = max(finite.max(initial=0), 1)
            np.testing.assert_allclose(
                ours.astype("float64"), wanted.astype("float64"), rtol=within, atol=within * scale
            )
