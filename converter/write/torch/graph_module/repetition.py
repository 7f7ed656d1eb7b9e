"""Branches and loops: short loops are unrolled, others are operators of torch's.

Those operators take functions whose states keep their shapes and dtypes, see
https://docs.pytorch.org/docs/stable/higher_order_ops/index.html
"""

import importlib
from collections.abc import Callable
from typing import Any

from converter.write.torch.graph_module.operators import Tensor, torch

MAX_UNROLLED = 64  # iterations
Tensors = tuple[Tensor, ...]
Step = Callable[[Tensors, Tensors, Tensors], tuple[Tensors, Tensors]]


def scan(
    step: Step, state: Tensors, rows: Tensors, captured: Tensors = (), *, reverse: bool = False
) -> tuple[Tensors, Tensors]:
    """Run a function on each row of sequences.

    Args:
        step: Takes the states, the rows and what is captured; returns the states and what is to be
            collected.
        state: At the start.
        rows: Tensors with one axis 0 in common.
        captured: Tensors and sizes from around that the function uses.
        reverse: Whether the last rows come first.

    Returns:
        The states at the end, and what the steps collected, stacked in the order of the rows.
    """
    count = rows[0].shape[0]
    if is_repeated(count):
        rows = tuple(row.flip(0) for row in rows) if reverse else rows
        n = len(state)

        def advance(*given: Any) -> list[Tensor]:
            after, found = step(given[:n], given[n : n + len(rows)], given[n + len(rows) :])
            return [own_copy(v) for v in (*after, *found)]

        operator: Any = importlib.import_module("torch._higher_order_ops.scan")
        made = operator.scan_op(advance, [own_copy(s) for s in state], [*rows], captured)
        return tuple(made[:n]), tuple(row.flip(0) if reverse else row for row in made[n:])
    collected: list[Any] = [None] * count
    for i in reversed(range(count)) if reverse else range(count):
        state, collected[i] = step(state, tuple(row[i] for row in rows), captured)
    return state, tuple(map(torch.stack, zip(*collected, strict=True)))


def own_copy(tensor: Tensor) -> Tensor:
    """Return a contiguous copy, as all branches and iterations must return it."""
    return tensor.clone(memory_format=torch.contiguous_format)


def is_repeated(count: Any) -> bool:
    """Return whether iterations are repeated by torch's own operator, in a program."""
    is_many = not isinstance(count, int) or count > MAX_UNROLLED
    return is_many and torch.compiler.is_exporting()


def repeat_while(
    condition: Callable[..., Tensor], body: Callable[..., Tensors], state: Tensors,
    captured: Tensors,
) -> Tensors:  # fmt: skip
    """Run a function on states as long as a condition holds of them."""
    if torch.compiler.is_exporting():
        operator: Any = importlib.import_module("torch._higher_order_ops.while_loop")
        return tuple(operator.while_loop_op(condition, body, state, captured))
    while bool(condition(*state, *captured)):
        state = body(*state, *captured)
    return state


def choose(
    condition: Tensor, branches: tuple[Callable[..., Tensors], ...], captured: Tensors
) -> Tensors:
    """Run the first function if a condition holds, else the second."""
    if torch.compiler.is_exporting():
        operator: Any = importlib.import_module("torch._higher_order_ops.cond")
        return tuple(operator.cond_op(condition, *branches, captured))
    return branches[0 if bool(condition) else 1](*captured)
