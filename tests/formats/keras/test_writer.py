"""`.keras` archives that we write are zips that others open."""

import json
import zipfile

import numpy as np

from formats.containers.hdf5 import writer as hdf5_writer
from formats.containers.zip import writer as zip_writer
from formats.containers.zip.writer import Stored, directory
from formats.core.weights import DTYPES, Tensor
from formats.keras import writer as keras_archive


def test_members_have_their_sizes_and_sums_in_both_headers(tmp_path):
    array = np.random.default_rng(1).standard_normal((300, 1000)).astype("f4")
    tensor = Tensor.inline(DTYPES["float32"], array.shape, array.tobytes())
    weights = hdf5_writer.plan({"layers/dense/vars/0": tensor}, {})
    path = tmp_path / "model.keras"
    done = sum(
        keras_archive.write(
            path, metadata={"keras_version": "3"}, config={"class_name": "x"}, weights=weights
        )
    )
    assert done > weights.nbytes
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["metadata.json", "config.json", "model.weights.h5"]
        assert json.loads(archive.read("config.json")) == {"class_name": "x"}
        for info in archive.infolist():
            with path.open("rb") as f:
                f.seek(info.header_offset + 14)
                assert int.from_bytes(f.read(4), "little") == info.CRC


def test_past_four_gigabytes_zip64_says_how_much(tmp_path, monkeypatch):
    monkeypatch.setattr(zip_writer, "LIMIT", 64)  # everything is large
    data = b"x" * 100
    member = Stored("large.bin", 0, len(data), zipfile.crc32(data))
    local = member.local()
    path = tmp_path / "x.zip"
    path.write_bytes(local + data + directory([member], len(local) + len(data)))
    raw = path.read_bytes()
    assert b"PK\x06\x06" in raw
    assert b"PK\x06\x07" in raw
    assert local[-16:] == (100).to_bytes(8, "little") * 2
