"""HDF5 object headers: messages of an object, its links and its attributes.

A header of version 1 is a list of messages, one of version 2 has checksums; both go on in other
blocks. Links and attributes are messages themselves, or, where there are many, lie in a fractal
heap with a B-tree as index; the links of old groups have a B-tree and a local heap of their own.
"""

import struct
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from formats.containers.hdf5.bytes import Fields, Image
from formats.containers.hdf5.heaps import FractalHeap, btree1, btree2, global_heap, local_heap
from formats.containers.hdf5.messages import (
    Attribute,
    Dataspace,
    Datatype,
    dataspace,
    datatype,
    numbers,
)
from formats.core.bundle import JSON
from formats.errors import LimitError

# Message types (IV.A.2)
DATASPACE, LINK_INFO, DATATYPE, OLD_FILL, FILL, LINK, EXTERNAL, LAYOUT = 1, 2, 3, 4, 5, 6, 7, 8
FILTERS, ATTRIBUTE, CONTINUATION, SYMBOL_TABLE, ATTRIBUTE_INFO = 11, 12, 16, 17, 21
UNDERSTOOD = frozenset(
    (*range(1, 9), FILTERS, ATTRIBUTE, CONTINUATION, SYMBOL_TABLE, ATTRIBUTE_INFO)
)

MAX_BLOCKS = 1024  # of an object header
MAX_NAME = 1 << 16  # bytes of a name in a local heap

OLD_HEADER = struct.Struct("<BxH4xL4x")  # IV.A.1.a: version, messages, bytes of them
OLD_MESSAGE = struct.Struct("<HHB3x")  # IV.A.1.a: type, size, flags


class Message(NamedTuple):
    """One message of an object header."""

    type: int
    flags: int
    data: bytes
    address: int


class Link(NamedTuple):
    """Where a name in a group leads.

    Attributes:
        address: Of an object header, for a hard link.
        path: For a soft link, a path in this file; for an external one, a path in that file.
        file: The other file of an external link.
        order: When it was made, where recorded.
    """

    address: int | None
    path: str = ""
    file: str | None = None
    order: int | None = None


