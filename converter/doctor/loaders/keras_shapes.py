"""Predict how Keras 3 fails on a Sequential without an InputLayer, as Keras 2 saved it.

Its legacy loader passes the first layer's ``batch_input_shape`` on as ``input_shape``, to which the
batch is added again: every shape has one axis too many. Some layers accept that, and the model
loads with a wrong input; others fail.
Source: ``model_from_config`` in keras/src/legacy/saving/saving_utils.py of keras 3.15.1.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from converter.doctor.findings import Failure

Shape = list[int | None]

# Class → rank of its input, with batch and channels.
_RANK = {
    **{f"{kind}{r}D": r + 2 for r in (1, 2, 3) for kind in (
        "MaxPooling", "AveragePooling", "GlobalMaxPooling", "GlobalAveragePooling", "ZeroPadding",
        "UpSampling", "Cropping", "SpatialDropout",
    )},
    "LSTM": 3, "GRU": 3, "SimpleRNN": 3, "ConvLSTM2D": 5, "RepeatVector": 2,
}  # fmt: skip
_CONVOLUTIONS = ("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv1D", "DepthwiseConv2D",
                 "SeparableConv1D", "SeparableConv2D")  # fmt: skip
_SHAPE_KEEPING = (
    "Activation", "Dropout", "BatchNormalization", "Masking", "LeakyReLU", "ReLU", "ELU", "Softmax",
    "PReLU", "GaussianNoise", "GaussianDropout", "ActivityRegularization", "LayerNormalization",
    "Rescaling", "Identity",
)  # fmt: skip
_NO_SIZE = "Shapes used to initialize variables must be fully-defined (no `None` dimensions)."


def check_shapes(layers: Sequence[Any]) -> Iterator[Failure | None]:
    """Yield for each layer how it fails on its input shape; None if it accepts it.

    Args:
        layers: Of a Sequential's configuration. Layers after one that is not known here are
            assumed to accept their input.
    """
    shape = _read_first_shape(layers)
    for layer in layers:
        config = layer.get("config") if isinstance(layer, Mapping) else None
        if shape is None or not isinstance(config, Mapping):
            shape = None
            yield None
            continue
        result = _apply_layer(str(layer.get("class_name")), config, shape)
        if isinstance(result, Failure):
            shape = None
            yield result
        else:
            shape = result
            yield None


def _read_first_shape(layers: Sequence[Any]) -> Shape | None:
    """Return the input shape of the first layer; None if that is an InputLayer or has no shape."""
    first = layers[0] if layers else None
    config = first.get("config") if isinstance(first, Mapping) else None
    if not isinstance(config, Mapping) or first is None or first.get("class_name") == "InputLayer":
        return None
    recorded = config.get("batch_input_shape")
    return [None, *recorded] if isinstance(recorded, list) else None


def _apply_layer(name: str, config: Mapping[str, Any], shape: Shape) -> Shape | Failure | None:
    """Return the output shape of a layer, its failure, or None if the layer is not known here."""
    called = str(config.get("name", name))
    rank = _RANK.get(name)
    if name == "Permute" and isinstance(config.get("dims"), list):
        rank = len(config["dims"]) + 1
    if rank is not None and rank != len(shape):
        full = ", ".join(map(str, shape))
        return _fail(
            called, "ValueError",
            f"Input 0 with name 'None' of layer '{called}' is incompatible with the layer: "
            f"expected ndim={rank}, found ndim={len(shape)}. Full shape received: ({full})",
        )  # fmt: skip
    if name in _CONVOLUTIONS:  # a wrong rank always fails
        channels = shape[1 if config.get("data_format") == "channels_first" else -1]
        if channels is None:
            message = "unsupported operand type(s) for %: 'NoneType' and 'int'"
            return _fail(called, "TypeError", message)
        message = "Kernel shape must have the same length as input, but received kernel of shape"
        return _fail(called, "ValueError", message)
    if name in _SHAPE_KEEPING:
        return shape
    if name == "Dense":
        if shape[-1] is None:
            return _fail(called, "ValueError", _NO_SIZE)
        return [*shape[:-1], config.get("units")]
    if name == "Embedding":
        return [*shape, config.get("output_dim")]
    if name == "Flatten":
        return [None, None]  # one of the flattened axes is the batch
    return None


def _fail(layer: str, error: str, message: str) -> Failure:
    return Failure(
        error, message, "input-misread",
        "Keras 3 reads the recorded batch_input_shape as a shape without the batch: one axis too "
        f"many for {layer}",
    )  # fmt: skip
