"""Tensors that ranks have parts of, as pickles describe them: ShardedTensor and DTensor.

A ShardedTensor says where each of its shards lies. A DTensor says how a mesh of ranks splits it:
each axis of the mesh splits a dimension in runs as `torch.chunk` does, or has copies.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/distributed/tensor/placement_types.py
and https://github.com/pytorch/pytorch/blob/v2.13.0/torch/distributed/_shard/sharded_tensor/api.py
"""

import re
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import NamedTuple

from formats.containers.pickle.values import Record
from formats.core.weights import Tensor
from formats.errors import CorruptError, UnsupportedError
from formats.torch.concatenation import Chunk, check_tiling, join_chunks
from formats.torch.tensor_values import TensorValue

CLASSES = re.compile(r"torch\.distributed\..*\b(ShardedTensor|DTensor)")
STATE = "state"  # the role of what the class keeps, among the parts of a `TensorValue`
MAX_MESH = 8  # axes of a mesh


class Part(NamedTuple):
    """A part that one rank has.

    Attributes:
        chunk: Where it lies.
        value: What is there.
    """

    chunk: Chunk
    value: TensorValue


class RankMissingError(CorruptError):
    """A rank that has parts of a tensor is not there."""


def join(
    values: Sequence[TensorValue],
    make: Callable[[TensorValue, str], Tensor],
    charge: Callable[[int], None],
    *,
    origin: str,
) -> Tensor:
    """Return the tensor that ranks have parts of; reads no data.

    Args:
        values: What each rank says of it.
        make: Returns a part's tensor.
        charge: Takes work off a budget.
        origin: What messages call it.

    Raises:
        CorruptError: The parts do not fit each other.
        RankMissingError: There are too few.
        UnsupportedError: It is split in a way that we do not know.
    """
    shape = values[0].shape
    if any(v.shape != shape or v.type != values[0].type for v in values):
        raise CorruptError("ranks say different shapes or element types", where=origin)
    parts: dict[tuple[int, ...], Part] = {}
    ranks = 1
    for value in values:
        listed, count = _read_parts(value, origin)
        ranks = max(ranks, count)
        for part in listed:
            charge(4)
            if part.value.shape != part.chunk.sizes or part.value.layout != "strided":
                raise CorruptError(
                    f"the part at {list(part.chunk.offsets)} is {list(part.value.shape)}",
                    expected=f"{list(part.chunk.sizes)}", where=origin,
                )  # fmt: skip
            known = (
                parts.setdefault(part.chunk.offsets, part) if 0 not in part.chunk.sizes else part
            )
            if known.chunk != part.chunk:
                raise CorruptError("parts overlap", where=origin)
    if len(values) < ranks:
        raise RankMissingError(f"has {len(values)} of {ranks} ranks", where=origin)
    if 0 in shape or not parts:
        if prod(shape):
            raise RankMissingError("no rank has a part of it", where=origin)
        empty = make(next(part.value for v in values for part in _read_parts(v, origin)[0]), origin)
        return Tensor.inline(empty.dtype, shape, b"", origin=origin)
    found = list(parts.values())
    chunks, tensors = [p.chunk for p in found], [make(p.value, origin) for p in found]
    check_tiling(chunks, shape, tensors[0].dtype.itemsize, origin=origin, charge=charge)
    return tensors[0] if len(found) == 1 else join_chunks(chunks, tensors, shape, origin=origin)


def _read_parts(value: TensorValue, origin: str) -> tuple[list[Part], int]:
    """Return the parts of one rank, and how many ranks have some.

    Raises:
        CorruptError: They are not described.
        UnsupportedError: They are described in a way that we do not know.
    """
    state = value.parts.get(STATE)
    read = _read_sharded if (value.cls or "").endswith("ShardedTensor") else _read_dtensor
    return read(value, state if isinstance(state, tuple) else (), origin)


def fields(record: object) -> dict[object, object]:
    """Return the attributes of a dataclass, with or without slots; empty for anything else."""
    found: dict[object, object] = {}
    for state in record.state if isinstance(record, Record) else ():
        for attributes in state if isinstance(state, tuple) else (state,):
            if isinstance(attributes, dict):
                found.update(attributes)
    return found


def _row(value: object, origin: str) -> tuple[int, ...]:
    if isinstance(value, (tuple, list)) and len(value) <= 64:
        numbers = tuple(n for n in value if type(n) is int)
        if len(numbers) == len(value):
            return numbers
    raise CorruptError("a part has no place", where=origin)


