"""SavedModels, checkpoints and graphs that lie, loop, or stand for more than they are.

Numbers in an attack's name are those of its full size.
"""

import struct

import numpy as np
import pytest
from attacks.arena import DEEP, a_file, a_folder, size
from attacks.protos import lying, nested, num, run, tag, varint
from attacks.sstables import (
    FLOAT,
    STRING,
    Table,
    block,
    bundle,
    constant,
    entry,
    header,
    node,
    saved_model,
    table,
    tensor_proto,
    tensor_slice,
)

import converter
from formats.core.checksums import crc32c
from formats.tensorflow.tensor_bundle import slice_key

RAW = np.arange(12, dtype="f4").tobytes()
MANY = size(10_000, 1_000_000)
# What has to be as long as it is to meet a limit is only inspected, in quick size.
LONG = {
    "two million empty strings, often", "snappy literals of one byte", "keys that grow",
    "20000 slices",
}  # fmt: skip


def both(name):
    return ("inspect", "portable") if DEEP or name not in LONG else ("inspect",)


def checkpoint(name, files):
    return a_folder(name, files, "ckpt")


def with_index(make):
    return lambda: {"ckpt.index": make(), "ckpt.data-00000-of-00001": RAW}


def test_the_writer_is_sound(tmp_path):
    for name, data in bundle({b"w": entry()}, RAW).items():
        (tmp_path / name).write_bytes(data)
    assert converter.read(tmp_path / "ckpt").weights["w"].tobytes() == RAW


# -- the table -----------------------------------------------------------------------------------

HEAD = (b"", header())


def one_block(content, compression=0):
    out = Table()
    handle = out.put(content, compression)
    return out.done(out.put(block([(b"z", handle)])))


def handles(*handle):
    """Return a table whose index holds these handles, behind one sound block."""
    out = Table()
    first = out.put(block([HEAD, (b"w", entry())]))
    rows = [(b"a%d" % i, h) for i, h in enumerate((first, *handle))]
    return out.done(out.put(block(rows)))


def snappy(size, body):
    return one_block(varint(size) + body, 1)


def raw_block(body, restarts=b"\0\0\0\0\1\0\0\0"):
    return one_block(varint(0) * 2 + varint(len(header())) + header() + body + restarts)


def many_large_blocks(count):
    """Blocks of just less than a megabyte, each with a checksum: the same one.

    Four bytes behind the key bring the checksum so far to zero, whatever the key.
    """
    out, index = Table(), []
    index.append((b"w", out.put(block([HEAD, (b"w", entry())]))))
    length, crc = (1 << 20) - 200, b""
    start = entry() + tag(99, 2) + varint(length)
    for i in range(count):
        key = b"x%08d" % i
        content = varint(0) + varint(len(key)) + varint(len(start) + length) + key + start
        content += struct.pack("<I", crc32c(content) ^ 0xFFFFFFFF)
        content += bytes(length - 4) + struct.pack("<II", 0, 1)
        handle = varint(len(out.data)) + varint(len(content))
        if not crc:
            out.put(content)
            crc = bytes(out.data[-4:])
        else:
            out.data += content + b"\0" + crc
        index.append((key, handle))
    return out.done(out.put(block(index)))


def growing_keys(step):
    """Keys that each begin with the one before: 100 MB of them in a small block."""
    return b"".join(
        varint(i) + varint(step) + varint(0) + b"w" * step for i in range(0, 70_000, step)
    )


