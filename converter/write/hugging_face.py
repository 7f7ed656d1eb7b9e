"""A folder that Hugging Face's libraries load: safetensors, and the files beside them unchanged."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from converter.options import Options
from converter.write import weight_files
from converter.write.assets import write_assets
from converter.write.plan import Plan, Writing
from formats import hugging_face
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.core.storage import Blocks
from formats.errors import UnsupportedError, UsageError
from formats.safetensors_writer import ShardLayout, plan_shards

if TYPE_CHECKING:
    from converter.lower.graph import Graph

# Configuration -> name of the files of weights beside it, without suffix and shard number.
STEMS = {hugging_face.ADAPTER_CONFIG: "adapter_model", hugging_face.CONFIG: "model"}


class HuggingFaceFolder(Plan):
    """A folder that can be written.

    Attributes:
        bundle: As it will be.
        layout: Which tensors go into which file.
    """

    def __init__(self, bundle: Bundle, layout: ShardLayout) -> None:
        self.bundle, self.warnings, self.layout = bundle, (), layout
        self.folder_reason = "the configuration stands beside the weights, so it is a folder"

    def summary(self) -> str:
        """Return how many files of weights there are, how large, and how many stand beside them."""
        return f"{weight_files.summary(self.layout)}, {len(self.bundle.assets)} beside them"

    def write(self, payload: Path, *, verify: bool, sync: bool) -> Writing:
        """Write the weights, and the files beside them."""
        report = yield from weight_files.write(
            self.bundle, self.layout, payload, Blocks(), None, verify=verify, sync=sync
        )
        write_assets(self.bundle, payload, sync=sync)
        return payload, report


def plan(
    bundle: Bundle, graphs: "Sequence[Graph]", artifact: Artifact, options: Options
) -> HuggingFaceFolder:
    """Decide in which files the weights go.

    Raises:
        UsageError: The source is no folder of Hugging Face's.
        UnsupportedError: It holds no tensors.
    """
    del graphs  # there are none for this target
    stem = next((stem for name, stem in STEMS.items() if name in bundle.assets), None)
    if stem is None:
        raise UsageError(
            "to='hf' needs the configuration of the model",
            where=artifact.path,
            expected="a folder with config.json or adapter_config.json",
        )
    if not bundle.weights:
        raise UnsupportedError("holds no tensors", where=artifact.path)
    layout = plan_shards(
        bundle.weights, bundle.encodings, stem=stem, max_shard_bytes=options.shard_bytes,
        metadata=_recorded(bundle),
    )  # fmt: skip
    return HuggingFaceFolder(bundle, layout)


def _recorded(bundle: Bundle) -> dict[str, str]:
    """Return what safetensors files recorded of themselves; torchao describes its tensors there."""
    if bundle.metadata.format != "safetensors":
        return {}
    return {k: v for k, v in bundle.metadata.user.items() if isinstance(v, str)}


@contextmanager
def changed_folder(bundle: Bundle, artifact: Artifact) -> Iterator[Artifact]:
    """Give what transformers loads in place of a source whose weights were merged or made floats.

    It lies in a temporary folder. A source of another kind stays what it is.
    """
    if bundle.topology is None or bundle.topology.kind != hugging_face.KIND:
        yield artifact
        return
    with tempfile.TemporaryDirectory(prefix="convert-") as folder:
        payload = Path(folder)
        for _ in plan(bundle, (), artifact, Options()).write(payload, verify=False, sync=False):
            pass
        yield Artifact(payload, artifact.limits)
