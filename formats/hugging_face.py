"""``config.json`` of a Hugging Face folder: which library's model the weights beside it are.

Spec: https://huggingface.co/docs/transformers/main_classes/configuration
"""

from formats.artifact import Artifact
from formats.containers.jsontext import parse
from formats.core.bundle import JSON, Topology
from formats.core.storage import Span

CONFIG = "config.json"
KIND = "hf_config"  # of a topology
KEYS = ("architectures", "model_type", "_class_name", "torch_dtype", "transformers_version")


def read_topology(artifact: Artifact) -> Topology | None:
    """Return the configuration in a folder of weights; None if there is none.

    Raises:
        CorruptError: It is no JSON.
        LimitError: It is too long.
    """
    if CONFIG not in artifact.names:
        return None
    text = Span.whole(artifact.member(CONFIG))
    config = parse(text.read(), where=text.name, limit=artifact.limits.max_header_bytes)
    return Topology(KIND, _summarize(config), config)


def _summarize(config: JSON) -> dict[str, JSON]:
    return {k: config[k] for k in KEYS if k in config} if isinstance(config, dict) else {}
