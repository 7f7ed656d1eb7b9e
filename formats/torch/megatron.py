"""Megatron-LM's checkpoints with a file for each rank, in folders that ``mp_rank_00`` begins.

Tensor parallelism splits matrices among ranks, pipeline parallelism layers, expert parallelism
experts. They are joined into the tensors that one rank would have saved, under its names. NeMo 1
lays its folders out in the same way.

Spec: https://github.com/NVIDIA/Megatron-LM/blob/core_v0.10.0/megatron/training/checkpointing.py
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from formats.artifact import Artifact
from formats.containers.pickle.values import Record
from formats.core import digests
from formats.core.bundle import Bundle
from formats.core.plurals import count
from formats.core.storage import Span
from formats.core.weights import Tensor
from formats.errors import ConvertError, CorruptError, UnsupportedError
from formats.torch.bundle import finish
from formats.torch.concatenation import join_along
from formats.torch.containers import Session, read_any
from formats.torch.megatron_names import (
    EMBEDDING,
    EXPERT,
    EXTRA_STATE,
    LAYER,
    TIED,
    find_split,
    renumber,
)
from formats.torch.pickled_values import state_dict
from formats.torch.tensor_values import TensorValue
from formats.torch.tensors import Maker
from formats.torch.walk import Tree

LATEST = "latest_checkpointed_iteration.txt"  # names the newest step
RANK_FOLDER = re.compile(
    r"mp_rank_(\d{2,4})(?:_(\d{3,4}))?(?:_(\d{3,4}))?|tp_rank_(\d{2,4})_pp_rank_(\d{3,4})"
)
FILES = re.compile(r"model_optim_rng\.pt|model_rng\.pt|model_weights\.ckpt|.+\.ckpt")
MODEL = re.compile(r"model\d*|state_dict")  # model0, model1, … are virtual stages
OPTIMIZER = re.compile(
    r"optimizer|optimizer_states|opt_param_scheduler|lr_schedulers|.*rng_state.*"
)


class Part(NamedTuple):
    """A parameter of one rank."""

    value: TensorValue
    tensor: Tensor


Parts = dict[str, Part]


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is a folder of Megatron's."""
    if _ranks(artifact.names) and _files(artifact, "", artifact.names):
        return "a folder with mp_rank_* folders"
    step = _latest(artifact) if LATEST in artifact.names else None
    return None if step is None else f"a folder with {LATEST}, which names {step}"


def _ranks(names: Iterable[str]) -> list[str]:
    return [n for n in names if RANK_FOLDER.fullmatch(n)]


def _latest(artifact: Artifact) -> str | None:
    """Return the folder of the newest step, if it has a file for each rank."""
    try:
        span = Span.whole(artifact.member(LATEST))
        text = span.read(0, min(span.length, 64)).decode("ascii").strip()
    except (ConvertError, UnicodeDecodeError):
        return None
    step = f"iter_{int(text):07d}" if text.isdecimal() else text
    folder = artifact.path / step
    if step not in artifact.names or not folder.is_dir():
        return None
    names = sorted(p.name for p in folder.iterdir())
    return step if _files(artifact, f"{step}/", names) else None


def _files(artifact: Artifact, prefix: str, names: Iterable[str]) -> dict[str, list[str]]:
    """Return folder of a rank → its files, the one with the model first; none without any."""
    found = {}
    for name in _ranks(names):
        folder = artifact.path / prefix / name
        files = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
        models = [f for f in files if FILES.fullmatch(f)]
        if models:
            found[name] = sorted(files, key=lambda f: f != models[0])
    return found


