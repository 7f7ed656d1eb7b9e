"""Our wire decoder against Google's, and against messages that lie.

Google's parser comes with the onnx package; its messages here are onnx's own and Struct, which has
oneofs, maps and recursion.
"""

import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.containers.protobuf import packed, wire
from formats.containers.protobuf.messages import Message, Schema, decode, decode_bytes
from formats.containers.protobuf.packed import Packed
from formats.core.storage import Buffer, Span
from formats.errors import ConvertError, CorruptError, LimitError
from formats.limits import DEFAULT, Limits
from formats.onnx import schemas as onnx_protos

SCHEMA = Schema(
    {
        "All": {
            1: "i32 int32", 2: "i64 int64", 3: "u32 uint32", 4: "u64 uint64", 5: "s32 sint32",
            6: "s64 sint64", 7: "flag bool", 8: "kind Kind", 9: "f float", 10: "d double",
            11: "x32 fixed32", 12: "x64 fixed64", 13: "text string", 14: "data bytes",
            15: "inner All", 16: "many All*", 17: "numbers int32*", 18: "lazy int64*~",
            19: "floats float*~", 20: "blob bytes~", 21: "texts string*",
            22: "by_name map string All", 23: "by_number map int32 string",
            24: "a int32 (which)", 25: "b string (which)", 26: "halves float*", 27: "near float*~",
        },
    },
    {"Kind": {0: "NONE", 1: "ONE"}},
)  # fmt: skip
ALL = SCHEMA["All"]


def number(n):
    return bytes([n & 127 | 128]) + number(n >> 7) if n > 127 else bytes([n])


def tag(field, wire_type):
    return number(field << 3 | wire_type)


def run(field, content):
    return tag(field, 2) + number(len(content)) + content


def parsed(data, limits=DEFAULT):
    return decode_bytes(data, ALL, limits, "test")


def plain(message):
    """Return everything that is present, as dicts and lists; decodes all of it."""
    found = {}
    for name, value in message.present().items():
        if isinstance(value, Message):
            found[name] = plain(value)
        elif isinstance(value, dict):
            found[name] = {k: plain(v) if isinstance(v, Message) else v for k, v in value.items()}
        elif isinstance(value, list | Packed):
            found[name] = [plain(v) if isinstance(v, Message) else v for v in value]
        elif isinstance(value, Span):
            found[name] = value.read()
        else:
            found[name] = value
    return found


@pytest.mark.parametrize(
    ("data", "name", "value"),
    [
        (tag(1, 0) + number(5), "i32", 5),
        (tag(1, 0) + number((1 << 64) - 1), "i32", -1),  # negative: ten bytes
        (tag(1, 0) + number((1 << 32) - 1), "i32", -1),
        (tag(2, 0) + number(1 << 63), "i64", -(1 << 63)),
        (tag(3, 0) + number((1 << 32) - 1), "u32", (1 << 32) - 1),
        (tag(4, 0) + number((1 << 64) - 1), "u64", (1 << 64) - 1),
        (tag(5, 0) + number(3), "s32", -2),
        (tag(6, 0) + number((1 << 64) - 1), "s64", -(1 << 63)),
        (tag(7, 0) + number(2), "flag", True),
        (tag(8, 0) + number(9), "kind", 9),  # enums are open
        (tag(9, 5) + b"\0\0\x80\x3f", "f", 1.0),
        (tag(10, 1) + bytes(6) + b"\xf0\x3f", "d", 1.0),
        (tag(11, 5) + b"\xff\xff\xff\xff", "x32", (1 << 32) - 1),
        (tag(13, 2) + b"\x03a\xffb", "text", "a\\xffb"),
        (run(14, b"\0\1"), "data", b"\0\1"),
        (tag(1, 0) + b"\x85\x80\x00", "i32", 5),  # overlong, and valid
        (tag(1, 0) + number(1) + tag(1, 0) + number(2), "i32", 2),  # the last one counts
        (
            tag(17, 0) + number(1) + run(17, b"\2\3") + tag(17, 0) + number(4),
            "numbers",
            [1, 2, 3, 4],
        ),
        (run(26, b"\0\0\x80\x3f" * 2) + tag(26, 5) + b"\0\0\0\x40", "halves", [1.0, 1.0, 2.0]),
        (run(21, b"x") + run(21, b"y"), "texts", ["x", "y"]),
        (run(23, tag(1, 0) + b"\7" + run(2, b"seven")), "by_number", {7: "seven"}),
        (run(23, b""), "by_number", {0: ""}),
    ],
)
def test_fields(data, name, value):
    assert getattr(parsed(data), name) == value


