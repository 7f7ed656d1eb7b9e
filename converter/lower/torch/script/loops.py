"""Loops of a TorchScript program whose number of iterations depends on inputs, as ONNX's Loop.

 Names that the body assigns and that existed before are carried, and so are tensors that it writes
in place. A list to which each iteration appends a tensor is an output with a first axis of
iterations.

Spec: https://onnx.ai/onnx/operators/onnx__Loop.html
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from converter.lower import dims
from converter.lower.graph import Dim, Graph, Shape
from converter.lower.subgraphs import outputs_of
from converter.lower.torch.mutable_tensors import Reference, Storage
from converter.lower.torch.program_values import Number, ProgramValue, Size
from converter.lower.torch.script.branches import inside, undone
from converter.lower.torch.script.loop_variables import needed_from_before
from converter.lower.torch.script.numbers import tensor_of, truth
from converter.lower.torch.script.types import Interpreter, LoopIteration
from converter.lower.torch.script.values import (
    Items,
    Raised,
    elements,
    is_number,
    leaves,
    rebuild,
)
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value, identity
from formats.core.plurals import count

MOST_TRIES = 8  # until the shapes that go into an iteration are those that come back


@dataclass(slots=True)
class Carried:
    """Values that a loop carries from iteration to iteration.

    Attributes:
        names: Names of the program -> what they were before.
        storages: Storages that the body writes in place.
        pinned: Names whose tensors each iteration writes in place.
        shapes: Shapes that all these tensors and numbers have inside the loop, in order.
    """

    names: dict[str, ProgramValue]
    storages: list[Storage] = field(default_factory=list)
    pinned: dict[str, Storage] = field(default_factory=dict)
    shapes: list[Shape] = field(default_factory=list)


@dataclass(slots=True)
class Built:
    """A body, built once."""

    body: Graph
    after: list[Value]
    rows: list[tuple[Items, Value]]
    written: list[Storage]


class InPlaceWrite(Exception):  # noqa: N818 - the body is built again with what it learned
    """An iteration writes in place to the tensor of a name, and keeps it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def loop(
    interpreter: Interpreter, target: ast.expr | None, count: ProgramValue, test: ast.expr | None,
    body: Sequence[ast.stmt],
) -> None:  # fmt: skip
    """Build a loop.

    Args:
        interpreter: The interpreter.
        target: Variable of a ``for`` loop.
        count: How many there are, of a ``for``.
        test: Whether there is another, of a ``while``.
        body: Statements of an iteration.

    Raises:
        Unsupported: A carried value is not a tensor or number.
    """
    frame = interpreter.activations[-1]
    wanted = needed_from_before(body, test, frame.function.body)
    kept = {n: t for n, t in frame.names.items() if n in wanted}
    carried = Carried(kept)
    carried.shapes = [v.shape for v in _values(interpreter, carried)]
    findings = len(interpreter.findings)
    for _ in range(MOST_TRIES):
        del interpreter.findings[findings:]
        try:
            built = _built(interpreter, carried, target, test, body)
        except InPlaceWrite as write:
            first = carried.names.pop(write.name)
            carried.pinned[write.name] = first.storage
            carried.shapes = [v.shape for v in _values(interpreter, carried)]
            continue
        new = [s for s in built.written if s not in carried.storages]
        if new:
            carried.storages += new
            carried.shapes += [s.value.shape for s in new]
            continue
        shapes = [
            tuple(m if m == n else None for m, n in zip(before, after.shape, strict=True))
            if len(before) == after.rank else _other_rank(before, after)
            for before, after in zip(carried.shapes, built.after, strict=True)
        ]  # fmt: skip
        if shapes == carried.shapes:
            _finish(interpreter, carried, built, count, test)
            return
        carried.shapes = shapes
    raise Unsupported("a loop whose tensors change their shapes in another way each round")


def _other_rank(before: Shape, after: Value) -> Shape:
    raise Unsupported(
        f"a loop that makes a tensor of {count('axis', len(before))} one of {after.rank}"
    )


def _values(interpreter: Interpreter, carried: Carried) -> list[Value]:
    """Return the inputs of the first iteration."""
    values = [one for value in carried.names.values() for one in leaves(value)]
    found = [v for one in values if (v := _value(interpreter, one)) is not None]
    return [interpreter.op.plain(v) for v in (*found, *(s.value for s in carried.storages))]