def read(artifact: Artifact) -> Bundle:
    """Read a checkpoint, the parts of all ranks joined.

    Raises:
        CorruptError: The files do not fit each other.
        LimitError: They ask for more than the limits grant.
        UnsupportedError: It has parameters that we do not know how to join.
    """
    step = None if _ranks(artifact.names) else _latest(artifact)
    prefix = f"{step}/" if step else ""
    names = sorted(p.name for p in (artifact.path / step).iterdir()) if step else artifact.names
    files = _files(artifact, prefix, names)
    session = Session.begin(artifact.limits)
    tree = session.tree()
    states: dict[tuple[int, ...], Mapping[object, object]] = {}
    for folder, listed in files.items():
        where = f"{prefix}{folder}/{listed[0]}"
        value = read_any(Span.whole(artifact.member(where)), session, where).value
        if not isinstance(value, dict):
            raise CorruptError("is no dictionary", where=where)
        match = RANK_FOLDER.fullmatch(folder)
        assert match is not None
        at = tuple(int(n) for n in match.groups() if n is not None)
        if at in states:
            raise CorruptError("is of the same rank as another folder", where=f"{prefix}{folder}")
        states[at] = value
        for name in listed[1:]:
            tree.leave_out(f"{prefix}{folder}/{name}", "state of the optimizer in parts of ranks")
    if not states:
        raise CorruptError("holds no mp_rank_* folder with a model", where=artifact.name)
    for name in names:
        if name in _ranks(names) and name not in files:
            raise CorruptError("holds no model", where=f"{prefix}{name}")
        if name not in files:
            tree.leave_out(f"{prefix}{name}", "another file of the folder")
    reader = _Reader(tree, session, _place(states, artifact.name))
    reader.add_model()
    reader.add_rest()
    return finish(
        tree, session, format="torch-megatron", variant="checkpoint of Megatron-LM, by rank",
        recorded=reader.recorded(), distribution=dict(reader.sizes),
    )  # fmt: skip


def _read_args(state: Mapping[object, object]) -> Mapping[object, object]:
    """Return the arguments of the program that saved it; empty where they are not there."""
    args = state.get("args")
    return state_dict(args) if isinstance(args, Record) else {}


Rank = tuple[int, int, int]  # of tensor, pipeline and expert parallelism


def _place(
    states: Mapping[tuple[int, ...], Mapping[object, object]], where: str
) -> dict[Rank, Mapping[object, object]]:
    """Return the states by rank, once each rank is there.

    Raises:
        CorruptError: A rank is missing, or the arguments say that there are others.
    """
    args = _read_args(next(iter(states.values())))
    recorded = [
        args.get("tensor_model_parallel_size", args.get("model_parallel_size")),
        args.get("pipeline_model_parallel_size"),
        args.get("expert_model_parallel_size"),
    ]
    widths = {len(at) for at in states}
    if len(widths) > 1:
        raise CorruptError("has folders of different numbers of ranks", where=where)
    # Without pipeline parallelism the second number is of experts.
    is_expert = widths == {2} and recorded[1] == 1 and isinstance(recorded[2], int)
    placed: dict[Rank, Mapping[object, object]] = {}
    for at, state in states.items():
        tensor, *more = at
        pipeline, expert = (0, *more) if is_expert else (*more, 0, 0)[:2]
        placed[tensor, pipeline, expert] = state
    found = [1 + max(rank[axis] for rank in placed) for axis in range(3)]
    for axis, size in enumerate(recorded):
        # Without experts the size says nothing of folders.
        if type(size) is int and size > 0 and (axis < 2 or widths == {3} or is_expert):
            found[axis] = max(found[axis], min(size, 1 << 16))
    for rank in product(*map(range, found)) if len(placed) < _product(found) else ():
        if rank not in placed:
            raise CorruptError(
                f"rank {rank[0]} of {found[0]} (tensors), {rank[1]} of {found[1]} (stages), "
                f"{rank[2]} of {found[2]} (experts) is not there", where=where,
            )  # fmt: skip
    for axis, size in enumerate(recorded[:2]):
        if type(size) is int and size != found[axis]:
            raise CorruptError(
                f"has {found[axis]} ranks", expected=f"{size}, as its arguments say", where=where
            )
    return placed


def _product(numbers: Iterable[int]) -> int:
    result = 1
    for n in numbers:
        result *= n
    return result


