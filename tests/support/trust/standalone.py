"""A module that a user trusts: layers of the Keras that was no part of TensorFlow."""

from keras import backend
from keras.engine.topology import Layer


class Weighted(Layer):
    def __init__(self, power=2, **kwargs):
        self.power = power
        super().__init__(**kwargs)

    def build(self, input_shape):
        self.W = self.add_weight(name="W", shape=(input_shape[-1], 1), initializer="uniform")
        super().build(input_shape)

    def call(self, x):
        share = backend.softmax(backend.squeeze(backend.dot(x, self.W), -1))
        return backend.sum(backend.pow(x, self.power) * backend.expand_dims(share), axis=1)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[-1])
