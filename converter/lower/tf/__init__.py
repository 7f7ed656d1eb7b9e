"""TensorFlow's graphs become ONNX: functions inlined, state frozen, loops made ONNX's own."""
