"""HDF5 object header messages: dataspace, datatype, layout, attributes.

Section numbers are those of the specification (IV.A.2). A datatype says which `DType` its bytes
are, where there is one; compounds, references and variable-length values have none and are read
only as attributes, or named as left out.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from formats.containers.hdf5.bytes import Fields
from formats.core.weights import DTYPES, ByteOrder, DType
from formats.errors import LimitError

MAX_NESTING = 32  # of datatypes
MAX_FILTERS = 8  # of a dataset; real ones have up to four

# fmt: off
CLASSES = (
    "integer", "float", "time", "string", "bitfield", "opaque", "compound", "reference", "enum",
    "variable-length", "array", "complex",
)
# Layout of a float (IV.A.2.d): bytes, sign bit, exponent at, exponent bits, mantissa at,
# mantissa bits, exponent bias. HDF5 cannot tell float8_e4m3fn from an IEEE-like e4m3.
FLOATS = {
    (2, 15, 10,  5, 0, 10,   15): "float16",
    (4, 31, 23,  8, 0, 23,  127): "float32",
    (8, 63, 52, 11, 0, 52, 1023): "float64",
    (2, 15,  7,  8, 0,  7,  127): "bfloat16",
    (1,  7,  3,  4, 0,  3,    7): "float8_e4m3fn",
    (1,  7,  2,  5, 0,  2,   15): "float8_e5m2",
}
# fmt: on
COMPLEX = {"float16": "complex32", "float32": "complex64", "float64": "complex128"}


class Datatype(NamedTuple):
    """An element type as stored.

    Attributes:
        kind: Its class, in words.
        size: Bytes of an element.
        dtype: The plain element type that these bytes are, if any.
        byteorder: Of its numbers.
        base: Element of an array, or of a variable-length sequence.
        shape: Of an array.
        is_text: Whether it is a string, fixed or variable-length.
        tag: What an opaque type says of itself.
    """

    kind: str
    size: int
    dtype: DType | None = None
    byteorder: ByteOrder = "little"
    base: "Datatype | None" = None
    shape: tuple[int, ...] = ()
    is_text: bool = False
    tag: str = ""


def datatype(fields: Fields, depth: int = 0) -> Datatype:
    """Read a datatype message (IV.A.2.d) and leave the position after it.

    Raises:
        CorruptError: It is malformed.
        LimitError: It nests too deeply.
    """
    if depth > MAX_NESTING:
        raise LimitError("datatypes nest too deeply", where=fields.image.name)
    fields.image.charge(160)  # a compound may have thousands of members
    first = fields.uint(1)
    kind, version = first & 15, first >> 4
    bits, size = fields.uint(3), fields.uint(4)
    if kind >= len(CLASSES) or not 1 <= version <= 5 or not size:
        raise fields.error(f"datatype of class {kind}, version {version}")
    name = CLASSES[kind]
    order: ByteOrder = "big" if bits & 1 else "little"
    if kind in (0, 4):
        at, precision = fields.uint(2), fields.uint(2)
        sign = "int" if kind == 0 and bits & 8 else "uint"
        whole = at == 0 and precision == 8 * size
        return Datatype(name, size, DTYPES.get(f"{sign}{8 * size}") if whole else None, order)
    if kind == 1:
        return _float(fields, bits, size)
    if kind == 2:
        fields.skip(2)
    if kind == 3:
        return Datatype(name, size, is_text=True)
    if kind == 5:
        return Datatype(name, size, tag=fields.take(bits & 0xFF).rstrip(b"\0").decode("latin-1"))
    if kind == 6:
        return _compound(fields, version, bits & 0xFFFF, size, depth)
    if kind == 8:
        return _enum(fields, version, bits & 0xFFFF, size, depth)
    if kind == 9:
        return Datatype(name, size, base=datatype(fields, depth + 1), is_text=bits & 15 == 1)
    if kind == 10:
        return _array(fields, version, size, depth)
    if kind == 11:
        base = datatype(fields, depth + 1)
        return _complex_of(base, size) or Datatype(name, size)
    return Datatype(name, size)


def _float(fields: Fields, bits: int, size: int) -> Datatype:
    at, precision = fields.uint(2), fields.uint(2)
    exponent, exponent_bits = fields.uint(1), fields.uint(1)
    mantissa, mantissa_bits, bias = fields.uint(1), fields.uint(1), fields.uint(4)
    sign = bits >> 8 & 0xFF
    layout = (size, sign, exponent, exponent_bits, mantissa, mantissa_bits, bias)
    # Bits 0 and 6 together say the byte order; both set is the VAX's.
    plain = at == 0 and precision == 8 * size and bits & 0x41 in (0, 1)
    dtype = DTYPES.get(FLOATS.get(layout, "")) if plain else None
    return Datatype("float", size, dtype, "big" if bits & 1 else "little")


def _compound(fields: Fields, version: int, count: int, size: int, depth: int) -> Datatype:
    """Read the members; only a pair of equal floats, real before imaginary, is kept."""
    members = []
    for _ in range(count):
        start = fields.at
        name = fields.text()
        if version < 3:
            fields.align(start)
        at = fields.uint(4 if version < 3 else (max(size, 1).bit_length() + 7) // 8)
        repeats = False
        if version == 1:
            repeats = fields.uint(1) > 0
            fields.skip(27)
        member = datatype(fields, depth + 1)
        if count == 2 and not repeats:
            members.append((name.lower()[:1], at, member))
    if [m[0] for m in members] == [b"r", b"i"]:
        (_, first, real), (_, second, imaginary) = members
        pair = _complex_of(real, size) if real == imaginary else None
        if pair and (first, second) == (0, real.size):
            return pair
    return Datatype("compound", size)


def _complex_of(base: Datatype, size: int) -> Datatype | None:
    name = COMPLEX.get(base.dtype.name) if base.dtype else None
    if name is None or size != 2 * base.size:
        return None
    return Datatype("complex", size, DTYPES[name], base.byteorder)


def _enum(fields: Fields, version: int, count: int, size: int, depth: int) -> Datatype:
    base = datatype(fields, depth + 1)
    names = []
    for _ in range(count):
        start = fields.at
        names.append(fields.text())
        if version < 3:
            fields.align(start)
    values = [fields.take(base.size) for _ in range(count)]
    # h5py keeps numpy's bool as an enumeration of int8.
    pairs = sorted(zip(names, values, strict=True))
    if size == 1 and pairs == [(b"FALSE", b"\0"), (b"TRUE", b"\1")]:
        return Datatype("enum", size, DTYPES["bool"])
    return Datatype("enum", size, base.dtype, base.byteorder)


def _array(fields: Fields, version: int, size: int, depth: int) -> Datatype:
    rank = fields.uint(1)
    if version < 3:
        fields.skip(3)
    shape = tuple(fields.uint(4) for _ in range(rank))
    if version < 3:
        fields.skip(4 * rank)
    base = datatype(fields, depth + 1)
    if prod(shape) * base.size != size:
        raise fields.error(f"an array type of {size} bytes has shape {list(shape)}")
    return Datatype(
        "array", size, base.dtype, base.byteorder, base.base or base, shape + base.shape
    )


class Dataspace(NamedTuple):
    """Sizes of the axes, and how far each may grow; ``shape`` is None where there are no data."""

    shape: tuple[int, ...] | None
    maximum: tuple[int, ...]


def dataspace(fields: Fields) -> Dataspace:
    """Read a dataspace message (IV.A.2.b)."""
    version, rank, flags = fields.uint(1), fields.uint(1), fields.uint(1)
    if version not in (1, 2) or rank > fields.image.limits.max_rank:
        raise fields.error(f"dataspace of version {version}, rank {rank}")
    if version == 1:
        fields.skip(5)
    elif fields.uint(1) == 2:
        return Dataspace(None, ())
    shape = tuple(fields.length() for _ in range(rank))
    maximum = tuple(fields.length() for _ in range(rank)) if flags & 1 else shape
    if prod(shape) >= 1 << 63:
        raise fields.error(f"impossible shape {list(shape)}")
    return Dataspace(shape, maximum)


class Filter(NamedTuple):
    """One step of a filter pipeline."""

    id: int
    name: str
    values: tuple[int, ...]


def filters(fields: Fields) -> tuple[Filter, ...]:
    """Read a filter pipeline message (IV.A.2.l)."""
    version, count = fields.uint(1), fields.uint(1)
    if version not in (1, 2) or count > MAX_FILTERS:
        raise fields.error(f"filter pipeline of version {version} with {count} filters")
    if version == 1:
        fields.skip(6)
    pipeline = []
    for _ in range(count):
        number = fields.uint(2)
        name_length = fields.uint(2) if version == 1 or number >= 256 else 0
        fields.skip(2)
        value_count = fields.uint(2)
        start = fields.at
        name = fields.take(name_length).split(b"\0")[0].decode("latin-1")
        if version == 1:
            fields.align(start)
        values = tuple(fields.uint(4) for _ in range(value_count))
        if version == 1 and value_count % 2 and fields.left:
            fields.skip(4)
        pipeline.append(Filter(number, name, values))
    return tuple(pipeline)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a dataset's elements are stored.

    Attributes:
        kind: ``compact``, ``contiguous``, ``chunked`` or ``virtual``.
        address: Of the data, or of the chunk index.
        data: The elements of a compact dataset.
        size: Bytes of a contiguous dataset, where recorded.
        chunk: Shape of a chunk.
        plain_edges: Whether chunks that reach over the edge are stored unfiltered.
        index: Chunk index: 0 for a version 1 B-tree, else the number of IV.A.2.i.
        parameters: Stored size and filter mask of a filtered single chunk.
    """

    kind: str
    address: int = 0
    data: bytes = b""
    size: int | None = None
    chunk: tuple[int, ...] = ()
    plain_edges: bool = False
    index: int = 0
    parameters: tuple[int, ...] = ()


