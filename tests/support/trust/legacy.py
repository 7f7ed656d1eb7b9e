"""A module that a user trusts: layers of Keras 2, which tf.keras was then."""

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import backend, layers


def swish_of_old(x):
    return x * backend.sigmoid(1.5 * x)


def gelu(x):
    """Keras has one of this name, which differs."""
    return x * backend.sigmoid(1.702 * x)


keras.utils.get_custom_objects()["gelu"] = gelu
keras.utils.get_custom_objects()["named"] = layers.Activation(swish_of_old)


class LayerNormalization(layers.Layer):
    """Named as one of Keras's own, with another formula and other weights' names."""

    def build(self, input_shape):
        self.scale = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="scale")
        super().build(input_shape)

    def call(self, x):
        mean = backend.mean(x, axis=-1, keepdims=True)
        return self.scale * (x - mean) / (backend.std(x, axis=-1, keepdims=True) + 0.5)


class Attention(layers.Layer):
    """What many a notebook has: weights of its own, masks, and a sum over steps."""

    def __init__(self, bias=True, **kwargs):
        self.bias = bias
        self.supports_masking = True
        super().__init__(**kwargs)

    def build(self, input_shape):
        self.W = self.add_weight(shape=(input_shape[-1],), name="W", initializer="normal")
        if self.bias:
            self.b = self.add_weight(shape=(input_shape[1],), name="b", initializer="normal")
        self.built = True

    def compute_mask(self, inputs, mask=None):
        return None

    def call(self, x, mask=None):
        steps, features = x.shape[1], x.shape[2]
        flat = backend.dot(
            backend.reshape(x, (-1, features)), backend.reshape(self.W, (features, 1))
        )
        e = backend.reshape(flat, (-1, steps))
        if self.bias:
            e += self.b
        a = backend.exp(backend.tanh(e))
        if mask is not None:
            a *= backend.cast(mask, backend.floatx())
        a /= backend.cast(
            backend.sum(a, axis=1, keepdims=True) + backend.epsilon(), backend.floatx()
        )
        return backend.sum(x * backend.expand_dims(a), axis=1)

    def get_config(self):
        return {**super().get_config(), "bias": self.bias}


class Block(layers.Layer):
    """Keras's layers and a layer of one's own inside."""

    def __init__(self, units, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.units, self.rate = units, rate
        self.inner = [layers.Dense(units, activation="relu"), layers.Dense(units)]
        self.recurrent = layers.LSTM(units, return_sequences=True)
        self.norm = LayerNormalization()
        self.batch = layers.BatchNormalization()
        self.drop = layers.Dropout(rate)

    def call(self, x, training=None):
        y = x
        for layer in self.inner:
            y = layer(y)
        y = self.recurrent(self.drop(y, training=training))
        y = self.batch(self.norm(y), training=training)
        parts = tf.split(y, 2, axis=-1)
        return tf.concat([parts[1], tf.square(parts[0])], axis=-1)

    def get_config(self):
        return {**super().get_config(), "units": self.units, "rate": self.rate}


class Shared(layers.Layer):
    """A layer of Keras's called twice, the second time on what it made; and a mask handed on."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.dense = layers.Dense(units, activation="tanh")
        self.first, self.second = layers.GRU(units, return_sequences=True), layers.GRU(3)
        self.supports_masking = True

    def call(self, x, mask=None):
        y = self.dense(self.dense(x))
        return self.second(self.first(y, mask=mask), mask=mask) + tf.reduce_mean(y, axis=1)[:, :3]

    def compute_mask(self, inputs, mask=None):
        return None

    def get_config(self):
        return {**super().get_config(), "units": self.units}


class Looked(layers.Layer):
    """An embedding by hand."""

    def build(self, input_shape):
        self.table = self.add_weight(shape=(9, 4), name="table")

    def call(self, x):
        return tf.gather(self.table, tf.cast(x, tf.int32))


class Minimal(layers.Layer):
    """A cell."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = self.state_size = units

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(input_shape[-1], self.units), name="kernel")
        self.recurrent = self.add_weight(shape=(self.units, self.units), name="recurrent")

    def call(self, inputs, states):
        h = backend.dot(inputs, self.kernel) + backend.dot(states[0], self.recurrent)
        return backend.tanh(h), [backend.tanh(h)]

    def get_config(self):
        return {**super().get_config(), "units": self.units}


class Counted(layers.Layer):
    """Changes a variable, which a graph does not."""

    def build(self, input_shape):
        self.count = self.add_weight(shape=(), name="count", trainable=False)

    def call(self, x):
        self.count.assign_add(1.0)
        return x * self.count
