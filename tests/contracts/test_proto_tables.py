"""The schema table of ONNX is onnx's own; TensorFlow's: live/tensorflow/test_proto_tables.py."""

import pytest
from proto_descriptors import compare, described

from formats.onnx import schemas as onnx_protos


def test_onnx():
    onnx = pytest.importorskip("onnx")
    compare(onnx_protos, *described([onnx.ModelProto.DESCRIPTOR], {"onnx.": ""}))
