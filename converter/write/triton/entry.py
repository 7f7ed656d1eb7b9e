"""A model of a Triton repository, or a repository with a model for each signature.

A model is a folder with its configuration and one version, which has the ONNX graph.
Spec: https://github.com/triton-inference-server/server/blob/main/docs/user_guide/model_repository.md#onnx-models
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from converter.events import Step
from converter.graphs import describe_graph
from converter.lower.graph import Graph
from converter.options import Options
from converter.write.graph_files import GRAPH
from converter.write.onnx import OnnxFiles
from converter.write.plan import GraphFile, Writing
from converter.write.source_stem import source_stem
from converter.write.triton import kserve
from converter.write.triton.configuration import CONFIGURATION, Configuration, configure
from converter.write.triton.settings import is_repository, parse_settings
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.core.output import write_file


class TritonEntry(OnnxFiles):
    """A model, or a repository of models, that can be written.

    A model alone is called as the output's folder; in a repository, models are called as the source
    and, but for the default one, their signature.
    """

    def __init__(
        self, bundle: Bundle, graphs: Sequence[Graph], options: Options, source: Path
    ) -> None:
        super().__init__(bundle, graphs, options)
        self.folder_reason = ""
        settings = parse_settings(options.triton)
        self._version, self._kserve = str(settings.version), settings.kserve
        self._name = source_stem(source)
        self._configurations = [configure(g, str(options.device), settings) for g in graphs]
        self._models = [*_name_models(self._name, graphs)] if is_repository(options) else [""]

    def summary(self) -> str:
        """Return which models there are, and how requests to them are batched."""
        return "; ".join(
            f"{model + ': ' if model else ''}{describe_graph(graph)}, "
            f"batching {configuration.batching.describe()}"
            for model, graph, configuration in self._each()
        )

    def write(self, payload: Path, *, verify: bool, sync: bool) -> Writing:
        """Write each model's configuration, and its graph as the one version."""
        del verify
        for model, graph, configuration in self._each():
            folder = payload / model
            home = folder / self._version
            home.mkdir(parents=True)
            write_file(folder / CONFIGURATION, configuration.text().encode(), sync=sync)
            aside = payload.with_name(f"aside-{model}")
            path = yield from self.write_graphs([graph], [GRAPH], home, aside, sync=sync)
            if path == home:
                self._nest(home)
            batching = configuration.batching.describe()
            yield Step("batching", f"{model}: {batching}" if model else batching)
        if self._kserve:
            is_on_gpu = any(c.kind == "KIND_GPU" for c in self._configurations)
            text = kserve.describe_service(self._name, self._kserve, needs_gpu=is_on_gpu)
            write_file(payload / kserve.FILE, text.encode(), sync=sync)
        return payload, None

    def _each(self) -> Iterator[tuple[str, Graph, Configuration]]:
        return zip(self._models, self.graphs, self._configurations, strict=True)

    def _nest(self, home: Path) -> None:
        """Move a graph and the file of its weights into the folder where Triton looks for both."""
        files = [*home.iterdir()]
        folder = home / "folder"
        folder.mkdir()
        for file in files:
            file.rename(folder / file.name)
        folder.rename(home / GRAPH)
        self._files = [_relocate(file, home / GRAPH) for file in self._files]


def _name_models(name: str, graphs: Sequence[Graph]) -> Iterator[str]:
    """Yield a name for the model of each graph, the default one first."""
    taken: set[str] = set()
    for graph in graphs:
        signature = re.sub(r"[^\w-]+", "_", graph.signature).strip("_")
        wanted = f"{name}_{signature}" if taken and signature else name
        found, number = wanted, 1
        while found in taken:
            number += 1
            found = f"{wanted}_{number}"
        taken.add(found)
        yield found


def _relocate(file: GraphFile, folder: Path) -> GraphFile:
    def move(path: Path | None) -> Path | None:
        return folder / path.name if path is not None and path.parent == folder.parent else path

    path = move(file.path) or file.path
    return GraphFile(file.graph, path, move(file.reduced), move(file.emulated))


def plan(
    bundle: Bundle, graphs: Sequence[Graph], artifact: Artifact, options: Options
) -> TritonEntry:
    """Decide how requests are batched.

    Raises:
        UnsupportedError: Triton has no type for an input or output.
        UsageError: Triton has no such device, or the settings do not fit the graph.
    """
    return TritonEntry(bundle, graphs, options, artifact.path)
