"""``--to savedmodel``: the source's folder again, with its graph's placements changed.

Variables, assets and everything else in the folder are copied as they are; only the graph is
written anew, and always as ``saved_model.pb``. ``fingerprint.pb`` is left out: it is a checksum of
the graph's old bytes, and TensorFlow does without. ``convert.json`` says what was done; TensorFlow
does not look at it.
"""

import json
import os
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from converter.byte_sizes import readable_size
from converter.devices.savedmodel.retarget import retarget_graph
from converter.events import Progress, Step
from converter.version import VERSION
from converter.write.readback import WeightsReport
from converter.write.savedmodel.check import Expected, check
from formats.artifact import Artifact
from formats.containers.protobuf.rewriting import Pieces
from formats.core.bundle import JSON, Bundle, LeftOut
from formats.core.output import Output
from formats.core.storage import Blocks, Span
from formats.errors import SafetyError, StorageError, UnsupportedError
from formats.tensorflow.savedmodel import ASSETS, BINARY, EXTRA, FINGERPRINT, KERAS, TEXT, VARIABLES

RECORD = "convert.json"


@dataclass(frozen=True, slots=True)
class SavedModelFolder:
    """What will be written.

    Attributes:
        device: What nodes shall name; "" for nothing.
        graph: The bytes of saved_model.pb.
        files: The other files, by their path in the folder.
        bundle: The source as read, and what was changed and left out.
        warnings: What was found, and is kept as it is.
        expected: What the output must say of itself when it is read again.
    """

    device: str
    graph: Pieces
    files: Mapping[str, Span]
    bundle: Bundle
    warnings: tuple[str, ...]
    expected: Expected

    @property
    def nbytes(self) -> int:
        """Bytes of all files but the record."""
        pieces = sum(p.length if isinstance(p, Span) else len(p) for p in self.graph)
        return pieces + sum(f.length for f in self.files.values())


def plan(bundle: Bundle, artifact: Artifact, device: str) -> SavedModelFolder:
    """Decide what becomes of every node, without writing anything.

    Args:
        bundle: The source as read.
        artifact: The source's files.
        device: As `devices.parse_tensorflow_device` returns it.

    Raises:
        UnsupportedError: The source is no SavedModel, or one that no single device can run.
        CorruptError: The source is damaged.
        SafetyError: It has links that lead out of it.
    """
    if bundle.metadata.format != "savedmodel":
        raise UnsupportedError(
            f"--to savedmodel from {bundle.metadata.format}",
            expected="a SavedModel",
            where=artifact.path,
        )
    graph = retarget_graph(artifact, device)
    files = dict(_files(artifact))
    left_out = []
    for name, reason in (
        (FINGERPRINT, "a checksum of the graph's old bytes"),
        (TEXT, f"the graph is written as {BINARY}"),
        (RECORD, "what an earlier conversion said"),
    ):
        if files.pop(name, None) is not None and (name, artifact.is_file) != (TEXT, True):
            left_out.append(LeftOut(name, reason))
    files.pop(BINARY, None)
    metadata = replace(
        bundle.metadata,
        left_out=tuple(left_out),
        normalisations=graph.normalisations,
    )
    return SavedModelFolder(
        device=device,
        graph=graph.pieces,
        files=files,
        bundle=replace(bundle, metadata=metadata),
        warnings=graph.warnings,
        expected=Expected(device, graph.placed),
    )


def _files(artifact: Artifact) -> Iterator[tuple[str, Span]]:
    """Yield the files of the SavedModel; where only its graph was named, those that belong to it.

    Raises:
        SafetyError: A link leads to another folder.
    """
    folder = artifact.path if artifact.is_folder else artifact.path.parent
    known = {VARIABLES, ASSETS, EXTRA, KERAS, FINGERPRINT}
    for place, folders, names in os.walk(folder):
        here = Path(place).relative_to(folder)
        if not here.parts and artifact.is_file:
            folders[:] = [n for n in folders if n in known]
            names = [n for n in names if n in known]
        for name in folders:
            if (Path(place) / name).is_symlink():
                raise SafetyError("is a link to a folder", where=Path(place) / name)
        folders.sort()
        for name in sorted(names):
            path = (here / name).as_posix()
            yield path, Span.whole(artifact.member(path))


def write(
    made: SavedModelFolder, artifact: Artifact, payload: Path, *, verify: bool, sync: bool
) -> Generator[Step | Progress, None, tuple[Path, WeightsReport | None]]:
    """Write the folder; return it, and what a comparison with the source found.

    Raises:
        StorageError: The disk is full, or fails.
        VerificationError: The output is not what was planned.
    """
    begin = perf_counter()
    folder = payload / "savedmodel"
    done, total = 0, made.nbytes
    blocks = Blocks()
    contents: dict[str, Pieces] = {BINARY: made.graph}
    contents |= {name: [span] for name, span in made.files.items()}
    for name, pieces in contents.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise StorageError.writing(path, e) from e
        with Output(path) as out:
            for count in out.append(pieces, blocks):
                done += count
                yield Progress("written", done, total)
            if sync:
                out.sync()
    yield Step(
        "written", f"{len(made.files) + 1} files, {readable_size(total)}", perf_counter() - begin
    )
    report = None
    if verify:
        begin = perf_counter()
        report = check(made.bundle, made.files, made.expected, folder, artifact.limits)
        size = readable_size(report.nbytes)
        text = f"weights: {report.tensors} tensors, {size}, equal bit for bit; placements"
        yield Step("verified", text, perf_counter() - begin)
    return folder, report


def record(
    made: SavedModelFolder, artifact: Artifact, folder: Path, verified: str, *, sync: bool
) -> None:
    """Write down what was done, and how far it was verified.

    Raises:
        StorageError: The disk is full, or fails.
    """
    about = made.bundle.metadata
    document: dict[str, JSON] = {
        "convert": VERSION,
        "source": artifact.name,
        "device": made.device or "none",
        "normalisations": [
            {"name": n.name, "count": n.count, "detail": n.detail} for n in about.normalisations
        ],
        "left_out": [{"name": x.name, "reason": x.reason} for x in about.left_out],
        "warnings": list(made.warnings),
        "verified": verified,
    }
    with Output(folder / RECORD) as out:
        out.write(json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n")
        if sync:
            out.sync()
