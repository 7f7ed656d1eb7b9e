"""HDF5 files that lead out, go in circles, or want more time and memory than they have bytes.

Numbers in an attack's name are those of its full size.
"""

import io
import struct
import zlib

import h5py
import numpy as np
import pytest
from attacks.arena import Attack, a_file, size
from attacks.h5raw import (
    ATTRIBUTE,
    CONTINUATION,
    EXTERNAL,
    F32,
    FILL,
    FILTERS,
    LINK,
    NOWHERE,
    U8,
    VLEN_TEXT,
    File,
    attribute,
    chunk_key,
    chunked,
    compact,
    contiguous,
    dataspace,
    external_link,
    fill,
    hard_link,
    implicit,
    message,
    pipeline,
    soft_link,
)
from attacks.zips import zeros

import converter

RAW = np.arange(12, dtype="f4").tobytes()
DEFLATE, SHUFFLE, FLETCHER, LZF = 1, 2, 3, 32000


def with_dataset(make):
    """Return a file with the sound dataset ``w`` and the one that ``make`` adds."""

    def build():
        file = File()
        sound = file.dataset(F32, dataspace(3, 4), contiguous(file.put(RAW), 48))
        return file.done(file.group({"w": sound, "x": make(file)}))

    return build


def with_messages(make):
    """Return a file whose root has further messages."""

    def build():
        file = File()
        sound = file.dataset(F32, dataspace(3, 4), contiguous(file.put(RAW), 48))
        return file.done(file.group({"w": sound}, *make(file)))

    return build


def test_the_writer_is_sound(tmp_path):
    path = tmp_path / "m.h5"
    path.write_bytes(with_messages(lambda f: [])())
    with h5py.File(path) as file:
        assert file["w"][:].tobytes() == RAW
    assert converter.read(path).weights["w"].tobytes() == RAW
    assert zlib.decompress(squeezed(3 << 20)) == bytes(3 << 20)
    assert zlib.decompress(zlib.decompress(squeezed(3 << 20, 2))) == bytes(3 << 20)


# -- what leads out ------------------------------------------------------------------------------


def linked(make):
    """Write with h5py what it can write itself, beside a file that a link may lead to."""

    def build(folder):
        with h5py.File(folder / "outside.h5", "w") as file:
            file["w"] = np.float32([1, 2, 3])
        (folder / "m").mkdir()
        with h5py.File(folder / "m/m.h5", "w") as file:
            file["w"] = np.float32([1, 2, 3])
            make(file, folder)
        return folder / "m/m.h5"

    return build


def external_data(file, folder):
    file.create_dataset("x", (4,), "f4", external=[("/etc/passwd", 0, 16)])


def virtual(file, folder):
    source = h5py.VirtualSource("../outside.h5", "w", (3,))
    layout = h5py.VirtualLayout((3,), "f4")
    layout[:] = source
    file.create_virtual_dataset("x", layout)


# fmt: off
OUT = {
    "external link": lambda f, d: f.__setitem__("x", h5py.ExternalLink("../outside.h5", "/w")),
    "absolute external link": lambda f, d: f.__setitem__("x", h5py.ExternalLink(str(d / "outside.h5"), "/w")),
    "external link to itself": lambda f, d: f.__setitem__("x", h5py.ExternalLink("m.h5", "/x")),
    "external link as a group": lambda f, d: f.__setitem__("g", h5py.ExternalLink("../outside.h5", "/")),
    "external raw data": external_data,
    "virtual dataset": virtual,
    "soft link to itself": lambda f, d: f.__setitem__("x", h5py.SoftLink("/x")),
    "soft link to the root": lambda f, d: f.__setitem__("x", h5py.SoftLink("/")),
    "soft link with dots": lambda f, d: f.__setitem__("x", h5py.SoftLink("../../outside.h5")),
    "hard link to the root": lambda f, d: f.__setitem__("x", f["/"]),
}
# fmt: on


@pytest.mark.parametrize("name", OUT)
def test_links_lead_nowhere(arena, tmp_path, name):
    outcomes = arena.one(Attack(name, linked(OUT[name])))
    if name == "soft link to itself":
        assert {o.code for o in outcomes} == {3}
        return
    assert {o.code for o in outcomes} <= {0, 5}, outcomes
    bundle = converter.read(linked(OUT[name])(tmp_path))
    assert bundle.weights["w"].tobytes() == np.float32([1, 2, 3]).tobytes()
    outside = not name.startswith(("soft", "hard"))
    assert [f.kind for f in bundle.metadata.findings] == ["link"] * outside


