"""Several copies of one variable, made one: what EXPAND_DISTRIBUTED_VARIABLES saved per replica.

Under that policy the graph has a variable for each replica, of which the checkpoint restores the
first only, and functions take all of them. Here all become the first. What that changes is put
right where it can be:

- a variable that is summed up when it is read (ON_READ, SUM) was saved as the sum; the others are
  read as zeros;
- a mirrored variable that each replica updates alike is updated once;
- statistics that each replica keeps for itself are kept by the first.

The object graph says which objects have copies; in the graph, the copies stand behind the first.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from converter.devices.savedmodel.scopes import Graph, Node, Scope, source_of
from formats.containers.protobuf.messages import Message
from formats.errors import UnsupportedError

Habit: TypeAlias = Literal["mirrored", "sum", "own"]

_COPY = re.compile(r"(?P<first>.+)/replica_(?P<number>\d+)(?:_\d+)?")
_ON_READ, _SUM = 3, 1  # VariableSynchronization, VariableAggregation
_UPDATES = re.compile(
    r"Assign(?:Add|Sub)?VariableOp|Resource(?:Sparse)?Apply\w+|ResourceScatter\w+"
)
_READS = {"ReadVariableOp": "value", "ResourceGather": "output", "ResourceGatherNd": "output"}
_SAFE = frozenset(("VarIsInitializedOp", "VariableShape", "DisableCopyOnRead"))


@dataclass(slots=True)
class Changes:
    """What the copies becoming one changes.

    Attributes:
        renamed: Copy → the first, in the graph.
        dropped: Nodes of the graph that are gone.
        zeroed: Function → names of nodes whose result shall be zeros.
        stopped: Function → names of updates that shall not happen.
        counts: What was done → how often.
    """

    renamed: dict[str, str] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    zeroed: dict[str, set[str]] = field(default_factory=dict)
    stopped: dict[str, set[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


def joined(graph: Graph, objects: Message) -> Changes:
    """Return how the copies of variables become one.

    Raises:
        UnsupportedError: It cannot be told which copy belongs to which variable, or one is used
            in a way that cannot be put right.
    """
    changes = Changes()
    habits = _habits(objects)
    wanted = sum(len(copies) for _, copies in habits.values())
    if not wanted:
        return changes
    firsts = _firsts(graph.main)
    if len(firsts) != wanted:
        raise UnsupportedError(
            f"the object graph has {wanted} copies of variables, and the graph {len(firsts)}",
            hint="Save it again without EXPAND_DISTRIBUTED_VARIABLES",
        )
    changes.renamed = firsts
    changes.counts["variables"] = len(firsts)
    consumers = graph.main.consumers()
    for copy in firsts:
        changes.dropped.add(copy)
        for reader, _ in consumers.get(copy, ()):
            if reader.op == "ReadVariableOp" and not _is_used(graph.main, reader.name):
                changes.dropped.add(reader.name)
    _Uses(graph, habits, changes).follow(objects)
    return changes


def _habits(objects: Message) -> dict[int, tuple[Habit, tuple[str, ...]]]:
    """Return object → how its copies are read, and what they are called."""
    found: dict[int, tuple[Habit, tuple[str, ...]]] = {}
    for number, node in enumerate(objects.nodes):
        if not node.has("variable"):
            continue
        variable = node.variable
        copies = variable.experimental_distributed_variable_components[1:]
        if copies:
            habit: Habit = "mirrored"
            if variable.synchronization == _ON_READ:
                habit = "sum" if variable.aggregation == _SUM else "own"
            found[number] = habit, tuple(c.name for c in copies)
    return found


def _firsts(main: Scope) -> dict[str, str]:
    """Return copy → first, of the variables of a graph, which are written one behind the other."""
    found: dict[str, str] = {}
    first: Node | None = None
    count = 0
    for node in main.nodes.values():
        if node.op != "VarHandleOp":
            continue
        copy = _COPY.fullmatch(node.name)
        if copy is None:
            first, count = node, 0
            continue
        count += 1
        stem = copy["first"]
        if (
            first is not None
            and int(copy["number"]) == count
            and re.fullmatch(re.escape(stem) + r"(?:_\d+)?", first.name)
            and (node.types, node.shape) == (first.types, first.shape)
        ):
            found[node.name] = first.name
    return found


def _is_used(scope: Scope, name: str) -> bool:
    return any(
        source_of(i.removeprefix("^")) == name for n in scope.nodes.values() for i in n.inputs
    )


class _Uses:
    """What functions do with the copies that they are given."""

    def __init__(
        self, graph: Graph, habits: dict[int, tuple[Habit, tuple[str, ...]]], changes: Changes
    ) -> None:
        self.graph = graph
        self.habits = habits
        self.changes = changes
        self.given: dict[tuple[str, int], Habit] = {}  # a copy, to this function as this argument
        self.first: set[tuple[str, int]] = set()  # something else than a copy
        self.asked: set[tuple[str, int]] = set()  # and it made a difference

    def follow(self, objects: Message) -> None:
        """Walk from the concrete functions, and from the graph's own calls, to where copies go."""
        habit_of = self._of_nodes(objects)
        for name, concrete in objects.concrete_functions.items():
            scope = self.graph.functions.get(name)
            if scope is None:
                continue
            seen: set[int] = set()
            begin = len(scope.arguments) - len(concrete.bound_inputs)
            for index, number in enumerate(concrete.bound_inputs, begin):
                # Captures are in the order of replicas; the first one of a variable is the first.
                if number in self.habits and number in seen:
                    self._give(name, index, self.habits[number][0])
                elif number in self.habits:
                    self.first.add((name, index))
                seen.add(number)
        for node in self.graph.main.nodes.values():
            for index, name in enumerate(node.inputs):
                source = source_of(name)
                for function in node.calls:
                    if source in habit_of:
                        self._give(function, index, habit_of[source])
                    elif not name.startswith("^"):
                        self.first.add((function, index))
        for scope in self.graph.functions.values():
            self._mark_others(scope)
        for key in self.asked & self.first:
            function, index = key
            argument = self.graph.functions[function].arguments[index]
            raise UnsupportedError(
                f"function {function} takes the first copy of a variable as {argument!r}, and "
                "another one as well, and does not treat them alike"
            )

    def _of_nodes(self, objects: Message) -> dict[str, Habit]:
        """Return copy in the graph → how it is read, as the functions called tell."""
        found: dict[str, Habit] = {}
        rank = {name: i for i, name in enumerate(self.graph.main.nodes)}
        by_first: dict[str, set[Habit]] = {}
        for node in self.graph.main.nodes.values():
            for function in node.calls:
                concrete = objects.concrete_functions.get(function)
                if concrete is None or not node.inputs:
                    continue
                inputs = [i for i in node.inputs if not i.startswith("^")]
                bound = concrete.bound_inputs
                for name, number in zip(inputs[len(inputs) - len(bound) :], bound, strict=False):
                    if number in self.habits:
                        first = self.changes.renamed.get(source_of(name), source_of(name))
                        by_first.setdefault(first, set()).add(self.habits[number][0])
        for copy in sorted(self.changes.renamed, key=rank.__getitem__):
            known = by_first.get(self.changes.renamed[copy], set())
            if len(known) == 1:
                found[copy] = next(iter(known))
        return found

    def _give(self, function: str, index: int, habit: Habit) -> None:
        key = (function, index)
        scope = self.graph.functions.get(function)
        if scope is None or not 0 <= index < len(scope.arguments):
            return
        if self.given.get(key) == habit:
            return
        self.given[key] = habit
        argument = scope.arguments[index]
        if argument in map(source_of, scope.results.values()):
            return
        for node, at in scope.consumers().get(argument, ()):
            if node.calls:
                position = at - 1 if node.op in ("If", "StatelessIf", "Case") else at
                for name in node.calls:
                    self._give(name, position, habit)
            elif self._change(scope, node, habit):
                self.asked.add(key)

    def _mark_others(self, scope: Scope) -> None:
        """Note which arguments of the functions that this one calls are no copies."""
        copies = {scope.arguments[i] for f, i in self.given if f == scope.name}
        for node in scope.nodes.values():
            for at, name in enumerate(node.inputs if node.calls else ()):
                if source_of(name) not in copies and not name.startswith("^"):
                    position = at - 1 if node.op in ("If", "StatelessIf", "Case") else at
                    self.first.update((function, position) for function in node.calls)

    def _change(self, scope: Scope, node: Node, habit: Habit) -> bool:
        """Change what a node does with a copy; tell whether that was needed."""
        if node.op in _SAFE:
            return False
        if node.op in _READS:
            if habit != "sum":
                return False
            self._note(self.changes.zeroed, scope, node, "reads of sums")
            return True
        if _UPDATES.fullmatch(node.op):
            if habit == "sum" and node.op in ("AssignAddVariableOp", "AssignSubVariableOp"):
                return False
            self._note(self.changes.stopped, scope, node, "updates")
            return True
        if habit == "mirrored":
            return False
        raise UnsupportedError(
            f"{node.op} works on a copy of a variable that replicas keep each for itself",
            where=f"{scope.name}/{node.name}",
        )

    def _note(self, into: dict[str, set[str]], scope: Scope, node: Node, what: str) -> None:
        names = into.setdefault(scope.name, set())
        if node.name not in names:
            names.add(node.name)
            self.changes.counts[what] += 1


def output_of(op: str) -> str:
    """Return what the result of a reading op is called."""
    return _READS[op]


def names_of(changes: Changes) -> Iterator[str]:
    """Yield what was done, in words."""
    words = {
        "variables": "copies of variables made one",
        "reads of sums": "reads of copies of sums made zeros",
        "updates": "updates of copies stopped",
    }
    for key, text in words.items():
        if changes.counts[key]:
            yield f"{changes.counts[key]} {text}"
