"""TensorFlow's tensors: its data types, and TensorProto in all its encodings, left in the file.

Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/framework/tensor.proto
A constant is raw bytes (``tensor_content``) or a list of values whose last one stands for all that
are missing. Sub-byte integers take a byte each in TensorFlow and are packed here.
"""

from collections.abc import Callable, Iterator
from functools import partial
from math import prod

from formats.containers.protobuf.messages import Message
from formats.containers.protobuf.packed import Packed, varint
from formats.core.storage import Span
from formats.core.strings import Strings
from formats.core.weights import CHUNK, DTYPES, ByteOrder, DType, Tensor, split
from formats.errors import CorruptError, LimitError, UnsupportedError
from formats.tensorflow.schemas import ENUMS

STRING, RESOURCE, VARIANT = 7, 20, 21
MOST_STRINGS = 10_000_000  # their lengths are held in memory

# fmt: off
_TYPES: dict[int, tuple[str, str]] = {  # DataType → our dtype, field of TensorProto
    1:  ("float32",            "float_val"),
    2:  ("float64",            "double_val"),
    3:  ("int32",              "int_val"),
    4:  ("uint8",              "int_val"),
    5:  ("int16",              "int_val"),
    6:  ("int8",               "int_val"),
    8:  ("complex64",          "scomplex_val"),
    9:  ("int64",              "int64_val"),
    10: ("bool",               "bool_val"),
    11: ("int8",               "int_val"),    # qint8
    12: ("uint8",              "int_val"),    # quint8
    13: ("int32",              "int_val"),    # qint32
    14: ("bfloat16",           "half_val"),
    15: ("int16",              "int_val"),    # qint16
    16: ("uint16",             "int_val"),    # quint16
    17: ("uint16",             "int_val"),
    18: ("complex128",         "dcomplex_val"),
    19: ("float16",            "half_val"),
    22: ("uint32",             "uint32_val"),
    23: ("uint64",             "uint64_val"),
    24: ("float8_e5m2",        "float8_val"),
    25: ("float8_e4m3fn",      "float8_val"),
    26: ("float8_e4m3fnuz",    "float8_val"),
    27: ("float8_e4m3b11fnuz", "float8_val"),
    28: ("float8_e5m2fnuz",    "float8_val"),
    29: ("int4",               "int_val"),
    30: ("uint4",              "int_val"),
    31: ("int2",               "int_val"),
    32: ("uint2",              "int_val"),
    33: ("float4_e2m1fn",      "float8_val"),
}
# fmt: on


def base_type(number: int) -> int:
    """Return a data type without the mark of TF 1's reference edges."""
    return number - 100 if number > 100 else number


def type_name(number: int) -> str:
    """Return what TensorFlow calls a data type: ``float32``, ``qint8``, ``string``."""
    name = ENUMS["DataType"].get(base_type(number), f"DT_{number}").removeprefix("DT_").lower()
    return {"float": "float32", "double": "float64", "half": "float16"}.get(name, name)


def is_numeric(number: int) -> bool:
    """Return whether tensors of a data type hold numbers."""
    return base_type(number) in _TYPES


def is_quantised(number: int) -> bool:
    """Return whether a data type is one of TensorFlow's own quantised integers."""
    return 11 <= base_type(number) <= 16 and base_type(number) != 14


def dtype_of(number: int, where: str) -> DType:
    """Return our dtype.

    Raises:
        UnsupportedError: It holds no numbers that we know.
    """
    number = base_type(number)
    if number not in _TYPES:
        raise UnsupportedError(f"a tensor of type {type_name(number)}", where=where)
    return DTYPES[_TYPES[number][0]]


def shape_of(proto: Message, where: str, max_rank: int = 64) -> tuple[int, ...]:
    """Return a fully known shape.

    Raises:
        CorruptError: It is not fully known.
    """
    dims = proto.dim
    if proto.unknown_rank or len(dims) > max_rank:
        raise CorruptError("a stored tensor has no usable rank", where=where)
    shape = tuple(d.size for d in dims)
    if any(n < 0 for n in shape) or prod(shape) >= 1 << 63:
        raise CorruptError(f"a stored tensor has the shape {list(shape)}", where=where)
    return shape


def raw(
    number: int, shape: tuple[int, ...], span: Span, *, origin: str, byteorder: ByteOrder = "little"
) -> Tensor:
    """Return the tensor whose elements fill ``span`` as TensorFlow lays them out in memory.

    Raises:
        CorruptError: ``span`` is of another length.
    """
    dtype = dtype_of(number, origin)
    if dtype.bits >= 8:
        return Tensor.contiguous(dtype, shape, span, byteorder=byteorder, origin=origin)
    if span.length != prod(shape):
        raise CorruptError(
            f"{dtype}{list(shape)} takes {prod(shape)} bytes, but {span.length} are stored",
            where=origin,
        )
    return Tensor.computed(dtype, shape, lambda: pack(split(span), dtype.bits), origin=origin)


