"""HDF5 files that we write are read by libhdf5 and by our own reader, value for value."""

import io

import numpy as np
import pytest

from formats.containers.hdf5.file import Hdf5
from formats.containers.hdf5.writer import plan
from formats.core.storage import Buffer, Span
from formats.core.weights import DTYPES, Tensor
from formats.errors import UnsupportedError
from formats.limits import DEFAULT

PLAIN = ["float16", "float32", "float64", "int8", "int16", "int32", "int64",
         "uint8", "uint16", "uint32", "uint64", "bool"]  # fmt: skip


def tensor(array, dtype=None):
    return Tensor.inline(DTYPES[dtype or array.dtype.name], array.shape, array.tobytes())


def written(tensors, attributes=None):
    made = plan(tensors, attributes or {})
    data = b"".join(p if isinstance(p, bytes) else p.read() for p in made.pieces())
    assert len(data) == made.nbytes
    return data


def arrays():
    rng = np.random.default_rng(7)
    found = {
        f"layers/dense_{i}/vars/{n}": (rng.standard_normal((i % 4, 3)) * 50).astype(dtype)
        for i in range(70)  # more members than one node of a B-tree holds
        for n, dtype in enumerate(PLAIN)
    }
    return found | {"scalar": np.float32(3.5).reshape(()), "vars/0": np.arange(5, dtype="i4")}


def test_libhdf5_reads_every_dtype_and_shape():
    h5py = pytest.importorskip("h5py")
    expected = arrays()
    file = h5py.File(io.BytesIO(written({k: tensor(v) for k, v in expected.items()})))
    for path, array in expected.items():
        assert file[path].dtype == array.dtype
        np.testing.assert_array_equal(file[path][()], array)
    assert len(file["layers"]) == 70


def test_our_reader_reads_every_dtype_and_shape():
    expected = arrays()
    data = written({k: tensor(v) for k, v in expected.items()})
    found = dict(Hdf5(Span.whole(Buffer(data, "x.h5")), DEFAULT).walk())
    assert {path.strip("/") for path in found} == set(expected)
    for path, array in expected.items():
        read = found[f"/{path}"].tensor()
        assert (read.shape, read.tobytes()) == (array.shape, array.tobytes())


def test_attributes_are_texts_of_any_length():
    h5py = pytest.importorskip("h5py")
    attributes = {"a/vars": {"name": "häl/lo", "other": "x" * 9000}, "": {"top": "root"}}
    file = h5py.File(io.BytesIO(written({"b/0": tensor(np.ones(2, "f4"))}, attributes)))
    assert dict(file["a/vars"].attrs) == attributes["a/vars"]
    assert dict(file.attrs) == {"top": "root"}
    assert list(file["a/vars"]) == []


def test_bfloat16_is_two_bytes_and_a_note_as_keras_wants_it():
    h5py = pytest.importorskip("h5py")
    data = written({"vars/0": tensor(np.arange(4, dtype="u2"), "bfloat16")})
    dataset = h5py.File(io.BytesIO(data))["vars/0"]
    assert dataset.dtype == np.dtype("V2")
    assert dataset.attrs["dtype"] == "bfloat16"


def test_a_dtype_that_hdf5_has_no_word_for_is_refused():
    with pytest.raises(UnsupportedError, match="complex64"):
        plan({"x": tensor(np.ones(1, "c8"))}, {})
