"""HDF5's heaps and B-trees: names, variable-length values and indexes.

Local heaps hold the link names of old groups, global heaps variable-length values, fractal heaps
the links and attributes of new objects. Version 1 B-trees index old groups and chunks, version 2
B-trees everything newer. Each tree is walked with an explicit stack; a level only ever leads to
the next lower one, so a loop cannot be followed for long.
"""

from collections.abc import Iterator
from typing import NamedTuple

from formats.containers.hdf5.bytes import Fields, Image
from formats.errors import LimitError

MAX_OBJECTS = 1 << 16  # of a global heap collection: an index has two bytes
MAX_LEVELS = 64  # of a B-tree; real ones have at most four


def local_heap(image: Image, address: int) -> bytes:
    """Return the data segment of a local heap (III.D)."""
    n = image.length_size
    head = image.read(address, 8 + 2 * n + image.offset_size)
    if not head.startswith(b"HEAP"):
        raise image.error("no HEAP block", address)
    size, start = int.from_bytes(head[8 : 8 + n], "little"), head[8 + 2 * n :]
    return image.read(int.from_bytes(start, "little"), size)


def global_heap(image: Image, address: int) -> dict[int, tuple[int, int]]:
    """Return the objects of a global heap collection (III.E): index → address and size."""
    size_field = image.length_size
    head = image.fields(address, 8 + size_field, b"GCOL")
    head.skip(4)
    block = image.read(address, head.length())
    objects: dict[int, tuple[int, int]] = {}
    at, prefix = 8 + size_field, 8 + size_field
    for _ in range(MAX_OBJECTS):
        if at + prefix > len(block):
            break
        index = int.from_bytes(block[at : at + 2], "little")
        if index == 0:  # the rest is free
            break
        length = int.from_bytes(block[at + 8 : at + prefix], "little")
        at += prefix
        if at + length > len(block):
            raise image.error("an object leaves its global heap", address + at)
        objects.setdefault(index, (address + at, length))
        at += -(-length // 8) * 8
    return objects


def btree1(image: Image, address: int, kind: int, key_size: int) -> Iterator[tuple[bytes, int]]:
    """Yield key and child address of the leaves of a version 1 B-tree (III.A.1), in order.

    Args:
        image: The file.
        address: Of the root node.
        kind: 0 for groups, 1 for chunks.
        key_size: Bytes of a key.
    """
    entry = key_size + image.offset_size
    head_size = 8 + 2 * image.offset_size
    stack = [(address, MAX_LEVELS)]
    seen: set[int] = set()
    while stack:
        address, above = stack.pop()
        if not image.is_defined(address):
            continue
        head = image.read(address, head_size)
        found_kind, level, used = head[4], head[5], int.from_bytes(head[6:8], "little")
        if not head.startswith(b"TREE"):
            raise image.error("no TREE block", address)
        if found_kind != kind or level >= above or address in seen:
            raise image.error("a B-tree node does not belong to its tree", address)
        seen.add(address)
        body = image.read(address + head_size, used * entry)
        pairs = [
            (
                body[at : at + key_size],
                int.from_bytes(body[at + key_size : at + entry], "little"),
            )
            for at in range(0, used * entry, entry)
        ]
        if level:
            stack.extend((child, level) for _, child in reversed(pairs))
        else:
            yield from pairs


def btree2(image: Image, address: int, kinds: tuple[int, ...]) -> Iterator[bytes]:
    """Yield the records of a version 2 B-tree (III.A.2), in order.

    Args:
        image: The file.
        address: Of the header.
        kinds: Record types that the caller understands.
    """
    head = image.fields(address, 22 + image.offset_size + image.length_size, b"BTHD")
    head.skip(1)
    kind, node_size, record = head.uint(1), head.uint(4), head.uint(2)
    depth = head.uint(2)
    head.skip(2)
    root, root_records = head.offset(), head.uint(2)
    total = head.length()
    head.check()
    if kind not in kinds or not record or depth >= MAX_LEVELS or node_size < 10 + record:
        raise image.error(f"a B-tree of type {kind} that does not fit here", address)
    if total > image.limits.max_members:
        raise LimitError(f"a B-tree of {total} records", where=image.name, offset=address)

    # How wide the counts in a child pointer are, level by level (III.A.2, "internal node").
    fits = (node_size - 10) // record
    count_size = _width(fits)
    totals = [fits]
    pointers = [0]
    for level in range(1, depth + 1):
        total_size = 0 if level == 1 else _width(totals[-1])
        pointer = image.offset_size + count_size + total_size
        pointers.append(pointer)
        fits = max(0, (node_size - 10 - pointer) // (record + pointer))
        totals.append((fits + 1) * totals[-1] + fits)

    # A record between two children is yielded between them: entries are nodes or records.
    stack: list[tuple[int, int, int] | bytes] = [(root, root_records, depth)]
    seen: set[int] = set()
    while stack:
        item = stack.pop()
        if isinstance(item, bytes):
            yield item
            continue
        address, count, level = item
        if not count and not level:
            continue
        if address in seen:
            raise image.error("a B-tree leads back to itself", address)
        seen.add(address)
        size = 6 + count * record + ((count + 1) * pointers[level] if level else 0)
        node = image.fields(address, size + 4, b"BTIN" if level else b"BTLF")
        node.skip(2)
        records = [node.take(record) for _ in range(count)]
        children = []
        for _ in range(count + 1 if level else 0):
            child, some = node.offset(), node.uint(count_size)
            node.skip(pointers[level] - image.offset_size - count_size)
            children.append((child, some, level - 1))
        node.check()
        if not level:
            yield from records
            continue
        stack.append(children[-1])
        for entry, left in zip(reversed(records), reversed(children[:-1]), strict=True):
            stack.append(entry)
            stack.append(left)


def _width(number: int) -> int:
    """Return the bytes that hold numbers up to ``number``, as the library computes it."""
    return (max(number, 1).bit_length() - 1) // 8 + 1


class _Table(NamedTuple):
    """The doubling table of a fractal heap: how blocks grow from row to row."""

    width: int
    start_size: int
    max_direct: int

    def block_size(self, row: int) -> int:
        return self.start_size << max(0, row - 1)

    @property
    def direct_rows(self) -> int:
        """Rows of an indirect block whose blocks are direct."""
        return self.max_direct.bit_length() - self.start_size.bit_length() + 2

    def find(self, offset: int) -> tuple[int, int, int]:
        """Return row, column and offset in its block, of an offset in an indirect block."""
        row, start = 0, 0
        while offset >= start + self.width * self.block_size(row):
            start += self.width * self.block_size(row)
            row += 1
        column, inside = divmod(offset - start, self.block_size(row))
        return row, column, inside


class FractalHeap:
    """A fractal heap (III.G), read object by object."""

    def __init__(self, image: Image, address: int) -> None:
        """Read the header.

        Raises:
            CorruptError: There is no heap at ``address``.
            UnsupportedError: The heap is compressed.
        """
        o, n = image.offset_size, image.length_size
        head = image.fields(address, 26 + 3 * o + 12 * n, b"FRHP")
        head.skip(1)
        self._image = image
        self._id_length, filters, flags = head.uint(2), head.uint(2), head.uint(1)
        self._max_managed = head.uint(4)
        head.length()
        self._huge_tree = head.offset()
        head.length()
        head.offset()
        for _ in range(8):
            head.length()
        width, start_size, max_direct = head.uint(2), head.length(), head.length()
        heap_bits = head.uint(2)
        head.uint(2)
        self._root, self._root_rows = head.offset(), head.uint(2)
        if filters:
            raise image.make_unsupported_error("a compressed fractal heap")
        head.check()
        powers = (width, start_size, max_direct)
        if any(p < 1 or p & (p - 1) for p in powers) or max_direct < start_size or heap_bits > 64:
            raise image.error("a fractal heap whose block sizes are no powers of two", address)
        self._table = _Table(width, start_size, max_direct)
        self._checksums = bool(flags & 2)
        self._offset_size = -(-heap_bits // 8)
        self._length_size = min(-(-(max_direct.bit_length() - 1) // 8), _width(self._max_managed))
        self._huge: dict[int, tuple[int, int]] | None = None
        self._blocks: dict[int, Fields] = {}

    def get(self, heap_id: bytes) -> bytes:
        """Return the object that an id stands for (III.G, "heap ID")."""
        image = self._image
        head = Fields(heap_id, image, 0)
        first = head.uint(1)
        kind = first >> 4 & 3
        if kind == 0:
            offset, length = head.uint(self._offset_size), head.uint(self._length_size)
            return self._read_managed(offset, length)
        if kind == 2:
            if self._id_length - 1 <= 16:
                return head.take((first & 15) + 1)
            return head.take(((first & 15) << 8 | head.uint(1)) + 1)
        if kind == 1:
            if image.offset_size + image.length_size <= self._id_length - 1:
                address, length = head.offset(), head.length()
                return image.read(address, length)
            key = head.uint(min(self._id_length - 1, 8, head.left))
            try:
                return image.read(*self._huge_objects()[key])
            except KeyError:
                raise image.error(f"a fractal heap has no huge object {key}") from None
        raise image.error("a heap id of no known kind")

    def _huge_objects(self) -> dict[int, tuple[int, int]]:
        if self._huge is None:
            self._huge = {}
            if self._image.is_defined(self._huge_tree):
                for record in btree2(self._image, self._huge_tree, (1,)):
                    fields = Fields(record, self._image, 0)
                    place = fields.offset(), fields.length()
                    self._huge[fields.length()] = place
        return self._huge

    def _read_managed(self, offset: int, length: int) -> bytes:
        image, table = self._image, self._table
        address, rows, block_offset = self._root, self._root_rows, offset
        if not rows:
            return self._direct(address, table.start_size, block_offset, length)
        for _ in range(MAX_LEVELS):
            row, column, inside = table.find(block_offset)
            if row >= rows:
                break
            address = self._child(address, rows, row * table.width + column)
            size = table.block_size(row)
            if row < table.direct_rows:
                return self._direct(address, size, inside, length)
            # An indirect block of that size: as many rows as it takes to fill it.
            rows = size.bit_length() - (table.start_size * table.width).bit_length() + 1
            block_offset = inside
        raise image.error(f"a fractal heap has no object at offset {offset}")

    def _direct(self, address: int, size: int, inside: int, length: int) -> bytes:
        """Return bytes of a direct block; offsets count from its start, header included."""
        if inside + length > size or not self._image.is_defined(address):
            raise self._image.error("a heap object lies outside its block", address)
        self._image.fields(address, 4, b"FHDB")
        return self._image.read(address + inside, length)

    def _child(self, address: int, rows: int, index: int) -> int:
        """Return the address of a block below an indirect one (III.G, "indirect block")."""
        o, table = self._image.offset_size, self._table
        block = self._blocks.get(address)
        if block is None:
            prefix = 5 + o + self._offset_size
            size = prefix + rows * table.width * o + 4
            block = self._image.fields(address, size, b"FHIB")
            block.skip(size - 8)
            block.check()
            self._blocks[address] = block
        block.at = 5 + o + self._offset_size + index * o
        return block.offset()
