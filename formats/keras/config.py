"""Keras model configurations: topology, safety findings, replicas, inputs.

The configuration is JSON and stays in the source's own words; nothing in it is imported, decoded
or called. Keras 1 to 3 and tf.keras differ in its details and agree on ``class_name`` and
``config``, which is all that is needed here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from formats.containers import jsontext
from formats.core.bundle import JSON, SafetyFinding, Signature, TensorSpec, Topology
from formats.errors import LimitError
from formats.keras.layer_classes import LAYERS, REGISTERED
from formats.limits import MIB, Limits

MAX_BYTES = 16 * MIB  # real ones have up to a few; parsed, they take thirty times as much
UNKNOWN = "unknown"
MAX_NODES = 1_000_000  # objects and lists in one

MODELS = ("Sequential", "Functional", "Model", "Graph")


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found in a configuration."""

    topology: Topology
    findings: tuple[SafetyFinding, ...]
    distribution: Mapping[str, JSON]
    signatures: tuple[Signature, ...]


def parse(data: bytes | str, where: str, limits: Limits) -> JSON:
    """Return a configuration, parsed.

    Raises:
        CorruptError: It is no JSON.
        LimitError: It is too large.
    """
    return jsontext.parse(data, where=where, limit=min(MAX_BYTES, limits.max_header_bytes))


def read_config(config: JSON, where: str) -> Facts:
    """Look through a parsed configuration.

    Args:
        config: The model's ``class_name`` and ``config``.
        where: What findings call it.
    """
    classes: Counter[str] = Counter()
    findings: dict[SafetyFinding, None] = {}
    distribution: dict[str, JSON] = {}
    for node, owner in _objects(config):
        kind = str(node["class_name"])
        for finding in _findings(node, kind, owner, where):
            findings[finding] = None
        if _is_layer(node):
            classes[kind] += 1
        replicas = _replicas(node, kind)
        if replicas:
            distribution = {"strategy": "multi_gpu_model", "replicas": replicas}
    summary: dict[str, JSON] = {"layers": sum(classes.values()), "classes": dict(classes)}
    if isinstance(config, dict):
        summary["class_name"] = config.get("class_name")
        inner = config.get("config")
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            summary["name"] = inner["name"]
    topology = Topology("keras_config", summary, config)
    return Facts(topology, tuple(findings), distribution, _signatures(config))


def _objects(config: JSON) -> Iterator[tuple[dict[str, JSON], str]]:
    """Yield every object of the configuration, outer ones first, in order.

    With it goes the name of the innermost layer that it is, or is part of.
    """
    todo: list[tuple[JSON, str]] = [(config, "")]
    left = MAX_NODES
    while todo:
        node, owner = todo.pop()
        children: Iterable[JSON] = ()
        if isinstance(node, dict):
            if isinstance(node.get("class_name"), str):
                owner = _name(node) or owner
                yield node, owner
            children = reversed(node.values())
        elif isinstance(node, list):
            children = reversed(node)
        inner = [(child, owner) for child in children if child and isinstance(child, dict | list)]
        todo += inner
        left -= len(inner)
        if left < 0:
            raise LimitError(f"a configuration of more than {MAX_NODES} objects and lists")


def _name(node: Mapping[str, JSON]) -> str:
    config = node.get("config")
    for holder in (config, node):
        if isinstance(holder, dict) and isinstance(holder.get("name"), str):
            return str(holder["name"])
    return ""


def _is_layer(node: Mapping[str, JSON]) -> bool:
    """Return whether a node is a layer, not an initializer, policy or optimizer: layers are named.

    Models count as what they hold.
    """
    config = node.get("config")
    if node["class_name"] in MODELS or not isinstance(config, dict):
        return False
    module = node.get("module")
    named = any(k in config for k in ("trainable", "batch_input_shape", "batch_shape"))
    named = named or "inbound_nodes" in node
    if isinstance(module, str) and module.startswith("keras."):
        return module.startswith("keras.layers")
    return named and isinstance(config.get("name"), str)


def _findings(
    node: Mapping[str, JSON], kind: str, owner: str, where: str
) -> Iterator[SafetyFinding]:
    config = node.get("config")
    subject = f"layer {owner!r}" if owner else kind
    if kind == "__lambda__":  # Keras 3
        yield SafetyFinding("lambda-bytecode", subject, where)
    if kind == "Lambda" and isinstance(config, dict):
        for part in ("function", "output_shape", "mask"):
            code, how = config.get(part), config.get(f"{part}_type")
            # Keras 1 and 2: base64 of marshalled bytecode, defaults, closure.
            if how == "lambda" or (isinstance(code, list) and code and isinstance(code[0], str)):
                yield SafetyFinding("lambda-bytecode", subject, where)
            elif isinstance(code, str) and not code.replace(".", "").isidentifier():
                yield SafetyFinding("lambda-text", subject, where)
            elif how == "function" and isinstance(code, str):
                yield SafetyFinding("custom-object", f"function {code!r} of {subject}", where)
    module, registered = node.get("module"), node.get("registered_name")
    if isinstance(module, str) and module.startswith(("keras", "tf_keras")) and kind[:1].islower():
        yield SafetyFinding("keras-function", f"{module}.{kind}", where)
    if kind in REGISTERED or str(registered) in REGISTERED:
        return
    if isinstance(registered, str) and ">" in registered:
        yield SafetyFinding("custom-object", registered, where)
    elif ">" in kind:
        yield SafetyFinding("custom-object", kind, where)
    elif isinstance(module, str) and not _is_own(module):
        yield SafetyFinding("custom-object", f"{module}.{kind}", where)
    elif module is None and not kind.startswith("__") and _is_somebodys(node, kind):
        yield SafetyFinding("custom-object", kind, where)


