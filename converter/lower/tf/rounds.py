"""Find the trip count of a loop in its condition."""

from collections.abc import Sequence
from dataclasses import dataclass

from converter.lower.graph import Dim, Graph, Node
from converter.lower.tf import stacks
from converter.lower.tf.context import Context
from converter.lower.tf.program_values import ProgramValue
from converter.lower.values import Value


@dataclass(frozen=True, slots=True)
class Rounds:
    """The trip count of a loop, as far as known from its condition.

    Attributes:
        limits: Values from outside the loop; their minimum bounds the trip count.
        exact: Whether that minimum is the trip count.
    """

    limits: list[Value]
    exact: bool


def find_counters(
    op: Context,
    start: Sequence[ProgramValue],
    inner: dict[int, Value],
    after: Sequence[ProgramValue],
) -> set[str]:
    """Return the names of loop variables that start at 0 and grow by 1 in each iteration."""
    found = set()
    for i, value in inner.items():
        operand, first = after[i], start[i]
        if not isinstance(operand, Value) or not isinstance(first, Value) or value.rank:
            continue
        if value.dtype not in ("int32", "int64"):
            continue
        known = op.static(first)
        if known is None or int(known) != 0:
            continue
        node = _producer(op.graph, operand.name)
        if node is None or node.op_type != "Add" or value.name not in node.inputs:
            continue
        other = node.inputs[1 - node.inputs.index(value.name)]
        spec = op.graph.specs[other]
        step = op.static(Value(other, spec.dtype, spec.shape, (), is_constant=True))
        if spec.shape == () and step is not None and int(step) == 1:
            found.add(value.name)
    return found


def is_round(op: Context, index: Value, counters: set[str]) -> bool:
    """Return whether an index is the iteration number."""
    name = index.name
    while name not in counters:
        node = _producer(op.graph, name)
        if node is None or node.op_type not in ("Cast", "Identity", "Reshape", "Squeeze"):
            return False
        name = node.inputs[0]
    return True


def _producer(graph: Graph, name: str) -> Node | None:
    return next((n for n in reversed(graph.nodes) if name in n.outputs), None)


def find_limits(op: Context, again: Value, counters: set[str]) -> Rounds:
    """Return the trip count, as far as known from the condition.

    Args:
        op: The builder, in the loop's body.
        again: Condition of the next iteration.
        counters: Names of the counters after the iteration.
    """
    made = {name for node in op.graph.nodes for name in node.outputs} | {*op.graph.inputs}
    limits: dict[str, Value] = {}
    exact = True
    waiting = [again.name]
    while waiting:
        node = _producer(op.graph, waiting.pop())
        if node is None:
            exact = False
        elif node.op_type in ("And", "Identity"):
            waiting += node.inputs
        elif node.op_type == "Less" and node.inputs[0] in counters and node.inputs[1] not in made:
            spec = op.graph.specs[node.inputs[1]]
            if spec.shape == ():
                limits[node.inputs[1]] = Value(node.inputs[1], spec.dtype, (), ())
            else:
                exact = False
        else:
            exact = False
    return Rounds([*limits.values()], exact and bool(limits))


def least(op: Context, limits: list[Value]) -> Value:
    """Return the minimum of several scalars as a scalar of int64."""
    different: dict[object, Value] = {}
    for limit in limits:
        known = stacks.size_of(op, limit)
        different.setdefault(limit.name if known is None else known, limit)
    numbers = [op.cast(v, "int64") for v in different.values()]
    if len(numbers) == 1:
        return numbers[0]
    return op.emit("Min", *numbers, dtype="int64", shape=())


def reaches(op: Context, limit: Value, count: Dim) -> bool:
    """Return whether a limit is known to be at least `count`."""
    known = stacks.size_of(op, limit)
    if isinstance(known, int) and isinstance(count, int):
        return known >= count
    return known == count
