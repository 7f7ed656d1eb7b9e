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
KIND, ADAPTER = "hf_config", "peft_adapter"  # of topologies
ASSETS = frozenset((".json", ".txt", ".model", ".yaml", ".jinja", ".md"))  # suffixes
# Name of the file -> kind of the topology, and the entries that its summary has.
FILES = {
    ADAPTER_CONFIG: (ADAPTER, ("peft_type", "base_model_name_or_path", "r", "lora_alpha")),
    CONFIG: (
        KIND,
        ("architectures", "model_type", "_class_name", "torch_dtype", "transformers_version"),
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
            text = Span.whole(artifact.member(name))
            config = parse(text.read(), where=text.name, limit=artifact.limits.max_header_bytes)
            return Topology(kind, _summarize(config, keys), config)
    return None


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
