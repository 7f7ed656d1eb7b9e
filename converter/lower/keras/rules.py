"""What older Keras called otherwise, as rules that turn it into today's words.

Each rule is a function of one layer that returns what it becomes, or None where it does not apply.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from converter.lower.keras.model import Layer, Model

Rule = Callable[[Layer, str], "Layer | None"]
RULES: list[Rule] = []


def rule(function: Rule) -> Rule:
    """Enter a rule; rules apply in the order of this file, each to what the ones before made."""
    RULES.append(function)
    return function


def normalised(model: Model, version: str) -> Model:
    """Return a model in today's words.

    Args:
        model: As its configuration says.
        version: Of the Keras that wrote it, as recorded; empty where it is not.
    """
    layers = {}
    for name, layer in model.layers.items():
        if layer.model is not None:
            layers[name] = replace(layer, model=normalised(layer.model, version))
            continue
        now = layer
        for apply in RULES:
            now = apply(now, version) or now
        layers[name] = now
    return replace(model, layers=layers)


def _major(version: str) -> int:
    head = version.split(".")[0]
    return int(head) if head.isdigit() else 0


# fmt: off
NAMES = {
    "Convolution1D": "Conv1D", "Convolution2D": "Conv2D", "Convolution3D": "Conv3D",
    "Deconvolution2D": "Conv2DTranspose", "Convolution2DTranspose": "Conv2DTranspose",
    "SeparableConvolution1D": "SeparableConv1D", "SeparableConvolution2D": "SeparableConv2D",
    "MaxPool1D": "MaxPooling1D", "MaxPool2D": "MaxPooling2D", "MaxPool3D": "MaxPooling3D",
    "AvgPool1D": "AveragePooling1D", "AvgPool2D": "AveragePooling2D",
    "AvgPool3D": "AveragePooling3D",
    "GlobalAvgPool1D": "GlobalAveragePooling1D", "GlobalAvgPool2D": "GlobalAveragePooling2D",
    "GlobalMaxPool1D": "GlobalMaxPooling1D", "GlobalMaxPool2D": "GlobalMaxPooling2D",
    "BatchNormalizationV1": "BatchNormalization", "BatchNormalizationV2": "BatchNormalization",
    "Layer": "Identity",
}
# Keras 1's arguments, by their names in Keras 2.
# https://github.com/keras-team/keras/blob/2.0.0/keras/legacy/interfaces.py
ARGUMENTS = {
    "output_dim": "units", "nb_filter": "filters", "border_mode": "padding", "subsample": "strides",
    "dim_ordering": "data_format", "bias": "use_bias", "init": "kernel_initializer",
    "pool_length": "pool_size", "stride": "strides", "subsample_length": "strides",
    "filter_length": "kernel_size", "p": "rate", "W_regularizer": "kernel_regularizer",
    "b_regularizer": "bias_regularizer", "W_constraint": "kernel_constraint",
    "b_constraint": "bias_constraint", "atrous_rate": "dilation_rate",
}
# fmt: on


@rule
def renamed_class(layer: Layer, version: str) -> Layer | None:
    """Classes that have another name today."""
    del version
    name = NAMES.get(layer.class_name)
    return replace(layer, class_name=name) if name else None


@rule
def keras_1_arguments(layer: Layer, version: str) -> Layer | None:
    """Arguments that Keras 1 called otherwise."""
    if _major(version) > 1 or (not version and "border_mode" not in layer.config):
        return None
    config: dict[str, Any] = {}
    for name, value in layer.config.items():
        new = ARGUMENTS.get(name, name)
        if layer.class_name == "Embedding" and name in ("output_dim", "input_dim"):
            new = name
        if layer.class_name == "Dense" and name == "input_dim":
            continue
        config[new] = value
    sizes = [config.pop(n) for n in ("nb_row", "nb_col") if n in config]
    if sizes:
        config["kernel_size"] = sizes
    data_format = {"tf": "channels_last", "th": "channels_first", "default": "channels_last"}
    if config.get("data_format") in data_format:
        config["data_format"] = data_format[config["data_format"]]
    return replace(layer, config=config)


@rule
def hard_sigmoid_of_keras_2(layer: Layer, version: str) -> Layer | None:
    """Keras 1 and 2 had another hard sigmoid than Keras 3."""
    if _major(version) > 2 or not version:
        return None
    names = [k for k, v in layer.config.items() if v == "hard_sigmoid"]
    if not names:
        return None
    return replace(layer, config={**layer.config, **dict.fromkeys(names, "keras2_hard_sigmoid")})
