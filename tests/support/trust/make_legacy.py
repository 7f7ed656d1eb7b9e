"""Models of Keras 2 with layers of one's own: ``make_legacy.py FOLDER NAME...``; tf_keras runs it.

Each is written as .h5, with random weights, inputs and what Keras computes.
"""

import os
import sys
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"
sys.path.insert(0, str(Path(__file__).parent))
import legacy as own
import numpy as np
from tensorflow import keras
from tensorflow.keras import layers


def attended():
    x = keras.Input((6,), dtype="int32")
    y = layers.Embedding(9, 4, mask_zero=True)(x)
    return keras.Model(x, layers.Dense(2, activation=own.swish_of_old)(own.Attention()(y)))


def block():
    x = keras.Input((6, 5))
    y = own.LayerNormalization(name="norm")(own.Block(4)(x))
    y = layers.Dense(3, activation="named")(layers.Dense(3, activation="gelu")(y))
    return keras.Model(x, layers.TimeDistributed(own.LayerNormalization())(y))


def shared():
    x = keras.Input((6,), dtype="int32")
    return keras.Model(x, own.Shared(4)(layers.Embedding(9, 4, mask_zero=True)(x)))


def looked():
    x = keras.Input((5,), dtype="int32")
    y = own.Looked()(x)
    return keras.Model(x, layers.RNN(own.Minimal(3))(y))


def counted():
    x = keras.Input((3,))
    return keras.Model(x, own.Counted()(x))


def unsaid(name):
    def made():
        x = keras.Input((6, 5))
        return keras.Model(x, getattr(own, name)()(x))

    return made


MODELS = {
    "attended": attended, "block": block, "looked": looked, "shared": shared, "counted": counted,
    "attention": unsaid("Attention"), "normalised": unsaid("LayerNormalization"),
}  # fmt: skip


def main(folder, *names):
    random = np.random.default_rng(0)
    for name in names:
        keras.backend.clear_session()
        model = MODELS[name]()
        for variable in model.variables:
            values = random.uniform(0.2, 1.0, variable.shape)
            if "variance" not in variable.name:
                values = values * random.choice([-1, 1], variable.shape)
            variable.assign(values)
        model.save(folder / f"{name}.h5")
        shape = (3, *model.inputs[0].shape[1:])
        whole = model.inputs[0].dtype.is_integer
        x = random.integers(0, 9, shape) if whole else random.normal(size=shape)
        x = x.astype(model.inputs[0].dtype.name)
        y = model(x)
        made = y if isinstance(y, list) else [y]
        kept = {f"y{i}": a.numpy() for i, a in enumerate(made)}
        np.savez(folder / f"{name}.npz", x0=x, **kept)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
