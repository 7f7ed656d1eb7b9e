"""Complex tensors and transforms of torch programs: what is a gap, and what is not too much."""

import time

import pytest

from converter.lower import OPSET
from converter.lower.graph import Graph
from converter.lower.torch.calls import call
from converter.lower.torch.complex_tensors import Pair
from converter.lower.torch.context import Context
from converter.lower.torch.mutable_tensors import Reference
from converter.lower.unsupported import Unsupported


@pytest.fixture
def op():
    return Context(Graph("g", OPSET), {})


@pytest.fixture
def pair(op):
    return call(op, "aten.view_as_complex", [Reference.to(op.input("x", "float32", (3, 4, 2)))])


def test_a_complex_tensor_has_the_shape_and_dtype_of_one(op, pair):
    value = call(op, "aten.transpose.int", [pair, 0, 1]).read()
    assert isinstance(value, Pair)
    assert (value.shape, value.dtype) == ((4, 3), "complex64")
    assert [part.shape for part in value.parts] == [(4, 3), (4, 3)]


def test_what_is_written_to_a_view_is_in_its_base(op, pair):
    row = call(op, "aten.select.int", [pair, 0, 1])
    before = pair.read()
    call(op, "aten.mul_.Scalar", [row, 2j])
    assert pair.read() is not before
    assert pair.read().shape == (3, 4)


@pytest.mark.parametrize("name", ["aten.relu", "aten.sort", "aten.erf", "aten.cumprod"])
def test_what_is_not_known_of_complex_numbers_is_a_gap(op, pair, name):
    with pytest.raises(Unsupported, match="complex"):
        call(op, name, [pair, *([0] if name == "aten.cumprod" else [])])


def test_a_complex_tensor_is_no_operand_of_a_node(op, pair):
    with pytest.raises(Unsupported, match="complex"):
        op.unary("Relu", pair.read())
    with pytest.raises(Unsupported, match="complex"):
        op.output(pair.read(), "y")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten.fft_rfft", (1 << 60,)), ("aten.fft_fftn", ([3, 1 << 61],)),
        ("aten.stft", (1 << 50, 10)), ("aten.stft", (16, -1)),
        ("aten.fft_fft", (None, 7)), ("aten.fft_fft", (None, -1, "loud")),
    ],
)  # fmt: skip
def test_what_is_too_much_or_none_is_a_gap_at_once(op, name, args):
    x = Reference.to(op.input("x", "float32", (3, 400)))
    begin = time.process_time()
    with pytest.raises(Unsupported):
        call(op, name, [x, *args])
    assert time.process_time() - begin < 1


@pytest.mark.parametrize("name", ["fft_fftfreq", "fft_rfftfreq", "hann_window", "kaiser_window"])
def test_numbers_that_are_too_many_are_a_gap(op, name):
    with pytest.raises(Unsupported):
        call(op, f"aten.{name}", [1 << 40])
