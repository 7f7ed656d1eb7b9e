"""Distributed checkpoints whose metadata lies, leads elsewhere, or wants time and memory.

Numbers in an attack's name are those of its full size.
"""

import io
import zipfile

import numpy as np
import pytest
from attacks.arena import DEEP, ROUNDS, Attack, a_folder, size
from attacks.dcp import (
    MODULE,
    SHARD,
    Checkpoint,
    chunk,
    entry,
    index,
    instance,
    metadata,
    pairs,
    place,
    saved,
)
from attacks.mutate import cuts, damaged
from attacks.pickles import (
    APPEND,
    BUILD,
    EMPTY_DICT,
    EMPTY_LIST,
    MARK,
    NONE,
    POP,
    PROTO,
    STOP,
    build,
    call,
    get,
    number,
    put,
    short_bytes,
    tensor,
    text,
    torch_zip,
    value,
)
from attacks.zips import Entry, zip_of

import converter
from formats.errors import ConvertError

WHOLE = np.arange(24, dtype="f4").reshape(4, 6)
QUARTERS = [((r, c), (2, 3)) for r in (0, 2) for c in (0, 3)]
ROWS = [((0, 0), (2, 6)), ((2, 0), (2, 6))]


def sound() -> Checkpoint:
    checkpoint = Checkpoint().add("model.w", WHOLE, QUARTERS).add("model.b", WHOLE[0])
    checkpoint.store("epoch", None, torch_zip(PROTO + number(3) + STOP, {}))
    checkpoint.entries["epoch"] = instance(f"{MODULE}BytesStorageMetadata", {})
    return checkpoint


def test_the_writer_is_sound(arena, tmp_path):
    for name, data in sound().files().items():
        (tmp_path / name).write_bytes(data)
    bundle = converter.read(tmp_path)
    assert bundle.metadata.user == {"epoch": 3}
    assert {n: t.tobytes() for n, t in bundle.weights.items()} == {
        "model.w": WHOLE.tobytes(), "model.b": WHOLE[0].tobytes()
    }  # fmt: skip
    arena.read(a_folder("sound", sound().files()))


def with_boxes(*boxes, size=None):
    return Checkpoint().add("w", WHOLE, boxes, size)


def with_chunks(chunks, size=WHOLE.shape, stored=ROWS):
    checkpoint = Checkpoint().add("w", WHOLE, stored)
    checkpoint.entries["w"] = entry(size, chunks)
    return checkpoint


def with_place(**lies):
    """Return a checkpoint that says something else of where its one chunk is."""
    data = saved(WHOLE)
    checkpoint = Checkpoint({"w": entry(WHOLE.shape, [chunk((0, 0), (4, 6))])}, [], bytearray(data))
    about = {"file": SHARD, "offset": 0, "length": len(data), **lies}
    checkpoint.places.append((index("w", (0, 0)), place(**about)))
    return checkpoint


def with_index(name, offsets):
    checkpoint = with_place()
    checkpoint.places = [(index(name, offsets), checkpoint.places[0][1])]
    return checkpoint


def with_data(data, boxes=(((0, 0), (4, 6)),), whole=WHOLE.shape):
    """Return a checkpoint whose chunks are all these bytes."""
    checkpoint = Checkpoint({"w": entry(whole, [chunk(o, s) for o, s in boxes])})
    for offsets, _ in boxes:
        checkpoint.store("w", offsets, data)
    return checkpoint


def raw(about: bytes, **files: bytes):
    return {".metadata": about, SHARD: saved(WHOLE), **files}


def twice(checkpoint):
    """Say of one chunk twice where it is."""
    checkpoint.places.append((checkpoint.places[0][0], place(SHARD, 0, 1)))
    return checkpoint


