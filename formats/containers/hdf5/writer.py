"""A writer of HDF5 files: groups, contiguous datasets, and string attributes of both.

Written as libhdf5 writes by default (superblock 0, groups as symbol tables), which every reader
takes. All that is not data is in front, its size known before any of it is written; datasets
follow in order, so that a file of any size streams through. What Keras's weight stores need and no
more: no chunks, no filters, no links but hard ones.

Spec: https://docs.hdfgroup.org/archive/support/HDF5/doc/H5.format.html (sections in brackets)
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from formats.core.weights import DType, Piece, Tensor
from formats.errors import InternalError, UnsupportedError

SIGNATURE = b"\x89HDF\r\n\x1a\n"
NOWHERE = (1 << 64) - 1
LEAF_K = 4  # half of the symbols in a node; libhdf5's default
LEAST_HEAP = 4096  # bytes of a global heap's collection

ENTRY = struct.Struct("<QQII16s")  # III.C symbol table entry
TREE = struct.Struct("<4sBBHQQ")  # III.A.1 B-tree node
DATASPACE, DATATYPE, LAYOUT, ATTRIBUTE, SYMBOLS = 0x1, 0x3, 0x8, 0xC, 0x11  # IV.A.2 messages

# IV.A.2.d: class and version, three bytes of bits, size; then offset and precision in bits, and of
# floating point: position and width of exponent and mantissa, bias of the exponent.
# fmt: off
FLOATS = {
    "float16": (10, 5, 0, 10, 15),
    "float32": (23, 8, 0, 23, 127),
    "float64": (52, 11, 0, 52, 1023),
}
# fmt: on
TEXT = struct.pack("<B3sI", 0x19, b"\x01\x01\x00", 16) + struct.pack("<B3sIHH", 0x10, b"", 1, 0, 8)


@dataclass(slots=True)
class _Group:
    members: "dict[str, _Group | Tensor]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hdf5Plan:
    """An HDF5 file to be written.

    Attributes:
        head: All that is not data.
        datasets: Offset of each, in order, with its tensor.
        nbytes: Of the whole file.
    """

    head: bytes = field(repr=False)
    datasets: Sequence[tuple[int, Tensor]]
    nbytes: int

    def pieces(self) -> Iterator[Piece]:
        """Yield the file from its first byte to its last."""
        yield self.head
        position = len(self.head)
        for offset, tensor in self.datasets:
            yield bytes(offset - position)
            yield from tensor.pieces()
            position = offset + tensor.nbytes
        yield bytes(self.nbytes - position)


def plan(datasets: Mapping[str, Tensor], attributes: Mapping[str, Mapping[str, str]]) -> Hdf5Plan:
    """Lay out a file.

    Args:
        datasets: By path (``layers/dense/vars/0``), in the order to write them.
        attributes: Texts by name, of datasets and of groups, by path. A group that has no datasets
            is made for its attributes.

    Raises:
        UnsupportedError: A tensor has a dtype that HDF5 has no word for.
    """
    notes = {path: dict(texts) for path, texts in attributes.items()}
    root = _Group()
    for path in notes.keys() - datasets.keys():
        _group(root, path)
    for path, tensor in datasets.items():
        folder, _, name = path.rpartition("/")
        _group(root, folder).members[name] = tensor
        if tensor.dtype.name == "bfloat16":  # two opaque bytes, as h5py keeps it
            notes.setdefault(path, {})["dtype"] = "bfloat16"
    texts = list(dict.fromkeys(t for own in notes.values() for t in own.values()))
    # Twice: sizes do not depend on where things are, so the second time all places are known.
    sizes = _Head(root, notes, texts, {}, 0)
    offsets, end = _places(datasets, sizes.nbytes)
    head = _Head(root, notes, texts, offsets, end)
    return Hdf5Plan(bytes(head.data), [(offsets[p], t) for p, t in datasets.items()], end)


def _group(root: _Group, path: str) -> _Group:
    for name in path.split("/") if path else ():
        below = root.members.setdefault(name, _Group())
        if not isinstance(below, _Group):
            raise InternalError(f"{name} is a dataset and a group", where=path)
        root = below
    return root


def _places(datasets: Mapping[str, Tensor], begin: int) -> tuple[dict[str, int], int]:
    offsets = {}
    for path, tensor in datasets.items():
        offsets[path] = begin
        begin = _align(begin + tensor.nbytes)
    return offsets, begin


class _Head:
    """All that is not data, as it is laid out."""

    def __init__(
        self,
        root: _Group,
        attributes: Mapping[str, Mapping[str, str]],
        texts: Sequence[str],
        offsets: Mapping[str, int],
        end: int,
    ) -> None:
        self.attributes = attributes
        self.offsets = offsets
        self.texts = {text: i for i, text in enumerate(texts, 1)}
        self.internal_k = max(16, (_most(root) + 4 * LEAF_K - 1) // (4 * LEAF_K))
        self.data = bytearray(96)
        self.heap = len(self.data)
        self.data += _collection(texts)
        address, tree, heap = self._put_group(root, "")
        scratch = struct.pack("<QQ", tree, heap)
        # II.A: versions, sizes of offsets and lengths, K of both nodes, no driver, the root.
        struct.pack_into(
            "<8s8B2HI4Q", self.data, 0,
            SIGNATURE, 0, 0, 0, 0, 0, 8, 8, 0, LEAF_K, self.internal_k, 0, 0, NOWHERE, end, NOWHERE,
        )  # fmt: skip
        ENTRY.pack_into(self.data, 56, 0, address, 1, 0, scratch)

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def _put(self, block: bytes) -> int:
        address = len(self.data)
        self.data += block.ljust(_align(len(block)), b"\0")
        return address

    def _put_group(self, group: _Group, path: str) -> tuple[int, int, int]:
        """Add a group and all below; return the addresses of its header, B-tree and heap."""
        names = sorted(group.members, key=lambda name: name.encode())
        base = f"{path}/" if path else ""
        entries = []
        segment, starts = bytearray(8), []  # the first name of a heap is the empty one
        for name in names:
            starts.append(len(segment))
            segment += name.encode() + b"\0"
            segment += bytes(_align(len(segment)) - len(segment))
            member = group.members[name]
            if isinstance(member, _Group):
                address, tree, heap = self._put_group(member, f"{base}{name}")
                scratch = struct.pack("<QQ", tree, heap)
                entries.append(ENTRY.pack(starts[-1], address, 1, 0, scratch))
            else:
                address = self._put_dataset(member, f"{base}{name}")
                entries.append(ENTRY.pack(starts[-1], address, 0, 0, b""))
        # III.D: no free space in the heap.
        place = self._put(bytes(segment))
        heap = self._put(struct.pack("<4sB3xQQQ", b"HEAP", 0, len(segment), 1, place))
        tree = self._put_tree(entries, starts)
        messages = [(SYMBOLS, struct.pack("<QQ", tree, heap)), *self._attributes(path)]
        return self._put(_header(messages)), tree, heap

    def _put_tree(self, entries: Sequence[bytes], starts: Sequence[int]) -> int:
        """Add the nodes that list a group's members by name, and their B-tree."""
        keys, nodes = [0], []
        width = 2 * LEAF_K
        for first in range(0, len(entries), width):
            some = entries[first : first + width]
            node = struct.pack("<4sBxH", b"SNOD", 1, len(some)) + b"".join(some)
            nodes.append(self._put(node.ljust(8 + width * ENTRY.size, b"\0")))
            keys.append(starts[first + len(some) - 1])
        body = TREE.pack(b"TREE", 0, 0, len(nodes), NOWHERE, NOWHERE)
        for key, node_address in zip(keys, nodes, strict=False):
            body += struct.pack("<QQ", key, node_address)
        body += struct.pack("<Q", keys[-1])
        return self._put(body.ljust(TREE.size + (4 * self.internal_k + 1) * 8, b"\0"))

    def _put_dataset(self, tensor: Tensor, path: str) -> int:
        place = self.offsets.get(path, 0) if tensor.nbytes else NOWHERE
        messages = [
            (DATASPACE, _dataspace(tensor.shape)),
            (DATATYPE, _datatype(tensor.dtype, path)),
            (LAYOUT, struct.pack("<BBQQ", 3, 1, place, tensor.nbytes)),  # IV.A.2.i: contiguous
            *self._attributes(path),
        ]
        return self._put(_header(messages))

    def _attributes(self, path: str) -> Iterator[tuple[int, bytes]]:
        """Yield a text of any length for each attribute: IV.A.2.m."""
        for name, text in self.attributes.get(path, {}).items():
            label, space = name.encode() + b"\0", _dataspace(())
            sizes = struct.pack("<BxHHH", 1, len(label), len(TEXT), len(space))
            where = struct.pack("<IQI", len(text.encode()), self.heap, self.texts[text])
            yield ATTRIBUTE, sizes + b"".join(_pad(p) for p in (label, TEXT, space)) + where


