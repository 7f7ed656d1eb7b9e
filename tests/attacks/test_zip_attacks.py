"""Zip archives that lie, overlap, explode or lead elsewhere, as ``.pt`` and ``.keras`` files."""

import stat
import struct

import pytest
from attacks.arena import DEEP, a_file, size
from attacks.bases import keras_archive, weights_h5
from attacks.pickles import PROTO, STOP, state_dict, storage, value, weights
from attacks.zips import Entry, deflated, zeros, zip64, zip_of

import converter

PICKLE = state_dict(weights())
ARRAYS = list(weights().values())


def members(**changed):
    """Return the members of a sound torch archive, some of them changed."""
    entries = {"m/data.pkl": Entry(b"m/data.pkl", PICKLE), "m/version": Entry(b"m/version", b"3\n")}
    for i, array in enumerate(ARRAYS):
        entries[f"m/data/{i}"] = Entry(f"m/data/{i}".encode(), array.tobytes())
    for name, fields in changed.items():
        for key, new in fields.items():
            setattr(entries[f"m/{name.replace('__', '/').replace('pickle', 'data.pkl')}"], key, new)
    return list(entries.values())


def check_sound(path, data):
    path.write_bytes(data)
    bundle = converter.read(path)
    assert {n: t.tobytes() for n, t in bundle.weights.items()} == {
        n: a.tobytes() for n, a in weights().items()
    }


def test_the_writer_is_sound(arena, tmp_path):
    check_sound(tmp_path / "m.pt", zip_of(members()))
    whole = zip_of(members())
    end = struct.unpack("<4s4H2LH", whole[-22:])
    check_sound(tmp_path / "n.pt", zip_of(members(), end64=(end[4], end[5], end[6])))
    check_sound(tmp_path / "o.pt", zip_of(members(), comment=b"x" * 0xFFFF))
    check_sound(tmp_path / "p.pt", zip_of(members(pickle={"deflate": True})))


# fmt: off
OUTSIDE = {  # names of members that are nobody's business
    "dots": b"../../escaped",
    "absolute": b"/tmp/attack-escaped",
    "backslashes": b"..\\..\\escaped",
    "drive": b"C:\\escaped",
    "inside, then out": b"m/data/../../../escaped",
    "a NUL": b"m/data/0\0.txt",
    "no UTF-8": b"m/\xff\xfe",
    "empty": b"",
    "a mebibyte": b"m/" + b"x" * 65_000,
    "escapes": b"m/\x1b[2J\nroot#",
}
# fmt: on


@pytest.mark.parametrize("name", OUTSIDE)
def test_member_names_lead_nowhere(arena, tmp_path, name):
    data = zip_of([*members(), Entry(OUTSIDE[name], b"escaped")])
    arena.read(a_file(name, "m.pt", data))
    check_sound(tmp_path / "m.pt", data)


@pytest.mark.parametrize("name", OUTSIDE)
def test_asset_names_of_keras_archives_lead_nowhere(arena, name):
    sound = keras_archive()
    asset = Entry(b"assets/" + OUTSIDE[name], b"escaped")
    parts = [
        Entry(b"metadata.json", b'{"keras_version": "3.0.0"}'),
        Entry(b"config.json", b'{"class_name": "Sequential", "config": {"layers": []}}'),
        Entry(b"model.weights.h5", weights_h5()),
        Entry(b"assets/words.txt", b"a\nb\n"),
    ]
    assert len(sound) > 100
    outcomes = arena.one(a_file(name, "m.keras", zip_of([*parts, asset])))
    assert {o.code for o in outcomes} <= {0, 3, 5, 6}, outcomes  # 6: too long for the disk