BIG = 1 << 62
# fmt: off
BOXES = {
    "none": lambda: with_chunks([]),
    "no list": lambda: with_chunks({}),
    "one too few": lambda: with_boxes(*ROWS[:1]),
    "one too many": lambda: with_boxes(*ROWS, ((4, 0), (2, 6))),
    "one twice": lambda: with_boxes(ROWS[0], ROWS[0]),
    "one listed twice": lambda: with_chunks([chunk(*ROWS[0]), chunk(*ROWS[0])]),
    "one elsewhere": lambda: with_boxes(((1, 0), (4, 6))),
    "one of two elsewhere": lambda: with_boxes(((0, 0), (2, 6)), ((3, 0), (2, 6))),
    "a hole and an overlap": lambda: with_boxes(((0, 0), (2, 6)), ((1, 0), (2, 6))),
    "a hole and an overlap in columns": lambda: with_boxes(((0, 0), (4, 4)), ((0, 3), (4, 2))),
    "a hole and an overlap in corners": lambda: with_boxes(
        ((0, 0), (2, 3)), ((0, 3), (2, 3)), ((2, 0), (2, 3)), ((1, 2), (3, 2))),
    "only an empty one": lambda: with_boxes(((0, 0), (0, 6))),
    "a negative offset": lambda: with_boxes(((-2, 0), (2, 6)), ((0, 0), (2, 6))),
    "negative sizes": lambda: with_chunks([chunk((0, 0), (-2, -6)), chunk((2, 0), (2, 6))]),
    "offsets of 2**64": lambda: with_chunks([chunk((1 << 64, 0), (2, 6))]),
    "offsets of 10**600": lambda: with_chunks([chunk((number(10**600), 0), (2, 6))]),
    "offsets of one axis": lambda: with_chunks([chunk((0,), (2, 6)), chunk((2,), (2, 6))]),
    "offsets of text": lambda: with_chunks([chunk("ab", (2, 6))]),
    "offsets of floats": lambda: with_chunks([chunk((0.0, 0.0), (2, 6))]),
    "offsets of truth": lambda: with_chunks([chunk((False, False), (2, 6))]),
    "no offsets": lambda: with_chunks([instance(f"{MODULE}ChunkStorageMetadata", {})]),
    "a hundred axes": lambda: with_chunks([chunk((0,) * 100, (1,) * 100)]),
    "a chunk of another class": lambda: with_chunks([call("os.system", "true")]),
    "chunks that are numbers": lambda: with_chunks([1, 2, 3]),
    "sizes that are not stored": lambda: with_chunks([chunk((0, 0), (2, 3)), chunk((2, 0), (2, 6))]),
    "a size of 2**62": lambda: with_boxes(*ROWS, size=(BIG, 6)),
    "a size of 2**62 and its chunk": lambda: with_chunks([chunk((0, 0), (BIG, 1))], (BIG, 1)),
    "a size that overflows": lambda: with_boxes(*ROWS, size=(BIG, BIG, BIG)),
    "a size of 10**600": lambda: with_boxes(*ROWS, size=(number(10**600),)),
    "a size of zero": lambda: with_boxes(*ROWS, size=(0, 6)),
    "a negative size": lambda: with_boxes(*ROWS, size=(-4, -6)),
    "a size of three axes": lambda: with_boxes(*ROWS, size=(4, 6, 1)),
    "a size of text": lambda: with_boxes(*ROWS, size="4x6"),
    "no size": lambda: with_boxes(((0, 0), (4, 6)), size=NONE),
    "a size of a thousand axes": lambda: with_boxes(*ROWS, size=(1,) * 1000),
    "another element type": lambda: Checkpoint().add("w", WHOLE, ROWS, dtype="int64"),
}
PLACES = {
    "no place": lambda: Checkpoint({"w": entry((4, 6), [chunk((0, 0), (4, 6))])}, [], bytearray(b"x")),
    "two places": lambda: twice(with_place()),
    "a place of another chunk": lambda: with_index("w", (1, 0)),
    "a place of another tensor": lambda: with_index("v", (0, 0)),
    "a place of a number": lambda: with_index(5, (0, 0)),
    "a place of no offsets": lambda: with_index("w", None),
    "a place of odd offsets": lambda: with_index("w", "x"),
    "an offset past the end": lambda: with_place(offset=1 << 40),
    "an offset of 2**64": lambda: with_place(offset=1 << 64),
    "an offset of 10**600": lambda: with_place(offset=number(10**600)),
    "a negative offset": lambda: with_place(offset=-1),
    "an offset that is a float": lambda: with_place(offset=0.0),
    "an offset by one": lambda: with_place(offset=1, length=100),
    "a length past the end": lambda: with_place(length=1 << 40),
    "a length of 2**64": lambda: with_place(length=1 << 64),
    "a negative length": lambda: with_place(length=-1),
    "no length": lambda: with_place(length=0),
    "one byte": lambda: with_place(length=1),
    "one byte less": lambda: with_place(length=len(saved(WHOLE)) - 1),
    "a length that is text": lambda: with_place(length="all"),
    "the metadata as a chunk": lambda: with_place(file=".metadata", length=100),
    "a file that is missing": lambda: with_place(file="__9_9.distcp"),
    "a file without name": lambda: with_place(file=""),
    "a file that is the folder": lambda: with_place(file="."),
    "a file that is a number": lambda: with_place(file=7),
    "a name of surrogates": lambda: with_place(file="\ud800"),
    "a name of a mebibyte": lambda: with_place(file="x" * (1 << 20)),
    "a path of a mebibyte": lambda: with_place(file="x/" * (1 << 19)),
}
OUTSIDE = {
    "dots": "../secret.distcp",
    "dots inside": "a/../../secret.distcp",
    "absolute": "/etc/passwd",
    "backslashes": "..\\secret.distcp",
    "a drive": "C:\\secret.distcp",
    "a URL": "file:///etc/passwd",
    "a NUL": "a\0b",
    "a link": "link.distcp",
    "a link to a folder": "folder/secret.distcp",
}
# fmt: on


