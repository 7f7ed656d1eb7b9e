"""Models with layers of one's own: ``make_models.py FOLDER NAME...``, run where Keras 3 is.

Each is written as .keras and as .h5, with random weights, inputs and what Keras computes.
"""

import sys
from pathlib import Path

import keras
import numpy as np
from keras import layers

sys.path.insert(0, str(Path(__file__).parent))
import layers as own


def scaled():
    x = keras.Input((5,))
    return keras.Model(x, layers.Dense(2)(own.Scaled(4, activation="tanh", name="mine")(x)))


def block():
    x = keras.Input((6, 5))
    a, b = own.Block(4)(x)
    return keras.Model(x, [layers.Dense(2)(a), layers.Dense(3)(b)])


def nested():
    x = keras.Input((6, 5))
    inner = keras.Model(x, list(own.Block(4)(x)), name="inner")
    y = keras.Input((6, 5))
    return keras.Model(y, [own.Scaled(3)(part) for part in inner(y)])


def lazy():
    x = keras.Input((8, 7, 3))
    return keras.Model(x, layers.Flatten()(own.Lazy()(x)))


def masked():
    x = keras.Input((6,), dtype="int32")
    y = own.Attended()(layers.Embedding(9, 4, mask_zero=True)(x))
    return keras.Model(x, layers.LSTM(3)(y))


def pair():
    a, b = keras.Input((4,)), keras.Input((4,))
    both = own.Pair()([a, b], scale=3.0)
    return keras.Model([a, b], [both["sum"], both["product"]])


def alone(layer):
    x = keras.Input((3,))
    return keras.Model(x, layer(x))


MODELS = {
    "scaled": scaled, "block": block, "nested": nested, "lazy": lazy, "masked": masked,
    "pair": pair,
    "noise": lambda: alone(own.Noise()), "beside": lambda: alone(own.Beside()),
    "depends": lambda: declared(own.Depends()), "raw": lambda: declared(own.Raw()),
}  # fmt: skip


def declared(layer):
    """Return a model with a layer that cannot be called symbolically, by saying its shape."""
    type(layer).compute_output_spec = lambda self, x: keras.KerasTensor(x.shape, x.dtype)
    return alone(layer)


def randomise(model, random):
    for variable in model.variables:
        if "seed" in variable.path:
            continue
        values = random.uniform(0.2, 1.0, variable.shape)
        if "variance" not in variable.path:
            values = values * random.choice([-1, 1], variable.shape)
        variable.assign(values)


def inputs(model, random):
    tensors = getattr(model, "inputs", None)
    if tensors is None:  # a class of one's own
        shapes = model.get_build_config()["input_shape"]
        listed = [shapes[key] for key in sorted(shapes)] if isinstance(shapes, dict) else [shapes]
        tensors = [keras.KerasTensor(shape) for shape in listed]
    for tensor in tensors:
        shape = (3, *(n or 6 for n in tensor.shape[1:]))
        if "int" in tensor.dtype:
            yield random.integers(0, 9, shape).astype(tensor.dtype)
        else:
            yield random.normal(size=shape).astype(tensor.dtype)


def main(folder, *names):
    random = np.random.default_rng(0)
    for name in names:
        keras.utils.clear_session()
        model = MODELS[name]()
        randomise(model, random)
        model.save(folder / f"{name}.keras")
        model.save(folder / f"{name}.h5")
        x = list(inputs(model, random))
        given = x if len(x) > 1 else x[0]
        if getattr(model, "inputs", None) is None and len(x) > 1:
            given = dict(zip("ab", x, strict=True))
        elif isinstance(getattr(model, "_inputs_struct", None), dict):
            given = dict(zip(sorted(model._inputs_struct), x, strict=True))
        made = keras.tree.flatten(model(given))
        kept = {f"x{i}": a for i, a in enumerate(x)}
        kept |= {f"y{i}": keras.ops.convert_to_numpy(a) for i, a in enumerate(made)}
        np.savez(folder / f"{name}.npz", **kept)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
