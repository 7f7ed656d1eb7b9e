"""What Keras 3 makes of a Sequential without an InputLayer, as files of Keras 2 hold them.

Its legacy loader hands the first layer's ``batch_input_shape`` on as ``input_shape``, to which the
batch is added once more: all that follows has one axis too many. Some layers take that, and the
model loads with an input that nobody meant; others refuse.
Source: ``model_from_config`` in keras/src/legacy/saving/saving_utils.py of keras 3.15.1.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Shape = list[int | None]


class Misread(NamedTuple):
    """The layer that refuses, and how."""

    layer: str
    error: str
    message: str


# Class -> rank that its input must have, batch and channels counted.
_RANK = {
    **{f"{kind}{r}D": r + 2 for r in (1, 2, 3) for kind in (
        "MaxPooling", "AveragePooling", "GlobalMaxPooling", "GlobalAveragePooling", "ZeroPadding",
        "UpSampling", "Cropping", "SpatialDropout",
    )},
    "LSTM": 3, "GRU": 3, "SimpleRNN": 3, "ConvLSTM2D": 5, "RepeatVector": 2,
}  # fmt: skip
_CONVOLUTIONS = ("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv1D", "DepthwiseConv2D",
                 "SeparableConv1D", "SeparableConv2D")  # fmt: skip
_SAME_SHAPE = (
    "Activation", "Dropout", "BatchNormalization", "Masking", "LeakyReLU", "ReLU", "ELU", "Softmax",
    "PReLU", "GaussianNoise", "GaussianDropout", "ActivityRegularization", "LayerNormalization",
    "Rescaling", "Identity",
)  # fmt: skip
_NO_SIZE = "Shapes used to initialize variables must be fully-defined (no `None` dimensions)."


def misread(layers: Sequence[Any]) -> Iterator[Misread | None]:
    """Yield, layer by layer, how each refuses the shape it is given; None where it takes it.

    Args:
        layers: Of a Sequential's configuration. Where one is not known here, the rest is taken
            for good.
    """
    shape = _first_shape(layers)
    for layer in layers:
        config = layer.get("config") if isinstance(layer, Mapping) else None
        if shape is None or not isinstance(config, Mapping):
            yield None
            shape = None
            continue
        found = _step(str(layer.get("class_name")), config, shape)
        yield found if isinstance(found, Misread) else None
        shape = None if isinstance(found, Misread) else found


def _first_shape(layers: Sequence[Any]) -> Shape | None:
    """Return the shape that the first layer is given; None where it is an input, or says none."""
    first = layers[0] if layers else None
    config = first.get("config") if isinstance(first, Mapping) else None
    if not isinstance(config, Mapping) or first is None or first.get("class_name") == "InputLayer":
        return None
    recorded = config.get("batch_input_shape")
    return [None, *recorded] if isinstance(recorded, list) else None


def _step(name: str, config: Mapping[str, Any], shape: Shape) -> "Shape | Misread | None":
    """Return the shape after a layer, its refusal, or None where it is not known here."""
    called = str(config.get("name", name))
    rank = _RANK.get(name)
    if name == "Permute" and isinstance(config.get("dims"), list):
        rank = len(config["dims"]) + 1
    if rank is not None and rank != len(shape):
        return _wrong_rank(called, rank, shape)
    if name in _CONVOLUTIONS:
        return _convolution(name, config, shape)
    if name in _SAME_SHAPE:
        return shape
    if name == "Dense":
        units = config.get("units")
        if shape[-1] is None:
            return Misread(called, "ValueError", _NO_SIZE)
        return [*shape[:-1], units]
    if name == "Embedding":
        return [*shape, config.get("output_dim")]
    if name == "Flatten":
        return [None, None]  # one of its axes is the batch that was taken for a size
    return None


def _convolution(name: str, config: Mapping[str, Any], shape: Shape) -> Misread:
    """Return how a convolution refuses; the rank is always wrong when it is asked."""
    called = str(config.get("name", name))
    first = config.get("data_format") == "channels_first"
    if shape[1 if first else -1] is None:
        return Misread(
            called, "TypeError", "unsupported operand type(s) for %: 'NoneType' and 'int'"
        )
    return Misread(
        called, "ValueError",
        "Kernel shape must have the same length as input, but received kernel of shape",
    )  # fmt: skip


def _wrong_rank(called: str, rank: int, shape: Shape) -> Misread:
    full = ", ".join(map(str, shape))
    return Misread(
        called, "ValueError",
        f"Input 0 with name 'None' of layer '{called}' is incompatible with the layer: expected "
        f"ndim={rank}, found ndim={len(shape)}. Full shape received: ({full})",
    )  # fmt: skip
