"""Loops: TensorFlow's While, and reconstructed frames of TensorFlow 1, as ONNX's Loop.

A value that an iteration passes on unchanged is not carried: the body captures it from outside. A
list (or TensorArray) that each iteration sets at its own index, and that the body does not read,
becomes a scan output of Loop. A variable has the shape of its initial value; sizes that an
iteration changes are unknown: the body is built again until no shape changes.
Spec: https://onnx.ai/onnx/operators/onnx__Loop.html
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from converter.lower.element_types import numpy_type
from converter.lower.graph import Node, Shape, needed
from converter.lower.subgraphs import outputs_of
from converter.lower.tf import graphdef, stacks
from converter.lower.tf.body_state import BodyState
from converter.lower.tf.context import Context
from converter.lower.tf.frames import frame_of
from converter.lower.tf.graphdef import Body, Port
from converter.lower.tf.list_elements import ElementFound, ListRead, merge_shapes, read_inside
from converter.lower.tf.program_values import (
    UNKNOWN,
    Handle,
    ProgramValue,
    RaggedRows,
    Record,
    Stack,
    Unknown,
    Variable,
)
from converter.lower.tf.recurrence import recognise_recurrence
from converter.lower.tf.rounds import Rounds, find_counters, find_limits, is_round, least, reaches
from converter.lower.tf.session import Session
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value
from formats.core.plurals import count

Condition = Callable[[list[ProgramValue]], ProgramValue]
Round = Callable[[list[ProgramValue]], list[ProgramValue]]
PASSING = frozenset(("Identity", "StopGradient"))
TRIES = 6  # times that a body is built, each time with less static shapes


def find_unchanged(body: Body) -> set[int]:
    """Return the indices of arguments that a function returns unchanged."""
    found = set()
    for number, port in enumerate(body.results):
        name = _leads_to(body, port)
        if number < len(body.arguments) and name == body.arguments[number]:
            found.add(number)
    return found


def build_loop(
    op: Session, start: list[ProgramValue], condition: Condition, body: Round,
    unchanged: Collection[int],
    read: Collection[int] | None = None,
) -> list[ProgramValue]:  # fmt: skip
    """Build a loop, and return the final values of its variables.

    Args:
        op: The builder.
        start: Their initial values.
        condition: Maps variables to a scalar boolean: whether there is another iteration.
        body: Maps variables to their values after an iteration.
        unchanged: Indices of variables that no iteration changes.
        read: Indices of variables whose final values are read: lists that nothing reads need no
            elements. All, by default.

    Raises:
        Unsupported: A variable changes its dtype or rank, or is of a kind that cannot be one.
    """
    if any(isinstance(t, Unknown) for t in start):
        return [UNKNOWN] * len(start)
    plan = _make_plan(op, start, unchanged, read)
    before = len(op.walker.findings)
    for _ in range(TRIES * (len(plan.lists) + 1)):
        try:
            made = _build(op, plan, condition, body)
        except ListRead as turn:
            if turn.loop is not plan or turn.number not in plan.lists:
                raise
            plan.lists.discard(turn.number)
            if turn.element is None or None in turn.element:
                _infer_elements(op, plan, body)
            known = plan.elements.get(turn.number)
            plan.elements[turn.number] = merge_shapes(turn.element, known)
            made = None
        if made is not None:
            return made
        del op.walker.findings[before:]  # those of a body that is built again
    raise Unsupported("a loop whose variables never settle on a shape")


@dataclass(slots=True, eq=False)
class _Plan:
    """Plan of how a loop is built.

    Attributes:
        start: Initial values of its variables.
        fixed: Indices of variables that never change.
        lists: Indices of lists that are only written, one element in each iteration.
        unread: Indices of lists whose elements nothing reads.
        shapes: Shapes of variables that are less static than the initial values'.
        elements: Shapes of the elements of lists.
    """

    start: list[ProgramValue]
    fixed: set[int]
    lists: set[int]
    unread: set[int]
    shapes: dict[int, Shape] = field(default_factory=dict)
    elements: dict[int, Shape | None] = field(default_factory=dict)

    @property
    def carried(self) -> list[int]:
        """Indices of the variables that Loop carries."""
        return [i for i in range(len(self.start)) if i not in self.fixed and i not in self.lists]


def _make_plan(
    op: Session, start: list[ProgramValue], unchanged: Collection[int], read: Collection[int] | None
) -> _Plan:
    """Return a plan that assumes that lists are only written and that shapes do not change."""
    fixed = {
        i
        for i, operand in enumerate(start)
        if i in unchanged
        or isinstance(operand, Variable | Handle | RaggedRows)
        or (isinstance(operand, Stack) and (operand.dtype == "variant" or operand.sought))
    }
    begin: list[ProgramValue] = []
    for i, operand in enumerate(start):
        if isinstance(operand, Variable) and operand.is_reference:
            operand = op.state.read(operand)
        if isinstance(operand, Stack):
            if i not in fixed:
                read_inside(operand)  # a list of an outer loop
            operand = operand if operand.loop is not None else stacks.dense(op, operand)
        elif i not in fixed and not isinstance(operand, Value):
            raise Unsupported(f"a loop over a {type(operand).__name__.lower()}")
        begin.append(operand)
    lists = {i for i, t in enumerate(begin) if isinstance(t, Stack) and t.tensor is None} - fixed
    return _Plan(begin, fixed, lists, set() if read is None else lists - set(read))


def _build(
    op: Context, plan: _Plan, condition: Condition, body: Round
) -> list[ProgramValue] | None:
    """Build the loop; return None where its variables turn out to have other shapes."""
    carried = plan.carried
    begin = [_carried_tensor(op, plan, i) for i in carried]
    first = _scalar(op, condition(_with_lists(plan, dict(zip(carried, begin, strict=True)))))
    if first is None:
        return [UNKNOWN] * len(plan.start)
    known = op.static(first)
    if known is not None and not bool(known):
        return list(plan.start)
    with op.body("loop") as graph:
        op.input(op.unique("round"), "int64", ())
        go = op.input(op.unique("go"), "bool", ())
        inner = {
            i: _declare_variable(op, b, plan.shapes.get(i))
            for i, b in zip(carried, begin, strict=True)
        }
        after = body(_with_lists(plan, inner))
        if any(isinstance(t, Unknown) for t in after):
            return [UNKNOWN] * len(plan.start)
        after = [_together(op, t, inner.get(i)) for i, t in enumerate(after)]
        counters = find_counters(op, plan.start, inner, after)
        wanted = sorted(plan.lists - plan.unread)
        stacked = {i: _find_written(op, plan, i, after[i], counters) for i in wanted}
        if not _keep_shapes(plan, carried, inner, after):
            return None
        states = [_returned_tensor(op, after[i], inner[i]) for i in carried]
        again = _scalar(op, condition(after))
        if again is None:
            return [UNKNOWN] * len(plan.start)
        _hoist(op, [again, *states, *stacked.values()])
        ends = zip(carried, states, strict=True)
        rounds = find_limits(op, again, {v.name for i, v in ends if inner[i].name in counters})
        if rounds.exact:
            again = go
        graph.outputs = outputs_of(op, graph, [again, *states, *stacked.values()])
    graph = needed(graph)
    if rounds.exact:
        done = recognise_recurrence(op, graph, begin, counters, rounds.limits)
        if done is not None:
            found = dict(zip([*carried, *stacked], done, strict=True))
            return [_result(op, plan, i, found, after[i], rounds) for i in range(len(plan.start))]
    shapes = [(v.dtype, v.shape) for v in inner.values()]
    shapes += [(v.dtype, (None, *v.shape)) for v in stacked.values()]
    most = asked = None
    if rounds.exact:
        most = replace(least(op, rounds.limits), is_constant=False)
    else:
        asked = replace(op.plain(first), is_constant=False)
    made = op.node(
        "Loop", [most, asked, *(op.plain(b) for b in begin)], shapes, attributes={"body": graph}
    )
    found = dict(zip([*carried, *stacked], made, strict=True))
    return [_result(op, plan, i, found, after[i], rounds) for i in range(len(plan.start))]


# Ops that never fail, so that they may run even where the loop has no iteration.
SAFE = frozenset((
    "Add", "And", "Cast", "Concat", "Equal", "Erf", "Exp", "Expand", "Greater",
    "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "MatMul", "Max", "Min", "Mul", "Neg",
    "Not", "Or", "Pow", "Range", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "Relu", "Reshape", "Shape", "Sigmoid", "Size", "Slice", "Softmax", "Split", "Sqrt",
    "Squeeze", "Sub", "Tanh", "Tile", "Transpose", "Unsqueeze", "Where",
))  # fmt: skip


def _hoist(op: Context, outputs: Sequence[Value]) -> None:
    """Move loop-invariant nodes out of a body."""
    body, outer = op.enclosing[:2]
    varies = {*body.inputs}
    kept = []
    yielded = {v.name for v in outputs}
    for node in body.nodes:
        alike = _is_safe(op, node) and varies.isdisjoint(node.inputs)
        if alike and yielded.isdisjoint(node.outputs):
            outer.nodes.append(node)
        else:
            kept.append(node)
            varies.update(node.outputs)
    body.nodes[:] = kept


def _is_safe(op: Context, node: Node) -> bool:
    if node.op_type == "Div":
        return (
            "float" in op.graph.specs[node.outputs[0]].dtype
        )  # integer division by zero ends the process
    if node.op_type != "Gather":
        return node.op_type in SAFE
    data, index = node.inputs
    known = op.graph.initializers.get(index)
    size = op.graph.specs[data].shape[int(str(node.attributes.get("axis", 0)))]
    if not isinstance(known, np.ndarray) or not isinstance(size, int):
        return False
    return bool(((known >= -size) & (known < size)).all())


def _find_written(
    op: Context, plan: _Plan, number: int, operand: ProgramValue, counters: set[str]
) -> Value:
    """Return the element that an iteration writes to a list at its own index."""
    if not isinstance(operand, Stack):
        raise Unsupported("a list that becomes something else")
    start = plan.start[number]
    assert isinstance(start, Stack)
    if operand.loop is None or operand.loop != (plan, number) or operand.written is None:
        raise ListRead(plan, number, operand.element)
    index, item = operand.written
    if index is None:
        if start.items != ():
            raise ListRead(plan, number, operand.element)
    elif not is_round(op, index, counters):
        raise ListRead(plan, number, operand.element)
    return op.plain(item)


def _infer_elements(op: Session, plan: _Plan, body: Round) -> None:
    """Infer the element shapes of lists: interpret one iteration and discard its nodes."""
    before = len(op.walker.findings)
    operands: list[ProgramValue] = []
    for _ in range(len(plan.start)):
        try:
            with op.body("look"):
                operands = []
                for i, operand in enumerate(plan.start):
                    if i in plan.fixed:
                        operands.append(operand)
                    elif isinstance(operand, Stack):
                        operands.append(_watch_list(op, plan, i, operand))
                    else:
                        assert isinstance(operand, Value)
                        operands.append(_declare_variable(op, operand, plan.shapes.get(i)))
                body(operands)
        except (ElementFound, ListRead) as turn:
            if turn.loop is not plan:
                raise  # a signal to an outer loop
            if isinstance(turn, ListRead) or turn.number in plan.elements:
                break
            plan.elements[turn.number] = turn.element
        else:
            break
        finally:
            del op.walker.findings[before:]


def _watch_list(op: Context, plan: _Plan, number: int, stack: Stack) -> Stack:
    """Return a list for `_infer_elements`: one whose element shape is sought, or a tensor."""
    element = plan.elements.get(number)
    if element is None and stack.tensor is not None:
        element = stack.tensor.shape[1:]
    if element is None:
        return replace(stack, loop=(plan, number), sought=True)
    return stack.filled(op.input(op.unique("list"), stack.dtype, (None, *element)))


def _with_lists(plan: _Plan, values: dict[int, Value]) -> list[ProgramValue]:
    """Return the variables as the body sees them."""
    found: list[ProgramValue] = []
    for i, operand in enumerate(plan.start):
        if i in plan.fixed:
            found.append(operand)
        elif isinstance(operand, Stack):
            if i in plan.lists:
                found.append(replace(operand, loop=(plan, i), written=None))
            else:
                found.append(operand.filled(values[i]))
        else:
            found.append(values[i])
    return found


def _carried_tensor(op: Context, plan: _Plan, number: int) -> Value:
    """Return the initial value that Loop carries for a variable."""
    operand = plan.start[number]
    if isinstance(operand, Stack):
        element = merge_shapes(operand.element, plan.elements.get(number))
        is_open = element is not None and None in element and operand.dtype != "string"
        if is_open and operand.items == (None,):
            # The only element is not set yet, so that it may be empty: an iteration sets it.
            assert element is not None
            sizes = [n if isinstance(n, int) else 0 for n in element]
            empty = op.constant(np.zeros((1, *sizes), numpy_type(operand.dtype)), operand.dtype)
            return op.plain(replace(empty, shape=(1, *element)))
        return op.plain(stacks.whole(op, operand, plan.elements.get(number)))
    assert isinstance(operand, Value)
    return op.plain(operand)


def _together(op: Context, operand: ProgramValue, before: Value | None) -> ProgramValue:
    """Stack the elements of a list that is carried, into one tensor."""
    if before is None or not isinstance(operand, Stack) or operand.tensor is not None:
        return operand
    return operand.filled(stacks.whole(op, operand, before.shape[1:]))


def _declare_variable(op: Context, like: Value, shape: Shape | None) -> Value:
    return op.input(op.unique("var"), like.dtype, like.shape if shape is None else shape)


def _scalar(op: Context, operand: ProgramValue) -> Value | None:
    if isinstance(operand, Unknown):
        return None
    if not isinstance(operand, Value):
        raise Unsupported(f"a {type(operand).__name__.lower()} for a condition")
    value = op.plain(operand)
    return value if value.rank == 0 else op.reshape(value, ())


def _returned_tensor(op: Context, operand: ProgramValue, like: Value) -> Value:
    if isinstance(operand, Stack) and operand.tensor is not None:
        operand = operand.tensor
    if not isinstance(operand, Value):
        raise Unsupported(f"a loop whose variable becomes a {type(operand).__name__.lower()}")
    if operand.dtype != like.dtype:
        raise Unsupported(f"a loop whose variable of {like.dtype} becomes {operand.dtype}")
    return op.plain(operand)


def _keep_shapes(
    plan: _Plan, carried: Sequence[int], inner: dict[int, Value], after: Sequence[ProgramValue]
) -> bool:
    """Return whether all variables keep their shapes; record the shapes that do not."""
    settled = True
    for i in carried:
        operand = after[i]
        value = operand.tensor if isinstance(operand, Stack) else operand
        if not isinstance(value, Value):
            continue
        before = inner[i].shape
        if value.rank != len(before):
            raise Unsupported(
                f"a loop whose variable of {count('axis', len(before))} gets {value.rank}"
            )
        joined = tuple(m if m == n else None for m, n in zip(before, value.shape, strict=True))
        if joined != before:
            plan.shapes[i] = joined
            settled = False
    return settled


def _result(
    op: Context,
    plan: _Plan,
    number: int,
    found: dict[int, Value],
    after: ProgramValue,
    rounds: Rounds,
) -> ProgramValue:
    """Return the final value of a variable."""
    start = plan.start[number]
    if number in plan.fixed:
        return start
    if number in plan.lists & plan.unread:
        return Record("list that nothing reads")
    value = found[number]
    if not isinstance(start, Stack):
        return value
    if number not in plan.lists:
        return start.filled(value)
    assert isinstance(after, Stack)
    assert after.written is not None
    grows = start.grows or after.grows
    if after.written[0] is None or (grows and stacks.known_length(op, start) == 0):
        if rounds.exact and len(rounds.limits) == 1:
            count = stacks.size_of(op, rounds.limits[0])
            value = replace(value, shape=(count, *value.shape[1:]))
        return start.filled(value)
    length = stacks.length(op, replace(start, loop=None))
    if grows:
        return start.filled(stacks.long_enough(op, value, op.reshape(length, (1,))))
    # No index is out of range, so that a loop of at least `length` iterations sets all elements.
    count = stacks.size_of(op, length)
    fits = rounds.exact and all(
        limit.name == length.name or (count is not None and reaches(op, limit, count))
        for limit in rounds.limits
    )
    return start.filled(stacks.follow_loop(op, value, length, fits=fits))


def build_frame_loop(
    op: Session, inputs: list[ProgramValue], node: graphdef.Node
) -> list[ProgramValue]:
    """Build a loop of TensorFlow 1, and return the final values of its variables."""
    frame = frame_of(node)
    walker = op.walker
    outer = walker.current
    assert outer is not None

    def start_body(operands: list[ProgramValue]) -> BodyState:
        inner = BodyState(frame.body, (*outer.path, node.name))
        for name, operand in zip(frame.body.arguments, operands, strict=True):
            inner.values[name] = [operand]
        return inner

    def condition(operands: list[ProgramValue]) -> ProgramValue:
        return walker.run(start_body(operands), [frame.condition])[0]

    def body(operands: list[ProgramValue]) -> list[ProgramValue]:
        made = walker.run(start_body(operands), frame.results)
        return [*made, *operands[len(frame.results) :]]

    fixed = set(range(len(frame.results), len(inputs)))
    for number, port in enumerate(frame.results):
        if _leads_to(frame.body, port) == frame.body.arguments[number]:
            fixed.add(number)
    return build_loop(op, inputs, condition, body, fixed, walker.read(node))


def _leads_to(body: Body, port: Port) -> str:
    name = port.node
    for _ in body.nodes:  # bounded: identities may form a cycle
        node = body.nodes[name]
        if node.op not in PASSING:
            break
        name = node.inputs[0].node
    return name
