"""A loop over the steps of sequences, by ONNX's Scan.

Spec: https://onnx.ai/onnx/operators/onnx__Scan.html
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from converter.lower.builder import Builder
from converter.lower.graph import needed
from converter.lower.subgraphs import outputs_of, state_input
from converter.lower.values import Value, inverse, without

Step = Callable[[list[Value], list[Value]], tuple[list[Value], list[Value]]]


def scan(
    op: Builder, step: Step, states: Sequence[Value], sequences: Sequence[Value], *,
    axis: int, backwards: bool = False,
) -> tuple[list[Value], list[Value]]:  # fmt: skip
    """Iterate over the steps of sequences.

    Args:
        op: Builder.
        step: Function from the states and one step of each sequence to the new states, of the same
            shapes, and outputs.
        states: Initial states.
        sequences: Sequences with equal numbers of steps.
        axis: Axis of the steps in every sequence.
        backwards: Whether the last step is processed first.

    Returns:
        The final states, and each output with all steps stacked along the same axis, in the order
        of the sequences, backwards or not.
    """
    with op.body("body") as body:
        inner = [state_input(op, "state", s) for s in states]
        parts = [_part(op, s, axis) for s in sequences]
        after, made = step(inner, parts)
        kept = [op.kept(v, s.stored) for v, s in zip(after, states, strict=True)]
        body.outputs = outputs_of(op, body, [*kept, *made])
    body = needed(body)
    steps = sequences[0].shape[axis]
    stacked = [(v.dtype, (steps, *(v.shape[i] for i in v.stored))) for v in made]
    last = [(s.dtype, tuple(s.shape[i] for i in s.stored)) for s in states]
    found = op.node(
        "Scan", [*states, *sequences], [*last, *stacked],
        attributes={
            "body": body, "num_scan_inputs": len(sequences),
            "scan_input_axes": [s.stored.index(axis) for s in sequences],
            "scan_input_directions": [int(backwards)] * len(sequences),
            "scan_output_directions": [int(backwards)] * len(made),
        },
    )  # fmt: skip
    finals = [
        replace(f, shape=s.shape, stored=s.stored) for f, s in zip(found, states, strict=False)
    ]
    outputs = [_along(f, v, axis) for f, v in zip(found[len(states) :], made, strict=True)]
    return finals, outputs


def _part(op: Builder, sequence: Value, axis: int) -> Value:
    """Add an input of the body for one step of a sequence."""
    shape = sequence.shape[:axis] + sequence.shape[axis + 1 :]
    step = replace(sequence, shape=shape, stored=without(sequence.stored, [axis]))
    return state_input(op, "step", step)


def _along(stacked: Value, step: Value, axis: int) -> Value:
    """Return an output of Scan, stacked along axis 0, with its steps along another axis."""
    order = (axis, *(a if a < axis else a + 1 for a in step.stored))
    shape = tuple(stacked.shape[i] for i in inverse(order))
    return replace(stacked, shape=shape, stored=order)
