"""Branches: ONNX's If, of branches that are built inside it or chosen between afterwards."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from converter.lower.gap import Gap
from converter.lower.graph import Graph, Node, needed
from converter.lower.tf.context import Context
from converter.lower.tf.things import UNKNOWN, Stack, Thing, Unknown
from converter.lower.values import Value

Branch = Callable[[], Sequence[Thing]]


def conditional(op: Context, condition: Value, branches: Sequence[Branch]) -> list[Thing]:
    """Return what the first branch yields where a condition holds, else what the second does.

    Args:
        op: The builder.
        condition: A scalar of booleans.
        branches: They build what they yield, when they are called.

    Raises:
        Gap: They yield different kinds of things.
    """
    bodies, yielded = [], []
    for branch in branches:
        with op.body("branch") as body:
            things = list(branch())
            if any(isinstance(t, Unknown) for t in things):
                return [UNKNOWN] * len(things)
            values = [_value(op, t) for t in things]
            body.outputs = _outputs(op, body, values)
        bodies.append(needed(body))
        yielded.append((things, values))
    (things, first), (others, second) = yielded
    if len(first) != len(second):
        raise Gap("branches that yield different numbers of tensors")
    # What the branches see from outside may vary where the condition does not.
    asked = replace(op.plain(condition), is_constant=False)
    made = op.node(
        "If", [asked], [_joined(a, b) for a, b in zip(first, second, strict=True)],
        attributes={"then_branch": bodies[0], "else_branch": bodies[1]},
    )  # fmt: skip
    return [_like(m, t, o) for m, t, o in zip(made, things, others, strict=True)]


def chosen(op: Context, condition: Value, taken: Thing, other: Thing) -> Thing:
    """Return one of two things that are there already; a pass moves into the branches what can."""
    if taken is other:
        return taken
    return conditional(op, condition, [lambda: [taken], lambda: [other]])[0]


def _value(op: Context, thing: Thing) -> Value:
    from converter.lower.tf.stacks import whole

    if isinstance(thing, Stack):
        return whole(op, thing)
    thing = op.walker.tensor(thing)
    if not isinstance(thing, Value):
        raise Gap(f"a branch that yields a {type(thing).__name__.lower()}")
    return thing


def _like(made: Value, thing: Thing, other: Thing) -> Thing:
    if isinstance(thing, Stack) and isinstance(other, Stack):
        return thing.filled(made)
    return made


def _joined(a: Value, b: Value) -> tuple[str, tuple[int | str | None, ...]]:
    if a.dtype != b.dtype:
        raise Gap(f"branches that yield {a.dtype} and {b.dtype}")
    if a.rank != b.rank:
        raise Gap(f"branches that yield {a.rank} and {b.rank} axes")
    return a.dtype, tuple(m if m == n else None for m, n in zip(a.shape, b.shape, strict=True))


def _outputs(op: Context, body: Graph, values: Sequence[Value]) -> list[str]:
    """Return names for a body's outputs: each made in it, and only once there."""
    made = {name for node in body.nodes for name in node.outputs}
    names: list[str] = []
    for value in values:
        plain = op.plain(value)
        name = plain.name
        made.update(n for node in body.nodes[-1:] for n in node.outputs)
        if name not in made or name in names:
            name = op.unique("out")
            body.nodes.append(Node("Identity", [plain.name], [name], {}, name))
            body.specs[name] = body.specs[plain.name]
        names.append(name)
    return names