def layout(fields: Fields) -> Layout:
    """Read a data layout message (IV.A.2.i)."""
    version = fields.uint(1)
    if version in (1, 2):
        return _old_layout(fields)
    if version not in (3, 4, 5):
        raise fields.error(f"data layout of version {version}")
    kind = fields.uint(1)
    if kind == 0:
        return Layout("compact", data=fields.take(fields.uint(2)))
    if kind == 1:
        return Layout("contiguous", fields.offset(), size=fields.length())
    if kind == 3:
        return Layout("virtual")
    if kind != 2:
        raise fields.error(f"data layout of class {kind}")
    if version == 3:
        rank = _chunk_rank(fields)
        address = fields.offset()
        return Layout("chunked", address, chunk=tuple(fields.uint(4) for _ in range(rank - 1)))
    flags, rank, width = fields.uint(1), _chunk_rank(fields), fields.uint(1)
    chunk = tuple(fields.uint(width) for _ in range(rank))[:-1]
    index = fields.uint(1)
    parameters: tuple[int, ...] = ()
    if index == 1 and flags & 2:
        parameters = (fields.length(), fields.uint(4))
    elif index == 3:
        fields.skip(1)
    elif index == 4:
        fields.skip(5)
    elif index == 5:
        fields.skip(6)
    elif index not in (1, 2):
        raise fields.error(f"chunk index of type {index}")
    return Layout(
        "chunked",
        fields.offset(),
        chunk=chunk,
        plain_edges=bool(flags & 1),
        index=index,
        parameters=parameters,
    )


