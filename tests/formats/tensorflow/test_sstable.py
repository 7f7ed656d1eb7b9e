"""SSTables, plain and compressed, and tables that lie."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sstable_files import number, snappy, table

from formats.core import checksums
from formats.core.storage import Buffer, Span
from formats.errors import ConvertError, CorruptError, LimitError
from formats.limits import DEFAULT, Limits
from formats.tensorflow import sstable
from formats.tensorflow.snappy import decompress


def opened(data, limits=DEFAULT):
    return sstable.Table(Span.whole(Buffer(data, "t")), limits)


def items(data, limits=DEFAULT):
    return [(k, v.read()) for k, v in opened(data, limits).items()]


def entries(count, seed=1):
    rng = random.Random(seed)
    keys = sorted({b"layer/%d/" % rng.randrange(50) + rng.randbytes(3) for _ in range(count)})
    return [(b"", b"header")] + [(k, rng.randbytes(rng.randrange(50))) for k in keys]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("per_block", [1, 3, 1000])
def test_entries_come_back(compressed, per_block):
    wanted = entries(200)
    assert items(table(wanted, per_block=per_block, compressed=compressed)) == wanted


def test_values_stay_in_the_file():
    data = table([(b"", b"h"), (b"k", b"x" * 500_000), (b"l", b"y")], per_block=3)
    values = dict(opened(data).items())
    assert values[b"k"].storage.size == len(data)
    assert values[b"k"].length == 500_000
    assert values[b"l"].read() == b"y"


def test_crc32c_is_castagnolis():
    assert checksums.crc32c(b"123456789") == 0xE3069283


def test_damage_is_seen_by_the_checksum():
    data, unseen = bytearray(table(entries(50))), 0
    for at in range(0, len(data) - 48, 11):
        changed = bytearray(data)
        changed[at] ^= 4
        try:
            found = items(bytes(changed))
        except CorruptError:
            continue
        assert found == entries(50)  # the block of meta data, which nobody uses
        unseen += 1
    assert unseen < 3


def test_truncation_everywhere_is_corrupt():
    data = table(entries(5))
    for end in range(len(data)):
        with pytest.raises(CorruptError):
            items(data[:end])


def test_keys_must_ascend():
    with pytest.raises(CorruptError, match="order"):
        items(table([(b"b", b""), (b"a", b"")], per_block=1))
    with pytest.raises(CorruptError, match="order"):
        items(table([(b"a", b""), (b"a", b"")]))


def test_limits():
    with pytest.raises(LimitError):
        items(table(entries(30)), Limits(max_tensors=10))
    with pytest.raises(LimitError):
        items(table([(b"k" * 1000, b"")]), Limits(max_key_bytes=100))
    growing = [(b"k" * n, b"") for n in range(1, 200)]
    with pytest.raises(LimitError):
        items(table(growing), Limits(max_header_bytes=1000))


def test_unchecked_blocks_that_lie_are_our_errors():
    rng = random.Random(3)
    limits = Limits(max_checked_block_bytes=0)
    data = table(entries(40), compressed=False)
    for _ in range(2000):
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        try:
            items(bytes(changed), limits)
        except ConvertError:
            continue


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=3000), st.integers(1, 5))
def test_snappy_comes_back(data, times):
    data = data * times
    assert decompress(snappy(data), limit=1 << 20, where="s") == data


def test_snappy_copies_that_feed_on_themselves():
    assert decompress(number(10) + b"\x04ab" + b"\x11\x02", limit=100, where="s") == b"ab" * 5
    far = number(6) + b"\x04ab" + bytes([3 | 3 << 2]) + (2).to_bytes(4, "little")
    assert decompress(far, limit=100, where="s") == b"ababab"


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x80", number(5) + b"\x04ab", number(1) + b"\x04ab", number(5) + b"\x08a",
        number(5) + b"\x01\x00", number(5) + b"\x00a\x01\x02", number(5) + b"\x00a\x02\x01",
        number(5) + b"\x00a\x03\x01\0\0", number(1 << 20) + b"\xfc\xff\xff\xff\xff",
    ],
)  # fmt: skip
def test_snappy_that_lies(data):
    with pytest.raises(CorruptError):
        decompress(data, limit=1 << 21, where="s")


def test_snappy_of_too_much():
    with pytest.raises(LimitError):
        decompress(number(1 << 40), limit=1 << 20, where="s")