def test_listed_weights_that_are_links(arena):
    """``weight_names`` leads to a link out of the file."""

    def make(file, folder):
        group = file.create_group("layer")
        file.attrs["layer_names"] = [b"layer"]
        group.attrs["weight_names"] = [b"k:0", b"v:0"]
        group["k:0"] = h5py.ExternalLink("../outside.h5", "/w")
        group["v:0"] = np.float32([1])

    arena.read(Attack("listed link", linked(make)))


# -- circles -------------------------------------------------------------------------------------


def continuation_to_itself(file):
    address = len(file.data)
    return file.header(message(CONTINUATION, struct.pack("<QQ", address + 16, 24)))


def continuation_chain(count):
    """Every block leads to the next one, 24 bytes further on."""

    def make(file):
        start = len(file.data) + 16
        blocks = b"".join(
            message(CONTINUATION, struct.pack("<QQ", start + 24 * (i + 1), 24))
            for i in range(count)
        )
        return file.header(blocks, count=0xFFFF, size=24)

    return make


def continuation_again(count):
    """One block of continuations, all to the same few bytes, of other lengths."""

    def make(file):
        tail = file.put(message(0, bytes(0xFFF0)))
        more = [message(CONTINUATION, struct.pack("<QQ", tail, 24 + 8 * i)) for i in range(count)]
        return file.header(*more)

    return make


def group_circle(depth):
    def make(file):
        """Return a ring of groups, closed by a hard link."""
        first = len(file.data)
        size = 16 + len(message(LINK, hard_link("g", 0)))
        for i in range(depth):
            at = first + size * ((i + 1) % depth)
            file.header(message(LINK, hard_link("g", at)))
        return first

    return make


def group_ladder(depth):
    """Two links from each group to the next: 2**depth paths."""

    def make(file):
        below = file.group({})
        for _ in range(depth):
            below = file.group({"a": below, "b": below})
        return below

    return make


def tree_to_itself(kind):
    def make(file):
        address = len(file.data) + (-len(file.data) % 8)
        key = bytes(8) if kind == 0 else chunk_key((0,), 16)
        tree = file.tree(kind, 1, [(key, address)] * 8)
        if kind == 0:
            return file.old_group(tree, file.heap(b"\0" * 8))
        return file.dataset(F32, dataspace(64), chunked(tree, (4,)))

    return make


def tree_ladder(file):
    """Each node of a B-tree leads eight times to the next: 8**60 leaves."""
    below = file.tree(1, 0, [(chunk_key((0,), 16), 8)])
    for level in range(1, 60):
        below = file.tree(1, level, [(chunk_key((0,), 16), below)] * 8)
    return file.dataset(F32, dataspace(64), chunked(below, (4,)))


def shared_message_circle(file):
    """A datatype that is shared from a header whose datatype is shared from it."""
    address = len(file.data) + (-len(file.data) % 8)
    body = struct.pack("<BB6xQQ", 1, 0, 0, address)
    return file.header(message(1, dataspace(3)), message(3, body, 2), message(8, compact(RAW[:12])))


def datatypes_in_datatypes(depth):
    def make(file):
        kind = F32
        for _ in range(depth):
            kind = struct.pack("<BBBBI", 0x19, 0, 0, 0, 16) + kind
        return file.dataset(kind, dataspace(3), compact(b""))

    return make


def symbols_again(count, text):
    """One symbol table node under many leaves, its names the same long text."""

    def make(file):
        heap = file.heap(text + b"\0")
        target = file.dataset(U8, dataspace(1), compact(b"\1"))
        nodes = [file.symbols([(0, target)] * 8) for _ in range(count)]
        tree = file.tree(0, 0, [(bytes(8), n) for n in nodes])
        return file.old_group(tree, heap)

    return make


