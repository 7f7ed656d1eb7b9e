"""Readable names for the variables of Keras 3's weight stores, which only number them.

A store keeps variable ``i`` of an object at ``<path>/vars/<i>``, and the path says how Keras
reached the object: by attribute (``cell``), or as a member of a list, there named by its class
(``layers/dense_1``). The rule:

- An object's own name comes from the store where it is recorded there (Keras 3.10 and later write
  it beside the variables), else from the model's config, followed along the same attributes.
- A variable's own name comes from the table below, for classes of Keras itself, and only when the
  number of stored variables is the one that the layer's config implies.
- The tensor is called ``<object>/<object>/<variable>`` beginning below the last model on the way
  (``bidirectional/forward_lstm/lstm_cell/kernel``); with the models in front where two would
  collide; and by its path in the store where that does not help either.
- What cannot be named with certainty keeps its number (``my_layer/0``) or its path.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from formats.core.bundle import JSON

Config = Mapping[str, JSON]

# Lists in which Keras keeps the layers of a model; the second is tf.keras 2.12's, where each layer
# with weights is listed twice.
LAYER_LISTS = ("layers", "_layer_checkpoint_dependencies")

# fmt: off
# Class -> variables in stored order. "name?key" is there where config[key] is true (a default
# follows "="), "name?key:value" where it has that value, and "?!" turns either round. Checked
# against Keras by fixtures/keras/make_layer_names.py.
_CONV = ("kernel", "bias?use_bias=1")
_DEPTHWISE = ("depthwise_kernel", "bias?use_bias=1")
_SEPARABLE = ("depthwise_kernel", "pointwise_kernel", "bias?use_bias=1")
_CELL = ("kernel", "recurrent_kernel", "bias?use_bias=1")
_AFFINE = ("gamma?scale=1", "beta?center=1")
VARIABLES: dict[str, tuple[str, ...]] = {
    "Dense": ("kernel", "bias?use_bias=1"),
    "EinsumDense": ("kernel", "bias?bias_axes"),
    "Embedding": ("embeddings",),
    "ReversibleEmbedding": ("embeddings", "reverse_embeddings?!tie_weights=1"),
    "Conv1D": _CONV, "Conv2D": _CONV, "Conv3D": _CONV,
    "Conv1DTranspose": _CONV, "Conv2DTranspose": _CONV, "Conv3DTranspose": _CONV,
    "DepthwiseConv1D": _CONV, "DepthwiseConv2D": _CONV, "TFDepthwiseConv": _DEPTHWISE,
    "SeparableConv1D": _SEPARABLE, "SeparableConv2D": _SEPARABLE,
    "LocallyConnected1D": _CONV, "LocallyConnected2D": _CONV,
    "BatchNormalization": (*_AFFINE, "moving_mean", "moving_variance", "moving_stddev?renorm",
                           "renorm_mean?renorm", "renorm_stddev?renorm"),
    "SyncBatchNormalization": (*_AFFINE, "moving_mean", "moving_variance"),
    "LayerNormalization": _AFFINE,
    "GroupNormalization": _AFFINE,
    "RMSNormalization": ("scale",),
    "SpectralNormalization": ("", "vector_u"),  # the first is the wrapped layer's own kernel
    "Normalization": ("mean", "variance", "count"),
    "PReLU": ("alpha",),
    "LSTMCell": _CELL, "GRUCell": _CELL, "SimpleRNNCell": _CELL,
    "ConvLSTMCell": _CELL, "ConvLSTM1DCell": _CELL, "ConvLSTM2DCell": _CELL,
    "ConvLSTM3DCell": _CELL,
    "Attention": ("scale?use_scale", "concat_score_weight?score_mode:concat"),
    "AdditiveAttention": ("scale?use_scale=1",),
    "RandomFourierFeatures": ("kernel_scale", "unscaled_kernel", "bias"),
    "STFTSpectrogram": ("real_kernel?!mode:imag", "imag_kernel?!mode:real"),
}
# Class -> quantisation -> what follows the plain variables (variable_serialization_spec of each).
_PACKED = ("bias", "quantized_kernel", "kernel_scale", "kernel_zero", "g_idx")
_AWQ = (*_PACKED[:4], "awq_scales", "g_idx")
_FLOAT8 = ("inputs_scale", "inputs_amax_history", "kernel_scale", "kernel_amax_history",
           "outputs_grad_scale", "outputs_grad_amax_history")
QUANTIZED: dict[str, dict[str, tuple[str, ...]]] = {
    "Dense": {"int8": ("kernel_scale",), "int4": ("kernel_scale", "kernel_zero", "g_idx"),
              "float8": _FLOAT8},
    "Embedding": {"int8": ("embeddings_scale",),
                  "int4": ("embeddings_scale", "embeddings_zero", "g_idx")},
}
QUANTIZED["EinsumDense"] = QUANTIZED["Dense"]
# Class -> attributes that lead to layers which Keras itself names.
ATTENTION = {
    "query_dense": "query", "key_dense": "key", "value_dense": "value",
    "output_dense": "attention_output", "gate_dense": "gate",
}
CELLS = {
    "LSTM": "LSTMCell", "GRU": "GRUCell", "SimpleRNN": "SimpleRNNCell",
    "ConvLSTM1D": "ConvLSTMCell", "ConvLSTM2D": "ConvLSTMCell", "ConvLSTM3D": "ConvLSTMCell",
    "CuDNNLSTM": "", "CuDNNGRU": "",
}
# Classes whose variables tf.keras calls otherwise.
TF_KERAS = {"DepthwiseConv1D": "TFDepthwiseConv", "DepthwiseConv2D": "TFDepthwiseConv"}
# Classes that configs call by another name than Keras's own code does.
ALIASES = {"GroupQueryAttention": "GroupedQueryAttention"}
WRAPPERS = {"TimeDistributed", "SpectralNormalization", "Wrapper"}
# fmt: on


@dataclass(frozen=True, slots=True)
class Object:
    """What the config says about the object at one path of the store.

    Attributes:
        name: Its own name; "" for one that adds nothing to its variables' names; None where the
            config does not say.
        class_name: Its class, where that is one of Keras's own; else "".
        config: Its configuration.
    """

    name: str | None
    class_name: str
    config: Config = field(repr=False)


def objects(config: JSON, paths: Sequence[str], *, tf_keras: bool = False) -> dict[str, Object]:
    """Return the objects that a model's config describes, by their path in the store.

    Args:
        config: The serialised model: ``class_name``, ``module``, ``config``, ….
        paths: Paths in the store that have variables.
        tf_keras: Whether tf.keras wrote it, which names some things otherwise than Keras 3.
    """
    stored = set(paths)
    for path in paths:
        parts = path.split("/")
        stored.update("/".join(parts[:n]) for n in range(1, len(parts)))
    found: dict[str, Object] = {}
    todo: list[tuple[str, JSON, str | None]] = [("", config, None)]
    while todo:
        path, node, name = todo.pop()
        described = _describe(node, name)
        if described is None or path in found or (path and path not in stored):
            continue
        if tf_keras:
            described = replace(
                described, class_name=TF_KERAS.get(described.class_name, described.class_name)
            )
        found[path] = described
        children = _children(path, described, stored)
        todo.extend(reversed([_as_tf_keras(*c) if tf_keras else c for c in children]))
    return found


def _as_tf_keras(path: str, node: JSON, name: str | None) -> tuple[str, JSON, str | None]:
    """Return a child under the name that tf.keras gives it; "" where it has no scope."""
    attribute = path.rpartition("/")[2]
    if attribute == "layer" or name == "conv_lstm_cell":
        return path, node, ""
    if attribute == "backward_layer" and name is None and _name(node):
        return path, node, f"backward_{_name(node).removeprefix('backward_')}"
    return path, node, name


def _describe(node: JSON, name: str | None) -> Object | None:
    if not isinstance(node, dict) or not isinstance(node.get("class_name"), str):
        return None
    config = node.get("config")
    config = config if isinstance(config, dict) else {}
    module, registered = node.get("module"), node.get("registered_name")
    # tf.keras 2.12 names no modules; what it calls Dense is Keras's own unless it says otherwise.
    own = (
        module.split(".")[0] in ("keras", "tf_keras")
        if isinstance(module, str)
        else ("module" not in node and ">" not in str(node["class_name"]))
    )
    if name is None and isinstance(config.get("name"), str):
        name = str(config["name"])
    ours = own and (registered is None or ">" not in str(registered))
    return Object(name, str(node["class_name"]) if ours else "", config)


def _children(
    path: str, parent: Object, stored: set[str]
) -> Iterator[tuple[str, JSON, str | None]]:
    """Yield path, serialised form and fixed name of the objects that ``parent`` holds."""
    base, config, kind = f"{path}/" if path else "", parent.config, parent.class_name
    layers = config.get("layers")
    if isinstance(layers, list):
        for attribute in LAYER_LISTS:
            yield from _members(f"{base}{attribute}", layers, stored)
    if kind == "Bidirectional":
        inner = config.get("layer")
        name = _name(inner).removeprefix("forward_")
        yield f"{base}forward_layer", inner, f"forward_{name}" if name else None
        back = config.get("backward_layer")
        fixed = None if back or not name else f"backward_{name}"
        yield f"{base}backward_layer", back or inner, fixed
    elif kind in WRAPPERS:
        yield f"{base}layer", config.get("layer"), None
    elif kind == "RNN":
        yield f"{base}cell", config.get("cell"), None
    elif kind == "StackedRNNCells":
        cells = config.get("cells")
        yield from _members(f"{base}cells", cells if isinstance(cells, list) else [], stored)
    elif kind in CELLS:
        cell: JSON = {"class_name": CELLS[kind], "module": "keras.layers", "config": dict(config)}
        yield f"{base}cell", cell, snake_case(CELLS[kind])
    elif kind in ("MultiHeadAttention", "GroupQueryAttention"):
        bias: JSON = "a" if config.get("use_bias", True) else None
        part: dict[str, JSON] = {"bias_axes": bias, "dtype": config.get("dtype")}
        for attribute, name in ATTENTION.items():
            dense: JSON = {"class_name": "EinsumDense", "module": "keras.layers", "config": part}
            yield f"{base}{attribute}", dense, name
            yield f"{base}_{attribute}", dense, name  # tf.keras has no public attribute


def _members(
    path: str, members: Sequence[JSON], stored: set[str]
) -> Iterator[tuple[str, JSON, str | None]]:
    """Yield the members of a list, which Keras names by class and number."""
    used: dict[str, int] = {}
    for member in members:
        if not isinstance(member, dict) or not isinstance(member.get("class_name"), str):
            continue
        module = member.get("module")
        if isinstance(module, str) and ".ops." in module:
            continue  # an operation in the graph; model.layers does not list it
        kind = str(member["class_name"])
        # A model built by the functional API is of class Functional, whatever wrote the config.
        if kind == "Model" and isinstance(module, str) and module.startswith("keras"):
            kind = "Functional"
        if isinstance(module, str) and module.startswith("keras"):
            kind = ALIASES.get(kind, kind)
        base = snake_case(kind)
        number = used.get(base, 0)
        name = f"{base}_{number}" if number else base
        twice = path.endswith(LAYER_LISTS[1]) and f"{path}/{name}" in stored
        used[base] = number + (2 if twice else 1)
        yield f"{path}/{name}", member, None


def _name(node: JSON) -> str:
    config = node.get("config") if isinstance(node, dict) else None
    name = config.get("name") if isinstance(config, dict) else None
    return name if isinstance(name, str) else ""


def safe(name: str) -> str:
    """Return a layer's name without slashes, which today's Keras has no use for in names."""
    return name.replace("/", "_")


def snake_case(name: str) -> str:
    """Return Keras's spelling of a class name in paths (keras/src/utils/naming.py)."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def variables(described: Object | None, count: int) -> tuple[str, ...]:
    """Return the names of an object's variables in stored order; none where they are not certain.

    Args:
        described: The object.
        count: How many variables are stored for it.
    """
    if described is None:
        return ()
    kind, config = described.class_name, described.config
    plain = [n for n in (_present(row, config) for row in VARIABLES.get(kind, ())) if n is not None]
    if kind == "LayerNormalization" and config.get("rms_scaling"):
        plain = ["gamma"]  # whatever else the config says
    mode = quantization(config.get("dtype"))
    if mode in ("gptq", "awq") and kind in ("Dense", "EinsumDense"):
        rows = _AWQ if mode == "awq" else _PACKED
        names = tuple(n for n in rows if n != "bias" or "bias" in plain)
    else:
        # Older versions of int4 had a scale and nothing else.
        extra = QUANTIZED.get(kind, {}).get(mode, ()) if mode else ()
        if mode == "int4" and count == len(plain) + 1:
            extra = extra[:1]
        names = (*plain, *extra)
        if kind == "ReversibleEmbedding":
            names = _reversible(plain, mode, count)
    return names if len(names) == count else ()


