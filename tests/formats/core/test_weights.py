"""Lazy tensors against numpy: every layout a file can have comes out as plain bytes."""

import numpy as np
import pytest

from formats.core.storage import Buffer, File, Span
from formats.core.weights import CHUNK, DTYPES, GATHER, Tensor, numpy_dtype, split, swap_bytes
from formats.errors import CorruptError

RNG = np.random.default_rng(11)
F32 = DTYPES["float32"]


def stored(tmp_path, data, name="data.bin"):
    path = tmp_path / name
    path.write_bytes(data)
    return Span.whole(File(path))


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.bits >= 8], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 1, 4), (0, 3)], ids=str)
def test_contiguous_bytes_are_the_files_bytes(tmp_path, dtype, shape):
    data = RNG.integers(0, 256, int(np.prod(shape)) * dtype.itemsize, np.uint8).tobytes()
    tensor = Tensor.contiguous(dtype, shape, stored(tmp_path, data))
    assert tensor.tobytes() == data
    assert tensor.nbytes == len(data)
    if dtype.name != "complex32":
        assert tensor.numpy().tobytes() == data
        assert tensor.numpy().dtype == numpy_dtype(dtype)
    assert tensor.numpy().shape == shape


@pytest.mark.parametrize(
    ("shape", "offset", "strides"),
    [
        ((5, 4), 0, (1, 5)),  # transposed
        ((4, 3), 2, (0, 1)),  # expanded
        ((3, 3), 1, (4, 1)),  # rows of a wider matrix
        ((6,), 3, (2,)),  # every other element
        ((2, 3, 2), 0, (3, 1, 6)),
        ((1, 4), 7, (99, 1)),  # the stride of a single row says nothing
        ((), 9, ()),
        ((3, 4), 0, (1, 1)),  # overlapping windows
    ],
    ids=str,
)
@pytest.mark.parametrize("byteorder", ["little", "big"])
def test_views_equal_numpys(tmp_path, shape, offset, strides, byteorder):
    base = RNG.standard_normal(40).astype("<f4" if byteorder == "little" else ">f4")
    span = stored(tmp_path, base.tobytes())
    tensor = Tensor.strided(F32, shape, span, offset=offset, strides=strides, byteorder=byteorder)
    expected = np.lib.stride_tricks.as_strided(
        base[offset:], shape, [4 * s for s in strides]
    ).astype("<f4")
    np.testing.assert_array_equal(tensor.numpy(), expected)
    assert b"".join(tensor.chunks()) == expected.tobytes()


def test_a_large_transposed_view_is_gathered_in_blocks(tmp_path):
    base = RNG.standard_normal((3000, 1200)).astype("<f4")
    assert base.nbytes > 3 * GATHER
    span = stored(tmp_path, base.tobytes())
    tensor = Tensor.strided(F32, (1200, 3000), span, offset=0, strides=(1, 1200))
    pieces = list(tensor.pieces())
    assert max(map(len, pieces)) <= GATHER
    assert b"".join(pieces) == base.T.tobytes()


def test_nan_payloads_and_signed_zeros_survive(tmp_path):
    odd = np.array([0x7FC0DEAD, 0xFFFFFFFF, 0x80000000, 0x7F800001], "<u4").tobytes()
    assert Tensor.contiguous(F32, (4,), stored(tmp_path, odd)).numpy().tobytes() == odd


@pytest.mark.parametrize(
    ("dtype", "packed", "values"),
    [
        ("int4", b"\x7f\x08", [-1, 7, -8]),
        ("uint4", b"\x7f\x08", [15, 7, 8]),
        ("int2", b"\x1b", [-1, -2, 1]),
        ("uint2", b"\x1b", [3, 2, 1]),
        ("uint1", b"\x05", [1, 0, 1]),
    ],
)
def test_packed_integers_unpack_from_the_low_bits(dtype, packed, values):
    tensor = Tensor.inline(DTYPES[dtype], (3,), packed)
    assert tensor.numpy().tolist() == values