# fmt: off
CIRCLES = {
    "continuation to itself": with_dataset(continuation_to_itself),
    "continuations, 100000": with_dataset(continuation_chain(100_000)),
    "continuations that overlap": with_dataset(continuation_again(2000)),
    "a group in itself": with_dataset(group_circle(1)),
    "a ring of 1000 groups": with_dataset(group_circle(1000)),
    "a ring of 150 groups": with_dataset(group_circle(150)),
    "a ladder of groups": with_dataset(group_ladder(150)),
    "a deep ladder of groups": with_dataset(group_ladder(5000)),
    "a group tree in itself": with_dataset(tree_to_itself(0)),
    "a chunk tree in itself": with_dataset(tree_to_itself(1)),
    "a ladder of chunk trees": with_dataset(tree_ladder),
    "shared messages in a circle": with_dataset(shared_message_circle),
    "datatypes 30 deep": with_dataset(datatypes_in_datatypes(30)),
    "datatypes 5000 deep": with_dataset(datatypes_in_datatypes(5000)),
    "names of a megabyte": with_dataset(symbols_again(2000, b"x" * 1_000_000)),
    "names of sixty megabytes": with_dataset(symbols_again(2000, b"x" * 60_000_000)),
}
# fmt: on


@pytest.mark.parametrize("name", CIRCLES)
def test_circles_end(arena, name):
    outcomes = arena.one(a_file(name, "m.h5", CIRCLES[name]()), ("inspect", "portable"))
    assert {o.code for o in outcomes} <= {0, 3, 4}, outcomes


# -- datasets ------------------------------------------------------------------------------------


def filtered(data, shape, chunk, *filters, itemsize=1, stored=None, count=1):
    """Return a dataset of one stored chunk, under ``count`` keys."""

    def make(file):
        address = file.put(data)
        size = len(data) if stored is None else stored
        keys = [
            (chunk_key((i * chunk[0], *(0,) * (len(chunk) - 1)), size), address)
            for i in range(count)
        ]
        tree = file.tree(1, 0, keys)
        return file.dataset(
            U8,
            dataspace(*shape),
            chunked(tree, chunk, itemsize),
            message(FILTERS, pipeline(*filters)),
        )

    return make


def squeezed(nbytes, times=1):
    """Return zeros, deflated again and again."""
    checksum = struct.pack(">I", nbytes % 65521 << 16 | 1)  # Adler-32
    data = b"\x78\xda" + zeros(nbytes >> 20) + checksum
    for _ in range(times - 1):
        data = zlib.compress(data, 9)
    return data