class Headers:
    """All object headers of a file, each read once."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self._datatypes: dict[bytes, Datatype] = {}
        self._spaces: dict[bytes, Dataspace] = {}
        self._messages: dict[int, list[Message]] = {}
        self._collections: dict[int, dict[int, tuple[int, int]]] = {}

    def messages(self, address: int) -> list[Message]:
        """Return the messages of an object header (IV.A.1)."""
        found = self._messages.get(address)
        if found is None:
            start = self.image.read(address, 16)
            new = start.startswith(b"OHDR")
            found = self._new_header(address) if new else self._old_header(start, address)
            self._messages[address] = found
        return found

    def _old_header(self, start: bytes, address: int) -> list[Message]:
        """Read a header of version 1 (IV.A.1.a); messages may go on in other blocks."""
        image = self.image
        version, count, size = OLD_HEADER.unpack(start)
        if version != 1:
            raise image.error(f"object header of version {version}", address)
        found: list[Message] = []
        blocks = [(address + 16, size)]
        for at, length in blocks:
            block, place = image.read(at, length), 0
            while place + 8 <= length and count:
                kind, size, flags = OLD_MESSAGE.unpack_from(block, place)
                place, end, count = place + 8, place + 8 + size, count - 1
                if end > length:
                    raise image.error(f"a message of {size} bytes leaves its header", at + place)
                if kind in UNDERSTOOD:
                    message = Message(kind, flags, block[place:end], at + place)
                    found.append(message)
                    if kind == CONTINUATION:
                        self._continue(message, blocks)
                place = end
        return found

    def _new_header(self, address: int) -> list[Message]:
        """Read a header of version 2 (IV.A.1.b)."""
        image = self.image
        flags = image.fields(address, 6).data[5]
        prefix = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        head = image.fields(address, prefix + width)
        head.skip(prefix)
        blocks = [(address, prefix + width + head.uint(width) + 4)]
        found: list[Message] = []
        for at, length in blocks:
            block = image.fields(at, length, b"OHDR" if at == address else b"OCHK")
            if length < 8:
                raise image.error("an object header block is too short", at)
            block.at = length - 4
            block.check()
            block.at = prefix + width if at == address else 4
            while block.left >= 8 + (2 if flags & 4 else 0):
                kind, size, message_flags = block.uint(1), block.uint(2), block.uint(1)
                if flags & 4:
                    block.skip(2)
                if size > block.left - 4:
                    raise block.error(f"a message of {size} bytes leaves its header")
                message = Message(kind, message_flags, block.take(size), at + block.at - size)
                found.append(message)
                if kind == CONTINUATION:
                    self._continue(message, blocks)
        return found

    def _continue(self, message: Message, blocks: list[tuple[int, int]]) -> None:
        fields = Fields(message.data, self.image, message.address)
        block = fields.offset(), fields.length()
        if block in blocks or len(blocks) >= MAX_BLOCKS:
            raise fields.error("an object header goes on in itself, or without end")
        blocks.append(block)

    def fields(self, message: Message) -> Fields:
        """Return a message's body, from another object's header where it is shared (IV.A.2)."""
        if message.flags & 2:
            body = Fields(message.data, self.image, message.address)
            return self._shared(body, message.type)
        return Fields(message.data, self.image, message.address)

    def _shared(self, fields: Fields, type: int) -> Fields:
        version, kind = fields.uint(1), fields.uint(1)
        if version == 1:
            fields.skip(6 + self.image.length_size)
        elif version == 3 and kind == 1:
            raise self.image.make_unsupported_error(
                "a message in the shared object header message heap"
            )
        address = fields.offset()
        for message in self.messages(address):
            if message.type == type and not message.flags & 2:
                return Fields(message.data, self.image, message.address)
        raise fields.error("a shared message is not where it should be")

    def datatype(self, fields: Fields) -> Datatype:
        """Read a datatype; equal ones are read once."""
        key = fields.data[fields.at :]
        kind = self._datatypes.get(key)
        if kind is None:
            kind = self._datatypes[key] = datatype(fields)
        return kind

    def space(self, fields: Fields) -> Dataspace:
        """Read a dataspace; equal ones are read once."""
        space = self._spaces.get(fields.data)
        if space is None:
            space = self._spaces[fields.data] = dataspace(fields)
        return space

    def attribute(self, data: bytes, address: int) -> tuple[str, Attribute]:
        """Read an attribute message (IV.A.2.m)."""
        fields = Fields(data, self.image, address)
        version, flags = fields.uint(1), fields.uint(1)
        if version not in (1, 2, 3):
            raise fields.error(f"attribute of version {version}")
        sizes = fields.uint(2), fields.uint(2), fields.uint(2)
        if version == 3:
            fields.skip(1)
        parts = []
        for size in sizes:
            start = fields.at
            parts.append(Fields(fields.take(size), self.image, address + start))
            if version == 1:
                fields.align(start)
        name, kind_fields, space_fields = parts
        if version > 1 and flags & 1:
            kind_fields = self._shared(kind_fields, DATATYPE)
        if version > 1 and flags & 2:
            space_fields = self._shared(space_fields, DATASPACE)
        kind, shape = self.datatype(kind_fields), self.space(space_fields).shape
        size = 0 if shape is None else prod(shape) * kind.size
        return _text(name.data), Attribute(kind, shape, fields.take(size))

    def dense_attributes(self, message: Message) -> Iterator[tuple[str, Attribute]]:
        """Read the attributes that an attribute info message (IV.A.2.v) leads to."""
        fields = Fields(message.data, self.image, message.address)
        fields.skip(1)
        if fields.uint(1) & 1:
            fields.skip(2)
        heap_address, names = fields.offset(), fields.offset()
        if not self.image.is_defined(heap_address) or not self.image.is_defined(names):
            return
        heap = FractalHeap(self.image, heap_address)
        for record in btree2(self.image, names, (8,)):
            if record[8:9] and record[8] & 2:
                raise self.image.make_unsupported_error("an attribute in the shared message heap")
            yield self.attribute(heap.get(record[:8]), heap_address)

    def links(self, messages: list[Message]) -> Iterator[tuple[str, Link]]:
        """Yield the links of a group from its header."""
        for message in messages:
            fields = Fields(message.data, self.image, message.address)
            if message.type == LINK:
                yield self._link(fields)
            elif message.type == SYMBOL_TABLE:
                yield from self._old_links(fields.offset(), fields.offset())
            elif message.type == LINK_INFO:
                fields.skip(1)
                if fields.uint(1) & 1:
                    fields.skip(8)
                heap_address, names = fields.offset(), fields.offset()
                if self.image.is_defined(heap_address) and self.image.is_defined(names):
                    heap = FractalHeap(self.image, heap_address)
                    for record in btree2(self.image, names, (5,)):
                        body = heap.get(record[4:])
                        yield self._link(Fields(body, self.image, heap_address))

    def _link(self, fields: Fields) -> tuple[str, Link]:
        """Read a link message (IV.A.2.g)."""
        version, flags = fields.uint(1), fields.uint(1)
        if version != 1:
            raise fields.error(f"link of version {version}")
        kind = fields.uint(1) if flags & 8 else 0
        order = fields.uint(8) if flags & 4 else None
        if flags & 16:
            fields.skip(1)
        name = _text(fields.take(fields.uint(1 << (flags & 3))))
        if kind == 0:
            return name, Link(fields.offset(), order=order)
        data = fields.take(fields.uint(2))
        if kind == 1:
            return name, Link(None, _text(data), order=order)
        file, _, path = data[1:].partition(b"\0")
        return name, Link(None, _text(path), _text(file), order)

    def _old_links(self, tree: int, heap_address: int) -> Iterator[tuple[str, Link]]:
        """Read a group of symbol table nodes (III.B, III.C)."""
        image, o = self.image, self.image.offset_size
        heap = local_heap(image, heap_address)
        entry_size = 24 + 2 * o
        for _, address in btree1(image, tree, 0, image.length_size):
            head = image.read(address, 8)
            if not head.startswith(b"SNOD"):
                raise image.error("no SNOD block", address)
            block = image.read(address + 8, int.from_bytes(head[6:], "little") * entry_size)
            for at in range(0, len(block), entry_size):
                name = self._heap_text(heap, int.from_bytes(block[at : at + o], "little"))
                kind = block[at + 2 * o]
                if kind == 2:  # a soft link; its path is in the heap too
                    start = at + 2 * o + 8
                    path_at = int.from_bytes(block[start : start + 4], "little")
                    yield name, Link(None, self._heap_text(heap, path_at))
                else:
                    yield name, Link(int.from_bytes(block[at + o : at + 2 * o], "little"))

    def _heap_text(self, heap: bytes, at: int) -> str:
        end = heap.find(b"\0", at, at + MAX_NAME)
        if at > len(heap) or end < 0:
            raise self.image.error("a name lies outside its heap, or is far too long")
        self.image.charge(end - at)  # many links may share one name
        return _text(heap[at:end])

    def value(self, attribute: Attribute) -> JSON:
        """Decode an attribute: see `Node.value`.

        Raises:
            LimitError: Variable-length values add up to more than `Limits.max_header_bytes`.
        """
        kind = attribute.datatype
        if len(attribute) > self.image.limits.max_members:
            raise LimitError(f"an attribute of {len(attribute)} elements", where=self.image.name)
        flat: list[JSON]
        if kind.is_text and kind.kind == "string":
            flat = [_text(e.rstrip(b"\0")) for e in attribute.elements()]
        elif kind.is_text:
            flat = [_text(self._variable(e, 1)) for e in attribute.elements()]
        else:
            found = numbers(attribute)
            if found is None:
                return None
            flat = list(found)
        if not attribute.shape:
            return flat[0] if flat else None
        for size in reversed(attribute.shape[1:]):
            flat = [flat[at : at + size] for at in range(0, len(flat), size)] if size else []
        return flat

    def _variable(self, reference: bytes, width: int) -> bytes:
        """Return a variable-length value from the global heap (IV.B)."""
        if len(reference) != 8 + self.image.offset_size:
            raise self.image.error("a variable-length value is no reference to a heap")
        count = int.from_bytes(reference[:4], "little")
        address = int.from_bytes(reference[4:-4], "little")
        index = int.from_bytes(reference[-4:], "little")
        if not count or not address or not self.image.is_defined(address):
            return b""
        if address not in self._collections:
            self._collections[address] = global_heap(self.image, address)
        try:
            at, length = self._collections[address][index]
        except KeyError:
            raise self.image.error(f"no object {index} in a global heap", address) from None
        return self.image.read(at, min(length, count * width))


def _text(data: bytes) -> str:
    """Return a name; HDF5 says ASCII or UTF-8, and writers say anything."""
    return data.rstrip(b"\0").decode("utf-8", "backslashreplace")
