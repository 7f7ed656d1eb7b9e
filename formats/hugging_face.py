"""``config.json`` and ``adapter_config.json``: which model the weights in a folder are, or change.

Spec: https://huggingface.co/docs/transformers/main_classes/configuration and
https://huggingface.co/docs/peft/developer_guides/checkpoint
"""

from formats.artifact import Artifact
from formats.containers.jsontext import parse
from formats.core.bundle import JSON, Topology
from formats.core.storage import Span

CONFIG, ADAPTER_CONFIG = "config.json", "adapter_config.json"
KIND, ADAPTER = "hf_config", "peft_adapter"  # of topologies
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


def _summarize(config: JSON, keys: tuple[str, ...]) -> dict[str, JSON]:
    return {k: config[k] for k in keys if k in config} if isinstance(config, dict) else {}