def from_proto(proto: Message, origin: str) -> Tensor | Strings:
    """Return a TensorProto's tensor; numbers stay where they are.

    Raises:
        CorruptError: Shape and content contradict each other.
        UnsupportedError: It is a handle of a resource, or a variant.
    """
    return from_values(proto, proto.dtype, shape_of(proto.tensor_shape, origin), origin)


def from_values(
    proto: Message, number: int, shape: tuple[int, ...], origin: str
) -> Tensor | Strings:
    """Return the tensor of this type and shape whose values a TensorProto holds.

    Raises:
        CorruptError: Shape and content contradict each other.
        UnsupportedError: It is a handle of a resource, or a variant.
    """
    number = base_type(number)
    count = prod(shape)
    content: Span | None = proto.tensor_content if proto.has("tensor_content") else None
    if content is not None and not content.length:
        content = None
    if number == STRING:
        if content is not None:
            lengths, start = read_string_lengths(content, count, origin)
            return Strings.stored(
                shape, lengths, content.sub(start, content.length - start), origin=origin
            )
        return Strings.of(shape, proto.string_val[:count], origin=origin)
    dtype = dtype_of(number, origin)
    if content is not None:
        return raw(number, shape, content, origin=origin)
    values = getattr(proto, _TYPES[number][1])
    walk: Callable[[], Iterator[bytes]]
    if isinstance(values, Span):  # one byte an element
        if values.length == count:
            return raw(number, shape, values, origin=origin)
        walk = partial(split, values)
    elif isinstance(values, Packed):
        if values.span is not None and values.nbytes == dtype.nbytes(count):
            return Tensor.contiguous(dtype, shape, values.span, origin=origin)
        width = dtype.itemsize // dtype.parts
        walk = partial(values.little_endian, width)
    else:  # the default of bytes: no values at all
        walk = partial(iter, ())

    def make() -> Iterator[bytes]:
        filled = _fill(walk(), dtype.itemsize, count, origin)
        return pack(filled, dtype.bits) if dtype.bits < 8 else filled

    return Tensor.computed(dtype, shape, make, origin=origin)


def read_string_lengths(span: Span, count: int, where: str) -> tuple[list[int], int]:
    """Return the ``count`` varint lengths that ``span`` begins with, and where they end.

    Raises:
        CorruptError: There are fewer.
        LimitError: There are too many.
    """
    if count > span.length:
        raise CorruptError(f"{count} strings in {span.length} bytes", where=where)
    if count > MOST_STRINGS:
        raise LimitError(f"{count} strings", expected=f"at most {MOST_STRINGS}", where=where)
    lengths: list[int] = []
    base, data, at = 0, b"", 0
    while len(lengths) < count:
        if at + 10 > len(data) and base + len(data) < span.length:
            base, at = base + at, 0
            data = span.read(base, min(CHUNK, span.length - base))
            run = data[: count - len(lengths)]
            if run.isascii():  # each is a length of its own
                lengths += run
                at = len(run)
                continue
        try:
            length, at = varint(data, at)
        except (IndexError, ValueError) as e:
            raise CorruptError("the lengths of strings end early", where=where) from e
        lengths.append(length)
    return lengths, base + at


def pack(chunks: Iterator[bytes], bits: int) -> Iterator[bytes]:
    """Yield elements of a byte each, packed from the low bits up."""
    per_byte = 8 // bits
    rest = b""
    for chunk in chunks:
        data = rest + chunk
        whole = len(data) - len(data) % per_byte
        rest = data[whole:]
        if whole:
            yield _pack(data[:whole], bits)
    if rest:
        yield _pack(rest + bytes(per_byte - len(rest)), bits)


def _pack(data: bytes, bits: int) -> bytes:
    per_byte = 8 // bits
    size = len(data) // per_byte
    mask = int.from_bytes(bytes([(1 << bits) - 1]) * size, "little")
    number = 0
    for i in range(per_byte):
        number |= (int.from_bytes(data[i::per_byte], "little") & mask) << (bits * i)
    return number.to_bytes(size, "little")


def _fill(chunks: Iterator[bytes], width: int, count: int, where: str) -> Iterator[bytes]:
    """Yield ``count`` elements of ``width`` bytes: those there are, then the last one again."""
    total, left = 0, count * width
    last = bytes(width)
    for chunk in chunks:
        total += len(chunk)
        last = (last + chunk)[-width:]
        part = chunk[:left]
        left -= len(part)
        yield part
    if total % width:
        raise CorruptError("the values of a complex tensor are not in pairs", where=where)
    block = last * (min(left, CHUNK) // width)
    while left:
        part = block[:left]
        left -= len(part)
        yield part
