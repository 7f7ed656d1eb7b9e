"""Models with functions, cells and wrapped layers of one's own: ``make_inside.py FOLDER NAME...``.

Run where Keras 3 is; each is written as .keras and .h5, as `make_models` does.
"""

import sys
from pathlib import Path

import keras
from keras import layers

sys.path.insert(0, str(Path(__file__).parent))
import inside as own
import make_models


def functions():
    """Every kind of function, in layers of every kind."""
    x = keras.Input((6, 5))
    y = layers.Conv1D(4, 3, activation=own.my_swish)(x)
    y = layers.Dense(4, activation=own.plain_swish)(y)
    y = layers.Dense(4, activation=own.of_tensorflow)(y)
    y = layers.Dense(4, activation=own.Scaled(3.0))(y)
    y = layers.Dense(4, activation=own.Bent(0.3))(y)
    y = layers.Activation(own.my_swish)(y)
    y = layers.Lambda(own.cut, arguments={"low": -1.0, "axis": 1}, name="cut")(y)
    a = layers.LSTM(3, activation=own.my_swish, recurrent_activation=own.of_tensorflow)(y)
    b = layers.GRU(3, activation=own.plain_swish, return_sequences=True)(y)
    return keras.Model(x, [a, layers.TimeDistributed(layers.Activation(own.plain_swish))(b)])


def wrapped():
    """Layers in wrappers; the third wraps a model."""
    x = keras.Input((6, 5))
    y = layers.TimeDistributed(own.Gated(4))(x)
    y = layers.TimeDistributed(keras.Sequential([keras.Input((4,)), own.Gated(3)]))(y)
    z = layers.Bidirectional(layers.RNN(own.Minimal(2), return_sequences=True))(y)
    return keras.Model(x, [y, z])


def cells():
    """A cell alone, one whose output is no state, and both in a stack; states, and a mask."""
    x = keras.Input((6, 5))
    masked = layers.Masking()(x)
    a = layers.RNN(own.Minimal(3), go_backwards=True)(x)
    b = layers.RNN(own.Apart(4), return_sequences=True, return_state=True)(x)
    c = layers.RNN([own.Minimal(3), layers.LSTMCell(2), own.Apart(4)])(x)
    d = layers.RNN(own.Apart(4), return_sequences=True)(masked)
    e = layers.RNN(own.Minimal(4), return_state=True)(masked)
    return keras.Model(x, [a, *b, c, d, *e])


def whole():
    model = own.Whole(3)
    model(keras.ops.zeros((2, 2, 4)))
    return model


def pairs():
    model = own.Pairs()
    model({"a": keras.ops.zeros((2, 4)), "b": keras.ops.zeros((2, 5))})
    return model


def held():
    """A model of one's own class as a layer: no name of its weights has its own in front."""
    given = {name: keras.Input((None,), dtype="int32", name=name) for name in ("mask", "tokens")}
    x = own.Encoder(9, 4, name="part")(given)["sequence"]
    return keras.Model(given, layers.Dense(2, name="head")(x))


MODELS = {
    "functions": functions, "wrapped": wrapped, "cells": cells, "whole": whole, "pairs": pairs,
    "encoder": lambda: own.Encoder(9, 4), "held": held,
    "undecided": lambda: make_models.alone(layers.Activation(own.undecided)),
    "by_chance": lambda: make_models.alone(layers.Activation(own.by_chance)),
    "started": lambda: keras.Model(x := keras.Input((4, 3)), layers.RNN(own.Started(2))(x)),
}  # fmt: skip

if __name__ == "__main__":
    make_models.MODELS.update(MODELS)
    make_models.main(Path(sys.argv[1]), *sys.argv[2:])
