"""Write a page about a verification."""

from dataclasses import dataclass, replace
from pathlib import Path
from time import time
from typing import IO

from converter.options import Options
from converter.reports.page_frame import PageParts, json_script, packed_script, write_page
from converter.verification.report import GraphReport
from converter.verification.result import Verification
from converter.version import VERSION
from formats.core.bundle import JSON

LISTED = 1000  # tensors that differ
LISTED_LAYERS = 20_000  # of each graph
PARTS = PageParts(
    "converter.verification_page:verification.html",
    [
        "converter.reports:page.css",
        "converter.reports:parts.css",
        "converter.verification_page:verification.css",
    ],
    [
        *(
            f"converter.reports:{name}.js"
            for name in ("show", "theme", "packed", "plot", "layer_errors", "evidence")
        ),
        "converter.verification_page:verification.js",
    ],
)


@dataclass(frozen=True, slots=True)
class Compared:
    """The two artifacts of a verification, as the page calls them."""

    source: str
    converted: str


def write_verification(
    path: Path, compared: Compared, found: Verification, options: Options
) -> None:
    """Write a page about a verification.

    Args:
        path: The page.
        compared: Names of the two artifacts.
        found: What was compared, and what was found.
        options: How it was compared.

    Raises:
        StorageError: The page cannot be written.
    """
    weights = found.weights
    how = options.comparison
    page = {
        "source": compared.source,
        "converted": compared.converted,
        "level": found.level,
        "failed": found.failed,
        "required": options.require,
        "weights": None
        if weights is None
        else {
            "equal": weights.tensors,
            "different": [*weights.different[:LISTED]],
            "unlisted": max(len(weights.different) - LISTED, 0),
        },
        "options": {
            "device": options.device,
            "inputs": None if how.inputs is None else str(how.inputs),
            "seed": None if how.inputs is not None else how.seed,
            "atol": dict(how.atol),
            "rtol": dict(how.rtol),
        },
        "written": round(time()),
        "tool": VERSION,
    }

    def write_data(file: IO[str]) -> None:
        file.write(json_script("verification", page))
        for name, report in found.graphs.items():
            file.write(packed_script("packed-graph", {"name": name, "report": _plain(report)}))
        text = "The errors of outputs and layers on this page need JavaScript."
        file.write(f"<noscript><p>Verified: {found.level}. {text}</p></noscript>\n")

    write_page(path, PARTS, f"{Path(compared.converted).name} and its source", write_data)


def _plain(report: GraphReport) -> dict[str, JSON]:
    """Return a report with at most `LISTED_LAYERS` layers, and the number of the others."""
    shown = replace(report, layer_errors=report.layer_errors[:LISTED_LAYERS]).plain()
    rest = len(report.layer_errors) - LISTED_LAYERS
    layers = shown["layer_errors"]
    if rest > 0 and isinstance(layers, list):
        layers.append({"more": rest})
    return shown
