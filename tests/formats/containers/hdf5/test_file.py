"""The HDF5 reader against h5py: stored fixtures, and random files where h5py is installed."""

import contextlib
import json
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from repository import ROOT

from formats.containers.hdf5 import filters as hdf5_filters
from formats.containers.hdf5.bytes import lookup3
from formats.containers.hdf5.file import Dataset, Group, Hdf5, Link, find_signature
from formats.core.storage import Buffer, File, Span
from formats.errors import ConvertError, CorruptError, LimitError, SafetyError, UnsupportedError
from formats.limits import DEFAULT, Limits

FIXTURES = ROOT / "fixtures" / "keras" / "hdf5"
FILES = sorted(FIXTURES.glob("*.h5"))


def opened(path, limits=DEFAULT):
    return Hdf5(Span.whole(File(path)), limits)


def little(array):
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).tobytes()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_reads_what_h5py_reads(path):
    h5 = opened(path)
    expected = np.load(path.with_suffix(".expected.npz"))
    numeric = {
        p.removeprefix("/"): n
        for p, n in h5.walk()
        if isinstance(n, Dataset) and not n.obstacle and not n.leads_out
    }
    hard = set(numeric) - set(expected.files)
    assert hard <= {"a/hard"}  # h5py visits an object under one name only
    assert set(expected.files) <= set(numeric)
    for name in expected.files:
        array, tensor = expected[name], numeric[name].tensor()
        assert tensor.shape == array.shape, name
        assert tensor.tobytes() == little(array), name
        assert tensor.tobytes() == little(array), "a tensor can be walked twice"
        if tensor.dtype.name in np.sctypeDict:
            assert tensor.dtype.name == array.dtype.newbyteorder("=").name, name


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_reads_attributes(path):
    h5 = opened(path)
    for place, attributes in json.loads(path.with_suffix(".attributes.json").read_text()).items():
        node = h5.root.get(place)
        for name, value in attributes.items():
            assert node.value(name) == value, (place, name)


def test_dtypes_that_are_no_tensors_say_why():
    h5 = opened(FIXTURES / "dtypes_new.h5")
    names = ("text", "record", "null", "ragged", "reference")
    reasons = {n: h5.root.get(n).obstacle for n in names}
    assert "text" in reasons["text"]
    assert "compound" in reasons["record"]
    assert "null" in reasons["null"]
    assert "variable-length" in reasons["ragged"]
    assert "reference" in reasons["reference"]
    with pytest.raises(CorruptError, match="compound"):
        h5.root.get("record").tensor()


def test_ties_are_seen():
    h5 = opened(FIXTURES / "links_old.h5")
    first, second = h5.root.get("a/b/c").tensor(), h5.root.get("a/hard").tensor()
    assert first.identity == second.identity


@pytest.mark.parametrize("age", ["old", "new"])
def test_links(age):
    h5 = opened(FIXTURES / f"links_{age}.h5")
    assert h5.root.get("soft").path == "/a/b/c"
    assert h5.root.get("a/relative").address == h5.root.get("soft").address
    assert h5.root.get("a/loop/loop/b") is h5.root.get("a/b")
    assert h5.root.get("dangling") is None
    assert h5.root.get("a/b/c/below") is None
    outside = h5.root.get("outside")
    assert isinstance(outside, Link)
    assert (outside.file, outside.path) == ("other.h5", "/x")
    with pytest.raises(CorruptError, match="circle"):
        h5.root.get("circle")
    for name in ("raw", "virtual"):
        node = h5.root.get(name)
        assert node.leads_out
        with pytest.raises(SafetyError):
            node.tensor().tobytes()


def test_creation_order_is_kept():
    names = list(opened(FIXTURES / "many_new.h5").root.get("many").links)
    assert names[:3] == ["entry_000", "entry_007", "entry_014"]
    assert names[-1] == "last"


def test_plain_chunks_are_spans():
    h5 = opened(FIXTURES / "chunked_old.h5")
    assert all(isinstance(p, Span) for p in h5.root.get("rows0").tensor().pieces())
    assert all(isinstance(p, bytes) for p in h5.root.get("rows1").tensor().pieces())