def test_defaults_and_presence():
    message = parsed(b"")
    assert (message.i32, message.text, message.data, message.flag, message.f) == (
        0,
        "",
        b"",
        False,
        0,
    )
    assert message.numbers == ()
    assert not message.by_name
    assert len(message.lazy) == 0
    assert message.inner.inner.text == ""
    assert message.which("which") is None
    assert not message.has("inner")
    assert parsed(tag(1, 0) + b"\0").has("i32")
    with pytest.raises(AttributeError, match="no field 'nonsense'"):
        _ = message.nonsense


def test_oneof_keeps_the_last():
    message = parsed(tag(24, 0) + b"\5" + run(25, b"x"))
    assert message.which("which") == "b"
    assert message.a == 0


def test_parts_of_a_message_are_merged():
    first = run(15, tag(1, 0) + b"\1" + run(21, b"x") + run(15, tag(2, 0) + b"\2"))
    second = run(15, tag(1, 0) + b"\3" + run(21, b"y") + run(15, tag(3, 0) + b"\4"))
    inner = parsed(first + second).inner
    assert plain(inner) == {"i32": 3, "texts": ["x", "y"], "inner": {"i64": 2, "u32": 4}}


def test_maps_of_messages():
    entries = [
        run(1, b"k") + run(2, tag(1, 0) + b"\5"),
        run(2, b"") + run(1, b"late"),
        run(1, b"only"),
    ]
    message = parsed(b"".join(run(22, e) for e in entries))
    assert {k: v.i32 for k, v in message.by_name.items()} == {"k": 5, "late": 0, "only": 0}


def test_blobs_and_numbers_stay_where_they_are():
    data = run(20, b"abc") + run(19, bytes(8)) + run(18, number(1) + number((1 << 64) - 1))
    buffer = Buffer(b"xx" + data + b"yy", "b")
    message = decode(Span(buffer, 2, len(data)), ALL, DEFAULT)
    assert message.blob == Span(buffer, 5, 3)
    assert message.floats.span == Span(buffer, 11, 8)
    assert list(message.lazy) == [1, -1]
    assert len(message.lazy) == 2


def test_unpacked_numbers_are_taken_in_runs():
    one, two = tag(19, 5) + b"\0\0\x80\x3f", tag(27, 5) + b"\0\0\0\x40"
    inner = one * 10_000 + tag(1, 0) + b"\5" + one * 3 + two * 5
    # What follows the message looks like more of it.
    message = parsed(run(16, inner) + one * 7, Limits(max_values=50))
    assert len(message.many[0].floats) == 10_003
    assert list(message.many[0].near) == [2.0] * 5
    assert message.many[0].i32 == 5
    assert list(message.floats) == [1.0] * 7
    with pytest.raises(CorruptError):
        parsed(one * 3 + one[:-1]).has("floats")
    numbers = b"".join(tag(18, 0) + number(n) for n in range(1000))
    assert parsed(numbers, Limits(max_values=250)).lazy == list(range(1000))
    with pytest.raises(LimitError):
        parsed(numbers, Limits(max_values=249)).has("lazy")


def test_unknown_fields_and_groups_are_skipped_and_counted():
    group = tag(99, 3) + tag(1, 0) + b"\1" + tag(98, 3) + run(5, b"abc") + tag(98, 4) + tag(99, 4)
    others = tag(90, 0) + b"\1" + tag(91, 1) + bytes(8) + run(92, b"zz") + tag(93, 5) + bytes(4)
    message = parsed(group + others + tag(1, 5) + bytes(4) + tag(2, 0) + b"\7")
    window = message._window
    assert message.i64 == 7
    assert not message.has("i32")  # its number with another wire type is another field
    assert window.context.unknown == 6


