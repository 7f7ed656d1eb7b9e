"""Losses: of each element or sample, their mean, or their sum.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/Loss.cpp
"""

import math

from converter.lower import dims
from converter.lower.ops.activation import log_sigmoid, log_softmax
from converter.lower.ops.scatter import scatter_elements
from converter.lower.ops.special import log1p
from converter.lower.torch.arithmetic import add, clamp_min, minimum, mul, ne, sub
from converter.lower.torch.context import Context
from converter.lower.torch.elementwise import xlogy
from converter.lower.torch.indexing import gather
from converter.lower.torch.promotion import floating, kind, result_type, together
from converter.lower.torch.reductions import pairwise_distance, reduce_over
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

MEAN, SUM = 1, 2  # as torch numbers its reductions


def _reduce(op: Context, x: Value, reduction: int) -> Value:
    if reduction == MEAN:
        return reduce_over(op, "ReduceMean", x, None, keepdim=False)
    return reduce_over(op, "ReduceSum", x, None, keepdim=False) if reduction == SUM else x


def _equal(op: Context, x: Value, number: int) -> Value:
    return op.elementwise("Equal", x, op.constant(number, x.dtype))


@aten("mse_loss")
def mse_loss(op: Context, self: Value, target: Value, reduction: int = MEAN) -> Value:
    """The squared difference."""
    apart = sub(op, self, target)
    return _reduce(op, op.mul(apart, apart), reduction)


@aten("l1_loss")
def l1_loss(op: Context, self: Value, target: Value, reduction: int = MEAN) -> Value:
    """The absolute difference."""
    return _reduce(op, op.unary("Abs", sub(op, self, target)), reduction)


@aten("smooth_l1_loss")
def smooth_l1_loss(
    op: Context, self: Value, target: Value, reduction: int = MEAN, beta: float = 1.0
) -> Value:
    """The absolute difference less beta / 2, and below beta its square / (2 * beta)."""
    if beta == 0:
        return l1_loss(op, self, target, reduction)
    z = op.unary("Abs", sub(op, self, target))
    near = op.elementwise("Less", z, op.constant(beta, z.dtype))
    square = op.div(op.mul(op.mul(z, 0.5), z), beta)
    return _reduce(op, op.where(near, square, op.sub(z, 0.5 * beta)), reduction)


@aten("huber_loss")
def huber_loss(
    op: Context, self: Value, target: Value, reduction: int = MEAN, delta: float = 1.0
) -> Value:
    """Half of the square up to a difference of delta, and linear from there on."""
    z = op.unary("Abs", sub(op, self, target))
    near = op.elementwise("LessOrEqual", z, op.constant(delta, z.dtype))
    linear = op.mul(op.sub(z, 0.5 * delta), delta)
    return _reduce(op, op.where(near, op.mul(op.mul(z, 0.5), z), linear), reduction)


@aten("kl_div")
def kl_div(
    op: Context, self: Value, target: Value, reduction: int = MEAN, log_target: bool = False
) -> Value:
    """Target * (log(target) - x), with targets that may be logarithms themselves."""
    if log_target:
        loss = op.mul(op.unary("Exp", target), op.sub(target, self))
    else:
        loss = op.sub(xlogy(op, target, target), op.mul(target, self))
    return _reduce(op, loss, reduction)


@aten("soft_margin_loss")
def soft_margin_loss(op: Context, self: Value, target: Value, reduction: int = MEAN) -> Value:
    """`log(1 + exp(-target * x))`."""
    return _reduce(
        op, log1p(op, op.unary("Exp", mul(op, op.unary("Neg", target), self))), reduction
    )


@aten("binary_cross_entropy")
def binary_cross_entropy(
    op: Context, self: Value, target: Value, weight: Value | None = None, reduction: int = MEAN
) -> Value:
    """Cross entropy of probabilities; logarithms are at least -100."""
    yes, no = (
        op.elementwise("Max", logarithm, op.constant(-100.0, self.dtype))
        for logarithm in (op.unary("Log", self), log1p(op, op.unary("Neg", self)))
    )
    loss = op.sub(op.mul(op.sub(target, 1.0), no), op.mul(target, yes))
    return _reduce(op, loss if weight is None else op.mul(loss, weight), reduction)


