"""ONNX models that lie about shapes and lengths, nest without end, or reach for other files.

Numbers in an attack's name are those of its full size.
"""

import os

import numpy as np
import pytest
from attacks.arena import Attack, a_file, size
from attacks.protos import entry, lying, nested, num, run, tag, varint

import converter

RAW = np.arange(12, dtype="f4").tobytes()
FLOAT, STRING = 1, 8


def tensor(name="w", dims=(3, 4), kind=FLOAT, raw=RAW, more=b""):
    out = b"".join(num(1, d) for d in dims) + num(2, kind) + run(8, name) + more
    return out + (b"" if raw is None else run(9, raw))


def graph(*initializers, nodes=b"", more=b""):
    return nodes + run(2, "g") + b"".join(run(5, t) for t in initializers) + more


def model(*initializers, nodes=b"", more=b"", after=b""):
    body = graph(*initializers, nodes=nodes, more=more)
    return num(1, 8) + run(2, "attacks") + run(7, body) + run(8, num(2, 13)) + after


def node(op="Constant", output="c", attributes=b"", inputs=b""):
    return run(1, inputs + run(2, output) + run(4, op) + attributes)


def attribute(name, body):
    return run(5, run(1, name) + body)


def external(location, offset=None, length=None, dims=(3, 4), **more):
    fields = {"location": location, "offset": offset, "length": length, **more}
    entries = b"".join(
        run(13, run(1, k) + run(2, str(v))) for k, v in fields.items() if v is not None
    )
    return tensor(dims=dims, raw=None, more=entries + num(14, 1))


def test_the_writer_is_sound(arena, tmp_path):
    arena.read(a_file("sound", "m.onnx", model(tensor())))
    (tmp_path / "m.onnx").write_bytes(model(tensor(), nodes=node()))
    assert converter.read(tmp_path / "m.onnx").weights["w"].tobytes() == RAW


# fmt: off
OUTSIDE = {
    "dots": external("../escaped.bin"),
    "dots inside": external("sub/../../escaped.bin"),
    "absolute": external("/etc/passwd"),
    "backslashes": external("..\\escaped.bin"),
    "a drive": external("C:/escaped.bin"),
    "a URL": external("file:///etc/passwd"),
    "a NUL": external("m.bin\0"),
    "long": external("x" * 100_000),
    "empty": external(""),
    "a dot": external("."),
    "a link out": external("link.bin"),
    "a link to a link out": external("links.bin"),
    "a link to itself": external("loop.bin"),
    "through a linked folder": external("up/escaped.bin"),
    "/dev/zero": external("/dev/zero"),
    "a link to /dev/zero": external("zero"),
    "a FIFO": external("fifo"),
    "a folder": external("sub"),
    "the model itself, past its end": external("m.onnx", 1 << 40),
    "missing": external("missing.bin"),
    "offset past the end": external("m.bin", 1 << 40),
    "offset of 2**63": external("m.bin", 1 << 63),
    "offset of 10**18": external("m.bin", 10**18),
    "offset of 5000 digits": external("m.bin", "9" * 5000),
    "negative offset": external("m.bin", -8),
    "offset with a sign": external("m.bin", "+8"),
    "offset in other digits": external("m.bin", "\u0668"),
    "offset of a float": external("m.bin", "8.0"),
    "length past the end": external("m.bin", 40, 48),
    "length of 2**62": external("m.bin", 0, 1 << 62, dims=(1 << 60,)),
    "length that lies": external("m.bin", 0, 47),
    "length of nothing": external("m.bin", 0, "x"),
    "a splat of 2**60 elements": external("m.bin", 0, 4, dims=(1 << 60,)),
}
# fmt: on


@pytest.mark.parametrize("name", OUTSIDE)
def test_external_data_leads_nowhere(arena, name):
    def build(folder):
        (folder / "escaped.bin").write_bytes(RAW)
        inside = folder / "m"
        (inside / "sub").mkdir(parents=True)
        (inside / "m.bin").write_bytes(RAW)
        (inside / "link.bin").symlink_to("../escaped.bin")
        (inside / "links.bin").symlink_to("link.bin")
        (inside / "loop.bin").symlink_to("loop.bin")
        (inside / "up").symlink_to("..")
        (inside / "zero").symlink_to("/dev/zero")
        os.mkfifo(inside / "fifo")
        (inside / "m.onnx").write_bytes(model(OUTSIDE[name]))
        return inside / "m.onnx"

    outcomes = arena.one(Attack(name, build))
    assert {o.code for o in outcomes} <= {3, 4, 5}, outcomes
    assert len({o.code for o in outcomes}) == 1, outcomes


@pytest.mark.parametrize("name", ["dots", "absolute", "a link out", "/dev/zero", "a drive"])
def test_what_leaves_the_folder_is_refused_for_safety(arena, name):
    def build(folder):
        (folder / "escaped.bin").write_bytes(RAW)
        (folder / "m").mkdir()
        (folder / "m/link.bin").symlink_to("../escaped.bin")
        (folder / "m/m.onnx").write_bytes(model(OUTSIDE[name]))
        return folder / "m/m.onnx"

    arena.refused(Attack(name, build), code=5)


