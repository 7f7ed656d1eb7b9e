"""Loops: TensorFlow's While, and what frames of TensorFlow 1 are put together to, as ONNX's Loop.

What a round hands on unchanged is no variable of the loop: its body sees it from outside. A list
(or TensorArray) that each round sets at the number of the round, and nothing reads, becomes an
output that Loop stacks. The sizes of variables are those of what they start with, or unknown where
a round changes them: the body is built again until that holds.
Spec: https://onnx.ai/onnx/operators/onnx__Loop.html
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from converter.lower.gap import Gap
from converter.lower.graph import Graph, Node, Shape, needed
from converter.lower.tf import graphdef
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Body, Port
from converter.lower.tf.things import UNKNOWN, Stack, Thing, Unknown, Variable
from converter.lower.values import Value

Condition = Callable[[list[Thing]], Thing]
Round = Callable[[list[Thing]], list[Thing]]
PASSING = frozenset(("Identity", "StopGradient"))
TRIES = 6  # times that a body is built, each time with less known of its variables


class _Read(Exception):  # noqa: N818 - a turn, and no error
    """A list that was taken to be only written is read."""

    def __init__(self, number: int) -> None:
        super().__init__(f"list {number}")
        self.number = number


def passed_through(body: Body) -> set[int]:
    """Return the numbers of arguments that a function hands back unchanged."""
    found = set()
    for number, port in enumerate(body.results):
        name = port.node
        while body.nodes[name].op in PASSING:
            name = body.nodes[name].inputs[0].node
        if number < len(body.arguments) and name == body.arguments[number]:
            found.add(number)
    return found


def loop(
    op: Context, start: list[Thing], condition: Condition, body: Round, unchanged: Collection[int]
) -> list[Thing]:
    """Return what a loop's variables are in the end.

    Args:
        op: The builder.
        start: What they are at the beginning.
        condition: Variables to a scalar of booleans: whether there is another round.
        body: Variables to what they are after a round.
        unchanged: Numbers of variables that no round changes.

    Raises:
        Gap: A variable changes its dtype or rank, or is of a kind that cannot be one.
    """
    if any(isinstance(t, Unknown) for t in start):
        return [UNKNOWN] * len(start)
    fixed = {i for i, t in enumerate(start) if i in unchanged or isinstance(t, Variable)}
    start = [op.state.read(t) if isinstance(t, Variable) and t.is_reference else t for t in start]
    plan = _Plan(start, fixed, {i for i, t in enumerate(start) if isinstance(t, Stack)} - fixed)
    for i, thing in enumerate(start):
        if i not in fixed and not isinstance(thing, Value | Stack):
            raise Gap(f"a loop over a {type(thing).__name__.lower()}")
    for _ in range(TRIES * (len(plan.lists) + 1)):
        try:
            made = _built(op, plan, condition, body)
        except _Read as turn:
            plan.lists.discard(turn.number)
            continue
        if made is not None:
            return made
    raise Gap("a loop whose variables change their shapes again and again")


@dataclass(slots=True)
class _Plan:
    """How a loop is built.

    Attributes:
        start: What its variables are at the beginning.
        fixed: Numbers of those that never change.
        lists: Numbers of lists that are only written, each round one element.
        shapes: Shapes of variables, where they are less than those of the beginning.
        elements: Shapes of the elements of lists.
    """

    start: list[Thing]
    fixed: set[int]
    lists: set[int]
    shapes: dict[int, Shape] = None  # type: ignore[assignment]
    elements: dict[int, Shape] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.shapes, self.elements = {}, {}

    @property
    def carried(self) -> list[int]:
        """Numbers of the variables that Loop carries."""
        return [i for i in range(len(self.start)) if i not in self.fixed and i not in self.lists]


def _built(op: Context, plan: _Plan, condition: Condition, body: Round) -> list[Thing] | None:
    """Build the loop; None where its variables turn out to have other shapes."""
    carried = plan.carried
    begin = [_tensor(op, plan, i) for i in carried]
    first = _scalar(op, condition(_with_lists(plan, dict(zip(carried, begin, strict=True)))))
    if first is None:
        return [UNKNOWN] * len(plan.start)
    known = op.static(first)
    if known is not None and not bool(known):
        return [plan.start[i] for i in range(len(plan.start))]
    with op.body("loop") as graph:
        number = op.input(op.unique("round"), "int64", ())
        op.input(op.unique("go"), "bool", ())
        inner = {i: _entry(op, b, plan.shapes.get(i)) for i, b in zip(carried, begin, strict=True)}
        variables = _with_lists(plan, inner)
        after = body(variables)
        if any(isinstance(t, Unknown) for t in after):
            return [UNKNOWN] * len(plan.start)
        counters = _counters(op, plan, inner, after)
        stacked: dict[int, Value] = {}
        for i in sorted(plan.lists):
            thing = after[i]
            if not isinstance(thing, Stack):
                raise Gap("a list that becomes something else")
            if thing.written is None:
                raise _Read(i)
            index, item = thing.written
            if not _is_round(op, index, inner, counters, number):
                raise _Read(i)
            stacked[i] = op.plain(item)
        if not _settled(plan, carried, inner, after):
            return None
        states = [_after(op, after[i], inner[i]) for i in carried]
        again = _scalar(op, condition(after))
        if again is None:
            return [UNKNOWN] * len(plan.start)
        graph.outputs = _outputs(op, graph, [again, *states, *stacked.values()])
    graph = needed(graph)
    shapes = [(v.dtype, v.shape) for v in inner.values()]
    shapes += [(v.dtype, (None, *v.shape)) for v in stacked.values()]
    asked = replace(op.plain(first), is_constant=False)
    made = op.node(
        "Loop", [None, asked, *(op.plain(b) for b in begin)], shapes, attributes={"body": graph}
    )
    found = dict(zip([*carried, *stacked], made, strict=True))
    return [_result(plan, i, found) for i in range(len(plan.start))]


def _with_lists(plan: _Plan, values: dict[int, Value]) -> list[Thing]:
    """Return the variables as a round sees them."""
    found: list[Thing] = []
    for i, thing in enumerate(plan.start):
        if i in plan.fixed:
            found.append(thing)
        elif isinstance(thing, Stack):
            if i in plan.lists:
                found.append(replace(thing, tensor=None, loop=i, written=None))
            else:
                found.append(replace(thing.filled(values[i]), loop=None))
        else:
            found.append(values[i])
    return found


def read_inside(stack: Stack) -> None:
    """Say that a list is read: where it is a loop's, it must be carried as a whole."""
    if stack.loop is not None:
        raise _Read(stack.loop)


