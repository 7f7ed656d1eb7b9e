"""Bytes to a `Bundle` and back: no ONNX semantics, no frameworks, nothing executed."""
