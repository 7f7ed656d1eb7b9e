"""Repeat a step a static or computed number of times, by ONNX's Loop.

Spec: https://onnx.ai/onnx/operators/onnx__Loop.html
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from converter.lower.builder import Builder
from converter.lower.graph import needed
from converter.lower.subgraphs import outputs_of, state_input
from converter.lower.values import Value

Step = Callable[[Value, list[Value]], list[Value]]


def repeat(op: Builder, count: Value, start: Sequence[Value], step: Step) -> list[Value]:
    """Return the values after the last step.

    Args:
        op: Builder.
        count: Number of steps, an int64 scalar.
        start: Values before the first step.
        step: Function from the index of the step (0, 1, …; an int64 scalar) and the values to the
            next values, of the same dtypes and shapes.
    """
    with op.body("body") as body:
        at = op.input(op.unique("step"), "int64", ())
        goes_on = op.input(op.unique("goes_on"), "bool", ())
        inner = [state_input(op, "state", s) for s in start]
        after = step(at, inner)
        kept = [op.kept(v, s.stored) for v, s in zip(after, start, strict=True)]
        body.outputs = outputs_of(op, body, [goes_on, *kept])
    shapes = [(s.dtype, tuple(s.shape[i] for i in s.stored)) for s in start]
    found = op.node("Loop", [count, None, *start], shapes, attributes={"body": needed(body)})
    return [replace(f, shape=s.shape, stored=s.stored) for f, s in zip(found, start, strict=True)]