# fmt: off
TABLES = {
    "footer of nothing": lambda: bytes(40) + Table().done(b"")[-8:],
    "index past the end": lambda: Table().done(varint(1 << 40) + varint(100)),
    "index of 2**64 - 1": lambda: Table().done(varint((1 << 64) - 1) + varint((1 << 64) - 1)),
    "handle that never ends": lambda: Table().done(b"\xff" * 30),
    "index that is the footer": lambda: Table().done(varint(0) + varint(43)),
    "block that is the index": lambda: handles(varint(0) + varint(60)),
    "block past the end": lambda: handles(varint(1 << 40) + varint(10)),
    "block of 2**63": lambda: handles(varint(0) + varint(1 << 63)),
    "the same block again": lambda: handles(*[varint(0) + varint(50)] * 1000),
    "handles cut": lambda: handles(b"\xff"),
    "restarts of 2**32 - 1": lambda: raw_block(b"", struct.pack("<II", 0, 0xFFFFFFFF)),
    "restarts of nothing": lambda: raw_block(b"", struct.pack("<I", 0)),
    "no restarts": lambda: one_block(b""),
    "a prefix that is not there": lambda: raw_block(varint(9) + varint(1) + varint(0) + b"w"),
    "a prefix of 2**63": lambda: raw_block(varint(1 << 63) + varint(1) + varint(0) + b"w"),
    "a key past the end": lambda: raw_block(varint(0) + varint(1 << 40) + varint(0)),
    "a value past the end": lambda: raw_block(varint(0) + varint(1) + varint(1 << 40) + b"w"),
    "a value of 2**64 - 1": lambda: raw_block(varint(0) + varint(1) + varint((1 << 64) - 1) + b"w"),
    "keys that grow": lambda: raw_block(growing_keys(size(16, 1))),
    "keys backwards": lambda: raw_block(b"".join(varint(0) + varint(1) + varint(0) + k for k in (b"b", b"a"))),
    "a key twice": lambda: raw_block((varint(0) + varint(1) + varint(0) + b"w") * 2),
    "no header": lambda: table([(b"w", entry())]),
    "a wrong checksum": lambda: table([HEAD, (b"w", entry())]).replace(b"\x08\x01", b"\x08\x02", 1),
    "an unknown compression": lambda: one_block(block([HEAD]), 9),
    "snappy of 2**32": lambda: snappy(1 << 32, b"\0x"),
    "snappy of 256 MiB": lambda: snappy(size(2, 256) << 20, b"\0x" + b"\xfe\1\0" * (size(2, 256) << 14)),
    "snappy of 255 MiB in one go": lambda: snappy(size(2, 255) << 20, b"\0\0" + b"\xfe\1\0" * (size(2, 255) << 14) + b"\1\1"),
    "snappy to nowhere": lambda: snappy(64, b"\0x\xfe\xff\xff"),
    "snappy of no distance": lambda: snappy(64, b"\0x\xfe\0\0"),
    "snappy literal past the end": lambda: snappy(64, b"\xfc\xff\xff\xff\x7f"),
    "snappy literals of one byte": lambda: snappy(3_000_000, b"\0x" * 3_000_000),
    "snappy too short": lambda: snappy(64, b"\0x"),
    "large blocks": lambda: many_large_blocks(size(2, 400)),
    "200 large blocks": lambda: many_large_blocks(size(2, 200)),
}
# fmt: on


@pytest.mark.parametrize("name", TABLES)
def test_tables(arena, name):
    files = with_index(TABLES[name])()
    outcomes = arena.one(checkpoint(name, files), both(name))
    assert {o.code for o in outcomes} <= {0, 3, 4}, outcomes


# -- the bundle ----------------------------------------------------------------------------------


