"""Upgrade models of older Keras versions, by rules for changed names and meanings.

A rule is a function of one layer, and of the age of the model that it is in, that returns what the
layer becomes, or None where it does not apply. What only rules tell handlers, because
no configuration of Keras says it, are these arguments:

- ``kernel_order``: which axes of a stored kernel are today's, where not the same in order;
- ``flipped``: whether a kernel is stored turned around, as Theano's convolutions want it;
- ``padding``: ``half`` for what Theano pads on each side;
- ``held_below``: whether SReLU holds its lowest part, too, under the upper threshold;
- ``masks``: ``all`` where merged masks are joined by And, and change no values;
- ``passes_mask``: whether a layer passes on its mask;
- ``keeps_dtype``: whether images, or means, leave a layer in the dtype that they came in;
- ``encodes_as``, ``int_dtype``: dtype of encoded categories, ``policy`` for the layer's own;
- ``least_power``: below which a sum of squares counts as this much;
- ``least_epsilon``: of the batch normalization that TensorFlow fuses;
- ``setting``: what a Lambda's code was written for: Keras, TensorFlow, backend, order of axes;
- ``own_mask``: of a Lambda, the function that makes its mask.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from converter.lower.keras.call_arguments import place_tensors
from converter.lower.keras.model import MODELS, Call, Layer, Model, Reference, references
from formats.keras.layer_classes import REGISTERED


@dataclass(frozen=True, slots=True)
class Age:
    """The versions and backend that wrote a model.

    Attributes:
        major: Major version of its Keras: 1 (for all before 2), 2 (tf.keras included) or 3.
        backend: Backend as recorded or, for Keras 1, as the names of its weights imply.
        data_format: Data format of all layers of the model, if those that have one agree.
        tensorflow: Major version of its TensorFlow, if that of Keras implies it.
    """

    major: int
    backend: str | None = None
    data_format: str | None = None
    tensorflow: int | None = None


Rule = Callable[[Layer, Age], "Layer | None"]
RULES: list[Rule] = []
INNER = ("layer", "forward_layer", "backward_layer", "cell")  # arguments that hold a layer


def rule(function: Rule) -> Rule:
    """Enter a rule; rules apply in the order of this file, each to what the ones before made."""
    RULES.append(function)
    return function


def normalize(model: Model, version: str, backend: str | None = None) -> Model:
    """Return a model in the terms of Keras 3.

    Args:
        model: Model, as its configuration describes it.
        version: Version of the Keras that wrote it; empty if it is not recorded.
        backend: Likewise.
    """
    return _in_words_of_today(model, age_of(model, version, backend))


def _in_words_of_today(model: Model, age: Age) -> Model:
    model = one_replica(model)
    layers = {}
    for name, recorded in model.layers.items():
        layer = place_tensors(recorded)
        now = layer if layer.class_name in MODELS else _apply_rules(layer, age)
        if layer.model is not None:
            now = replace(now, model=_in_words_of_today(layer.model, age))
        layers[name] = now
    return replace(model, layers=layers)


def _apply_rules(layer: Layer, age: Age) -> Layer:
    config = {
        key: _inner(value, age) if key in INNER or key == "cells" else value
        for key, value in layer.config.items()
    }
    now = replace(layer, config=config)
    for apply in RULES:
        now = apply(now, age) or now
    return now


def _inner(entry: Any, age: Age) -> Any:
    """Return the serialized form of a layer inside another, in the terms of Keras 3."""
    if isinstance(entry, list):
        return [_inner(part, age) for part in entry]
    if not isinstance(entry, Mapping) or not isinstance(entry.get("config"), Mapping):
        return entry
    package, _, name = str(entry.get("class_name")).rpartition(">")
    module = entry.get("module")
    if module is None and package and entry["class_name"] not in REGISTERED:
        module = package
    layer = _apply_rules(Layer("", name, module, entry["config"], ()), age)
    words = {"class_name": layer.class_name, "module": layer.module, "config": layer.config}
    return {**entry, **words}


# -- age -----------------------------------------------------------------------------------------

KERAS_1_WORDS = frozenset(
    ("border_mode", "nb_filter", "init", "output_dim", "W_regularizer", "bias")
)
DATA_FORMATS = {"tf": "channels_last", "th": "channels_first"}


def age_of(model: Model, version: str, backend: str | None) -> Age:
    """Return the age of a model; without a recorded version by the names that it uses."""
    layers = list(_every(model))
    formats = {f for layer in layers if (f := _data_format(layer))}
    data_format = formats.pop() if len(formats) == 1 else None
    head = version.split(".")[0]
    if head.isdigit():
        return Age(max(int(head), 1), backend, data_format, _tensorflow(version))
    if any(layer.module is not None for layer in layers):
        return Age(3, backend, data_format)
    old = any(KERAS_1_WORDS.intersection(x.config) and x.class_name != "Embedding" for x in layers)
    return Age(1 if old else 2, backend, data_format)


def _tensorflow(version: str) -> int | None:
    """Return the major version of TensorFlow that belongs to a version of Keras.

    Keras 2.3 went with both, and tf.keras called itself 2.2.4 from TensorFlow 1.13 to 2.1.
    """
    numbers = [int(n) for n in re.findall(r"\d+", version)[:2]]
    pair = (*numbers, 0, 0)[:2]
    if pair >= (2, 4) or (pair == (2, 3) and version.endswith("-tf")):
        return 2
    return None if pair == (2, 3) or (pair == (2, 2) and version.endswith("-tf")) else 1


def _every(model: Model) -> Iterator[Layer]:
    for layer in model.layers.values():
        if layer.model is not None:
            yield from _every(layer.model)
        else:
            yield layer


def _data_format(layer: Layer) -> str | None:
    """Return the data format that a layer names, or None for ``default``."""
    name = str(layer.config.get("dim_ordering", layer.config.get("data_format")))
    return DATA_FORMATS.get(name, name if name.startswith("channels_") else None)


# -- replicas ------------------------------------------------------------------------------------


def one_replica(model: Model) -> Model:
    """Models that `multi_gpu_model` wrapped: the model itself, called once on the whole batch.

    Each replica was the model on a slice of the batch that a Lambda cut off; what came out was
    concatenated along the batch.
    """
    slices = {name: layer for name, layer in model.layers.items() if _is_slice(layer)}
    counts = {layer.config["arguments"]["parts"] for layer in slices.values()}
    if len(counts) != 1:
        return model
    (parts,) = counts
    layers = {name: layer for name, layer in model.layers.items() if name not in slices}
    for name, layer in layers.items():
        calls = [call for call in layer.calls if any(references(call.arguments))]
        sources = {r.layer for call in calls for r in references(call.arguments)}
        if not sources or not sources <= slices.keys():
            continue
        if len(calls) != parts:
            return model  # some other use of such slices
        whole = _of_slices(calls[0].arguments, slices)
        layers[name] = replace(layer, calls=(Call(whole, calls[0].keywords),))
        replicas = name
        break
    else:
        return model
    for name, layer in layers.items():
        made = list(references([call.arguments for call in layer.calls]))
        if len(made) == parts and {r.layer for r in made} == {replicas}:
            first = Call((Reference(replicas, 0, made[0].tensor),))
            layers[name] = Layer(name, "Identity", "keras.layers", {}, (first,))
    return replace(model, layers=layers)


def _is_slice(layer: Layer) -> bool:
    arguments = layer.config.get("arguments")
    return (
        layer.class_name == "Lambda"
        and isinstance(arguments, Mapping)
        and set(arguments) == {"i", "parts"}
        and isinstance(arguments["parts"], int)
        and len(layer.calls) == 1
    )


def _of_slices(structure: Any, slices: Mapping[str, Layer]) -> Any:
    """Return the arguments of a call with slices replaced by what was sliced."""
    if isinstance(structure, Reference):
        return next(references(slices[structure.layer].calls[0].arguments))
    if isinstance(structure, list | tuple):
        return type(structure)(_of_slices(part, slices) for part in structure)
    return structure


# -- names ---------------------------------------------------------------------------------------

# fmt: off
NAMES = {
    "Convolution1D": "Conv1D", "Convolution2D": "Conv2D", "Convolution3D": "Conv3D",
    "AtrousConvolution1D": "Conv1D", "AtrousConvolution2D": "Conv2D",
    "AtrousConv1D": "Conv1D", "AtrousConv2D": "Conv2D",
    "Deconvolution2D": "Conv2DTranspose", "Deconvolution3D": "Conv3DTranspose",
    "Deconv2D": "Conv2DTranspose", "Deconv3D": "Conv3DTranspose",
    "Convolution1DTranspose": "Conv1DTranspose", "Convolution2DTranspose": "Conv2DTranspose",
    "Convolution3DTranspose": "Conv3DTranspose",
    "DepthwiseConvolution2D": "DepthwiseConv2D",
    "SeparableConvolution1D": "SeparableConv1D", "SeparableConvolution2D": "SeparableConv2D",
    "MaxPool1D": "MaxPooling1D", "MaxPool2D": "MaxPooling2D", "MaxPool3D": "MaxPooling3D",
    "AvgPool1D": "AveragePooling1D", "AvgPool2D": "AveragePooling2D",
    "AvgPool3D": "AveragePooling3D",
    "GlobalAvgPool1D": "GlobalAveragePooling1D", "GlobalAvgPool2D": "GlobalAveragePooling2D",
    "GlobalAvgPool3D": "GlobalAveragePooling3D",
    "GlobalMaxPool1D": "GlobalMaxPooling1D", "GlobalMaxPool2D": "GlobalMaxPooling2D",
    "GlobalMaxPool3D": "GlobalMaxPooling3D",
    "BatchNormalizationV1": "BatchNormalization", "BatchNormalizationV2": "BatchNormalization",
    "GroupQueryAttention": "GroupedQueryAttention",
    "TimeDistributedDense": "Dense",
    "Layer": "Identity",
}
# Keras 1's arguments, by their names in Keras 2.
# https://github.com/keras-team/keras/blob/2.2.4/keras/legacy/interfaces.py
ARGUMENTS = {
    "output_dim": "units", "nb_filter": "filters", "border_mode": "padding", "subsample": "strides",
    "dim_ordering": "data_format", "bias": "use_bias", "init": "kernel_initializer",
    "inner_init": "recurrent_initializer", "inner_activation": "recurrent_activation",
    "pool_length": "pool_size", "stride": "strides", "subsample_length": "strides",
    "filter_length": "kernel_size", "length": "size", "p": "rate", "sigma": "stddev",
    "W_regularizer": "kernel_regularizer", "U_regularizer": "recurrent_regularizer",
    "b_regularizer": "bias_regularizer", "W_constraint": "kernel_constraint",
    "b_constraint": "bias_constraint", "atrous_rate": "dilation_rate",
    "dropout_W": "dropout", "dropout_U": "recurrent_dropout", "consume_less": "implementation",
}
# What has no name today: the shape of an input that the model records elsewhere too, and what
# layers began with.
GONE = frozenset((
    "input_length", "forget_bias_init", "alpha_init", "beta_init", "gamma_init", "t_left_init",
    "a_left_init", "t_right_init", "a_right_init",
))
KERNEL_SIZES = ("nb_row", "nb_col", "kernel_dim1", "kernel_dim2", "kernel_dim3")
# fmt: on


@rule
def renamed_class(layer: Layer, age: Age) -> Layer | None:
    """Rename classes that have another name today."""
    del age
    name = NAMES.get(layer.class_name)
    return replace(layer, class_name=name) if name else None


@rule
def keras_1_arguments(layer: Layer, age: Age) -> Layer | None:
    """Rename arguments that have other names in Keras 1."""
    if age.major > 1:
        return None
    config: dict[str, Any] = {}
    embedding = layer.class_name == "Embedding"
    for name, value in layer.config.items():
        if name in GONE or (name == "input_dim" and not embedding):
            continue
        config[name if embedding and name == "output_dim" else ARGUMENTS.get(name, name)] = value
    sizes = [config.pop(n) for n in KERNEL_SIZES if n in config]
    if sizes:
        config["kernel_size"] = sizes
    if config.get("data_format") == "default":
        del config["data_format"]
    elif "data_format" in config:
        config["data_format"] = DATA_FORMATS.get(config["data_format"], config["data_format"])
    return replace(layer, config=config)


@rule
def keras_1_unrecorded_ordering(layer: Layer, age: Age) -> Layer | None:
    """Give padding, cropping and upsampling of Keras 1 the data format of other layers."""
    kinds = (
        "ZeroPadding2D", "ZeroPadding3D", "Cropping2D", "Cropping3D", "UpSampling2D", "UpSampling3D"
    )  # fmt: skip
    if age.major > 1 or layer.class_name not in kinds or age.data_format is None:
        return None
    return replace(layer, config={"data_format": age.data_format, **layer.config})


@rule
def keras_1_padding(layer: Layer, age: Age) -> Layer | None:
    """Convert padding of Keras 1: four numbers, or a dict of those that are not zero."""
    padding = layer.config.get("padding")
    if age.major > 1 or not layer.class_name.startswith("ZeroPadding"):
        return None
    sides = (("top_pad", "bottom_pad"), ("left_pad", "right_pad"))
    if isinstance(padding, Mapping):
        pairs = [[padding.get(low, 0), padding.get(high, 0)] for low, high in sides]
        padding = pairs[1] if layer.class_name == "ZeroPadding1D" else pairs
    elif layer.class_name == "ZeroPadding2D" and isinstance(padding, list) and len(padding) == 4:
        padding = [padding[:2], padding[2:]]
    else:
        return None
    return replace(layer, config={**layer.config, "padding": padding})


@rule
def keras_1_merge(layer: Layer, age: Age) -> Layer | None:
    """``Merge``, of which each mode but the cosine is a layer today."""
    del age
    if layer.class_name != "Merge" or layer.config.get("mode_type", "raw") != "raw":
        return None
    kinds = {
        "sum": "Add", "mul": "Multiply", "ave": "Average", "max": "Maximum",
        "concat": "Concatenate", "dot": "Dot",
    }  # fmt: skip
    mode = layer.config.get("mode")
    config: dict[str, Any] = {"name": layer.name}
    if mode == "concat":
        config["axis"] = layer.config.get("concat_axis", -1)
    elif mode == "dot":
        config["axes"] = layer.config.get("dot_axes", -1)
    elif mode == "cos":
        return replace(layer, config={**config, "mode": mode, "dot_axes": layer.config["dot_axes"]})
    if mode not in kinds:
        return None
    return replace(layer, class_name=kinds[mode], config=config)


# -- kernels -------------------------------------------------------------------------------------


@rule
def keras_1_kernels(layer: Layer, age: Age) -> Layer | None:
    """Convert kernels of Keras 1: Theano's order of axes, and out before in of transposed ones.

    https://github.com/keras-team/keras/blob/2.2.4/keras/engine/saving.py#L288
    """
    if age.major > 1:
        return None
    first = layer.config.get("data_format") == "channels_first"
    # Stored [out, in, *spatial]; of transposed ones the layers' own out and in.
    theano = {
        "Conv2D": [2, 3, 1, 0], "SeparableConv2D": [2, 3, 1, 0], "ConvLSTM2D": [2, 3, 1, 0],
        "Conv3D": [2, 3, 4, 1, 0], "Conv2DTranspose": [2, 3, 0, 1],
    }  # fmt: skip
    order = theano.get(layer.class_name) if first else None
    if layer.class_name == "Conv2DTranspose" and not first:
        order = [0, 1, 3, 2]
    return replace(layer, config={**layer.config, "kernel_order": order}) if order else None


@rule
def theano_kernels(layer: Layer, age: Age) -> Layer | None:
    """Flip kernels of Theano, which computes convolutions and not cross-correlations."""
    kinds = ("Conv1D", "Conv2D", "Conv3D", "Conv2DTranspose", "ConvLSTM2D")
    if age.backend != "theano" or layer.class_name not in kinds:
        return None
    return replace(layer, config={**layer.config, "flipped": True})


@rule
def theano_padding(layer: Layer, age: Age) -> Layer | None:
    """Convert padding of Theano: ``same`` is half a kernel on each side of a convolution.

    Other layers are not supported where this makes a difference; it does not where kernels are odd
    and
    strides one, nor where windows are of three.
    https://github.com/keras-team/keras/blob/1.2.2/keras/backend/theano_backend.py#L1650
    """
    same, recurrent = layer.config.get("padding") == "same", layer.class_name == "ConvLSTM2D"
    if age.backend != "theano" or not (same or recurrent):
        return None
    if layer.class_name in ("Conv1D", "Conv2D", "Conv3D"):
        return replace(layer, config={**layer.config, "padding": "half"})
    pools = "Pooling" in layer.class_name
    sizes = _numbers(layer.config.get("pool_size" if pools else "kernel_size", 2))
    steps = _numbers(layer.config.get("strides") or (sizes if pools else 1))
    odd = all(n == 3 if pools else n % 2 for n in sizes) and set(steps) == {1}
    return None if odd else replace(layer, class_name=f"{layer.class_name} padded by Theano")


def _numbers(value: Any) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [value]


@rule
def theano_slopes(layer: Layer, age: Age) -> Layer | None:
    """Adjust SReLU of Theano, which also clips values below both thresholds to the upper one."""
    if age.backend != "theano" or layer.class_name != "SReLU":
        return None
    return replace(layer, config={**layer.config, "held_below": True})


# -- meaning -------------------------------------------------------------------------------------


@rule
def hard_sigmoid_of_keras_2(layer: Layer, age: Age) -> Layer | None:
    """Use the hard sigmoid of Keras 1 and 2."""
    if age.major > 2:
        return None
    found = {}
    for name, value in layer.config.items():
        named = value.get("config") if isinstance(value, Mapping) else value
        if named == "hard_sigmoid":
            found[name] = "keras2_hard_sigmoid"
    return replace(layer, config={**layer.config, **found}) if found else None


@rule
def masks_of_keras_2(layer: Layer, age: Age) -> Layer | None:
    """Combine merged masks by And, and stop masks at layers that did not pass them on."""
    if age.major > 2:
        return None
    merges = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")
    if layer.class_name in merges:
        return replace(layer, config={**layer.config, "masks": "all"})
    if layer.class_name in ("Identity", "Rescaling", "Normalization"):
        return replace(layer, config={**layer.config, "passes_mask": False})
    if layer.class_name == "Softmax":
        return replace(layer, config={"robust_masking": False, **layer.config})
    return None


@rule
def least_numbers_of_keras_2(layer: Layer, age: Age) -> Layer | None:
    """Use the least epsilons of Keras 2: of UnitNormalization, Dot and BatchNormalization."""
    if age.major > 2:
        return None
    if layer.class_name in ("UnitNormalization", "Dot"):
        return replace(layer, config={**layer.config, "least_power": 1e-12})
    if layer.class_name == "BatchNormalization" and age.major == 2:
        # A least epsilon that cuDNN once needed, kept by tf.compat.v1.nn.fused_batch_norm.
        return replace(layer, config={**layer.config, "least_epsilon": 1.001e-5})
    return None


@rule
def images_of_keras_2(layer: Layer, age: Age) -> Layer | None:
    """Return the compute dtype from image layers, whatever the input's dtype is."""
    kinds = ("Resizing", "RandomCrop", "RandomBrightness", "RandomContrast")
    # Crops differ in what they make of integers alone.
    crops = layer.class_name == "CenterCrop" and "float" not in str(layer.config.get("dtype"))
    if age.major > 2 or (layer.class_name not in kinds and not crops):
        return None
    return replace(layer, config={**layer.config, "keeps_dtype": False})


@rule
def means_of_keras_2(layer: Layer, age: Age) -> Layer | None:
    """Compute means of integers as integers."""
    if age.major > 2 or not layer.class_name.startswith("GlobalAveragePooling"):
        return None
    return replace(layer, config={**layer.config, "keeps_dtype": True})


@rule
def categories_of_keras_2(layer: Layer, age: Age) -> Layer | None:
    """Give category encodings the dtype of the layer."""
    if age.major > 2:
        return None
    if layer.class_name in ("IntegerLookup", "StringLookup", "TextVectorization"):
        return replace(layer, config={**layer.config, "encodes_as": "policy"})
    if layer.class_name == "Discretization":
        return replace(layer, config={**layer.config, "int_dtype": "policy"})
    return None


@rule
def training_of_keras_3(layer: Layer, age: Age) -> Layer | None:
    """``training`` of a call, which Keras 3 records of layers that have it on by default.

    What runs the model decides. Before, what a call said held whatever ran it.
    """
    if age.major < 3 or not any("training" in call.keywords for call in layer.calls):
        return None
    calls = (
        replace(call, keywords={k: v for k, v in call.keywords.items() if k != "training"})
        for call in layer.calls
    )
    return replace(layer, calls=tuple(calls))
