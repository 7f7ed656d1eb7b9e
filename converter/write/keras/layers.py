"""One layer in the words of today's Keras: class, arguments, and what became of the others.

An argument is accepted by the class as Keras has it today, or translated by a row here, or dropped
by one with its reason; anything else is a gap. The rules of `converter.lower.keras.rules` came
first, so that only what they leave to handlers is said here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from converter.lower.keras.table import Gap, compute_dtype
from converter.write.keras import config_values
from formats.keras.variable_names import quantization

# fmt: off
# Says nothing about what a layer computes today, whatever it is.
DROPPED = frozenset((
    "batch_input_shape", "input_shape", "input_dtype", "input_length",
    "build_config", "shared_object_id", "registered_name", "cacheable", "create_input_layer",
    "is_placeholder", "rng_type", "input_spec",
    "implementation",  # ways to compute the same
    "fused",
    "query_shape", "key_shape", "value_shape",  # which the call says
    "vocabulary_size", "has_static_table", "max_values",
    "kernel_order", "flipped",  # of weights: see places
    "least_epsilon",  # is the epsilon by now
    "trainable",  # of a layer that has nothing to train
    "kernel_initializer", "kernel_regularizer", "kernel_constraint",  # of separable convolutions
    "enable_caching_device",
    "value_range",  # of turned and moved images, which the first Kerases 3 wrote and did not read
    "noise_shape",  # which a layer derives from its input
    "dropout",  # of Keras 1's Embedding, in training
))
# Says something unless it has this value (any of these).
ONLY: dict[str, tuple[Any, ...]] = {
    "groups": (1,), "time_major": (False,), "virtual_batch_size": (None,), "adjustment": (None,),
    "renorm": (False,), "renorm_clipping": (None, {}), "renorm_momentum": (0.99,),
    "mode": (0,), "causal": (False,), "num_constants": (None, 0), "sparse": (False,),
    "ragged": (False,), "keep_dims": (False,), "dropout_W": (0, 0.0), "num_bins": (None,),
    "steps_per_execution": (None,), "partitioner": (None,), "output_padding": (None,),
    "rms_scaling": (False,),
    "pad_to_aspect_ratio": (False,), "return_attention_scores": (False,),
}
# Says something only where the layer's input has a mask.
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
    """What a layer must know of its model.

    Attributes:
        dtypes: Of its inputs.
        entry: Serialises a layer inside another.
        notes: What today's Keras does otherwise where it hardly matters.
    """

    dtypes: frozenset[str]
    entry: Callable[[Any], Any]
    notes: list[str]


def translated(
    class_name: str, config: Mapping[str, Any], context: Context, *, masked: bool, states: bool
) -> tuple[str, dict[str, Any]]:
    """Return class and arguments of a layer in today's words.

    Args:
        class_name: As the rules have it.
        config: Likewise.
        context: Of the model.
        masked: Whether an input of the layer may have a mask.
        states: Whether a call gives it initial states.

    Raises:
        Gap: Today's Keras has no such layer, or not with this argument.
    """
    class_name = class_name.removesuffix(f" {quantization(config.get('dtype'))}")
    special = SPECIAL.get(class_name)
    config = special(config) if special is not None else config
    known = CLASSES.get(class_name, class_name)
    accepted = config_values.signatures()["layers"].get(known)
    if class_name == "Lambda":
        raise Gap("Lambda, which is code of its author's")
    if accepted is None:
        raise Gap(f"layer class {class_name}, which Keras 3 does not have,")
    inner = config.get("layer")
    inner_name = str(inner.get("class_name")) if isinstance(inner, Mapping) else ""
    if class_name == "Bidirectional" and masked and inner_name.startswith("ConvLSTM"):
        raise Gap(f"masks as Keras before 3 used them, in {inner_name}")
    if class_name == "Keras2TimeDistributed" and masked:
        raise Gap("TimeDistributed that hands on the mask of its layer")
    found: dict[str, Any] = {}
    dtype = config_values.dtype_policy(config.get("dtype"))
    for name, value in config.items():
        now = RENAMED.get((known, name), name)
        if now in accepted:
            found[now] = _value(now, value, dtype, context, class_name)
        elif name == "least_power":
            if class_name != "Dot" or config.get("normalize"):
                context.notes.append(f"{class_name} scales vectors shorter than 1e-6 otherwise")
        elif name in OF_MASKS or name == "masked_beside":
            if masked and (name != "masked_beside" or states):
                raise Gap(f"masks as Keras before 3 used them, in {class_name}")
        elif name not in DROPPED and not _says_nothing(class_name, name, value, config, context):
            raise Gap(f"argument {name} of {class_name}, which Keras 3 does not have,")
    return known, found


def _says_nothing(
    class_name: str, name: str, value: Any, config: Mapping[str, Any], context: Context
) -> bool:
    if name == "keeps_dtype" and class_name != "RandomCrop":  # which once resized what it cut
        return context.dtypes == {"float32"} and compute_dtype(config) in (None, "float32")
    if name == "encodes_as":
        return str(config.get("output_mode", "int")) == "int"
    return any(value == nothing for nothing in ONLY.get(name, ()))


def _value(name: str, value: Any, dtype: Any, context: Context, class_name: str) -> Any:
    kind = config_values.TRAINING.get(name.rpartition("_")[2])
    if kind is not None:
        return config_values.training_object(kind, value)
    if name == "dtype":
        if class_name == "InputLayer":
            return value.get("config", {}).get("name") if isinstance(value, Mapping) else value
        return dtype
    if name in ("activation", "recurrent_activation"):
        return config_values.activation(value, dtype)
    images = class_name in ("UpSampling2D", "Resizing")
    if name == "interpolation" and images and value not in INTERPOLATIONS:
        raise Gap(f"interpolation {value!r} of {class_name}")
    if name == "padding" and isinstance(value, str) and value not in PADDINGS:
        raise Gap(f"padding {value!r} of {class_name}")
    if name in ("layer", "forward_layer", "backward_layer", "cell"):
        return context.entry(value)
    if name in ("cells", "layers"):
        return [context.entry(part) for part in value]
    return value


# -- layers of their own -------------------------------------------------------------------------


def _batch_normalization(config: Mapping[str, Any]) -> Mapping[str, Any]:
    least = config.get("least_epsilon", 0.0)
    epsilon = config.get("epsilon", 1e-3)
    axis = config.get("axis", -1)
    if isinstance(axis, list | tuple):
        if len(axis) != 1:
            raise Gap("normalisation over several axes")
        axis = axis[0]
    fused = config.get("fused") is not False
    return {**config, "axis": axis, "epsilon": max(epsilon, least) if fused else epsilon}


def _synchronized(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**_batch_normalization(config), "synchronized": True}


def _input(config: Mapping[str, Any]) -> Mapping[str, Any]:
    shape = config.get("batch_shape") or config.get("batch_input_shape")
    if shape is None and config.get("input_shape") is not None:
        shape = [None, *config["input_shape"]]
    if shape is None:
        raise Gap("input without a recorded shape")
    kept = {k: config[k] for k in ("name", "sparse", "ragged", "optional") if k in config}
    dtype = config.get("dtype") or config.get("input_dtype") or "float32"
    return {**kept, "dtype": dtype, "batch_shape": list(shape)}


def _spectral(config: Mapping[str, Any]) -> Mapping[str, Any]:
    if str(config["layer"].get("class_name")) == "Embedding":
        raise Gap("SpectralNormalization of an Embedding, which gives integers in Keras 3")
    return config


SPECIAL: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "BatchNormalization": _batch_normalization,
    "SyncBatchNormalization": _synchronized,
    "InputLayer": _input,
    "SpectralNormalization": _spectral,
}
