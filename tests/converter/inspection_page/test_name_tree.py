"""Names as blocks, and blocks without circles."""

import pytest

from converter.inspection_page.circles import split_circles
from converter.inspection_page.name_tree import MOST, SCOPES, Block, build_tree, split_name


def shown(block):
    """Return a tree as nested lists of labels."""
    return [
        [member.label, *shown(member)] if isinstance(member, Block) else label
        for label, member in zip(block.labels, block.members, strict=True)
    ]


def leaves(block):
    for member in block.members:
        if isinstance(member, Block):
            yield from leaves(member)
        else:
            yield member


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("model.layers.0.weight", ["model.", "layers.", "0.", "weight"]),
        ("dense/kernel", ["dense/", "kernel"]),
        ("/a//b.", ["/", "a/", "/", "b."]),
        ("", [""]),
        ("плотный/ядро", ["плотный/", "ядро"]),
        ("</script>", ["</", "script>"]),
    ],
)
def test_parts_together_are_the_name(name, parts):
    assert split_name(name) == parts
    assert "".join(split_name(name)) == name


def test_a_name_of_ten_thousand_parts_is_no_deep_tree():
    name = "a." * 10_000
    assert len(split_name(name)) == 40
    assert "".join(split_name(name)) == name


def test_blocks_are_of_common_parts_in_the_order_of_names():
    names = ["m.b.w", "m.b.bias", "m.a/w", "head", "m.b.x"]
    assert shown(build_tree(names)) == [["m.", ["b.", "w", "bias", "x"], ["a/", "w"]], "head"]


def test_a_block_alone_in_a_block_is_one():
    assert shown(build_tree(["model.layers.0.w", "model.layers.1.w"])) == [
        ["model.layers.", ["0.", "w"], ["1.", "w"]]
    ]


def test_layers_of_one_numbered_prefix_are_a_block():
    names = [f"conv{i}_block{j}_{k}_conv/kernel"
             for i in (2, 3) for j in (1, 2, 3) for k in range(5)]  # fmt: skip
    tree = shown(build_tree([*names, "predictions/kernel"]))
    assert [one[0] for one in tree] == ["conv2_", "conv3_", "predictions/"]
    assert len(tree[0]) == 16
    few = shown(build_tree(names[:4]))
    assert [one[0] for one in few] == [name.split("kernel")[0] for name in names[:4]]


@pytest.mark.parametrize("n", [MOST + 1, 5000, 100_000])
def test_a_flat_model_becomes_runs(n):
    tree = build_tree([f"{i}" for i in range(n)])
    assert [*leaves(tree)] == [*range(n)]

    def widest(block):
        inner = [widest(one) for one in block.members if isinstance(one, Block)]
        return max([len(block.members), *inner])

    assert widest(tree) <= 2000
    assert len(tree.members) <= 50


def test_a_scope_of_several_operations_is_split_where_it_is_in_a_circle():
    # matmul/a -> soft/b -> matmul/c; layer/d -> layer/e are as they are.
    names = ["matmul/a", "soft/b", "matmul/c", "layer/d", "layer/e"]
    tree = split_circles(build_tree(names, SCOPES), [(0, 1), (1, 2), (2, 3), (3, 4)])
    assert shown(tree) == [
        ["matmul/", "a"], ["matmul/", "c"], ["soft/", "b"], ["layer/", "d", "e"],
    ]  # fmt: skip


def test_a_connected_scope_in_a_circle_becomes_its_members():
    # add/a -> add/c and add/a -> mlp/b -> add/c
    names = ["add/a", "mlp/b", "add/c"]
    tree = split_circles(build_tree(names, SCOPES), [(0, 1), (1, 2), (0, 2)])
    assert shown(tree) == ["add/a", "add/c", ["mlp/", "b"]]


def test_blocks_without_circles_are_kept():
    names = ["x/a", "x/b", "y/c"]
    tree = build_tree(names, SCOPES)
    assert shown(split_circles(tree, [(0, 2), (1, 2)])) == shown(tree)
