"""Our text parser against Google's grammar, and against text that lies."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.containers.protobuf import text_format
from formats.containers.protobuf.messages import Schema
from formats.core.storage import Buffer, Span
from formats.errors import ConvertError, CorruptError, LimitError
from formats.limits import DEFAULT, Limits

SCHEMA = Schema(
    {
        "M": {
            1: "i int32", 2: "u uint64", 3: "f float", 4: "d double", 5: "flag bool", 6: "e Kind",
            7: "s string", 8: "b bytes", 9: "m M", 10: "many M*", 11: "ints int32*",
            12: "by_name map string M", 13: "blob bytes~", 14: "floats float*~", 15: "x int32 (w)",
            16: "y M (w)", 17: "by_number map int64 string", 18: "kinds Kind*",
        },
    },
    {"Kind": {0: "NONE", 1: "ONE", 2: "nan"}},
)  # fmt: skip


def parsed(text, limits=DEFAULT):
    data = text if isinstance(text, bytes) else text.encode()
    return text_format.parse(Span.whole(Buffer(data, "text")), SCHEMA["M"], SCHEMA, limits)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("i: 5", "i", 5),
        ("i:-5", "i", -5),
        ("i: - 5", "i", -5),
        ("i: 0x1F", "i", 31),
        ("i: 017", "i", 15),
        ("i: 0", "i", 0),
        ("u: 18446744073709551615", "u", (1 << 64) - 1),
        ("f: 1.5f", "f", 1.5),
        ("f: 1e2", "f", 100.0),
        ("f: .5", "f", 0.5),
        ("f: -inf", "f", float("-inf")),
        ("d: 7", "d", 7.0),
        ("d: 1.F", "d", 1.0),
        ("flag: true", "flag", True),
        ("flag: t", "flag", True),
        ("flag: 1", "flag", True),
        ("flag: False", "flag", False),
        ("e: ONE", "e", 1),
        ("e: nan", "e", 2),
        ("e: 77", "e", 77),
        ('s: "a" "b"\n  \'c\'', "s", "abc"),
        (r's: "\x41\102\n\t\\\"\'\?"', "s", "AB\n\t\\\"'?"),
        (r's: "\u00e9\U0001F600"', "s", "é😀"),
        ('s: "é"', "s", "é"),
        (r'b: "\377\000\x7f"', "b", b"\xff\0\x7f"),
        (r'b: "\1a\12x"', "b", b"\x01a\nx"),
        (r'b: "\x1g"', "b", b"\x01g"),
        ("ints: 1 ints: 2", "ints", [1, 2]),
        ("ints: [1, 2, 3]", "ints", [1, 2, 3]),
        ("ints: []", "ints", ()),
        ("kinds: [ONE, NONE]", "kinds", [1, 0]),
        ("i: 1, u: 2; f: 3", "f", 3.0),
        ("# comment\ni: 5 # more\n#", "i", 5),
        ("\ti\n:\r\n5", "i", 5),
        ('by_number { key: -3 value: "x" }', "by_number", {-3: "x"}),
        ("by_number {}", "by_number", {0: ""}),
    ],
)
def test_scalars(text, name, value):
    assert getattr(parsed(text), name) == value


def test_messages_lists_and_maps():
    m = parsed(
        """
        m { i: 1 m: < i: 2 > }
        many { i: 3 }, many: { i: 4 };
        many: [ { i: 5 }, < i: 6 > ]
        many []
        by_name { key: "a" value { i: 7 } }
        by_name: < key: "b" >
        """.replace("many []", "many: []")
    )
    assert m.m.m.i == 2
    assert [x.i for x in m.many] == [3, 4, 5, 6]
    assert {k: v.i for k, v in m.by_name.items()} == {"a": 7, "b": 0}


def test_blobs_and_lazy_numbers():
    m = parsed(r'blob: "ab\000" floats: 1.5 floats: [2, -inf]')
    assert m.blob.read() == b"ab\0"
    assert list(m.floats) == [1.5, 2.0, float("-inf")]
    assert m.floats.span.length == 12


def test_unknown_fields_extensions_and_any_are_skipped():
    m = parsed(
        """
        nothing: 5 nobody { i: "any" ints: [1, {}] x <> }
        [com.example.ext]: "x" [type.googleapis.com/a.B] { c: 1 }
        strange: [ { a: 1 } ]
        i: 9
        """.replace("[1, {}]", "[1, 2]")
    )
    assert m.i == 9
    assert set(m.present()) == {"i"}


def test_oneof_keeps_the_last():
    m = parsed("x: 5 y { i: 1 }")
    assert m.which("w") == "y"


@pytest.mark.parametrize(
    "text",
    [
        "i", "i:", "i: x", "i: 1.5", "i: 99999999999", "i: -2147483649", "u: -1", "i 5", "m: 5",
        "m {", "m }", "}", "m { >", 's: "x', 's: "x\n"', r's: "\q"', r's: "\777"', "s: x", "i: [1",
        "i: [1 2]", "e: NOPE", "flag: maybe", "@", "i: 1 }", "[abc", r's: "\UFFFFFFFF"', "f: --1",
        "many: [ { i: 1 ", "i: " + "9" * 500, '"x"', "5: 5", "m: [", "by_name: 5",
    ],
)  # fmt: skip
def test_lies_are_corrupt(text):
    with pytest.raises(CorruptError):
        parsed(text)


def test_limits():
    with pytest.raises(LimitError, match="deeper"):
        parsed("m {" * 300)
    with pytest.raises(LimitError, match="more than 20 tokens"):
        parsed("[" + "a." * 11, Limits(max_tokens=20))
    with pytest.raises(LimitError):
        parsed("i: 1", Limits(max_text_bytes=3))


def test_a_long_string_of_escapes_is_fast():
    text = b'blob: "' + rb"\300\013\x00a" * 500_000 + b'"'
    assert parsed(text).blob.length == 2_000_000
    assert parsed(text.replace(b"a", rb"\?")).blob.length == 2_000_000


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ims:{}<>[]\"'\\0x19.-,;# \n", max_size=60))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(ConvertError):
        parsed(text)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40))
def test_bytes_round_trip_through_googles_escapes(data):
    text_encoding = pytest.importorskip("google.protobuf.text_encoding")
    for as_utf8 in (False, True):
        escaped = text_encoding.CEscape(data, as_utf8)
        assert parsed(f'b: "{escaped}"').b == data or as_utf8