@pytest.mark.parametrize("name", [n for n in BOXES if n not in ("none", "no list")])
def test_boxes_that_are_none(arena, name):
    arena.refused(a_folder(name, BOXES[name]().files()))


@pytest.mark.parametrize("name", ["none", "no list"])
def test_a_tensor_without_chunks_is_named(arena, name):
    """It has no elements to lose."""
    outcomes = arena.one(a_folder(name, BOXES[name]().files()), ("inspect", "portable"))
    assert {o.code for o in outcomes} == {0}, outcomes


@pytest.mark.parametrize("name", PLACES)
def test_places_that_are_none(arena, name):
    arena.refused(a_folder(name, PLACES[name]().files()))


@pytest.mark.parametrize("name", OUTSIDE)
def test_chunks_in_files_elsewhere(arena, name):
    def build(folder):
        inner = folder / "m"
        inner.mkdir()
        (folder / "secret.distcp").write_bytes(saved(WHOLE))
        (inner / "link.distcp").symlink_to("../secret.distcp")
        (inner / "folder").symlink_to("..")
        for file, data in with_place(file=OUTSIDE[name]).files().items():
            (inner / file).write_bytes(data)
        return inner

    arena.refused(Attack(name, build), 5)


def test_an_empty_chunk_takes_nothing_away(arena):
    """Ranks without a part of a tensor write an empty one, and all the same one."""
    checkpoint = Checkpoint().add("w", WHOLE, [*ROWS, ((4, 0), (0, 6))])
    listed = [chunk(*box) for box in [*ROWS, ((4, 0), (0, 6)), ((4, 0), (0, 6))]]
    checkpoint.entries["w"] = entry(WHOLE.shape, listed)
    checkpoint.add("v", WHOLE[:0], [((0, 0), (0, 3)), ((0, 3), (0, 3))])
    arena.read(a_folder("empty chunk", checkpoint.files()))


