"""What one branch of an If alone needs moves into it; what others need stays outside."""

import pytest

from converter.lower.graph import Graph, Node, Spec
from converter.passes import MAX_DEPTH, simplify
from converter.passes.sink_into_branches import sink_into_branches
from formats.errors import UnsupportedError


def branch(name, reads):
    return Graph(name, 21, [Node("Neg", [reads], [f"{name}/out"])], outputs=[f"{name}/out"])


def graph_with(*nodes, outputs):
    graph = Graph("g", 21, [*nodes], ["x", "c"], outputs)
    graph.specs = {n: Spec("float32", ()) for node in nodes for n in node.outputs}
    return graph


def choose(condition, then, other, output):
    branches = {"then_branch": branch(f"{output}/t", then), "else_branch": branch(output, other)}
    return Node("If", [condition], [output], branches)


def operators(graph):
    return [node.op_type for node in graph.nodes]


def test_a_chain_that_one_branch_needs_moves_into_it_in_order():
    graph = graph_with(
        Node("Exp", ["x"], ["e"]), Node("Sqrt", ["e"], ["s"]), choose("c", "s", "x", "y"),
        outputs=["y"],
    )  # fmt: skip
    sink_into_branches(graph)
    assert operators(graph) == ["If"]
    then, other = graph.nodes[0].bodies
    assert operators(then) == ["Exp", "Sqrt", "Neg"]
    assert operators(other) == ["Neg"]
    assert {"e", "s"} <= then.specs.keys()


@pytest.mark.parametrize(
    ("then", "other", "outputs"), [("e", "e", ["y"]), ("e", "x", ["y", "e"])],
    ids=["both branches read it", "it is an output"],
)  # fmt: skip
def test_what_others_need_stays_outside(then, other, outputs):
    graph = graph_with(Node("Exp", ["x"], ["e"]), choose("c", then, other, "y"), outputs=outputs)
    sink_into_branches(graph)
    assert operators(graph) == ["Exp", "If"]


def test_branches_of_one_condition_become_one_if():
    graph = graph_with(
        Node("Exp", ["x"], ["e"]), choose("c", "e", "x", "y"), choose("c", "e", "x", "z"),
        outputs=["y", "z"],
    )  # fmt: skip
    sink_into_branches(graph)
    assert operators(graph) == ["If"]
    assert graph.nodes[0].outputs == ["y", "z"]
    assert operators(graph.nodes[0].bodies[0]) == ["Exp", "Neg", "Neg"]


def test_graphs_that_nest_deeper_than_a_protobuf_are_not_supported():
    graph = Graph("inner", 21)
    for depth in range(MAX_DEPTH + 1):
        graph = Graph(f"g{depth}", 21, [Node("Loop", [], ["y"], {"body": graph})])
    with pytest.raises(UnsupportedError, match="more than 30 deep"):
        simplify(graph)
