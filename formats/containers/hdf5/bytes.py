"""Bounded access to the bytes of an HDF5 file: addresses, buffered small reads, checksums.

Spec: "HDF5 File Format Specification Version 3.0"; section numbers in this package's comments
(II.A, III.A.1, IV.A.2.d) are its own. All addresses in a file count from the base address, which
is behind a user block where there is one.

Metadata is little and scattered, so it is read through pages that are kept. What may be read in
all is bounded: structures that refer to each other in a loop, or the same bytes under many
addresses, end in a LimitError.
"""

from formats.core.storage import Span
from formats.errors import CorruptError, LimitError, UnsupportedError
from formats.limits import Limits

PAGE_BITS = 14  # metadata lies in runs of some KiB between the data of a Keras file
PAGE = 1 << PAGE_BITS  # bytes
SMALL = 1 << 12  # bytes of a block
MAX_PAGES = 256  # kept at once: 4 MiB


class Image:
    """An HDF5 file as addresses see it.

    Attributes:
        span: The file from its base address on.
        limits: What reading it may cost.
        offset_size: Bytes of an address in the file.
        length_size: Bytes of a length in the file.
        spent: Bytes of metadata read so far, and other work in terms of them.
        cells: Chunks looked up in indexes so far.
        discarded: Bytes inflated that were no part of any dataset.
        steps: Steps of LZF beyond what their bytes explain.
    """

    __slots__ = (
        "_pages", "_undefined", "cells", "discarded", "length_size", "limits", "name",
        "offset_size", "span", "spent", "steps",
    )  # fmt: skip

    def __init__(self, span: Span, limits: Limits, offset_size: int, length_size: int) -> None:
        self.span = span
        self.name = span.name
        self.limits = limits
        self.offset_size = offset_size
        self.length_size = length_size
        self._undefined = (1 << 8 * offset_size) - 1
        self._pages: dict[int, bytes] = {}
        self.spent = 0
        self.cells = 0
        self.discarded = 0
        self.steps = 0

    def is_defined(self, address: int) -> bool:
        """Return whether an address is defined, unlike the mark for undefined."""
        return address != self._undefined

    def read(self, address: int, length: int) -> bytes:
        """Return ``length`` bytes of metadata.

        Raises:
            CorruptError: They lie outside the file.
            LimitError: The file makes us read more metadata than `Limits.max_header_bytes`.
        """
        # Nearly every read lies in a page that is there already.
        page, start = address >> PAGE_BITS, address & PAGE - 1
        data = self._pages.get(page, b"")
        self.spent += length
        if start + length <= len(data) and self.spent <= self.limits.max_header_bytes:
            return data[start : start + length]
        if address + length > self.span.length:
            raise CorruptError(
                f"{length} bytes wanted, but the file has {self.span.length}",
                where=self.name,
                offset=address,
                hint="The file is probably truncated",
            )
        self.charge(0)
        if length > 4 * PAGE:
            return self.span.read(address, length)
        last = (address + length - 1) // PAGE
        joined = b"".join([self._page(n) for n in range(page, last + 1)])
        return joined[start : start + length]

    def charge(self, nbytes: int) -> None:
        """Take work off the budget that is as slow as reading ``nbytes`` of metadata.

        Raises:
            LimitError: Nothing is left.
        """
        self.spent += nbytes
        if self.spent > self.limits.max_header_bytes:
            raise LimitError(
                f"HDF5 metadata of more than {self.limits.max_header_bytes} bytes", where=self.name
            )

    def _page(self, number: int) -> bytes:
        data = self._pages.get(number)
        if data is None:
            if len(self._pages) >= MAX_PAGES:
                self._pages.pop(next(iter(self._pages)))
            start = number * PAGE
            data = self.span.read(start, min(PAGE, self.span.length - start))
            self._pages[number] = data
        return data

    def fields(self, address: int, length: int, magic: bytes = b"") -> "Fields":
        """Return the block of ``length`` bytes at ``address``, past its ``magic``.

        Raises:
            CorruptError: It lies outside the file, or begins otherwise.
        """
        fields = Fields(self.read(address, length), self, address)
        if magic and fields.take(len(magic)) != magic:
            raise CorruptError(f"no {magic.decode()} block", where=self.name, offset=address)
        return fields

    def error(self, found: str, address: int | None = None) -> CorruptError:
        """Return the error that says ``found``, with its place."""
        return CorruptError(found, where=self.name, offset=address)

    def make_unsupported_error(self, found: str, hint: str | None = None) -> UnsupportedError:
        """Return the error for valid HDF5 that we cannot read yet."""
        return UnsupportedError(found, where=self.name, hint=hint)


