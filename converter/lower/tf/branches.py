"""Conditionals: ONNX If nodes, from branches built inside or values selected afterwards."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from converter.lower.graph import Graph, needed
from converter.lower.subgraphs import outputs_of
from converter.lower.tf import stacks
from converter.lower.tf.context import Context
from converter.lower.tf.program_values import (
    UNKNOWN,
    Handle,
    ProgramValue,
    Record,
    Stack,
    Table,
    Unknown,
    Variable,
)
from converter.lower.tf.state import State
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

Branch = Callable[[], Sequence[ProgramValue]]
UNREAD = Record("result that nothing reads")
HANDED_ON = (Variable, Handle, Table, Record)  # both branches must pass on the same one


def conditional(
    op: Context, state: State, condition: Value, branches: Sequence[Branch],
    read: Collection[int] | None = None,
) -> list[ProgramValue]:  # fmt: skip
    """Build an If; return the outputs of the branch that the condition selects.

    Args:
        op: The builder.
        state: State of the variables, which a branch may return.
        condition: Scalar boolean.
        branches: Callables, each of which builds a branch and returns its outputs.
        read: Indices of the outputs that are read; all, by default.

    Raises:
        Unsupported: The branches return values of different kinds.
    """
    bodies: list[Graph] = []
    yielded: list[tuple[list[ProgramValue], list[Value | None]]] = []
    for branch in branches:
        with op.body("branch") as body:
            operands = [
                UNREAD if read is not None and i not in read else operand
                for i, operand in enumerate(branch())
            ]
            if any(isinstance(t, Unknown) for t in operands):
                return [UNKNOWN] * len(operands)
            operands = [_read(state, t) for t in operands]
            values = [None if isinstance(t, HANDED_ON) else _value(op, t) for t in operands]
            body.outputs = outputs_of(op, body, [op.plain(v) for v in values if v is not None])
        bodies.append(needed(body))
        yielded.append((operands, values))
    (operands, first), (others, second) = yielded
    if len(first) != len(second):
        raise Unsupported("branches that yield different numbers of tensors")
    for operand, other, a, b in zip(operands, others, first, second, strict=True):
        if (a is None or b is None) and operand != other:
            raise Unsupported(
                f"branches that yield values of different kinds, a {type(operand).__name__.lower()}"
            )
    pairs = zip(first, second, strict=True)
    specs = [_merge_shapes(a, b) for a, b in pairs if a is not None and b is not None]
    # Values captured from outside may vary even where the condition is constant.
    asked = replace(op.plain(condition), is_constant=False)
    made = iter(
        op.node(
            "If", [asked], specs, attributes={"then_branch": bodies[0], "else_branch": bodies[1]}
        )
        if specs
        else []
    )
    return [
        operand if value is None else _like(next(made), operand, other)
        for operand, other, value in zip(operands, others, first, strict=True)
    ]


def chosen(
    op: Context, state: State, condition: Value, taken: ProgramValue, other: ProgramValue
) -> ProgramValue:
    """Select one of two existing values; a later pass sinks their nodes into the branches."""
    if taken is other:
        return taken
    return conditional(op, state, condition, [lambda: [taken], lambda: [other]])[0]


def _read(state: State, operand: ProgramValue) -> ProgramValue:
    if isinstance(operand, Variable) and operand.is_reference:
        return state.read(operand)
    return operand


def _value(op: Context, operand: ProgramValue) -> Value:
    if isinstance(operand, Stack):
        return stacks.whole(op, operand)
    if not isinstance(operand, Value):
        raise Unsupported(f"a branch that yields a {type(operand).__name__.lower()}")
    return operand


def _like(made: Value, operand: ProgramValue, other: ProgramValue) -> ProgramValue:
    if isinstance(operand, Stack) and isinstance(other, Stack):
        return operand.filled(made)
    return made


def _merge_shapes(a: Value, b: Value) -> tuple[str, tuple[int | str | None, ...]]:
    if a.dtype != b.dtype:
        raise Unsupported(f"branches that yield {a.dtype} and {b.dtype}")
    if a.rank != b.rank:
        raise Unsupported(f"branches that yield {a.rank} and {b.rank} axes")
    return a.dtype, tuple(m if m == n else None for m, n in zip(a.shape, b.shape, strict=True))
