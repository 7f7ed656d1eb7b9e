"""ONNX files read into graphs of ours: a source's own, and what torch's exporters write."""
