"""Branches of a TorchScript program that only its inputs decide, as ONNX's If.

 What both branches assign to one name is an output of the If, and so is what they write in place. A
branch that raises is taken to be not taken: a graph has no such checks.

Spec: https://onnx.ai/onnx/operators/onnx__If.html
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from converter.lower.graph import Graph, Shape
from converter.lower.subgraphs import outputs_of
from converter.lower.torch.mutable_tensors import Reference, Storage
from converter.lower.torch.program_values import Number, ProgramValue
from converter.lower.torch.script.numbers import tensor_of
from converter.lower.torch.script.types import Interpreter, Result, Undo
from converter.lower.torch.script.values import (
    Items,
    Missing,
    Raised,
    Unknown,
    elements,
    is_number,
    rebuild,
    words,
)
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value
from formats.torch.script_objects import Instance

Make = Callable[[Sequence[Value]], ProgramValue]  # outputs of the If -> a value of the program
CHECKS = "checks that raise are not made"


@dataclass(slots=True)
class Outcome:
    """The state after one branch.

    Attributes:
        body: Its graph.
        names: Values that it assigned, by name.
        fields: Attributes that it set -> their values.
        written: Storages of before that it wrote to -> their values.
        result: Value that it returned, if any.
    """

    body: Graph
    names: dict[str, ProgramValue] = field(default_factory=dict)
    fields: dict[tuple[Instance, str], ProgramValue] = field(default_factory=dict)
    written: dict[Storage, Value] = field(default_factory=dict)
    result: Result | None = None


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that a branch yields: its value there, and where torch keeps it."""

    value: Value
    storage: Storage


def branch(interpreter: Interpreter, condition: Value, node: ast.If) -> Result | None:
    """Walk both branches of an ``if``.

    Raises:
        Unsupported: What they yield does not go together.
        Raised: Both raise.
    """
    outcomes = []
    for body, other in ((node.body, node.orelse), (node.orelse, node.body)):
        if any(_raises(statement) for statement in body):
            interpreter.notes.setdefault(CHECKS)
            return interpreter.block(other)
    for body, other in ((node.body, node.orelse), (node.orelse, node.body)):
        outcome = built(interpreter, partial(interpreter.block, body))
        if outcome is None:
            interpreter.notes.setdefault(CHECKS)
            return interpreter.block(other)
        outcomes.append(outcome)
    return _merge(interpreter, condition, outcomes)


def _raises(node: ast.stmt) -> bool:
    """Return whether a statement is one that raises, as the text shows."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    return isinstance(node.value.func, ast.Attribute) and node.value.func.attr == "RaiseException"


def chosen(
    interpreter: Interpreter, condition: Value, taken: ast.expr, other: ast.expr
) -> ProgramValue:
    """Return one of two expressions' values."""
    names = interpreter.activations[-1].names

    def assign(node: ast.expr) -> None:
        names["?"] = interpreter.value(node)

    outcomes = []
    for node in (taken, other):
        outcome = built(interpreter, partial(assign, node))
        if outcome is None:
            return interpreter.value(other if node is taken else taken)
        outcomes.append(outcome)
    _merge(interpreter, condition, outcomes)
    return interpreter.activations[-1].names.pop("?")


@contextmanager
def inside(interpreter: Interpreter, name: str) -> Iterator[Graph]:
    """Walk what becomes an inner graph."""
    interpreter.depth += 1
    try:
        with interpreter.op.body(name) as body:
            yield body
    finally:
        interpreter.depth -= 1


@contextmanager
def undone(interpreter: Interpreter) -> Iterator[Undo]:
    """Undo what is assigned, set and written inside."""
    frame = interpreter.activations[-1]
    names = frame.names
    undo = Undo({ref.storage: ref.storage.value for ref in interpreter.tensors()})
    frame.names = dict(names)
    interpreter.undos.append(undo)
    try:
        yield undo
    finally:
        frame.names = names
        interpreter.undos.pop()
        interpreter.fields.update(undo.fields)
        for storage, value in undo.storages.items():
            if storage.value is not value:
                storage.value = value
                storage.version += 1


