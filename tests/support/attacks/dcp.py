"""An assembler for torch's distributed checkpoints, so that every number in them can lie.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/distributed/checkpoint/metadata.py
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from attacks.pickles import (
    DTYPES,
    EMPTY_DICT,
    EMPTY_TUPLE,
    MARK,
    NEWOBJ,
    PROTO,
    STOP,
    build,
    call,
    named,
    tensor,
    torch_zip,
    value,
)

MODULE = "torch.distributed.checkpoint.metadata."
SHARD = "__0_0.distcp"
Box = tuple[Sequence[int], Sequence[int]]  # where it begins, its sizes


def instance(cls: str, state: object) -> bytes:
    """Return an object of a dataclass as pickle writes it."""
    return build(named(cls) + EMPTY_TUPLE + NEWOBJ, state)


def chunk(offsets: object, sizes: object) -> bytes:
    return instance(f"{MODULE}ChunkStorageMetadata", {"offsets": offsets, "sizes": sizes})


def entry(size: object, chunks: object, dtype: str = "float32") -> bytes:
    properties = instance(
        f"{MODULE}TensorProperties",
        (
            named(f"torch.{dtype}"),
            call("torch.serialization._get_layout", "torch.strided"),
            False,
            call(f"{MODULE}_MEM_FORMAT_ENCODING", 0),
            False,
        ),
    )
    state = {"properties": properties, "size": size, "chunks": chunks}
    return instance(f"{MODULE}TensorStorageMetadata", state)


def index(name: object, offsets: object) -> bytes:
    return instance(f"{MODULE}MetadataIndex", {"fqn": name, "offset": offsets, "index": None})


def place(file: object, offset: object, length: object, **more: object) -> bytes:
    """Return what torch calls a `_StorageInfo`."""
    state = {"relative_path": file, "offset": offset, "length": length, **more}
    return instance("torch.distributed.checkpoint.filesystem._StorageInfo", state)


def pairs(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a dict whose keys need not differ."""
    return EMPTY_DICT + MARK + b"".join(k + v for k, v in items) + b"u"


def metadata(entries: bytes, places: bytes, **more: object) -> bytes:
    """Return a whole ``.metadata``."""
    state = {"state_dict_metadata": entries, "storage_data": places, "planner_data": None, **more}
    return PROTO + instance(f"{MODULE}Metadata", state) + STOP


def saved(array: np.ndarray) -> bytes:
    """Return a chunk as ``torch.save`` writes it."""
    kind = DTYPES[array.dtype.str[1:]]
    return torch_zip(PROTO + tensor("0", array.shape, kind=kind) + STOP, {"x": array})


@dataclass
class Checkpoint:
    """A checkpoint of one shard file, being put together."""

    entries: dict[str, object] = field(default_factory=dict)
    places: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)

    def store(self, name: str, offsets: object, data: bytes) -> None:
        """Append bytes to the shard, and say what of which entry they are."""
        at = len(self.body)
        self.body += data
        self.places.append((index(name, offsets), place(SHARD, at, len(data))))

    def add(
        self,
        name: str,
        array: np.ndarray,
        boxes: Sequence[Box] | None = None,
        size: object = None,
        dtype: str = "float32",
    ) -> "Checkpoint":
        """Store an array in boxes of it, or whole."""
        boxes = boxes or [((0,) * array.ndim, array.shape)]
        for offsets, sizes in boxes:
            # A box that leads outside is stored all the same.
            inside = tuple(slice(o, o + n) for o, n in zip(offsets, sizes, strict=True))
            part = np.resize(array[inside] if array[inside].size else array, tuple(sizes))
            self.store(name, tuple(offsets), saved(np.ascontiguousarray(part)))
        chunks = [chunk(tuple(o), tuple(n)) for o, n in boxes]
        self.entries[name] = entry(array.shape if size is None else size, chunks, dtype)
        return self

    def files(self, **more: object) -> Mapping[str, bytes]:
        """Return the folder."""
        about = metadata(value(self.entries), pairs(self.places), **more)
        return {".metadata": about, SHARD: bytes(self.body)}
