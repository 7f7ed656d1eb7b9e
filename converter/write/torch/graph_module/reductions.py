"""Operators that combine the elements along axes."""

import math
from collections.abc import Callable
from typing import Any

from converter.write.torch.graph_module.operators import Known, Tensor, integers, operator, torch


def _sum_of(change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda x, along, kept: torch.sum(change(x), along, kept, dtype=x.dtype)


def _product(x: Tensor, along: list[int], kept: bool) -> Tensor:
    for axis in sorted((a % x.ndim for a in along), reverse=True):
        x = torch.prod(x, axis, kept, dtype=x.dtype)
    return x


def _bound(function: Callable[..., Tensor], sign: int) -> Callable[..., Tensor]:
    """Return a reduction to the largest or least element, which of nothing is an infinity."""

    def reduce(x: Tensor, along: list[int], kept: bool) -> Tensor:
        if not any(isinstance(x.shape[a], int) and x.shape[a] == 0 for a in along):
            return function(x, along, kept)
        if x.dtype is torch.bool:
            return torch.sum(x, along, kept).to(x.dtype) if sign < 0 else torch.all(x)
        least = sign * math.inf
        if not x.is_floating_point():
            least = torch.iinfo(x.dtype).min if sign < 0 else torch.iinfo(x.dtype).max
        return torch.sum(x, along, kept, dtype=x.dtype) + torch.tensor(least, dtype=x.dtype)

    return reduce


REDUCTIONS: dict[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "ReduceSum": _sum_of(lambda x: x),
    "ReduceMean": torch.mean,
    "ReduceMax": _bound(torch.amax, -1),
    "ReduceMin": _bound(torch.amin, 1),
    "ReduceProd": _product,
    "ReduceL1": _sum_of(torch.abs),
    "ReduceL2": lambda x, along, kept: torch.sqrt(torch.sum(x * x, along, kept)),
    "ReduceSumSquare": _sum_of(lambda x: x * x),
    "ReduceLogSum": lambda x, along, kept: torch.log(torch.sum(x, along, kept)),
    "ReduceLogSumExp": torch.logsumexp,
}


def _enter(name: str, function: Callable[[Tensor, list[int], bool], Tensor]) -> None:
    @operator(name)
    def reduce(
        x: Tensor, axes_input: Known | None = None, *, axes: list[int] | None = None,
        keepdims: int = 1, noop_with_empty_axes: int = 0,
    ) -> Tensor:  # fmt: skip
        along = axes or [] if axes_input is None else integers(axes_input)
        if not along and noop_with_empty_axes:
            return x
        whole, is_kept = (x, bool(keepdims)) if x.ndim else (x[None], False)
        return function(whole, along or [*range(whole.ndim)], is_kept)


for _name, _function in REDUCTIONS.items():
    _enter(_name, _function)


@operator("ArgMax")
def find_largest(
    x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Tensor:
    """Return where the largest element is; of equal ones the first, or the last."""
    return _place(torch.argmax, x, axis, bool(keepdims), bool(select_last_index))


@operator("ArgMin")
def find_least(
    x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Tensor:
    """Return where the least element is; of equal ones the first, or the last."""
    return _place(torch.argmin, x, axis, bool(keepdims), bool(select_last_index))


def _place(find: Any, x: Tensor, axis: int, kept: bool, is_last: bool) -> Tensor:
    if not is_last:
        return find(x, axis, kept)
    return x.shape[axis] - 1 - find(x.flip(axis), axis, kept)


@operator("Softmax")
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """Return exponentials divided by their sum."""
    return torch.softmax(x, axis)


@operator("LogSoftmax")
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """Return the logarithm of the softmax."""
    return torch.log_softmax(x, axis)


@operator("Hardmax")
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """Return 1 at the largest element, and 0 elsewhere."""
    place = torch.argmax(x, axis, keepdim=True)
    return torch.zeros_like(x).scatter(axis, place, 1.0)


@operator("LpNormalization")
def normalize(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Divide by the norm, unless that is 0."""
    norm = torch.linalg.vector_norm(x, p, axis, keepdim=True)
    return torch.where(norm == 0, torch.zeros_like(x), x / norm)
