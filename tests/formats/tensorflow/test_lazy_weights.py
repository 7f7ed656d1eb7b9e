"""Weights of gigabytes, in sparse files: reading a model costs what its structure costs."""

import os

import pytest
from sstable_files import entry, field, header, number, shape, table

from formats import catalog
from formats.artifact import Artifact
from formats.core.storage import File
from formats.tensorflow.tensor_bundle import slice_key

ELEMENTS = 400_000_000  # float32


@pytest.fixture
def touched(monkeypatch):
    """Count the bytes that are read from files."""
    counted = [0]
    read = File.read

    def counting(self, offset, length):
        counted[0] += length
        return read(self, offset, length)

    monkeypatch.setattr(File, "read", counting)
    return counted


def long(at, length):
    """Return the head of a field whose content follows."""
    return number(at << 3 | 2) + number(length)


def around(head, nbytes, *numbers):
    """Return ``head``, whose content of ``nbytes`` follows, inside fields of these numbers."""
    for at in numbers:
        head = long(at, len(head) + nbytes) + head
    return head


def sparse(path, head, nbytes):
    path.write_bytes(head)
    os.truncate(path, len(head) + nbytes)


def test_tensor_bundle(tmp_path, touched):
    nbytes = 4 * ELEMENTS
    pairs = [(b"", header()), (b"w", entry(1, [ELEMENTS], size=nbytes))]
    (tmp_path / "c.index").write_bytes(table(pairs))
    sparse(tmp_path / "c.data-00000-of-00001", b"", nbytes)
    bundle = catalog.read(Artifact(tmp_path / "c"))
    assert bundle.weights["w"].extent().length == nbytes
    assert touched[0] < 10_000


def test_graphdef(tmp_path, touched):
    nbytes = 4 * ELEMENTS
    content = long(4, nbytes)
    tensor = field(1, 1) + field(2, shape([ELEMENTS])) + content
    value = field(1, b"value") + around(tensor, nbytes, 8, 2)
    node = field(1, b"w") + field(2, b"Const") + around(value, nbytes, 5)
    sparse(tmp_path / "m.pb", around(node, nbytes, 1), nbytes)
    bundle = catalog.read(Artifact(tmp_path / "m.pb"))
    assert bundle.weights["w"].extent().length == nbytes
    assert touched[0] < 1_000_000


@pytest.mark.parametrize("at", [9, 4])  # raw_data, float_data
def test_onnx(tmp_path, touched, at):
    nbytes = 4 * ELEMENTS
    tensor = field(1, ELEMENTS) + field(2, 1) + field(8, b"w") + long(at, nbytes)
    sparse(tmp_path / "m.onnx", field(1, 8) + around(tensor, nbytes, 5, 7), nbytes)
    bundle = catalog.read(Artifact(tmp_path / "m.onnx"))
    assert bundle.weights["w"].extent().length == nbytes
    assert touched[0] < 1_000_000


def test_v1_table(tmp_path, touched):
    """A value is a whole SavedTensorSlices, left in its block."""
    nbytes = 4 * 2_000_000
    values = long(5, nbytes) + bytes(nbytes)
    saved = field(2, field(1, b"w") + field(3, values))
    meta = field(
        1, field(1, b"w") + field(2, shape([2_000_000])) + field(3, 1) + field(4, field(1, b""))
    )
    data = table([(b"", field(1, meta)), (slice_key(b"w", [(0, -1)]), saved)], crc=False)
    (tmp_path / "model.ckpt").write_bytes(data)
    bundle = catalog.read(Artifact(tmp_path / "model.ckpt"))
    assert bundle.weights["w"].extent().length == nbytes
    assert touched[0] < 1_000_000
