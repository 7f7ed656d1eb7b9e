"""Every row of fixtures/keras_layers: our graph, run by onnxruntime, gives what Keras gave."""

import numpy as np
import pytest
from op_rows import Row, opened, rows

from converter.lower.fingerprints import fingerprint
from converter.lower.keras.lowering import lower

pytestmark = pytest.mark.thorough

DTYPES = {"tensor(int32)": np.int32, "tensor(string)": object}
# Of the largest output, by the narrowest dtype that a model computes in; where onnxruntime has
# something of float64 in float32 alone, that is float32. TensorFlow rounds constants of float64
# to float32, as gelu's root of two.
TOLERANCES = {"bfloat16": 3e-2, "float16": 5e-3, "float32": 2e-5, "float64": 1e-8}


def taken(spec, array):
    """Return an array as the graph takes it: of strings that are hashed, the fingerprints."""
    if array.dtype.kind != "U" or spec.type == "tensor(string)":
        return array
    return np.vectorize(lambda text: fingerprint(text.encode()), otypes=["uint64"])(array)


@pytest.mark.parametrize(("family", "name"), rows("keras_layers"))
def test_the_graph_computes_what_keras_computes(tmp_path, family, name):
    bundle, stored = opened("keras_layers", family, name, tmp_path)
    graph = lower(bundle)
    wide = [graph.specs[name].dtype == "bfloat16" for name in graph.outputs]
    keys = [key for key in stored.files if key.startswith("out")]
    assert [key.endswith(".bfloat16") for key in keys] == wide
    row = Row(graph, bundle, TOLERANCES)
    given = [(spec, taken(spec, stored[f"in{i}"])) for i, spec in enumerate(row.inputs)]
    expected = [stored[key] for key in keys]
    assert all(np.isfinite(array).all() for array in expected if array.dtype.kind == "f")
    row.check({s.name: a.astype(DTYPES.get(s.type, a.dtype)) for s, a in given}, expected)
