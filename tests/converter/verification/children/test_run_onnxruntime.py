"""The child that runs a graph: what numpy has no dtype for is handed to onnxruntime too."""

import ml_dtypes
import numpy as np
import onnx_run
import pytest

from converter.lower.builder import Builder
from converter.lower.graph import Graph
from converter.verification.children import run_onnxruntime

onnxruntime = pytest.importorskip("onnxruntime")


def test_inputs_of_bfloat16_are_rounded_to_it_beside_others():
    op = Builder(Graph("g", 18), {})
    half, text = op.input("half", "bfloat16", (None,)), op.input("text", "string", (None,))
    op.output(op.cast(half, "float32"), "wide")
    op.output(text, "same")
    session = onnx_run.session(op.graph)
    types = {spec.name: spec.type for spec in session.get_inputs()}
    numbers = np.array([0.1, -3.14159, 1e30], "f4")
    given = {"half": numbers, "text": np.array(["a", "ö"], object)}
    wide, same = run_onnxruntime.run(onnxruntime, session, ["wide", "same"], given, types)
    np.testing.assert_array_equal(wide, numbers.astype(ml_dtypes.bfloat16).astype("f4"))
    assert list(same) == ["a", "ö"]
