"""Ops that are given graphs: branches and loops that the inputs decide, and mere wrappers.

Spec: https://docs.pytorch.org/docs/2.13/higher_order_ops/index.html
"""

from collections.abc import Sequence
from typing import Any, Protocol

from converter.lower.graph import Dim, Graph, Shape, needed
from converter.lower.scan import scan
from converter.lower.subgraphs import outputs_of
from converter.lower.torch import calls
from converter.lower.torch.context import Context
from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.program_values import Number, ProgramValue
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

PREFIX = "torch.ops.higher_order."
EFFECTS = f"{PREFIX}with_effects"


class Program(Protocol):
    """A program whose graphs are lowered."""

    op: Context

    def inner(self, graph: Any, given: Sequence[ProgramValue]) -> list[ProgramValue]:
        """Return what an inner graph yields of these values."""

    def argument(self, arg: Any) -> ProgramValue:
        """Return an argument that is no graph."""


def lower_higher_order(program: Program, target: str, args: Sequence[Any]) -> list[ProgramValue]:
    """Return what an op yields that is given graphs.

    Raises:
        Unsupported: There is no such op here, or its graphs hold what is not supported.
    """
    name = target.removeprefix(PREFIX)
    graphs = [a["as_graph"]["graph"] for a in args if "as_graph" in a]
    rest = [program.argument(a) for a in args if "as_graph" not in a]
    if name == "wrap_with_set_grad_enabled" and len(graphs) == 1:
        return program.inner(graphs[0], rest[1:])
    if name == "wrap_with_autocast" and len(graphs) == 1:
        if rest[2] is not False:
            raise Unsupported("casts that depend on the op")
        return program.inner(graphs[0], rest[4:])
    if name == "cond" and len(graphs) == 2 and len(rest) == 2:
        return _cond(program, rest[0], graphs, rest[1])
    if name == "while_loop" and len(graphs) == 2 and len(rest) == 2:
        return _while(program, graphs[0], graphs[1], rest[0], rest[1])
    if name == "scan" and len(graphs) == 1 and len(rest) == 3:
        return _scan(program, graphs[0], *rest)
    raise Unsupported


def _tensors(found: Sequence[ProgramValue]) -> list[Value]:
    values = calls.values(list(found))
    if not all(isinstance(v, Value) for v in values):
        raise Unsupported("a graph that yields what is no tensor")
    return list(values)


def _cond(
    program: Program, asked: ProgramValue, graphs: Sequence[Any], given: Sequence[ProgramValue]
) -> list[ProgramValue]:
    """Build one of two graphs' results, whichever the condition says."""
    op = program.op
    if isinstance(asked, bool):
        return program.inner(graphs[0 if asked else 1], given)
    condition = calls.values(asked)
    if isinstance(condition, Number):
        condition = condition.value
    if not isinstance(condition, Value) or condition.dtype != "bool":
        raise Unsupported("a condition that is no truth value")
    built = [_built(program, graph, given) for graph in graphs]
    (first, taken), (second, other) = built
    if len(taken) != len(other) or any(
        a.dtype != b.dtype or a.rank != b.rank for a, b in zip(taken, other, strict=True)
    ):
        raise Unsupported("branches that yield different kinds of tensors")
    kinds = [
        (a.dtype, tuple(_same(op, m, n) for m, n in zip(a.shape, b.shape, strict=True)))
        for a, b in zip(taken, other, strict=True)
    ]
    asked_once = op.reshape(condition, ()) if condition.rank else condition
    attributes = {"then_branch": first, "else_branch": second}
    made = op.node("If", [asked_once], kinds, attributes=dict(attributes))
    return [Reference.to(op.named(v)) for v in made]


def _same(op: Context, m: Dim, n: Dim) -> Dim:
    """Return a size that two branches agree on, and that is known outside of them."""
    return m if m == n and (isinstance(m, int) or (m is not None and op.is_known(m))) else None


def _built(
    program: Program, graph: Any, given: Sequence[ProgramValue]
) -> tuple[Graph, list[Value]]:
    op = program.op
    with op.body("branch") as body:
        found = [op.plain(v) for v in _tensors(program.inner(graph, given))]
        body.outputs = outputs_of(op, body, found)
    return needed(body), found


def _while(
    program: Program,
    asks: Any,
    does: Any,
    first: Sequence[ProgramValue],
    given: Sequence[ProgramValue],
) -> list[ProgramValue]:
    """Build a loop over states, for as long as a graph of them says."""
    op = program.op
    states = [op.plain(op.named(v)) for v in _tensors(first)]
    begins = _ask(program, asks, first, given)
    with op.body("loop") as body:
        op.input(op.unique("round"), "int64", ())
        op.input(op.unique("goes_on"), "bool", ())
        inner = [op.input(op.unique("state"), v.dtype, v.shape) for v in states]
        now = [Reference.to(v) for v in inner]
        after = [op.plain(v) for v in _tensors(program.inner(does, [*now, *given]))]
        _check(states, after)
        next_ones = [Reference.to(v) for v in after]
        goes_on = _ask(program, asks, next_ones, given)
        body.outputs = outputs_of(op, body, [goes_on, *after])
    kinds = [(v.dtype, v.shape) for v in states]
    attributes = {"body": needed(body)}
    made = op.node("Loop", [None, begins, *states], kinds, attributes=dict(attributes))
    return [Reference.to(v) for v in made]


def _scan(
    program: Program, does: Any, first: Sequence[ProgramValue], rows: Sequence[ProgramValue],
    given: Sequence[ProgramValue],
) -> list[ProgramValue]:  # fmt: skip
    """Build a loop over the first axis of tensors, with states."""
    op = program.op
    states = [op.plain(op.named(v)) for v in _tensors(first)]
    sequences = [op.plain(op.named(v)) for v in _tensors(rows)]
    if not sequences or any(v.rank == 0 for v in sequences):
        raise Unsupported("a loop over nothing")

    def step(before: list[Value], parts: list[Value]) -> tuple[list[Value], list[Value]]:
        inner = [Reference.to(v) for v in (*before, *parts)]
        found = [op.plain(v) for v in _tensors(program.inner(does, [*inner, *given]))]
        after, made = found[: len(states)], found[len(states) :]
        _check(states, after)
        return after, made

    last, made = scan(op, step, states, sequences, axis=0)
    return [Reference.to(op.named(v)) for v in (*last, *made)]


def _ask(
    program: Program, asks: Any, states: Sequence[ProgramValue], given: Sequence[ProgramValue]
) -> Value:
    (found,) = _tensors(program.inner(asks, [*states, *given]))
    if found.dtype != "bool":
        raise Unsupported("a condition that is no truth value")
    return program.op.reshape(found, ()) if found.rank else found


def _check(states: Sequence[Value], after: Sequence[Value]) -> None:
    """Raise Unsupported where an iteration changes the kind of a state."""
    same = len(states) == len(after) and all(
        a.dtype == b.dtype and _fits(a.shape, b.shape) for a, b in zip(states, after, strict=True)
    )
    if not same:
        raise Unsupported("a loop that changes the shapes of its states")


def _fits(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and not any(
        isinstance(m, int) and isinstance(n, int) and m != n for m, n in zip(a, b, strict=True)
    )