def test_a_run_of_bytes_inside_something_else():
    data = (FIXTURES / "chunked_new.h5").read_bytes()
    span = Span(Buffer(b"x" * 300 + data + b"tail", "outer"), 300, len(data))
    a = Hdf5(span, DEFAULT).root.get("a5").tensor()
    assert a.tobytes() == opened(FIXTURES / "chunked_new.h5").root.get("a5").tensor().tobytes()


def test_signature():
    assert find_signature(Span.whole(Buffer(b"", "b"))) is None
    assert find_signature(Span.whole(File(FIXTURES / "chunked_behind_user_block_block.h5"))) == 1024
    with pytest.raises(CorruptError, match="no HDF5"):
        Hdf5(Span.whole(Buffer(b"x" * 9000, "b")), DEFAULT)


@pytest.mark.parametrize("name", ["links_old", "links_new", "chunked_new"])
def test_truncated_files_are_refused(name):
    data = (FIXTURES / f"{name}.h5").read_bytes()
    for end in {*range(0, 200, 7), *range(200, len(data), len(data) // 40)}:
        with pytest.raises(CorruptError):
            Hdf5(Span.whole(Buffer(data[:end], "b")), DEFAULT)


def test_metadata_is_bounded():
    h5 = opened(FIXTURES / "many_old.h5", Limits(max_header_bytes=500))
    with pytest.raises(LimitError, match="metadata"):
        dict(h5.root.get("many").links)
    with pytest.raises(LimitError, match="objects"):
        list(opened(FIXTURES / "dtypes_old.h5", Limits(max_objects=5)).walk())
    with pytest.raises(LimitError, match="chunks"):
        opened(FIXTURES / "chunked_old.h5", Limits(max_members=20)).root.get("deep").tensor()
    big = opened(FIXTURES / "chunked_old.h5", Limits(max_chunk_bytes=8)).root.get("a1").tensor()
    with pytest.raises(LimitError, match="chunk"):
        big.tobytes()


def test_cheap_claims_cost_little(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("never", (200_000,), "u1", chunks=(1,))
        f.create_dataset("never_boxes", (400, 400), "u1", chunks=(1, 1))[3, 3] = 1
        f.create_dataset("grid", (1 << 40,), "u1", chunks=(1 << 20,))
        small = f.create_dataset(
            "small", (1,), "u1", chunks=(9999,), maxshape=(None,), shuffle=True
        )
        small[0] = 7
        group = f
        for _ in range(250):
            group = group.create_group("g")
    h5 = opened(path)
    assert h5.root.get("never").tensor().tobytes() == bytes(200_000)
    assert sum(h5.root.get("never_boxes").tensor().tobytes()) == 1
    with pytest.raises(LimitError, match="chunks"):
        h5.root.get("grid").tensor()
    with pytest.raises(LimitError, match="nested"):
        list(h5.walk())
    with pytest.raises(LimitError, match="names"):
        h5.root.get("g/" * 250)
    strict = opened(path, Limits(expansion_allowance_bytes=-(1 << 30)))
    with pytest.raises(LimitError, match="far smaller"):
        strict.root.get("small").tensor().tobytes()


def test_no_numpy_for_plain_files():
    code = (
        "import sys; from pathlib import Path; from formats.artifact import Artifact; "
        "from formats import catalog; "
        f"b = catalog.read(Artifact({str(FIXTURES.parent / 'keras2_sequential.h5')!r})); "
        "[t.tobytes() for t in b.weights.values()]; "
        "assert b.weights and not {'numpy', 'h5py'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=FIXTURES.parents[2])


def everything(data):
    h5 = Hdf5(Span.whole(Buffer(data, "mutated")), DEFAULT)
    for _, node in h5.walk():
        if isinstance(node, Dataset):
            for name in node.attributes:
                node.value(name)
            if not node.obstacle and node.tensor().nbytes < 1 << 24:
                node.tensor().tobytes()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_damage_is_our_error(path):
    """Whatever single bytes are changed, it reads or it is an error of ours."""
    good, rng = path.read_bytes(), random.Random(path.stem)
    for _ in range(3 if path.stem.startswith("many_chunks") else 60):
        data = bytearray(good)
        for _ in range(rng.choice([1, 1, 4])):
            at = rng.randrange(min(len(data), 6000) if rng.random() < 0.7 else len(data))
            data[at] = rng.choice([0, 1, 0xFF, data[at] ^ 1 << rng.randrange(8)])
        with contextlib.suppress(ConvertError):
            everything(bytes(data))


def test_checksums():
    assert lookup3(b"") == 0xDEADBEEF
    assert lookup3(b"Four score and seven years ago") == 0x17770551
    data = bytearray((FIXTURES / "chunked_new.h5").read_bytes())
    data[40] ^= 1  # in the superblock
    with pytest.raises(CorruptError, match="checksum"):
        Hdf5(Span.whole(Buffer(bytes(data), "b")), DEFAULT)


def test_unknown_filters_are_named_when_needed():
    data = bytearray((FIXTURES / "chunked_old.h5").read_bytes())
    h5py = pytest.importorskip("h5py")
    del h5py
    at = data.find(b"lzf\0")
    header = at - 8
    assert int.from_bytes(data[header : header + 2], "little") == hdf5_filters.LZF
    data[header : header + 2] = (32001).to_bytes(2, "little")
    h5 = Hdf5(Span.whole(Buffer(bytes(data), "b")), DEFAULT)
    refused = []
    for path, node in h5.walk():
        try:
            node.tensor().tobytes()
        except UnsupportedError as e:
            refused.append(path)
            assert "Blosc" in str(e)
    assert len(refused) == 1


@pytest.mark.parametrize("size", [0, 1, 2, 3, 11, 720, 721, 5000])
def test_fletcher32(size):
    data = random.Random(size).randbytes(size)
    low = high = 0
    padded = data + b"\0" * (size % 2)
    for at in range(0, len(padded), 2):
        low = (low + (padded[at] << 8 | padded[at + 1])) % 65535
        high = (high + low) % 65535
    found = hdf5_filters.fletcher32(data)
    assert (found >> 16) % 65535 == high
    assert (found & 0xFFFF) % 65535 == low


@st.composite
def datasets(draw):
    rank = draw(st.integers(0, 4))
    shape = tuple(draw(st.integers(0, 9)) for _ in range(rank))
    options = {}
    if rank and all(shape) and draw(st.booleans()):
        options["chunks"] = tuple(draw(st.integers(1, max(n, 1))) for n in shape)
        options["compression"] = draw(st.sampled_from([None, "gzip", "lzf"]))
        options["shuffle"] = draw(st.booleans())
        options["fletcher32"] = draw(st.booleans())
        if draw(st.booleans()):
            options["maxshape"] = tuple(draw(st.sampled_from([None, n, n + 40])) for n in shape)
    dtype = draw(st.sampled_from(["<f4", ">f4", "<f2", "<f8", "i1", ">i8", "<u2", "?", "<c8"]))
    if dtype != "<c8" and draw(st.booleans()):
        options["fillvalue"] = 1
    return shape, dtype, options, draw(st.sampled_from(["all", "half", "none"]))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(datasets(), max_size=8),
    st.sampled_from(["earliest", "v108", "v110", "latest"]),
    st.sampled_from([0, 512, 2048]),
    st.booleans(),
    st.dictionaries(st.text("abcß", min_size=1), st.text() | st.integers(-9, 9), max_size=30),
)
def test_random_files_read_as_h5py_reads_them(
    tmp_path_factory, described, age, block, tracked, notes
):
    h5py = pytest.importorskip("h5py")
    path = tmp_path_factory.mktemp("h5") / "f.h5"
    expected = {}
    rng = np.random.default_rng(0)
    notes = {k: v for k, v in notes.items() if not isinstance(v, str) or "\0" not in v}
    with h5py.File(path, "w", libver=age, userblock_size=block, track_order=tracked) as f:
        f.attrs.update(notes)
        for n, (shape, dtype, options, written) in enumerate(described):
            dataset = f.create_dataset(f"g{n % 3}/d{n}", shape, dtype, **options)
            values = rng.uniform(-50, 50, shape).astype(dtype)
            if written == "all":
                dataset[...] = values
            elif written == "half" and shape:
                dataset[: shape[0] // 2] = values[: shape[0] // 2]
            expected[f"/g{n % 3}/d{n}"] = np.asarray(dataset[()])
    h5 = opened(path)
    found = {p: n.tensor() for p, n in h5.walk() if isinstance(n, Dataset)}
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].shape == array.shape
        assert found[name].tobytes() == little(array)
    assert {k: h5.root.value(k) for k in h5.root.attributes} == notes
    assert isinstance(h5.root, Group)