def built(interpreter: Interpreter, walk: Callable[[], Result | None]) -> Outcome | None:
    """Build what is interpreted as an inner graph, and undo all else; None where it raises."""
    frame = interpreter.activations[-1]
    before = frame.names
    findings = len(interpreter.findings)
    try:
        with undone(interpreter) as undo, inside(interpreter, "branch") as body:
            outcome = Outcome(body)
            outcome.result = walk()
            for name, value in frame.names.items():
                if name not in before or value is not before[name]:
                    outcome.names[name] = settle(interpreter, value)
            for key in undo.fields:
                outcome.fields[key] = settle(interpreter, interpreter.fields[key])
            for storage, first in undo.storages.items():
                if storage.value is not first:
                    outcome.written[storage] = interpreter.op.plain(storage.value)
    except Raised:
        del interpreter.findings[findings:]
        return None
    return outcome


def settle(interpreter: Interpreter, operand: ProgramValue) -> ProgramValue:
    """Return a value with values for tensors, made where they are."""
    if isinstance(operand, Reference):
        return Tensor(interpreter.op.plain(operand.read()), operand.storage)
    if isinstance(operand, Number):
        return Number(interpreter.op.plain(operand.value))
    if isinstance(operand, Items) and operand.grown is not None:
        return Missing("a list that only one branch makes")
    if isinstance(operand, list | tuple | dict):
        items = [settle(interpreter, one) for one in elements(operand)]
        return rebuild(operand, items, getattr(operand, "depth", 0))
    return operand


def _have_one_structure(a: ProgramValue, b: ProgramValue) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys()
    return isinstance(a, list | tuple) and type(a) is type(b) and len(a) == len(b)


def _always(value: ProgramValue) -> Make:
    """Return what makes the same value of all outputs."""
    return lambda _: value


class _Merge:
    """Pairs of values that become outputs, and how values are rebuilt from them."""

    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter
        self.pairs: list[tuple[Value, Value]] = []
        self.shapes: list[Shape] = []

    def merge(self, a: ProgramValue, b: ProgramValue) -> Make:
        """Return what makes a value of the If's outputs."""
        if a is b and not isinstance(a, Tensor):
            return _always(a)
        for one, other in ((a, b), (b, a)):
            if isinstance(one, Unknown):
                return _always(one)
            if isinstance(one, Missing):
                return self._partly(other, one, is_first=one is a)
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return self._tensor(a, b)
        if is_number(a) and is_number(b):
            return self._number(a, b)
        if _have_one_structure(a, b):
            return self._container(a, b)
        if isinstance(a, str) and a == b:
            return _always(a)
        reason = f"{_said(a)} in one branch, and {_said(b)} in the other"
        return _always(Missing(reason))

    def _container(self, a: ProgramValue, b: ProgramValue) -> Make:
        if isinstance(a, dict):
            b = {key: b[key] for key in a}  # in the same order
        parts = [self.merge(x, y) for x, y in zip(elements(a), elements(b), strict=True)]
        depth = self.interpreter.depth
        return lambda made: rebuild(a, [part(made) for part in parts], depth)

    def value(self, a: Value, b: Value) -> int:
        """Add a pair, and return its index."""
        if a.dtype != b.dtype or a.rank != b.rank:
            raise Unsupported(
                f"branches that yield {a.dtype} of {a.rank} axes, and {b.dtype} of {b.rank} axes"
            )
        self.pairs.append((a, b))
        known = (m if m == n else None for m, n in zip(a.shape, b.shape, strict=True))
        self.shapes.append(tuple(known))
        return len(self.pairs) - 1

    def _tensor(self, a: Tensor, b: Tensor) -> Make:
        if a.value is b.value:
            return _always(Reference(a.storage))
        place = self.value(a.value, b.value)

        def make(made: Sequence[Value]) -> Reference:
            found = Reference.to(made[place])
            self.interpreter.doubts += [
                (s, s.version) for s in (a.storage, b.storage, found.storage)
            ]
            return found

        return make

    def _number(self, a: ProgramValue, b: ProgramValue) -> Make:
        if type(a) is type(b) and not isinstance(a, Number) and a == b:
            return _always(a)
        op = self.interpreter.op
        first, second = (op.plain(tensor_of(op, one)) for one in (a, b))
        if first.dtype != second.dtype:
            raise Unsupported(f"branches that yield numbers of {first.dtype} and {second.dtype}")
        place = self.value(first, second)
        return lambda made: Number(made[place])

    def _partly(self, operand: ProgramValue, missing: Missing, *, is_first: bool) -> Make:
        """Give a variable that one branch never assigns a placeholder that nothing reads."""
        if not isinstance(operand, Tensor | Number):
            return _always(operand if is_number(operand) or isinstance(operand, str) else missing)
        value = operand.value
        nothing = np.zeros((1,) * value.rank, np.int64)
        filler = self.interpreter.op.cast(self.interpreter.op.constant(nothing), value.dtype)
        filler = replace(filler, shape=value.shape)
        pair = (filler, value) if is_first else (value, filler)
        place = self.value(*pair)
        if isinstance(operand, Number):
            return lambda made: Number(made[place])
        return lambda made: Reference.to(made[place])


