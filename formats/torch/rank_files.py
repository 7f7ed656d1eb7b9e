"""Files of ``torch.save`` that the ranks of FSDP or tensor parallelism wrote, a folder of them.

Each rank has its own part of every ShardedTensor or DTensor, and says where it lies. What is no
such tensor every rank has alike.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from formats.artifact import Artifact
from formats.core import digests
from formats.core.bundle import Bundle
from formats.core.plurals import count
from formats.core.storage import Span
from formats.errors import ConvertError, CorruptError, UnsupportedError
from formats.limits import MIB
from formats.torch.bundle import finish
from formats.torch.containers import Session, read_any
from formats.torch.distributed_tensors import join
from formats.torch.tensors import Maker
from formats.torch.training_groups import OPTIMIZER_KEY, TRAINING_KEY
from formats.torch.walk import Found, Tree

RANK = re.compile(r"(.*?)rank[_-]?(\d{1,6})((?:[_.-].*)?\.(?:pt|pth|bin|ckpt))")
WORLD = re.compile(r"world_size_(\d{1,6})")
MARKS = (b"ShardedTensor", b"DTensor")  # classes that only parts of tensors have
FLAT = re.compile(r"(?:.*\.)?_?flat_param(?:_\d+)?")
# Statistics of a batch, which every rank has of its own batches.
OWN = frozenset(("running_mean", "running_var", "num_batches_tracked"))


class Files(NamedTuple):
    """The files of all ranks of one checkpoint, in order.

    Attributes:
        names: Their names.
        numbers: Of the ranks.
        stem: What their names begin with.
    """

    names: tuple[str, ...]
    numbers: tuple[int, ...]
    stem: str


def group_files(names: Iterable[str]) -> list[Files]:
    """Return the files that are named as those of ranks, without optimizers and the like."""
    groups: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for name in names:
        if match := RANK.fullmatch(name):
            groups.setdefault((match[1], match[3]), []).append((int(match[2]), name))
    found = []
    for (stem, _), listed in groups.items():
        if not OPTIMIZER_KEY.search(stem) and not TRAINING_KEY.search(stem):
            numbers, files = zip(*sorted(listed), strict=True)
            found.append(Files(files, numbers, stem))
    return found


def has_parts(head: bytes) -> bool:
    """Return whether a torch file that begins so has parts of tensors."""
    return any(mark in head for mark in MARKS)


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is a file of a rank, or a folder of them."""
    found = _find(artifact)
    return f"{found[0].names[0]} has parts of tensors" if found else None


def _find(artifact: Artifact) -> list[Files]:
    """Return the checkpoints of ranks in a folder, or the one that a file is of."""
    if artifact.is_file:
        if not RANK.fullmatch(artifact.path.name) or not _begins(artifact.span):
            return []
        names = [p.name for p in artifact.path.parent.iterdir()]
        return [files for files in group_files(names) if artifact.path.name in files.names]
    found = []
    for files in group_files(artifact.names):
        with suppress(ConvertError):
            if _begins(Span.whole(artifact.member(files.names[0]))):
                found.append(files)
    return found


def _begins(span: Span) -> bool:
    return has_parts(span.read(0, min(span.length, MIB)))


def read(artifact: Artifact) -> Bundle:
    """Read the files of all ranks as one model.

    Raises:
        CorruptError: A rank is missing, or their parts do not fit.
        LimitError: They ask for more than the limits grant.
        UnsupportedError: Names and shapes are not recorded, or ranks have different tensors.
    """
    found = _find(artifact)
    if len(found) != 1:
        raise UnsupportedError(
            f"{count('checkpoint', len(found))} of ranks in one folder", where=artifact.name,
            hint="Give a file of one of them",
        )  # fmt: skip
    (files,) = found
    _check_ranks(files)
    session = Session.begin(artifact.limits)
    trees = []
    recorded: dict[str, str] = {}
    for name in files.names:
        loaded = read_any(Span.whole(artifact.member(name)), session, name)
        tree = session.tree()
        tree.add(loaded.value, "", name)
        trees.append(tree)
        recorded |= loaded.recorded
    whole = _Join(trees, files.names, session).run()
    for name in artifact.names:  # none where a file was given
        if name not in files.names:
            is_training = OPTIMIZER_KEY.search(name) or TRAINING_KEY.search(name)
            what = "training state of one rank" if is_training else "another file of the folder"
            whole.leave_out(name, what)
    return finish(
        whole, session, format="torch-ranks", variant="a file for each rank", recorded=recorded,
        distribution={"ranks": len(files.names)},
    )  # fmt: skip


