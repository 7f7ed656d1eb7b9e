"""The output of ``--to savedmodel``, read again and compared with what was planned."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from converter.write.readback import WeightsReport
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.core.output import STRIDE
from formats.core.storage import File, Span
from formats.core.weights import Tensor
from formats.errors import VerificationError
from formats.limits import Limits
from formats.tensorflow import savedmodel


@dataclass(frozen=True, slots=True)
class Expected:
    """What the output must say: the one device that it may name, and at how many nodes."""

    device: str
    nodes: int


def check(
    source: Bundle, files: Mapping[str, Span], expected: Expected, folder: Path, limits: Limits
) -> WeightsReport:
    """Compare the output with its source and its plan.

    Files that were copied are compared byte for byte; tensors that are constants of the graph,
    bit for bit; and the names, types and shapes of all.

    Raises:
        VerificationError: Something differs.
    """
    output = savedmodel.read(Artifact(folder, limits))
    for name, span in files.items():
        _compare_files(name, span, Span.whole(File(folder / name)))
    groups = [(source.weights, output.weights)]
    groups += [(source.leftovers[g], output.leftovers.get(g, {})) for g in source.leftovers]
    tensors = nbytes = 0
    for theirs, ours in groups:
        if list(theirs) != list(ours):
            name = next(iter(theirs.keys() ^ ours.keys()), "their order")
            raise VerificationError("the output has other tensors than the source", where=name)
        for name, tensor in theirs.items():
            _compare(name, tensor, ours[name])
            tensors += 1
            nbytes += tensor.nbytes
    if source.signatures != output.signatures:
        raise VerificationError("the signatures of the output are not the source's")
    devices = dict(output.metadata.devices)
    wrong = sorted(set(devices) - {expected.device})
    if wrong:
        raise VerificationError(f"the output still names {wrong[0]}", expected=expected.device)
    if expected.nodes > devices.get(expected.device, 0):
        raise VerificationError(
            f"the output names {expected.device} {devices.get(expected.device, 0)} times",
            expected=str(expected.nodes),
        )
    return WeightsReport(tensors, nbytes, {}, {})


def _compare_files(name: str, theirs: Span, ours: Span) -> None:
    """Compare two runs of bytes, a little of them at a time."""
    if theirs.length != ours.length:
        raise VerificationError("the copy has another length", where=name)
    for at in range(0, theirs.length, STRIDE):
        count = min(STRIDE, theirs.length - at)
        if theirs.read(at, count) != ours.read(at, count):
            raise VerificationError("the copy differs from the source", where=name, offset=at)


def _compare(name: str, theirs: Tensor, ours: Tensor) -> None:
    if (theirs.dtype, theirs.shape) != (ours.dtype, ours.shape):
        raise VerificationError("the tensor has another type or shape", where=name)
    if any(_is_in(t, "variables") for t in (theirs, ours)):
        return  # a run of a file that was compared as a whole
    left, right = list(theirs.pieces()), list(ours.pieces())
    if len(left) == len(right) == 1 and isinstance(left[0], Span) and isinstance(right[0], Span):
        _compare_files(name, left[0], right[0])
    elif theirs.tobytes() != ours.tobytes():
        raise VerificationError("the tensor differs from the source's", where=name)


def _is_in(tensor: Tensor, folder: str) -> bool:
    """Tell whether all of a tensor lies in files of a folder."""
    return all(
        isinstance(piece, Span)
        and isinstance(piece.storage, File)
        and piece.storage.path.parent.name == folder
        for piece in tensor.pieces()
    )
