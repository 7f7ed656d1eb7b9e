"""Marshalled values, and bytes that mean harm."""

import marshal
import struct
import time
from contextlib import suppress

import pytest

from formats.errors import ConvertError, CorruptError, LimitError
from formats.python_bytecode import decoder as python_code
from formats.python_bytecode.marshal import (
    PYTHON_2,
    PYTHON_3,
    PYTHON_3_8,
    PYTHON_3_11,
    CodeRecord,
    load,
)

LAYOUTS = (PYTHON_2, PYTHON_3, PYTHON_3_8, PYTHON_3_11)
VALUES = [
    None,
    True,
    ...,
    0,
    -1,
    2**31 - 1,
    -(2**31),
    2**31,
    -(2**100) + 12345,
    0.5,
    float("inf"),
    1.5 - 2j,
    "ascii",
    "a" * 300,
    "\xe9\u20ac",
    "\ud800",
    b"bytes\xff",
    (),
    (1, ("two", None), (3.0,)),
    tuple(range(300)),
    frozenset((1, "two")),
]


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_values(version: int) -> None:
    """Those of every version of the format, which wrote numbers as text at first."""
    for value in VALUES:
        read = load(marshal.dumps(value, version), PYTHON_3)
        assert read == value
        assert type(read) is type(value)


def test_references() -> None:
    """What is shared in a value is written once."""
    shared = ("shared", 1.5)
    value = (shared, shared, ("shared", shared))
    assert load(marshal.dumps(value), PYTHON_3) == value


def test_strings_of_python_2() -> None:
    """They are text where they can be nothing else; interned ones are counted for themselves."""
    data = b"(\x05\0\0\0" + b"t\x01\0\0\0a" + b"s\x01\0\0\0b" + b"t\x01\0\0\0c"
    data += b"R\x01\0\0\0" + b"s\x01\0\0\0\xff"
    assert load(data, PYTHON_2) == ("a", "b", "c", "c", b"\xff")
    assert load(b"u\x02\0\0\0\xc3\xa9", PYTHON_2) == "\xe9"
    assert load(b"I" + struct.pack("<q", -(2**40)), PYTHON_2) == -(2**40)


def test_code() -> None:
    def outside(a: int, *b: int, c: int = 1, **d: int) -> object:
        e = a

        def inside() -> tuple[object, ...]:
            return (a, b, c, d, e)

        return inside

    code = outside.__code__
    record = load(marshal.dumps(code), PYTHON_3_11)
    assert isinstance(record, CodeRecord)
    assert record.code == code.co_code
    assert (record.names, record.locals) == (code.co_names, code.co_varnames)
    assert (record.cells, record.free) == (code.co_cellvars, code.co_freevars)
    assert (record.argcount, record.keyword_only) == (1, 1)
    assert (record.name, record.line, record.flags) == (
        "outside",
        code.co_firstlineno,
        code.co_flags,
    )
    assert record.stacksize == code.co_stacksize
    (inside,) = (part for part in record.constants if isinstance(part, CodeRecord))
    assert inside.free == ("a", "b", "c", "d", "e")


def test_code_is_no_part_of_a_constant() -> None:
    """It is a constant of its own, where a function is made of it."""
    code = (lambda x: ("here", x)).__code__
    hidden = ("here", (lambda: None).__code__)
    for constant in (hidden, (1, hidden), frozenset((hidden,))):
        data = marshal.dumps(code.replace(co_consts=(None, constant)), 2)
        with pytest.raises(CorruptError, match="constants"):
            load(data, PYTHON_3_11)
    load(marshal.dumps(code.replace(co_consts=(None, hidden[1])), 2), PYTHON_3_11)


def _tuples(depth: int, kind: bytes = b")\x01") -> bytes:
    return kind * depth + b"N"


def _doubling(depth: int) -> bytes:
    """Return a tuple that holds one twice that holds one twice, and so on."""
    data = b"\xa9\x02NN"
    for at in range(depth):
        data = b"\xa9\x02" + data + b"r" + struct.pack("<i", depth - at)
    return data


# fmt: off
HOSTILE = [
    (_tuples(100_000), LimitError),
    (_tuples(100_000, b"(\x01\0\0\0"), LimitError),
    (b"(\xff\xff\xff\x7f", CorruptError),                        # a count that is not there
    (b"(\xff\xff\xff\xff", CorruptError),                        # a negative one
    (b"s\xff\xff\xff\x7fa", CorruptError),
    (b"l\xff\xff\xff\x7f", LimitError),
    (b"l\x01\0\0\0\xff\xff", CorruptError),                      # a digit of 16 bits
    (b"r\0\0\0\0", CorruptError),
    (b"r\xff\xff\xff\xff", CorruptError),
    (b"\xa9\x01r\0\0\0\0", CorruptError),                        # a tuple inside itself
    (b"R\0\0\0\0", CorruptError),
    (_doubling(40), LimitError),                                 # 2 ** 40 values to a reader
    (b">" + struct.pack("<i", 3000) + b"N" * 3000, LimitError),
    (b"[\0\0\0\0", CorruptError),                                # lists are no constants
    (b"{0", CorruptError),
    (b"f\x03abc", CorruptError),
    (b"f\x00", CorruptError),
    (b"z\x01\xff", CorruptError),
    (b"u\x01\0\0\0\xff", CorruptError),
    (b"NN", CorruptError),                                       # more than one value
    (b"", CorruptError),
    (b"c" + b"\0" * 200, CorruptError),
    (b"N" * (1 << 21), LimitError),
]
# fmt: on


@pytest.mark.parametrize("row", HOSTILE, ids=[str(row[0][:12]) for row in HOSTILE])
def test_hostile_bytes(row: tuple[bytes, type[ConvertError]]) -> None:
    data, error = row
    start = time.process_time()
    with pytest.raises(error):
        load(data, PYTHON_3)
    for layout in LAYOUTS:
        with suppress(ConvertError):  # a number of Python 2's may be sound
            load(data, layout)
    with pytest.raises(ConvertError):
        python_code.read(data)
    assert time.process_time() - start < 5


def _damaged() -> list[bytes]:
    def function(x: list[int], n: int = 3) -> object:
        total = [v + n for v in x if v > 1]
        for v in total:
            if v > 5:
                break
        return max(total, key=lambda v: v + n), f"{x!r:>{n}}"

    data = marshal.dumps(function.__code__)
    cut = [data[:at] for at in range(0, len(data), 11)]
    turned = [
        data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
        for at in range(0, len(data), 2)
        for bit in (1 << at % 8,)
    ]
    return cut + turned


def test_damaged_code_is_named_as_such() -> None:
    """Cut at every byte, and with bits of every byte turned: an error of ours, or a function."""
    read = 0
    for data in _damaged():
        try:
            assert isinstance(python_code.read(data), python_code.Code)
        except ConvertError:
            continue
        read += 1
    assert 0 < read < len(_damaged()) / 2
