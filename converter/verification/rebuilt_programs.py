"""Compare an exported program with the source of another format whose graph it was made from.

The source is lowered again; the graph says what inputs there are, and what values to try.
"""

import tempfile
from pathlib import Path

from converter.graphs import lower_required
from converter.options import Options
from converter.verification.graphs import verify_graph
from converter.verification.report import GraphReport
from converter.write import graph_files
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.errors import UnsupportedError


def verify_rebuilt(source: Path, bundle: Bundle, written: Path, *, options: Options) -> GraphReport:
    """Compare an exported program with a source that is none; torch runs the program.

    Args:
        source: The artifact.
        bundle: As read from it.
        written: The program's archive.
        options: Of the comparison; ``device`` is the program's.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
        UsageError: The user's inputs are not this model's.
    """
    artifact = Artifact(source, options.limits)
    try:
        lowered_bundle, (graph, *_) = lower_required(bundle, artifact, options, only_one=True)
    except UnsupportedError as e:
        return GraphReport("not run", e.found)
    with tempfile.TemporaryDirectory(prefix="convert-") as folder:
        for _ in graph_files.write_self_contained(graph, lowered_bundle, Path(folder), sync=False):
            pass
        return verify_graph(
            source, bundle, Path(folder) / graph_files.GRAPH, options=options,
            signature=graph.signature or None, program=written,
        )  # fmt: skip