def _reversible(plain: list[str], mode: str, count: int) -> tuple[str, ...]:
    rows = QUANTIZED["Embedding"].get(mode, ()) if mode else ()
    if mode == "int4" and count == 2 * len(plain):  # by channel: each half has a scale alone
        rows = rows[:1]
    tail: tuple[str, ...] = ()
    if len(plain) > 1:
        # Each half has a scale, and in int4 by blocks a zero too.
        zero = "embeddings_zero" in rows
        tail = ("reverse_embeddings", "reverse_embeddings_scale", "reverse_embeddings_zero")
        tail = tail[: 1 if not mode else 3 if zero else 2]
    names = (plain[0], *rows, *tail)
    return names if len(names) == count else ()


def _present(row: str, config: Config) -> str | None:
    """Return the name in a row of the table, or None where the config leaves the variable out."""
    name, _, condition = row.partition("?")
    if not condition:
        return name
    key, _, default = condition.removeprefix("!").partition("=")
    if ":" in key:
        key, _, value = key.partition(":")
        present = config.get(key) == value
    else:
        present = bool(config.get(key, bool(default)))
    return name if present != condition.startswith("!") else None


def quantization(policy: JSON) -> str:
    """Return the mode of a quantised dtype policy: ``int8``, ``int4``, ``float8``, …, or ""."""
    if isinstance(policy, dict):
        inner = policy.get("config")
        mode = inner.get("mode") if isinstance(inner, dict) else None
        return mode.split("/")[0] if isinstance(mode, str) else ""
    if isinstance(policy, str) and "_from_" in policy:  # "int8_from_float32"
        return policy.split("_from_")[0].split("/")[0]
    return ""


