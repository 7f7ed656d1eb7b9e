"""Branches of a TorchScript program that only its inputs decide, as ONNX's If.

What both branches leave behind under one name is an output of the If, and so is what they write in
place. A branch that raises is one that is not taken: a graph makes no such checks.

Spec: https://onnx.ai/onnx/operators/onnx__If.html
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from converter.lower.bodies import outputs_of
from converter.lower.graph import Graph, Shape
from converter.lower.torch.references import Reference, Storage
from converter.lower.torch.script_numbers import tensor_of
from converter.lower.torch.script_things import (
    Fields,
    Items,
    Missing,
    Raised,
    Thing,
    Unknown,
    is_number,
    words,
)
from converter.lower.torch.things import Number
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

if TYPE_CHECKING:
    from converter.lower.torch.script_walk import Result, Walker

Make = Callable[[Sequence[Value]], Thing]  # outputs of the If -> a thing of the program
CHECKS = "checks that raise are not made"


@dataclass(slots=True)
class Outcome:
    """What one branch leaves behind.

    Attributes:
        body: Its graph.
        names: What it assigned.
        written: Storages of before that it wrote to -> their values.
        result: What it returned, if it did.
    """

    body: Graph
    names: dict[str, Thing] = field(default_factory=dict)
    written: dict[Storage, Value] = field(default_factory=dict)
    result: "Result | None" = None


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that a branch yields: its value there, and where torch keeps it."""

    value: Value
    storage: Storage


def branch(walker: "Walker", condition: Value, node: ast.If) -> "Result | None":
    """Walk both branches of an ``if``.

    Raises:
        Unsupported: What they yield does not go together.
        Raised: Both raise.
    """
    outcomes = []
    for body, other in ((node.body, node.orelse), (node.orelse, node.body)):
        if any(_raises(statement) for statement in body):
            walker.notes.setdefault(CHECKS)
            return walker.block(other)
    for body, other in ((node.body, node.orelse), (node.orelse, node.body)):
        outcome = built(walker, partial(walker.block, body))
        if outcome is None:
            walker.notes.setdefault(CHECKS)
            return walker.block(other)
        outcomes.append(outcome)
    return _merged(walker, condition, outcomes)


def _raises(node: ast.stmt) -> bool:
    """Tell whether a statement is one that raises, as the text shows."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    return isinstance(node.value.func, ast.Attribute) and node.value.func.attr == "RaiseException"


def chosen(walker: "Walker", condition: Value, taken: ast.expr, other: ast.expr) -> Thing:
    """Return one of two expressions' values."""
    names = walker.activations[-1].names

    def assign(node: ast.expr) -> None:
        names["?"] = walker.value(node)

    outcomes = []
    for node in (taken, other):
        outcome = built(walker, partial(assign, node))
        if outcome is None:
            return walker.value(other if node is taken else taken)
        outcomes.append(outcome)
    _merged(walker, condition, outcomes)
    return walker.activations[-1].names.pop("?")


@contextmanager
def inside(walker: "Walker", name: str) -> Iterator[Graph]:
    """Walk what becomes an inner graph."""
    walker.depth += 1
    try:
        with walker.op.body(name) as body:
            yield body
    finally:
        walker.depth -= 1


def built(walker: "Walker", walk: "Callable[[], Result | None]") -> Outcome | None:
    """Build what is walked as an inner graph, and undo all else; None where it raises."""
    frame = walker.activations[-1]
    before = frame.names
    storages = {ref.storage: ref.storage.value for ref in walker.tensors()}
    findings = len(walker.findings)
    frame.names = dict(before)
    try:
        with inside(walker, "branch") as body:
            outcome = Outcome(body)
            outcome.result = walk()
            for name, thing in frame.names.items():
                if name not in before or thing is not before[name]:
                    outcome.names[name] = settled(walker, thing)
            for storage, value in storages.items():
                if storage.value is not value:
                    outcome.written[storage] = walker.op.plain(storage.value)
    except Raised:
        del walker.findings[findings:]
        return None
    finally:
        frame.names = before
        for storage, value in storages.items():
            if storage.value is not value:
                storage.value = value
                storage.version += 1
    return outcome


def settled(walker: "Walker", thing: Thing) -> Thing:
    """Return a thing with values for tensors, made where they are."""
    if isinstance(thing, Reference):
        return Tensor(walker.op.plain(thing.read()), thing.storage)
    if isinstance(thing, Number):
        return Number(walker.op.plain(thing.value))
    if isinstance(thing, Fields):
        return Fields([settled(walker, one) for one in thing], thing.names)
    if isinstance(thing, Items):
        if thing.grown is not None:
            return Missing("a list that only one branch makes")
        return Items([settled(walker, one) for one in thing], thing.depth)
    if isinstance(thing, tuple):
        return tuple(settled(walker, one) for one in thing)
    if isinstance(thing, dict):
        return {key: settled(walker, one) for key, one in thing.items()}
    return thing


def _always(thing: Thing) -> Make:
    """Return what makes the same thing of all outputs."""
    return lambda _: thing


