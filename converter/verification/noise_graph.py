"""Write the ONNX graph of a source, to measure the noise of what a framework computes.

An output that is not an ONNX file (a `.keras` file, a SavedModel, a torch program) computes the
same as the graph that is lowered from its source, so rounding changes both alike.
"""

from collections.abc import Sequence
from pathlib import Path

from converter import passes
from converter.graphs import lower_signature
from converter.lower.graph import Graph
from converter.verification.onnx_values import OnnxInterface, read_interface
from converter.write.graph_files import write_self_contained
from formats.core.bundle import Bundle, TensorSpec
from formats.errors import ConvertError, CorruptError, UnsupportedError

FILE = "noise.onnx"


def lower_quietly(
    bundle: Bundle, signature: str | None = None, inputs: Sequence[TensorSpec] = (),
    state: str = "drop",
) -> Graph | None:  # fmt: skip
    """Return the lowered graph of a source, or None if it has none, or an unsupported op."""
    try:
        return lower_signature(bundle, signature=signature, inputs=inputs, state=state)
    except (CorruptError, UnsupportedError):
        return None


def write_noise_graph(
    graph: Graph | None, bundle: Bundle, folder: Path
) -> tuple[Path, OnnxInterface] | None:
    """Write a graph into a folder, and return the file and its interface; None if that fails."""
    if graph is None:
        return None
    try:
        for _ in write_self_contained(
            passes.run(graph, bundle.weights), bundle, folder, FILE, sync=False
        ):
            pass
        return folder / FILE, read_interface(folder / FILE)
    except ConvertError:
        return None