@aten("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    op: Context, self: Value, target: Value, weight: Value | None = None,
    pos_weight: Value | None = None, reduction: int = MEAN,
) -> Value:  # fmt: skip
    """Cross entropy of the sigmoid."""
    yes = log_sigmoid(op, self)
    if pos_weight is not None:
        yes = op.mul(yes, op.add(op.mul(op.sub(pos_weight, 1.0), target), 1.0))
    loss = op.sub(op.mul(op.sub(op.constant(1.0, target.dtype), target), self), yes)
    return _reduce(op, loss if weight is None else op.mul(loss, weight), reduction)


@aten("poisson_nll_loss")
def poisson_nll_loss(
    op: Context, input: Value, target: Value, log_input: bool, full: bool, eps: float,
    reduction: int,
) -> Value:  # fmt: skip
    """The negative logarithm of a Poisson distribution's likelihood."""
    x, wanted = together(op, [input, target])
    if log_input:
        loss = op.sub(op.unary("Exp", x), op.mul(wanted, x))
    else:
        loss = op.sub(x, op.mul(wanted, op.unary("Log", op.add(x, eps))))
    if full:
        more = op.mul(op.unary("Log", op.mul(wanted, 2 * math.pi)), 0.5)
        stirling = op.add(op.sub(op.mul(wanted, op.unary("Log", wanted)), wanted), more)
        small = op.elementwise("LessOrEqual", wanted, op.constant(1, wanted.dtype))
        loss = op.add(loss, op.where(small, op.constant(0, wanted.dtype), stirling))
    return _reduce(op, loss, reduction)


# -- of two classes, and of pairs ------------------------------------------------------------------


@aten("hinge_embedding_loss")
def hinge_embedding_loss(
    op: Context, self: Value, target: Value, margin: float = 1.0, reduction: int = MEAN
) -> Value:
    """X where the target is 1, and max(0, margin - x) where it is -1."""
    if kind(self.dtype) != 2:
        raise Unsupported(f"a loss of {self.dtype}")
    zero = op.constant(0, self.dtype)
    rest = clamp_min(op, op.sub(op.constant(margin, self.dtype), self), 0)
    first = op.where(_equal(op, target, 1), zero, rest)
    return _reduce(op, op.add(first, op.where(_equal(op, target, -1), zero, self)), reduction)


@aten("margin_ranking_loss")
def margin_ranking_loss(
    op: Context, input1: Value, input2: Value, target: Value, margin: float = 0.0,
    reduction: int = MEAN,
) -> Value:  # fmt: skip
    """`max(0, -target * (a - b) + margin)`."""
    found = mul(op, op.unary("Neg", target), sub(op, input1, input2))
    return _reduce(op, clamp_min(op, add(op, found, margin), 0), reduction)


@aten("cosine_embedding_loss")
def cosine_embedding_loss(
    op: Context, input1: Value, input2: Value, target: Value, margin: float = 0.0,
    reduction: int = MEAN,
) -> Value:  # fmt: skip
    """1 - cosine where the target is 1, and max(0, cosine - margin) where it is -1."""
    a, b = together(op, [input1, input2], floating(result_type(input1, input2)))
    axis = [target.rank]
    products, first, second = (
        op.reduce("ReduceSum", op.mul(x, y), axis) for x, y in ((a, b), (a, a), (b, b))
    )
    squares = op.mul(op.add(first, 1e-12), op.add(second, 1e-12))
    cosine = op.div(products, op.unary("Sqrt", squares))
    zero = op.constant(0.0, cosine.dtype)
    alike = op.where(_equal(op, target, 1), op.sub(op.constant(1.0, cosine.dtype), cosine), zero)
    apart = clamp_min(op, op.sub(cosine, margin), 0)
    return _reduce(op, op.add(alike, op.where(_equal(op, target, -1), apart, zero)), reduction)


