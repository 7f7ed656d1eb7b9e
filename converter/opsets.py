"""Versions of the ONNX operator set that graphs are written in."""

OPSET = 18  # read by onnxruntime, TensorRT and OpenVINO since 2023
# Every operator used here has the same semantics in all of these; IR version 10 is the last one
# that runtimes of 2024 read.
OPSETS = (18, 19, 20, 21, 22)
QUANTIZED = 21  # the first with integers of 4 bits, and with scales of blocks
