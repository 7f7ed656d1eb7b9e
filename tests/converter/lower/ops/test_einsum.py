"""Einsum beside NumPy's: what becomes a product of matrices, and what stays ONNX's operator."""

import numpy as np
import op_by_hand
import pytest

from converter.lower.ops import einsum

RNG = np.random.default_rng(0)
SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 6}
EQUATIONS = [
    "ab,bc->ac", "ab,cb->ca", "abc,cd->abd", "abc,acd->abd", "abcd,abed->abce", "abc,dc->abd",
    "abcd,cde->abe", "ab,b->a", "a,b->ab", "ab,ab->ab", "abc,abd->acd", "abc,cb->a", "ba,bc->ca",
    "ab,ab->", "abc,bd->ad", "...ab,...bc->...ac", "...a,ab->...b", "abc->ca", "ab,bc,cd->ad",
]  # fmt: skip


def operands(equation, dtype):
    terms = equation.replace("...", "de").split("->")[0].split(",")
    return [RNG.normal(size=[SIZES[c] for c in term]).astype(dtype) for term in terms]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_a_sum_is_numpys(equation, dtype):
    arrays = operands(equation, dtype)
    expected = np.einsum(equation, *arrays)

    def contract(op, *values):
        sizes = {n: f"n{n}" for n in SIZES.values()}
        is_symbolic = not isinstance(values[0].shape[0], int)
        shape = tuple(sizes[n] if is_symbolic else n for n in expected.shape)
        return einsum.contract(op, equation, *values, shape=shape)

    op_by_hand.check(contract, lambda *x: np.einsum(equation, *x), *arrays)


def test_a_sum_over_nothing_is_zero():
    a, b = np.zeros((2, 0), "float32"), np.zeros((0, 3), "float32")
    op_by_hand.check(
        lambda op, a, b: einsum.contract(op, "ab,bc->ac", a, b, shape=(2, 3)), np.matmul, a, b,
        is_static_only=True,
    )  # fmt: skip


@pytest.mark.parametrize("equation", ["abc,cd->abd", "abcd,abed->abce", "abc,dc->abd"])
def test_dense_layers_and_attention_scores_are_one_product(equation):
    arrays = operands(equation, "float32")
    shape = np.einsum(equation, *arrays).shape
    seen = []

    def contract(op, *values):
        result = einsum.contract(op, equation, *values, shape=shape)
        seen.extend(node.op_type for node in op.graph.nodes)
        return result

    op_by_hand.compute(contract, *arrays)
    assert "Einsum" not in seen
    assert seen.count("MatMul") == 1
