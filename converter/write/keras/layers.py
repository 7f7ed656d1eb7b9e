"""Translate the class and arguments of a layer to the current Keras.

An argument is accepted by the current class, or translated by a row here, or dropped by a row with
its reason. Any other argument is unsupported. The rules of
`converter.lower.keras.version_upgrades` have been applied before.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from converter.lower.keras.table import Unsupported, compute_dtype
from converter.write.keras import config_values
from formats.keras.variable_names import quantization

# fmt: off
# Does not change what a layer computes, whatever the value.
DROPPED = frozenset((
    "batch_input_shape", "input_shape", "input_dtype", "input_length",
    "build_config", "shared_object_id", "registered_name", "cacheable", "create_input_layer",
    "is_placeholder", "rng_type", "input_spec",
    "implementation",  # ways to compute the same
    "fused",
    "query_shape", "key_shape", "value_shape",  # known from the call
    "vocabulary_size", "has_static_table", "max_values",
    "kernel_order", "flipped",  # of weights: see weight_paths
    "least_epsilon",  # applied to epsilon
    "trainable",  # of a layer without weights
    "kernel_initializer", "kernel_regularizer", "kernel_constraint",  # of separable convolutions
    "enable_caching_device",
    "value_range",  # of image layers; early Keras 3 wrote it and did not read it
    "noise_shape",  # derived from the input
    "dropout",  # of Keras 1's Embedding, in training
))
# Changes what a layer computes unless it has one of these values.
ONLY: dict[str, tuple[Any, ...]] = {
    "groups": (1,), "time_major": (False,), "virtual_batch_size": (None,), "adjustment": (None,),
    "renorm": (False,), "renorm_clipping": (None, {}), "renorm_momentum": (0.99,),
    "mode": (0,), "causal": (False,), "num_constants": (None, 0), "sparse": (False,),
    "ragged": (False,), "keep_dims": (False,), "dropout_W": (0, 0.0), "num_bins": (None,),
    "steps_per_execution": (None,), "partitioner": (None,), "output_padding": (None,),
    "rms_scaling": (False,),
    "pad_to_aspect_ratio": (False,), "return_attention_scores": (False,),
}
# Changes what a layer computes only if its input has a mask.
OF_MASKS = frozenset(("masks", "passes_mask", "robust_masking", "softmax_robust_masking"))
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5", "area")
PADDINGS = ("valid", "same", "causal")
RENAMED = {
    ("LeakyReLU", "alpha"): "negative_slope",
    ("ELU", "alpha"): "alpha",
    ("CategoryEncoding", "max_tokens"): "num_tokens",
    ("Discretization", "bins"): "bin_boundaries",
}
CLASSES = {
    "SyncBatchNormalization": "BatchNormalization", "Keras2TimeDistributed": "TimeDistributed",
    "GroupedQueryAttention": "GroupQueryAttention",
    "CuDNNLSTM": "LSTM", "CuDNNGRU": "GRU",
}
# fmt: on


@dataclass(frozen=True, slots=True)
class Context:
    """The properties of a model that the translation of a layer needs.

    Attributes:
        dtypes: Of the model's inputs.
        entry: Serializes a layer inside another.
        notes: Small differences of the current Keras; appended to.
    """

    dtypes: frozenset[str]
    entry: Callable[[Any], Any]
    notes: list[str]


def translate_layer(
    class_name: str, config: Mapping[str, Any], context: Context, *, masked: bool, states: bool
) -> tuple[str, dict[str, Any]]:
    """Return the class and arguments of a layer in the current Keras.

    Args:
        class_name: After the rules.
        config: Likewise.
        context: Of the model.
        masked: Whether an input of the layer may have a mask.
        states: Whether a call passes initial states.

    Raises:
        Unsupported: The current Keras has no such layer, or not with this argument.
    """
    class_name = class_name.removesuffix(f" {quantization(config.get('dtype'))}")
    special = SPECIAL.get(class_name)
    config = special(config) if special is not None else config
    known = CLASSES.get(class_name, class_name)
    accepted = config_values.load_signatures()["layers"].get(known)
    if class_name == "Lambda":
        raise Unsupported("the author's own code")
    if accepted is None:
        raise Unsupported(f"layer class {class_name}, which Keras 3 does not have")
    inner = config.get("layer")
    inner_name = str(inner.get("class_name")) if isinstance(inner, Mapping) else ""
    if class_name == "Bidirectional" and masked and inner_name.startswith("ConvLSTM"):
        raise Unsupported(f"masks as Keras before 3 used them, in {inner_name}")
    if class_name == "Keras2TimeDistributed" and masked:
        raise Unsupported("TimeDistributed that passes on the mask of its layer")
    found: dict[str, Any] = {}
    dtype = config_values.dtype_policy(config.get("dtype"))
    for name, value in config.items():
        now = RENAMED.get((known, name), name)
        if now in accepted:
            found[now] = _translate_value(now, value, dtype, context, class_name)
        elif name == "least_power":
            if class_name != "Dot" or config.get("normalize"):
                context.notes.append(f"{class_name} scales vectors shorter than 1e-6 otherwise")
        elif name in OF_MASKS or name == "masked_beside":
            if masked and (name != "masked_beside" or states):
                raise Unsupported(f"masks as Keras before 3 used them, in {class_name}")
        elif name not in DROPPED and not _is_default(class_name, name, value, config, context):
            raise Unsupported(f"argument {name} of {class_name}, which Keras 3 does not have")
    return known, found


def _is_default(
    class_name: str, name: str, value: Any, config: Mapping[str, Any], context: Context
) -> bool:
    if name == "keeps_dtype" and class_name != "RandomCrop":  # which once resized its crops
        return context.dtypes == {"float32"} and compute_dtype(config) in (None, "float32")
    if name == "encodes_as":
        return str(config.get("output_mode", "int")) == "int"
    return any(value == nothing for nothing in ONLY.get(name, ()))


def _translate_value(name: str, value: Any, dtype: Any, context: Context, class_name: str) -> Any:
    kind = config_values.TRAINING.get(name.rpartition("_")[2])
    if kind is not None:
        return config_values.serialize_training_object(kind, value)
    if name == "dtype":
        if class_name == "InputLayer":
            return value.get("config", {}).get("name") if isinstance(value, Mapping) else value
        return dtype
    if name in ("activation", "recurrent_activation"):
        return config_values.activation(value, dtype)
    images = class_name in ("UpSampling2D", "Resizing")
    if name == "interpolation" and images and value not in INTERPOLATIONS:
        raise Unsupported(f"interpolation {value!r} of {class_name}")
    if name == "padding" and isinstance(value, str) and value not in PADDINGS:
        raise Unsupported(f"padding {value!r} of {class_name}")
    if name in ("layer", "forward_layer", "backward_layer", "cell"):
        return context.entry(value)
    if name in ("cells", "layers"):
        return [context.entry(part) for part in value]
    return value


# -- single layers --------------------------------------------------------------------------------


def _translate_batch_normalization(config: Mapping[str, Any]) -> Mapping[str, Any]:
    least = config.get("least_epsilon", 0.0)
    epsilon = config.get("epsilon", 1e-3)
    axis = config.get("axis", -1)
    if isinstance(axis, list | tuple):
        if len(axis) != 1:
            raise Unsupported("normalisation over several axes")
        axis = axis[0]
    fused = config.get("fused") is not False
    return {**config, "axis": axis, "epsilon": max(epsilon, least) if fused else epsilon}


def _translate_synchronized(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**_translate_batch_normalization(config), "synchronized": True}


def _translate_input(config: Mapping[str, Any]) -> Mapping[str, Any]:
    shape = config.get("batch_shape") or config.get("batch_input_shape")
    if shape is None and config.get("input_shape") is not None:
        shape = [None, *config["input_shape"]]
    if shape is None:
        raise Unsupported("input without a recorded shape")
    kept = {k: config[k] for k in ("name", "sparse", "ragged", "optional") if k in config}
    dtype = config.get("dtype") or config.get("input_dtype") or "float32"
    return {**kept, "dtype": dtype, "batch_shape": list(shape)}


def _translate_spectral(config: Mapping[str, Any]) -> Mapping[str, Any]:
    if str(config["layer"].get("class_name")) == "Embedding":
        raise Unsupported("SpectralNormalization of an Embedding, which gives integers in Keras 3")
    return config


SPECIAL: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "BatchNormalization": _translate_batch_normalization,
    "SyncBatchNormalization": _translate_synchronized,
    "InputLayer": _translate_input,
    "SpectralNormalization": _translate_spectral,
}