class _Merge:
    """Pairs of values that become outputs, and how things are made of those."""

    def __init__(self, walker: "Walker") -> None:
        self.walker = walker
        self.pairs: list[tuple[Value, Value]] = []
        self.shapes: list[Shape] = []

    def thing(self, a: Thing, b: Thing) -> Make:
        """Return what makes a thing of the If's outputs."""
        if a is b and not isinstance(a, Tensor):
            return _always(a)
        for one, other in ((a, b), (b, a)):
            if isinstance(one, Unknown):
                return _always(one)
            if isinstance(one, Missing):
                return self._partly(other, one, is_first=one is a)
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            if a.value is b.value:
                return _always(Reference(a.storage))
            return self._tensor(a, b)
        if is_number(a) and is_number(b):
            if type(a) is type(b) and not isinstance(a, Number) and a == b:
                return _always(a)
            return self._number(tensor_of(self.walker.op, a), tensor_of(self.walker.op, b))
        if isinstance(a, list | tuple) and type(a) is type(b) and len(a) == len(b):
            parts = [self.thing(x, y) for x, y in zip(a, b, strict=True)]
            depth = self.walker.depth
            if isinstance(a, Fields):
                return lambda made: Fields([p(made) for p in parts], a.names)
            if isinstance(a, tuple):
                return lambda made: tuple(p(made) for p in parts)
            return lambda made: Items([p(made) for p in parts], depth)
        if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
            entries = {key: self.thing(a[key], b[key]) for key in a}
            return lambda made: {key: p(made) for key, p in entries.items()}
        if isinstance(a, str) and a == b:
            return _always(a)
        reason = f"{_said(a)} in one branch, and {_said(b)} in the other"
        return _always(Missing(reason))

    def value(self, a: Value, b: Value) -> int:
        """Enter a pair, and return its place."""
        if a.dtype != b.dtype or a.rank != b.rank:
            raise Unsupported(
                f"branches that yield {a.dtype} of {a.rank} axes, and {b.dtype} of {b.rank} axes"
            )
        self.pairs.append((a, b))
        known = (m if m == n else None for m, n in zip(a.shape, b.shape, strict=True))
        self.shapes.append(tuple(known))
        return len(self.pairs) - 1

    def _tensor(self, a: Tensor, b: Tensor) -> Make:
        place = self.value(a.value, b.value)

        def make(made: Sequence[Value]) -> Reference:
            found = self.walker.reference(made[place])
            self.walker.doubts += [(s, s.version) for s in (a.storage, b.storage, found.storage)]
            return found

        return make

    def _number(self, a: Value, b: Value) -> Make:
        op = self.walker.op
        if a.dtype != b.dtype and a.is_float and b.is_float:
            raise Unsupported(f"branches that yield {a.dtype} and {b.dtype}")
        if a.dtype != b.dtype:
            raise Unsupported(f"branches that yield numbers of {a.dtype} and {b.dtype}")
        place = self.value(op.plain(a), op.plain(b))
        return lambda made: Number(made[place])

    def _partly(self, thing: Thing, missing: Missing, *, is_first: bool) -> Make:
        """What one branch never sets: something takes its place that nothing will read."""
        if not isinstance(thing, Tensor | Number):
            return _always(thing if is_number(thing) or isinstance(thing, str) else missing)
        value = thing.value
        nothing = np.zeros((1,) * value.rank, np.int64)
        filler = self.walker.op.cast(self.walker.op.constant(nothing), value.dtype)
        filler = replace(filler, shape=value.shape)
        pair = (filler, value) if is_first else (value, filler)
        place = self.value(*pair)
        if isinstance(thing, Number):
            return lambda made: Number(made[place])
        return lambda made: self.walker.reference(made[place])


def _said(thing: Thing) -> str:
    return "a tensor" if isinstance(thing, Tensor) else words(thing)


def _merged(walker: "Walker", condition: Value, outcomes: Sequence[Outcome]) -> "Result | None":
    from converter.lower.torch.script_walk import Result

    first, second = outcomes
    frame = walker.activations[-1]
    merge = _Merge(walker)
    makes: dict[str, Make] = {}
    gone = Missing("what only one branch sets")
    for name in dict.fromkeys((*first.names, *second.names)):
        sides = []
        for outcome in outcomes:
            if name in outcome.names:
                sides.append(outcome.names[name])
            else:
                sides.append(settled(walker, frame.names.get(name, gone)))
        makes[name] = merge.thing(*sides)
    written = {
        storage: merge.value(
            first.written.get(storage, walker.op.plain(storage.value)),
            second.written.get(storage, walker.op.plain(storage.value)),
        )
        for storage in dict.fromkeys((*first.written, *second.written))
    }
    result = None
    if first.result is not None or second.result is not None:
        if first.result is None or second.result is None:
            raise Unsupported("a return from one of two branches")
        with inside(walker, "result"):
            sides = [settled(walker, o.result.thing) for o in outcomes if o.result is not None]
        result = merge.thing(*sides)
    made = _if(walker, condition, outcomes, merge)
    for name, make in makes.items():
        frame.names[name] = make(made)
    for storage, place in written.items():
        storage.value = made[place]
        storage.version += 1
    return None if result is None else Result(result(made))


def _if(
    walker: "Walker", condition: Value, outcomes: Sequence[Outcome], merge: _Merge
) -> list[Value]:
    if not merge.pairs:
        return []
    op = walker.op
    for i, outcome in enumerate(outcomes):
        values = [pair[i] for pair in merge.pairs]
        outcome.body.outputs = outputs_of(op, outcome.body, values)
    # What the branches see from outside may vary where the condition does not.
    asked = replace(op.plain(op.cast(condition, "bool")), is_constant=False)
    specs = [(pair[0].dtype, shape) for pair, shape in zip(merge.pairs, merge.shapes, strict=True)]
    bodies = {"then_branch": outcomes[0].body, "else_branch": outcomes[1].body}
    return op.node("If", [asked], specs, attributes=bodies)
