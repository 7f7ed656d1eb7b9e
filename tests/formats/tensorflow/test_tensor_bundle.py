"""Tensor bundles that TensorFlow reads but no longer writes, and ones that lie."""

import numpy as np
import pytest
from sstable_files import entry, header, number, table, tensor_bundle

from formats.core import tiling
from formats.core.storage import File, Span
from formats.core.strings import Strings
from formats.core.weights import DTYPES, Tensor
from formats.errors import CorruptError, UnsupportedError
from formats.limits import DEFAULT
from formats.tensorflow.tensor_bundle import TensorBundle, orphans, slice_key, unescape_slice_key

FLOAT, INT32, STRING, COMPLEX64, RESOURCE = 1, 3, 7, 8, 20


def opened(prefix):
    index = Span.whole(File(f"{prefix}.index"))
    return TensorBundle(index, lambda part: File(f"{prefix}.{part}"), DEFAULT)


def test_big_endian_and_compressed(tmp_path):
    a = np.arange(6, dtype=">f4").reshape(2, 3)
    c = np.array([1 + 2j, 3 - 4j], ">c8")
    words = number(2) + number(0) + b"crc?" + b"ab"
    data = a.tobytes() + c.tobytes() + words
    entries = {
        "a": entry(FLOAT, [2, 3], size=24),
        "c": entry(COMPLEX64, [2], offset=24, size=16),
        "w": entry(STRING, [2], offset=40, size=len(words)),
    }
    bundle = opened(tensor_bundle(tmp_path, entries, data, big=True, compressed=True))
    assert bundle.byteorder == "big"
    assert np.array_equal(bundle.tensor("a").numpy(), a)
    assert np.array_equal(bundle.tensor("c").numpy(), c)
    assert bundle.tensor("w").values() == [b"ab", b""]


def sliced(tmp_path, whole, boxes, key=b"v\0\xff/"):
    entries = {key: entry(FLOAT, whole.shape, slices=boxes)}
    data = b""
    for extents in boxes:
        place = tuple(slice(a, None if n < 0 else a + n) for a, n in extents)
        part = np.ascontiguousarray(whole[place])
        entries[slice_key(key, extents)] = entry(
            FLOAT, part.shape, offset=len(data), size=part.nbytes
        )
        data += part.tobytes()
    return opened(tensor_bundle(tmp_path, entries, data)), "v\0\\xff/"


@pytest.mark.parametrize(
    "boxes",
    [
        [[(0, 3), (0, -1), (0, -1)], [(3, 4), (0, -1), (0, -1)]],
        [[(0, 7), (0, 2), (0, 4)], [(0, 7), (2, 3), (0, 4)]],
        [[(0, -1), (0, -1), (0, 1)], [(0, -1), (0, -1), (1, 3)]],
        [[(0, 2), (0, 5), (0, 4)], [(2, 5), (0, 3), (0, 4)], [(2, 5), (3, 2), (0, 4)]],
        [[(0, -1), (0, -1), (0, -1)]],
    ],
)
@pytest.mark.parametrize("block", [16, 100, 1 << 22])
def test_slices_are_joined(tmp_path, monkeypatch, boxes, block):
    monkeypatch.setattr(tiling, "GATHER", block)
    whole = np.random.default_rng(1).normal(size=(7, 5, 4)).astype("float32")
    bundle, name = sliced(tmp_path, whole, boxes)
    assert list(bundle.entries) == [name]
    tensor = bundle.tensor(name)
    assert tensor.shape == (7, 5, 4)
    assert np.array_equal(tensor.numpy(), whole)
    assert not list(orphans(bundle))


def test_slices_along_the_first_axis_are_spans(tmp_path):
    whole = np.zeros((6, 2), "float32")
    bundle, name = sliced(tmp_path, whole, [[(0, 3), (0, -1)], [(3, 3), (0, -1)]])
    assert all(isinstance(p, Span) for p in bundle.tensor(name).pieces())


