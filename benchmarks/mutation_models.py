"""Models with random weights for `mutations`: each function writes a source and returns its path."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODELS: dict[str, Callable[[Path], Path]] = {}
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")


def keras_model(build: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Enter a model of Keras; the function gets the modules ``keras`` and ``keras.layers``."""

    def make(folder: Path) -> Path:
        import keras

        keras.utils.set_random_seed(7)
        model = build(keras, keras.layers)
        for (
            weight
        ) in model.weights:  # of normalisations and biases, too: zeros and ones hide faults
            if str(weight.dtype) == "float32":
                noise = keras.random.normal(weight.shape, stddev=0.1, seed=len(weight.path))
                value = weight + (keras.ops.abs(noise) if "variance" in weight.path else noise)
                weight.assign(value)
        path = folder / f"{build.__name__}.keras"
        model.save(path)
        return path

    MODELS[build.__name__] = make
    return build


def torch_model(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Enter a model of torch; the function gets the module, and returns a model and its inputs."""

    def make(folder: Path) -> Path:
        import torch

        torch.manual_seed(7)
        model, inputs = build(torch)
        path = folder / f"{build.__name__}.pt2"
        torch.export.save(torch.export.export(model.eval(), inputs), path)
        return path

    MODELS[build.__name__] = make
    return build


def tensorflow_model(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Enter a tf.Module; the function gets the module ``tensorflow``."""

    def make(folder: Path) -> Path:
        import tensorflow as tf

        tf.random.set_seed(7)
        path = folder / build.__name__
        module = build(tf)
        tf.saved_model.save(module, str(path), signatures=module.serve)
        return path

    MODELS[build.__name__] = make
    return build


@keras_model
def cnn(keras: Any, layers: Any) -> Any:
    """Convolutions, pooling and a classifier."""
    return keras.Sequential([
        keras.Input((32, 32, 3)), layers.Conv2D(16, 3, padding="same", strides=2, activation="relu"),
        layers.MaxPooling2D(), layers.Conv2D(16, 3, activation="relu"), layers.Flatten(),
        layers.Dense(16, activation="relu"), layers.Dense(10),
    ])  # fmt: skip


@keras_model
def residual(keras: Any, layers: Any) -> Any:
    """Residual blocks with batch normalisation."""
    x = first = keras.Input((24, 24, 3))
    x = layers.Conv2D(12, 3, padding="same")(x)
    for _ in range(3):
        y = layers.BatchNormalization()(x)
        y = layers.Conv2D(12, 3, padding="same", activation="relu")(y)
        x = layers.Add()([x, layers.BatchNormalization()(y)])
    return keras.Model(first, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))


@keras_model
def mobile(keras: Any, layers: Any) -> Any:
    """Separable convolutions with Relu6."""
    x = first = keras.Input((32, 32, 3))
    for width in (8, 16):
        x = layers.SeparableConv2D(width, 3, padding="same", strides=2)(x)
        x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    x = layers.Dense(8, activation="hard_sigmoid")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(first, layers.Dense(4, activation="softmax")(x))


@keras_model
def transformer(keras: Any, layers: Any) -> Any:
    """Twelve pre-norm blocks with GELU."""
    first = keras.Input((None,), dtype="int32")
    x = layers.Embedding(200, 32)(first)
    for _ in range(12):
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        x = layers.Add()([x, layers.MultiHeadAttention(2, 16)(y, y)])
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        x = layers.Add()([x, layers.Dense(32)(layers.Dense(64, activation="gelu")(y))])
    return keras.Model(first, layers.Dense(200)(layers.LayerNormalization(epsilon=1e-5)(x)))


@keras_model
def lstm(keras: Any, layers: Any) -> Any:
    """Two recurrent layers."""
    return keras.Sequential([
        keras.Input((None, 8)), layers.LSTM(16, return_sequences=True),
        layers.Bidirectional(layers.LSTM(8)), layers.Dense(3),
    ])  # fmt: skip


@keras_model
def gru(keras: Any, layers: Any) -> Any:
    """A masked GRU over embedded words."""
    return keras.Sequential([
        keras.Input((None,), dtype="int32"), layers.Embedding(50, 8, mask_zero=True),
        layers.GRU(16), layers.Dense(1, activation="sigmoid"),
    ])  # fmt: skip


@keras_model
def unet(keras: Any, layers: Any) -> Any:
    """Down and up again, with a transposed convolution and interpolation."""
    first = keras.Input((32, 32, 1))
    a = layers.Conv2D(8, 3, padding="same", activation="relu")(first)
    b = layers.Conv2D(8, 3, padding="same", strides=2, activation="relu")(a)
    c = layers.Conv2DTranspose(8, 2, strides=2)(b)
    d = layers.UpSampling2D(2, interpolation="bilinear")(b)
    return keras.Model(
        first, layers.Conv2D(2, 1, activation="sigmoid")(layers.Concatenate()([a, c, d]))
    )


