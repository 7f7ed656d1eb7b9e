"""Merge a LoRA adapter of PEFT's into the weights of its base model.

A merged weight is ``W + scaling * B @ A``, and with DoRA each of its rows has a learned length. The
sum is computed in float64 and rounded once to the dtype of the weight: it differs from PEFT's by
the rounding of PEFT's product in float32. Each weight is merged when it is written.
Spec: https://github.com/huggingface/peft/blob/v0.21.2/src/peft/tuners/lora/layer.py
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import TYPE_CHECKING, Any, TypeAlias

from formats import hugging_face
from formats.core.bundle import JSON, Bundle, Normalisation
from formats.core.plurals import count
from formats.core.weights import Tensor
from formats.errors import CorruptError, UnsupportedError, UsageError

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"

WRAPPERS = re.compile(r"^base_model\.model\.")
INSIDE = re.compile(r"\.(base_layer|modules_to_save\.default|original_module)(?=\.)")
PART = re.compile(
    r"(?P<module>.+)\.(?P<part>lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)"
    r"(?:\.default)?(?P<bias>\.bias)?(?:\.weight)?"
)
# Initialisations that change the base itself, which then is not the one that was published.
CHANGING = ("pissa", "olora", "corda", "loftq", "lora_ga")
# Settings of other ways to compute, with the values that mean they are not used.
UNUSED: Mapping[str, tuple[JSON, ...]] = {
    "target_parameters": (None, []), "layer_replication": (None,), "use_qalora": (None, False),
    "trainable_token_indices": (None,), "alora_invocation_tokens": (None,), "arrow_config": (None,),
    "monteclora_config": (None,), "use_bdlora": (None, False), "megatron_config": (None,),
}  # fmt: skip


@dataclass(slots=True)
class LoraLayer:
    """The tensors of an adapter for one module.

    Attributes:
        parts: Tensors by ``lora_A``, ``lora_B``, ….
        bias: Bias of ``lora_B``.
    """

    parts: dict[str, Tensor] = field(default_factory=dict)
    bias: Tensor | None = None


def merge_adapter(adapter: Bundle, base: Bundle) -> Bundle:
    """Return the base with an adapter merged, under the base's own names.

    Args:
        adapter: A folder with ``adapter_config.json``.
        base: The model that it was trained on.

    Raises:
        UsageError: ``adapter`` is no adapter.
        UnsupportedError: It is no LoRA adapter, or of a kind that is not merged.
        CorruptError: Its tensors are incomplete, or do not fit the base's.
    """
    topology = adapter.topology
    if topology is None or topology.kind != hugging_face.ADAPTER:
        raise UsageError(
            "merge_adapter= merges an adapter, and the source is none",
            expected="a folder with adapter_config.json",
        )
    config = topology.content if isinstance(topology.content, dict) else {}
    _check(config)
    layers, others = _group(adapter.weights)
    weights = dict(base.weights)
    for module, layer in layers.items():
        name = _find(base, f"{module}.weight")
        weights[name] = _merged(module, layer, weights[name], config)
        if layer.bias is not None:
            bias = _find(base, f"{module}.bias")
            weights[bias] = _sum(weights[bias], layer.bias, _scaling(module, layer, config))
    for name, tensor in others.items():  # biases and whole modules that were trained
        weights[_find(base, name, is_new=True)] = tensor
    detail = f"{count('layer', len(layers))} and {count('whole tensor', len(others))}"
    change = Normalisation("tensors merged with a LoRA adapter", len(layers) + len(others), detail)
    metadata = replace(base.metadata, normalisations=(*base.metadata.normalisations, change))
    is_folder = base.topology is not None and base.topology.kind in hugging_face.KINDS
    topology = base.topology if is_folder else None
    return replace(base, weights=weights, metadata=metadata, topology=topology)


def _check(config: Mapping[str, JSON]) -> None:
    """Raise UnsupportedError where a configuration asks for more than LoRA's and DoRA's formula."""
    kind = config.get("peft_type")
    if kind != "LORA":
        raise UnsupportedError(f"adapters of kind {kind}", hint="LoRA and DoRA are merged")
    first = config.get("init_lora_weights")
    if isinstance(first, str) and first.lower().startswith(CHANGING):
        raise UnsupportedError(
            f"an adapter of weights that {first} has changed",
            hint="PEFT converts it to plain LoRA: path_initial_model_for_weight_conversion",
        )
    for name, values in UNUSED.items():
        if config.get(name) not in values:
            raise UnsupportedError(f"an adapter with {name} = {config[name]!r:.60}")


def _group(weights: Mapping[str, Tensor]) -> tuple[dict[str, LoraLayer], dict[str, Tensor]]:
    """Return the layers by the path of their module, and all other tensors by name."""
    layers: dict[str, LoraLayer] = {}
    others: dict[str, Tensor] = {}
    for full, tensor in weights.items():
        name = INSIDE.sub("", WRAPPERS.sub("", full))
        match = PART.fullmatch(name)
        if match is None:
            others[name] = tensor
        elif match["bias"]:
            layers.setdefault(match["module"], LoraLayer()).bias = tensor
        else:
            layers.setdefault(match["module"], LoraLayer()).parts[match["part"]] = tensor
    return layers, others


def _find(base: Bundle, name: str, *, is_new: bool = False) -> str:
    """Return the base's name of a tensor: one of them may have a prefix that the other lacks.

    Raises:
        CorruptError: There is none, or several.
    """
    if name in base.weights:
        return name
    tail = name.partition(".")[2]
    found = [n for n in base.weights if n == tail or n.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    if is_new and not found:
        return name
    what = count("tensor", len(found)) if found else "no tensor"
    raise CorruptError(
        f"the base has {what} for {name!r} of the adapter", hint="Is it the base of this adapter?"
    )


def _scaling(module: str, layer: LoraLayer, config: Mapping[str, JSON]) -> float:
    """Return ``alpha / rank``, or ``alpha / sqrt(rank)`` of rank-stabilized LoRA."""
    rank = next(t.shape[0] for p, t in layer.parts.items() if p.endswith("_A"))
    alpha = config.get("lora_alpha", 8)
    patterns = config.get("alpha_pattern")
    for pattern, value in patterns.items() if isinstance(patterns, dict) else ():
        if re.fullmatch(rf"(.*\.)?({pattern})", module):
            alpha = value
            break
    if not isinstance(alpha, int | float) or not rank:
        raise CorruptError(f"lora_alpha {alpha!r} with rank {rank}", where=module)
    return alpha / sqrt(rank) if config.get("use_rslora") else alpha / rank


def _merged(module: str, layer: LoraLayer, weight: Tensor, config: Mapping[str, JSON]) -> Tensor:
    """Return a merged weight, which is computed when it is read.

    Raises:
        CorruptError: A part is missing, or the shapes do not fit.
        UnsupportedError: The weight is not of a floating-point dtype.
    """
    is_embedding = "lora_embedding_A" in layer.parts
    names = ("lora_embedding_A", "lora_embedding_B") if is_embedding else ("lora_A", "lora_B")
    if not set(names) <= set(layer.parts):
        raise CorruptError(f"the adapter lacks {names[0]} or {names[1]}", where=module)
    a, b = (layer.parts[name] for name in names)
    magnitude = layer.parts.get("lora_magnitude_vector")
    if "float" not in weight.dtype.name:
        raise UnsupportedError(f"merging into a weight of {weight.dtype.name}", where=module)
    if is_embedding and magnitude is not None:
        raise UnsupportedError("DoRA of an embedding", where=module)
    rows, columns = b.shape[0], a.shape[1:]
    made = (rows, *columns)
    is_transposed = len(made) == 2 and (is_embedding or bool(config.get("fan_in_fan_out")))
    if b.shape[1] != a.shape[0] or (made[::-1] if is_transposed else made) != weight.shape:
        raise CorruptError(
            f"lora_B {list(b.shape)} times lora_A {list(a.shape)} does not fit the base's "
            f"{list(weight.shape)}", where=module,
        )  # fmt: skip
    scaling = _scaling(module, layer, config)

    def pieces() -> Iterator[bytes]:
        import numpy as np

        first, second, whole = (np.asarray(t.numpy(), np.float64) for t in (a, b, weight))
        change = second.reshape(rows, -1) @ first.reshape(len(first), -1) * scaling
        change = change.T if is_transposed else change.reshape(made)
        merged = whole + change
        if magnitude is not None:
            merged = _with_lengths(merged, magnitude.numpy(), is_transposed=is_transposed)
        yield np.ascontiguousarray(merged.astype(weight.numpy().dtype)).tobytes()

    return Tensor.computed(weight.dtype, weight.shape, pieces, origin=weight.origin)


def _with_lengths(merged: Array, lengths: Array, *, is_transposed: bool) -> Array:
    """Return a weight whose rows, one for each output, have these lengths (DoRA)."""
    import numpy as np

    rows = merged.T if is_transposed else merged
    flat = rows.reshape(len(rows), -1)
    factor = np.asarray(lengths, np.float64).reshape(-1) / np.linalg.norm(flat, axis=1)
    scaled: Array = (flat * factor[:, None]).reshape(rows.shape)
    return scaled.T if is_transposed else scaled


def _sum(tensor: Tensor, other: Tensor, factor: float) -> Tensor:
    """Return ``tensor + factor * other``, which is computed when it is read."""

    def pieces() -> Iterator[bytes]:
        import numpy as np

        one, two = (np.asarray(t.numpy(), np.float64) for t in (tensor, other))
        yield (one + factor * two).astype(tensor.numpy().dtype).tobytes()

    return Tensor.computed(tensor.dtype, tensor.shape, pieces, origin=tensor.origin)
