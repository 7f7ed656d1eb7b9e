"""Files that TensorFlow writes, read without TensorFlow."""
