"""ONNX's tensors: its data types, and TensorProto inline, typed or in another file.

Spec: https://github.com/onnx/onnx/blob/v1.23.0/onnx/onnx.proto, .../docs/ExternalData.md
Sub-byte types are packed from the low bits up, as they are here.
"""

from collections.abc import Callable, Mapping
from math import prod

from formats.containers.protobuf.messages import Message
from formats.containers.protobuf.packed import Packed
from formats.core.storage import File, Span
from formats.core.strings import Strings
from formats.core.weights import DTYPES, Tensor
from formats.errors import CorruptError, SourceError, UnsupportedError

STRING, EXTERNAL = 8, 1

_COUNTED = 1 << 16  # bytes of varints that are counted at once
_MOST_AXES = 64

# fmt: off
_TYPES: Mapping[int, tuple[str, str]] = {  # TensorProto.DataType → our dtype, field of typed data
    1:  ("float32",         "float_data"),
    2:  ("uint8",           "int32_data"),
    3:  ("int8",            "int32_data"),
    4:  ("uint16",          "int32_data"),
    5:  ("int16",           "int32_data"),
    6:  ("int32",           "int32_data"),
    7:  ("int64",           "int64_data"),
    9:  ("bool",            "int32_data"),
    10: ("float16",         "int32_data"),
    11: ("float64",         "double_data"),
    12: ("uint32",          "uint64_data"),
    13: ("uint64",          "uint64_data"),
    14: ("complex64",       "float_data"),
    15: ("complex128",      "double_data"),
    16: ("bfloat16",        "int32_data"),
    17: ("float8_e4m3fn",   "int32_data"),
    18: ("float8_e4m3fnuz", "int32_data"),
    19: ("float8_e5m2",     "int32_data"),
    20: ("float8_e5m2fnuz", "int32_data"),
    21: ("uint4",           "int32_data"),  # each number holds a byte of packed elements
    22: ("int4",            "int32_data"),
    23: ("float4_e2m1fn",   "int32_data"),
    24: ("float8_e8m0fnu",  "int32_data"),
    25: ("uint2",           "int32_data"),
    26: ("int2",            "int32_data"),
    27: ("float6_e2m3fn",   "int32_data"),
    28: ("float6_e3m2fn",   "int32_data"),
}
# fmt: on


def element_name(number: int) -> str:
    """Return what we call an element type."""
    return "string" if number == STRING else _TYPES.get(number, (f"type {number}",))[0]


def shape_of(proto: Message, where: str) -> tuple[int, ...]:
    """Return the sizes of a tensor's axes.

    Raises:
        CorruptError: No tensor can have them.
    """
    dims = tuple(proto.dims)
    if any(n < 0 for n in dims) or len(dims) > _MOST_AXES or prod(dims) >= 1 << 63:
        raise CorruptError(f"a tensor has the shape {list(dims)[:_MOST_AXES]}", where=where)
    return dims


def from_proto(proto: Message, origin: str, member: Callable[[str], File]) -> Tensor | Strings:
    """Return a TensorProto's tensor; its numbers stay where they are.

    Args:
        proto: As decoded.
        origin: As `Tensor.origin`.
        member: Opens a file that the model names.

    Raises:
        CorruptError: Its shape and its data contradict each other.
        SafetyError: It is in a file outside of the model's folder.
        SourceError: It is in a file that is not there.
        UnsupportedError: It is of an unknown type, or one segment of several.
    """
    shape = shape_of(proto, origin)
    if proto.has("segment"):
        raise UnsupportedError("a tensor in segments", where=origin)
    if proto.data_type == STRING:
        if len(proto.string_data) != prod(shape):
            raise CorruptError(
                f"{len(proto.string_data)} strings for shape {list(shape)}", where=origin
            )
        return Strings.of(shape, proto.string_data, origin=origin)
    if proto.data_type not in _TYPES:
        raise UnsupportedError(f"a tensor of data type {proto.data_type}", where=origin)
    name, field_name = _TYPES[proto.data_type]
    dtype = DTYPES[name]
    nbytes = dtype.nbytes(prod(shape))
    if proto.data_location == EXTERNAL:
        return Tensor.contiguous(
            dtype, shape, _external(proto, nbytes, origin, member), origin=origin
        )
    values: Packed = getattr(proto, field_name)
    if proto.has("raw_data") and (proto.raw_data.length or not values):
        return Tensor.contiguous(dtype, shape, proto.raw_data, origin=origin)
    width = dtype.itemsize // dtype.parts
    if dtype.bits == 6:
        raise UnsupportedError(f"a tensor of {dtype} that is not raw", where=origin)
    found = values.nbytes if values.width else _encoded_bytes(values, width, nbytes)
    if found != nbytes:
        raise CorruptError(
            f"{dtype}{list(shape)} takes {nbytes} bytes, but its {field_name} makes {found}",
            where=origin,
        )
    if values.span is not None:
        return Tensor.contiguous(dtype, shape, values.span, origin=origin)
    return Tensor.computed(dtype, shape, lambda: values.little_endian(width), origin=origin)


def _encoded_bytes(values: Packed, width: int, nbytes: int) -> int:
    """Return how many bytes varints stand for; of many, only whether it can be ``nbytes``.

    Counting means reading them all. Weights are counted later, when their bytes are read.
    """
    if values.nbytes <= _COUNTED or not nbytes // width <= values.nbytes <= 10 * nbytes // width:
        return len(values) * width
    return nbytes


def _external(proto: Message, nbytes: int, origin: str, member: Callable[[str], File]) -> Span:
    """Return the run of another file that a tensor is."""
    entries = {e.key: e.value for e in proto.external_data}
    location = entries.get("location", "")
    if not location or location.startswith("*/"):
        raise UnsupportedError(
            f"external data at {location!r}", expected="the name of a file", where=origin
        )
    numbers = {}
    for key, default in (("offset", 0), ("length", nbytes)):
        text = entries.get(key) or str(default)
        if not (text.isascii() and text.isdigit()) or len(text) > 19:
            raise CorruptError(f"external data with {key} {text[:40]!r}", where=origin)
        numbers[key] = int(text)
    if numbers["length"] != nbytes:
        raise CorruptError(
            f"external data of {numbers['length']} bytes for a tensor of {nbytes}", where=origin
        )
    try:
        file = member(location)
    except SourceError as e:
        raise SourceError(
            f"tensor {origin!r} is in {location!r}, which is not there",
            hint="Fetch the external data too, and keep it beside the model",
        ) from e
    return Span.whole(file).sub(numbers["offset"], nbytes)
