"""Write a page about an artifact. Nothing is converted, and nothing of the artifact is run."""

from dataclasses import replace
from pathlib import Path
from time import time
from typing import IO, Any

from converter.graphs import PRETRAINED, lower_required, reason_of
from converter.inspection import Inspection, describe_artifact, read_artifact
from converter.inspection_page.graph import describe_graph
from converter.inspection_page.weights import describe_weights
from converter.options import Options
from converter.reports.file import check
from converter.reports.html_data import shorten
from converter.reports.page_frame import PageParts, json_script, packed_script, write_page
from converter.version import VERSION
from formats import portable
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.errors import (
    CorruptError,
    DependencyError,
    SafetyError,
    UnsupportedError,
    UsageError,
)
from formats.limits import DEFAULT, Limits

PARTS = PageParts(
    "converter.inspection_page:inspection.html",
    [
        "converter.reports:page.css",
        "converter.reports:parts.css",
        "converter.inspection_page:inspection.css",
    ],
    [
        *(
            f"converter.reports:{name}.js"
            for name in ("show", "theme", "packed", "plot", "layer_errors", "evidence")
        ),
        *(
            f"converter.inspection_page:{name}.js"
            for name in ("histogram", "treemap", "weights", "layout", "graph", "inspection")
        ),
    ],
)


def write_inspection(
    source: str | Path,
    path: Path,
    *,
    name: str = "",
    format: str | None = None,
    limits: Limits = DEFAULT,
) -> Inspection:
    """Write a page about an artifact, and return the artifact's description.

    Args:
        source: File, folder or checkpoint prefix.
        path: The page.
        name: What the page calls the source; default: ``source``.
        format: Row id of `formats.catalog`; default: detected by content.
        limits: Limits of reading.

    Raises:
        UsageError: ``path`` is a folder.
        StorageError: The page cannot be written.
        ConvertError: As `converter.inspection.inspect`; or a weight cannot be read.
    """
    check(path, "html=")
    artifact, match, bundle = read_artifact(source, format, limits)
    found = describe_artifact(artifact, match, bundle, name or str(source))
    graphs, reason = _describe_graphs(bundle, artifact)
    weights = describe_weights(bundle)
    verification = None
    if match.format.id == "portable":
        verification = portable.read_manifest(artifact).get("verification")

    page = {
        "facts": shorten(replace(found, tensors=()).plain()),
        "written": round(time()),
        "tool": VERSION,
        "reason": reason,
        "verification": verification,
    }

    def write_data(file: IO[str]) -> None:
        file.write(json_script("inspection", page))
        file.write(packed_script("packed-weights", weights))
        for graph in graphs:
            file.write(packed_script("packed-graph", graph))
        text = "The layers, weights and graph of this page need JavaScript."
        file.write(f"<noscript><p>{text}</p></noscript>\n")

    write_page(path, PARTS, Path(found.source).name, write_data)
    return found


def _describe_graphs(bundle: Bundle, artifact: Artifact) -> tuple[list[dict[str, Any]], str]:
    """Return the graphs that can be lowered without running anything, or why there is none."""
    topology = bundle.topology
    if topology is None:
        return [], "The file records no computation, only weights."
    if topology.kind == PRETRAINED:
        return [], "Its computation is code of transformers, which an inspection does not run."
    try:
        _, graphs = lower_required(bundle, artifact, Options(exporter="native"))
    except (UnsupportedError, CorruptError, SafetyError, DependencyError, UsageError) as e:
        return [], reason_of(e)
    return [describe_graph(graph) for graph in graphs], ""