@pytest.mark.parametrize("dtype", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
def test_packed_floats_equal_ml_dtypes(dtype):
    codes = np.arange(8, dtype=np.uint8)
    bits = np.unpackbits(codes[:, None], axis=1, bitorder="little")[:, : DTYPES[dtype].bits]
    tensor = Tensor.inline(DTYPES[dtype], (8,), np.packbits(bits, bitorder="little").tobytes())
    np.testing.assert_array_equal(tensor.numpy(), codes.view(numpy_dtype(DTYPES[dtype])))


def test_only_plain_views_of_files_have_an_extent(tmp_path):
    span = stored(tmp_path, bytes(range(64)))
    plain = Tensor.strided(F32, (2, 3), span, offset=4, strides=(3, 1))
    assert plain.extent() == span.sub(16, 24)
    assert Tensor.strided(F32, (3, 2), span, offset=0, strides=(1, 3)).extent() is None
    assert Tensor.contiguous(F32, (16,), span, byteorder="big").extent() is None
    assert Tensor.inline(F32, (1,), b"abcd").extent() is None
    assert Tensor.contiguous(DTYPES["int8"], (64,), span, byteorder="big").extent() == span


def test_tied_tensors_have_one_identity(tmp_path):
    span = stored(tmp_path, bytes(64))
    whole = Tensor.contiguous(F32, (4, 4), span)
    assert whole.identity == Tensor.contiguous(F32, (4, 4), span, origin="twin").identity
    assert whole.identity != Tensor.contiguous(F32, (16,), span).identity
    assert whole.identity != Tensor.contiguous(DTYPES["int32"], (4, 4), span).identity
    transposed = Tensor.strided(F32, (4, 4), span, offset=0, strides=(1, 4))
    assert whole.identity != transposed.identity


@pytest.mark.parametrize(
    "build",
    [
        lambda s: Tensor.contiguous(F32, (17,), s),
        lambda s: Tensor.contiguous(F32, (15,), s),
        lambda s: Tensor.contiguous(F32, (-1,), s),
        lambda s: Tensor.contiguous(F32, (1 << 40, 1 << 40), s),
        lambda s: Tensor.strided(F32, (4, 4), s, offset=1, strides=(4, 1)),
        lambda s: Tensor.strided(F32, (4,), s, offset=-1, strides=(1,)),
        lambda s: Tensor.strided(F32, (4,), s, offset=0, strides=(-1,)),
        lambda s: Tensor.strided(F32, (4, 4), s, offset=0, strides=(1,)),
        lambda s: Tensor.strided(F32, (2,), s, offset=0, strides=(1 << 62,)),
        lambda s: s.sub(60, 8),
        lambda s: s.sub(-1, 4),
    ],
)
def test_lies_about_sizes_are_errors(tmp_path, build):
    with pytest.raises(CorruptError):
        build(stored(tmp_path, bytes(64)))


@pytest.mark.parametrize("produced", [b"1234567", b"123456789", b""])
def test_a_computation_must_yield_what_the_shape_implies(produced):
    tensor = Tensor.computed(F32, (2,), lambda: [produced])
    with pytest.raises(CorruptError):
        tensor.tobytes()


def test_computed_tensors_may_mix_spans_and_bytes(tmp_path):
    span = stored(tmp_path, b"abcdefgh")
    tensor = Tensor.computed(DTYPES["uint8"], (6,), lambda: [span.sub(2, 3), b"xyz"])
    assert tensor.tobytes() == b"cdexyz"
    assert tensor.tobytes() == b"cdexyz"


def test_nothing_is_read_before_it_is_asked_for():
    class Untouchable(Buffer):
        def read(self, offset, length):
            pytest.fail("weight data was read")

    span = Span.whole(Untouchable(bytes(64), "untouchable"))
    tensor = Tensor.strided(F32, (4, 4), span, offset=0, strides=(1, 4))
    assert (tensor.nbytes, tensor.size, tensor.identity) == (64, 16, tensor.identity)


def test_split_and_swapped(tmp_path):
    data = RNG.integers(0, 256, CHUNK * 2 + 24, np.uint8).tobytes()
    parts = list(split(stored(tmp_path, data)))
    assert [len(p) for p in parts] == [CHUNK, CHUNK, 24]
    assert b"".join(parts) == data
    for width in (1, 2, 4, 8):
        assert (
            swap_bytes(data[:16], width)
            == np.frombuffer(data[:16], f"u{width}").byteswap().tobytes()
        )
