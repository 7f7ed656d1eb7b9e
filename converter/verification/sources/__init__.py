"""Run sources in Keras, TensorFlow, torch or onnxruntime."""