# fmt: off
METADATA = {
    "empty": b"",
    "a zip": saved(WHOLE),
    "text": b"version: 1\n",
    "zeros": bytes(1000),
    "a pickle of nothing": PROTO + NONE + STOP,
    "a pickle of a number": PROTO + number(5) + STOP,
    "a pickle that ends early": PROTO + value({"a": 1}),
    "a bare dict": PROTO + value({"state_dict_metadata": {}, "storage_data": {}}) + STOP,
    "a record without state": PROTO + call(f"{MODULE}Metadata") + STOP,
    "a record of itself": PROTO + call(f"{MODULE}Metadata") + put(1) + get(1) + BUILD + STOP,
    "lists for dicts": metadata(value([]), value([])),
    "no entries": PROTO + instance(f"{MODULE}Metadata", {"storage_data": {}}) + STOP,
    "no places": metadata(value({"w": entry((1,), [])}), NONE),
    "places without a name": metadata(value({}), pairs([(text("w"), place(SHARD, 0, 1))])),
    "places that are numbers": metadata(value({}), value({"w": 1, 2: 3})),
    "places of places": metadata(value({}), pairs([(place(SHARD, 0, 1), index("w", (0, 0)))])),
}
# fmt: on


@pytest.mark.parametrize("name", METADATA)
def test_metadata_that_is_none(arena, name):
    arena.refused(a_folder(name, raw(METADATA[name])))


def with_entry(opcodes: bytes):
    """Return a sound checkpoint with one more entry."""
    checkpoint = sound()
    checkpoint.entries["odd"] = opcodes
    return checkpoint


@pytest.mark.parametrize("how", ["entry", "planner", "chunk", "key", "place"])
def test_callables_are_named_and_never_run(arena, tmp_path, how):
    marker = tmp_path / "marker"
    evil = call("os.system", f"touch {marker}")
    checkpoint, more = sound(), {}
    if how == "entry":
        checkpoint.entries["odd"] = evil
    elif how == "planner":
        more = {"planner_data": evil}
    elif how == "chunk":
        checkpoint.store("epoch2", None, torch_zip(PROTO + evil + STOP, {}))
        checkpoint.entries["epoch2"] = instance(f"{MODULE}BytesStorageMetadata", {})
    elif how == "key":
        checkpoint.entries["odd"] = EMPTY_DICT + MARK + evil + NONE + b"u"
    else:
        checkpoint.places.append((index("odd", (0,)), build(place(SHARD, 0, 1), {"x": evil})))
    files = checkpoint.files(**more)
    arena.read(a_folder(how, files))
    assert not marker.exists()
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    bundle = converter.read(tmp_path)
    assert [f.subject for f in bundle.metadata.findings] == ["posix.system"] or [
        f.subject for f in bundle.metadata.findings
    ] == ["os.system"]
    assert bundle.weights["model.w"].tobytes() == WHOLE.tobytes()


def archive(*names):
    """Return a chunk with further members."""
    more = dict.fromkeys(names, b"")
    return torch_zip(PROTO + tensor("0", WHOLE.shape) + STOP, {"x": WHOLE}, members=more)


def compressed(array):
    return torch_zip(
        PROTO + tensor("0", array.shape) + STOP, {"x": array}, compression=zipfile.ZIP_DEFLATED
    )


def turned(rows, columns):
    """Return a deflated chunk of zeros, stored by columns."""
    pickle = PROTO + tensor("0", (rows, columns), strides=(1, rows)) + STOP
    return torch_zip(
        pickle, {"x": np.zeros((rows, columns), "f4")}, compression=zipfile.ZIP_DEFLATED
    )


def splat(shape, kind="FloatStorage", flag=""):
    """Return a chunk that is one element, over and over."""
    opcodes = tensor("0", shape, numel=1, kind=kind, strides=(0,) * len(shape))
    if flag:  # the last argument of the call, before it is closed
        opcodes = opcodes[:-2] + value({flag: True}) + opcodes[-2:]
    return torch_zip(PROTO + opcodes + STOP, {"x": np.zeros(1, "c8")})


def columns(rows, width, count):
    return [((0, i * width), (rows, width)) for i in range(count)]


def rows(count):
    return [((i, 0), (1, 6)) for i in range(count)]


def many(boxes, whole, data=None):
    return with_data(saved(np.zeros(boxes[0][1], "f4")) if data is None else data, boxes, whole)


def staggered(n):
    """Return boxes of two columns' width each that begin and end at rows of their own."""
    boxes = []
    for i in range(n):
        boxes += [((0, i), (i + 1, 1)), ((i + 1, i), (2 * n - i, 1))]
    return Checkpoint().add("w", np.zeros((2 * n + 1, n), "f4"), boxes)