class Fields:
    """A run of bytes, read field by field; reading past its end is a CorruptError."""

    __slots__ = ("address", "at", "data", "image")

    def __init__(self, data: bytes, image: Image, address: int) -> None:
        self.data = data
        self.image = image
        self.address = address  # of the first byte, for messages
        self.at = 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self.data) - self.at

    def uint(self, size: int) -> int:
        """Return the little-endian unsigned number in the next ``size`` bytes."""
        end = self.at + size
        if end > len(self.data):
            raise self.short(size)
        value = int.from_bytes(self.data[self.at : end], "little")
        self.at = end
        return value

    def offset(self) -> int:
        """Return the next field of the file's offset size."""
        return self.uint(self.image.offset_size)

    def length(self) -> int:
        """Return the next field of the file's length size."""
        return self.uint(self.image.length_size)

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        end = self.at + size
        if end > len(self.data):
            raise self.short(size)
        data = self.data[self.at : end]
        self.at = end
        return data

    def skip(self, size: int) -> None:
        """Pass over the next ``size`` bytes."""
        self.at += size
        if self.at > len(self.data):
            self.at -= size
            raise self.short(size)

    def align(self, start: int, multiple: int = 8) -> None:
        """Pass over the padding of a field that began at ``start``.

        The last field of a block may lack its padding.
        """
        self.at = min(start + -(-(self.at - start) // multiple) * multiple, len(self.data))

    def text(self) -> bytes:
        """Return the bytes up to the next NUL, and pass over it."""
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise self.error("a name has no end")
        text = self.data[self.at : end]
        self.at = end + 1
        return text

    def error(self, found: str) -> CorruptError:
        """Return the error that says ``found``, with its place."""
        return self.image.error(found, self.address + self.at)

    def short(self, size: int) -> CorruptError:
        """Return the error for a block that ends before its fields do."""
        return self.error(f"{size} bytes wanted, but the block has {self.left} left")

    def check(self) -> None:
        """Compare the checksum in the next four bytes with all the bytes before it.

        Raises:
            CorruptError: They differ.
        """
        end = self.at
        # A checksum takes longer than a look at the block, and large blocks are rare.
        self.image.charge((3 if end <= SMALL else 8) * end)
        if self.uint(4) != lookup3(self.data[:end]):
            raise self.image.error("a block fails its checksum", self.address)


def lookup3(data: bytes) -> int:
    """Return Jenkins' hash, which HDF5 uses as checksum of metadata (initial value 0).

    Spec: http://burtleburtle.net/bob/c/lookup3.c, hashlittle.
    """
    mask = 0xFFFFFFFF
    a = b = c = (0xDEADBEEF + len(data)) & mask
    last = max(0, (len(data) - 1) // 12 * 12) if data else 0
    for at in range(0, last, 12):
        a += int.from_bytes(data[at : at + 4], "little")
        b += int.from_bytes(data[at + 4 : at + 8], "little")
        c += int.from_bytes(data[at + 8 : at + 12], "little")
        a = ((a - c) ^ _turn(c, 4)) & mask
        c += b
        b = ((b - a) ^ _turn(a, 6)) & mask
        a += c
        c = ((c - b) ^ _turn(b, 8)) & mask
        b += a
        a = ((a - c) ^ _turn(c, 16)) & mask
        c += b
        b = ((b - a) ^ _turn(a, 19)) & mask
        a += c
        c = ((c - b) ^ _turn(b, 4)) & mask
        b += a
    if not data:
        return c
    tail = data[last:].ljust(12, b"\0")
    a = (a + int.from_bytes(tail[:4], "little")) & mask
    b = (b + int.from_bytes(tail[4:8], "little")) & mask
    c = (c + int.from_bytes(tail[8:], "little")) & mask
    c = ((c ^ b) - _turn(b, 14)) & mask
    a = ((a ^ c) - _turn(c, 11)) & mask
    b = ((b ^ a) - _turn(a, 25)) & mask
    c = ((c ^ b) - _turn(b, 16)) & mask
    a = ((a ^ c) - _turn(c, 4)) & mask
    b = ((b ^ a) - _turn(a, 14)) & mask
    return ((c ^ b) - _turn(b, 24)) & mask


def _turn(x: int, bits: int) -> int:
    x &= 0xFFFFFFFF
    return (x << bits | x >> 32 - bits) & 0xFFFFFFFF
