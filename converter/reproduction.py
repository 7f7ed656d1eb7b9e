"""Convert a source again, and compare the bytes with an output.

Conversion is deterministic: the same source, version and options give the same bytes. So
everyone who has the source can check that an output was made from it. A manifest
also records how far its output was verified and on which machine, which is left out here.
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from converter.options import Options
from converter.pipeline import Conversion, steps
from converter.write import catalog as targets
from formats import catalog
from formats.artifact import Artifact
from formats.core import digests
from formats.core.storage import File, Span
from formats.errors import UsageError
from formats.portable import MANIFEST

OF_A_RUN = ("verification", "environment", "source")  # keys of a manifest that are not the output's


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What a second conversion gave.

    Attributes:
        equal: Names of the files with the same bytes.
        different: Names of the files that differ, or that only one side has.
    """

    equal: tuple[str, ...]
    different: tuple[str, ...]


def reproduce(source: Path, converted: Path, options: Options) -> Reproduction:
    """Convert a source as an output was converted, and compare both.

    Args:
        source: The artifact.
        converted: The output.
        options: Options of the conversion, but for the target, which is that of the output.

    Raises:
        ConvertError: As `converter.pipeline.steps`.
        UsageError: There is no target that writes such an output.
    """
    target = _find_target(converted, options)
    with tempfile.TemporaryDirectory(prefix="convert-again-") as folder:
        again = Path(folder) / converted.name
        asked = replace(options, to=target, verify="none", require=None, overwrite=False)
        for event in steps(source, again, asked):
            if isinstance(event, Conversion) and event.path is not None:
                again = event.path
        ours, theirs = (dict(_contents(path)) for path in (again, converted))
    names = sorted({*ours, *theirs})
    equal = tuple(name for name in names if ours.get(name) == theirs.get(name))
    return Reproduction(equal, tuple(name for name in names if name not in equal))


def _find_target(converted: Path, options: Options) -> str:
    """Return the id of the target that writes a format."""
    found_format = catalog.detect(Artifact(converted, options.limits)).format.id
    found = [row.id for row in targets.TARGETS if row.format == found_format]
    if not found:
        raise UsageError(f"no target writes {found_format}", where=converted)
    return found[0]


def _contents(path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and digest of each file of an output."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if not file.is_file():
            continue
        name = file.relative_to(path).as_posix() if path.is_dir() else ""
        if name == MANIFEST:
            facts = json.loads(file.read_text("utf-8"))
            kept = {key: value for key, value in facts.items() if key not in OF_A_RUN}
            yield name, json.dumps(kept, sort_keys=True)
        else:
            yield name, digests.of_span(Span.whole(File(file)))
