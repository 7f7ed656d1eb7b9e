"""Choose the nodes that are placed on the target device.

Every node is placed that has a kernel for the device with its types. Ops on the handle of a
variable or table follow it. Ops that must or may only run on the CPU (strings, tables, files,
saving and restoring, assertions, iterators) are left unplaced, so that no soft placement is needed.
Colocated nodes, by ``_class`` or because one holds a variable that the other changes, are placed
together or not at all.
"""

from collections.abc import Iterable, Iterator

from converter.devices.names import tensorflow_kind
from converter.devices.savedmodel.kernels import (
    follows_resource,
    has_gpu_kernel,
    is_variable,
    may_be_placed,
)
from converter.devices.savedmodel.scopes import Graph, Node, Scope, source_name

_SAVING = frozenset((
    "SaveV2", "Save", "SaveSlices", "RestoreV2", "Restore", "RestoreSlice", "MergeV2Checkpoints",
    "ShardedFilename", "ShardedFilespec",
))  # fmt: skip


def choose_nodes(graph: Graph, device: str) -> set[tuple[str, str]]:
    """Return the nodes that are placed on a device, as (function, node); none for ``""``."""
    kind = tensorflow_kind(device)
    if not kind:
        return set()
    blockers = _Blockers(graph, kind)
    found: set[tuple[str, str]] = set()
    for scope in graph.scopes:
        if any(node.op in _SAVING for node in scope.nodes.values()) and scope.name:
            continue  # a function that saves or restores: its variables lead the way
        saving = _find_saving_nodes(scope)
        consumers = scope.consumers()
        for group in _find_colocated(scope):
            members = [scope.nodes[name] for name in group]
            if any(blockers.blocks_node(node, consumers) for node in members):
                continue
            found.update(
                (scope.name, node.name)
                for node in members
                if node.name not in saving and (is_variable(node) or may_be_placed(node, kind))
            )
    return found


def _find_saving_nodes(scope: Scope) -> set[str]:
    """Return the nodes of a TF 1 graph that only save or restore."""
    consumers = scope.consumers()
    found = {n.name for n in scope.nodes.values() if n.op in _SAVING}
    # What feeds nothing but these: lists of names and of slices, prefixes, file names.
    waiting = list(found)
    while waiting:
        node = scope.nodes.get(waiting.pop())
        for name in () if node is None else map(source_name, node.inputs):
            takers = consumers.get(name, ())
            source = scope.nodes.get(name)
            if source is None or name in found or is_variable(source) or follows_resource(source):
                continue
            if all(taker.name in found for taker, _ in takers):
                found.add(name)
                waiting.append(name)
    return found


def _find_colocated(scope: Scope) -> Iterator[list[str]]:
    """Yield the names of the nodes of each colocation group."""
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
        if follows_resource(node):
            for name in node.inputs:
                source = scope.nodes.get(source_name(name))
                if source is not None and is_variable(source):
                    join(node.name, source.name)
    groups: dict[str, list[str]] = {}
    for name in scope.nodes:
        groups.setdefault(find(name), []).append(name)
    yield from groups.values()


class _Blockers:
    """Finds the nodes that keep a variable from a device: ops on it without a kernel there.

    Handles are followed into functions.
    """

    def __init__(self, graph: Graph, kind: str) -> None:
        self.graph = graph
        self.kind = kind
        self.known: dict[tuple[str, int], bool] = {}

    def blocks_node(self, node: Node, consumers: dict[str, list[tuple[Node, int]]]) -> bool:
        if self.kind == "CPU":
            return False
        if is_variable(node):
            return not has_gpu_kernel(node) or self.blocks_handle(consumers.get(node.name, ()))
        return follows_resource(node) and not has_gpu_kernel(node)

    def blocks_handle(self, takers: Iterable[tuple[Node, int]]) -> bool:
        """Return whether a handle reaches a node that has no kernel for the device."""
        for node, index in takers:
            if follows_resource(node):
                if not has_gpu_kernel(node):
                    return True
            elif any(
                self.blocks_argument(name, self.argument_index(node, index)) for name in node.calls
            ):
                return True
        return False

    @staticmethod
    def argument_index(node: Node, index: int) -> int:
        """Return the index of a call's input among the function's arguments, after conditions."""
        return index - 1 if node.op in ("If", "StatelessIf", "Case", "StatelessCase") else index

    def blocks_argument(self, function: str, index: int) -> bool:
        key = (function, index)
        if key not in self.known:
            self.known[key] = False  # a function that calls itself says nothing new
            scope = self.graph.functions.get(function)
            if scope is not None and 0 <= index < len(scope.arguments):
                self.known[key] = self.blocks_handle(
                    scope.consumers().get(scope.arguments[index], ())
                )
        return self.known[key]