def _read_sharded(
    value: TensorValue, state: tuple[object, ...], origin: str
) -> tuple[list[Part], int]:
    """State: (shards of this rank, metadata, process group, sharding specification, …)."""
    shards = state[0] if len(state) > 2 else None
    listed = fields(state[1]).get("shards_metadata") if len(state) > 2 else None
    if not isinstance(shards, list) or not isinstance(listed, list):
        raise CorruptError(f"a {value.cls} without shards", where=origin)
    parts = []
    for shard in shards:
        about, local = fields(fields(shard).get("metadata")), fields(shard).get("tensor")
        if not isinstance(local, TensorValue):
            raise CorruptError("a shard without a tensor", where=origin)
        offsets, sizes = about.get("shard_offsets"), about.get("shard_sizes")
        parts.append(Part(Chunk(_row(offsets, origin), _row(sizes, origin)), local))
    # Where there are fewer elements than ranks, the last ranks have no shard.
    placed = {str(_rank(fields(about).get("placement"))) for about in listed}
    return parts, len(placed)


def _rank(placement: object) -> object:
    """Return the rank of a device such as ``rank:0/cuda:0``."""
    return fields(placement).get("_rank")


def _read_dtensor(
    value: TensorValue, state: tuple[object, ...], origin: str
) -> tuple[list[Part], int]:
    """State: (None, {``_local_tensor``, ``_spec``})."""
    slots = {k: v for part in state if isinstance(part, dict) for k, v in part.items()}
    local, spec = slots.get("_local_tensor"), fields(slots.get("_spec"))
    mesh, placements = fields(spec.get("mesh")), spec.get("placements")
    sizes = _mesh_sizes(mesh, origin)
    coordinates = _row(mesh.get("_coordinate_on_dim"), origin)
    if not isinstance(local, TensorValue) or not isinstance(placements, tuple):
        raise CorruptError(f"a {value.cls} without a tensor or placements", where=origin)
    if not len(sizes) == len(coordinates) == len(placements) <= MAX_MESH or not all(
        0 <= at < n for at, n in zip(coordinates, sizes, strict=True)
    ):
        raise CorruptError("its placements do not fit its mesh", where=origin)
    offsets, shape = [0] * len(value.shape), list(value.shape)
    for axis, dim in _order(placements, sizes, origin):
        if not 0 <= dim < len(shape):
            raise CorruptError(f"is split along axis {dim}", where=origin)
        # As torch.chunk: all runs have one length but the last ones, which may be empty.
        run = -(-shape[dim] // sizes[axis])
        start = min(run * coordinates[axis], shape[dim])
        offsets[dim] += start
        shape[dim] = min(run, shape[dim] - start)
    return [Part(Chunk(tuple(offsets), tuple(shape)), local)], prod(sizes)


def _mesh_sizes(mesh: dict[object, object], origin: str) -> tuple[int, ...]:
    """Return the sizes of a mesh, which torch 2.1 to 2.13 have recorded in three ways."""
    ranks, layout = mesh.get("mesh"), fields(mesh.get("_layout"))
    if isinstance(ranks, TensorValue):
        return ranks.shape
    axes = layout.get("axes")
    listed = layout.get("shape")
    if isinstance(axes, tuple):
        listed = [fields(axis).get("shape") for axis in axes]
    if not isinstance(listed, (list, tuple)):
        raise UnsupportedError("a mesh of devices that is recorded in an unknown way", where=origin)
    return tuple(n if type(n) is int else prod(_row(n, origin)) for n in listed)


def _order(
    placements: tuple[object, ...], sizes: tuple[int, ...], origin: str
) -> Iterator[tuple[int, int]]:
    """Yield axes of the mesh and the dimensions they split, in the order of splitting.

    The axes are in order, but for strided shards: FSDP's axis comes first in the mesh, and splits
    what tensor parallelism has left of a dimension.
    """
    strided = []
    for axis, placement in enumerate(placements):
        kind = placement.cls.rpartition(".")[2] if isinstance(placement, Record) else "?"
        about = fields(placement)
        dim = about.get("dim")
        if kind == "Replicate" or (kind == "Shard" and sizes[axis] == 1):
            continue
        if kind not in ("Shard", "_StridedShard") or type(dim) is not int:
            raise UnsupportedError(f"a DTensor that is placed as {kind}", where=origin)
        if kind == "Shard":
            yield axis, dim
            continue
        later = (
            n for p, n in zip(placements[axis + 1 :], sizes[axis + 1 :], strict=True)
            if fields(p).get("dim") == dim
        )  # fmt: skip
        if about.get("split_factor") != prod(later):
            raise UnsupportedError("a strided shard of another stride", where=origin)
        strided.append((axis, dim))
    yield from reversed(strided)
