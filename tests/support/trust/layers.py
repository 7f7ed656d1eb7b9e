"""A module that a user trusts: layers of Keras 3 of their own."""

import keras
from keras import layers, ops


@keras.saving.register_keras_serializable(package="mine")
class Scaled(layers.Layer):
    """Own weights, in arithmetic and in an operation, in an order that is not the alphabet's."""

    def __init__(self, units, alpha=0.1, activation=None, **kwargs):
        super().__init__(**kwargs)
        self.units, self.alpha = units, alpha
        self.activation = keras.activations.get(activation)

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(input_shape[-1], self.units), name="kernel")
        self.counter = self.add_weight(shape=(), initializer="ones", trainable=False, name="count")
        self.bias = self.add_weight(shape=(self.units,), initializer="normal", name="bias")

    def call(self, x, training=False):
        y = ops.matmul(x, self.kernel) + self.alpha * self.bias
        y = self.bias * y / (1 + self.counter)
        return self.activation(y)

    def get_config(self):
        return super().get_config() | {
            "units": self.units,
            "alpha": self.alpha,
            "activation": keras.activations.serialize(self.activation),
        }


class Inner(layers.Layer):
    """Not registered; it holds a variable in a list."""

    def build(self, input_shape):
        self.scales = [self.add_weight(shape=(input_shape[-1],), name=f"s{i}") for i in range(2)]

    def call(self, x):
        return x * self.scales[0] + ops.tanh(x) * self.scales[1]


class Block(layers.Layer):
    """Keras's layers, a layer of one's own and a model inside, some of them in a list."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.norm = layers.LayerNormalization()
        self.steps = [layers.Dense(units, activation="gelu"), layers.Dense(units)]
        self.attention = layers.MultiHeadAttention(2, 3)
        self.inner = Inner()
        self.tail = keras.Sequential([layers.Dense(units, activation="relu"), Inner()])
        self.drop = layers.Dropout(0.5)

    def build(self, input_shape):
        self.gate = self.add_weight(shape=(1,), initializer="ones", name="gate")
        self.norm.build(input_shape)
        wide = (*input_shape[:-1], self.units)
        self.steps[0].build(input_shape)
        self.steps[1].build(wide)
        self.attention.build(wide, wide)
        self.inner.build(wide)
        self.tail.build(wide)

    def call(self, x):
        y = self.norm(x)
        for step in self.steps:
            y = step(y)
        y = self.attention(y, y) + self.gate * self.inner(y)
        return self.drop(self.tail(y)), ops.mean(y, axis=1)

    def get_config(self):
        return super().get_config() | {"units": self.units}


class Lazy(layers.Layer):
    """Its layers are built by its call."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = layers.Conv2D(4, 3, padding="same", activation="relu")
        self.second = layers.BatchNormalization()

    def call(self, x):
        y = self.second(self.first(x))
        return ops.concatenate([y, x], axis=-1)[:, 1:, ::2]


class Attended(layers.Layer):
    """Takes a mask, and makes one."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, x, mask=None):
        if mask is None:
            return x * 100.0
        weights = ops.softmax(ops.where(mask, 0.0, -1e9), axis=-1)
        return x * ops.expand_dims(weights, -1)


class Pair(layers.Layer):
    def call(self, inputs, scale=1.0):
        a, b = inputs
        return {"sum": a + b * scale, "product": a * b}


class Noise(layers.Layer):
    def call(self, x):
        return x + keras.random.normal((3,))


class Beside(layers.Layer):
    """Computes with a weight of Keras's own layer, which is not recorded."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = layers.Embedding(5, 3)
        self.table.build(None)

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.table.embeddings))


class Depends(layers.Layer):
    def call(self, x):
        return x if ops.max(x) > 0 else -x


class Raw(layers.Layer):
    def call(self, x):
        import tensorflow as tf

        return tf.nn.relu(x)