@keras_model
def boxes(keras: Any, layers: Any) -> Any:
    """A head that joins boxes in pixels with scores of 0 to 1."""
    x = first = keras.Input((16, 16, 3))
    x = layers.Conv2D(16, 3, activation="relu", padding="same")(layers.Rescaling(1 / 255)(x))
    x = layers.Reshape((256, 16))(x)
    place = layers.Rescaling(400.0)(layers.Dense(4)(x))
    return keras.Model(
        first, layers.Concatenate()([place, layers.Dense(6, activation="sigmoid")(x)])
    )


@keras_model
def two_heads(keras: Any, layers: Any) -> Any:
    """Two inputs and two outputs."""
    a, b = keras.Input((6,), name="a"), keras.Input((6,), name="b")
    x = layers.Dense(8, activation="relu")(layers.Concatenate()([a, b]))
    return keras.Model([a, b], [layers.Dense(3, name="near")(x), layers.Dense(3, name="far")(x)])


@keras_model
def sound(keras: Any, layers: Any) -> Any:
    """One-dimensional convolutions over samples."""
    return keras.Sequential([
        keras.Input((400, 1)), layers.Conv1D(8, 9, strides=4, activation="relu"),
        layers.LayerNormalization(), layers.Conv1D(8, 5, dilation_rate=2, padding="causal"),
        layers.ELU(), layers.GlobalMaxPooling1D(), layers.Dense(4, activation="tanh"),
    ])  # fmt: skip


@keras_model
def volume(keras: Any, layers: Any) -> Any:
    """Three-dimensional convolutions."""
    return keras.Sequential([
        keras.Input((8, 10, 12, 1)), layers.Conv3D(4, 3, activation="relu"),
        layers.AveragePooling3D(2), layers.Flatten(), layers.Dense(3, activation="softmax"),
    ])  # fmt: skip


@keras_model
def attention(keras: Any, layers: Any) -> Any:
    """Group normalisation, attention and swish."""
    x = first = keras.Input((8, 8, 4))
    x = layers.GroupNormalization(2)(layers.Conv2D(8, 3, padding="same", activation="silu")(x))
    x = layers.Reshape((64, 8))(x)
    return keras.Model(first, layers.Dense(2)(layers.Attention(use_scale=True)([x, x])))


@torch_model
def torch_cnn(torch: Any) -> Any:
    """A convolutional network of torch."""
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3), nn.LeakyReLU(0.1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip
    return model, (torch.randn(2, 3, 20, 20),)


@torch_model
def torch_encoder(torch: Any) -> Any:
    """Encoder layers of torch."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True)
    return torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), (
        torch.randn(2, 7, 16),
    )


@torch_model
def torch_lstm(torch: Any) -> Any:
    """A recurrent network of torch."""

    class Tagger(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(6, 8, batch_first=True, bidirectional=True)
            self.out = torch.nn.Linear(16, 3)

        def forward(self, x: Any) -> Any:
            return self.out(self.lstm(x)[0])

    return Tagger(), (torch.randn(2, 9, 6),)


@tensorflow_model
def tf_dense(tf: Any) -> Any:
    """Matrix products and normalisation in plain TensorFlow."""

    class Module(tf.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.a = tf.Variable(tf.random.normal((8, 8)))
            self.b = tf.Variable(tf.random.normal((8, 4)))
            self.c = tf.Variable(tf.random.normal((4,)))

        @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float32, name="x")])
        def serve(self, x: Any) -> Any:
            x = tf.nn.relu(x @ self.a)
            mean, variance = tf.nn.moments(x, [-1], keepdims=True)
            x = (x - mean) * tf.math.rsqrt(variance + 1e-5)
            return {"scores": tf.nn.softmax(x @ self.b + self.c), "norm": tf.norm(x, axis=-1)}

    return Module()


@tensorflow_model
def tf_image(tf: Any) -> Any:
    """Resizing and convolution in plain TensorFlow."""

    class Module(tf.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.k = tf.Variable(tf.random.normal((3, 3, 3, 6)))

        @tf.function(input_signature=[tf.TensorSpec([None, 20, 20, 3], tf.float32, name="image")])
        def serve(self, image: Any) -> Any:
            x = tf.image.resize(image, (16, 16), method="bilinear")
            x = tf.nn.relu6(tf.nn.conv2d(x, self.k, 1, "SAME"))
            return {"map": tf.sigmoid(x - 1.0)}

    return Module()