@pytest.mark.parametrize(
    "data",
    [
        tag(1, 0),
        tag(1, 0) + b"\x80",
        tag(1, 0) + b"\x80" * 11 + b"\1",
        tag(9, 5) + b"\0\0",
        tag(13, 2),
        tag(13, 2) + b"\5abc",
        tag(13, 2) + number((1 << 63) + 5) + b"abc",
        tag(15, 2) + b"\5",
        b"\0\0",
        tag(1, 6),
        tag(1, 7),
        tag(1, 4),
        tag(90, 3) + tag(91, 4),
        tag(90, 3),
        (tag(90, 3)) * 200,
        tag(90, 1) + b"\0",
        tag(90, 2) + b"\x7f",
        run(17, b"\x80"),
        run(26, b"\0\0\0"),
        b"\x80" * 20,
    ],
)
def test_lies_are_corrupt(data):
    with pytest.raises(CorruptError):
        plain(parsed(data))


def test_cut_numbers_are_corrupt_when_walked():
    for data in (run(18, b"\1\x80"), run(18, b"\x80" * 12 + b"\1"), run(19, b"\0\0\0")):
        message = parsed(data)
        with pytest.raises(CorruptError):
            list(message.lazy or message.floats)


def test_one_pass_over_many_messages_forgets_them():
    data = run(16, run(21, b"x") * 50) * 20
    message = parsed(data, Limits(max_values=200))  # each message counts as five
    kept = []
    for child in message.each("many"):
        assert child.texts == ["x"] * 50
        kept.append(child)
    assert kept[3].texts == ["x"] * 50  # decoded again
    with pytest.raises(LimitError):
        assert [c.texts for c in kept]


def test_depth_count_and_size_are_limits():
    deep = b""
    for _ in range(250):
        deep = run(15, deep)
    with pytest.raises(LimitError, match="deeper"):
        plain(parsed(deep))
    with pytest.raises(LimitError, match="more than 100"):
        parsed(run(16, b"") * 101, Limits(max_values=100)).has("many")
    with pytest.raises(LimitError, match="more than 100"):
        parsed((tag(24, 0) + b"\1" + run(25, b"")) * 200, Limits(max_values=100)).has("a")
    with pytest.raises(LimitError):
        parsed(b"\0" * 11, Limits(max_message_bytes=10))


def test_merging_nested_parts_is_no_exponential_work():
    data = b""
    for _ in range(45):
        data = run(15, data) + run(15, b"")
    assert plain(parsed(data))
    for _ in range(60):
        data = run(15, data) + run(15, data[:0] + run(15, b""))
    with pytest.raises(LimitError):
        plain(parsed(data))


class Sparse:
    """A large storage of which only few bytes are not zero; it counts what is read."""

    name = "sparse"

    def __init__(self, parts, size):
        self.parts, self.size, self.touched = parts, size, 0

    def read(self, offset, length):
        assert offset + length <= self.size
        self.touched += length
        out = bytearray(length)
        for start, data in self.parts:
            a, b = max(start, offset), min(start + len(data), offset + length)
            if a < b:
                out[a - offset : b - offset] = data[a - start : b - start]
        return bytes(out)


def test_a_file_of_gigabytes_costs_what_its_structure_costs():
    parts, at = [], 0
    for i in range(100):
        large = 10 << 20
        blob_head = tag(20, 2) + number(large)
        inner_size = len(blob_head) + large + 2
        head = tag(16, 2) + number(inner_size) + blob_head
        parts += [(at, head), (at + len(head) + large, tag(1, 0) + bytes([i]))]
        at += len(head) + large + 2
    storage = Sparse(parts, at)
    message = decode(Span.whole(storage), ALL, DEFAULT)
    assert [m.i32 for m in message.many] == list(range(100))
    assert all(m.blob.length == 10 << 20 for m in message.many)
    assert storage.touched < 1 << 20


