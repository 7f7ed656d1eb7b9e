"""A folder that Hugging Face's libraries load: safetensors, and the files beside them unchanged."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from converter.filesystem.temporary_copies import name_source_in_errors
from converter.options import Options
from converter.write import weight_files
from converter.write.assets import write_assets
from converter.write.plan import Plan, Writing
from converter.write.readback import WeightsReport
from formats import components, hugging_face
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.core.storage import Blocks
from formats.errors import UnsupportedError, UsageError
from formats.safetensors_writer import ShardLayout, plan_shards

if TYPE_CHECKING:
    from converter.lower.graph import Graph

# Configuration -> name of the files of weights beside it, without suffix and shard number.
STEMS = {hugging_face.ADAPTER_CONFIG: "adapter_model", hugging_face.CONFIG: "model"}
DIFFUSION = "diffusion_pytorch_model"  # that name in folders of diffusers' models


class Part(NamedTuple):
    """A folder of the output with weights: its path, its tensors, and which file has which."""

    folder: str
    bundle: Bundle
    layout: ShardLayout


class HuggingFaceFolder(Plan):
    """A folder that can be written.

    Attributes:
        bundle: As it will be.
        parts: The weights: of one folder, or of each component of a pipeline.
    """

    def __init__(self, bundle: Bundle, parts: Sequence[Part]) -> None:
        self.bundle, self.warnings, self.parts = bundle, (), parts
        self.folder_reason = "the configuration is beside the weights, so it is a folder"

    def summary(self) -> str:
        """Return how many files of weights there are, how large, and how many are beside them."""
        sizes = "; ".join(
            f"{part.folder}: {weight_files.summary(part.layout)}".removeprefix(": ")
            for part in self.parts
        )
        return f"{sizes}, {len(self.bundle.assets)} beside them"

    def write(self, payload: Path, *, verify: bool, sync: bool) -> Writing:
        """Write the weights, and the files beside them."""
        reports = []
        for folder, bundle, layout in self.parts:
            home = payload / folder
            home.mkdir(parents=True, exist_ok=True)
            report = yield from weight_files.write(
                bundle, layout, home, Blocks(), None, verify=verify, sync=sync
            )
            reports.append(report)
        write_assets(self.bundle, payload, sync=sync)
        found = [report for report in reports if report is not None]
        if not found:
            return payload, None
        tensors, nbytes = sum(r.tensors for r in found), sum(r.nbytes for r in found)
        return payload, WeightsReport(tensors, nbytes, {}, {})


def plan(
    bundle: Bundle, graphs: "Sequence[Graph]", artifact: Artifact, options: Options
) -> HuggingFaceFolder:
    """Decide in which files the weights go.

    Raises:
        UsageError: The source is no folder of Hugging Face's.
        UnsupportedError: It holds no tensors.
    """
    del graphs  # there are none for this target
    if not bundle.weights:
        raise UnsupportedError("holds no tensors", where=artifact.path)
    parts = []
    for folder, model in _split(bundle).items():
        stem = _find_stem(bundle, folder)
        if stem is None:
            raise UsageError(
                "to='hf' needs the configuration of the model",
                where=artifact.path / folder,
                expected="a folder with config.json or adapter_config.json",
            )
        layout = plan_shards(
            model.weights, model.encodings, stem=stem, max_shard_bytes=options.shard_bytes,
            metadata=_recorded(bundle),
        )  # fmt: skip
        parts.append(Part(folder, model, layout))
    return HuggingFaceFolder(bundle, parts)


def _split(bundle: Bundle) -> dict[str, Bundle]:
    """Return the model of each folder of the output, its tensors named as in its own files."""
    if bundle.metadata.format != components.FORMAT:
        return {"": bundle}
    found = {}
    for folder, names in components.split(bundle).items():
        front = f"{folder}/" if folder else ""
        weights = {name.removeprefix(front): bundle.weights[name] for name in names}
        found[folder] = replace(bundle, weights=weights, encodings={})
    return found


def _find_stem(bundle: Bundle, folder: str) -> str | None:
    """Return the name of a folder's files of weights, by its configuration; None: it has none."""
    front = f"{folder}/" if folder else ""
    topology = bundle.topology
    configs = {} if topology is None else components.configs_of(topology)
    kind = "" if topology is None else topology.kind
    if "_class_name" in configs.get(folder, {}) or kind == hugging_face.DIFFUSERS:
        return DIFFUSION
    return next((stem for name, stem in STEMS.items() if f"{front}{name}" in bundle.assets), None)


def _recorded(bundle: Bundle) -> dict[str, str]:
    """Return what safetensors files recorded of themselves; torchao describes its tensors there."""
    if bundle.metadata.format != "safetensors":
        return {}
    return {k: v for k, v in bundle.metadata.user.items() if isinstance(v, str)}


@contextmanager
def changed_folder(bundle: Bundle, artifact: Artifact) -> Iterator[Artifact]:
    """Give what transformers loads in place of a source whose weights were merged or made floats.

    It lies in a temporary folder, under the source's own name. A source of another kind stays what
    it is.
    """
    if bundle.topology is None or bundle.topology.kind not in hugging_face.KINDS:
        yield artifact
        return
    with tempfile.TemporaryDirectory(prefix="convert-") as folder:
        payload = Path(folder, artifact.name)
        payload.mkdir()
        for _ in plan(bundle, (), artifact, Options()).write(payload, verify=False, sync=False):
            pass
        with name_source_in_errors(payload, str(artifact.path)):
            yield Artifact(payload, artifact.limits)
