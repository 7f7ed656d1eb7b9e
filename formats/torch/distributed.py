"""Distributed checkpoints: a folder of ``.metadata`` and ``*.distcp``, whose shards are joined.

``.metadata`` is a pickle that says which chunk of which tensor is where; each chunk is a torch
file of its own inside a ``.distcp``. A tensor of one chunk is that chunk; others are put together
when they are read.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/distributed/checkpoint/metadata.py
"""

from dataclasses import dataclass

from formats.artifact import Artifact
from formats.containers.pickle.values import Odd, Record
from formats.core.bundle import Bundle, Group
from formats.core.storage import File, Span
from formats.core.weights import Tensor
from formats.errors import CorruptError, LimitError, UnsupportedError
from formats.torch.bundle import finish
from formats.torch.concatenation import Chunk, check_tiling, join_chunks, unstack_chunks
from formats.torch.containers import Session, read_any, read_bare
from formats.torch.megatron_dist import add_common, find_backend, leave_out_extra_state
from formats.torch.megatron_names import EXTRA_STATE, STACKED
from formats.torch.pickled_values import as_tensor, key_text, row
from formats.torch.similar_files import AlikeFiles
from formats.torch.tensor_values import TensorValue, TorchType, dtype_of
from formats.torch.tensors import Maker
from formats.torch.training_groups import find_group_of_name
from formats.torch.walk import MAX_PATH

METADATA = ".metadata"
EXTRA = "meta.pt"  # what Lightning keeps beside: versions, hyperparameters, loops


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entry's bytes are."""

    file: str
    offset: int
    length: int
    transformed: bool


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is a distributed checkpoint."""
    if METADATA in artifact.names and any(n.endswith(".distcp") for n in artifact.names):
        return "a folder with .metadata and .distcp files"
    return None


def read(artifact: Artifact) -> Bundle:
    """Read a distributed checkpoint, shards joined.

    Raises:
        CorruptError: ``.metadata`` does not fit the shards.
        LimitError: It asks for more than the limits grant.
        UnsupportedError: The shards are compressed or encrypted.
    """
    shards = {name for name in artifact.names if name.endswith(".distcp")}
    nbytes = sum(artifact.member(name).size for name in shards)
    session = Session.begin(artifact.limits, nbytes)
    where = f"{artifact.name}/{METADATA}"
    span = Span.whole(artifact.member(METADATA))
    metadata = attributes(read_bare(span, session, where).value)
    entries, places = metadata.get("state_dict_metadata"), metadata.get("storage_data")
    if not isinstance(entries, dict) or not isinstance(places, dict):
        raise CorruptError("does not say which tensors there are", where=where)
    is_megatron = "mcore_data" in metadata or find_backend(artifact) is not None
    reader = _Reader(artifact, session, _places(places, where), is_megatron=is_megatron)
    for key, entry in entries.items():
        reader.entry(key_text(key), entry)
    ranks = len({n.split("_")[2] for n in shards if n.count("_") > 2})  # __<rank>_<n>.distcp
    tree = reader.tree
    used = {METADATA, *shards, *(add_common(artifact, session, tree) if is_megatron else ())}
    if EXTRA in artifact.names:
        tree.add(read_any(Span.whole(artifact.member(EXTRA)), session, EXTRA).value, "", EXTRA)
        used.add(EXTRA)
    for name in artifact.names:
        if name not in used:
            tree.leave_out(name, "another file of the folder")
    variant = "distributed checkpoint" + (" of Megatron-Core" if is_megatron else "")
    recorded = {k: v for k in ("version",) if isinstance(v := metadata.get(k), str)}
    return finish(
        tree, session, format="torch-dcp", variant=variant, recorded=recorded,
        distribution={"ranks": ranks} if ranks > 1 else {},
    )  # fmt: skip


def attributes(value: object) -> dict[object, object]:
    """Return the attributes of a dataclass; empty for anything else."""
    state = value.state[0] if isinstance(value, Record) and value.state else None
    return state if isinstance(state, dict) else {}


def _places(stored: dict[object, object], where: str) -> dict[tuple[str, tuple[int, ...]], Place]:
    places = {}
    for key, value in stored.items():
        index = attributes(key.value if isinstance(key, Odd) else key)
        info = attributes(value)
        name, file = index.get("fqn"), info.get("relative_path")
        offset, length = info.get("offset"), info.get("length")
        if not isinstance(name, str) or not isinstance(file, str):
            raise CorruptError("has an entry without name or file", where=where)
        if len(name) > MAX_PATH:
            raise LimitError(f"a name of {len(name)} characters", where=where)
        if type(offset) is not int or type(length) is not int:
            raise CorruptError(f"does not say where {name!r:.80} is", where=where)
        at = index.get("offset")
        offsets = () if at is None else row(at)
        if offsets is None or (name, offsets) in places:
            raise CorruptError(f"says twice, or oddly, where {name!r:.80} is", where=where)
        places[name, offsets] = Place(file, offset, length, bool(info.get("transform_descriptors")))
    return places


def read_recorded_type(properties: object) -> TorchType | None:
    """Return the element type that a tensor's properties name."""
    state = properties.state[0] if isinstance(properties, Record) and properties.state else None
    if isinstance(state, tuple):  # torch 2.1 and later: the fields in order
        return dtype_of(state[0]) if state else None
    return dtype_of(state.get("dtype")) if isinstance(state, dict) else None


