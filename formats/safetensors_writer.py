"""Write safetensors: one file, or shards with an index.

Wider elements come first, so that each tensor is aligned for the loaders that view it in place;
otherwise the order of the source's bytes is kept. The header keeps the order of the names.

Spec: https://github.com/huggingface/safetensors/blob/v0.8.0/README.md#format
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from formats.core.bundle import Encoding
from formats.core.output import Output
from formats.core.storage import Blocks, Span
from formats.core.weights import DTYPES, Computed, Tensor
from formats.errors import StorageError
from formats.safetensors import INDEX_SUFFIX, STAND_IN, SUFFIX

DEFAULT_SHARD_BYTES = 50 * 10**9  # as transformers 5 cuts them


class Shard(NamedTuple):
    """One file to write: header bytes, then these tensors back to back."""

    name: str
    header: bytes
    tensors: tuple[tuple[str, Tensor], ...]

    @property
    def nbytes(self) -> int:
        """Size of the file."""
        return len(self.header) + sum(t.nbytes for _, t in self.tensors)


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """What will be written, decided before the first byte is.

    Attributes:
        shards: The files.
        index: Name and content of the index, or None for a single file.
        files: Tensor name → file that holds it; a tied name points where its twin is.
        tied: Name → the name it is stored under.
    """

    shards: tuple[Shard, ...]
    index: tuple[str, bytes] | None
    files: Mapping[str, str]
    tied: Mapping[str, str]

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(s.nbytes for s in self.shards) + (len(self.index[1]) if self.index else 0)


def plan_shards(
    weights: Mapping[str, Tensor],
    encodings: Mapping[str, Encoding],
    *,
    stem: str = "model",
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
    metadata: Mapping[str, str] | None = None,
) -> ShardLayout:
    """Lay the weights out in files.

    Args:
        weights: By name; tensors of one `Tensor.identity` are written once.
        encodings: Recorded in the header's metadata.
        stem: File name without suffix and shard number.
        max_shard_bytes: Where to cut. A single tensor larger than that has a file of its own.
        metadata: That every file records besides.
    """
    stored: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first: dict[object, str] = {}
    for name, tensor in weights.items():
        twin = first.setdefault(tensor.identity, name) if tensor.size else name
        if twin == name or name == "format" or name.startswith("convert."):
            stored[name] = tensor
        else:
            tied[name] = twin
    groups: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in stored.items():
        if groups[-1] and size + tensor.nbytes > max_shard_bytes:
            groups.append({})
            size = 0
        groups[-1][name] = tensor
        size += tensor.nbytes
    count = len(groups)
    plain = {**(metadata or {}), "format": "pt"}
    notes = {**(metadata or {}), **tied, "format": "pt", **_notes(stored, encodings)}
    shards, files = [], {}
    for i, group in enumerate(groups, 1):
        name = f"{stem}{SUFFIX}" if count == 1 else f"{stem}-{i:05d}-of-{count:05d}{SUFFIX}"
        ordered = _order(group)
        header = _header(group, ordered, notes if count == 1 else plain)
        shards.append(Shard(name, header, tuple(ordered)))
        files.update(dict.fromkeys(group, name))
    index = None
    if count > 1:
        total = sum(t.nbytes for t in stored.values())
        parameters = sum(t.size for t in stored.values())
        index_metadata = {"total_size": total, "total_parameters": parameters, **notes}
        document = {"metadata": index_metadata, "weight_map": dict(sorted(files.items()))}
        text = json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"
        index = (f"{stem}{INDEX_SUFFIX}", text)
    files.update((name, files[twin]) for name, twin in tied.items())
    return ShardLayout(tuple(shards), index, files, tied)


def create(layout: ShardLayout, folder: Path, *, sync: bool = False) -> None:
    """Create the planned files with their headers and final sizes, and the index.

    `read_files` can read them at once; the tensors are zeros until `fill` gets there.

    Args:
        layout: What to write.
        folder: An existing folder without files of these names.
        sync: Wait until the index is on the disk.

    Raises:
        StorageError: The disk is full, or fails.
    """
    for shard in layout.shards:
        with Output(folder / shard.name) as out:
            out.write(shard.header)
            out.reserve(shard.nbytes)
    if layout.index is not None:
        name, text = layout.index
        with Output(folder / name) as out:
            out.write(text)
            if sync:
                out.sync()


def fill(
    layout: ShardLayout,
    folder: Path,
    *,
    blocks: Blocks | None = None,
    watch: Callable[[Span], object] | None = None,
    sync: bool = False,
) -> Iterator[int]:
    """Write the tensors of files that `create` made, yielding the number of bytes of each step.

    Args:
        layout: As for `create`.
        folder: As for `create`.
        blocks: As for `Output.append`.
        watch: As for `Output.append`.
        sync: Wait until the bytes are on the disk.

    Raises:
        StorageError: The disk is full, or fails.
        SourceError: A source file changed or is damaged where its weights are.
    """
    blocks = blocks or Blocks()
    for shard in layout.shards:
        with Output(folder / shard.name, at=len(shard.header)) as out:
            for name, tensor in shard.tensors:
                before = out.position
                yield from out.append(tensor.pieces(), blocks, watch)
                if out.position - before != tensor.nbytes:
                    raise StorageError(f"wrote {out.position - before} bytes of {name!r}")
            yield out.flush()
            if sync:
                out.sync()


def _notes(stored: Mapping[str, Tensor], encodings: Mapping[str, Encoding]) -> dict[str, str]:
    notes = {}
    dtypes = {n: [t.dtype.name, list(t.shape)] for n, t in stored.items() if t.dtype.code is None}
    if dtypes:
        notes["convert.dtypes"] = _compact(dtypes)
    if encodings:
        notes["convert.encodings"] = _compact({n: asdict(e) for n, e in encodings.items()})
    return notes


def _order(tensors: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    """Return the tensors as they shall lie in the file.

    Large elements first, so that every tensor is aligned to its own; then as they lie in the
    source, so that both files are read and written front to back.
    """
    ranks: dict[int, int] = {}

    def place(item: tuple[str, Tensor]) -> tuple[int, int, int]:
        dtype, data = item[1].dtype, item[1].data
        alignment = dtype.itemsize // dtype.parts
        if isinstance(data, Computed):
            return -alignment, len(tensors), 0
        rank = ranks.setdefault(id(data.span.storage), len(ranks))
        return -alignment, rank, data.span.offset + data.offset

    return sorted(tensors.items(), key=place)


def _header(
    listed: Iterable[str], ordered: Iterable[tuple[str, Tensor]], metadata: Mapping[str, str]
) -> bytes:
    """Return the header: entries in the source's order, offsets in the file's."""
    entries: dict[str, object] = {}
    position = 0
    for name, tensor in ordered:
        code, shape = find_stored_form(tensor)
        end = position + tensor.nbytes
        entries[name] = {"dtype": code, "shape": shape, "data_offsets": [position, end]}
        position = end
    text = _compact({"__metadata__": dict(metadata), **{n: entries[n] for n in listed}}).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def find_stored_form(tensor: Tensor) -> tuple[str, list[int]]:
    """Return the safetensors code and shape that hold a tensor's bytes."""
    shape = list(tensor.shape)
    if tensor.dtype.code is not None:
        return tensor.dtype.code, shape
    if tensor.dtype.name in STAND_IN:
        name, parts = STAND_IN[tensor.dtype.name]
        code = DTYPES[name].code
        return str(code), [*shape, parts] if parts > 1 else shape
    return "U8", [tensor.nbytes]


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