def test_streaming_and_whole_decoding_agree(monkeypatch):
    rng = random.Random(5)
    pieces = []
    for _ in range(300):
        text = rng.randbytes(rng.choice([0, 3, 200, 5000, 70000])).hex().encode()
        pieces.append(
            rng.choice([
                run(16, run(13, text) + tag(1, 0) + number(rng.randrange(1 << 31))),
                run(13, text), run(20, text), run(18, number(rng.randrange(1 << 60)) * 3),
                run(22, run(1, text[:9]) + run(2, run(21, text))), tag(1, 0) + number(len(text)),
                run(17, b"\1" * rng.randrange(100)), tag(90, 3) + run(7, text) + tag(90, 4),
            ])
        )  # fmt: skip
    data = b"".join(pieces)
    whole = plain(parsed(data))
    monkeypatch.setattr(wire, "WHOLE", 0)
    assert plain(parsed(data)) == whole
    monkeypatch.setattr(wire, "SMALL", 0)
    assert plain(parsed(data)) == whole


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    with contextlib.suppress(ConvertError):
        plain(parsed(data))


def as_text(value):  # Google's returns strings that are no UTF-8 as bytes
    return value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_mutated_models_are_read_as_google_reads_them(data):
    onnx = pytest.importorskip("onnx")
    from google.protobuf.message import DecodeError

    graph = onnx.GraphProto(name="g")
    for i in range(3):
        node = graph.node.add(op_type="Op", input=["a", "b"], output=[f"o{i}"])
        node.attribute.add(name="ints", ints=[1, -2, 3], type=7)
        node.attribute.add(name="t", t=onnx.TensorProto(dims=[2], data_type=1, float_data=[1, 2]))
    raw = bytearray(onnx.ModelProto(ir_version=8, graph=graph).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    theirs = onnx.ModelProto()
    try:
        theirs.ParseFromString(bytes(raw))
    except DecodeError:
        theirs = None
    try:
        ours = decode_bytes(bytes(raw), onnx_protos.SCHEMA["ModelProto"], DEFAULT, "m")
        found = plain(ours)
    except CorruptError:
        found = None
    if theirs is None:
        return  # Google's also refuses strings that are no UTF-8
    assert found is not None
    assert ours.ir_version == theirs.ir_version
    assert len(ours.graph.node) == len(theirs.graph.node)
    for a, b in zip(ours.graph.node, theirs.graph.node, strict=True):
        assert list(a.input) == [as_text(x) for x in b.input]
        assert list(a.output) == [as_text(x) for x in b.output]
        assert a.op_type == as_text(b.op_type)
        for x, y in zip(a.attribute, b.attribute, strict=True):
            assert list(x.ints) == list(y.ints)
            assert list(x.t.float_data)[:1] == pytest.approx(list(y.t.float_data)[:1], nan_ok=True)


@pytest.mark.parametrize("kind", ["int32", "int64", "uint64", "sint64", "bool"])
def test_packed_numbers_come_back(kind):
    rng = random.Random(1)
    values = [rng.randrange(-(1 << 20), 1 << 20) for _ in range(5000)]
    if kind in ("uint64", "bool"):
        values = [abs(v) for v in values]
    if kind == "bool":
        values = [v % 2 == 0 for v in values]
    numbers = Packed.of(kind, values)
    assert list(numbers) == values
    assert len(numbers) == 5000
    wide = b"".join(numbers.little_endian(8))
    assert wide == b"".join((int(v) % (1 << 64)).to_bytes(8, "little") for v in values)
    narrow = b"".join(numbers.little_endian(2))
    assert narrow == b"".join((int(v) % (1 << 16)).to_bytes(2, "little") for v in values)


def test_packed_runs_are_cut_between_numbers(monkeypatch):
    monkeypatch.setattr(packed, "RUN", 16)
    numbers = Packed("int64")
    data = b"".join(number(n * 1000003) for n in range(100))
    numbers.append_span(Span.whole(Buffer(data, "b")))
    assert list(numbers) == [n * 1000003 for n in range(100)]
    assert b"".join(numbers.little_endian(8)) == b"".join(
        (n * 1000003).to_bytes(8, "little") for n in range(100)
    )
