"""ONNX files, read without onnx."""