# fmt: off
LIES = {
    "two data.pkl": lambda: zip_of([*members(), Entry(b"m/data.pkl", PROTO + value("x") + STOP)]),
    "two data.pkl, one in the directory": lambda: zip_of([*members(), Entry(b"m/data.pkl", b"x", absent=True, offset=0)]),
    "no end record": lambda: zip_of(members())[:-22],
    "an end record only": lambda: b"PK\x03\x04" + zip_of([]),
    "count too high": lambda: zip_of(members(), count=6),
    "directory past the end": lambda: zip_of(members(), offset=1 << 30),
    "directory in itself": lambda: zip_of(members(), offset=0),
    "directory too long": lambda: zip_of(members(), size=1 << 30),
    "directory too short": lambda: zip_of(members(), size=50),
    "zip64: 2**63 members": lambda: zip_of(members(), end64=(1 << 63, 100, 100)),
    "zip64: a million members": lambda: zip_of(members(), end64=(1_000_000, 100, 100)),
    "zip64: directory of 2**63": lambda: zip_of(members(), end64=(5, 1 << 63, 0)),
    "zip64: directory at 2**63": lambda: zip_of(members(), end64=(5, 300, 1 << 63)),
    "zip64: locator past the end": lambda: zip_of(members(), end64=(5, 300, 0), locator=1 << 62),
    "zip64: locator at itself": lambda: zip_of(members(), end64=(5, 300, 0), locator=0),
    "member past the end": lambda: zip_of(members(data__0={"offset": 1 << 30})),
    "member at 2**32 - 2": lambda: zip_of(members(data__0={"offset": 0xFFFFFFFE})),
    "member in the directory": lambda: zip_of(members(data__0={"offset": 600})),
    "member too long": lambda: zip_of(members(data__0={"packed": 1 << 30, "size": 1 << 30})),
    "sizes differ": lambda: zip_of(members(data__0={"size": 1 << 30})),
    "packed too short": lambda: zip_of(members(data__0={"packed": 3, "size": 3})),
    "zip64 member of 2**63": lambda: zip_of(members(data__0={
        "packed": 0xFFFFFFFF, "size": 0xFFFFFFFF, "extra": zip64(1 << 63, 1 << 63)})),
    "zip64 member at 2**63": lambda: zip_of(members(data__0={"offset": 0xFFFFFFFF, "extra": zip64(1 << 63)})),
    "zip64 member without sizes": lambda: zip_of(members(data__0={"packed": 0xFFFFFFFF, "size": 0xFFFFFFFF})),
    "extra field too long": lambda: zip_of(members(data__0={
        "packed": 0xFFFFFFFF, "size": 0xFFFFFFFF, "extra": b"\x01\0\xff\xff" + b"\0" * 16})),
    "encrypted": lambda: zip_of(members(pickle={"flags": 1})),
    "bzip2": lambda: zip_of(members(pickle={"method": 12})),
    "lzma": lambda: zip_of(members(data__0={"method": 14})),
    "deflate64": lambda: zip_of(members(pickle={"method": 9, "raw": deflated(PICKLE)})),
    "deflated garbage": lambda: zip_of(members(pickle={"raw": b"\xff" * 100, "size": 50})),
    "deflated nothing": lambda: zip_of(members(pickle={"raw": b"", "size": 50})),
    "deflated too little": lambda: zip_of(members(pickle={"raw": deflated(PICKLE[:50]), "size": len(PICKLE)})),
    "deflated too much": lambda: zip_of(members(pickle={"raw": deflated(PICKLE + b"x" * 99), "size": len(PICKLE)})),
    "deflated storage, too little": lambda: zip_of(members(data__0={"raw": deflated(b"x"), "size": 48, "crc": 0})),
    "deflated, wrong CRC": lambda: zip_of(members(pickle={"deflate": True, "crc": 1})),
    "deflated, never ending": lambda: zip_of(members(pickle={"raw": b"\x00\x00\x00\xff\xff" * 100_000, "size": 50})),
    "no local header": lambda: zip_of(members(pickle={"header": b"PK\x07\x08"})),
    "local name too long": lambda: zip_of(members()).replace(b"\x0a\0\0\0m/data.pkl", b"\xff\xff\0\0m/data.pkl", 1),
}
# fmt: on


@pytest.mark.parametrize("name", LIES)
def test_lies_are_found(arena, name):
    outcomes = arena.one(a_file(name, "m.pt", LIES[name]()))
    looked, *written = [o.code for o in outcomes]
    assert set(written) <= {3, 4}, outcomes
    # What is deflated and only weights is not looked at until it is wanted.
    assert looked in (3, 4) or "storage" in name, outcomes


def test_overlapping_members_are_views(arena):
    """Members that nobody refers to may lie where they like."""
    entries = members()
    for i in range(1000):
        entries.append(Entry(f"m/x/{i}".encode(), ARRAYS[0].tobytes(), absent=True, offset=0))
    outcomes = arena.one(a_file("overlap", "m.pt", zip_of(entries)))
    assert {o.code for o in outcomes} <= {0, 3}