def many_trees(count, entries):
    """Many datasets share one chunk index with far more entries than any of them has chunks."""

    def make(file):
        leaf = [(chunk_key((i % 1000,), 1), 8) for i in range(60_000)]
        leaves = [(chunk_key((0,), 1), file.tree(1, 0, leaf)) for _ in range(entries // 60_000)]
        tree = file.tree(1, 1, leaves)
        links = {
            f"d{i}": file.dataset(U8, dataspace(1000), chunked(tree, (1,), 1)) for i in range(count)
        }
        return file.group(links)

    return make


def many_implicit(count, cells):
    """Chunks of one byte each, that no index has to list."""

    def make(file):
        address = file.put(bytes(cells))
        links = {
            f"d{i}": file.dataset(U8, dataspace(cells), implicit(address, (1,)))
            for i in range(count)
        }
        return file.group(links)

    return make


def plain(space, layout, *more, kind=F32):
    return with_dataset(lambda file: file.dataset(kind, space, layout, *more))


# fmt: off
DATA = {
    "2**62 elements": plain(dataspace(1 << 62), contiguous(8, 48)),
    "2**64 - 1 elements": plain(dataspace((1 << 64) - 1), contiguous(8, 48)),
    "sizes that wrap to 12": plain(dataspace(1 << 32, 1 << 32, 12), contiguous(8, 48)),
    "a size of 0 times 2**63": plain(dataspace(0, 1 << 63), contiguous(8, 0)),
    "255 axes": plain(dataspace(*[1] * 255), contiguous(8, 4)),
    "rank that lies": plain(struct.pack("<BBB5x", 1, 32, 0) + bytes(8), contiguous(8, 4)),
    "data past the end": plain(dataspace(12), contiguous(1 << 40, 48)),
    "data at 2**64 - 8": plain(dataspace(12), contiguous((1 << 64) - 8, 48)),
    "data in the superblock": plain(dataspace(12), contiguous(0, 48)),
    "size too small": plain(dataspace(12), contiguous(8, 1)),
    "nothing allocated, 2**40": plain(dataspace(1 << 40), contiguous(NOWHERE, 0)),
    "nothing allocated, 2 GiB": plain(dataspace(1 << 29), contiguous(NOWHERE, 0), message(FILL, fill(b"\1\2\3\4"))),
    "fill value too long": plain(dataspace(12), contiguous(NOWHERE, 0), message(FILL, fill(b"x" * 60_000))),
    "fill value that lies": plain(dataspace(12), contiguous(NOWHERE, 0), message(FILL, struct.pack("<BBBBI", 2, 2, 0, 1, 1 << 31))),
    "compact that lies": plain(dataspace(12), compact(RAW, 0xFFFF)),
    "compact too small": plain(dataspace(1 << 20), compact(RAW)),
    "layout of class 9": plain(dataspace(12), bytes([3, 9, 0, 0])),
    "chunk of 2**32 - 1": plain(dataspace(1 << 20), chunked(NOWHERE, ((1 << 32) - 1,))),
    "chunks of 2**32 in 8 axes": plain(dataspace(*[1] * 8), chunked(NOWHERE, ((1 << 32) - 1,) * 8)),
    "chunk of nothing": plain(dataspace(12), chunked(NOWHERE, (0,))),
    "chunks of another rank": plain(dataspace(12), chunked(NOWHERE, (2, 2))),
    "unwritten chunks, 2**40": plain(dataspace(1 << 40), chunked(NOWHERE, (1 << 30,))),
    "unwritten chunks, a million": plain(dataspace(1 << 20), chunked(NOWHERE, (1,))),
    "unwritten, 200 MB of small chunks": plain(dataspace(50_000, 1000), chunked(NOWHERE, (1000, 10))),
    "chunk past the end": with_dataset(filtered(b"x", (8,), (8,), stored=1 << 30)),
    "deflated garbage": with_dataset(filtered(b"\xff" * 99, (64,), (64,), (DEFLATE, ()))),
    "deflated to another size": with_dataset(filtered(zlib.compress(b"abc"), (64,), (64,), (DEFLATE, ()))),
    "deflated bomb in a small chunk": with_dataset(filtered(squeezed(512 << 20), (64,), (64,), (DEFLATE, ()))),
    "deflated bomb in its chunk": with_dataset(filtered(squeezed(255 << 20), (64,), (255 << 20,), (DEFLATE, ()))),
    "a thousand deflated bombs": with_dataset(filtered(squeezed(64 << 20), (64, 1000), (64 << 20, 1), (DEFLATE, ()), count=1)),
    "deflated four times": with_dataset(filtered(squeezed(size(16, 64) << 20, 4), (size(16, 64) << 20,), (size(16, 64) << 20,), *[(DEFLATE, ())] * 4)),
    "deflated a thousand times": with_dataset(filtered(squeezed(1 << 20), (64,), (64,), *[(DEFLATE, ())] * 250)),
    "shuffle of nothing": with_dataset(filtered(b"x" * 64, (64,), (64,), (SHUFFLE, (0,)))),
    "shuffle of 2**32 - 1": with_dataset(filtered(b"x" * 64, (64,), (64,), (SHUFFLE, ((1 << 32) - 1,)))),
    "shuffle of half the chunk": with_dataset(filtered(bytes(15 << 20), (15 << 20,), (15 << 20,), (SHUFFLE, (7 << 20,)))),
    "wrong checksum": with_dataset(filtered(b"x" * 68, (64,), (64,), (FLETCHER, ()))),
    "checksum of nothing": with_dataset(filtered(b"", (64,), (64,), (FLETCHER, ()))),
    "LZF bomb": with_dataset(filtered(b"\0x" + b"\xe0\xff\0" * 100_000, (1 << 20,), (1 << 20,), (LZF, ()))),
    "LZF in small steps": with_dataset(filtered(b"\0x" + b"\x20\0" * size(1 << 17, 1 << 20), (size(3 << 17, 3 << 20),), (size(3 << 17, 3 << 20),), (LZF, ()))),
    "LZF in very many small steps": with_dataset(filtered(b"\0x" + b"\x20\0" * size(1 << 17, 1 << 24), (3 * size(1 << 17, 1 << 24) + 1,), (3 * size(1 << 17, 1 << 24) + 1,), (LZF, ()))),
    "LZF backwards": with_dataset(filtered(b"\x20\xff", (64,), (64,), (LZF, ()))),
    "an unknown filter": with_dataset(filtered(b"x" * 64, (64,), (64,), (31_999, (1, 2, 3)))),
    "filter values that lie": plain(dataspace(12), chunked(NOWHERE, (12,)), message(FILTERS, struct.pack("<BB6xHHHH", 1, 1, 1, 0, 0, 0xFFFF))),
    "external files that lie": plain(dataspace(12), contiguous(NOWHERE, 0), message(EXTERNAL, struct.pack("<B3xHHQ", 1, 0xFFFF, 0xFFFF, 8))),
    "one chunk under 200 keys": with_dataset(filtered(squeezed(1 << 20), (size(50, 200) << 20,), (1 << 20,), (DEFLATE, ()), count=size(50, 200))),
    "many datasets of one index": with_dataset(many_trees(size(2, 500), size(60_000, 240_000))),
    "many chunks without an index": with_dataset(many_implicit(900, 260_000)),
}
# fmt: on


@pytest.mark.parametrize("name", DATA)
def test_datasets(arena, name):
    outcomes = arena.one(a_file(name, "m.h5", DATA[name]()), ("inspect", "portable"))
    assert {o.code for o in outcomes} <= {0, 3, 4, 5}, outcomes


# -- attributes ----------------------------------------------------------------------------------


def vlen(count, address, index=1):
    return struct.pack("<IQI", count, address, index)


def collection(*objects):
    body = b"".join(
        struct.pack("<HH4xQ", i, 1, len(o)) + o + bytes(-len(o) % 8)
        for i, o in enumerate(objects, 1)
    )
    return struct.pack("<4sB3xQ", b"GCOL", 1, 16 + len(body)) + body


def texts(make, shape=()):
    """Return an attribute of variable-length text, as ``layer_names`` may be."""

    def more(file):
        return [
            message(ATTRIBUTE, attribute("layer_names", VLEN_TEXT, dataspace(*shape), make(file)))
        ]

    return with_messages(more)


def one_long_text_often(count, size):
    def make(file):
        address = file.put(collection(b"w" * size))
        return vlen(size, address) * count

    return make


def members(count):
    """Return a compound datatype of many members."""
    text = struct.pack("<BBBBI", 0x13, 0, 0, 0, 1)
    body = b"".join(b"\0" + b"\0" + text for _ in range(count))
    return struct.pack("<BBBBI", 0x36, count & 255, count >> 8, 0, 1) + body


def wide_attributes(count):
    """Attributes whose datatypes are compounds of 6000 members, none like another."""

    def more(file):
        for i in range(count):
            kind = members(6000) + struct.pack("<I", i)
            yield message(ATTRIBUTE, attribute(f"a{i}", kind, dataspace(1), b"\0"))

    return with_messages(more)


# fmt: off
ATTRIBUTES = {
    "text of 4 GiB": texts(lambda f: vlen(0xFFFFFFFF, f.put(collection(b"w")))),
    "text past the end": texts(lambda f: vlen(1, 1 << 40)),
    "text in itself": texts(lambda f: vlen(1, len(f.data))),
    "text with no object": texts(lambda f: vlen(1, f.put(collection(b"w")), 9)),
    "a collection that lies": texts(lambda f: vlen(1, f.put(struct.pack("<4sB3xQ", b"GCOL", 1, 1 << 40)))),
    "an object that lies": texts(lambda f: vlen(1, f.put(struct.pack("<4sB3xQHH4xQ", b"GCOL", 1, 64, 1, 1, 1 << 40) + bytes(32)))),
    "objects of nothing": texts(lambda f: vlen(1, f.put(struct.pack("<4sB3xQ", b"GCOL", 1, 16 + (32 << 20)) + struct.pack("<HH4xQ", 2, 1, 0) * (2 << 20)))),
    "one long text often": texts(one_long_text_often(4000, 1 << 20), (4000,)),
    "2**60 texts": texts(lambda f: b"", (1 << 60,)),
    "a shape of no elements": texts(lambda f: b"", (0, 1 << 62)),
    "attribute of 64 axes": with_messages(lambda f: [message(ATTRIBUTE, attribute("a", U8, dataspace(*[1] * 64), b"\1"))]),
    "attribute that lies": with_messages(lambda f: [message(ATTRIBUTE, struct.pack("<BxHHH", 1, 0xFFFF, 0xFFFF, 0xFFFF))]),
    "attributes by the thousand": with_messages(lambda f: [message(ATTRIBUTE, attribute(f"a{i}", U8, dataspace(1), b"\1")) for i in range(size(10_000, 60_000))]),
    "attributes of one name": with_messages(lambda f: [message(ATTRIBUTE, attribute("a", U8, dataspace(1), b"\1")) for i in range(size(10_000, 60_000))]),
    "compounds of 6000 members": wide_attributes(size(10, 400)),
    "an attribute of no end": with_messages(lambda f: [message(ATTRIBUTE, attribute("keras_version", U8, dataspace(60_000), b"\1" * 60_000))]),
    "a configuration that is a number": with_messages(lambda f: [message(ATTRIBUTE, attribute("model_config", F32, dataspace(), RAW[:4]))]),
    "layers that are numbers": with_messages(lambda f: [message(ATTRIBUTE, attribute("layer_names", F32, dataspace(3), RAW[:12]))]),
    "nb_layers of 2**64": with_messages(lambda f: [message(ATTRIBUTE, attribute("nb_layers", struct.pack("<BBBBIHH", 0x10, 0, 0, 0, 8, 0, 64), dataspace(), b"\xff" * 8))]),
}
# fmt: on


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes(arena, name):
    outcomes = arena.one(a_file(name, "m.h5", ATTRIBUTES[name]()), ("inspect", "portable"))
    assert {o.code for o in outcomes} <= {0, 3, 4}, outcomes


# -- the whole file ------------------------------------------------------------------------------


def checksummed_header(nbytes, checksum=None):
    file = File()
    return file.done(file.new_header(bytes(nbytes), checksum))


def many_objects(count):
    file = File()
    one = file.dataset(U8, dataspace(1), compact(b"\1"))
    groups = {
        f"g{i}": file.group({f"d{j}": one for j in range(1000)}) for i in range(count // 1000)
    }
    return file.done(file.group(groups))


def many_small_datasets(count):
    file = File()
    links = {f"d{i}": file.dataset(U8, dataspace(1), compact(b"\1")) for i in range(count)}
    names = list(links)
    groups = {
        f"g{i}": file.group({n: links[n] for n in names[i : i + 500]}) for i in range(0, count, 500)
    }
    return file.done(file.group(groups))


# fmt: off
FILES = {
    "root nowhere": lambda: File().done(NOWHERE),
    "root past the end": lambda: File().done(1 << 40),
    "root in the superblock": lambda: File().done(0),
    "end of file of 2**63": lambda: File().done(96, end=1 << 63),
    "a header that lies": lambda: (f := File()).done(f.header(size=1 << 31, count=0xFFFF)),
    "a message that lies": lambda: (f := File()).done(f.header(struct.pack("<HHB3x", LINK, 0xFFFF, 0) + bytes(32))),
    "offsets of 1 byte": lambda: with_messages(lambda f: [])().replace(b"\x08\x08\0", b"\x01\x01\0", 1),
    "a signature every 512 bytes": lambda: (bytes(511) + b"\0") * 2000 + b"\x89HDF\r\n\x1a\n",
    "a block with a checksum": lambda: checksummed_header(size(1, 96) << 17),
    "a huge block with a checksum": lambda: checksummed_header(64 << 20, 0),
    "a million links to one dataset": lambda: many_objects(size(10_000, 1_000_000)),
    "50000 small datasets": lambda: many_small_datasets(size(2000, 50_000)),
}
# fmt: on


@pytest.mark.parametrize("name", FILES)
def test_files(arena, name):
    outcomes = arena.one(a_file(name, "m.h5", FILES[name]()), ("inspect",))
    assert {o.code for o in outcomes} <= {0, 3, 4}, outcomes


@pytest.mark.parametrize("config", [
    b"[" * 60_000, b'{"a":' * 300 + b"1" + b"}" * 300, b"9" * 5000, b"\xff\xfe", b"", b"null",
    b'{"class_name": 3}', b'{"class_name": "Model", "config": {"layers": 7}}',
    b'{"class_name": "Lambda", "config": {"layers": [{"class_name": "Lambda"}]}}',
])  # fmt: skip
def test_configurations(arena, config):
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        file.attrs["model_config"] = np.bytes_(config) if config else h5py.Empty("S1")
        file.attrs["training_config"] = np.bytes_(config) if config else h5py.Empty("S1")
        group = file.create_group("model_weights/dense")
        group.attrs["weight_names"] = [b"k:0"]
        group["k:0"] = np.float32([1])
        file["model_weights"].attrs["layer_names"] = [b"dense"]
    outcomes = arena.one(a_file("config", "m.h5", stream.getvalue()))
    assert {o.code for o in outcomes} <= {0, 3}, outcomes


def test_links_of_the_writer():
    """What this file's tools write is what h5py reads."""
    assert soft_link("a", "/b").endswith(b"/b")
    assert b"f.h5\0/w\0" in external_link("a", "f.h5", "/w")
