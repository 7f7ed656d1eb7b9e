"""Keras models to ONNX, from their configuration."""