def shared_chunks(count):
    """One chunk, listed over and over through the memo."""
    listed = EMPTY_LIST + MARK + chunk((0, 0), (4, 6)) + put(9000) + get(9000) * count + b"e"
    checkpoint = with_place()
    checkpoint.entries["w"] = entry((4, 6), listed)
    return checkpoint


def shared_place(count):
    """One place, given over and over under keys that are one object."""
    checkpoint = with_place()
    key, where = checkpoint.places[0]
    more = [(get(9001), get(9002))] * count
    checkpoint.places = [(key + put(9001), where + put(9002)), *more]
    return checkpoint


def shared_entries(count):
    """The same entry under many names."""
    checkpoint = with_place()
    one = checkpoint.entries["w"] + put(9003)
    checkpoint.entries = {"w": one} | {str(i): get(9003) for i in range(count)}
    return checkpoint


def one_archive(count, members):
    """Very many entries that all are one archive of very many members."""
    data = torch_zip(
        PROTO + NONE + STOP, {}, members={f"m/x/{i}": b"" for i in range(members)}
    )  # fmt: skip
    checkpoint = Checkpoint(body=bytearray(data))
    where = place(SHARD, 0, len(data))
    for i in range(count):
        checkpoint.entries[str(i)] = instance(f"{MODULE}BytesStorageMetadata", {})
        checkpoint.places.append((index(str(i), None), where))
    return checkpoint


def many_values(count):
    """Very many entries, each a torch file of its own."""
    checkpoint = Checkpoint()
    data = torch_zip(PROTO + NONE + STOP, {})
    for i in range(count):
        checkpoint.store(str(i), None, data)
        checkpoint.entries[str(i)] = instance(f"{MODULE}BytesStorageMetadata", {})
    return checkpoint


# fmt: off
BOMBS = {
    "50000 chunks of one row": lambda: many(rows(size(5000, 50_000)), (size(5000, 50_000), 6)),
    "50000 chunks of one column": lambda: many(columns(4, 1, size(5000, 50_000)), (4, size(5000, 50_000))),
    "chunks of one column, many rows": lambda: many(
        columns(size(400, 4000), 1, size(400, 4000)), (size(400, 4000), size(400, 4000))),
    "staggered chunks": lambda: staggered(size(500, 3000)),
    "a chunk a million times": lambda: shared_chunks(size(100_000, 1_900_000)),
    "a place a million times": lambda: shared_place(size(100_000, 1_900_000)),
    "an entry a million times": lambda: shared_entries(size(100_000, 900_000)),
    "an archive of 50000 members 50000 times": lambda: one_archive(size(1500, 20_000), size(1500, 50_000)),
    "30000 values": lambda: many_values(size(3000, 30_000)),
    "a row of 240 MiB": lambda: many(columns(1, 31 << 20, 2), (1, 62 << 20), splat((1, 31 << 20))),
    "rows of 60 MiB": lambda: many(columns(4, 31 << 18, 2), (4, 62 << 18), splat((4, 31 << 18))),
    "a thin row of 240 MiB": lambda: many(
        [((0, 0, i), (1, 31 << 20, 1)) for i in range(2)], (1, 31 << 20, 2), splat((1, 31 << 20, 1))),
    "deflated zeros": lambda: many(
        columns(1 << 12, 1 << 12, 2), (1 << 12, 1 << 13), compressed(np.zeros((1 << 12, 1 << 12), "f4"))),
    "deflated zeros by columns": lambda: many(
        columns(1 << 12, 1 << 12, 2), (1 << 12, 1 << 13), turned(1 << 12, 1 << 12)),
    "very thin columns": lambda: many(
        columns(62, 50, size(2000, 20_000)), (62, 50 * size(2000, 20_000)), splat((62, 50))),
    "a conjugate in chunks": lambda: many(
        columns(1 << 12, 1 << 11, 2), (1 << 12, 1 << 12),
        splat((1 << 12, 1 << 11), "ComplexFloatStorage", "conj")),
    "a name of 60 MiB": lambda: Checkpoint().add("n" * (size(6, 60) << 20), WHOLE, ROWS),
    "a name of 60 MiB without data": lambda: Checkpoint(
        {"n" * (size(6, 60) << 20): entry((4, 6), [chunk((0, 0), (4, 6))])}, [], bytearray(b"x")),
    "a place of a name of 60 MiB": lambda: with_index("n" * (size(6, 60) << 20), (0, 0)),
    "entries deep": lambda: with_entry(EMPTY_LIST * 500_000 + APPEND * 499_999),
    "chunks deep": lambda: with_chunks(EMPTY_LIST * 500_000 + APPEND * 499_999),
    "a size deep": lambda: with_boxes(*ROWS, size=EMPTY_LIST * 100_000 + APPEND * 99_999),
    "a list of numbers as metadata": lambda: with_entry(
        EMPTY_LIST + MARK + b"K\1" * size(300_000, 3_900_000) + b"e"),
    "bytes of 60 MiB": lambda: with_entry(short_bytes(bytes(size(6, 60) << 20))),
}
# fmt: on


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(arena, name):
    outcomes = arena.one(a_folder(name, BOMBS[name]().files()))
    assert {o.code for o in outcomes} <= {0, 3, 4}, outcomes