def _said(value: ProgramValue) -> str:
    return "a tensor" if isinstance(value, Tensor) else words(value)


def _merge(
    interpreter: Interpreter, condition: Value, outcomes: Sequence[Outcome]
) -> Result | None:

    first, second = outcomes
    frame = interpreter.activations[-1]
    merge = _Merge(interpreter)
    makes: dict[str, Make] = {}
    gone = Missing("what only one branch sets")
    for name in dict.fromkeys((*first.names, *second.names)):
        sides = []
        for outcome in outcomes:
            if name in outcome.names:
                sides.append(outcome.names[name])
            else:
                sides.append(settle(interpreter, frame.names.get(name, gone)))
        makes[name] = merge.merge(*sides)
    set_fields: dict[tuple[Instance, str], Make] = {}
    for key in dict.fromkeys((*first.fields, *second.fields)):
        before = settle(interpreter, interpreter.fields[key])
        set_fields[key] = merge.merge(*(o.fields.get(key, before) for o in outcomes))
    written = {
        storage: merge.value(
            first.written.get(storage, interpreter.op.plain(storage.value)),
            second.written.get(storage, interpreter.op.plain(storage.value)),
        )
        for storage in dict.fromkeys((*first.written, *second.written))
    }
    result = None
    if first.result is not None or second.result is not None:
        if first.result is None or second.result is None:
            raise Unsupported("a return from one of two branches")
        with inside(interpreter, "result"):
            sides = [settle(interpreter, o.result.value) for o in outcomes if o.result is not None]
        result = merge.merge(*sides)
    made = _if(interpreter, condition, outcomes, merge)
    for name, make in makes.items():
        frame.names[name] = make(made)
    for key, make in set_fields.items():
        interpreter.fields[key] = make(made)
    for storage, place in written.items():
        storage.value = made[place]
        storage.version += 1
    return None if result is None else Result(result(made))


def _if(
    interpreter: Interpreter, condition: Value, outcomes: Sequence[Outcome], merge: _Merge
) -> list[Value]:
    if not merge.pairs:
        return []
    op = interpreter.op
    for i, outcome in enumerate(outcomes):
        values = [pair[i] for pair in merge.pairs]
        outcome.body.outputs = outputs_of(op, outcome.body, values)
    # What the branches see from outside may vary where the condition does not.
    asked = replace(op.plain(op.cast(condition, "bool")), is_constant=False)
    specs = [(pair[0].dtype, shape) for pair, shape in zip(merge.pairs, merge.shapes, strict=True)]
    bodies = {"then_branch": outcomes[0].body, "else_branch": outcomes[1].body}
    return op.node("If", [asked], specs, attributes=bodies)
