"""Merge the copies of a variable that EXPAND_DISTRIBUTED_VARIABLES saves, one per replica.

Under that policy the graph has a variable for each replica. The checkpoint restores only the first,
and functions take all of them. Here all become the first, with these corrections:

- a variable that is summed when it is read (ON_READ, SUM) was saved as the sum: the other copies
  are read as zeros;
- a mirrored variable that each replica updates alike is updated once;
- statistics that each replica keeps for itself are kept by the first.

The object graph says which objects have copies. In the graph, copies follow the first variable.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from converter.devices.savedmodel.scopes import Graph, Node, Scope, source_name
from formats.containers.protobuf.messages import Message
from formats.errors import UnsupportedError

Synchronization: TypeAlias = Literal["mirrored", "sum", "own"]

_COPY = re.compile(r"(?P<first>.+)/replica_(?P<number>\d+)(?:_\d+)?")
_ON_READ, _SUM = 3, 1  # VariableSynchronization, VariableAggregation
_UPDATES = re.compile(
    r"Assign(?:Add|Sub)?VariableOp|Resource(?:Sparse)?Apply\w+|ResourceScatter\w+"
)
_READS = {"ReadVariableOp": "value", "ResourceGather": "output", "ResourceGatherNd": "output"}
_SAFE = frozenset(("VarIsInitializedOp", "VariableShape", "DisableCopyOnRead"))


@dataclass(slots=True)
class MergedCopies:
    """The edits that merge copies of variables.

    Attributes:
        renamed: Copy → first variable, in the graph.
        dropped: Nodes that are removed from the graph.
        zeroed: Function → names of reads whose results become zeros.
        stopped: Function → names of updates that are removed.
        counts: Change → how often it is made.
    """

    renamed: dict[str, str] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    zeroed: dict[str, set[str]] = field(default_factory=dict)
    stopped: dict[str, set[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


def merge_copies(graph: Graph, objects: Message) -> MergedCopies:
    """Return the edits that merge the copies of each variable.

    Raises:
        UnsupportedError: A copy cannot be matched with its variable, or is used in a way that
            cannot be corrected.
    """
    changes = MergedCopies()
    kinds = _read_synchronization(objects)
    wanted = sum(len(copies) for _, copies in kinds.values())
    if not wanted:
        return changes
    firsts = _find_first_copies(graph.main)
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
    _Uses(graph, kinds, changes).follow(objects)
    return changes


def _read_synchronization(objects: Message) -> dict[int, tuple[Synchronization, tuple[str, ...]]]:
    """Return object → how its copies are read, and what they are called."""
    found: dict[int, tuple[Synchronization, tuple[str, ...]]] = {}
    for number, node in enumerate(objects.nodes):
        if not node.has("variable"):
            continue
        variable = node.variable
        copies = variable.experimental_distributed_variable_components[1:]
        if copies:
            kind: Synchronization = "mirrored"
            if variable.synchronization == _ON_READ:
                kind = "sum" if variable.aggregation == _SUM else "own"
            found[number] = kind, tuple(c.name for c in copies)
    return found


def _find_first_copies(main: Scope) -> dict[str, str]:
    """Return copy → first variable; in the graph, copies follow their variable."""
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
        source_name(i.removeprefix("^")) == name for n in scope.nodes.values() for i in n.inputs
    )


class _Uses:
    """Follows copies of variables into the functions that take them."""

    def __init__(
        self,
        graph: Graph,
        kinds: dict[int, tuple[Synchronization, tuple[str, ...]]],
        changes: MergedCopies,
    ) -> None:
        self.graph = graph
        self.kinds = kinds
        self.changes = changes
        # By (function, index of an argument):
        self.given: dict[tuple[str, int], Synchronization] = {}  # it gets a copy
        self.first: set[tuple[str, int]] = set()  # it gets something else
        self.asked: set[tuple[str, int]] = set()  # a copy is treated differently there

    def follow(self, objects: Message) -> None:
        """Follow copies from the concrete functions and from the calls in the graph."""
        kind_of = self._of_nodes(objects)
        for name, concrete in objects.concrete_functions.items():
            scope = self.graph.functions.get(name)
            if scope is None:
                continue
            seen: set[int] = set()
            begin = len(scope.arguments) - len(concrete.bound_inputs)
            for index, number in enumerate(concrete.bound_inputs, begin):
                # Captures are in the order of replicas; the first one of a variable is the first.
                if number in self.kinds and number in seen:
                    self._give(name, index, self.kinds[number][0])
                elif number in self.kinds:
                    self.first.add((name, index))
                seen.add(number)
        for node in self.graph.main.nodes.values():
            for index, name in enumerate(node.inputs):
                source = source_name(name)
                for function in node.calls:
                    if source in kind_of:
                        self._give(function, index, kind_of[source])
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

    def _of_nodes(self, objects: Message) -> dict[str, Synchronization]:
        """Return copy in the graph → its synchronization, according to the functions it goes to."""
        found: dict[str, Synchronization] = {}
        rank = {name: i for i, name in enumerate(self.graph.main.nodes)}
        by_first: dict[str, set[Synchronization]] = {}
        for node in self.graph.main.nodes.values():
            for function in node.calls:
                concrete = objects.concrete_functions.get(function)
                if concrete is None or not node.inputs:
                    continue
                inputs = [i for i in node.inputs if not i.startswith("^")]
                bound = concrete.bound_inputs
                for name, number in zip(inputs[len(inputs) - len(bound) :], bound, strict=False):
                    if number in self.kinds:
                        first = self.changes.renamed.get(source_name(name), source_name(name))
                        by_first.setdefault(first, set()).add(self.kinds[number][0])
        for copy in sorted(self.changes.renamed, key=rank.__getitem__):
            known = by_first.get(self.changes.renamed[copy], set())
            if len(known) == 1:
                found[copy] = next(iter(known))
        return found

    def _give(self, function: str, index: int, kind: Synchronization) -> None:
        key = (function, index)
        scope = self.graph.functions.get(function)
        if scope is None or not 0 <= index < len(scope.arguments):
            return
        if self.given.get(key) == kind:
            return
        self.given[key] = kind
        argument = scope.arguments[index]
        if argument in map(source_name, scope.results.values()):
            return
        for node, at in scope.consumers().get(argument, ()):
            if node.calls:
                position = at - 1 if node.op in ("If", "StatelessIf", "Case") else at
                for name in node.calls:
                    self._give(name, position, kind)
            elif self._change(scope, node, kind):
                self.asked.add(key)

    def _mark_others(self, scope: Scope) -> None:
        """Record the arguments of called functions that are not copies."""
        copies = {scope.arguments[i] for f, i in self.given if f == scope.name}
        for node in scope.nodes.values():
            for at, name in enumerate(node.inputs if node.calls else ()):
                if source_name(name) not in copies and not name.startswith("^"):
                    position = at - 1 if node.op in ("If", "StatelessIf", "Case") else at
                    self.first.update((function, position) for function in node.calls)

    def _change(self, scope: Scope, node: Node, kind: Synchronization) -> bool:
        """Edit what a node does with a copy; return whether an edit was needed."""
        if node.op in _SAFE:
            return False
        if node.op in _READS:
            if kind != "sum":
                return False
            self._note(self.changes.zeroed, scope, node, "reads of sums")
            return True
        if _UPDATES.fullmatch(node.op):
            if kind == "sum" and node.op in ("AssignAddVariableOp", "AssignSubVariableOp"):
                return False
            self._note(self.changes.stopped, scope, node, "updates")
            return True
        if kind == "mirrored":
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


def read_output(op: str) -> str:
    """Return the output name of an op that reads a variable."""
    return _READS[op]


def describe_changes(changes: MergedCopies) -> Iterator[str]:
    """Yield the edits made, each as its count and name."""
    words = {
        "variables": "copies of variables made one",
        "reads of sums": "reads of copies of sums made zeros",
        "updates": "updates of copies stopped",
    }
    for key, text in words.items():
        if changes.counts[key]:
            yield f"{changes.counts[key]} {text}"
