"""Bytes to `formats.bundle.Bundle` and back: no ONNX semantics, no frameworks, nothing executed."""