def _value(interpreter: Interpreter, value: ProgramValue) -> Value | None:
    if isinstance(value, Reference):
        return value.read()
    return tensor_of(interpreter.op, value) if is_number(value) else None


def _rebuilt(interpreter: Interpreter, value: ProgramValue, values: "list[Value]") -> ProgramValue:
    """Return a value of the same structure, of other tensors and numbers."""
    if isinstance(value, Reference):
        return Reference.to(values.pop(0))
    if is_number(value):
        return Number(values.pop(0))
    if isinstance(value, list | tuple | dict):
        # As if created before the loop: changing it in an iteration would change it for all names.
        items = [_rebuilt(interpreter, one, values) for one in elements(value)]
        return rebuild(value, items, interpreter.depth - 1)
    return value


def _built(
    interpreter: Interpreter, carried: Carried, target: ast.expr | None, test: ast.expr | None,
    body: Sequence[ast.stmt],
) -> Built:  # fmt: skip
    """Build the body of a loop as an inner graph."""
    op, frame = interpreter.op, interpreter.activations[-1]
    first = _values(interpreter, carried)
    with undone(interpreter) as undo, inside(interpreter, "loop") as graph:
        states = _bind_inputs(interpreter, carried, first, target)
        starts = {
            one.storage: one.storage.value
            for name in carried.names
            for one in leaves(frame.names[name])
            if isinstance(one, Reference)
        }
        appended = _interpret_appends(interpreter, body)
        _check_shared(carried, starts, undo.storages, frame.names, appended)
        after = _after(interpreter, carried, states, frame.names)
        rows = [_row(interpreter, *entry) for entry in appended.values()]
        goes_on = op.constant(np.asarray(1), "bool")
        if test is not None:
            goes_on = tensor_of(op, truth(op, interpreter.condition(test)))
        written = [
            storage for storage, value in undo.storages.items()
            if storage.value is not value and storage not in carried.storages
        ]  # fmt: skip
        outputs = [op.plain(goes_on), *after, *(value for _, value in rows)]
        graph.outputs = outputs_of(op, graph, outputs)
    return Built(graph, after, rows, written)


def _bind_inputs(
    interpreter: Interpreter, carried: Carried, first: Sequence[Value], target: ast.expr | None
) -> list[Value]:
    """Make the inputs of a body and bind the program's names to them; return the states."""
    op, frame = interpreter.op, interpreter.activations[-1]
    number = op.input(op.unique("round"), "int64", ())
    op.input(op.unique("goes_on"), "bool", ())
    states = [
        replace(op.input(op.unique("state"), v.dtype, shape), stored=identity(len(shape)))
        for v, shape in zip(first, carried.shapes, strict=True)
    ]
    rest = list(states)
    for name, value in carried.names.items():
        frame.names[name] = _rebuilt(interpreter, value, rest)
    for storage, state in zip(carried.storages, rest, strict=True):
        storage.value, storage.version = state, storage.version + 1
    if isinstance(target, ast.Name):
        name = f"round__{len(interpreter.counters)}"
        interpreter.counters.append(name)
        frame.names[target.id] = op.define(name, partial(op.unsqueeze, number, [0]))
    return states


def _interpret_appends(
    interpreter: Interpreter, body: Sequence[ast.stmt]
) -> dict[int, tuple[Items, list[ProgramValue]]]:
    """Interpret a body; return what it appends to lists from before it.

    Raises:
        Unsupported: It returns, raises, or reads a list that it appends to.
    """
    iteration = LoopIteration(interpreter.depth)
    interpreter.iterations.append(iteration)
    try:
        if interpreter.block(body) is not None:
            raise Unsupported("a return from a loop")
    except Raised as raised:
        raise Unsupported(f"a loop that raises {str(raised)[:80]!r}") from raised
    finally:
        interpreter.iterations.pop()
    if iteration.appended.keys() & iteration.read.keys():
        raise Unsupported("a list that a loop reads and appends to")
    return iteration.appended