def test_a_fan_of_archives(arena):
    """One torch file of very many members, inside another, opened over and over."""
    inner = torch_zip(
        PROTO + NONE + STOP, {}, members={f"m/x/{i}": b"" for i in range(size(2000, 50_000))}
    )
    load = short_bytes(inner) + b"\x85" + put(1) + POP + b"ctorch.storage\n_load_from_bytes\n"
    load += put(2) + POP + EMPTY_LIST + MARK + (get(2) + get(1) + b"R") * size(1000, 50_000) + b"e"
    data = torch_zip(PROTO + load + STOP, {})
    outcomes = arena.one(a_folder("fan", {"m.pt": data}, "m.pt"))
    assert {o.code for o in outcomes} <= {0, 3}, outcomes


def test_very_many_shards_and_strangers(arena):
    files = dict(sound().files())
    count = size(5000, 45_000)
    files |= {f"__{i}_1.distcp": b"" for i in range(count)}
    files |= {f"{i}.txt": b"" for i in range(count)}
    arena.one(a_folder("very many files", files))


@pytest.mark.parametrize("what", ["local headers", "directory", "end", "pickle", "names"])
def test_damaged_archives(arena, what):
    pickle = PROTO + tensor("0", WHOLE.shape) + STOP
    members = [Entry(b"m/data.pkl", pickle), Entry(b"m/data/0", WHOLE.tobytes())]
    lies = {}
    if what == "local headers":
        members[1].header = b"PK\x09\x09"
    elif what == "directory":
        lies = {"count": 7}
    elif what == "end":
        lies = {"offset": 1 << 30}
    elif what == "pickle":
        members[0].data = pickle[:-30]
    else:
        members[1].name = members[1].local_name = b"m/data/1"
    arena.refused(a_folder(what, with_data(zip_of(members, **lies)).files()))


@pytest.mark.timeout(0)
def test_damage(arena, record_property):
    files = dict(sound().files())

    def attacks():
        for file, count in ((".metadata", 60), (SHARD, 60)):
            data = files[file]
            tries = [*cuts(data, int(20 * ROUNDS), file)]
            tries += damaged(data, int(count * ROUNDS), f"dcp/{file}")
            for what, bad in tries:
                yield a_folder(f"{file} {what}", {**files, file: bad})

    report = arena.run(attacks(), ("inspect", "safetensors", "portable"))
    record_property("report", str(report))
    report.check()


def test_damage_never_changes_what_is_read(tmp_path):
    """A sound chunk in the place of another is another model; anything else must be noticed."""
    checkpoint = sound()
    files = dict(checkpoint.files())
    stream = io.BytesIO(files[SHARD])
    assert zipfile.is_zipfile(stream)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    for cut in range(0, len(files[".metadata"]), 1 if DEEP else 37):
        (tmp_path / ".metadata").write_bytes(files[".metadata"][:cut])
        with pytest.raises(ConvertError):
            converter.read(tmp_path)
