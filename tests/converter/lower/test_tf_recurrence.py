"""Loops that are recurrent layers become ONNX's own operators; those that are not stay loops."""

import io
import zipfile

import numpy as np
import pytest
from repository import ROOT

import converter
from converter.graphs import lower_signature as lower

FIXTURES = ROOT / "fixtures" / "tf_ops"
ARCHIVE = zipfile.ZipFile(FIXTURES / "recurrence.zip")
NAMES = [name.removesuffix(".pb") for name in ARCHIVE.namelist() if name.endswith(".pb")]
RECURRENT = {"LSTM", "GRU", "RNN", "Loop", "Scan", "If"}


@pytest.mark.parametrize("name", NAMES)
def test_a_loop_becomes_an_operator_where_it_is_one(tmp_path, name):
    source = tmp_path / "model.pb"
    source.write_bytes(ARCHIVE.read(f"{name}.pb"))
    graph = lower(converter.read(source))
    found = {node.op_type for node in graph.nodes} & RECURRENT
    wanted = np.load(io.BytesIO(ARCHIVE.read(f"{name}.npz")))["ops"]
    assert found == set(wanted.tolist())
