"""The same SavedModel again, for one device or for none, without TensorFlow."""
