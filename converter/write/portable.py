"""The portable bundle: a manifest, weights in safetensors, graphs that point into them, assets."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from converter.options import Options
from converter.write import weight_files
from converter.write.assets import write_assets
from converter.write.plan import Digests, GraphFile, Plan, Writing
from converter.write.readback import WeightsReport
from formats import portable
from formats.artifact import Artifact
from formats.core import digests
from formats.core.bundle import JSON, Bundle
from formats.core.storage import Blocks, File, Span
from formats.safetensors_writer import ShardLayout, plan_shards

if TYPE_CHECKING:
    from converter.lower.graph import Graph


class PortableBundle(Plan):
    """A bundle that can be written.

    Attributes:
        bundle: As it will be.
    """

    def __init__(
        self, bundle: Bundle, graphs: "Sequence[Graph]", artifact: Artifact, layout: ShardLayout
    ) -> None:
        self.bundle, self.warnings = bundle, ()
        self._graphs, self._artifact, self._layout = graphs, artifact, layout
        self._files: list[GraphFile] = []
        self._described: list[dict[str, JSON]] = []
        self._report: WeightsReport | None = None
        self._blocks = Blocks()
        self._sources = digests.FileDigests(artifact.opened, self._blocks)

    def summary(self) -> str:
        """Return how many files of weights there are, and how large they are."""
        return weight_files.summary(self._layout)

    def write(self, payload: Path, *, verify: bool, sync: bool) -> Writing:
        """Write weights, assets and graphs; the manifest follows with `record`."""
        self._report = yield from weight_files.write(
            self.bundle, self._layout, payload, self._blocks, self._sources,
            verify=verify, sync=sync,
        )  # fmt: skip
        write_assets(self.bundle, payload / "assets", sync=sync)
        if self._graphs:
            from converter.write import graph_files  # weights alone do without numpy

            names = graph_files.file_names(self._graphs)
            for graph, name in zip(self._graphs, names, strict=True):
                graph_files.write_beside_weights(
                    graph, self.bundle, self._layout, payload, name, sync=sync
                )
                self._files.append(GraphFile(graph, payload / name))
                self._described.append(graph_files.describe(graph, self.bundle.weights, name))
        return payload, self._report if verify else None

    def graph_files(self) -> Sequence[GraphFile]:
        """Return the graphs, the default one first."""
        return self._files

    def record(self, written: Path, verification: Mapping[str, JSON], *, sync: bool) -> Digests:
        """Write the manifest."""
        report = self._report
        known = report.files if report else {}
        paths = sorted(p for p in written.rglob("*") if p.is_file())
        files = {p.relative_to(written).as_posix(): File(p) for p in paths}
        found = {
            name: known.get(file.path) or digests.of_span(Span.whole(file))
            for name, file in files.items()
        }
        from converter import environment  # it asks for the versions of packages

        document = portable.manifest(
            self.bundle,
            self._layout,
            source_name=self._artifact.name,
            source_files=_resources(self._artifact.opened, self._sources.finish()),
            tensor_digests=report.digests if report else {},
            resources=_resources(files, found),
            verification=verification,
            environment=environment.describe_environment(),
            graph=self._described[0] if self._described else None,
            others=self._described[1:],
        )
        portable.write_manifest(document, written, sync=sync)
        return Digests(document["source"]["digest"]["value"], report.digests if report else {})


def plan(
    bundle: Bundle, graphs: "Sequence[Graph]", artifact: Artifact, options: Options
) -> PortableBundle:
    """Decide in which files the weights go."""
    layout = plan_shards(bundle.weights, bundle.encodings, max_shard_bytes=options.shard_bytes)
    return PortableBundle(bundle, graphs, artifact, layout)


def _resources(files: Mapping[str, File], found: Mapping[str, str]) -> list[portable.Resource]:
    return [portable.Resource(name, file.size, found[name]) for name, file in files.items()]
