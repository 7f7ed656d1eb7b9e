"""What Megatron-Core's distributed checkpoints have beside their tensors.

``metadata.json`` names the form of the tensors: ``torch_dist`` keeps them as torch does (read by
`distributed`), ``zarr`` in arrays (read by `megatron_zarr`). ``common.pt`` is what every rank has.

Spec: https://github.com/NVIDIA/Megatron-LM/blob/core_v0.10.0/megatron/core/dist_checkpointing
"""

from formats.artifact import Artifact
from formats.containers import jsontext
from formats.core.bundle import JSON
from formats.core.storage import Span
from formats.errors import ConvertError, CorruptError
from formats.limits import MIB
from formats.torch.containers import Session, read_any
from formats.torch.walk import Tree

CONFIG, COMMON = "metadata.json", "common.pt"


def find_backend(artifact: Artifact) -> str | None:
    """Return the form of the tensors that ``metadata.json`` names; None where there is none."""
    if CONFIG not in artifact.names:
        return None
    try:
        config = read_json(artifact, CONFIG)
    except ConvertError:
        return None
    backend = config.get("sharded_backend") if isinstance(config, dict) else None
    return backend if isinstance(backend, str) else None


def read_json(artifact: Artifact, name: str) -> JSON:
    """Return the content of a small JSON file."""
    span = Span.whole(artifact.member(name))
    if span.length > MIB:
        raise CorruptError(f"JSON of {span.length} bytes", where=name)
    return jsontext.parse(span.read(), where=name, limit=MIB)


def add_common(artifact: Artifact, session: Session, tree: Tree) -> set[str]:
    """Add what all ranks have alike; return the names of the files that were read."""
    used = set()
    if COMMON in artifact.names:
        loaded = read_any(Span.whole(artifact.member(COMMON)), session, COMMON)
        tree.add(loaded.value, "", COMMON)
        used.add(COMMON)
    if CONFIG in artifact.names:
        tree.add(read_json(artifact, CONFIG), "dist_checkpointing", CONFIG)
        used.add(CONFIG)
    return used


def leave_out_extra_state(tree: Tree, name: str, value: object) -> None:
    """Name the state of a layer of Transformer Engine, where there is any."""
    if value is not None:
        tree.leave_out(name, "scaling factors of Transformer Engine")