def candidates(
    path: str, variable: str, known: Mapping[str, Object], recorded: Mapping[str, str]
) -> list[str]:
    """Return the names that a variable may take, best first.

    Args:
        path: Of its object in the store; "" for the model itself.
        variable: Its own name, or its number.
        known: The objects that the config describes.
        recorded: Names that the store itself gives, by path.
    """
    parts = path.split("/") if path else []
    labels: list[str] = []
    pending: list[str] = []  # components that no name stands for yet
    boundary = 0  # how many labels stand for models
    for n in range(1, len(parts) + 1):
        pending.append(parts[n - 1])
        prefix = "/".join(parts[:n])
        described = known.get(prefix)
        name = recorded.get(prefix) or (described.name if described else None)
        if name is None:
            continue
        # What has no name on the way to something that has one is a list; Keras skips it too.
        if pending[-2:-1] and pending[-2] in LAYER_LISTS:
            boundary = len(labels)
        if name:
            labels.append(name)
        pending = []
    whole = "/".join([*parts, variable])
    if not labels:
        root = recorded.get("") or (known[""].name if "" in known else None)
        return [whole] if parts or not root else [f"{root}/{variable}", whole]
    names = [*labels, *pending, variable]
    return ["/".join(names[boundary:]), "/".join(names), whole]
