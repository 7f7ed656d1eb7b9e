"""Torch files of one tensor each: equal pickles are decoded once, and differ in their storages."""

import io
import zipfile

import numpy as np
import pytest

from formats.core.storage import Buffer, Span
from formats.errors import CorruptError, LimitError
from formats.limits import Limits
from formats.torch import similar_files
from formats.torch.containers import Session
from formats.torch.similar_files import AlikeFiles
from formats.torch.tensors import Maker


def pickled(rows, call=b""):
    """Return the pickle that torch writes for a float tensor of so many rows of four."""
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n"
        b"X\1\0\0\x000X\6\0\0\0cuda:1K" + bytes([4 * rows]) + b"tQK\0K" + bytes([rows])
        + b"K\4\x86K\4K\1\x86\x89" + (call or b"ccollections\nOrderedDict\n)R") + b"tR."
    )  # fmt: skip


def saved(data, pickle=None, order="little"):
    """Return a torch file of one tensor."""
    members = {
        "data.pkl": pickle or pickled(len(data)),
        "byteorder": order.encode(),
        "data/0": data.tobytes(),
        "version": b"3\n",
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"archive/{name}", content)
    return file.getvalue()


def random(rows, seed):
    return np.random.default_rng(seed).standard_normal((rows, 4)).astype("f4")


class Reader:
    def __init__(self, **limits):
        self.session = Session.begin(Limits(**limits))
        self.files = AlikeFiles(self.session)
        self.maker = Maker(self.session.tree())

    def __call__(self, data, where="shard"):
        value = self.files.value(Span.whole(Buffer(data, "file")), where)
        return self.maker.tensor(value, "origin"), value


def test_equal_pickles_are_decoded_once_and_have_the_bytes_of_their_own_files(monkeypatch):
    decoded = []
    read = similar_files.read_zip
    monkeypatch.setattr(similar_files, "read_zip", lambda *a: decoded.append(a) or read(*a))
    reader = Reader()
    arrays = [random(2 + i % 2, i) for i in range(8)]
    values = []
    for array in arrays:
        tensor, value = reader(saved(array))
        assert tensor.shape == array.shape
        assert tensor.tobytes() == array.tobytes()
        assert value.storage.location == "cuda:1"
        values.append(value)
    assert len(decoded) == 2  # shapes
    assert len({id(v) for v in values}) == len({id(v.storage) for v in values}) == 8


def test_each_file_has_its_own_byte_order():
    reader = Reader()
    for order in "little", "big", "little":
        array = random(3, 1)
        stored = array.astype("<f4" if order == "little" else ">f4")
        assert reader(saved(stored, order=order))[0].tobytes() == array.tobytes()
    with pytest.raises(CorruptError, match="byteorder 'middle'"):
        reader(saved(random(3, 2), order="middle"))


def test_a_storage_that_is_too_small_or_missing_is_found_behind_a_known_pickle():
    reader = Reader()
    reader(saved(random(3, 1)))
    with pytest.raises(CorruptError, match="has 32 bytes"):
        reader(saved(random(2, 1), pickled(3)))
    without = io.BytesIO()
    with zipfile.ZipFile(without, "w") as archive:
        archive.writestr("archive/data.pkl", pickled(3))
    with pytest.raises(CorruptError, match="no member 'archive/data/0'"):
        reader(without.getvalue())


def test_what_a_pickle_calls_is_noted_for_each_file_it_is_in():
    reader = Reader()
    pickle = pickled(3, b"cos\nsystem\n(X\4\0\0\0truetR")
    for where in "one", "one", "two":
        reader(saved(random(3, 1), pickle), where)
    assert sorted(reader.session.calls) == [
        ("os.system", "one!archive/data.pkl"), ("os.system", "two!archive/data.pkl")
    ]  # fmt: skip


def test_known_pickles_cost_too():
    reader = Reader(max_pickle_opcodes=400)
    for seed in range(3):
        reader(saved(random(3, seed)))
    spent = reader.session.budget.opcodes
    reader(saved(random(3, 3)))
    assert reader.session.budget.opcodes <= spent - similar_files.KNOWN
    reader.session.budget.opcodes = similar_files.KNOWN
    with pytest.raises(LimitError, match="too many pickles"):
        reader(saved(random(3, 4)))


def test_larger_artifacts_may_have_more_pickles():
    limits = Limits(max_pickle_opcodes=1000, bytes_per_opcode=4)
    assert [Session.begin(limits, n).budget.opcodes for n in (0, 400, 10**9)] == [1000, 1100, 4000]
