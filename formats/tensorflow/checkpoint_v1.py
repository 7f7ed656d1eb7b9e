"""TensorFlow's V1 checkpoints: SSTables whose values are tensors, or slices of tensors.

Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/util/saved_tensor_slice.proto
The entry under the empty key says which tensors there are; each file of a sharded checkpoint has
its own. The interface is that of `tensor_bundle.TensorBundle`.
"""

from collections.abc import Sequence
from dataclasses import replace

from formats.containers.protobuf import wire
from formats.containers.protobuf.messages import Message, decode
from formats.core import tiling
from formats.core.storage import Span
from formats.core.strings import Strings
from formats.core.weights import Tensor
from formats.errors import CorruptError, LimitError, UnsupportedError
from formats.limits import Limits
from formats.tensorflow import sstable, tensor_proto
from formats.tensorflow.schemas import SCHEMA
from formats.tensorflow.tensor_bundle import (
    MOST_SLICES,
    BundleEntry,
    Extents,
    extents_of,
    slice_key,
)


class SavedSlices:
    """All shards of one V1 checkpoint.

    Attributes:
        entries: All tensors by name, in the order of the shards' own lists.
        shards: How many files hold the data.
        producer: Version of the writer.
    """

    def __init__(self, files: Sequence[Span], limits: Limits) -> None:
        """Read the lists of tensors, and where their slices are.

        Raises:
            CorruptError: A file is damaged or no V1 checkpoint.
        """
        self.where = files[0].name
        self.shards = len(files)
        self.producer = 0
        self._limits = limits
        self.entries: dict[str, BundleEntry] = {}
        self._slices: dict[bytes, Span] = {}
        self._described = 0
        checked = replace(limits, max_checked_bytes=limits.max_checked_bytes // len(files))
        for file in files:
            items = sstable.Table(file, checked).items()
            first = next(items, None)
            if first is None or first[0] != b"":
                raise CorruptError("the table has no list of tensors", where=file.name)
            meta = decode(first[1], SCHEMA["SavedTensorSlices"], limits).meta
            self.producer = meta.versions.producer
            for tensor in meta.tensor:
                self._add(tensor)
            self._slices.update(items)

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def tensor(self, key: str) -> Tensor | Strings:
        """Return one tensor, joined if it is partitioned.

        Raises:
            CorruptError: Its list and its slices contradict each other.
            UnsupportedError: It is neither numbers nor strings.
        """
        entry = self.entries[key]
        boxes = []
        for extents in entry.slices:
            value = self._slices.get(slice_key(entry.key, extents.written))
            if value is None:
                raise CorruptError(
                    f"the slice at {list(extents.starts)} of {key!r} is missing", where=self.where
                )
            saved = decode(value, SCHEMA["SavedTensorSlices"], self._limits, whole=wire.SMALL)
            proto = saved.data.data
            tensor = tensor_proto.from_values(proto, entry.number, extents.lengths, key)
            if isinstance(tensor, Strings):
                if len(entry.slices) > 1:
                    raise UnsupportedError(f"{key!r} is a partitioned string tensor")
                return tensor
            boxes.append(tiling.Box(extents.starts, tensor))
        return tiling.join(tensor_proto.dtype_of(entry.number, key), entry.shape, boxes, origin=key)

    def _add(self, proto: Message) -> None:
        shape = tensor_proto.shape_of(
            proto.shape, f"{self.where}#{proto.name}", self._limits.max_rank
        )
        parts: tuple[Extents, ...] = tuple(extents_of(s, shape, self.where) for s in proto.slice)
        self._described += 1 + len(parts)
        if self._described > self._limits.max_described:
            raise LimitError(
                f"more than {self._limits.max_described} tensors and slices", where=self.where
            )
        known = self.entries.get(proto.name)
        if known is not None:
            if (known.shape, known.number) != (shape, proto.type):
                raise CorruptError(f"shards disagree about {proto.name!r}", where=self.where)
            parts = known.slices + parts
        if len(parts) > MOST_SLICES:
            raise LimitError(f"tensor {proto.name!r} has {len(parts)} slices", where=self.where)
        key = proto.name.encode()
        self.entries[proto.name] = BundleEntry(key, proto.type, shape, 0, 0, 0, 0, parts)
