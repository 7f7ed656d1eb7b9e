"""Every row of fixtures/tf_ops: our graph, run by onnxruntime, gives what TensorFlow gave."""

import pytest
from op_rows import Row, lower_row, opened, rows

from converter.graphs import lower_signature as lower

pytestmark = pytest.mark.thorough

# Of the largest output, by the narrowest dtype that a row computes in; what onnxruntime computes
# of float64 in float32 alone is that.
TOLERANCES = {"bfloat16": 3e-2, "float16": 5e-3, "float32": 2e-5, "float64": 1e-8}


@pytest.mark.parametrize(("family", "name"), rows("tf_ops", ".pb"))
def test_the_graph_computes_what_tensorflow_computes(tmp_path, family, name):
    bundle, stored = opened("tf_ops", family, name, tmp_path)
    graph = lower_row(lower, bundle, stored)
    if graph is not None:
        row = Row(graph, bundle, TOLERANCES)
        fed = {spec.name: stored[spec.name.removesuffix(":wide")] for spec in row.inputs}
        # What loops leave unread counts as outputs, too: only those of the row have a reference.
        wanted = [spec for spec in row.outputs if spec.name.startswith("out")]
        row.check(fed, [stored[key] for key in stored.files if key.startswith("out")], wanted)
