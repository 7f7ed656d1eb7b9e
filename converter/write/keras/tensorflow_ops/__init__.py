"""TensorFlow functions and ops among Keras layers, as operations of keras.ops."""
