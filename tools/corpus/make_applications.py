"""Models of keras.applications with weights that keep the signal alive, and what they compute.

Run in a child process, with the Python of an environment that has the Keras asked for:

    <tf python> make_applications.py keras|tf_keras FOLDER files|savedmodel

Each line on stdin is ``NAME SIZE``, SIZE being ``smallest`` or ``default``. The model is written to
``FOLDER/NAME.h5`` (and ``.keras``, by Keras 3), or as a SavedModel to ``FOLDER/NAME``, inputs and
outputs to ``FOLDER/NAME.npz``; a line of JSON on stdout says what was written, or why nothing was.
"""

import contextlib
import gc
import importlib
import json
import os
import sys
import warnings
import zlib
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
warnings.simplefilter("ignore")

import numpy as np  # noqa: E402 - after the environment is set

ANY = 224  # the side of images where a model takes those of any size
SMALLEST = (32, 71, 75)  # sides that some model takes, and those before do not
# Images that BatchNormalization learns its statistics from; fewer of large ones, which say more.
BATCH, LARGE_BATCH = 64, 4
# Deep models with random weights may be chaotic: noise grows from layer to layer, in any runtime.
# Weights are drawn anew until it grows by less than this from the image to the outputs.
MOST_GROWTH = 200
SEEDS = 5
NOISE = 1e-5


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what frameworks print on stdout is no answer
    keras = importlib.import_module(sys.argv[1])
    for line in sys.stdin:
        name, size = line.split()
        try:
            answer = make(keras, name, size, Path(sys.argv[2]), sys.argv[3])
        except Exception as e:  # noqa: BLE001 - the framework's own failure is the answer
            answer = {"error": f"{type(e).__name__}: {e}"[:300]}
        answers.write(json.dumps(answer) + "\n")
        keras.backend.clear_session()
        gc.collect()


def make(keras, name: str, size: str, folder: Path, form: str) -> dict:
    """Write one model, and what it computes."""
    model = built(keras, name, size)
    shape = tuple(n or ANY for n in model.input_shape[1:])
    for seed in range(SEEDS):
        rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
        for layer in layers_of(model):
            set_weights(layer, rng)
        learn_statistics(model, images(rng, BATCH if max(shape) < 100 else LARGE_BATCH, shape))
        x = images(rng, 2, shape)
        y = np.asarray(model(x, training=False))
        if growth(model, x, y, rng) < MOST_GROWTH:
            break
    np.savez(folder / f"{name}.npz", x=x, y=y)
    files = [f"{name}.h5"] + ([f"{name}.keras"] if keras.__name__ == "keras" else [])
    if form == "savedmodel":
        files = [name]
        if keras.__name__ == "keras":
            model.export(folder / name, verbose=False)
        else:
            model.save(folder / name, save_format="tf")
    else:
        for file in files:
            model.save(folder / file)
    return {
        "files": files, "parameters": model.count_params(), "seed": seed, "shape": list(shape),
        "version": keras.__version__,
    }  # fmt: skip


def built(keras, name: str, size: str):
    """Return a model with its own size of images, or the smallest that it takes."""
    factory = getattr(keras.applications, name)
    if size == "default":
        return factory(weights=None, classifier_activation=None)
    for side in SMALLEST[:-1]:
        with contextlib.suppress(ValueError):
            return factory(weights=None, classifier_activation=None, input_shape=(side, side, 3))
    side = SMALLEST[-1]
    return factory(weights=None, classifier_activation=None, input_shape=(side, side, 3))


def layers_of(model):
    """Yield the layers of a model, and of those in it."""
    for layer in model.layers:
        if getattr(layer, "layers", None):
            yield from layers_of(layer)
        else:
            yield layer


def set_weights(layer, rng) -> None:
    """Give a layer weights after which numbers are about as large as before."""
    kind = type(layer).__name__
    for variable in layer.weights:
        name = variable.name.rpartition("/")[2].partition(":")[0]
        shape = tuple(variable.shape)
        if kind == "Normalization":
            value = {"mean": 0.5, "variance": 0.1}.get(name)
            if value is None:
                continue  # its count
            value = np.full(shape, value) * rng.uniform(0.8, 1.2, shape)
        elif name in ("moving_mean", "moving_variance"):
            continue  # learnt
        elif len(shape) > 1:
            is_depthwise = "Depthwise" in kind or "depthwise" in name
            inputs = int(np.prod(shape[: 2 if is_depthwise else -1]))
            value = rng.standard_normal(shape, np.float32) * np.float32((2 / inputs) ** 0.5)
        elif name == "gamma":
            value = rng.uniform(0.3, 0.9, shape)
        elif name == "beta":
            # Activations that cut at zero are then near linear: noise grows tenfold less.
            value = rng.normal(0.5, 0.2, shape)
        else:
            value = rng.normal(0, 0.1, shape)
        variable.assign(value.astype("float32"))
    if kind == "Normalization":
        layer.finalize_state()


def learn_statistics(model, x: np.ndarray) -> None:
    """Let each BatchNormalization know what it is given.

    A channel that hardly varies would be divided by next to nothing, which makes the noise of the
    last bit large in any runtime: its variance is not taken for less than a tenth of the others'.
    """
    found = [layer for layer in layers_of(model) if hasattr(layer, "moving_variance")]
    if not found:
        return
    for layer in found:
        layer.momentum = 0.0
    model(x, training=True)
    for layer in found:
        variance = np.asarray(layer.moving_variance)
        layer.moving_variance.assign(np.maximum(variance, variance.mean() / 10))


def growth(model, x: np.ndarray, y: np.ndarray, rng) -> float:
    """Return how much larger, by scale, a little noise is in the outputs than in the images."""
    noisy = x + NOISE * np.abs(x).max() * rng.standard_normal(x.shape)
    moved = np.abs(np.asarray(model(noisy.astype("float32"), training=False)) - y).max()
    return float(moved / np.abs(y).max()) / NOISE


def images(rng, count: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return images that differ as a whole and not only in their noise, 0 to 255."""
    height, width, channels = shape
    coarse = rng.normal(0, 40, (count, 4, 4, channels)) + rng.normal(0, 30, (count, 1, 1, channels))
    rows, columns = (np.arange(n) * 4 // n for n in (height, width))
    fine = rng.normal(0, 30, (count, height, width, channels))
    return np.clip(127 + coarse[:, rows][:, :, columns] + fine, 0, 255).astype("float32")


if __name__ == "__main__":
    main()
