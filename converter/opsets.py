"""Versions of ONNX's operator sets that graphs are written in."""

OPSET = 18  # what onnxruntime, TensorRT and OpenVINO have all read since 2023
# Every operator that is used means the same in all of these; IR version 10 is the last one that
# runtimes of 2024 read.
OPSETS = (18, 19, 20, 21, 22)