def boxes(count, per_tensor):
    """Return partitioned tensors whose slices lie in two axes, each of one element."""
    side = int(per_tensor**0.5)
    entries = {}
    for t in range(count // per_tensor):
        name = b"w%d" % t
        places = [((i, 1), (j, 1)) for i in range(side) for j in range(side)]
        slices = [tensor_slice(*p) for p in places]
        entries[name] = entry(sizes=(side, side), size=4 * side * side, slices=slices)
        for place in places:
            entries[slice_key(name, place)] = entry(sizes=(1, 1), size=4)
    return entries


def overlapping():
    places = [((0, 2), (0, 2)), ((1, 2), (1, 2)), ((0, 1), (2, 1)), ((2, 1), (0, 1))]
    slices = [tensor_slice(*p) for p in places]
    found = {b"w": entry(sizes=(3, 3), size=36, slices=slices)}
    for place in places:
        sizes = [n for _, n in place]
        found[slice_key(b"w", place)] = entry(sizes=sizes, size=4 * sizes[0] * sizes[1])
    return found


def one_slice(*extent, sizes=(3, 4), part=(3, 4)):
    place = tuple(extent)
    return {
        b"w": entry(sizes=sizes, slices=[tensor_slice(*place)]),
        slice_key(b"w", place): entry(sizes=part),
    }


def strings(count, data):
    return {b"s%04d" % i: entry(STRING, (data,), size=data + 4) for i in range(count)}, bytes(
        data + 4
    )


# fmt: off
BUNDLES = {
    "shard 5 of 1": lambda: bundle({b"w": entry(shard=5)}),
    "shard -1": lambda: bundle({b"w": entry(shard=-1)}),
    "2**31 shards": lambda: bundle({b"w": entry()}, start=header((1 << 31) - 1)),
    "no shards": lambda: bundle({b"w": entry()}, start=header(0)),
    "-1 shards": lambda: bundle({b"w": entry()}, start=header(-1)),
    "a shard that is missing": lambda: bundle({b"w": entry(shard=1)}, start=header(2)),
    "offset past the end": lambda: bundle({b"w": entry(offset=1 << 40)}),
    "offset of -1": lambda: bundle({b"w": entry(offset=-1)}),
    "offset of 2**63 - 1": lambda: bundle({b"w": entry(offset=(1 << 63) - 1)}),
    "size of -1": lambda: bundle({b"w": entry(size=-1)}),
    "size of 2**62": lambda: bundle({b"w": entry(size=1 << 62)}),
    "size that is another": lambda: bundle({b"w": entry(size=47)}),
    "a shape of 2**62": lambda: bundle({b"w": entry(sizes=(1 << 62,))}),
    "a shape that wraps": lambda: bundle({b"w": entry(sizes=(1 << 32, 1 << 32, 12))}),
    "a negative shape": lambda: bundle({b"w": entry(sizes=(-3, -4))}),
    "10000 axes": lambda: bundle({b"w": entry(sizes=(1,) * 10_000)}),
    "an unknown type": lambda: bundle({b"w": entry(99)}),
    "type 2**31": lambda: bundle({b"w": entry(1 << 31)}),
    "a resource": lambda: bundle({b"w": entry(20)}),
    "big-endian": lambda: bundle({b"w": entry()}, start=header(more=num(2, 1))),
    "tensors that overlap": lambda: bundle({b"w%d" % i: entry(offset=i % 4) for i in range(1000)}, bytes(52)),
    "slices missing": lambda: bundle({b"w": entry(slices=[tensor_slice((0, 3), (0, 4))])}),
    "a slice past the end": lambda: bundle(one_slice((1, 3), (0, 4))),
    "a slice of -1": lambda: bundle(one_slice((-1, 3), (0, 4))),
    "a slice of 2**62": lambda: bundle(one_slice((0, 1 << 62), (0, 4))),
    "a slice of another rank": lambda: bundle(one_slice((0, 3))),
    "a slice of another shape": lambda: bundle(one_slice((0, 3), (0, 4), part=(4, 3))),
    "slices that leave a hole": lambda: bundle(one_slice((0, 2), (0, 4), part=(2, 4))),
    "slices that overlap and leave a hole": lambda: bundle(overlapping()),
    "slices of slices": lambda: bundle({b"w": entry(slices=[tensor_slice((0, 3), (0, 4))]), slice_key(b"w", ((0, 3), (0, 4))): entry(slices=[tensor_slice((0, 3), (0, 4))])}),
    "2000 slices in two axes, often": lambda: bundle(boxes(size(500, 40_000), size(250, 2000))),
    "100 slices in two axes, often": lambda: bundle(boxes(size(500, 40_000), 100)),
    "20000 slices": lambda: bundle({b"w": entry(slices=[tensor_slice((0, 3), (0, 4))] * size(10_001, 20_000))}),
    "strings too few": lambda: bundle({b"s": entry(STRING, (1 << 40,))}),
    "strings that lie": lambda: bundle({b"s": entry(STRING, (4,), size=48)}, b"\xff" * 48),
    "strings of 2**63": lambda: bundle({b"s": entry(STRING, (1,), size=14)}, b"\xff" * 9 + b"\1" + bytes(4)),
    "fifty million empty strings": lambda: bundle(*strings(1, 50_000_000)),
    "two million empty strings, often": lambda: bundle(*strings(200, 2_000_000)),
    "very many entries": lambda: bundle({b"w%07d" % i: entry() for i in range(size(1000, 250_000))}),
    "as many entries as may be": lambda: bundle({b"w%07d" % i: entry() for i in range(size(1000, 24_000))}),
    "100 slices in two axes, as many as may be": lambda: bundle(boxes(size(500, 12_000), 100)),
    "100 slices in two axes, 80000 of them": lambda: bundle(boxes(size(500, 80_000), 100)),
    "100000 entries": lambda: bundle({b"w%07d" % i: entry() for i in range(size(1000, 100_000))}),
    "keys of 60 kB": lambda: bundle({b"%04d" % i + b"k" * 60_000: entry() for i in range(size(15, 500))}),
    "keys with escapes": lambda: bundle({b"\x1b[2J\nroot#": entry(), b"\xff\xfe": entry(), b"a\0b": entry()}),
    "keys of one text": lambda: bundle({b"\xff": entry(), b"\\xff": entry()}),
    "keys that look like slices": lambda: bundle({b"\0\1": entry(), b"\0w\0\1": entry()}),
}
# fmt: on


@pytest.mark.parametrize("name", BUNDLES)
def test_bundles(arena, name):
    outcomes = arena.one(checkpoint(name, BUNDLES[name]()), both(name))
    assert {o.code for o in outcomes} <= {0, 3, 4}, outcomes


def test_a_damaged_index_is_told_from_no_model(arena):
    files = bundle({b"w": entry()}, RAW)
    index = bytearray(files["ckpt.index"])
    index[3] ^= 1
    text = arena.refused(checkpoint("a flipped byte", {**files, "ckpt.index": bytes(index)}))
    assert "checksum" in text


# -- object graphs -------------------------------------------------------------------------------


def objects(*nodes):
    """Return a checkpoint with an object graph."""
    graph = b"".join(run(1, n) for n in nodes)
    text = varint(len(graph)) + bytes(4) + graph
    found = {b"_CHECKPOINTABLE_OBJECT_GRAPH": entry(STRING, (), offset=48, size=len(text))}
    return bundle({b"w/.ATTRIBUTES/VARIABLE_VALUE": entry(), **found}, RAW + text)


def child(number, name="w"):
    return run(1, num(1, number) + run(2, name))


def everything(count):
    return objects(*[b"".join(child(i, f"c{i}") for i in range(count))] * (count - 1), VARIABLE)


VARIABLE = run(2, run(1, "VARIABLE_VALUE") + run(2, "w") + run(3, "w/.ATTRIBUTES/VARIABLE_VALUE"))

# fmt: off
GRAPHS = {
    "a child that is not there": lambda: objects(child(7), VARIABLE),
    "child -1": lambda: objects(child(-1), VARIABLE),
    "a circle": lambda: objects(child(1), child(0) + VARIABLE),
    "a chain of 100000": lambda: objects(*(child(i + 1) for i in range(size(5000, 100_000))), VARIABLE),
    "a star of 100000": lambda: objects(b"".join(child(1, str(i)) for i in range(size(10_000, 100_000))), VARIABLE),
    "everything holds everything": lambda: everything(size(100, 600)),
    "no objects": lambda: objects(),
    "very many objects": lambda: objects(*[b""] * MANY, VARIABLE),
    "names of a megabyte": lambda: objects(*(child(i + 1, "n" * 1_000_000) for i in range(size(3, 30))), VARIABLE),
    "a text that lies": lambda: bundle({b"_CHECKPOINTABLE_OBJECT_GRAPH": entry(STRING, (), size=48)}, b"\xff" * 48),
    "numbers for a text": lambda: bundle({b"_CHECKPOINTABLE_OBJECT_GRAPH": entry(FLOAT)}, RAW),
    "many texts": lambda: bundle({b"_CHECKPOINTABLE_OBJECT_GRAPH": entry(STRING, (5,), size=9)}, RAW),
}
# fmt: on


@pytest.mark.parametrize("name", GRAPHS)
def test_object_graphs(arena, name):
    outcomes = arena.one(checkpoint(name, GRAPHS[name]()), ("inspect", "portable"))
    assert {o.code for o in outcomes} <= {0, 3, 4}, outcomes


# -- graphs --------------------------------------------------------------------------------------


def splat(sizes, more=b"", kind=FLOAT):
    return constant("c", tensor_proto(kind, sizes, more), kind)


def functions_in_functions(depth):
    """Attributes that are functions with attributes that are functions."""
    body = b""
    for _ in range(depth):
        body = run(1, "f") + run(2, run(1, "a") + run(2, run(10, body)))
    return node("n", "Op", {"f": run(10, body)})


SOUND = constant("w", tensor_proto(FLOAT, (3, 4), run(4, RAW)))

# fmt: off
PROTOS = {
    "a splat of 2**60": lambda: splat((1 << 60,), tag(5, 5) + bytes(4)),
    "a splat of 4 GiB": lambda: splat((1 << 30,), tag(5, 5) + bytes(4)),
    "a splat of nothing": lambda: splat((1 << 30,)),
    "a splat of 200 MiB": lambda: splat((size(12, 50) << 20,), run(5, RAW[:4])),
    "a thousand splats": lambda: b"".join(constant(f"c{i}", tensor_proto(FLOAT, (50 << 20,))) for i in range(1000)),
    "a splat of 2**60 strings": lambda: splat((1 << 60,), run(8, b"x"), STRING),
    "a splat of 100000 strings": lambda: splat((100_000,), run(8, b"x" * 10_000), STRING),
    "a splat of strings, often": lambda: b"".join(constant(f"c{i}", tensor_proto(STRING, (60_000,), run(8, b"x" * 1000)), STRING) for i in range(500)),
    "content too short": lambda: splat((3, 4), run(4, RAW[:-1])),
    "content for 2**62": lambda: splat((1 << 62,), run(4, RAW)),
    "more values than fit": lambda: splat((2,), run(5, RAW)),
    "half a value": lambda: splat((3,), run(5, RAW[:6])),
    "complex in one part": lambda: splat((3,), run(9, RAW[:4]), 8),
    "negative sizes": lambda: splat((-3,), run(4, RAW)),
    "an unknown rank": lambda: constant("c", num(1, FLOAT) + run(2, num(3, 1)) + run(4, RAW)),
    "a million axes": lambda: constant("c", num(1, FLOAT) + run(2, run(2, num(1, 1)) * size(20_000, 1_000_000)) + run(4, RAW[:4])),
    "varints that never end": lambda: splat((3,), run(7, b"\xff" * 100), 3),
    "unpacked varints without number": lambda: splat((3,), num(7, 1) * size(200_000, 10_000_000), 3) + SOUND,
    "unpacked varints of ten bytes": lambda: splat((3,), num(7, -1) * size(200_000, 5_000_000), 3) + SOUND,
    "as many constants as may be": lambda: b"".join(constant(f"c{i}", tensor_proto(FLOAT, (3, 4), run(4, RAW))) for i in range(size(1000, 24_000))),
    "100000 constants": lambda: b"".join(constant(f"c{i}", tensor_proto(FLOAT, (3, 4), run(4, RAW))) for i in range(size(1000, 100_000))),
    "varints without number": lambda: splat((3,), run(7, b"\1" * size(1_000_000, 5_000_000)), 3),
    "unpacked without number": lambda: splat((3,), num(7, 1) * size(50_000, 2_000_000), 3),
    "a variant": lambda: splat((1,), run(15, run(1, "t")), 21),
    "variants in variants": lambda: splat((1,), nested(15, 100_000), 21),
    "functions 50 deep": lambda: functions_in_functions(50),
    "functions 2000 deep": lambda: functions_in_functions(2000),
    "lists in lists": lambda: node("n", "Op", {"a": run(1, nested(9, 1000))}),
    "nodes without number": lambda: run(1, b"") * MANY,
    "nodes with names": lambda: b"".join(node(f"n{i}", "NoOp") for i in range(MANY // 4)),
    "nodes of one name": lambda: SOUND * size(200, 1000),
    "constants without number": lambda: b"".join(constant(f"c{i}", tensor_proto(FLOAT, (1,), run(4, RAW[:4]))) for i in range(size(500, 100_000))),
    "devices without number": lambda: b"".join(node(f"n{i}", "NoOp", more=run(4, f"/device:GPU:{i}")) for i in range(MANY // 10)),
    "ops without number": lambda: b"".join(node("n", f"Op{i}") for i in range(MANY // 10)),
    "op names of a megabyte": lambda: b"".join(node("n", f"{i}" + "x" * 1_000_000) for i in range(size(4, 40))),
    "functions without number": lambda: run(2, run(1, b"") * MANY),
    "consumers without number": lambda: SOUND + run(4, run(3, b"\1" * 5_100_000)),
    "gradients without number": lambda: run(2, run(2, b"") * MANY),
    "attributes without number": lambda: node("n", "Op", {f"a{i}": b"" for i in range(MANY // 4)}),
    "unknown without number": lambda: num(99, 1) * MANY,
    "a message that lies": lambda: lying(1, 1 << 40),
    "names with escapes": lambda: constant("\x1b[2J\nx", tensor_proto(FLOAT, (1,), run(4, RAW[:4]))),
    "py_func": lambda: node("n", "PyFunc", {"token": run(2, "pyfunc_0")}),
    "reading files": lambda: node("n", "ReadFile") + node("m", "WriteFile") + node("o", "WholeFileReaderV2"),
}
# fmt: on


@pytest.mark.parametrize("name", PROTOS)
def test_graphs(arena, name):
    data = PROTOS[name]() + SOUND
    attacks = [
        a_file(name, "m.pb", data),
        a_folder(name, {"m/saved_model.pb": saved_model(data)}, "m"),
    ]
    for attack in attacks if DEEP or name not in LONG else attacks[:1]:
        outcomes = arena.one(attack, both(name))
        assert {o.code for o in outcomes} <= {0, 3, 4}, outcomes


def test_ops_that_reach_out_are_reported(tmp_path):
    path = tmp_path / "m.pb"
    path.write_bytes(PROTOS["py_func"]() + PROTOS["reading files"]() + SOUND)
    findings = converter.read(path).metadata.findings
    assert {f.subject for f in findings} >= {"PyFunc", "ReadFile", "WriteFile"}


# -- SavedModels ---------------------------------------------------------------------------------


def keras_metadata(text):
    return {
        "saved_model.pb": saved_model(SOUND),
        "keras_metadata.pb": run(1, num(2, 0) + run(3, "root") + run(5, text)),
    }


# fmt: off
FOLDERS = {
    "metadata that nests": lambda: keras_metadata("[" * 100_000),
    "metadata of 90 MB": lambda: keras_metadata('{"a":[' + "[]," * size(3_000_000, 30_000_000) + "1]}"),
    "metadata of numbers": lambda: keras_metadata('{"a":' + "9" * 5000 + "}"),
    "metadata that is a list": lambda: keras_metadata("[1]"),
    "an asset with dots": lambda: {"saved_model.pb": saved_model(SOUND, run(6, run(1, run(1, "x")) + run(2, "../../escaped")))},
    "an asset that is absolute": lambda: {"saved_model.pb": saved_model(SOUND, run(6, run(2, "/etc/passwd")))},
    "an asset that is missing": lambda: {"saved_model.pb": saved_model(SOUND, run(6, run(2, "words.txt")))},
    "meta graphs without number": lambda: {"saved_model.pb": num(1, 1) + run(2, b"") * (MANY // 4)},
    "200000 meta graphs": lambda: {"saved_model.pb": num(1, 1) + run(2, b"") * size(2000, 200_000)},
    "100000 meta graphs": lambda: {"saved_model.pb": num(1, 1) + run(2, b"") * size(2000, 99_000)},
    "signatures without number": lambda: {"saved_model.pb": saved_model(SOUND, b"".join(run(5, run(1, f"s{i}") + run(2, b"")) for i in range(MANY // 10)))},
    "signatures of types": lambda: {"saved_model.pb": saved_model(SOUND, run(5, run(1, "s") + run(2, run(1, run(1, "x") + run(2, run(3, b"".join(run(2, num(1, -9)) for _ in range(size(5000, 100_000)))))))))},
    "no meta graph": lambda: {"saved_model.pb": num(1, 1)},
    "version 2**63": lambda: {"saved_model.pb": num(1, 1 << 63) + saved_model(SOUND)[2:]},
    "a fingerprint of noise": lambda: {"saved_model.pb": saved_model(SOUND), "fingerprint.pb": b"\xff" * 100},
    "both kinds": lambda: {"saved_model.pb": saved_model(SOUND), "saved_model.pbtxt": b"{"},
    "variables of another": lambda: {"saved_model.pb": saved_model(SOUND), "variables/variables.index": b"x" * 100},
}
# fmt: on


@pytest.mark.parametrize("name", FOLDERS)
def test_saved_models(arena, name):
    files = {f"m/{path}": data for path, data in FOLDERS[name]().items()}
    outcomes = arena.one(a_folder(name, files, "m"), ("inspect", "portable"))
    assert {o.code for o in outcomes} <= {0, 3, 4, 5}, outcomes


# -- text ----------------------------------------------------------------------------------------

WORD = "versions { producer: 1 } node { name: 'w' op: 'Const' "


def a_value(text):
    return (WORD + "attr { key: 'value' value { " + text + " } } }").encode()


# fmt: off
TEXTS = {
    "braces without end": lambda: b"node { name: 'x' } " + b"node {" * 1_000_000,
    "angles without end": lambda: b"node { name: 'x' } " + b"node <" * 1_000_000,
    "nested": lambda: a_value("list { " * 100_000),
    "lists in lists": lambda: a_value("list { i: [" + "[" * 100_000),
    "a string without end": lambda: a_value("s: '" + "x" * 10_000_000),
    "a string of 100 MB": lambda: a_value("s: '" + "x" * size(20_000_000, 100_000_000) + "'"),
    "a string of escapes": lambda: a_value("s: '" + "\\001" * size(1_000_000, 10_000_000) + "'"),
    "a string of odd escapes": lambda: a_value("s: '" + "\\u0041\\777" * 1_000_000 + "'"),
    "escapes that are none": lambda: a_value("s: '\\q'"),
    "a backslash at the end": lambda: a_value("s: '\\"),
    "strings side by side": lambda: a_value("s: " + "'x' " * size(100_000, 1_000_000)),
    "numbers without number": lambda: a_value("list { i: [" + "1," * size(50_000, 3_000_000) + "1] }"),
    "floats without number": lambda: a_value("tensor { dtype: DT_FLOAT tensor_shape { dim { size: 9 } } " + "float_val: 1.5 " * size(20_000, 1_500_000) + "}"),
    "enums without number": lambda: a_value("list { type: [" + "DT_FLOAT," * size(50_000, 2_000_000) + "1] }"),
    "signs without number": lambda: a_value("i: " + "-" * 1_000_000 + "1"),
    "a number of 10**6 digits": lambda: a_value("i: " + "9" * 1_000_000),
    "a float of 10**6 digits": lambda: a_value("f: 0." + "9" * 1_000_000),
    "a number past 64 bits": lambda: a_value("i: 99999999999999999999"),
    "octal nonsense": lambda: a_value("i: 0999"),
    "comments without end": lambda: b"node { name: 'x' }\n" + b"#\n" * size(500_000, 5_000_000),
    "blanks without end": lambda: b"node { name: 'x' }" + b" " * size(5_000_000, 50_000_000),
    "separators without end": lambda: a_value("i: 1 " + ";" * 1_000_000),
    "extensions without end": lambda: b"node { name: 'x' } [" + b"a." * size(50_000, 1_600_000),
    "names of 10 MB": lambda: b"node { name: 'x' } " + b"n" * 10_000_000 + b": 1",
    "maps of one key": lambda: (WORD + "attr { key: 'a' value { i: 1 } } " * size(10_000, 200_000) + "}").encode(),
    "messages without number": lambda: b"node { name: 'x' } " + b"node{}" * size(20_000, 1_500_000),
    "no UTF-8": lambda: b"node { name: '\xff\xfe' op: 'Const' }",
    "a NUL": lambda: b"node { name: 'x' }\0",
}
# fmt: on


@pytest.mark.parametrize("name", TEXTS)
def test_texts(arena, name):
    outcomes = arena.one(a_file(name, "m.pbtxt", TEXTS[name]()), ("inspect",))
    assert {o.code for o in outcomes} <= {0, 3, 4}, outcomes


@pytest.mark.parametrize("state", [
    b"model_checkpoint_path: '../escaped'", b"model_checkpoint_path: '/etc/passwd'",
    b"model_checkpoint_path: ''", b"model_checkpoint_path: 'ckpt\\000'", b"\xff" * 100,
    b"model_checkpoint_path: 'checkpoint'", b"model_checkpoint_path: '" + b"x" * 100_000 + b"'",
])  # fmt: skip
def test_states_lead_nowhere(arena, state):
    """The ``checkpoint`` file names the latest one."""
    files = bundle({b"w": entry()}, RAW)
    inside = {f"m/{name}": data for name, data in files.items()}
    outside = {f"escaped{name[4:]}": data for name, data in files.items()}
    attack = a_folder("state", {**inside, **outside, "m/checkpoint": state}, "m")
    outcomes = arena.one(attack, ("inspect", "portable"))
    assert {o.code for o in outcomes} <= {0, 3, 5}, outcomes
