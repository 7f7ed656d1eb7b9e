"""Sizes that have names: what equals what, and what is known of elements computed of them."""

import itertools

import numpy as np
import pytest

from converter.lower import dims
from converter.lower.tf import contents, walk
from converter.lower.tf.graphdef import Node
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value, identity

NAMES = {"b": 3, "t": 8, "h": 12}


def number(size):
    """Return what a size is where its names stand for numbers: it must be no other."""
    if isinstance(size, int):
        return size
    return eval(size, {"__builtins__": {}, "min": min, "max": max}, NAMES)


SIZES = ["b", "t", 4, 1, dims.mul("b", "t"), dims.add("t", -1), dims.mul("h", 2)]


@pytest.mark.parametrize(("a", "b"), [*itertools.product(SIZES, repeat=2)])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (dims.add, lambda a, b: a + b), (dims.sub, lambda a, b: a - b),
        (dims.mul, lambda a, b: a * b), (dims.floordiv, lambda a, b: a // b),
        (dims.modulo, lambda a, b: a % b), (dims.least, min), (dims.most, max),
    ],
)  # fmt: skip
def test_what_is_computed_of_names_is_what_numbers_give(ours, theirs, a, b):
    found = ours(a, b)
    assert found is not None
    assert number(found) == theirs(number(a), number(b))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (dims.add("b", "t"), dims.add("t", "b")),
        (dims.mul(dims.add("b", 1), "t"), dims.add(dims.mul("b", "t"), "t")),
        (dims.sub(dims.add("b", 7), 7), "b"),
        (dims.floordiv(dims.mul("b", 8), 8), "b"),
        (dims.divide_exactly(dims.mul(dims.mul("b", "t"), 6), dims.mul("t", 3)), dims.mul(2, "b")),
        (dims.floordiv(dims.add("b", 1), 2), dims.floordiv(dims.add(1, "b"), 2)),
        (dims.sub("b", "b"), 0),
        (dims.modulo(dims.mul("b", 4), 4), 0),
        (dims.product(["b", 2, "t", 3]), dims.mul(6, dims.mul("t", "b"))),
    ],
)
def test_equal_sizes_have_equal_names(one, other):
    assert one == other


@pytest.mark.parametrize(("a", "b"), [("b", 0), (None, "b"), ("b", None), (0, 0)])
def test_what_cannot_be_said_is_not_known(a, b):
    assert dims.floordiv(a, b) is None


def test_a_name_that_grows_without_end_is_not_known():
    size = "a_name_of_some_length"
    for i in range(100):
        size = dims.mul(dims.add(size, i), f"another_name_{i}")
    assert size is None


def test_a_name_of_the_source_is_no_sum_even_if_it_is_spelled_like_one():
    assert dims.floordiv(dims.mul("b", 2), 2) == "b"
    assert dims.floordiv("2*b", 2) != "b"


def test_the_minimum_of_a_maximum_and_its_operand_is_the_operand():
    assert dims.least(dims.most("b", 3), 3) == 3
    assert dims.least("b", dims.most("b", "t")) == "b"
    assert dims.least("max(3,b)", 3) == "min(3,max(3,b))"


def test_elements_are_followed_through_nodes():
    shape = contents.objects(["b", 8, "t"])
    part = contents.fold(
        "StridedSlice", [shape, np.array([0]), np.array([2]), np.array([1])], {"begin_mask": 1}
    )
    assert list(part) == ["b", 8]
    whole = contents.fold("Prod", [part, np.array([0], "int32")], {})
    assert whole[()] == dims.mul("b", 8)
    assert contents.fold("Equal", [whole, whole], {})[()] is True
    assert not contents.known(contents.fold("Greater", [whole, np.array(3)], {}))


def test_numbers_are_computed_in_their_dtype():
    found = contents.fold("Mul", [np.array([200], "uint8"), np.array([2], "uint8")], {})
    assert found.dtype == np.uint8
    assert found[0] == 400 % 256
    divided = contents.fold("TruncateDiv", [np.array(-7, "int32"), np.array(2, "int32")], {})
    assert divided[()] == -3
    assert contents.fold("FloorDiv", [np.array(-7, "int32"), np.array(2, "int32")], {})[()] == -4


def test_what_is_too_large_is_not_followed():
    assert contents.fold("Fill", [np.array([10**6, 10**6]), np.array(1)], {}) is None
    assert contents.fold("Range", [np.array(0), np.array(10**9), np.array(1)], {}) is None


@pytest.mark.parametrize(
    ("recorded", "fits"),
    [((2, None), True), ((None, 3), True), (None, True), ((2, 4), False), ((2, 3, 1), False)],
)
def test_shapes_that_the_file_records_are_held_against_ours(monkeypatch, recorded, fits):
    node = Node("n", "Op", [], [], {"_output_shapes": None})
    monkeypatch.setattr(Node, "attribute", lambda *_: [recorded])
    results = [Value("v", "float32", (2, 3), identity(2))]
    if fits:
        walk._check_shapes(node, results)
        return
    with pytest.raises(Unsupported, match="records the shape"):
        walk._check_shapes(node, results)