def deep_graphs(depth):
    """Return graphs in attributes of nodes of graphs: an If in an If in an If."""
    body = b""
    for _ in range(depth):
        body = node("If", "o", attribute("then_branch", run(6, body)))
    return model(nodes=body)


def deep_graphs_with_weights(depth):
    body = b""
    for i in range(depth):
        inner = run(5, tensor(f"w{i}")) + body
        body = node("If", "o", attribute("then_branch", run(6, inner)))
    return model(nodes=body)


def sparse(values, indices, *dims):
    body = run(1, values) + run(2, indices) + b"".join(num(3, d) for d in dims)
    return run(15, body)


I64 = 7
TWO = np.int64([1, 5]).tobytes()
MANY = size(10_000, 2_000_000)

# fmt: off
LIES = {
    "dims of 2**62": lambda: model(tensor(dims=(1 << 62, 1 << 62))),
    "dims that wrap to 12": lambda: model(tensor(dims=(1 << 32, 1 << 32, 12))),
    "negative dims": lambda: model(tensor(dims=(-3, -4))),
    "a million dims": lambda: model(tensor(dims=(1,) * size(50_000, 1_000_000))),
    "packed dims that are cut": lambda: model(lying(1, 1000) + num(2, 1)),
    "raw too short": lambda: model(tensor(raw=RAW[:-1])),
    "raw too long": lambda: model(tensor(raw=RAW + b"\0")),
    "raw that lies": lambda: model(tensor(raw=None, more=lying(9, 1 << 40))),
    "raw of 2**64": lambda: model(tensor(raw=None, more=lying(9, (1 << 64) - 1))),
    "a splat": lambda: model(tensor(dims=(1 << 60,), raw=RAW[:4])),
    "a splat of floats": lambda: model(tensor(dims=(1 << 60,), raw=None, more=run(4, RAW[:4]))),
    "an unknown type": lambda: model(tensor(kind=99)),
    "type 0": lambda: model(tensor(kind=0)),
    "type 2**63": lambda: model(tensor(kind=1 << 63)),
    "strings too few": lambda: model(tensor(kind=STRING, raw=None, more=run(6, b"a"))),
    "strings for 2**60": lambda: model(tensor(kind=STRING, dims=(1 << 60,), raw=None, more=run(6, b"a"))),
    "raw strings": lambda: model(tensor(kind=STRING)),
    "segments": lambda: model(tensor(more=run(3, num(1, 0) + num(2, 1 << 60)))),
    "floats cut in the middle": lambda: model(tensor(raw=None, more=run(4, RAW[:-2]))),
    "varints that never end": lambda: model(tensor(kind=6, raw=None, more=run(5, b"\xff" * 1000))),
    "varints of eleven bytes": lambda: model(tensor(kind=6, raw=None, more=run(5, b"\xff" * 10 + b"\x01"))),
    "too many small numbers": lambda: model(tensor(kind=6, raw=None, more=run(5, b"\1" * 1_000_000))),
    "group that never ends": lambda: model(more=tag(99, 3)),
    "groups without end": lambda: model(more=tag(99, 3) * 1_000_000),
    "end of a group that never began": lambda: model(more=tag(99, 4)),
    "field number 0": lambda: model(more=b"\x02\x00"),
    "field of 2**29": lambda: model(more=varint(1 << 35) + b"\0"),
    "wire type 6": lambda: model(more=tag(5, 6)),
    "wire type 7": lambda: model(more=tag(5, 7)),
    "a message longer than its parent": lambda: model(more=lying(5, 1000, b"\x08\x01")),
    "a model of nothing but graphs": lambda: num(1, 8) + run(7, b"") * 1000,
    "graphs 100 deep": lambda: deep_graphs(100),
    "graphs 2000 deep": lambda: deep_graphs(2000),
    "graphs 150 deep with weights": lambda: deep_graphs_with_weights(150),
    "types 100000 deep": lambda: model(more=run(11, run(1, "x") + run(2, nested(4, 100_000)))),
    "optional types 100000 deep": lambda: model(more=run(11, run(1, "x") + run(2, nested(9, 100_000)))),
    "maps 100000 deep": lambda: model(more=run(11, run(1, "x") + run(2, nested(5, 100_000)))),
    "unknown fields 100000 deep": lambda: model(more=nested(99, 100_000)),
    "millions of nodes": lambda: model(nodes=run(1, b"") * MANY),
    "millions of inputs": lambda: model(more=run(11, b"") * MANY),
    "millions of tensors": lambda: model(more=run(5, b"") * MANY),
    "millions of attributes": lambda: model(nodes=node(attributes=run(5, b"") * MANY)),
    "millions of strings": lambda: model(tensor(kind=STRING, dims=(MANY,), raw=None, more=run(6, b"") * MANY)),
    "millions of packed ints": lambda: model(nodes=node(attributes=attribute("value_ints", run(8, b"\1" * MANY)))),
    "millions of unpacked ints": lambda: model(nodes=node(attributes=attribute("value_ints", num(8, 1) * MANY))),
    "packed ints, more than are held": lambda: model(nodes=node(attributes=attribute("value_ints", run(8, b"\1" * size(100_000, 10_000_000))))),
    "packed floats, more than are held": lambda: model(nodes=node(attributes=attribute("value_floats", run(7, bytes(size(400_000, 40_000_000)))))),
    "unpacked ints, more than are held": lambda: model(nodes=node(attributes=attribute("value_ints", num(8, 1) * size(100_000, 10_000_000)))),
    "unpacked ints of two bytes": lambda: model(nodes=node(attributes=attribute("value_ints", num(8, 300) * size(100_000, 10_000_000)))),
    "400000 inputs": lambda: model(more=run(11, b"") * size(10_000, 400_000)),
    "100000 inputs": lambda: model(more=run(11, b"") * size(10_000, 99_000)),
    "400000 trainings": lambda: model(after=run(20, b"") * size(10_000, 400_000)),
    "400000 attributes": lambda: model(nodes=node(attributes=run(5, b"") * size(10_000, 400_000))),
    "300000 attributes": lambda: model(nodes=node(attributes=run(5, b"") * size(10_000, 299_000))),
    "300000 nodes": lambda: model(nodes=node(output="x", op="Relu") * size(10_000, 299_000)),
    "as many tensors as may be": lambda: model(*(tensor(f"w{i}") for i in range(size(1000, 24_000)))),
    "millions of packed dims": lambda: model(run(1, b"\1" * MANY) + num(2, 1) + run(9, b"\0\0\0\0")),
    "more packed dims than are read": lambda: model(run(1, b"\1" * 5_100_000) + num(2, 1) + run(9, b"\0\0\0\0")),
    "millions of metadata": lambda: model(after=run(14, run(1, "k") + run(2, "v")) * (MANY // 4)),
    "millions of opsets": lambda: model(after=run(8, b"") * MANY),
    "millions of functions": lambda: model(after=run(25, b"") * MANY),
    "millions of trainings": lambda: model(after=run(20, b"") * MANY),
    "millions of unknown": lambda: model(more=num(99, 1) * MANY),
    "millions of shapes": lambda: model(more=run(11, run(1, "x") + run(2, run(1, num(1, 1) + run(2, run(1, b"") * MANY))))),
    "sparse indices beyond": lambda: model(tensor(), more=sparse(tensor(), tensor("i", (2,), I64, TWO), 9)),
    "sparse of sparse shape": lambda: model(more=sparse(tensor("v", (2,), FLOAT, RAW[:8]), tensor("i", (2,), I64, TWO), 1 << 62, 1 << 62)),
    "sparse strings": lambda: model(more=sparse(tensor("v", (1,), STRING, None, run(6, b"x")), tensor("i", (1,), I64, TWO[:8]), 9)),
    "sparse without parts": lambda: model(more=run(15, b"")),
    "an ir_version of 2**64": lambda: num(1, (1 << 64) - 1) + model(tensor(dims=(5,)))[2:],
    "negative int": lambda: model(nodes=node(attributes=attribute("value_int", num(3, -1))), after=b"\xff"),
}
# fmt: on


@pytest.mark.parametrize("name", LIES)
def test_lies(arena, name):
    outcomes = arena.one(a_file(name, "m.onnx", LIES[name]()), ("inspect", "portable"))
    assert {o.code for o in outcomes} <= {0, 3, 4}, outcomes


# fmt: off
NAMES = {
    "alike": [b"w", b"w", b"w"],
    "empty": [b"", b""],
    "no UTF-8": [b"\xff\xfe", b"\xff"],
    "a NUL": [b"a\0b"],
    "escapes": [b"\x1b[2J"],
    "metadata": [b"__metadata__", b"__metadata___"],
    "a mebibyte": [b"x" * (1 << 20)],
    "paths": [b"../../x", b"/etc/passwd"],
    "numbered": [b"w", b"w", b"w~2", b"w~2~2"],
}
# fmt: on


@pytest.mark.parametrize("name", NAMES)
def test_names_survive(arena, tmp_path, name):
    data = model(
        *(num(1, 1) + num(2, FLOAT) + run(8, n) + run(9, RAW[4 * i :][:4])
          for i, n in enumerate(NAMES[name]))
    )  # fmt: skip
    arena.read(a_file(name, "m.onnx", data))
    (tmp_path / "m.onnx").write_bytes(data)
    weights = converter.read(tmp_path / "m.onnx").weights
    assert [t.tobytes() for t in weights.values()] == [
        RAW[4 * i :][:4] for i in range(len(NAMES[name]))
    ]


def test_a_map_of_one_key(arena):
    """Fields of a map's entry may repeat; the last one counts."""
    assert entry("k", b"v").startswith(b"\x0a\x01k")
    data = model(tensor(), after=run(14, run(1, "a") + run(1, "b") + run(2, "x") + run(2, "y")))
    arena.read(a_file("repeated", "m.onnx", data))
