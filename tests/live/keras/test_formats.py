"""What Keras and TensorFlow write today, read back from every container, tensor by tensor."""

import numpy as np
import pytest

import converter

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Keras's own, under numpy 2


@pytest.mark.parametrize("container", ["m.h5", "m.keras", "m.weights.h5", "exported"])
def test_one_model_in_every_container(tmp_path, container):
    keras = pytest.importorskip("keras")
    inputs = keras.Input((12, 12, 3), name="image")
    x = keras.layers.Conv2D(5, 3, name="conv")(inputs)
    x = keras.layers.BatchNormalization(name="norm")(x)
    x = keras.layers.Reshape((10, 50))(x)
    x = keras.layers.Bidirectional(keras.layers.LSTM(4), name="both")(x)
    model = keras.Model(inputs, keras.layers.Dense(2, name="head")(x))
    rng = np.random.default_rng(3)
    for weight in model.weights:
        weight.assign(rng.standard_normal(weight.shape))
    path = tmp_path / container
    if container == "exported":
        model.export(path)
    elif container == "m.weights.h5":
        model.save_weights(path)
    else:
        model.save(path)
    found = converter.read(path).weights
    held = {(t.dtype.name, t.shape, t.tobytes()) for t in found.values()}
    for weight in model.weights:
        array = weight.numpy()
        assert (array.dtype.name, array.shape, array.tobytes()) in held, weight.path
    if container != "m.weights.h5":  # which has no names of variables
        assert {"conv/kernel", "norm/moving_variance", "head/bias"} <= set(found)
