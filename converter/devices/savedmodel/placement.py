"""Where each node shall stand: nowhere in particular, or on the one device that was asked for.

With a device, every node is put there that has a kernel for it with its types; what works on a
variable or a table by its handle follows that, and what must or may only run on the CPU (text,
tables, files, saving and restoring, assertions, iterators) is left without a place, so that no
soft placement is needed. Nodes that are bound together, by ``_class`` or because one holds a
variable that the other changes, are put there together or not at all.
"""

from collections.abc import Iterable, Iterator

from converter.devices.names import tensorflow_kind
from converter.devices.savedmodel.kernels import (
    follows,
    has_gpu_kernel,
    is_variable,
    may_be_placed,
)
from converter.devices.savedmodel.scopes import Graph, Node, Scope, source_of

_SAVING = frozenset((
    "SaveV2", "Save", "SaveSlices", "RestoreV2", "Restore", "RestoreSlice", "MergeV2Checkpoints",
    "ShardedFilename", "ShardedFilespec",
))  # fmt: skip


def placed(graph: Graph, device: str) -> set[tuple[str, str]]:
    """Return the nodes that get the device, as (function, node)."""
    kind = tensorflow_kind(device)
    if not kind:
        return set()
    blocked = _Blocked(graph, kind)
    found: set[tuple[str, str]] = set()
    for scope in graph.scopes:
        if any(node.op in _SAVING for node in scope.nodes.values()) and scope.name:
            continue  # a function that saves or restores: its variables lead the way
        machinery = _machinery(scope)
        consumers = scope.consumers()
        for group in _groups(scope):
            members = [scope.nodes[name] for name in group]
            if any(blocked.by(node, consumers) for node in members):
                continue
            found.update(
                (scope.name, node.name)
                for node in members
                if node.name not in machinery and (is_variable(node) or may_be_placed(node, kind))
            )
    return found


def _machinery(scope: Scope) -> set[str]:
    """Return what only saves or restores in a graph of TF 1: it has no functions for that."""
    consumers = scope.consumers()
    found = {n.name for n in scope.nodes.values() if n.op in _SAVING}
    # What feeds nothing but these: lists of names and of slices, prefixes, file names.
    waiting = list(found)
    while waiting:
        node = scope.nodes.get(waiting.pop())
        for name in () if node is None else map(source_of, node.inputs):
            takers = consumers.get(name, ())
            source = scope.nodes.get(name)
            if source is None or name in found or is_variable(source) or follows(source):
                continue
            if all(taker.name in found for taker, _ in takers):
                found.add(name)
                waiting.append(name)
    return found


def _groups(scope: Scope) -> Iterator[list[str]]:
    """Yield the names of nodes that stand together."""
    leader = {name: name for name in scope.nodes}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    def join(a: str, b: str) -> None:
        if a in leader and b in leader:
            leader[find(a)] = find(b)

    for node in scope.nodes.values():
        for other in node.colocated:
            join(node.name, other)
        if follows(node):
            for name in node.inputs:
                source = scope.nodes.get(source_of(name))
                if source is not None and is_variable(source):
                    join(node.name, source.name)
    groups: dict[str, list[str]] = {}
    for name in scope.nodes:
        groups.setdefault(find(name), []).append(name)
    yield from groups.values()


class _Blocked:
    """Which nodes keep a variable from a device: those that change or read it and cannot go there.

    A handle is passed into functions, and those are looked into.
    """

    def __init__(self, graph: Graph, kind: str) -> None:
        self.graph = graph
        self.kind = kind
        self.known: dict[tuple[str, int], bool] = {}

    def by(self, node: Node, consumers: dict[str, list[tuple[Node, int]]]) -> bool:
        if self.kind == "CPU":
            return False
        if is_variable(node):
            return not has_gpu_kernel(node) or self.taken(consumers.get(node.name, ()))
        return follows(node) and not has_gpu_kernel(node)

    def taken(self, takers: Iterable[tuple[Node, int]]) -> bool:
        """Tell whether a handle reaches a node that cannot go to the device."""
        for node, index in takers:
            if follows(node):
                if not has_gpu_kernel(node):
                    return True
            elif any(self.argument(name, self.position(node, index)) for name in node.calls):
                return True
        return False

    @staticmethod
    def position(node: Node, index: int) -> int:
        """Return which argument of a called function an input is: conditions come first."""
        return index - 1 if node.op in ("If", "StatelessIf", "Case", "StatelessCase") else index

    def argument(self, function: str, index: int) -> bool:
        key = (function, index)
        if key not in self.known:
            self.known[key] = False  # a function that calls itself says nothing new
            scope = self.graph.functions.get(function)
            if scope is not None and 0 <= index < len(scope.arguments):
                self.known[key] = self.taken(scope.consumers().get(scope.arguments[index], ()))
        return self.known[key]
