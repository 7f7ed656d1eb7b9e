"""safetensors files and indices that lie, and JSON that wants memory, time or stack.

Numbers in an attack's name are those of its full size.
"""

import json
import struct

import numpy as np
import pytest
from attacks.arena import DEEP, a_file, a_folder, size
from safetensors.numpy import save

import converter

BODY = np.arange(12, dtype="f4").tobytes()
ENTRY = {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}


def raw(header: bytes, body: bytes = BODY, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + body


def with_entry(entry, body: bytes = BODY) -> bytes:
    return raw(json.dumps({"w": entry}).encode(), body)


def changed(**fields):
    return with_entry({**ENTRY, **fields})


def nested(opening: bytes, depth: int, closing: bytes = b"") -> bytes:
    return raw(b'{"w":' + opening * depth + closing * depth + b"}")


# fmt: off
LIES = {
    "header of 2**63": lambda: raw(b'{"w":1}', length=1 << 63),
    "header of 2**64 - 1": lambda: raw(b'{"w":1}', length=(1 << 64) - 1),
    "header past the end": lambda: raw(b'{"w":1}', length=1000),
    "header of the whole file": lambda: raw(b'{"w":1}', length=7 + 48),
    "no JSON": lambda: raw(b'{"w":'),
    "a list": lambda: raw(b'{"w":[1,2]}'),
    "bytes no UTF-8": lambda: raw(b'{"\xff\xfe":1}'),
    "UTF-16": lambda: raw('{"w":1}'.encode("utf-16")),
    "a key twice": lambda: raw(b'{"w":%s,"w":%s}' % ((json.dumps(ENTRY).encode(),) * 2)),
    "metadata that is a list": lambda: raw(b'{"__metadata__":[1]}', b""),
    "metadata with numbers": lambda: raw(b'{"__metadata__":{"a":1}}', b""),
    "metadata as a tensor": lambda: raw(json.dumps({"__metadata__": ENTRY}).encode()),
    "an unknown dtype": lambda: changed(dtype="F33"),
    "a dtype that is a list": lambda: changed(dtype=["F32"]),
    "a shape of floats": lambda: changed(shape=[3.0, 4.0]),
    "a shape of booleans": lambda: changed(shape=[True, 12]),
    "a shape that is a number": lambda: changed(shape=12),
    "a negative shape": lambda: changed(shape=[-3, -4]),
    "a shape of 2**64": lambda: changed(shape=[1 << 64, 1]),
    "a shape that overflows": lambda: changed(shape=[1 << 62, 1 << 62, 0]),
    "a shape of 10**4000": lambda: changed(shape=[10**4000]),
    "a shape of a million axes": lambda: changed(shape=[1] * size(50_000, 1_000_000)),
    "offsets that overlap": lambda: raw(json.dumps({"a": ENTRY, "b": ENTRY}).encode()),
    "offsets with a hole": lambda: changed(data_offsets=[0, 40], shape=[10]),
    "offsets backwards": lambda: changed(data_offsets=[48, 0]),
    "offsets past the end": lambda: changed(data_offsets=[0, 1 << 40], shape=[1 << 38]),
    "offsets of 2**64": lambda: changed(data_offsets=[0, 1 << 64]),
    "three offsets": lambda: changed(data_offsets=[0, 48, 48]),
    "a further key": lambda: changed(file="/etc/passwd"),
    "an entry that is null": lambda: with_entry(None),
    "lists 100000 deep": lambda: nested(b"[", 100_000, b"]"),
    "objects 100000 deep": lambda: nested(b'{"a":', 100_000),
    "objects 400 deep": lambda: raw(b'{"w":' + b'{"a":' * 400 + b"1" + b"}" * 400 + b"}"),
    "a number of 5000 digits": lambda: raw(b'{"w":' + b"9" * 5000 + b"}"),
    "a number of a million digits": lambda: raw(b'{"w":' + b"9" * 1_000_000 + b"}"),
    "an exponent of 10**9": lambda: raw(b'{"w":1e1000000000}'),
    "a float of a million digits": lambda: raw(b'{"w":0.' + b"1" * 1_000_000 + b"}"),
    "thirty million empty lists": lambda: raw(b'{"w":[' + b"[]," * size(2_100_000, 30_000_000) + b"1]}"),
    "twenty million empty objects": lambda: raw(b'{"w":[' + b"{}," * size(2_100_000, 20_000_000) + b"1]}"),
    "thirty million numbers": lambda: raw(b'{"w":[' + b"1.5," * size(4_100_000, 20_000_000) + b"1]}"),
    "ninety megabytes of spaces": lambda: raw(b'{"w":' + b" " * size(9_000_000, 90_000_000)),
    "ninety megabytes of text": lambda: raw(b'{"w":"' + b"x" * size(9_000_000, 90_000_000) + b'"}'),
    "ninety megabytes of escapes": lambda: raw(b'{"w":"' + b"\\u0041" * size(1_500_000, 15_000_000) + b'"}'),
    "a million keys, two alike": lambda: raw(
        b"{" + b"".join(b'"%d":1,' % i for i in range(size(50_000, 500_000))) + b'"a":1,"a":1}'),
    "a tensor of convert.dtypes": lambda: raw(json.dumps(  # of another size than is stored
        {"__metadata__": {"convert.dtypes": '{"w": ["complex128", [9]]}'}, "w": ENTRY}).encode()),
    "convert.dtypes of no type": lambda: raw(json.dumps(
        {"__metadata__": {"convert.dtypes": '{"w": ["x", [3]]}'}, "w": ENTRY}).encode()),
    "convert.dtypes deep": lambda: raw(json.dumps(
        {"__metadata__": {"convert.dtypes": "[" * 100_000}, "w": ENTRY}).encode()),
    "convert.encodings wrong": lambda: raw(json.dumps(
        {"__metadata__": {"convert.encodings": '{"w": {"kind": 1}}'}, "w": ENTRY}).encode()),
}
# fmt: on


@pytest.mark.parametrize("name", LIES)
def test_lies_are_found(arena, name):
    arena.refused(a_file(name, "m.safetensors", LIES[name]()))


# fmt: off
NAMES = {
    "__metadata__ twice removed": ["__metadata__.w", "__metadata__\0"],
    "empty": [""],
    "blanks": [" ", "\t", "\n", "\r\n", "a\nb", "a\0b", "\0"],
    "escapes": ["\x1b[2J\x1b]0;owned\x07", "\x9b31m"],
    "lone surrogates": ["\ud800", "\udfff\ud800", "a\udc80b"],
    "direction marks": ["\u202egnp.exe", "\ufeffx", "\u2066x\u2069"],
    "paths": ["../../escaped", "/etc/passwd", "a/../../b", "..", ".", "a//b", "\\\\host\\share"],
    "case": ["Weight", "weight", "WEIGHT"],
    "normal forms": ["\u00e9", "e\u0301", "\u212b", "\u00c5", "A\u030a"],
    "numbers": ["0", "00", "-1", "1e5", "true", "null", "{}"],
    "a mebibyte": ["x" * (1 << 20)],
    "a mebibyte of dots": ["." * (1 << 20), "a." * (1 << 19)],
    "a mebibyte of slashes": ["/" * (1 << 20), "a/" * (1 << 19)],
    "our own keys": ["convert.dtypes", "convert.encodings", "format", "convert."],
    "wrappers": ["module.", "module..x", "_orig_mod.", "_orig_mod._orig_mod", "model.model.x"],
    "format strings": ["{}", "{0.__class__}", "%s%n", "${HOME}", "`id`"],
}
# fmt: on


@pytest.mark.parametrize("name", NAMES)
def test_names_survive(arena, tmp_path, name):
    """Whatever a tensor is called, it is read, written, verified and can be read again."""
    entries, body = {}, b""
    for i, tensor in enumerate(NAMES[name]):
        entries[tensor] = {"dtype": "I64", "shape": [], "data_offsets": [8 * i, 8 * i + 8]}
        body += struct.pack("<q", i)
    data = raw(json.dumps(entries).encode(), body)
    arena.read(a_file(name, "m.safetensors", data))
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    bundle = converter.read(path)
    assert sorted(t.tobytes() for t in bundle.weights.values()) == sorted(
        struct.pack("<q", i) for i in range(len(NAMES[name]))
    )
    assert len(bundle.weights) == len(NAMES[name])


def test_aliases_that_lead_in_circles(arena):
    """Ties are recorded in the metadata: name → the name it is stored under."""
    ties = {"a": "w", "b": "a", "c": "d", "d": "c", "e": "e", "format": "w", "": "w", "w": "w"}
    header = {"__metadata__": ties, "w": ENTRY}
    arena.read(a_file("ties", "m.safetensors", raw(json.dumps(header).encode())))


def test_ties_without_number(arena):
    """A hundred thousand names of one tensor."""
    count = size(3000, 100_000)
    header = {"__metadata__": {f"t{i}": "w" for i in range(count)}, "w": ENTRY}
    arena.read(a_file("many ties", "m.safetensors", raw(json.dumps(header).encode())))


def test_tensors_without_number(arena):
    count = size(3000, 100_000)
    header = {
        f"layer.{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]}
        for i in range(count)
    }
    arena.read(
        a_file("many tensors", "m.safetensors", raw(json.dumps(header).encode(), bytes(count)))
    )


def test_a_million_tensors(arena):
    """Ninety megabytes of header for one of body."""
    if not DEEP:
        pytest.skip("takes seconds: set CONVERTER_ATTACK_ROUNDS")
    count = 1_000_000
    header = b"{%s}" % b",".join(
        b'"%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}' % (i, i, i + 1)
        for i in range(count)
    )
    arena.refused(a_file("a million", "m.safetensors", raw(header, bytes(count))))


def shards(weight_map, **more):
    files = {
        "a.safetensors": save({"w": np.float32([1])}),
        "b.safetensors": save({"v": np.float32([2])}),
    }
    index = {"metadata": {}, "weight_map": weight_map, **more}
    return {**files, "model.safetensors.index.json": json.dumps(index).encode()}


# fmt: off
INDICES = {
    "dots": {"w": "../escaped.safetensors"},
    "dots inside": {"w": "x/../../escaped.safetensors"},
    "absolute": {"w": "/etc/passwd"},
    "backslashes": {"w": "..\\escaped.safetensors"},
    "drive": {"w": "C:escaped.safetensors"},
    "a NUL": {"w": "a.safetensors\0"},
    "a surrogate": {"w": "\ud800.safetensors"},
    "long": {"w": "x" * 100_000},
    "empty": {"w": ""},
    "a dot": {"w": "."},
    "a folder": {"w": "sub"},
    "itself": {"w": "model.safetensors.index.json"},
    "missing": {"w": "c.safetensors"},
    "a number": {"w": 1},
    "null": None,
    "a list": ["a.safetensors"],
    "a tensor that is not there": {"w": "a.safetensors", "u": "b.safetensors"},
    "a hundred thousand shards": {str(i): f"{i}.safetensors" for i in range(100_001)},
    "a device": {"w": "zero"},
    "a FIFO": {"w": "fifo"},
    "a link out": {"w": "link.safetensors"},
    "a link to a link": {"w": "loop.safetensors"},
}
# fmt: on


@pytest.mark.parametrize("name", INDICES)
def test_indices_lead_nowhere(arena, name):
    import os

    from attacks.arena import Attack

    inner = a_folder(name, {**shards(INDICES[name]), "sub/x": b""})

    def build(folder):
        (folder / "m").mkdir()
        inner.build(folder / "m")
        (folder / "escaped.safetensors").write_bytes(save({"w": np.float32([3])}))
        os.mkfifo(folder / "m/fifo")
        (folder / "m/zero").symlink_to("/dev/zero")
        (folder / "m/link.safetensors").symlink_to("../escaped.safetensors")
        (folder / "m/loop.safetensors").symlink_to("loop.safetensors")
        return folder / "m"

    outcomes = arena.one(Attack(name, build))
    assert {o.code for o in outcomes} <= {3, 5}, outcomes


def test_the_index_is_sound(arena):
    arena.read(a_folder("index", shards({"w": "a.safetensors", "v": "b.safetensors"})))


@pytest.mark.parametrize(
    "config", [b"[" * 100_000, b'{"a":' * 500 + b"1" + b"}" * 500, b"\xff", b""]
)
def test_configurations_beside_the_weights(arena, config):
    files = shards({"w": "a.safetensors", "v": "b.safetensors"})
    arena.refused(a_folder("config", {**files, "config.json": config}))
