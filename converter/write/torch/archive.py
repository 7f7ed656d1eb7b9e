"""A program's archive, moved to a device: what ``--to torchscript`` and ``--to pt2`` share.

The archive is the source's own, with the members replaced that name devices. It is planned without
a look at the weights, written, and read again: by its format's own reader for the weights, and once
more as a source for devices that it must not name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

from converter.byte_sizes import readable_size
from converter.devices.names import TorchDevice, parse_torch_device
from converter.devices.torch.members import Changes, rewritten
from converter.events import Progress, Step
from converter.options import Options
from converter.write.plan import Plan, Writing
from converter.write.readback import WeightsReport
from formats.artifact import Artifact
from formats.containers.zip.rewriting import Pieces
from formats.core.bundle import Bundle
from formats.core.output import STRIDE, Output
from formats.core.storage import Blocks, Span
from formats.core.weights import Strided, Tensor
from formats.errors import UnsupportedError, VerificationError
from formats.limits import Limits


@dataclass(frozen=True, slots=True)
class MovedProgram(Plan):
    """An archive that can be written.

    Attributes:
        bundle: As it will be.
        warnings: What could not be decided, and stays as it is.
        device: Where the program shall run.
        name: Of the file.
        pieces: Its bytes, most of them runs of the source.
        read: Its format's own reader.
        check: Raises where the output names another device.
    """

    bundle: Bundle
    warnings: Sequence[str]
    device: TorchDevice
    name: str
    pieces: Pieces = field(repr=False)
    limits: Limits
    read: Callable[[Artifact], Bundle]
    check: Callable[[Artifact], None]

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return sum(p.length if isinstance(p, Span) else len(p) for p in self.pieces)

    def summary(self) -> str:
        """Return what there is to write."""
        return f"1 file, {readable_size(self.nbytes)}, for {self.device}"

    def write(self, payload: Path, *, verify: bool, sync: bool) -> Writing:
        """Write the archive, read it again, and compare its weights with the source's.

        Raises:
            StorageError: The disk is full, or fails.
            VerificationError: The output is not the source, moved.
        """
        begin, path = perf_counter(), payload / self.name
        done, total = 0, self.nbytes
        with Output(path) as out:
            for count in out.append(self.pieces, Blocks()):
                done += count
                yield Progress("written", done, total)
            if sync:
                out.sync()
        yield Step("written", f"1 file, {readable_size(total)}", perf_counter() - begin)
        report = None
        if verify:
            begin = perf_counter()
            output = Artifact(path, self.limits)
            report = compare_weights(self.bundle, self.read(output))
            self.check(output)
            text = "devices; there are no tensors"
            if report is not None:
                size = readable_size(report.nbytes)
                text = f"weights: {report.tensors} tensors, {size}, equal bit for bit; devices"
            yield Step("verified", text, perf_counter() - begin)
        return path, report


def target_device(options: Options, format: str) -> TorchDevice:
    """Return the device that ``--device`` names.

    Raises:
        UsageError: It names none.
        UnsupportedError: torch saves no storages of it, so no program on it either.
    """
    device = parse_torch_device(options.device)
    if not device.has_storages:
        raise UnsupportedError(f"not supported: {format} programs for {device.kind}")
    return device


def plan(
    bundle: Bundle,
    artifact: Artifact,
    device: TorchDevice,
    changes: Changes,
    *,
    name: str,
    read: Callable[[Artifact], Bundle],
    check: Callable[[Artifact], None],
) -> MovedProgram:
    """Return the archive with its changes made; no weight is read."""
    metadata = replace(
        bundle.metadata,
        devices={str(device): sum(bundle.metadata.devices.values())},
        normalisations=tuple(changes.normalisations),
        left_out=(),
    )
    return MovedProgram(
        bundle=replace(bundle, metadata=metadata),
        warnings=tuple(changes.warnings),
        device=device,
        name=name,
        pieces=rewritten(artifact, changes.replaced),
        limits=artifact.limits,
        read=read,
        check=check,
    )


def compare_weights(source: Bundle, output: Bundle) -> WeightsReport | None:
    """Compare all tensors of the two, bit for bit, and how they lie in their storages.

    Returns:
        What was compared; None where there are no tensors.

    Raises:
        VerificationError: They differ.
    """
    tensors = nbytes = 0
    seen: set[tuple[int, int, int]] = set()
    groups = [(source.weights, output.weights)]
    groups += [(source.leftovers[g], output.leftovers.get(g, {})) for g in source.leftovers]
    for theirs, ours in groups:
        if list(theirs) != list(ours):
            name = next(iter(theirs.keys() ^ ours.keys()), "their order")
            raise VerificationError("the output has other tensors than the source", where=name)
        for name, tensor in theirs.items():
            nbytes += _compare(name, tensor, ours[name], seen)
            tensors += 1
    if source.signatures != output.signatures:
        raise VerificationError("the signatures of the output are not the source's")
    return WeightsReport(tensors, nbytes, {}, {}) if tensors else None


def _compare(name: str, theirs: Tensor, ours: Tensor, seen: set[tuple[int, int, int]]) -> int:
    """Compare two tensors; return the bytes of their storage, where it was not seen before."""
    if (theirs.dtype, theirs.shape) != (ours.dtype, ours.shape):
        raise VerificationError("the tensor has another type or shape", where=name)
    left, right = theirs.data, ours.data
    if not isinstance(left, Strided) or not isinstance(right, Strided):
        if theirs.tobytes() != ours.tobytes():
            raise VerificationError("the tensor differs from the source's", where=name)
        return theirs.nbytes
    for view in ("offset", "strides", "byteorder"):
        if getattr(left, view) != getattr(right, view):
            raise VerificationError(f"the tensor has another {view}", where=name)
    key = id(left.span.storage), left.span.offset, left.span.length
    if key in seen:
        return 0
    seen.add(key)
    if left.span.length != right.span.length:
        raise VerificationError("the storage has another length", where=name)
    for at in range(0, left.span.length, STRIDE):
        count = min(STRIDE, left.span.length - at)
        if left.span.read(at, count) != right.span.read(at, count):
            raise VerificationError("the tensor differs from the source's", where=name, offset=at)
    return left.span.length