def _tensor(op: Context, plan: _Plan, number: int) -> Value:
    """Return what Loop carries for a variable."""
    from converter.lower.tf.lists import whole

    thing = plan.start[number]
    if isinstance(thing, Stack):
        return whole(op, thing, plan.elements.get(number))
    assert isinstance(thing, Value)
    return op.plain(thing)


def _entry(op: Context, like: Value, shape: Shape | None) -> Value:
    return op.input(op.unique("var"), like.dtype, like.shape if shape is None else shape)


def _scalar(op: Context, thing: Thing) -> Value | None:
    if isinstance(thing, Unknown):
        return None
    if not isinstance(thing, Value):
        raise Gap(f"a {type(thing).__name__.lower()} for a condition")
    value = op.plain(thing)
    return value if value.rank == 0 else op.reshape(value, ())


def _after(op: Context, thing: Thing, like: Value) -> Value:
    if isinstance(thing, Stack):
        if thing.tensor is None:
            raise Gap("a list that a loop empties")
        thing = thing.tensor
    if not isinstance(thing, Value):
        raise Gap(f"a loop whose variable becomes a {type(thing).__name__.lower()}")
    if thing.dtype != like.dtype:
        raise Gap(f"a loop whose variable of {like.dtype} becomes {thing.dtype}")
    return op.plain(thing)


