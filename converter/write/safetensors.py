"""Weights alone: one safetensors file, or shards with an index."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from converter.graphs import leave_out_graph
from converter.options import Options
from converter.write import weight_files
from converter.write.plan import Plan, Writing
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.core.storage import Blocks
from formats.errors import UnsupportedError
from formats.safetensors_writer import ShardLayout, plan_shards

if TYPE_CHECKING:
    from converter.lower.graph import Graph


class SafetensorsFiles(Plan):
    """Files that can be written.

    Attributes:
        bundle: As it will be.
        layout: Which tensors go into which file.
        folder_reason: That the weights are cut into shards, where they are.
    """

    def __init__(self, bundle: Bundle, layout: ShardLayout) -> None:
        self.bundle, self.warnings, self.layout = bundle, (), layout
        if layout.index is not None:
            count = len(layout.shards)
            self.folder_reason = f"the weights need {count} shards, so the output is a folder"

    def summary(self) -> str:
        """Return how many files there are, and how large they are."""
        return weight_files.summary(self.layout)

    def write(self, payload: Path, *, verify: bool, sync: bool) -> Writing:
        """Write the file, or the shards and their index."""
        report = yield from weight_files.write(
            self.bundle, self.layout, payload, Blocks(), None, verify=verify, sync=sync
        )
        is_file = self.layout.index is None
        return payload / self.layout.shards[0].name if is_file else payload, report


def plan(
    bundle: Bundle, graphs: "Sequence[Graph]", artifact: Artifact, options: Options
) -> SafetensorsFiles:
    """Decide in which files the weights go.

    Raises:
        UnsupportedError: The source holds no tensors.
    """
    del graphs  # there are none for this target
    if not bundle.weights:
        raise UnsupportedError("holds no tensors", where=artifact.path)
    if bundle.topology is not None:
        bundle = leave_out_graph(bundle, "a safetensors file holds weights only")
    layout = plan_shards(bundle.weights, bundle.encodings, max_shard_bytes=options.shard_bytes)
    return SafetensorsFiles(bundle, layout)
