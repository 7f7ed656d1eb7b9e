"""Split blocks that are in circles with each other: so that values flow down in a drawing.

The names of operations may be blocks, too: ``matmul`` holds all products of a layer, the first of
which others follow that the second one reads. Such a block is split into its connected parts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from converter.inspection_page.name_tree import Block

Edges = Sequence[tuple[int, int]]


def split_circles(block: Block, edges: Edges) -> Block:
    """Return a tree in which blocks in circles are split.

    Args:
        block: A tree whose leaves are numbers.
        edges: Pairs of its leaves.
    """
    owner = _owners(block)
    links = {(owner[a], owner[b]) for a, b in edges if owner[a] != owner[b]}
    circular = _find_circular(len(block.members), links)
    inner: list[list[tuple[int, int]]] = [[] for _ in block.members]
    for edge in edges:
        if owner[edge[0]] == owner[edge[1]]:
            inner[owner[edge[0]]].append(edge)
    result = replace(block, members=[], labels=[])
    for i, (label, member) in enumerate(zip(block.labels, block.members, strict=True)):
        if not isinstance(member, Block):
            result.add(label, member)
            continue
        parts = [{*_leaves(member)}]
        if i in circular and _returns(parts[0], edges):
            parts = _components(member, inner[i])
        for part in parts:
            kept = member if len(parts) == 1 else _select(member, part)
            split = split_circles(kept, [edge for edge in inner[i] if edge[0] in part])
            if i in circular and _returns(part, edges):
                for name, one in zip(split.labels, split.members, strict=True):
                    if isinstance(one, Block):
                        one.label = label + one.label
                    result.add(label + name, one)
            else:
                result.add(label, split)
    return result


def _returns(leaves: set[int], edges: Edges) -> bool:
    """Return whether a path leaves a set of leaves and comes back."""
    after: dict[int, list[int]] = {}
    for a, b in edges:
        after.setdefault(a, []).append(b)
    todo = [b for a, b in edges if a in leaves and b not in leaves]
    seen = {*todo}
    while todo:
        for leaf in after.get(todo.pop(), ()):
            if leaf in leaves:
                return True
            if leaf not in seen:
                seen.add(leaf)
                todo.append(leaf)
    return False


def _leaves(block: Block) -> Iterator[int]:
    for member in block.members:
        if isinstance(member, Block):
            yield from _leaves(member)
        else:
            yield member


def _owners(block: Block) -> dict[int, int]:
    """Return leaf → index of the member that holds it."""
    return {
        leaf: i
        for i, member in enumerate(block.members)
        for leaf in (_leaves(member) if isinstance(member, Block) else (member,))
    }


def _find_circular(members: int, links: Iterable[tuple[int, int]]) -> set[int]:
    """Return the members in circles, and those between circles."""
    left = set(range(members))
    for turned in (False, True):
        after: dict[int, list[int]] = {}
        waiting = dict.fromkeys(left, 0)
        for link in links:
            source, to = reversed(link) if turned else link
            if source in left and to in left:
                after.setdefault(source, []).append(to)
                waiting[to] += 1
        ready = [member for member, n in waiting.items() if not n]
        while ready:
            member = ready.pop()
            left.discard(member)
            for to in after.get(member, ()):
                waiting[to] -= 1
                if not waiting[to]:
                    ready.append(to)
    return left


def _components(block: Block, edges: Edges) -> list[set[int]]:
    """Return the sets of leaves that edges connect, in the order of the leaves."""
    parent = {leaf: leaf for leaf in _leaves(block)}

    def find(leaf: int) -> int:
        while parent[leaf] != leaf:
            parent[leaf] = leaf = parent[parent[leaf]]
        return leaf

    for a, b in edges:
        parent[find(a)] = find(b)
    sets: dict[int, set[int]] = {}
    for leaf in parent:
        sets.setdefault(find(leaf), set()).add(leaf)
    return [*sets.values()]


def _select(block: Block, leaves: set[int]) -> Block:
    """Return a block with some of its leaves."""
    kept = replace(block, members=[], labels=[])
    for label, member in zip(block.labels, block.members, strict=True):
        selected = _select(member, leaves) if isinstance(member, Block) else member
        if selected.members if isinstance(selected, Block) else selected in leaves:
            kept.add(label, selected)
    return kept
