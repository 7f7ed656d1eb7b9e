"""Chunked HDF5 datasets: chunk indexes, and elements in C order.

A chunk index is read when the data are. Elements pass in boxes of bounded size, whatever the
shape of the chunks: whole chunks where a run of chunks makes a run of elements, else a band of
chunks put together by numpy.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from formats.containers.hdf5.bytes import Fields, Image
from formats.containers.hdf5.filters import undo
from formats.containers.hdf5.heaps import btree1, btree2
from formats.containers.hdf5.messages import Filter, Layout
from formats.core.weights import CHUNK, Piece
from formats.errors import LimitError

BOX = 1 << 25  # bytes put together at once; larger only where the chunks demand it
JOIN = 1 << 20  # small chunks are put together until a box has this many bytes
MAX_CHUNKS = 1 << 18  # of a dataset; each costs microseconds, whatever its size
LEAST_STORED = 64  # bytes of a chunk with its entry in an index
FREE_CELLS = 1 << 16  # chunks that any file may have
UNLIMITED = (1 << 64) - 1

Cell = tuple[int, ...]  # position of a chunk, counted in chunks


class Stored(NamedTuple):
    """Where a chunk is, and which filters were skipped."""

    address: int
    size: int
    mask: int


@dataclass(frozen=True, slots=True)
class Chunked:
    """A chunked dataset.

    Attributes:
        image: The file.
        shape: Of the dataset.
        maximum: How far it may grow.
        itemsize: Bytes of an element.
        layout: Its storage.
        pipeline: Its filters.
        fill: One element, for chunks that were never written.
    """

    image: Image
    shape: tuple[int, ...]
    maximum: tuple[int, ...]
    itemsize: int
    layout: Layout
    pipeline: tuple[Filter, ...]
    fill: bytes

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk before filtering."""
        return prod(self.layout.chunk) * self.itemsize

    def check(self) -> None:
        """Refuse chunks that do not fit the dataset.

        Raises:
            CorruptError: They have another rank, or no elements.
            LimitError: There are too many of them.
        """
        chunk = self.layout.chunk
        if len(chunk) != len(self.shape) or not all(chunk) or not chunk:
            raise self.image.error(f"chunks {list(chunk)} of a dataset {list(self.shape)}")
        if len(self.maximum) != len(self.shape):
            raise self.image.error(f"a dataset {list(self.shape)} grows to {list(self.maximum)}")
        count = prod(self._grid(self.shape))
        if count > min(MAX_CHUNKS, self.image.limits.max_members):
            raise LimitError(f"a dataset of {count} chunks", where=self.image.name)

    def _grid(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(-(-n // c) for n, c in zip(shape, self.layout.chunk, strict=True))

    def pieces(self) -> Iterator[Piece]:
        """Yield the elements, row-major, in the byte order that they are stored in."""
        if not prod(self.shape):
            return
        self.check()
        index = self.index()
        if self.layout.chunk[1:] == self.shape[1:]:
            yield from self._runs(index)
        else:
            yield from self._boxes(index)

    def _runs(self, index: dict[Cell, Stored]) -> Iterator[Piece]:
        """Yield chunks that are runs of whole rows."""
        rows, zeros = self.layout.chunk[0], (0,) * (len(self.shape) - 1)
        row_bytes, row = prod(self.shape[1:]) * self.itemsize, 0
        for number in sorted(cell[0] for cell in index):
            cell, first = (number, *zeros), number * rows
            if cell not in index or first >= self.shape[0]:
                continue
            yield from repeat_element(self.fill, (first - row) * row_bytes)
            row = min(first + rows, self.shape[0])
            stored, length = index[cell], (row - first) * row_bytes
            if self._is_plain(cell, stored):
                yield self.image.span.sub(stored.address, self.chunk_bytes).sub(0, length)
            else:
                yield self._decode(cell, stored)[:length]
        yield from repeat_element(self.fill, (self.shape[0] - row) * row_bytes)

    def _boxes(self, index: dict[Cell, Stored]) -> Iterator[Piece]:
        """Yield boxes of elements that chunks contribute parts to."""
        import numpy as np

        chunk, element = self.layout.chunk, np.dtype((np.void, self.itemsize))
        last: tuple[Cell, bytes] | None = None  # a chunk that spans several boxes
        for start, stop in _split(self.shape, chunk, self.itemsize):
            sides = [b - a for a, b in zip(start, stop, strict=True)]
            ranges = [range(a // c, -(-b // c)) for a, b, c in zip(start, stop, chunk, strict=True)]
            count = prod(map(len, ranges))
            if count > len(index):  # most were never written
                cells = [
                    cell for cell in index if all(i in r for i, r in zip(cell, ranges, strict=True))
                ]
            else:
                cells = [cell for cell in product(*ranges) if cell in index]
            box = np.empty(sides, element)
            if count > len(cells):
                box[...] = np.frombuffer(self.fill, element)[0]
            for cell in cells:
                here, there = [], []
                for i, a, b, c in zip(cell, start, stop, chunk, strict=True):
                    first, end = max(a, i * c), min(b, (i + 1) * c)
                    here.append(slice(first - a, end - a))
                    there.append(slice(first - i * c, end - i * c))
                if last is None or last[0] != cell:
                    last = cell, self._decode(cell, index[cell])
                block = np.frombuffer(last[1], element).reshape(chunk)
                box[tuple(here)] = block[tuple(there)]
            view = box.reshape(-1).view(np.uint8).data
            for at in range(0, len(view), CHUNK):
                yield bytes(view[at : at + CHUNK])

    def _is_plain(self, cell: Cell, stored: Stored) -> bool:
        """Return whether no filter was applied to a chunk."""
        if self.layout.plain_edges and any(
            (i + 1) * c > n for i, c, n in zip(cell, self.layout.chunk, self.shape, strict=True)
        ):
            return True
        return all(stored.mask >> n & 1 for n in range(len(self.pipeline)))

    def _decode(self, cell: Cell, stored: Stored) -> bytes:
        image, limit = self.image, self.image.limits.max_chunk_bytes
        if max(self.chunk_bytes, stored.size) > limit:
            raise LimitError(
                f"a chunk of {max(self.chunk_bytes, stored.size)} bytes",
                expected=f"at most {limit}",
                where=image.name,
            )
        if self._is_plain(cell, stored):
            return image.span.read(stored.address, self.chunk_bytes)
        # Chunks may be larger than the dataset, as long as not too much is inflated for nothing.
        image.discarded += max(0, self.chunk_bytes - prod(self.shape) * self.itemsize)
        if image.discarded > image.limits.expansion_allowance_bytes * 4 + image.span.length * 100:
            raise LimitError(
                f"chunks of {self.chunk_bytes} bytes for datasets that are far smaller",
                where=image.name,
            )
        data = image.span.read(stored.address, stored.size)
        return undo(data, self.pipeline, stored.mask, self.chunk_bytes, image)

    def index(self) -> dict[Cell, Stored]:
        """Return where the chunks of the dataset are; chunks never written are absent."""
        # A tensor may be walked more than once: its index counts against the limit by itself.
        spent, self.image.spent = self.image.spent, 0
        found = self._read_index()
        self.image.spent = spent
        return found

    def _count(self, cells: int) -> None:
        """Take note of chunks looked up: many datasets may have the same index, or need none.

        Raises:
            LimitError: They are more than three walks over a file of this size can take.
        """
        image = self.image
        image.cells += cells
        if image.cells > 3 * (FREE_CELLS + image.span.length // LEAST_STORED):
            raise LimitError(f"datasets of {image.cells} chunks", where=image.name)

    def _read_index(self) -> dict[Cell, Stored]:
        image, layout = self.image, self.layout
        if not image.is_defined(layout.address):
            return {}
        if layout.index == 0:
            return self._from_btree1()
        if layout.index == 5:
            return self._from_btree2()
        cells = prod(self._grid(self.shape))
        self._count(cells if layout.index == 2 else cells // 8)  # most may be unwritten
        if layout.index == 1:
            size, mask = layout.parameters or (self.chunk_bytes, 0)
            return {(0,) * len(self.shape): Stored(layout.address, size, mask)}
        if layout.index == 2:
            size = self.chunk_bytes
            return {
                cell: Stored(layout.address + number * size, size, 0)
                for cell, number in self._number(0)
            }
        array = _fixed_array if layout.index == 3 else _extensible_array
        entry = array(image, layout.address)
        # Cells are numbered with the axis that may grow without end first.
        growing = [i for i, n in enumerate(self.maximum) if n == UNLIMITED]
        axis = growing[0] if layout.index == 4 and len(growing) == 1 else 0
        found: dict[Cell, Stored] = {}
        for cell, number in self._number(axis):
            fields = entry(number)
            if fields is None:
                continue
            stored = self._stored(fields)
            if stored is not None:
                found[cell] = stored
                self._count(1)
        return found

    def _number(self, first_axis: int) -> Iterator[tuple[Cell, int]]:
        """Yield the dataset's cells, and their numbers in the grid of its full growth."""
        axes = [first_axis, *(i for i in range(len(self.shape)) if i != first_axis)]
        most = self._grid(tuple(map(max, self.maximum, self.shape)))
        for cell in product(*map(range, self._grid(self.shape))):
            number = 0
            for axis in axes:
                number = number * most[axis] + cell[axis]
            yield cell, number

    def _stored(self, entry: Fields) -> Stored | None:
        """Read an entry: an address, and behind it size and mask where there are filters."""
        address = entry.offset()
        if not self.image.is_defined(address):
            return None
        if not self.pipeline:
            return Stored(address, self.chunk_bytes, 0)
        return Stored(address, entry.uint(max(0, entry.left - 4)), entry.uint(4))

    def _from_btree1(self) -> dict[Cell, Stored]:
        """Read keys of stored size, filter mask, and offsets in elements (III.A.1)."""
        rank, image = len(self.shape), self.image
        chunk, found = self.layout.chunk, {}
        for key, address in btree1(image, self.layout.address, 1, 8 + 8 * (rank + 1)):
            place = [
                int.from_bytes(key[8 + 8 * i : 16 + 8 * i], "little") // chunk[i]
                for i in range(rank)
            ]
            size, mask = int.from_bytes(key[:4], "little"), int.from_bytes(key[4:8], "little")
            found[tuple(place)] = Stored(address, size, mask)
            self._count(1)
        return found

    def _from_btree2(self) -> dict[Cell, Stored]:
        """Read records of address, perhaps size and mask, and offsets in chunks (types 10, 11)."""
        rank, found = len(self.shape), {}
        for record in btree2(self.image, self.layout.address, (10, 11)):
            split = len(record) - 8 * rank
            if split < self.image.offset_size:
                raise self.image.error("a chunk record is too short")
            place = [
                int.from_bytes(record[split + 8 * i : split + 8 * (i + 1)], "little")
                for i in range(rank)
            ]
            stored = self._stored(Fields(record[:split], self.image, self.layout.address))
            self._count(1)
            if stored is not None:
                found[tuple(place)] = stored
        return found


def repeat_element(element: bytes, length: int) -> Iterator[bytes]:
    """Yield ``length`` bytes of repeated elements."""
    run = element * (CHUNK // len(element) or 1)
    while length > 0:
        yield run[:length]
        length -= len(run)


def _split(
    shape: tuple[int, ...], chunk: tuple[int, ...], itemsize: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield start and stop of boxes which follow each other in row-major order."""
    limit = min(max(BOX, chunk[0] * prod(shape[1:]) * itemsize // 4), 4 * BOX)
    axis, below = 0, prod(shape[1:]) * itemsize
    while below > limit and axis + 1 < len(shape):
        axis += 1
        below //= shape[axis]
    step = chunk[axis]
    if step * below > limit:
        step = max(1, limit // below)
    else:
        step *= max(1, JOIN // (step * below))
    for outer in product(*map(range, shape[:axis])):
        for first in range(0, shape[axis], step):
            start = (*outer, first, *(0 for _ in shape[axis + 1 :]))
            end = (*(i + 1 for i in outer), min(first + step, shape[axis]), *shape[axis + 1 :])
            yield start, end


Entries = Callable[[int], Fields | None]


def _fixed_array(image: Image, address: int) -> Entries:
    """Return a lookup of the entries of a fixed array (VII.C)."""
    head = image.fields(address, 12 + image.length_size + image.offset_size, b"FAHD")
    head.skip(2)
    size, page_bits, count, block = head.uint(1), head.uint(1), head.length(), head.offset()
    head.check()
    start = 6 + image.offset_size
    if not image.is_defined(block):
        return lambda _: None
    if page_bits > 63 or count <= 1 << page_bits:
        entries = _checked_block(image, block, start + count * size, b"FADB")
        return lambda n: _entry(image, entries, start, n, size) if n < count else None
    per_page = 1 << page_bits
    pages = -(-count // per_page)
    prefix = _checked_block(image, block, start + -(-pages // 8), b"FADB")
    bitmap, first = prefix[start:], block + len(prefix) + 4
    return _index_pages(image, bitmap, 0, first, per_page, count, size)


def _index_pages(
    image: Image, bitmap: bytes, bit: int, first: int, per_page: int, count: int, size: int
) -> Entries:
    """Return a lookup of entries in pages that each end in a checksum.

    Args:
        image: The file.
        bitmap: Tells, from the highest bit of a byte down, which pages were written.
        bit: The first page's place in it.
        first: Address of the first page.
        per_page: Entries of a page; the last may have fewer.
        count: Entries in all.
        size: Bytes of an entry.
    """
    cache: dict[int, bytes] = {}

    def lookup(number: int) -> Fields | None:
        page, place = divmod(number, per_page)
        if number >= count or not bitmap[(bit + page) // 8] & 0x80 >> (bit + page) % 8:
            return None
        if page not in cache:
            length = min(per_page, count - page * per_page) * size
            cache[page] = _checked_block(image, first + page * (per_page * size + 4), length)
        return _entry(image, cache[page], 0, place, size)

    return lookup


def _extensible_array(image: Image, address: int) -> Entries:
    """Return a lookup of the entries of an extensible array (VII.D)."""
    o = image.offset_size
    head = image.fields(address, 16 + 6 * image.length_size + o, b"EAHD")
    head.skip(2)
    size, count_bits, direct = head.uint(1), head.uint(1), head.uint(1)
    least, least_pointers, page_bits = head.uint(1), head.uint(1), head.uint(1)
    for _ in range(6):
        head.length()
    block = head.offset()
    head.check()
    if not image.is_defined(block):
        return lambda _: None
    powers = (least, least_pointers)
    if any(p < 1 or p & (p - 1) for p in powers) or count_bits > 64 or page_bits > 63:
        raise image.error("an extensible array whose sizes are no powers of two", address)

    # Super block s has 2**(s/2) data blocks of least * 2**((s+1)/2) entries; those of the first
    # super blocks are listed in the index block itself.
    super_blocks = max(0, 1 + count_bits - (least.bit_length() - 1))
    listed = 2 * (least_pointers.bit_length() - 1)
    data_blocks, start = 2 * (least_pointers - 1), 6 + o
    pointers = start + direct * size
    deeper = pointers + data_blocks * o
    length = deeper + max(0, super_blocks - listed) * o
    index_block = _checked_block(image, block, length, b"EAIB")
    offset_bytes = -(-count_bits // 8)
    cache: dict[int, Entries] = {}
    super_cache: dict[int, bytes] = {}

    def data_block(address: int, entries: int) -> Entries:
        begin = 6 + o + offset_bytes
        data = _checked_block(image, address, begin + entries * size, b"EADB")
        return lambda n: _entry(image, data, begin, n, size)

    def paged_block(address: int, entries: int, bitmap: bytes, bit: int) -> Entries:
        first = address + 6 + o + offset_bytes + 4
        return _index_pages(image, bitmap, bit, first, 1 << page_bits, entries, size)

    def lookup(number: int) -> Fields | None:
        if number < direct:
            return _entry(image, index_block, start, number, size)
        number -= direct
        level = (number // least + 1).bit_length() - 1
        number -= least * ((1 << level) - 1)
        entries, blocks = least << (level + 1) // 2, 1 << level // 2
        which, place = divmod(number, entries)
        bitmap, bit = b"", 0
        if level < listed:
            before = sum(1 << s // 2 for s in range(level))
            address = _pointer(image, index_block, pointers, before + which)
        else:
            above = _pointer(image, index_block, deeper, level - listed)
            if not image.is_defined(above):
                return None
            pages = entries >> page_bits if entries > 1 << page_bits else 0
            begin = 6 + o + offset_bytes
            body = begin + blocks * -(-pages // 8)
            if above not in super_cache:
                super_cache[above] = _checked_block(image, above, body + blocks * o, b"EASB")
            address = _pointer(image, super_cache[above], body, which)
            bitmap, bit = super_cache[above][begin:body], which * pages
        if not image.is_defined(address):
            return None
        if address not in cache:
            cache[address] = (
                paged_block(address, entries, bitmap, bit)
                if bitmap
                else data_block(address, entries)
            )
        return cache[address](place)

    return lookup


def _checked_block(image: Image, address: int, length: int, magic: bytes = b"") -> bytes:
    """Return a block without the checksum that ends it, once that holds."""
    block = image.fields(address, length + 4, magic)
    block.at = length
    block.check()
    return block.data[:length]


def _entry(image: Image, block: bytes, start: int, number: int, size: int) -> Fields:
    at = start + number * size
    return Fields(block[at : at + size], image, at)


def _pointer(image: Image, block: bytes, start: int, number: int) -> int:
    return _entry(image, block, start, number, image.offset_size).offset()
