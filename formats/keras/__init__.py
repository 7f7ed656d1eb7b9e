"""Files that Keras writes, read and written without Keras."""