@pytest.mark.parametrize(
    "boxes",
    [
        [[(0, 3), (0, -1)]],
        [[(0, 4), (0, -1)], [(2, 4), (0, -1)]],
        [[(0, 3), (0, -1)], [(0, 3), (0, -1)]],
        [[(0, 3), (0, 2)], [(3, 3), (0, 1)], [(0, 3), (1, 1)]],
    ],
)
def test_gaps_and_overlaps_are_corrupt(tmp_path, boxes):
    bundle, name = sliced(tmp_path, np.zeros((6, 2), "float32"), boxes)
    with pytest.raises(CorruptError):
        bundle.tensor(name)


@pytest.mark.parametrize(
    "n", [0, 1, 63, 64, -1, -64, -65, 8191, 8192, 1 << 40, -(1 << 40), (1 << 62)]
)
def test_slice_keys_sort_like_their_numbers(n):
    """Ordered code keeps order, which pins its header bits."""
    keys = [slice_key(b"v", [(m, 1)]) for m in (n - 1, n, n + 1)]
    assert keys == sorted(keys)
    assert unescape_slice_key(keys[0]) == "v"


def test_a_slice_without_its_tensor_is_an_orphan(tmp_path):
    entries = {slice_key(b"lost", [(0, 2)]): entry(FLOAT, [2], size=8)}
    bundle = opened(tensor_bundle(tmp_path, entries, bytes(8)))
    assert list(orphans(bundle)) == ["lost"]


@pytest.mark.parametrize(
    "lie",
    [
        entry(FLOAT, [2, 3], size=20),
        entry(FLOAT, [2, 3], offset=8, size=24),
        entry(FLOAT, [2, 3], offset=-8, size=24),
        entry(FLOAT, [2, 3], size=-24),
        entry(FLOAT, [1 << 40, 1 << 40], size=24),
        entry(FLOAT, [-1], size=24),
        entry(FLOAT, [1] * 100, size=4),
        entry(FLOAT, [6], size=24, shard=1),
        entry(STRING, [1 << 30], size=24),
        entry(STRING, [2], size=24),
        entry(FLOAT, [6], slices=[[(0, 3), (0, 3)]]),
        entry(FLOAT, [6], slices=[[(0, 7)]]),
        entry(FLOAT, [6], slices=[[(0, 6)]]),
        entry(FLOAT, [6], slices=[[(-1, 6)]]),
    ],
)
def test_lies_are_corrupt(tmp_path, lie):
    with pytest.raises(CorruptError):
        opened(tensor_bundle(tmp_path, {"t": lie}, bytes(24))).tensor("t")


@pytest.mark.parametrize("kind", [0, RESOURCE, 21, 99])
def test_what_holds_no_numbers_is_unsupported(tmp_path, kind):
    with pytest.raises(UnsupportedError):
        opened(tensor_bundle(tmp_path, {"t": entry(kind, [1], size=4)}, bytes(4))).tensor("t")


@pytest.mark.parametrize("count", [0, 1 << 40, -1])
def test_shards_are_counted(tmp_path, count):
    (tmp_path / "c.index").write_bytes(table([(b"", header(shards=count))]))
    with pytest.raises(CorruptError):
        opened(tmp_path / "c")


def test_strings_are_repeated_when_they_are_walked():
    assert Strings.of((3,), [b"a"]).values() == [b"a"] * 3
    assert Strings.of((2, 2), [b"ab", b"", b"c"]).values() == [b"ab", b"", b"c", b"c"]
    assert Strings.of((3,), []).values() == [b""] * 3
    assert len(Strings.of((600_000,), [b"xy"]).values()) == 600_000
    assert Strings.of((1 << 50,), [b"a"]).data.nbytes == 1 << 50
    with pytest.raises(CorruptError):
        Strings.of((1,), [b"a", b"b"])


def test_joined_tensors_of_computed_parts():
    def part(n):
        return Tensor.computed(DTYPES["uint8"], (2, 2), lambda: [bytes([n, n]), bytes([n, n])])

    boxes = [tiling.Box((0, 0), part(1)), tiling.Box((0, 2), part(2))]
    tensor = tiling.join(DTYPES["uint8"], (2, 4), boxes, origin="j")
    assert tensor.tobytes() == bytes([1, 1, 2, 2] * 2)
    assert tensor.tobytes() == bytes([1, 1, 2, 2] * 2)