def test_storages_that_overlap(arena):
    """Each of 20000 storages begins 40 bytes behind the last and is 64 kB long: 1.3 GB of 1.5 MB.

    https://www.bamsoftware.com/hacks/zipbomb/
    """
    count, nbytes = size(5000, 20_000), 1 << 16
    refs = {f"w{i}": storage(str(i), nbytes // 4) for i in range(count)}
    entries = [
        Entry(f"m/data/{i}".encode().ljust(10), header=b"PK\x03\x04", packed=nbytes, size=nbytes)
        for i in range(count)
    ]
    for entry in entries:  # torch would look for "m/data/7", so the padding is on the local name
        entry.local_name, entry.name = entry.name, entry.name.rstrip()
    tail = Entry(b"m/x", bytes(nbytes))
    pickle = Entry(b"m/data.pkl", PROTO + value(refs) + STOP)
    arena.refused(a_file("overlap", "m.pt", zip_of([*entries, tail, pickle])))


def test_a_deflated_storage_that_explodes(arena):
    """Four gigabytes in four megabytes, within the archive's own bounds."""
    total = 4096
    nbytes = total << 20
    pickle = PROTO + value({"w": storage("0", nbytes // 4)}) + STOP
    bomb = Entry(b"m/data/0", raw=zeros(total), size=0xFFFFFFFF, crc=0, extra=zip64(nbytes))
    arena.refused(a_file("storage bomb", "m.pt", zip_of([Entry(b"m/data.pkl", pickle), bomb])))


@pytest.mark.parametrize("lie", [False, True])
def test_a_deflated_pickle_that_explodes(arena, lie):
    """Its size is recorded, or hidden behind a small one."""
    bomb = Entry(b"m/data.pkl", raw=zeros(300), size=1000 if lie else 300 << 20, crc=0)
    arena.refused(a_file("pickle bomb", "m.pt", zip_of([bomb])))


@pytest.mark.parametrize("member", ["config.json", "metadata.json", "model.weights.h5"])
def test_a_keras_archive_that_explodes(arena, member):
    parts = {
        "metadata.json": Entry(b"metadata.json", b'{"keras_version": "3.0.0"}'),
        "config.json": Entry(b"config.json", b'{"class_name": "Sequential", "config": {}}'),
        "model.weights.h5": Entry(b"model.weights.h5", weights_h5()),
    }
    parts[member] = Entry(member.encode(), raw=zeros(300), size=300 << 20, crc=0)
    arena.refused(a_file(f"{member} bomb", "m.keras", zip_of(list(parts.values()))))


def test_a_zip_in_a_zip_in_a_zip(arena):
    """42.zip: nothing but members that are archives. Nobody unpacks them."""
    inner = zip_of([Entry(b"0", raw=zeros(64), size=64 << 20, crc=0)])
    for _ in range(5):
        inner = zip_of([Entry(f"{i}.zip".encode(), inner, deflate=True) for i in range(16)])
    arena.refused(a_file("42.zip", "m.zip", inner))


@pytest.mark.parametrize("name", ["a.pth", "policy.pth"])
def test_zips_of_torch_files_in_zips(arena, name):
    inner = zip_of(members())
    for _ in range(20):
        inner = zip_of([Entry(name.encode(), inner)])
    outcomes = arena.one(a_file("nested", "m.zip", inner))
    assert {o.code for o in outcomes} <= {0, 3, 4}


def test_very_many_members(arena):
    """65000 are still a zip; what they are called and where does not matter."""
    entries = members() + [Entry(f"m/x/{i}".encode()) for i in range(size(20_000, 65_000))]
    arena.read(a_file("65000 members", "m.pt", zip_of(entries)))


def test_more_members_than_there_may_be(arena):
    if not DEEP:
        pytest.skip("takes seconds: set CONVERTER_ATTACK_ROUNDS")
    count = 1_100_000
    entries = [Entry(b"m/%d" % i, absent=True, offset=0) for i in range(count)]
    directory = zip_of(entries)
    size = len(directory) - 22
    data = zip_of([Entry(b"x")])[:31] + directory[:size]
    data += zip_of([], end64=(count, size, 31), locator=31 + size)
    arena.refused(a_file("many members", "m.pt", data))


def test_links_in_archives_are_not_followed(arena, tmp_path):
    """A member whose Unix mode says it is a link is a file with a path for content."""
    link = Entry(b"m/data/9", b"/etc/passwd", mode=stat.S_IFLNK | 0o777)
    data = zip_of([*members(), link])
    arena.read(a_file("link", "m.pt", data))
    check_sound(tmp_path / "m.pt", data)


def test_a_link_for_a_storage(arena):
    entries = members(data__0={"mode": stat.S_IFLNK | 0o777, "data": b"/etc/passwd"})
    arena.refused(a_file("linked storage", "m.pt", zip_of(entries)))


@pytest.mark.parametrize("order", [b"sideways", b"\xff\xfe", b"b" * 64, b"little\0"])
def test_byte_orders_that_are_none(arena, order):
    outcomes = arena.one(
        a_file("order", "m.pt", zip_of([*members(), Entry(b"m/byteorder", order)]))
    )
    assert {o.code for o in outcomes} <= {0, 3}
