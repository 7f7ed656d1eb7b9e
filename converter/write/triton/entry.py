"""An entry of a Triton model repository: its configuration, and one version with an ONNX graph.

Spec: https://github.com/triton-inference-server/server/blob/main/docs/user_guide/model_repository.md#onnx-models
"""

from collections.abc import Sequence
from pathlib import Path

from converter.lower.graph import Graph
from converter.options import Options
from converter.write.graph_files import GRAPH
from converter.write.onnx import OnnxFiles
from converter.write.plan import GraphFile, Writing
from converter.write.triton.configuration import CONFIGURATION, VERSION, configure
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.core.output import Output


class TritonEntry(OnnxFiles):
    """An entry that can be written; the folder's name is the model's."""

    def __init__(self, bundle: Bundle, graphs: Sequence[Graph], options: Options) -> None:
        super().__init__(bundle, graphs, options)
        self._configuration = configure(graphs[0], str(options.device)).text()

    def write(self, payload: Path, *, verify: bool, sync: bool) -> Writing:
        """Write the configuration, and the graph as the one version."""
        del verify
        with Output(payload / CONFIGURATION) as out:
            out.write(self._configuration.encode())
            if sync:
                out.sync()
        home = payload / VERSION
        home.mkdir()
        path = yield from self.write_graphs(home, payload.with_name("aside"), sync=sync)
        if path == home:
            self._nest(home)
        return payload, None

    def _nest(self, home: Path) -> None:
        """Move a graph and the file of its weights into the folder where Triton looks for both."""
        files = [*home.iterdir()]
        folder = home / "folder"
        folder.mkdir()
        for file in files:
            file.rename(folder / file.name)
        folder.rename(home / GRAPH)
        self._files = [_relocate(file, home / GRAPH) for file in self._files]


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
        UsageError: The device is none of Triton's.
    """
    del artifact
    return TritonEntry(bundle, graphs, options)