def _check_shared(
    carried: Carried,
    starts: dict[Storage, Value],
    before: dict[Storage, Value],
    names: dict[str, ProgramValue],
    appended: dict[int, tuple[Items, list[ProgramValue]]],
) -> None:
    """Look whether rounds share memory that one of them writes to: here they pass on values.

    Raises:
        Unsupported: They do.
    """
    changed = {storage for storage, value in starts.items() if storage.value is not value}
    for name, first in carried.names.items():
        now = names[name]
        is_whole = isinstance(first, Reference) and first.base is None
        if is_whole and isinstance(now, Reference) and now.storage in changed and now.base is None:
            raise InPlaceWrite(name)
    if changed:
        raise Unsupported("a loop that writes in place to a tensor that it also assigns")
    for name, storage in carried.pinned.items():
        now = names[name]
        if not isinstance(now, Reference) or now.storage is not storage or now.base is not None:
            raise Unsupported("a loop that writes in place to a tensor that it also assigns")
    written = {s for s, value in before.items() if s.value is not value}
    passed = [one for name in carried.names for one in leaves(names[name])]
    passed += [
        one for _, values in appended.values() for operand in values for one in leaves(operand)
    ]
    if any(isinstance(one, Reference) and one.storage in written for one in passed):
        raise Unsupported("a loop that keeps a tensor of one round that later rounds write to")


def _after(
    interpreter: Interpreter,
    carried: Carried,
    given: Sequence[Value],
    names: dict[str, ProgramValue],
) -> list[Value]:
    """Return the outputs of an iteration."""
    found: list[Value] = []
    for name, operand in carried.names.items():
        made = [_value(interpreter, one) for one in leaves(names[name])]
        wanted = [one for one in leaves(operand) if isinstance(one, Reference) or is_number(one)]
        values = [v for v in made if v is not None]
        if len(values) != len(wanted) or any(n is None for n in made) != any(
            not isinstance(o, Reference) and not is_number(o) for o in leaves(operand)
        ):
            raise Unsupported(f"{name}, which a loop makes something of another kind")
        found += values
    found += [s.value for s in carried.storages]
    for before, value in zip(given, found, strict=True):
        if before.dtype != value.dtype:
            raise Unsupported(f"a loop that makes {before.dtype} into {value.dtype}")
    return [interpreter.op.plain(v) for v in found]


def _row(
    interpreter: Interpreter, items: Items, appended: Sequence[ProgramValue]
) -> tuple[Items, Value]:
    if len(appended) != 1 or not isinstance(appended[0], Reference):
        raise Unsupported("a list that a loop appends something else to than one tensor each round")
    value = interpreter.op.plain(appended[0].read())
    if any(atom in interpreter.counters for n in value.shape for atom in _atoms(n)):
        raise Unsupported("a list of tensors whose sizes change from round to round")
    return items, value


def _atoms(size: Dim) -> set[str]:
    """Return the names in a size."""
    if not isinstance(size, str):
        return set()
    return {name for names in dims.terms(size) for name in names}


def _finish(
    interpreter: Interpreter,
    carried: Carried,
    built: Built,
    count: ProgramValue,
    test: ast.expr | None,
) -> None:
    op, frame = interpreter.op, interpreter.activations[-1]
    rounds = None if count is None else tensor_of(op, count)
    goes_on = None if test is None else tensor_of(op, truth(op, interpreter.condition(test)))
    first = _values(interpreter, carried)
    kinds = [(v.dtype, shape) for v, shape in zip(first, carried.shapes, strict=True)]
    many = count if isinstance(count, Size) else None
    kinds += [(v.dtype, (many, *v.shape)) for _, v in built.rows]
    if not kinds:
        return
    asked = [
        None if v is None else replace(op.plain(v), is_constant=False) for v in (rounds, goes_on)
    ]
    if asked[1] is None and not first:  # of two inputs there must be one
        asked[1] = replace(op.constant(np.asarray(1), "bool"), is_constant=False)
    made = op.node("Loop", [*asked, *first], kinds, attributes={"body": built.body})
    rest = list(made)
    for name, operand in carried.names.items():
        frame.names[name] = _rebuilt(interpreter, operand, rest)
    for storage in carried.storages:
        storage.value, storage.version = rest.pop(0), storage.version + 1
    for (items, _), value in zip(built.rows, rest, strict=True):
        items.grown = op.concat([*_before(interpreter, items, value), value], 0)
        items.clear()


def _before(interpreter: Interpreter, items: Items, value: Value) -> list[Value]:
    """Return what a list had before a loop appended to it, along a first axis."""
    if items.grown is not None:
        return [items.grown]
    op = interpreter.op
    if not all(isinstance(one, Reference) for one in items):
        raise Unsupported("a list that a loop appends something else to than was in it")
    made = [op.unsqueeze(op.plain(one.read()), [0]) for one in items]
    if any(one.dtype != value.dtype or one.rank != value.rank for one in made):
        raise Unsupported("a list of tensors that do not go together")
    return made
