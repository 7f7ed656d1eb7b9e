"""Read ONNX files into graphs: ONNX sources, and the files that torch's exporters write."""