def _check_ranks(files: Files) -> None:
    """Raise CorruptError where a rank is missing, or there twice."""
    for rank, (number, name) in enumerate(zip(files.numbers, files.names, strict=True)):
        if number < rank:
            raise CorruptError(f"another file is of rank {number} as well", where=name)
        if number > rank:
            raise CorruptError(f"the file of rank {rank} is not there", where=name)
    world = WORLD.search(files.stem)
    if world and int(world[1]) != len(files.names):
        raise CorruptError(f"has {len(files.names)} of {count('rank', int(world[1]))}", where=name)


class _Join:
    """What the ranks have, being joined into the tree of the first one."""

    def __init__(self, trees: list[Tree], names: tuple[str, ...], session: Session) -> None:
        self.trees, self.names, self.session = trees, names, session
        self.whole = trees[0]
        self.maker = Maker(self.whole)

    def run(self) -> Tree:
        """Return the tree of the first rank, with tensors that are whole."""
        by_path: dict[str, list[tuple[int, Found]]] = {}
        for rank, tree in enumerate(self.trees):
            for found in tree.tensors:
                by_path.setdefault(found.path, []).append((rank, found))
        flat = [path for path in by_path if FLAT.fullmatch(path)]
        if flat:
            raise UnsupportedError(
                f"{count('flat parameter', len(flat))} of FSDP's LOCAL_STATE_DICT, as {flat[0]}: "
                "the files do not record which parameters are in them",
                hint="Save the model with FSDP's SHARDED_STATE_DICT or FULL_STATE_DICT",
            )
        self.whole.tensors = []
        different = []
        for path, listed in by_path.items():
            first = listed[0][1]
            if first.value.layout == "distributed":
                first.notes.pop("class", None)  # it is a plain one now
                values = [found.value for _, found in listed]
                first.tensor = join(values, self.maker.tensor, self.session.charge, origin=path)
            elif not self._check_alike(path, listed):
                different.append(path)
            self.whole.tensors.append(first)
        if different:
            raise UnsupportedError(
                f"{count('tensor', len(different))} with different values in each rank, and no "
                "record of how they are split: " + ", ".join(different[:20])
            )
        for name, tree in zip(self.names[1:], self.trees[1:], strict=True):
            if tree.user != self.whole.user:
                self.whole.leave_out(name, "plain data, which differs from that of the first rank")
            for left in tree.left_out:
                self.whole.leave_out(f"{name}: {left.name}", left.reason)
        return self.whole

    def _check_alike(self, path: str, listed: list[tuple[int, Found]]) -> bool:
        """Return whether all ranks have the same tensor, or one that they may differ in."""
        first = listed[0][1]
        if len(listed) < 2 or first.value.layout != "strided" or first.value.type is None:
            return len(listed) < 2
        expected = self.maker.tensor(first.value, path)
        known = ""
        for rank, found in listed[1:]:
            if found.value.layout != "strided" or found.value.type != first.value.type:
                return False
            tensor = self.maker.tensor(found.value, path)
            is_alike = tensor.shape == expected.shape
            known = known or digests.of_tensor(expected)
            if is_alike and digests.of_tensor(tensor) == known:
                continue
            if first.group is None and (path.rpartition(".")[2] not in OWN or not is_alike):
                return False
            self.whole.leave_out(f"{path} of rank {rank}", "differs from that of the first rank")
        return True
