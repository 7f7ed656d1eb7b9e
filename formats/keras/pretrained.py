"""Hugging Face folders whose weights transformers 4 saved from TensorFlow: ``tf_model.h5``.

Spec: https://github.com/huggingface/transformers/blob/v4.57.6/src/transformers/modeling_tf_utils.py
"""

from dataclasses import replace

from formats import hugging_face
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.core.storage import Span
from formats.keras import h5

SINGLE, INDEX = "tf_model.h5", "tf_model.h5.index.json"


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is a folder with such weights."""
    name = next((n for n in (INDEX, SINGLE) if n in artifact.names), None)
    return None if name is None else f"a folder with {name}"


def read(artifact: Artifact) -> Bundle:
    """Read the weights, and the configuration beside them.

    Raises:
        CorruptError: A file is damaged, or the index and the shards do not fit.
        LimitError: It is over a limit.
        SafetyError: The index names a file elsewhere.
    """
    if INDEX in artifact.names:
        bundle = h5.read_shards(artifact, INDEX)
    else:
        bundle = h5.read_hdf5(Span.whole(artifact.member(SINGLE)), artifact.limits)
    shards = {name for name in artifact.names if name.endswith((".h5", ".h5.index.json"))}
    return replace(
        bundle,
        metadata=replace(bundle.metadata, format="hf-tensorflow"),
        topology=hugging_face.read_topology(artifact),
        assets=hugging_face.read_assets(artifact, shards),
    )
