"""``config.json`` and ``adapter_config.json``: which model the weights in a folder are, or change.

Spec: https://huggingface.co/docs/transformers/main_classes/configuration and
https://huggingface.co/docs/peft/developer_guides/checkpoint
"""

from collections.abc import Collection
from pathlib import PurePosixPath

from formats.artifact import Artifact
from formats.containers.jsontext import parse
from formats.core.bundle import JSON, Topology
from formats.core.storage import Span

CONFIG, ADAPTER_CONFIG = "config.json", "adapter_config.json"
# Kinds of topologies: the library whose model the configuration is of, and an adapter.
KIND, TIMM, DIFFUSERS, ADAPTER = "hf_config", "timm_config", "diffusers_config", "peft_adapter"
KINDS = (KIND, TIMM, DIFFUSERS)
ASSETS = frozenset((".json", ".txt", ".model", ".yaml", ".jinja", ".md"))  # suffixes
QUANTIZATION = ("quantization_config", "compression_config")  # entries of a configuration
# Files beside it that older libraries wrote -> the method.
QUANTIZATION_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
# What a summary says of it -> the entries that have it.
DETAILS = {
    "bits": ("bits", "w_bit"), "groups": ("group_size", "q_group_size"), "format": ("format",),
    "type": ("bnb_4bit_quant_type", "quant_type"),
}  # fmt: skip
# Name of the file -> kind of the topology, and the entries that its summary has.
FILES = {
    ADAPTER_CONFIG: (ADAPTER, ("peft_type", "base_model_name_or_path", "r", "lora_alpha")),
    CONFIG: (
        KIND,
        (
            "architectures",
            "architecture",
            "model_type",
            "_class_name",
            "torch_dtype",
            "transformers_version",
        ),
    ),
}


def read_topology(artifact: Artifact) -> Topology | None:
    """Return the configuration in a folder of weights, an adapter's first; None if there is none.

    Raises:
        CorruptError: It is no JSON.
        LimitError: It is too long.
    """
    for name, (kind, keys) in FILES.items():
        if name in artifact.names:
            config = _read_json(artifact, name)
            summary = _summarize(config, keys)
            if kind == KIND and (settings := _find_settings(artifact, config)):
                summary["quantization"] = _describe(settings)
                config = _with_settings(config, settings)
            return Topology(_find_kind(config) if kind == KIND else kind, summary, config)
    return None


def _find_kind(config: JSON) -> str:
    """Return the kind of a configuration: diffusers names a class, timm an architecture."""
    if not isinstance(config, dict) or "model_type" in config:
        return KIND
    return DIFFUSERS if "_class_name" in config else TIMM if "architecture" in config else KIND


def _read_json(artifact: Artifact, name: str) -> JSON:
    text = Span.whole(artifact.member(name))
    return parse(text.read(), where=text.name, limit=artifact.limits.max_header_bytes)


def _with_settings(config: JSON, settings: dict[str, JSON]) -> JSON:
    """Return a configuration that says how the weights are quantised."""
    if not isinstance(config, dict) or find_quantization(config) is not None:
        return config
    return {**config, QUANTIZATION[0]: settings}


def _find_settings(artifact: Artifact, config: JSON) -> dict[str, JSON] | None:
    """Return how the weights are quantised: by the configuration, or a file of older libraries."""
    found = find_quantization(config)
    for name, method in QUANTIZATION_FILES.items():
        if found is None and name in artifact.names:
            scheme = _read_json(artifact, name)
            found = {"quant_method": method, **scheme} if isinstance(scheme, dict) else None
    return found


def find_quantization(config: object) -> dict[str, JSON] | None:
    """Return how a model's weights are quantised, as its configuration has it; None: they are not.

    ``quant_method`` is always there: configurations of old versions say it by other entries.
    """
    if not isinstance(config, dict):
        return None
    inner = config.get("text_config")
    for place in (config, inner if isinstance(inner, dict) else {}):
        for key in QUANTIZATION:
            found = place.get(key)
            if isinstance(found, dict) and found:
                return {"quant_method": _guess_method(key, found), **found}
    return None


def _guess_method(key: str, settings: dict[str, JSON]) -> str:
    """Return the method of settings that do not name it."""
    if key == "compression_config" or "config_groups" in settings:
        return "compressed-tensors"
    is_of_blocks = any(k.startswith(("load_in_", "bnb_", "llm_int8")) for k in settings)
    return "bitsandbytes" if is_of_blocks else "unknown"


def without_quantization(config: dict[str, JSON]) -> dict[str, JSON]:
    """Return a configuration that tells of no quantisation."""
    kept = {k: v for k, v in config.items() if k not in QUANTIZATION}
    text = kept.get("text_config")
    if isinstance(text, dict):
        kept["text_config"] = {k: v for k, v in text.items() if k not in QUANTIZATION}
    return kept


def _describe(settings: dict[str, JSON]) -> str:
    """Return a method with the bits and the sizes of groups, as far as the settings have them."""
    named = {name: next((settings[k] for k in keys if settings.get(k)), None)
            for name, keys in DETAILS.items()}  # fmt: skip
    words = [f"{name} {value}" for name, value in named.items() if value is not None]
    return ", ".join([str(settings["quant_method"]), *words])


def read_assets(artifact: Artifact, weights: Collection[str]) -> dict[str, Span]:
    """Return a folder's files of configuration and vocabularies, without its weights and code.

    Args:
        artifact: The folder; an index alone says nothing of what else lies beside it.
        weights: Names of its files of weights, and of their index.
    """
    kept = {}
    for name in artifact.names:
        is_index = name.endswith(".index.json")
        if name in weights or is_index or PurePosixPath(name).suffix not in ASSETS:
            continue
        if (artifact.path / name).is_file():
            kept[name] = Span.whole(artifact.member(name))
    return kept


def _summarize(config: JSON, keys: tuple[str, ...]) -> dict[str, JSON]:
    return {k: config[k] for k in keys if k in config} if isinstance(config, dict) else {}
