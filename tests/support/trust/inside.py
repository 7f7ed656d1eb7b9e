"""A module that a user trusts: functions, cells, layers in wrappers and models, of Keras 3."""

import keras
import tensorflow as tf
from keras import layers, ops

# -- functions -----------------------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="my_package")
def my_swish(x):
    return x * ops.sigmoid(0.5 * x)


def plain_swish(x):
    return ops.where(x > 0, x, 0.3 * ops.tanh(x))


def of_tensorflow(x):
    return tf.nn.softplus(x) - tf.math.log(tf.constant(2.0, x.dtype)) * tf.cast(
        tf.reduce_max(tf.abs(x), axis=-1, keepdims=True), x.dtype
    )


@keras.saving.register_keras_serializable(package="my_package")
class Scaled:
    """An activation that is an object with arguments."""

    def __init__(self, factor=2.0):
        self.factor = factor

    def __call__(self, x):
        return ops.tanh(x * self.factor)

    def get_config(self):
        return {"factor": self.factor}


@keras.saving.register_keras_serializable(package="my_package")
class Bent(layers.Layer):
    """An activation that is a layer."""

    def __init__(self, slope=0.1, **kwargs):
        super().__init__(**kwargs)
        self.slope = slope

    def call(self, x):
        return ops.maximum(x, self.slope * x)

    def get_config(self):
        return super().get_config() | {"slope": self.slope}


def cut(x, low=0.0, axis=-1):
    """What a Lambda calls by its name."""
    return ops.cumsum(ops.maximum(x, low), axis=axis)


def undecided(x):
    return x if ops.max(x) > 0 else -x


def by_chance(x):
    return x * keras.random.uniform(())


# -- cells ---------------------------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="my_package")
class Minimal(layers.Layer):
    """One state, which is the output."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = self.state_size = units

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(input_shape[-1], self.units), name="kernel")
        self.recurrent = self.add_weight(shape=(self.units, self.units), name="recurrent")

    def call(self, inputs, states):
        h = ops.tanh(ops.matmul(inputs, self.kernel) + ops.matmul(states[0], self.recurrent))
        return h, [h]

    def get_config(self):
        return super().get_config() | {"units": self.units}


class Apart(layers.Layer):
    """Two states of two sizes, and an output that is neither; a layer of Keras's inside."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units, self.state_size = units, [units, 2]
        self.output_size = 3
        self.mix = layers.Dense(units, activation="sigmoid")
        self.out = layers.Dense(3)

    def build(self, input_shape):
        self.mix.build((input_shape[0], input_shape[-1] + self.units))
        self.out.build((input_shape[0], self.units + 2))

    def call(self, inputs, states):
        h, c = states
        h = self.mix(ops.concatenate([inputs, h], axis=-1))
        c = 0.5 * c + ops.mean(h, axis=-1, keepdims=True)
        return self.out(ops.concatenate([h, c], axis=-1)), [h, c]

    def get_config(self):
        return super().get_config() | {"units": self.units}


class Started(Minimal):
    """It does not start with zeros."""

    def get_initial_state(self, batch_size=None):
        return [ops.ones((batch_size, self.units))]


# -- layers and models -----------------------------------------------------------------------------


class Gated(layers.Layer):
    """Weights of its own and of a layer of Keras's."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.dense = layers.Dense(units, activation=my_swish)

    def build(self, input_shape):
        self.gate = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="gate")
        self.dense.build(input_shape)

    def call(self, x):
        return self.dense(x * self.gate)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)

    def get_config(self):
        return super().get_config() | {"units": self.units}


@keras.saving.register_keras_serializable(package="my_package")
class Whole(keras.Model):
    """A model whose layers are attributes."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.flat = layers.Flatten()
        self.blocks = [Gated(units), layers.Dense(units, activation="relu")]
        self.head = layers.Dense(2)

    def call(self, x, training=False):
        x = self.flat(x)
        for block in self.blocks:
            x = x + block(x) if x.shape[-1] == self.units else block(x)
        return self.head(x)

    def get_config(self):
        return super().get_config() | {"units": self.units}


@keras.saving.register_keras_serializable(package="my_package")
class Pairs(keras.Model):
    """Two inputs by name, two outputs by name, recorded with their shapes."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.left, self.right = layers.Dense(3), layers.Dense(3)

    def build(self, input_shape):
        self.left.build(input_shape["a"])
        self.right.build(input_shape["b"])
        self.built = True

    def call(self, inputs):
        a, b = self.left(inputs["a"]), self.right(inputs["b"])
        return {"sum": a + b, "product": a * b}


@keras.saving.register_keras_serializable(package="my_package")
class Positions(layers.Layer):
    """As many positions as a text has tokens, of those that there are, as KerasHub's layers do."""

    def __init__(self, most, **kwargs):
        super().__init__(**kwargs)
        self.most = most

    def build(self, input_shape):
        self.table = self.add_weight(shape=(self.most, input_shape[-1]), name="table")

    def call(self, x):
        shape = ops.shape(x)
        positions = ops.slice(ops.convert_to_tensor(self.table), (0, 0), (shape[1], shape[2]))
        return ops.broadcast_to(positions, shape)

    def get_config(self):
        return super().get_config() | {"most": self.most}


@keras.saving.register_keras_serializable(package="my_package")
class Encoder(keras.Model):
    """A model that its class builds functionally, as KerasHub's: no file has its inputs."""

    def __init__(self, words, units, **kwargs):
        mask = keras.Input((None,), dtype="int32", name="mask")
        tokens = keras.Input((None,), dtype="int32", name="tokens")
        x = layers.Embedding(words, units, name="embedding")(tokens)
        x = layers.Add(name="add")([x, Positions(20, name="positions")(x)])
        x = layers.Dense(units, activation=my_swish, name="dense")(x)
        x = x * ops.cast(ops.expand_dims(mask, -1), x.dtype)
        outputs = {"pooled": ops.max(x, axis=1), "sequence": x}
        super().__init__(inputs={"mask": mask, "tokens": tokens}, outputs=outputs, **kwargs)
        self.words, self.units = words, units

    def get_config(self):
        return {"name": self.name, "words": self.words, "units": self.units}