def _is_somebodys(node: Mapping[str, JSON], kind: str) -> bool:
    """Tell a class of the model's author from Keras's own, where no module is named.

    Newer configs name the modules of Keras's classes and no other; old ones name none at all.
    """
    return "module" in node or (_is_layer(node) and kind not in LAYERS)


def _is_own(module: str) -> bool:
    return module.split(".")[0] in ("keras", "tf_keras", "builtins", "tensorflow", "numpy")


def _replicas(node: Mapping[str, JSON], kind: str) -> int:
    """Return the number of replicas that `multi_gpu_model` made, from its slicing Lambda layers."""
    config = node.get("config")
    if kind != "Lambda" or not isinstance(config, dict):
        return 0
    arguments = config.get("arguments")
    if not isinstance(arguments, dict) or set(arguments) != {"i", "parts"}:
        return 0
    parts = arguments["parts"]
    return parts if isinstance(parts, int) and 1 < parts < 1 << 16 else 0


def _signatures(config: JSON) -> tuple[Signature, ...]:
    """Return the inputs that the configuration declares; it says nothing of outputs' shapes."""
    inner = config.get("config") if isinstance(config, dict) else None
    layers = inner.get("layers") if isinstance(inner, dict) else inner
    if not isinstance(config, dict) or not isinstance(layers, list):
        return ()
    by_name: dict[str, Mapping[str, JSON]] = {}
    for layer in layers:
        if isinstance(layer, dict) and isinstance(layer.get("config"), dict):
            by_name.setdefault(_name(layer), layer)
    names = _tensor_layers(inner.get("input_layers")) if isinstance(inner, dict) else []
    if not names:
        names = list(by_name)[:1]  # Sequential
    inputs = tuple(_spec(name, by_name.get(name)) for name in names)
    outputs = _tensor_layers(inner.get("output_layers")) if isinstance(inner, dict) else []
    if any(spec.shape is None for spec in inputs):
        return ()
    found = [TensorSpec(n, _dtype(by_name.get(n)), None) for n in outputs or list(by_name)[-1:]]
    return (Signature(_name(config) or "model", inputs, tuple(found)),)


def _tensor_layers(entry: JSON) -> list[str]:
    """Return the layers that ``input_layers`` or ``output_layers`` names, in any age's nesting."""
    if isinstance(entry, dict):
        return [name for part in entry.values() for name in _tensor_layers(part)]
    if not isinstance(entry, list):
        return []
    if entry and isinstance(entry[0], str):
        return [entry[0]]
    return [name for part in entry if part is not entry for name in _one(part)]


def _one(entry: JSON) -> list[str]:
    if isinstance(entry, list) and entry and isinstance(entry[0], str):
        return [entry[0]]
    if isinstance(entry, list):
        return [str(e[0]) for e in entry if isinstance(e, list) and e and isinstance(e[0], str)]
    return []


def _spec(name: str, layer: Mapping[str, JSON] | None) -> TensorSpec:
    config = layer.get("config") if layer else None
    shape: tuple[int | str, ...] | None = None
    if isinstance(config, dict):
        sizes = config.get("batch_input_shape") or config.get("batch_shape")
        if isinstance(sizes, list) and all(n is None or isinstance(n, int) for n in sizes):
            shape = tuple(
                n if isinstance(n, int) else "batch" if i == 0 else f"{name}_{i}"
                for i, n in enumerate(sizes)
            )
    return TensorSpec(name, _dtype(layer, "input_dtype"), shape)


def _dtype(layer: Mapping[str, JSON] | None, key: str = "dtype") -> str:
    """Return the dtype that a layer's tensors have by its policy, or ``unknown``."""
    config = layer.get("config") if layer else None
    if not isinstance(config, dict):
        return UNKNOWN
    dtype = config.get(key) or config.get("dtype")
    if isinstance(dtype, dict):
        policy = dtype.get("config")
        policy = policy if isinstance(policy, dict) else {}
        dtype = policy.get("name") or policy.get("source_name")
    if not isinstance(dtype, str):
        return UNKNOWN
    # "mixed_float16" computes in float16, "int8_from_float32" in float32.
    return dtype.removeprefix("mixed_").rpartition("_from_")[2]
