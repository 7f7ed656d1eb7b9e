"""A source as something that can be run: in Keras, TensorFlow, torch or onnxruntime."""