def _header(messages: Sequence[tuple[int, bytes]]) -> bytes:
    """Return an object's header: IV.A.1.a."""
    body = b""
    for kind, data in messages:
        data = _pad(data)
        body += struct.pack("<HHB3x", kind, len(data), 0) + data
    return struct.pack("<BxHII4x", 1, len(messages), 1, len(body)) + body


def _dataspace(shape: Sequence[int]) -> bytes:
    return struct.pack(f"<BBB5x{len(shape)}Q", 1, len(shape), 0, *shape)


def _datatype(dtype: DType, path: str) -> bytes:
    """Return a datatype message: IV.A.2.d."""
    name, size = dtype.name, dtype.itemsize
    if name in FLOATS:
        bits = bytes((0x20, 8 * size - 1, 0))  # a mantissa whose first bit is implied; the sign
        start = struct.pack("<B3sI", 0x11, bits, size)
        return start + struct.pack("<HHBBBBI", 0, 8 * size, *FLOATS[name])
    if name == "bool":  # an enumeration, as h5py writes it
        start = struct.pack("<B3sI", 0x18, b"\x02\x00\x00", 1)
        labels = b"".join(_pad(label) for label in (b"FALSE\0", b"TRUE\0"))
        return start + _integer(1, signed=True) + labels + b"\x00\x01"
    if name == "bfloat16":
        return struct.pack("<B3sI", 0x15, b"", 2)
    if name.rstrip("0123456789") in ("int", "uint") and dtype.bits >= 8:
        return _integer(size, signed=name.startswith("int"))
    raise UnsupportedError(f"HDF5 has no dtype {name}", where=path)


def _integer(size: int, *, signed: bool) -> bytes:
    bits = b"\x08" if signed else b""
    return struct.pack("<B3sIHH", 0x10, bits, size, 0, 8 * size)


def _collection(texts: Sequence[str]) -> bytes:
    """Return a global heap of texts: III.E. Its last object, number 0, is what is free."""
    if not texts:
        return b""
    body = b""
    for i, text in enumerate(texts, 1):
        data = text.encode()
        body += struct.pack("<HH4xQ", i, 1, len(data)) + _pad(data)
    free = max(LEAST_HEAP - 16 - len(body), 16)
    body += struct.pack("<HH4xQ", 0, 0, free).ljust(free, b"\0")
    return struct.pack("<4sB3xQ", b"GCOL", 1, 16 + len(body)) + body


def _most(group: _Group) -> int:
    below = [_most(m) for m in group.members.values() if isinstance(m, _Group)]
    return max([len(group.members), *below])


def _align(position: int) -> int:
    return (position + 7) // 8 * 8


def _pad(data: bytes) -> bytes:
    return data.ljust(_align(len(data)), b"\0")