@aten("triplet_margin_loss")
def triplet_margin_loss(
    op: Context, anchor: Value, positive: Value, negative: Value, margin: float = 1.0,
    p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: int = MEAN,
) -> Value:  # fmt: skip
    """`max(0, margin + distance to the positive - distance to the negative)`."""
    near, far = (pairwise_distance(op, anchor, x, p, eps) for x in (positive, negative))
    if swap:
        far = minimum(op, far, pairwise_distance(op, positive, negative, p, eps))
    return _reduce(op, clamp_min(op, op.sub(op.add(near, margin), far), 0), reduction)


# -- of classes ------------------------------------------------------------------------------------


def _of_classes(
    op: Context, losses: Value, target: Value, weight: Value | None, reduction: int, ignored: int
) -> Value:
    """Return losses of samples, weighted by class; a mean is one of the weights.

    Args:
        op: Builder.
        losses: Loss of each sample, already weighted.
        target: Classes.
        weight: Weight of each class.
        reduction: Reduction by torch's number.
        ignored: The class whose samples count for nothing.
    """
    out = _equal(op, target, ignored)
    zero = op.constant(0, losses.dtype)
    losses = op.where(out, zero, losses)
    if reduction != MEAN:
        return _reduce(op, losses, reduction)
    weights = _weights(op, losses, target, weight, out)
    return op.div(*(_reduce(op, x, SUM) for x in (losses, op.where(out, zero, weights))))


def _weights(op: Context, losses: Value, target: Value, weight: Value | None, out: Value) -> Value:
    if weight is None:
        return op.expand(op.constant(1, losses.dtype), op.named(losses).shape)
    return op.gather(weight, op.where(out, op.constant(0, target.dtype), target))


@aten("nll_loss", "nll_loss_nd", "nll_loss2d")
def nll_loss(
    op: Context, self: Value, target: Value, weight: Value | None = None, reduction: int = MEAN,
    ignore_index: int = -100,
) -> Value:  # fmt: skip
    """The negative logarithm of the target class's probability."""
    axis = 1 if self.rank > 1 else 0
    out = _equal(op, target, ignore_index)
    index = op.where(out, op.constant(0, target.dtype), target)
    wide = op.unsqueeze(index, [axis])
    losses = op.unary("Neg", op.squeeze(gather(op, self, axis, wide), [axis]))
    if weight is not None:
        losses = op.mul(losses, _weights(op, losses, target, weight, out))
    return _of_classes(op, losses, target, weight, reduction, ignore_index)


@aten("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(
    op: Context, self: Value, target: Value, weight: Value | None, reduction: int,
    ignore_index: int,
) -> list[Value | Unsupported]:  # fmt: skip
    """The negative logarithm of the target class's probability; the rest only gradients need."""
    loss = nll_loss(op, self, target, weight, reduction, ignore_index)
    return [loss, Unsupported("the total weight of a loss, which only gradients need")]


@aten("cross_entropy_loss")
def cross_entropy_loss(
    op: Context, self: Value, target: Value, weight: Value | None = None, reduction: int = MEAN,
    ignore_index: int = -100, label_smoothing: float = 0.0,
) -> Value:  # fmt: skip
    """Cross entropy of the softmax, for classes or for their probabilities."""
    axis = 1 if self.rank > 1 else 0
    logarithms = log_softmax(op, self, axis)
    wide = weight
    if weight is not None:
        wide = op.reshape(weight, (weight.shape[0], *(1 for _ in range(self.rank - axis - 1))))
    if kind(target.dtype) == 2:
        return _of_probabilities(
            op, logarithms, target, wide, axis, reduction, smoothing=label_smoothing
        )
    picked = nll_loss(op, logarithms, target, weight, 0, ignore_index)
    if label_smoothing:
        count = op.scalar_of(op.named(self).shape[axis], self.dtype)
        weighted = logarithms if wide is None else op.mul(logarithms, wide)
        others = op.unary("Neg", op.reduce("ReduceSum", weighted, [axis]))
        share = op.mul(op.div(others, count), label_smoothing)
        picked = op.add(op.mul(picked, 1 - label_smoothing), share)
    return _of_classes(op, picked, target, weight, reduction, ignore_index)