def _old_layout(fields: Fields) -> Layout:
    rank, kind = fields.uint(1), fields.uint(1)
    fields.skip(5)
    if rank > fields.image.limits.max_rank + 1 or kind > 2:
        raise fields.error(f"data layout of class {kind}, rank {rank}")
    address = fields.offset() if kind else 0
    sizes = tuple(fields.uint(4) for _ in range(rank))
    if kind == 0:
        return Layout("compact", data=fields.take(fields.uint(4)))
    if kind == 1:
        return Layout("contiguous", address)
    return Layout("chunked", address, chunk=sizes[:-1])


def _chunk_rank(fields: Fields) -> int:
    """Return the rank of a chunk, which counts the bytes of an element as an axis."""
    rank = fields.uint(1)
    if not 1 <= rank <= fields.image.limits.max_rank + 1:
        raise fields.error(f"chunks of rank {rank}")
    return rank


def fill_value(fields: Fields) -> bytes:
    """Read a fill value message (IV.A.2.g): the bytes of one element, or none for zeros."""
    version = fields.uint(1)
    if version == 3:
        flags = fields.uint(1)
        return fields.take(fields.uint(4)) if flags & 0x20 else b""
    if version not in (1, 2):
        raise fields.error(f"fill value of version {version}")
    fields.skip(2)
    return fields.take(fields.uint(4)) if fields.uint(1) else b""


def old_fill_value(fields: Fields) -> bytes:
    """Read a fill value message of the old kind (IV.A.2.f)."""
    return fields.take(fields.uint(4))


@dataclass(frozen=True, slots=True)
class Attribute:
    """A small value beside an object, not decoded yet."""

    datatype: Datatype
    shape: tuple[int, ...] | None
    data: bytes = field(repr=False)

    def __len__(self) -> int:
        """Return the number of elements."""
        return 0 if self.shape is None else prod(self.shape)

    def elements(self) -> Iterator[bytes]:
        """Yield the stored bytes of each element."""
        size = self.datatype.size
        for at in range(0, len(self) * size, size):
            yield self.data[at : at + size]


# struct's letters for what an attribute may hold; other numbers are kept as bytes.
LETTERS = {
    "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i",
    "uint32": "I", "int64": "q", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip


def numbers(attribute: Attribute) -> list[int | float | bool] | None:
    """Return the elements of a numeric attribute, or None for any other."""
    kind = attribute.datatype
    if kind.dtype is None or kind.dtype.name not in LETTERS or kind.kind == "array":
        return None
    order = ">" if kind.byteorder == "big" else "<"
    return list(struct.unpack(f"{order}{len(attribute)}{LETTERS[kind.dtype.name]}", attribute.data))
