"""Pickles that want time, memory or stack: each is read or refused within the bounds.

Numbers in an attack's name are those of its full size.
"""

import struct
import zipfile

import pytest
from attacks.arena import DEEP, a_file, size
from attacks.pickles import (
    APPEND,
    BUILD,
    DUP,
    EMPTY_DICT,
    EMPTY_LIST,
    EMPTY_TUPLE,
    MARK,
    NONE,
    POP,
    PROTO,
    REDUCE,
    SETITEM,
    STOP,
    build,
    call,
    get,
    named,
    number,
    put,
    short_bytes,
    state_dict,
    storage,
    tar_of,
    tensor,
    text,
    torch_stream,
    torch_tar,
    torch_zip,
    value,
    weights,
)

MANY = size(1_000_000, 10_000_000)


def laughs(levels, width, wrap):
    """Return a value of width**levels leaves that is written in levels * width opcodes."""
    out = text("lol") + put(0)
    for level in range(levels):
        out += POP + wrap(get(level) * width) + put(level + 1)
    return out


def twice_in_a_dict(x):
    return EMPTY_DICT + text("a") + x + SETITEM + text("b") + x + SETITEM


def nested(opening, closing, depth, core=NONE):
    return opening * depth + core + closing * depth


def a_list(items):
    return EMPTY_LIST + MARK + items + b"e"


def a_tuple(items):
    return MARK + items + b"t"


def deep_tuple(depth):
    return NONE + b"\x85" * depth


def cycle():
    return EMPTY_LIST + put(10) + get(10) + APPEND


def dict_cycle():
    return EMPTY_DICT + put(11) + text("self") + get(11) + SETITEM


def tuple_cycle():
    """A tuple inside a list inside the tuple."""
    return EMPTY_LIST + put(12) + get(12) + b"\x85" + APPEND


def record_cycle():
    return build(call("a.B") + put(13), {"me": get(13)}) + MARK + text("x") + get(13) + b"u"


def module_cycle():
    state = {"_parameters": {}, "_modules": {"child": get(14)}, "_buffers": {}}
    return build(call("a.Module") + put(14), state)


def long_list_often(length, times):
    return a_list(a_list(b"K\x01" * length) + put(15) + POP + get(15) * times)


def wide_with_a_tensor(width, times):
    wide = EMPTY_LIST + MARK + b"K\x01" * width + tensor("0", (3, 4)) + b"e" + put(15)
    return a_list(wide + get(15) * times)


def long_text_often(length, times):
    return a_list(text("x" * length) + put(16) + get(16) * times)


def wide_copies(cls, length, times):
    """Ask a constructor to copy the same long list over and over."""
    out = a_list(b"K\x01" * length) + put(17) + POP + named(cls) + put(18) + POP
    return a_list(out + (get(18) + get(17) + b"\x85" + REDUCE) * times)


def dict_copies(length, times):
    pairs = EMPTY_DICT + MARK + b"".join(text(str(i)) + NONE for i in range(length)) + b"u"
    out = pairs + put(17) + POP + named("collections.OrderedDict") + put(18) + POP
    return a_list(out + (get(18) + get(17) + b"\x85" + REDUCE) * times)


def encoded_often(length, times):
    out = text("é" * length) + put(17) + POP + named("_codecs.encode") + put(18) + POP
    out += a_tuple(get(17) + text("latin1")) + put(19) + POP
    return a_list(out + (get(18) + get(19) + REDUCE) * times)


def tensors_of_one_storage(count):
    one = tensor("0", (3, 4))
    return EMPTY_DICT + MARK + b"".join(text(str(i)) + one for i in range(count)) + b"u"


def one_tensor_often(count):
    """The same tensor object under many names, each reached through the memo."""
    return a_list(tensor("0", (3, 4)) + put(20) + get(20) * count)


def nested_files(depth):
    inner = PROTO + NONE + STOP
    for _ in range(depth):
        inner = PROTO + call("torch.storage._load_from_bytes", short_bytes(inner)) + STOP
    return inner[2:-1]


def fan_of_files(count, levels):
    """Files in bytes in files, each loading the same bytes many times."""
    inner = PROTO + NONE + STOP
    for _ in range(levels):
        load = named("torch.storage._load_from_bytes") + put(21) + POP
        load += short_bytes(inner) + b"\x85" + put(22) + POP
        inner = PROTO + a_list(load + (get(21) + get(22) + REDUCE) * count) + STOP
    return inner[2:-1]


def odd_keys(count):
    """Integers that all have one hash, and tuples that hash slowly."""
    keys = b"".join(number(i * ((1 << 61) - 1)) + NONE for i in range(1, count))
    return EMPTY_DICT + MARK + keys + b"u"


def deep_key(depth):
    return EMPTY_DICT + deep_tuple(depth) + NONE + SETITEM


