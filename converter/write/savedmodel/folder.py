"""The target ``savedmodel``: the same SavedModel, placed on one device or on none.

Variables, assets and everything else in the folder are copied as they are. Only the graph is
written anew, always as ``saved_model.pb``. ``fingerprint.pb`` is left out: it is a checksum of the
former graph, and TensorFlow does not need it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from converter.byte_sizes import readable_size
from converter.devices.names import parse_tensorflow_device
from converter.devices.savedmodel.retarget import retarget_graph
from converter.events import Progress, Step
from converter.options import Options
from converter.write import conversion_record
from converter.write.plan import Plan, Writing
from converter.write.savedmodel.check import check_placement, compare_folder
from formats.artifact import Artifact
from formats.containers.protobuf.rewriting import Pieces
from formats.core.bundle import JSON, Bundle, LeftOut
from formats.core.output import Output, write_file
from formats.core.plurals import count
from formats.core.storage import Blocks, Span
from formats.errors import SafetyError, StorageError, UnsupportedError
from formats.limits import Limits
from formats.tensorflow.savedmodel import ASSETS, BINARY, EXTRA, FINGERPRINT, KERAS, TEXT, VARIABLES

if TYPE_CHECKING:
    from converter.lower.graph import Graph

FOLDER = "savedmodel"


@dataclass(frozen=True, slots=True)
class SavedModelFolder(Plan):
    """A SavedModel that can be written.

    Attributes:
        bundle: The source as read, and what was changed and left out.
        warnings: What was found and is kept as it is.
        device: The device that nodes name; ``""`` for none.
        placed: How many nodes name it.
        graph: The bytes of ``saved_model.pb``.
        files: The other files, by their path in the folder.
        source_name: Name of the source.
        limits: For reading the output.
    """

    bundle: Bundle
    warnings: Sequence[str]
    device: str
    placed: int
    graph: Pieces = field(repr=False)
    files: Mapping[str, Span] = field(repr=False)
    source_name: str
    limits: Limits

    @property
    def nbytes(self) -> int:
        """Bytes of all files but the record."""
        pieces = sum(p.length if isinstance(p, Span) else len(p) for p in self.graph)
        return pieces + sum(f.length for f in self.files.values())

    def summary(self) -> str:
        """Return how many files there are to write, and how large they are."""
        return f"{count('file', len(self.files) + 1)}, {readable_size(self.nbytes)}"

    def write(self, payload: Path, *, verify: bool, sync: bool) -> Writing:
        """Write the folder, and compare its files, tensors and placements with the plan."""
        folder = payload / FOLDER
        done, total = 0, self.nbytes
        blocks = Blocks()
        contents: dict[str, Pieces] = {BINARY: self.graph}
        contents |= {name: [span] for name, span in self.files.items()}
        for name, pieces in contents.items():
            path = folder / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as e:
                raise StorageError.writing(path, e) from e
            with Output(path) as out:
                for n in out.append(pieces, blocks):
                    done += n
                    yield Progress("written", done, total, name)
                if sync:
                    out.sync()
        if not verify:
            return folder, None
        begin = perf_counter()
        report, output = compare_folder(self.bundle, self.files, folder, self.limits)
        check_placement(output, self.device, self.placed)
        text = f"{report}; placements"
        yield Step("verified", text, perf_counter() - begin)
        return folder, report

    def record(self, written: Path, verification: Mapping[str, JSON], *, sync: bool) -> None:
        """Write the record of the conversion into the folder."""
        content = conversion_record.encode_record(
            self.source_name,
            {"device": self.device or "none"},
            self.bundle.metadata,
            self.warnings,
            verification["reached"],
            {},
        )
        write_file(written / conversion_record.FILE, content, sync=sync)


def plan(
    bundle: Bundle, graphs: "Sequence[Graph]", artifact: Artifact, options: Options
) -> SavedModelFolder:
    """Decide what becomes of every node and file; nothing is written.

    Raises:
        UsageError: ``device`` is not the name of a device.
        UnsupportedError: The source is not a SavedModel, or no single device can run it.
        CorruptError: The source is damaged.
        SafetyError: It has links that lead out of it.
    """
    del graphs  # the program is the source's own
    if bundle.metadata.format != "savedmodel":
        raise UnsupportedError(
            f"the source is {bundle.metadata.format}, which to='savedmodel' does not take",
            expected="a SavedModel",
            where=artifact.path,
        )
    device = parse_tensorflow_device(options.device)
    graph = retarget_graph(artifact, device)
    files = dict(_find_files(artifact))
    left_out = []
    for name, reason in (
        (FINGERPRINT, "a checksum of the graph's old bytes"),
        (TEXT, f"the graph is written as {BINARY}"),
        (conversion_record.FILE, "what an earlier conversion said"),
    ):
        if files.pop(name, None) is not None and (name, artifact.is_file) != (TEXT, True):
            left_out.append(LeftOut(name, reason))
    files.pop(BINARY, None)
    metadata = replace(
        bundle.metadata, left_out=tuple(left_out), normalisations=graph.normalisations
    )
    return SavedModelFolder(
        bundle=replace(bundle, metadata=metadata),
        warnings=graph.warnings,
        device=device,
        placed=graph.placed,
        graph=graph.pieces,
        files=files,
        source_name=artifact.name,
        limits=artifact.limits,
    )


def _find_files(artifact: Artifact) -> Iterator[tuple[str, Span]]:
    """Yield the files of a SavedModel; if only its graph was named, those that belong to it.

    Raises:
        SafetyError: A link leads to another folder.
    """
    folder = artifact.path if artifact.is_folder else artifact.path.parent
    known = {VARIABLES, ASSETS, EXTRA, KERAS, FINGERPRINT}
    for parent, folders, names in os.walk(folder):
        relative = Path(parent).relative_to(folder)
        if not relative.parts and artifact.is_file:
            folders[:] = [n for n in folders if n in known]
            names = [n for n in names if n in known]
        for name in folders:
            if (Path(parent) / name).is_symlink():
                raise SafetyError("is a link to a folder", where=Path(parent) / name)
        folders.sort()
        for name in sorted(names):
            path = (relative / name).as_posix()
            yield path, Span.whole(artifact.member(path))
