"""DeepSpeed's checkpoints: a folder of ``*_model_states.pt`` and, with ZeRO, ``*_optim_states.pt``.

With ZeRO every rank keeps a run of the weights in float32, as part of its optimizer: whole groups
of parameters one after the other (stages 1 and 2), or a run of each parameter (stage 3). The files
of the model say names and shapes. Weights are put together when they are read, as DeepSpeed's own
script does.

Spec: https://github.com/deepspeedai/DeepSpeed/blob/v0.19.8/deepspeed/utils/zero_to_fp32.py
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import NamedTuple

from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.core.storage import Span
from formats.core.weights import Computed, DType, Strided, Tensor, row_major
from formats.errors import ConvertError, CorruptError, UnsupportedError
from formats.torch.bundle import finish
from formats.torch.concatenation import Chunk, join_chunks
from formats.torch.containers import Session, read_any
from formats.torch.pickled_values import as_tensor, key_text, row
from formats.torch.tensor_values import TensorValue
from formats.torch.tensors import Maker
from formats.torch.walk import Tree

LATEST = "latest"  # names the folder of the newest step
MODEL, OPTIMIZER = "model_states.pt", "optim_states.pt"  # how names of files end
WHOLE = "mp_rank_00_model_states.pt"
FIRST = re.compile(r"(?:bf16_)?(?:fsdp_)?zero_pp_rank_(\d+)_mp_rank_00_(?:model|optim)_states\.pt")
GROUPS, RUNS = "single_partition_of_fp32_groups", "fp32_flat_groups"  # stages 1 and 2, stage 3
# Entries of a model's file that are no data of the user's.
OWN = frozenset((
    "module", "buffer_names", "optimizer", "param_shapes", "frozen_param_shapes", "shared_params",
    "frozen_param_fragments",
))  # fmt: skip


class Piece(NamedTuple):
    """A run of the elements of a vector."""

    vector: Tensor
    start: int
    length: int


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is a folder of DeepSpeed's."""
    if any(name.endswith(MODEL) for name in artifact.names):
        return f"a folder with *{MODEL}"
    tag = _latest(artifact) if LATEST in artifact.names else None
    return None if tag is None else f"a folder with {LATEST}, which names {tag}"


def _latest(artifact: Artifact) -> str | None:
    """Return the folder of the newest step, if it is DeepSpeed's."""
    try:
        span = Span.whole(artifact.member(LATEST))
        tag = span.read(0, min(span.length, 256)).decode("utf-8").strip()
    except (ConvertError, UnicodeDecodeError):
        return None
    folder = artifact.path / tag
    is_inside = tag in artifact.names and folder.is_dir()
    return tag if is_inside and any(p.name.endswith(MODEL) for p in folder.iterdir()) else None


def read(artifact: Artifact) -> Bundle:
    """Read a checkpoint, the parts of all ranks joined.

    Raises:
        CorruptError: The files do not fit each other.
        LimitError: They ask for more than the limits grant.
        UnsupportedError: Tensors are split among ranks (tensor or pipeline parallelism, experts).
    """
    tag = None if any(n.endswith(MODEL) for n in artifact.names) else _latest(artifact)
    names = artifact.names if tag is None else [p.name for p in (artifact.path / tag).iterdir()]
    prefix = "" if tag is None else f"{tag}/"
    models = _of_ranks(n for n in names if n.endswith(MODEL))
    optimizers = _of_ranks(n for n in names if n.endswith(OPTIMIZER))
    session = Session.begin(artifact.limits)

    def load(name: str) -> Mapping[object, object]:
        loaded = read_any(Span.whole(artifact.member(prefix + name)), session, name)
        if not isinstance(loaded.value, dict):
            raise CorruptError("is no dictionary", where=name)
        return loaded.value

    reader = _Reader(session.tree(), [load(name) for name in models], models)
    if reader.has_runs:
        reader.read_runs([load(name) for name in optimizers])
    else:
        reader.read_whole()
    reader.read_notes()
    for name in optimizers:
        reader.tree.leave_out(name, "optimizer state in the parts of ZeRO")
    used = {*models, *optimizers}
    for name in names:
        if name not in used:
            reader.tree.leave_out(name, "another file of the folder")
    ranks = max(len(models), len(optimizers))
    return finish(
        reader.tree, session, format="torch-deepspeed", variant="checkpoint of DeepSpeed",
        recorded=reader.recorded(), distribution={"ranks": ranks} if ranks > 1 else {},
    )  # fmt: skip


