"""``--to savedmodel``: the source's folder again, with its graph's placements changed.

Variables, assets and everything else in the folder are copied as they are; only the graph is
written anew, and always as ``saved_model.pb``. ``fingerprint.pb`` is left out: it is a checksum of
the graph's old bytes, and TensorFlow does without. ``convert.json`` says what was done; TensorFlow
does not look at it.
"""

import json
import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from converter.byte_sizes import readable_size
from converter.devices.savedmodel.collectives import reductions
from converter.devices.savedmodel.device import kind_of
from converter.devices.savedmodel.distributed_ops import needs_partners
from converter.devices.savedmodel.kernels import is_variable
from converter.devices.savedmodel.placement import placed
from converter.devices.savedmodel.replicas import joined, names_of
from converter.devices.savedmodel.rewriting import Plan, rewrite
from converter.devices.savedmodel.scopes import Node, Scope, graph_of
from converter.devices.savedmodel.unsupported_ops import counted, may_need_gpu, needs_gpu, served
from converter.events import Progress, Step
from converter.version import VERSION
from converter.write.readback import WeightsReport
from converter.write.savedmodel.check import Expected, check
from formats.artifact import Artifact
from formats.containers.protobuf import text_format
from formats.containers.protobuf.encoder import encode
from formats.containers.protobuf.messages import Message, decode
from formats.containers.protobuf.rewriting import Pieces
from formats.core.bundle import JSON, Bundle, LeftOut, Normalisation
from formats.core.output import Output
from formats.core.storage import Blocks, Buffer, Span
from formats.errors import SafetyError, StorageError, UnsupportedError
from formats.tensorflow.savedmodel import ASSETS, BINARY, EXTRA, FINGERPRINT, KERAS, TEXT, VARIABLES
from formats.tensorflow.schemas import SCHEMA

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
    def unlike(self) -> str:
        """Why the source computes something else than this on one device; "" where it does not."""
        names = {n.name for n in self.bundle.metadata.normalisations}
        if names & {"reads of copies of sums made zeros", "updates of copies stopped"}:
            return "on one device, the source itself counts or updates once for each replica"
        if "reductions over devices" in names:
            return "on one device, the source itself waits for others"
        return ""

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
        device: As `devices.parse_device` returns it.

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
    span = _graph(artifact)
    message = decode(span, SCHEMA["SavedModel"], artifact.limits)
    plans, gaps, warnings = [], [], []
    for meta_graph in message.meta_graphs:
        made, lacking, said = _planned(meta_graph, artifact, device, span.name)
        plans.append(made)
        gaps += lacking
        warnings += said
    if gaps:
        raise UnsupportedError(
            f"the signatures need {'; '.join(dict.fromkeys(gaps))}", where=artifact.path
        )
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
    graph = rewrite(span, plans)
    metadata = replace(
        bundle.metadata,
        left_out=tuple(left_out),
        normalisations=tuple(_normalisations(plans, device)),
    )
    return SavedModelFolder(
        device=device,
        graph=graph,
        files=files,
        bundle=replace(bundle, metadata=metadata),
        warnings=tuple(dict.fromkeys(warnings)),
        expected=Expected(device, sum(p.counts["placed"] for p in plans)),
    )


def _graph(artifact: Artifact) -> Span:
    """Return the graph in the wire format."""
    name = BINARY if BINARY in artifact.names else TEXT
    file = artifact.file if artifact.is_file else artifact.member(name)
    span = Span.whole(file)
    if span.length and span.read(0, 1)[0] not in (0x08, 0x12):  # a text
        text = text_format.parse(span, SCHEMA["SavedModel"], SCHEMA, artifact.limits, complete=True)
        span = Span.whole(Buffer(encode(text), span.name))
    return span


def _planned(
    meta_graph: Message, artifact: Artifact, device: str, where: str
) -> tuple[Plan, list[str], list[str]]:
    """Return the plan for a meta graph, the gaps that its signatures meet, and warnings."""
    graph = graph_of(meta_graph, artifact.limits, where)
    changes = joined(graph, meta_graph.object_graph_def)
    chosen = placed(graph, device)
    left = {
        node.name
        for node in graph.main.nodes.values()
        if is_variable(node) and ("", node.name) not in chosen
    }
    alone = reductions(graph)
    made = Plan(graph, device, chosen, changes, unplaced_variables=left, reductions=alone)
    done = alone.found

    def stays(found: Iterable[tuple[Scope, Node]]) -> list[tuple[Scope, Node]]:
        return [(s, n) for s, n in found if (s.name, n.name) not in done]

    reached = stays(served(graph, meta_graph))
    everything = stays((s, n) for s in graph.scopes for n in s.nodes.values())
    gaps, warnings = [], []
    partners = [x for x in reached if needs_partners(x[1].op)]
    if partners:
        gaps.append(f"devices that work together: {counted(partners)}")
    elif rest := [x for x in everything if needs_partners(x[1].op)]:
        warnings.append(f"outside of the signatures, devices work together: {counted(rest)}")
    on_gpu = [x for x in reached if needs_gpu(x[1])]
    if on_gpu and kind_of(device) == "CPU":
        gaps.append(f"a GPU: {counted(on_gpu)}")
    elif on_gpu and not device:
        warnings.append(f"only a GPU runs {counted(on_gpu)}")
    rarely = [x for x in reached if may_need_gpu(x[1])]
    if rarely and kind_of(device) != "GPU":
        warnings.append(
            f"channels first, a GPU runs this, and a CPU only with oneDNN: {counted(rarely)}"
        )
    return made, gaps, warnings


def _normalisations(plans: list[Plan], device: str) -> Iterator[Normalisation]:
    """Say what was changed, all meta graphs together."""
    counts: Counter[str] = Counter()
    cleared: Counter[str] = Counter()
    for made in plans:
        counts += made.counts
        cleared += made.cleared
        counts["reductions over devices"] += made.reductions.counts.total()
        for text in names_of(made.changes):
            number, _, what = text.partition(" ")
            counts[what] += int(number)
    if cleared:
        detail = ", ".join(f"{name} x{n}" for name, n in sorted(cleared.items()))
        yield Normalisation("placements cleared", cleared.total(), detail)
    if device:
        yield Normalisation(
            "placements set",
            counts["placed"] + counts["variables placed"],
            f"{device} x{counts['placed']} nodes, x{counts['variables placed']} variables of "
            "the object graph; the others go where their kernels and variables are",
        )
    for name in (
        "copies of variables made one",
        "reads of copies of sums made zeros",
        "updates of copies stopped",
        "reductions over devices",
        "variables of replicas",
        "colocations",
        "allowed devices",
    ):
        if counts[name]:
            yield Normalisation(name, counts[name], _DETAILS[name])


_DETAILS = {
    "copies of variables made one": "each replica's own are gone from the graph",
    "reads of copies of sums made zeros": "the sum over replicas is in the first one",
    "updates of copies stopped": "the first one is updated",
    "reductions over devices": "computed on one, of all their inputs",
    "variables of replicas": "made plain variables of the object graph",
    "colocations": "bound to the first copy",
    "allowed devices": "of variables that spanned devices, taken away",
}


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
