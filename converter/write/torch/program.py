"""The targets ``torchscript`` and ``pt2``: the same program, moved to another device.

A source of another format becomes an exported program by its graph: see `rebuilt`.

The archive is the source's own, with the members replaced that name devices. No weight is read to
plan it. What was written is read again: by the format's reader, to compare the weights, and as a
source to be moved, to find devices that it must not name. The archive is what torch would have
written; no record is added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from converter.byte_sizes import readable_size
from converter.devices.names import TorchDevice, parse_torch_device
from converter.devices.torch import programs
from converter.devices.torch.members import rewrite_archive
from converter.events import Progress, Step
from converter.options import Options
from converter.write.plan import Plan, Writing
from converter.write.readback import WeightsReport
from converter.write.same_tensors import compare_elements, compare_spans, compare_tensors
from formats.artifact import Artifact
from formats.containers.zip.rewriting import Pieces
from formats.core.bundle import Bundle
from formats.core.output import Output
from formats.core.storage import Blocks, Span
from formats.core.weights import Strided, Tensor
from formats.errors import UnsupportedError, UsageError, VerificationError
from formats.limits import Limits

if TYPE_CHECKING:
    from converter.lower.graph import Graph


class ProgramTarget(NamedTuple):
    """A target that is a program.

    Attributes:
        format: The format of its sources.
        kind: Of their topology.
        article: A source, for people.
        adjective: Such programs, for people.
        file: Name of the output.
    """

    format: str
    kind: str
    article: str
    adjective: str
    file: str


# fmt: off
TARGETS: Mapping[str, ProgramTarget] = {
    "torchscript": ProgramTarget("torchscript",  "torchscript",      "a TorchScript archive",
                                 "TorchScript", "model.pt"),
    "pt2":         ProgramTarget("torch-export", "exported_program", "an archive of torch.export",
                                 "exported",    "model.pt2"),
}
# fmt: on


@dataclass(frozen=True, slots=True)
class MovedProgram(Plan):
    """An archive that can be written.

    Attributes:
        bundle: As it will be.
        warnings: What could not be decided and stays as it is.
        target: What it is.
        device: On which the program will run.
        pieces: The archive's bytes, most of them spans of the source.
        limits: For reading the output.
    """

    bundle: Bundle
    warnings: Sequence[str]
    target: ProgramTarget
    device: TorchDevice
    pieces: Pieces = field(repr=False)
    limits: Limits

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return sum(p.length if isinstance(p, Span) else len(p) for p in self.pieces)

    def summary(self) -> str:
        """Return how large the file is, and for which device."""
        return f"1 file, {readable_size(self.nbytes)}, for {self.device}"

    def write(self, payload: Path, *, verify: bool, sync: bool) -> Writing:
        """Write the archive, read it again, and compare its weights and devices."""
        path = payload / self.target.file
        done, total = 0, self.nbytes
        with Output(path) as out:
            for count in out.append(self.pieces, Blocks()):
                done += count
                yield Progress("written", done, total)
            if sync:
                out.sync()
        if not verify:
            return path, None
        begin = perf_counter()
        output = Artifact(path, self.limits)
        report = compare_weights(self.bundle, programs.FORMATS[self.target.kind].read(output))
        programs.check_device(output, self.target.kind, self.device)
        text = "devices; there are no tensors"
        if report.tensors:
            text = f"{report}; devices"
        yield Step("verified", text, perf_counter() - begin)
        return path, report if report.tensors else None


def plan(bundle: Bundle, graphs: "Sequence[Graph]", artifact: Artifact, options: Options) -> Plan:
    """Decide what becomes of every member of a program's archive, or how it is rebuilt.

    No weight is read.

    Raises:
        UsageError: ``device`` is not the name of a device, or ``state`` is of no use.
        UnsupportedError: The source is not such a program, or cannot be moved there.
        CorruptError: It is damaged.
    """
    if graphs:
        from converter.write.torch import rebuilt  # it imports numpy

        return rebuilt.plan(bundle, graphs[0], artifact, options)
    if options.state != "drop":
        raise UsageError(
            f"state={options.state!r} with to={options.to!r} from {bundle.metadata.format}",
            hint="It is the same program, which keeps its state by itself",
        )
    target = TARGETS[options.to]
    if bundle.metadata.format != target.format:
        raise UnsupportedError(
            f"the source is {bundle.metadata.format}, which to={options.to!r} does not take",
            expected=target.article,
            where=artifact.path,
        )
    device = parse_torch_device(options.device)
    if not device.has_storages:
        raise UnsupportedError(f"not supported: {target.adjective} programs for {device.kind}")
    changes = programs.FORMATS[target.kind].move(artifact, device)
    metadata = replace(
        bundle.metadata,
        devices={str(device): sum(bundle.metadata.devices.values())},
        normalisations=tuple(changes.normalisations),
        left_out=(),
    )
    return MovedProgram(
        bundle=replace(bundle, metadata=metadata),
        warnings=tuple(changes.warnings),
        target=target,
        device=device,
        pieces=rewrite_archive(artifact, changes.replaced),
        limits=artifact.limits,
    )


def compare_weights(source: Bundle, output: Bundle) -> WeightsReport:
    """Compare all tensors of two programs bit for bit, and their views of storages.

    Raises:
        VerificationError: They differ.
    """
    seen: set[tuple[int, int, int]] = set()

    def compare(name: str, theirs: Tensor, ours: Tensor) -> int:
        """Compare two tensors; return the bytes of their storage the first time it is seen."""
        left, right = theirs.data, ours.data
        if not isinstance(left, Strided) or not isinstance(right, Strided):
            return compare_elements(name, theirs, ours)
        for view in ("offset", "strides", "byteorder"):
            if getattr(left, view) != getattr(right, view):
                raise VerificationError(f"the tensor has another {view}", where=name)
        key = id(left.span.storage), left.span.offset, left.span.length
        if key in seen:
            return 0
        seen.add(key)
        return compare_spans(name, left.span, right.span, "tensor")

    return compare_tensors(source, output, compare)