def _of_probabilities(
    op: Context, logarithms: Value, target: Value, weight: Value | None, axis: int,
    reduction: int, *, smoothing: float,
) -> Value:  # fmt: skip
    """Return the cross entropy of probabilities; a mean is one of samples."""
    shape = op.named(logarithms).shape
    if smoothing:
        share = op.div(
            op.constant(smoothing, target.dtype), op.scalar_of(shape[axis], target.dtype)
        )
        target = op.add(op.mul(target, 1 - smoothing), share)
    found = op.mul(logarithms, target)
    losses = op.unary("Neg", found if weight is None else op.mul(found, weight))
    if reduction != MEAN:
        return _reduce(op, op.reduce("ReduceSum", losses, [axis]), reduction)
    samples = dims.product([n for at, n in enumerate(shape) if at != axis])
    return op.div(_reduce(op, losses, SUM), op.scalar_of(samples, losses.dtype))


@aten("multi_margin_loss")
def multi_margin_loss(
    op: Context, self: Value, target: Value, p: float = 1, margin: float = 1,
    weight: Value | None = None, reduction: int = MEAN,
) -> Value:  # fmt: skip
    """The mean of `max(0, margin - x[target] + x[i]) ** p` over the other classes."""
    if self.rank == 0:
        self, target = op.reshape(self, (1,)), op.reshape(target, ())
    axis = self.rank - 1
    index = op.unsqueeze(target, [-1]) if target.rank < self.rank else target
    apart = op.add(op.sub(self, gather(op, self, axis, index)), margin)
    found = op.elementwise("Max", apart, op.constant(0.0, self.dtype))
    if p == 2:
        found = op.mul(found, found)
    elif p != 1:
        raise Unsupported(f"p = {p}")
    if weight is not None:
        found = op.mul(found, op.gather(weight, index))
    count = op.named(self).shape[axis]
    others = ne(op, op.range(count), index)
    found = op.where(others, found, op.constant(0.0, self.dtype))
    losses = op.div(op.reduce("ReduceSum", found, [axis]), op.scalar_of(count, self.dtype))
    return _reduce(op, losses, reduction)


@aten("multilabel_margin_loss")
def multilabel_margin_loss(op: Context, self: Value, target: Value, reduction: int = MEAN) -> Value:
    """The margins between the classes of a sample and all others; -1 ends a list of classes."""
    x = op.reshape(self, (1,)) if self.rank == 0 else self
    labels = op.named(op.reshape(target, (1,)) if target.rank == 0 else target)
    axis = x.rank - 1
    ended = op.cast(op.elementwise("Less", labels, 0), "int64")
    at = op.elementwise("Max", labels, op.constant(0, labels.dtype))
    total = op.emit("CumSum", ended, op.constant(axis, "int64"), dtype="int64", shape=ended.shape)
    held = op.cast(_equal(op, total, 0), x.dtype)
    none = op.filled(labels.shape, 0, x.dtype)
    wanted = scatter_elements(op, none, axis, at, held, "max")
    apart = op.sub(op.unsqueeze(x, [axis]), op.unsqueeze(gather(op, x, axis, at), [axis + 1]))
    found = op.elementwise("Max", op.add(apart, 1.0), op.constant(0.0, x.dtype))
    others = op.sub(op.constant(1.0, x.dtype), op.unsqueeze(wanted, [axis]))
    found = op.mul(op.mul(found, op.unsqueeze(held, [axis + 1])), others)
    count = op.scalar_of(op.named(x).shape[axis], x.dtype)
    return _reduce(op, op.div(op.reduce("ReduceSum", found, [axis, axis + 1]), count), reduction)