def _of_ranks(names: Iterable[str]) -> list[str]:
    """Return the files of all ranks in order.

    Raises:
        UnsupportedError: A name says that tensors themselves are split.
    """
    ranks: dict[int, str] = {}
    for name in names:
        match = FIRST.fullmatch(name)
        if match is None and name != WHOLE:
            raise UnsupportedError(
                "DeepSpeed's checkpoints with tensor or pipeline parallelism or experts", where=name
            )
        rank = int(match[1]) if match else -1
        if rank in ranks:
            raise CorruptError(f"{ranks[rank]} is of the same rank", where=name)
        ranks[rank] = name
    return [ranks[rank] for rank in sorted(ranks)]


class _Reader:
    """One checkpoint being read.

    Attributes:
        tree: Where everything goes.
        models: What the files of the model hold, by rank.
        has_runs: Whether weights are in the files of the optimizer.
    """

    def __init__(
        self, tree: Tree, models: Sequence[Mapping[object, object]], names: Sequence[str]
    ) -> None:
        if not models:
            raise CorruptError(f"holds no *{MODEL}")
        self.tree, self.models, self.names = tree, models, names
        self.maker = Maker(tree)
        self.has_runs = bool(models[0].get("param_shapes"))

    def recorded(self) -> dict[str, str]:
        """Return the version that wrote it."""
        version = self.models[0].get("ds_version")
        return {"deepspeed": version} if isinstance(version, str) else {}

    def read_notes(self) -> None:
        """Keep the user's data."""
        self.tree.add({k: v for k, v in self.models[0].items() if k not in OWN}, "", self.names[0])

    def read_whole(self) -> None:
        """Add the weights of a checkpoint without ZeRO."""
        self.tree.add(self.models[0].get("module"), "", self.names[0])

    def read_runs(self, optimizers: Sequence[Mapping[object, object]]) -> None:
        """Add buffers, frozen and trained parameters, and the other names of shared ones."""
        held = [o.get("optimizer_state_dict") for o in optimizers]
        states: list[dict[object, object]] = [s for s in held if isinstance(s, dict)]
        if not states or len(states) != len(optimizers):
            raise CorruptError(f"holds no *{OPTIMIZER} with weights")
        count = states[0].get("partition_count")
        count = max(count, default=0) if isinstance(count, list) else count
        if count != len(states):
            raise CorruptError(f"has {len(states)} of {count!r:.20} ranks")
        self._add_buffers()
        self._add_frozen()
        is_by_groups = GROUPS in states[0]
        vectors = [self._vectors(s, GROUPS if is_by_groups else RUNS) for s in states]
        add = self._add_by_groups if is_by_groups else self._add_by_runs
        add(vectors, states[0].get("param_alignment_paddings"))
        shared = self.models[0].get("shared_params")
        added = {found.path: found for found in self.tree.tensors}
        for name, other in shared.items() if isinstance(shared, dict) else ():
            if found := added.get(key_text(other)):
                self._add(key_text(name), found.value, found.tensor)

    def _add_buffers(self) -> None:
        module, listed = self.models[0].get("module"), self.models[0].get("buffer_names")
        if isinstance(module, dict) and isinstance(listed, list):
            buffers = {name: module[name] for name in listed if name in module}
            self.tree.add(buffers, "", self.names[0])

    def _add_frozen(self) -> None:
        """Add parameters that are not trained: whole, or a run of each from every rank."""
        shapes = self.models[0].get("frozen_param_shapes")
        for name, size in shapes.items() if isinstance(shapes, dict) else ():
            shape = self._shape(name, size)
            parts = [m.get("frozen_param_fragments") for m in self.models]
            values = [as_tensor(p.get(name)) if isinstance(p, dict) else None for p in parts]
            found = [value for value in values if value is not None]
            if len(found) != len(values):
                raise CorruptError("a frozen parameter is not there", where=key_text(name))
            tensors = [self.maker.tensor(value, key_text(name)) for value in found]
            if tensors[0].shape == shape:
                self._add(key_text(name), found[0], tensors[0])
                continue
            pieces = [Piece(t, 0, t.size) for t in tensors]
            self._add(
                key_text(name),
                found[0],
                join(pieces, shape, key_text(name), dtype=tensors[0].dtype),
            )

    def _vectors(self, state: object, key: str) -> list[tuple[TensorValue, Tensor]]:
        """Return the vectors of one rank."""
        listed = state.get(key) if isinstance(state, dict) else None
        values = [as_tensor(v) for v in listed] if isinstance(listed, (list, tuple)) else []
        found = [v for v in values if v is not None and v.layout == "strided" and len(v.shape) == 1]
        if not values or len(found) != len(values):
            raise UnsupportedError(f"weights that are no vectors under {key}")
        return [(v, self.maker.tensor(v, key)) for v in found]

    def _shapes(self) -> list[list[tuple[str, tuple[int, ...]]]]:
        """Return names and shapes of each group of parameters."""
        recorded = self.models[0].get("param_shapes")
        listed = recorded if isinstance(recorded, list) else [recorded]
        groups: list[dict[object, object]] = [g for g in listed if isinstance(g, dict)]
        if len(groups) != len(listed):
            raise CorruptError("param_shapes is no list of dictionaries", where=self.names[0])
        return [[(key_text(n), self._shape(n, s)) for n, s in g.items()] for g in groups]

    def _shape(self, name: object, value: object) -> tuple[int, ...]:
        shape = row(value)
        if shape is None or any(n < 0 for n in shape):
            raise CorruptError("a parameter without a shape", where=key_text(name))
        return shape

    def _add_by_groups(
        self, ranks: Sequence[Sequence[tuple[TensorValue, Tensor]]], paddings: object
    ) -> None:
        """Add parameters of stages 1 and 2: the ranks' vectors of a group follow each other."""
        shapes = self._shapes()
        if any(len(vectors) != len(shapes) for vectors in ranks):
            raise CorruptError(f"{len(ranks[0])} groups of weights, {len(shapes)} of shapes")
        for number, group in enumerate(shapes):
            vectors = [vectors[number] for vectors in ranks]
            listed = paddings if isinstance(paddings, list) and len(paddings) == len(shapes) else []
            skipped = (row(listed[number]) if listed else None) or (0,) * len(group)
            if len(skipped) != len(group):
                raise CorruptError(f"{len(skipped)} paddings of {len(group)} parameters")
            start = 0
            for (name, shape), padding in zip(group, skipped, strict=True):
                pieces = cut([t for _, t in vectors], start, prod(shape))
                value, first = vectors[0]
                self._add(name, value, join(pieces, shape, name, dtype=first.dtype))
                start += prod(shape) + padding

    def _add_by_runs(
        self, ranks: Sequence[Sequence[tuple[TensorValue, Tensor]]], paddings: object
    ) -> None:
        """Add parameters of stage 3: each rank has a run of each, all of one length."""
        del paddings
        start = 0
        for name, shape in (pair for group in self._shapes() for pair in group):
            length = -(-prod(shape) // len(ranks))
            pieces = [
                piece for vectors in ranks for piece in cut([t for _, t in vectors], start, length)
            ]
            value, first = ranks[0][0]
            self._add(name, value, join(pieces, shape, name, dtype=first.dtype))
            start += length

    def _add(self, name: str, like: TensorValue, tensor: Tensor | None) -> None:
        if tensor is not None:
            self.tree.add_joined(like, tensor, name, None)


def cut(vectors: Sequence[Tensor], start: int, length: int) -> Iterator[Piece]:
    """Yield the pieces of a run of vectors that follow each other.

    Raises:
        CorruptError: The vectors end before.
    """
    ends = list(accumulate(vector.size for vector in vectors))
    for vector, end in zip(vectors, ends, strict=True):
        begin = end - vector.size
        first, last = max(start, begin), min(start + length, end)
        if first < last:
            yield Piece(vector, first - begin, last - first)
    if start + length > (ends[-1] if ends else 0):
        raise CorruptError(f"weights end at {ends[-1:]}, before {start + length}")


def join(pieces: Iterable[Piece], shape: tuple[int, ...], name: str, *, dtype: DType) -> Tensor:
    """Return a tensor of the first elements of pieces one after the other.

    Args:
        pieces: In order; more elements than the tensor has are padding.
        shape: Of the tensor.
        name: Of the tensor.
        dtype: Of the elements.

    Raises:
        CorruptError: There are too few.
        UnsupportedError: They can only be read as a whole.
    """
    left = prod(shape)
    if not left:
        return Tensor.inline(dtype, shape, b"", origin=name)
    chunks, tensors, at = [], [], 0
    for vector, start, length in pieces:
        taken = min(length, left - at)
        if taken <= 0:
            break
        data = vector.data
        if isinstance(data, Computed):
            raise UnsupportedError("weights that are compressed", where=name)
        step = vector.dtype.itemsize
        view = Strided(data.span, data.offset + start * step, (step,), data.byteorder)
        chunks.append(Chunk((at,), (taken,)))
        tensors.append(Tensor(vector.dtype, (taken,), view))
        at += taken
    if at != left:
        raise CorruptError(f"{at} of {left} elements are there", where=name)
    if len(tensors) == 1:
        first, data = tensors[0], tensors[0].data
        assert isinstance(data, Strided)
        rows = Strided(data.span, data.offset, row_major(shape, first.dtype), data.byteorder)
        return Tensor(first.dtype, shape, rows, name)
    joined = join_chunks(chunks, tensors, (left,), origin=name)
    assert isinstance(joined.data, Computed)
    return Tensor.computed(joined.dtype, shape, joined.data.make, origin=name)