class _Reader:
    """One checkpoint being read.

    Attributes:
        tree: Where everything goes.
        states: What the file of each rank holds.
        sizes: How many ranks there are, of each kind.
    """

    def __init__(
        self, tree: Tree, session: Session, states: Mapping[Rank, Mapping[object, object]]
    ) -> None:
        self.tree, self.session, self.states = tree, session, states
        self.maker = Maker(tree)
        self.first = states[0, 0, 0]
        self.args = _read_args(self.first)
        version = self.first.get("checkpoint_version", 0 if self.args else 3)
        self.version = float(version) if isinstance(version, (int, float)) else 0.0
        kinds = ("tensor_parallel", "pipeline_parallel", "expert_parallel")
        counts = [1 + max(rank[axis] for rank in states) for axis in range(3)]
        self.sizes = {k: n for k, n in zip(kinds, counts, strict=True) if n > 1}
        if self.sizes:
            self.sizes = {"ranks": len(states), **self.sizes}
        self.tensor, self.pipeline, self.expert = counts
        self.unknown: list[str] = []
        self.joined: dict[str, Part] = {}

    def recorded(self) -> dict[str, str]:
        """Return the version that the checkpoint records."""
        version = self.first.get("checkpoint_version")
        return {"checkpoint_version": str(version)} if isinstance(version, (int, float)) else {}

    def add_model(self) -> None:
        """Add the parameters of all ranks, joined."""
        chunks = self._virtual_stages()
        starts: dict[str, int] = {}
        for chunk in chunks:
            for stage in range(self.pipeline):
                joined = self._join_stage(chunk, stage)
                counts: dict[str, int] = {}
                for name in joined:
                    if match := LAYER.fullmatch(name):
                        counts[match[1]] = max(counts.get(match[1], 0), int(match[2]) + 1)
                for name, part in joined.items():
                    match = LAYER.fullmatch(name)
                    start = starts.get(match[1], 0) if match else 0
                    self._add(renumber(LAYER, name, start), part, stage)
                for layers, number in counts.items():
                    starts[layers] = starts.get(layers, 0) + number
        if self.unknown:
            raise UnsupportedError(
                f"{count('parameter', len(self.unknown))} that ranks split in a way that we do not "
                "know: " + ", ".join(self.unknown[:20])
            )
        recorded, found = self.args.get("num_layers"), sum(starts.values())
        if len(starts) == 1 and type(recorded) is int and recorded != found:
            raise CorruptError(f"has {found} layers", expected=f"{recorded}, as its arguments say")
        self._leave_out_copies()
        for name, part in self.joined.items():
            self.tree.add_joined(part.value, part.tensor, name, None)

    def _virtual_stages(self) -> list[str]:
        """Return the keys of the model, or of each virtual stage; "" where it is under none."""
        keys = [k for k in self.first if isinstance(k, str) and MODEL.fullmatch(k)]
        keys = [k for k in keys if isinstance(self.first[k], dict)]
        if "model" in keys or not keys:
            return ["model"] if keys else [""]
        return sorted(keys, key=lambda k: (len(k), k))

    def _parts(self, rank: Rank, key: str) -> Parts:
        """Return the parameters of one rank by name."""
        where = ", ".join(map(str, rank))
        state = self.states[rank]
        model = state.get(key) if key else state
        if not isinstance(model, dict):
            raise CorruptError(f"rank ({where}) has no {key!r}")
        tree = self.session.tree(classify=False)
        tree.add(model, "", f"rank ({where})")
        parts: Parts = {}
        for found in tree.tensors:
            if EXTRA_STATE.fullmatch(found.path):
                tree.leave_out(found.path, "scaling factors of Transformer Engine")
            elif found.value.layout != "strided" or found.value.type is None:
                self.unknown.append(f"{found.path} ({found.value.cls or found.value.layout})")
            else:
                parts[found.path] = Part(found.value, self.maker.tensor(found.value, found.path))
        for name, data in tree.user.items():
            if data is None:
                continue
            if EXTRA_STATE.fullmatch(name):
                tree.leave_out(name, "scaling factors of Transformer Engine")
            elif rank == (0, 0, 0):
                self.tree.user.setdefault(name, data)
            elif name != "_metadata":  # versions of modules, as rank 0's
                tree.leave_out(name, "no tensor, in the model of one rank")
        for left in tree.left_out:
            self.tree.leave_out(f"rank ({where}): {left.name}", left.reason)
        return parts

    def _join_stage(self, key: str, stage: int) -> Parts:
        """Return the parameters of one stage, those of its ranks joined."""
        joined: Parts = {}
        experts = 0
        for expert in range(self.expert):
            ranks = [self._parts((r, stage, expert), key) for r in range(self.tensor)]
            numbers = [int(m[2]) for name in ranks[0] if (m := EXPERT.fullmatch(name))]
            for name, part in self._join_tensors(ranks):
                if not expert or EXPERT.fullmatch(name):
                    joined[renumber(EXPERT, name, experts)] = part
                else:  # every rank of experts has the others as well
                    self._check_copy(name, joined.get(name), part)
            experts += max(numbers, default=-1) + 1
        return joined

    def _join_tensors(self, ranks: Sequence[Parts]) -> Iterator[tuple[str, Part]]:
        """Yield the parameters that ranks of tensor parallelism have, joined."""
        for number, parts in enumerate(ranks):
            if other := ranks[0].keys() ^ parts.keys():
                raise CorruptError(f"rank {number} and rank 0 have other parameters: {min(other)}")
        shapes = {name: part.tensor.shape for name, part in ranks[0].items()}
        etp = self.args.get("expert_tensor_parallel_size")
        for name, first in ranks[0].items():
            tensors = [parts[name].tensor for parts in ranks]
            split = find_split(name, shapes, self.version)
            if len(tensors) == 1:
                yield name, first
            elif split is None or (EXPERT.fullmatch(name) and etp not in (None, len(tensors))):
                if len({digests.of_tensor(t) for t in tensors}) > 1:
                    self.unknown.append(name)
                yield name, first
            elif split.axis is None:
                for number, tensor in enumerate(tensors[1:], 1):
                    self._check_rank(name, tensors[0], tensor, number)
                yield name, first
            else:
                tensor = join_along(tensors, split.axis, blocks=split.blocks, origin=name)
                yield name, Part(first.value, tensor)

    def _check_rank(self, name: str, first: Tensor, other: Tensor, rank: int) -> None:
        """Name a tensor that ranks do not agree about: Megatron's converter takes the first."""
        if first.shape != other.shape or first.dtype != other.dtype:
            raise CorruptError(f"rank {rank} has another shape than rank 0", where=name)
        if digests.of_tensor(first) != digests.of_tensor(other):
            self.tree.leave_out(f"{name} of rank {rank}", "differs from that of rank 0")

    def _check_copy(self, name: str, first: Part | None, other: Part) -> None:
        """Raise UnsupportedError where two ranks have different values of one parameter."""
        if first is None or not _is_equal(first.tensor, other.tensor):
            raise UnsupportedError("ranks have different values of it", where=name)

    def _add(self, name: str, part: Part, stage: int) -> None:
        known = self.joined.get(name)
        if known is None:
            self.joined[name] = part
            return
        self._check_copy(name, known, part)
        self.tree.leave_out(f"{name} of stage {stage}", "a copy of that of an earlier stage")

    def _leave_out_copies(self) -> None:
        """Leave out the last stage's copy of the embedding, which one rank would not have."""
        if self.pipeline < 2 or self.args.get("untie_embeddings_and_output_weights") is True:
            return
        embeddings = [part for name, part in self.joined.items() if EMBEDDING.fullmatch(name)]
        for name in [n for n in self.joined if TIED.fullmatch(n)]:
            if any(_is_equal(part.tensor, self.joined[name].tensor) for part in embeddings):
                del self.joined[name]
                self.tree.leave_out(name, "the last stage's copy of the embedding")

    def add_rest(self) -> None:
        """Add what else the first rank has; name what the others have."""
        is_alone = len(self.states) == 1
        models = {*self._virtual_stages()}
        if models != {""}:
            rest = {
                k: v for k, v in self.first.items()
                if k not in models and (is_alone or not OPTIMIZER.fullmatch(str(k)))
            }  # fmt: skip
            self.tree.add(rest, "", "rank (0, 0, 0)")
        for rank, state in self.states.items():
            for key in state if not is_alone else ():
                if OPTIMIZER.fullmatch(str(key)):
                    where = ", ".join(map(str, rank))
                    self.tree.leave_out(f"rank ({where}): {key}", "training state of one rank")


def _is_equal(first: Tensor, other: Tensor) -> bool:
    is_alike = (first.dtype, first.shape) == (other.dtype, other.shape)
    return is_alike and digests.of_tensor(first) == digests.of_tensor(other)