def exponential_key():
    """A key whose hash, without a memo, visits 2**100 leaves."""
    out = EMPTY_TUPLE + put(0)
    for level in range(100):
        out += POP + get(level) + get(level) + b"\x86" + put(level + 1)
    return EMPTY_DICT + out + NONE + SETITEM


def long_names(count, length):
    return EMPTY_DICT + MARK + b"".join(
        text(f"{i:08d}" + "n" * length) + tensor("0", (3, 4)) for i in range(count)
    ) + b"u"  # fmt: skip


def deep_names(depth, times):
    """Long keys, one inside the other, with many tensors at the bottom."""
    leaves = EMPTY_DICT + MARK
    leaves += b"".join(text(str(i)) + tensor("0", (3, 4)) for i in range(times)) + b"u"
    return (EMPTY_DICT + text("k" * 5000)) * depth + leaves + SETITEM * depth


def records_with_many_states(count):
    return call("a.B") + (EMPTY_DICT + BUILD) * count


def arrays_of_arrays(depth):
    array = call("numpy.core.multiarray._reconstruct", named("numpy.ndarray"), (0,), b"C\x01b")
    kind = build(call("numpy.dtype", "O8", False, True), (3, "|", None, None, None, -1, -1, 63))
    out = NONE
    for _ in range(depth):
        out = build(array, (1, (1,), kind, False, a_list(out)))
    return out


