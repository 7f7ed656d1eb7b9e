"""Names as a tree: blocks of layers by the parts of their names, small enough to be looked at.

The parts of ``model.layers.0.q_proj.weight`` and ``dense/kernel`` are those between dots and
slashes. Where a block has many members, those with a common numbered prefix, as
``conv2_block1_1_conv`` and ``conv2_block1_1_bn``, are a block, and runs of the others are.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

MANY = 24  # members of a block, from which on common prefixes are blocks
MOST = 120  # members of a block, from which on runs of them are blocks
DEEPEST = 40  # parts of a name
PARTS = re.compile(r"[^/.]*[/.]|[^/.]+")
SCOPES = re.compile(r"[^/]*/|[^/]+")
NUMBERED = re.compile(r"(.+?\d+_)(.+)", re.DOTALL)


@dataclass(slots=True)
class Block:
    """A block of names: ``label`` is the part of the name that its members share.

    Attributes:
        label: Part of the name, with its separator; or a description of a run.
        members: Blocks, and indices of names, in the order of the names.
        labels: Label of each member.
        is_run: Whether it is a run of members, whose label is no part of names.
    """

    label: str = ""
    members: "list[Block | int]" = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    is_run: bool = False

    def add(self, label: str, member: "Block | int") -> None:
        """Append a member."""
        self.members.append(member)
        self.labels.append(label)


def split_name(name: str, parts: "re.Pattern[str]" = PARTS) -> list[str]:
    """Return the parts of a name, each with its separator; together they are the name."""
    found = parts.findall(name) or [name]
    return [*found[: DEEPEST - 1], "".join(found[DEEPEST - 1 :])] if len(found) > DEEPEST else found


def build_tree(names: Sequence[str], parts: "re.Pattern[str]" = PARTS) -> Block:
    """Return the tree of names; its leaves are their indices."""
    root = Block()
    blocks: dict[tuple[str, ...], Block] = {(): root}
    for index, name in enumerate(names):
        *scopes, last = split_name(name, parts)
        block, path = root, tuple[str, ...]()
        for scope in scopes:
            path = (*path, scope)
            inner = blocks.get(path)
            if inner is None:
                inner = blocks[path] = Block(scope)
                block.add(scope, inner)
            block = inner
        block.add(last, index)
    _arrange(root)
    return root


def _arrange(block: Block) -> None:
    """Group members of large blocks; a block with a block as its only member becomes it."""
    if len(block.members) > MANY:
        _group_prefixes(block)
    if len(block.members) > MOST:
        _group_runs(block)
    for i, member in enumerate(block.members):
        if isinstance(member, Block):
            _arrange(member)
            while len(member.members) == 1 and isinstance(member.members[0], Block):
                inner = member.members[0]
                joined = inner.label if member.is_run else member.label + inner.label
                member = Block(joined, inner.members, inner.labels, inner.is_run)
            block.members[i], block.labels[i] = member, member.label


def _group_prefixes(block: Block) -> None:
    prefixes: dict[str, list[int]] = {}
    for i, label in enumerate(block.labels):
        match = NUMBERED.fullmatch(label)
        if match is not None:
            prefixes.setdefault(match[1], []).append(i)
    prefixes = {p: members for p, members in prefixes.items() if len(members) > 1}
    if len(prefixes) < 2:
        return
    group_of = {i: prefix for prefix, members in prefixes.items() for i in members}
    grouped, groups = Block(block.label), dict[str, Block]()
    for i, (label, member) in enumerate(zip(block.labels, block.members, strict=True)):
        prefix = group_of.get(i)
        if prefix is None:
            grouped.add(label, member)
            continue
        if prefix not in groups:
            groups[prefix] = Block(prefix)
            grouped.add(prefix, groups[prefix])
        rest = label[len(prefix) :]
        if isinstance(member, Block):
            member.label = rest
        groups[prefix].add(rest, member)
    block.members, block.labels = grouped.members, grouped.labels


def _group_runs(block: Block) -> None:
    members, labels = block.members, block.labels
    size = max(50, -(-len(members) // 50))
    block.members, block.labels = [], []
    for start in range(0, len(members), size):
        end = min(start + size, len(members))
        run = Block(f"{start + 1} to {end}", members[start:end], labels[start:end], is_run=True)
        block.add(run.label, run)
