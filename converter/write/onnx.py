"""ONNX files that hold their weights, one for each graph, in the precision asked for.

Of a Hugging Face folder the output is a folder, too, unless its name ends in ``.onnx``: with the
model's configuration and tokenizer, as Optimum's runtime classes load it.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

from converter import passes
from converter.capture.generation import PARTS
from converter.capture.pipelines import find_component
from converter.events import Progress, Step
from converter.graphs import describe_graph
from converter.lower.graph import Graph, needed
from converter.options import Options
from converter.passes.reduce_precision import NARROW, Reduced, reduce_precision
from converter.write import graph_files
from converter.write.assets import write_assets
from converter.write.plan import GraphFile, Plan, Writing
from formats.artifact import Artifact
from formats.components import DIFFUSERS as PIPELINE
from formats.components import KINDS as COMPONENTS
from formats.core.bundle import Bundle
from formats.core.storage import Span
from formats.hugging_face import CONFIG, DIFFUSERS, KINDS

SUFFIX = ".onnx"
FOLDERS = (*KINDS, *COMPONENTS.values())  # kinds of sources that are a library's folders


class OnnxFiles(Plan):
    """Files that can be written.

    Attributes:
        bundle: As it will be.
        graphs: The default one first.
        options: Of the conversion.
        is_pretrained: Whether the output is a folder that Optimum loads.
    """

    def __init__(self, bundle: Bundle, graphs: Sequence[Graph], options: Options) -> None:
        self.bundle, self.warnings = bundle, ()
        self.graphs, self.options = graphs, options
        self._files: list[GraphFile] = []
        for graph in graphs:
            graph_files.check_states(graph, bundle.weights)
        self.is_pretrained = False
        if len(graphs) > 1:
            self.folder_reason = f"the output is a folder of {len(graphs)} graphs"

    def summary(self) -> str:
        """Return what graphs there are."""
        return "; ".join(map(describe_graph, self.graphs))

    def settle(self, output: Path) -> None:
        """Make it a folder with the model's configuration where it is not named like a file."""
        topology = self.bundle.topology
        is_of_folder = topology is not None and topology.kind in FOLDERS
        self.is_pretrained = is_of_folder and output.suffix != SUFFIX

    def write(self, payload: Path, *, verify: bool, sync: bool) -> Writing:
        """Write the file, or the folder."""
        del verify  # a graph has no weights of its own to compare
        names = self._names(self.graphs)
        aside = payload.with_name("aside")
        path = yield from self.write_graphs(self.graphs, names, payload, aside, sync=sync)
        if self.is_pretrained:
            write_assets(replace(self.bundle, assets=self._assets()), payload, sync=sync)
            return payload, None
        return path, None

    def _names(self, graphs: Sequence[Graph]) -> list[str]:
        """Return the names of the files; those of a pipeline are in folders of their own."""
        topology = self.bundle.topology
        is_of_diffusers = topology is not None and topology.kind in (DIFFUSERS, PIPELINE)
        if is_of_diffusers and self.is_pretrained and all(g.signature for g in graphs):
            return [f"{graph.signature}/{graph_files.GRAPH}" for graph in graphs]
        return graph_files.file_names(graphs)

    def _assets(self) -> dict[str, Span]:
        """Return the files beside the graphs: each graph of a pipeline has its configuration."""
        assets = dict(self.bundle.assets)
        for graph in self.graphs:
            folder = find_component(self.bundle.topology, graph.signature)
            name = f"{folder}/{CONFIG}" if folder else CONFIG
            if graph.signature and name in assets and graph.signature not in PARTS:
                assets[f"{graph.signature}/{CONFIG}"] = assets[name]
        return assets

    def write_graphs(
        self, graphs: Sequence[Graph], names: Sequence[str], home: Path, aside: Path, *, sync: bool
    ) -> Generator[Step | Progress, None, Path]:
        """Write graphs into a folder.

        Args:
            graphs: The default one first.
            names: Of their files.
            home: The folder.
            aside: Another, which is made for files that the output is only compared with.
            sync: Wait until the bytes are on the disk.

        Returns:
            The file, where there is one alone; else the folder.
        """
        path = home
        for graph, name in zip(graphs, names, strict=True):
            full = passes.run(graph, self.bundle.weights)
            target = home / name
            target.parent.mkdir(exist_ok=True)
            if self.options.precision is None:
                file, final = GraphFile(graph, target), full
            else:
                beside = (aside / name).parent
                file, final = yield from self._reduce(graph, full, target, beside)
            path = yield from self._write(final, target.parent, target.name, sync=sync)
            self._files.append(file)
        return path if len(graphs) == 1 else home

    def _reduce(
        self, graph: Graph, full: Graph, path: Path, aside: Path
    ) -> Generator[Step | Progress, None, tuple[GraphFile, Graph]]:
        """Write what a graph of reduced precision is compared with, and return that graph."""
        precision = str(self.options.precision)
        aside.mkdir(parents=True, exist_ok=True)
        yield from self._write(full, aside, path.name, sync=False)
        reduced = reduce_precision(full, self.bundle.weights, precision)
        yield Step("reduced", _describe_reduction(reduced, precision))
        emulated = None
        if self.options.verify not in ("none", "weights"):
            # On CPUs onnxruntime computes in float32 and drops casts between nodes, so that
            # rounding and overflow would not show.
            rounded = reduce_precision(full, self.bundle.weights, precision, emulate=True)
            folder = aside / precision
            folder.mkdir(exist_ok=True)
            yield from self._write(needed(rounded.graph), folder, path.name, sync=False)
            emulated = folder / path.name
        return GraphFile(graph, aside / path.name, path, emulated), needed(reduced.graph)

    def _write(
        self, graph: Graph, folder: Path, name: str, *, sync: bool
    ) -> Generator[Progress, None, Path]:
        return graph_files.write_self_contained(graph, self.bundle, folder, name, sync=sync)

    def graph_files(self) -> Sequence[GraphFile]:
        """Return the files, the default graph's first."""
        return self._files


def plan(
    bundle: Bundle, graphs: Sequence[Graph], artifact: Artifact, options: Options
) -> OnnxFiles:
    """Decide nothing more: each graph becomes a file.

    Raises:
        UnsupportedError: The first value of a state is too large for such a file.
    """
    del artifact
    return OnnxFiles(bundle, graphs, options)


def _describe_reduction(reduced: Reduced, precision: str) -> str:
    text = f"{NARROW[precision]}: {reduced.narrow.total()} nodes"
    if reduced.wide:
        kept = ", ".join(f"{op} {n}" for op, n in sorted(reduced.wide.items()))
        text += f"; float32 for what they read: {kept}"
    return text