# fmt: off
BOMBS = {
    "billion laughs of lists": lambda: laughs(30, 10, a_list),
    "billion laughs of tuples": lambda: laughs(100, 10, a_tuple),
    "billion laughs of dicts": lambda: laughs(60, 1, twice_in_a_dict),
    "billion laughs with a tensor": lambda: tensor("0", (3, 4)) + put(0) + b"".join(
        POP + a_list(get(n) * 10) + put(n + 1) for n in range(30)),
    "laughs of records": lambda: laughs(40, 3, lambda x: named("a.B") + a_tuple(x) + REDUCE),
    "laughs of states": lambda: laughs(40, 2, lambda x: call("a.B") + a_tuple(x) + BUILD),
    "laughs of sizes": lambda: laughs(40, 3, lambda x: named("torch.Size") + a_tuple(x) + REDUCE),
    "deep list": lambda: nested(EMPTY_LIST, APPEND, 1_000_000),
    "deep marks": lambda: nested(MARK, b"t", 1_000_000),
    "deep lists of marks": lambda: nested(MARK, b"l", 1_000_000),
    "deep tuple": lambda: deep_tuple(2_000_000),
    "deep dict": lambda: EMPTY_DICT + (text("a") + EMPTY_DICT) * size(50_000, 300_000) + SETITEM * size(50_000, 300_000),
    "deep records": lambda: NONE + (b"\x85r\1\0\0\0000ca\nB\nj\1\0\0\0R") * 200_000,
    "deep states": lambda: (named("a.B") + EMPTY_TUPLE + REDUCE) * 200_000 + NONE + BUILD * 200_000,
    "deep parameters": lambda: named("torch.nn.Parameter") * 1000 + NONE + b"\x85R" * 1000,
    "deep tuple as a key": lambda: deep_key(size(100_000, 1_000_000)),
    "exponential key": lambda: exponential_key(),
    "keys of one hash": lambda: odd_keys(size(50_000, 100_000)),
    "deep pid": lambda: deep_tuple(100_000) + b"Q",
    "deep class": lambda: deep_tuple(100_000) + EMPTY_TUPLE + REDUCE,
    "ten million marks": lambda: MARK * MANY,
    "ten million nones": lambda: NONE * MANY,
    "ten million dups": lambda: NONE + DUP * MANY,
    "ten million pops": lambda: (NONE + POP) * (MANY // 2),
    "ten million memos": lambda: NONE + b"\x94" * MANY,
    "a mebibyte of protos": lambda: PROTO * size(1 << 17, 1 << 20),
    "huge LONG4": lambda: b"\x8b" + struct.pack("<i", 1 << 29) + b"\xff" * 1000,
    "LONG4 that is there": lambda: b"\x8b" + struct.pack("<i", 1 << 26) + b"\x7f" * (1 << 26),
    "negative LONG4": lambda: b"\x8b" + struct.pack("<i", -5) + b"\xff" * 10,
    "LONG of a million digits": lambda: b"L" + b"9" * 1_000_000 + b"L\n",
    "INT of a million digits": lambda: b"I" + b"9" * 1_000_000 + b"\n",
    "INT of 2000 digits": lambda: b"I" + b"9" * 2000 + b"\n",
    "LONG1 of 255 bytes": lambda: b"\x8a\xff" + b"\x7f" * 255,
    "a thousand big integers": lambda: a_list((b"\x8a\xff" + b"\x7f" * 255) * 1000),
    "INT with underscores": lambda: b"I1_000\n",
    "FLOAT nan": lambda: b"Fnan\n",
    "FLOAT of a million digits": lambda: b"F" + b"9" * 1_000_000 + b"\n",
    "huge PUT": lambda: NONE + b"p99999999999999999999\n",
    "negative PUT": lambda: NONE + b"p-1\n",
    "huge LONG_BINPUT": lambda: NONE + b"r\xff\xff\xff\xff",
    "huge GET": lambda: b"g99999999999999999999\n",
    "PUT of 10**3 digits": lambda: NONE + b"p" + b"9" * 1000 + b"\n",
    "FRAME of everything": lambda: b"\x95" + b"\xff" * 8 + NONE,
    "FRAME of nothing": lambda: b"\x95" + b"\0" * 8 + NONE,
    "FRAME in a FRAME": lambda: (b"\x95" + struct.pack("<Q", 1 << 40)) * 1000 + NONE,
    "BINUNICODE8 of everything": lambda: b"\x8d" + b"\xff" * 8 + b"x",
    "BINBYTES8 of everything": lambda: b"\x8e" + b"\xff" * 8 + b"x",
    "BYTEARRAY8 of everything": lambda: b"\x96" + b"\xff" * 8 + b"x",
    "BINSTRING, negative": lambda: b"T\xff\xff\xff\xff" + b"x",
    "BINUNICODE of 2 GiB": lambda: b"X\xff\xff\xff\x7f",
    "a text of 64 MiB": lambda: text("x" * (size(16, 64) << 20)),
    "a line without an end": lambda: b"V" + b"x" * (32 << 20),
    "a million lines": lambda: a_list(b"Vx\n" * 1_000_000),
    "bytes of 64 MiB": lambda: short_bytes(b"x" * (size(16, 64) << 20)),
    "a global of 64 MiB": lambda: b"c" + b"m" * (64 << 20) + b"\nn\n",
    "100000 globals": lambda: a_list(b"".join(named(f"a.b{i}") for i in range(100_000))),
    "100000 calls": lambda: a_list(b"".join(call(f"a.b{i}") for i in range(100_000))),
    "a list in itself": lambda: cycle(),
    "a dict in itself": lambda: dict_cycle(),
    "a tuple in itself": lambda: tuple_cycle(),
    "a record in itself": lambda: record_cycle(),
    "a module in itself": lambda: module_cycle(),
    "a shorter list often": lambda: long_list_often(10_000, 500_000),
    "a long text often": lambda: long_text_often(1 << 20, size(100_000, 500_000)),
    "a long list often": lambda: long_list_often(1_000_000, 500_000),
    "a wide list with a tensor often": lambda: wide_with_a_tensor(size(20_000, 100_000), size(20_000, 100_000)),
    "list copies": lambda: wide_copies("builtins.list", 100_000, 100_000),
    "tuple copies": lambda: wide_copies("builtins.tuple", 100_000, 100_000),
    "set copies": lambda: wide_copies("builtins.set", 100_000, 100_000),
    "bytes copies": lambda: wide_copies("builtins.bytearray", 100_000, 100_000),
    "deque copies": lambda: wide_copies("collections.deque", 100_000, 100_000),
    "dict copies": lambda: dict_copies(50_000, 50_000),
    "encoded often": lambda: encoded_often(1 << 20, 100_000),
    "100000 views": lambda: tensors_of_one_storage(100_000),
    "a tensor a million times": lambda: one_tensor_often(1_000_000),
    "files in files": lambda: nested_files(100),
    "a fan of files": lambda: fan_of_files(1000, 6),
    "names of a mebibyte": lambda: long_names(60, 1 << 20),
    "long names in long names": lambda: deep_names(190, 20_000),
    "many states": lambda: records_with_many_states(size(100_000, 500_000)),
    "arrays in arrays": lambda: arrays_of_arrays(500),
    "a tensor of 2**62 elements": lambda: tensor("0", (1 << 62,), numel=12),
    "a splat of 2**62 elements": lambda: tensor("0", (1 << 62,), numel=12, strides=(0,)),
    "a splat of 64 axes": lambda: tensor("0", (2,) * 62, numel=12, strides=(0,) * 62),
    "strides beyond": lambda: tensor("0", (2, 2), numel=12, strides=(1 << 62, 1)),
    "negative strides": lambda: tensor("0", (2, 2), numel=12, strides=(-1, 1)),
    "negative offset": lambda: tensor("0", (2, 2), numel=12, offset=-5),
    "an offset of 10**400": lambda: tensor("0", (2, 2), numel=12, offset=number(10**400)),
    "a shape of 10**400": lambda: tensor("0", (number(10**400),), numel=12, strides=(0,)),
    "negative sizes": lambda: tensor("0", (-3, -4), numel=12),
    "ten thousand axes": lambda: tensor("0", (1,) * 10_000, numel=12),
    "a storage of -1": lambda: storage("0", -1),
    "a storage of 2**70": lambda: storage("0", 1 << 70),
    "a storage of another archive": lambda: storage("../../../etc/passwd", 3),
    "a storage that is missing": lambda: storage("99", 3),
    "a location of a mebibyte": lambda: storage("0", 12, location="x" * (1 << 20)),
    "a location with escapes": lambda: storage("0", 12, location="\x1b[2J\nroot#"),
}
# fmt: on


# What takes seconds, tried only with CONVERTER_ATTACK_ROUNDS.
HEAVY = {
    "100000 calls", "100000 views", "LONG4 that is there", "billion laughs with a tensor",
    "a fan of files", "a million lines", "a shorter list often", "a tensor a million times",
    "bytes copies", "deep list", "deep lists of marks", "deep marks", "deep records", "deep states",
    "deep tuple", "dict copies", "names of a mebibyte", "set copies", "ten million dups",
    "ten million memos", "ten million nones", "ten million pops", "tuple copies",
}  # fmt: skip
LIGHT = [name for name in BOMBS if name not in HEAVY]
OPERATIONS = ("inspect", "safetensors", "portable") if DEEP else ("inspect",)


@pytest.mark.parametrize("name", BOMBS if DEEP else LIGHT)
def test_bomb_in_a_zip(arena, name):
    pickle = state_dict(weights(), {"bomb": BOMBS[name]()})
    outcomes = arena.one(a_file(name, "m.pt", torch_zip(pickle)), OPERATIONS)
    assert {o.code for o in outcomes} <= {0, 3, 4}, outcomes


@pytest.mark.parametrize("name", BOMBS if DEEP else LIGHT[::8])
def test_bomb_in_a_stream(arena, name):
    pickle = state_dict(weights(), {"bomb": BOMBS[name]()})
    outcomes = arena.one(a_file(name, "m.pth", torch_stream(pickle)), OPERATIONS)
    assert {o.code for o in outcomes} <= {0, 3, 4}, outcomes


@pytest.mark.skipif(not DEEP, reason="takes seconds: set CONVERTER_ATTACK_ROUNDS")
def test_a_deflated_pickle(arena):
    """Sixty megabytes of pickle in sixty kilobytes of archive."""
    pickle = state_dict(weights(), {"bomb": a_list(b"K\x01" * 60_000_000)})
    data = torch_zip(pickle, compression=zipfile.ZIP_DEFLATED)
    arena.refused(a_file("deflated pickle", "m.pt", data))


@pytest.mark.skipif(not DEEP, reason="takes seconds: set CONVERTER_ATTACK_ROUNDS")
def test_a_list_of_four_million_numbers_in_one_opcode_each(arena):
    """As many as the opcodes allow; sound, if odd."""
    pickle = state_dict(weights(), {"bomb": a_list(b"K\x01" * 3_900_000)})
    arena.one(a_file("a long list", "m.pt", torch_zip(pickle)), OPERATIONS)


@pytest.mark.parametrize(
    "size", [b"-0000001000", b"-0000002000", b"77777777777", b"\x80" + b"\xff" * 10]
)
def test_tar_members_of_impossible_size(arena, size):
    """-1000 is -512 in octal: the next header would be this one again, for ever."""
    data = bytearray(torch_tar())
    data[124:135] = size[:11]
    data[156:157] = b"x"
    arena.refused(a_file(f"tar {size!r}", "m.pth", bytes(data)))


def test_a_tar_of_many_small_pickles(arena):
    """Each of very many storages is a pickle of its own."""
    entry = PROTO + value(("0", "cpu", named("torch.ByteStorage"))) + STOP + struct.pack("<q", 0)
    members = {
        "sys_info": PROTO + EMPTY_DICT + STOP,
        "pickle": PROTO + EMPTY_DICT + STOP,
        "storages": PROTO + number(240_000) + STOP + entry * 240_000,
        "tensors": PROTO + number(0) + STOP,
    }
    arena.refused(a_file("tar of storages", "m.pth", tar_of(members)), operations=OPERATIONS)


def test_a_stream_of_many_storages(arena):
    keys = [str(i) for i in range(size(5000, 100_000))]
    refs = EMPTY_LIST + MARK + b"".join(storage(k, 0) for k in keys) + b"e"
    stream = torch_stream(PROTO + refs + STOP, {})
    stream = stream.removesuffix(PROTO + value([]) + STOP) + PROTO + value(keys) + STOP
    arena.one(a_file("stream of storages", "m.pth", stream + b"\0" * 8 * len(keys)), OPERATIONS)