def _settled(
    plan: _Plan, carried: Sequence[int], inner: dict[int, Value], after: Sequence[Thing]
) -> bool:
    """Tell whether all variables keep their shapes; note how far they do not."""
    settled = True
    for i in carried:
        thing = after[i]
        value = thing.tensor if isinstance(thing, Stack) else thing
        if not isinstance(value, Value):
            continue
        before = inner[i].shape
        if value.rank != len(before):
            raise Gap(f"a loop whose variable of {len(before)} axes gets {value.rank}")
        joined = tuple(m if m == n else None for m, n in zip(before, value.shape, strict=True))
        if joined != before:
            plan.shapes[i] = joined
            settled = False
    return settled


def _counters(
    op: Context, plan: _Plan, inner: dict[int, Value], after: Sequence[Thing]
) -> set[str]:
    """Return the names of variables that start at zero and grow by one each round."""
    found = set()
    for i, value in inner.items():
        thing, start = after[i], plan.start[i]
        if not isinstance(thing, Value) or not isinstance(start, Value) or value.rank:
            continue
        if value.dtype not in ("int32", "int64"):
            continue
        known = op.static(start)
        if known is None or int(known) != 0:
            continue
        node = next((n for n in reversed(op.graph.nodes) if thing.name in n.outputs), None)
        if node is None or node.op_type != "Add" or value.name not in node.inputs:
            continue
        other = node.inputs[1 - node.inputs.index(value.name)]
        step = op.graph.initializers.get(other)
        if step is not None and getattr(step, "size", 0) == 1 and int(step.reshape(())) == 1:  # type: ignore[union-attr]
            found.add(value.name)
    return found


def _is_round(
    op: Context, index: Value, inner: dict[int, Value], counters: set[str], number: Value
) -> bool:
    """Tell whether an index is the number of the round."""
    del inner, number
    name = index.name
    while name not in counters:
        node = next((n for n in reversed(op.graph.nodes) if name in n.outputs), None)
        if node is None or node.op_type not in ("Cast", "Identity", "Reshape", "Squeeze"):
            return False
        name = node.inputs[0]
    return True


def _result(plan: _Plan, number: int, found: dict[int, Value]) -> Thing:
    start = plan.start[number]
    if number in plan.fixed:
        return start
    value = found[number]
    return start.filled(value) if isinstance(start, Stack) else value


def _outputs(op: Context, body: Graph, values: Sequence[Value]) -> list[str]:
    """Return names for a body's outputs: each made in it, and only once there."""
    names: list[str] = []
    made = {name for node in body.nodes for name in node.outputs}
    for value in values:
        name = value.name
        if name not in made or name in names:
            name = op.unique("out")
            body.nodes.append(Node("Identity", [value.name], [name], {}, name))
            body.specs[name] = body.specs[value.name]
        names.append(name)
    return names


def framed(op: Context, inputs: list[Thing], node: graphdef.Node) -> list[Thing]:
    """Return what a loop of TensorFlow 1 yields: its variables, in the end."""
    from converter.lower.tf.frames import frame_of
    from converter.lower.tf.walk import Activation

    frame = frame_of(node)
    walker = op.walker
    outer = walker.current
    assert outer is not None

    def activation(things: list[Thing]) -> Activation:
        inner = Activation(frame.body, (*outer.path, node.name))
        for name, thing in zip(frame.body.arguments, things, strict=True):
            inner.values[name] = [thing]
        return inner

    def condition(things: list[Thing]) -> Thing:
        return walker.run(activation(things), [frame.condition])[0]

    def body(things: list[Thing]) -> list[Thing]:
        made = walker.run(activation(things), frame.results)
        return [*made, *things[len(frame.results) :]]

    fixed = set(range(len(frame.results), len(inputs)))
    for number, port in enumerate(frame.results):
        if _leads_to(frame.body, port) == frame.body.arguments[number]:
            fixed.add(number)
    return loop(op, inputs, condition, body, fixed)


def _leads_to(body: Body, port: Port) -> str:
    name = port.node
    while body.nodes[name].op in PASSING:
        name = body.nodes[name].inputs[0].node
    return name
