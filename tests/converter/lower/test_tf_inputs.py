"""What a graph without a signature is given: placeholders, and what pipelines hand on."""

import numpy as np
import onnx_run
import pytest

import converter
from converter.graphs import lower_signature as lower

SHAPE = "shape { dim { size: 3 } dim { size: 4 } }"
TYPES = "value { list { type: DT_FLOAT type: DT_INT32 } }"
QUEUE = f"""
node {{ name: "queue" op: "FIFOQueueV2"
  attr {{ key: "component_types" {TYPES} }}
  attr {{ key: "shapes" value {{ list {{ {SHAPE} shape {{ }} }} }} }} }}
node {{ name: "n" op: "Const" attr {{ key: "dtype" value {{ type: DT_INT32 }} }}
  attr {{ key: "value" value {{ tensor {{ dtype: DT_INT32 tensor_shape {{ }} int_val: 2 }} }} }} }}
node {{ name: "batch" op: "%s" input: "queue" %s attr {{ key: "component_types" {TYPES} }} }}
node {{ name: "twice" op: "AddV2" input: "batch" input: "batch"
  attr {{ key: "T" value {{ type: DT_FLOAT }} }} }}
"""
ITERATOR = f"""
node {{ name: "i" op: "IteratorV2" }}
node {{ name: "next" op: "IteratorGetNext" input: "i"
  attr {{ key: "output_types" {TYPES} }}
  attr {{ key: "output_shapes" value {{ list {{ {SHAPE} shape {{ dim {{ size: -1 }} }} }} }} }} }}
node {{ name: "of_first" op: "Neg" input: "next" attr {{ key: "T" value {{ type: DT_FLOAT }} }} }}
node {{ name: "of_second" op: "Neg" input: "next:1"
  attr {{ key: "T" value {{ type: DT_INT32 }} }} }}
"""


def graph_of(tmp_path, text):
    path = tmp_path / "graph.pbtxt"
    path.write_text(text)
    bundle = converter.read(path)
    graph = lower(bundle)
    return graph, onnx_run.session(graph, bundle.weights)


@pytest.mark.parametrize(
    ("op", "count", "rank"),
    [("QueueDequeueV2", "", 2), ("QueueDequeueManyV2", 'input: "n"', 3),
     ("QueueDequeueUpToV2", 'input: "n"', 3)],
)  # fmt: skip
def test_what_is_taken_from_a_queue_is_an_input(tmp_path, op, count, rank):
    graph, session = graph_of(tmp_path, QUEUE % (op, count))
    assert graph.inputs == ["batch"]  # the labels beside it are read by nothing
    assert graph.sources["batch"] == "batch:0"
    assert len(graph.specs["batch"].shape) == rank
    x = np.arange(1, 25, dtype="f4").reshape((2, 3, 4))[: 2 if rank == 3 else 1]
    x = x if rank == 3 else x[0]
    np.testing.assert_array_equal(session.run(None, {"batch": x})[0], 2 * x)


def test_all_that_an_iterator_hands_on_and_is_read_is_an_input(tmp_path):
    graph, session = graph_of(tmp_path, ITERATOR)
    assert graph.inputs == ["next", "next:1"]
    assert graph.sources["next:1"] == "next:1"
    x, y = np.ones((3, 4), "f4") * 1.5, np.array([3, -4], "i4")
    first, second = session.run(["of_first", "of_second"], {"next": x, "next:1": y})
    np.testing.assert_array_equal(first, -x)
    np.testing.assert_array_equal(second, -y)
