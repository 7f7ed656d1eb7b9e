"""The same, importable with today's Keras, which lacks what its ``call`` calls."""

import keras
from keras import backend


class Weighted(keras.layers.Layer):
    def __init__(self, power=2, **kwargs):
        self.power = power
        super().__init__(**kwargs)

    def build(self, input_shape):
        self.W = self.add_weight(name="W", shape=(input_shape[-1], 1), initializer="uniform")

    def call(self, x):
        share = backend.softmax(backend.squeeze(backend.dot(x, self.W), -1))
        return backend.sum(backend.pow(x, self.power) * backend.expand_dims(share), axis=1)