class _Reader:
    """One checkpoint being read."""

    def __init__(
        self,
        artifact: Artifact,
        session: Session,
        places: dict[tuple[str, tuple[int, ...]], Place],
        *,
        is_megatron: bool,
    ) -> None:
        self.artifact = artifact
        self.is_megatron = is_megatron
        self.session = session
        self.places = places
        self.tree = session.tree()
        self.maker = Maker(self.tree)
        self._shards = AlikeFiles(session)
        self._files: dict[str, File] = {}

    def entry(self, name: str, entry: object) -> None:
        """Add one entry: a tensor in chunks, or anything else as a torch file."""
        if len(name) > MAX_PATH:
            raise LimitError(f"a name of {len(name)} characters", where=self.artifact.name)
        cls = entry.cls if isinstance(entry, Record) else ""
        group = find_group_of_name(name)
        if cls.endswith(".TensorStorageMetadata"):
            self._tensor(name, attributes(entry), group)
            return
        place = self.places.get((name, ()))
        if place is None:
            self.tree.leave_out(name, "the checkpoint has no data for it")
            return
        value = self._load(place, name)
        if self.is_megatron and EXTRA_STATE.fullmatch(name):
            leave_out_extra_state(self.tree, name, value)
            return
        self.tree.add(value, name, f"{place.file}:{name}", group)

    def _tensor(self, name: str, entry: dict[object, object], group: Group | None) -> None:
        shape = row(entry.get("size"))
        if shape is None:
            raise CorruptError(f"{name!r:.80} has no size", where=self.artifact.name)
        chunks = self._chunks(name, entry.get("chunks"))
        # Ranks that hold nothing of a tensor write an empty chunk, and all the same one.
        chunks = [c for c in chunks if 0 not in c.sizes] or chunks[:1]
        if not chunks:
            self.tree.leave_out(name, "a tensor without chunks")
            return
        places = [self._place(name, chunk) for chunk in chunks]
        first = self._value(chunks[0], places[0], name)
        recorded = read_recorded_type(entry.get("properties"))
        if recorded is not None and first.type is not None and first.type != recorded:
            raise CorruptError(
                f"{name!r:.80} is stored as {first.type.name}",
                expected=recorded.name,
                where=self.artifact.name,
            )
        stacked = STACKED.fullmatch(name) if self.is_megatron and shape and not group else None
        if not stacked and len(chunks) == 1 and chunks[0] == Chunk((0,) * len(shape), shape):
            self.tree.add(first, name, f"{places[0].file}:{name}", group)
            return
        if 0 in shape and 0 in first.shape:
            nothing = Tensor.inline(self.maker.tensor(first, name).dtype, shape, b"", origin=name)
            self.tree.add_joined(first, nothing, name, group)
            return
        size = first.type.itemsize if first.type else 1
        check_tiling(chunks, shape, size, origin=name, charge=self.session.charge)
        values = [first]
        values += [self._value(c, p, name) for c, p in zip(chunks[1:], places[1:], strict=True)]
        tensors = [self.maker.tensor(value, name) for value in values]
        if stacked:  # one tensor of all layers: the model has one for each
            for i, layer in enumerate(unstack_chunks(chunks, tensors, shape, origin=name)):
                self.tree.add_joined(first, layer, f"{stacked[1]}{i}.{stacked[2]}", group)
            return
        self.tree.add_joined(first, join_chunks(chunks, tensors, shape, origin=name), name, group)

    def _chunks(self, name: str, listed: object) -> list[Chunk]:
        chunks = []
        for item in listed if isinstance(listed, list) else ():
            self.session.charge(4)
            where = attributes(item)
            offsets, sizes = row(where.get("offsets")), row(where.get("sizes"))
            if offsets is None or sizes is None:
                raise CorruptError(
                    f"a chunk of {name!r:.80} has no place", where=self.artifact.name
                )
            chunks.append(Chunk(offsets, sizes))
        return chunks

    def _place(self, name: str, chunk: Chunk) -> Place:
        place = self.places.get((name, chunk.offsets))
        if place is None:
            raise CorruptError(
                f"{name!r:.80} has no data at {list(chunk.offsets)}", where=self.artifact.name
            )
        return place

    def _value(self, chunk: Chunk, place: Place, name: str) -> TensorValue:
        value = as_tensor(self._load(place, name))
        if value is None or value.shape != chunk.sizes or value.layout != "strided":
            raise CorruptError(
                f"the chunk of {name!r:.80} at {list(chunk.offsets)} is another than it should be",
                expected=f"a tensor of {list(chunk.sizes)}",
                where=f"{self.artifact.name}/{place.file}",
                offset=place.offset,
            )
        return value

    def _load(self, place: Place, name: str) -> object:
        if place.transformed:
            raise UnsupportedError(
                f"{name!r:.80} is stored compressed", where=f"{self.artifact.name}/{place.file}"
            )
        file = self._files.get(place.file)
        if file is None:
            file = self._files[place.file] = self.artifact.member(place.file)
        span = Span.whole(file).sub(place.offset, place.length)
        return self._shards.value(span, f"{self.artifact.name}/{place.file}")
