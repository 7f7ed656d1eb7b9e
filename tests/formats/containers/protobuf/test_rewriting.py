"""Messages with some fields changed: all other bytes stay, in memory and in pieces of a file."""

import random

import pytest

from formats.containers.protobuf import rewriting
from formats.containers.protobuf.rewriting import DROP, field, parts, rewrite_message
from formats.core.storage import Buffer, File, Span
from formats.errors import CorruptError


def message(*fields):
    return b"".join(b"".join(field(number, [value])) for number, value in fields)


def joined(pieces):
    return b"".join(p if isinstance(p, bytes) else p.read() for p in pieces)


def test_nothing_changed_is_none():
    body = message((1, b"a"), (2, b"b")) + b"\x18\x05"
    assert rewrite_message(body, {}) is None
    assert rewrite_message(body, {1: lambda _: None, 3: lambda _: DROP}) is None  # 3 is a number
    assert rewrite_message(b"", {1: lambda _: DROP}) is None


def test_fields_are_changed_dropped_and_added():
    body = message((1, b"a"), (2, b"b"), (9, b"unknown"), (2, b"c")) + b"\x18\x05"
    found = rewrite_message(body, {1: lambda _: DROP, 2: lambda v: [v + b"!"]}, [(4, [b"new"])])
    expected = message((2, b"b!"), (9, b"unknown"), (2, b"c!")) + b"\x18\x05" + message((4, b"new"))
    assert joined(found) == expected
    assert rewrite_message(b"", {}, [(4, [b"new"])]) == [message((4, b"new"))]


@pytest.mark.parametrize(
    "data", [b"\x0a", b"\x0a\x05abc", b"\x0b\x0c", b"\x00\x01", b"\xff" * 11, b"\x0d\x01", b"\x08"]
)
def test_what_is_no_message_is_corrupt(data):
    for body in (data, Span.whole(Buffer(data, "b"))):
        with pytest.raises(CorruptError):
            list(parts(body))


def test_a_large_file_gives_the_same_as_memory(tmp_path, monkeypatch):
    """Levels larger than what is held stay in the file; so do fields larger than a window."""
    rng = random.Random(7)

    def node(size):
        return message((1, b"name"), (5, rng.randbytes(size)), (4, b"/device:GPU:0"), (77, b"?"))

    nodes = [(1, node(rng.choice((0, 3, 60, 90, 200, 5000)))) for _ in range(200)]
    data = message((2, message(*nodes) + b"\x18\x05"), (3, b"x" * 1000))
    path = tmp_path / "graph.pb"
    path.write_bytes(b"front" + data)

    def edited(body):
        place = {4: lambda _: DROP}
        graph = {1: lambda n: rewrite_message(n, place, [(4, [b"/device:CPU:0"])])}
        return rewrite_message(body, {2: lambda g: rewrite_message(g, graph)})

    whole = joined(edited(data))
    assert whole != data
    for held, window in ((10, 40), (100, 64), (400, 256), (4096, 1 << 16)):
        monkeypatch.setattr(rewriting, "HELD", held)
        monkeypatch.setattr(rewriting, "WINDOW", window)
        pieces = edited(Span(File(path), 5, len(data)))
        assert joined(pieces) == whole, (held, window)
        assert any(isinstance(p, Span) for p in pieces)
        assert max(len(p) for p in pieces if isinstance(p, bytes)) < max(held, window) + 100
