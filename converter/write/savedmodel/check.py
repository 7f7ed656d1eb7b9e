"""Read a written SavedModel again, and compare it with its source and its plan."""

from collections.abc import Mapping
from pathlib import Path

from converter.write.readback import WeightsReport
from converter.write.same_tensors import compare_elements, compare_spans, compare_tensors
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.core.storage import File, Span
from formats.core.weights import Tensor
from formats.errors import VerificationError
from formats.limits import Limits
from formats.tensorflow import savedmodel


def compare_folder(
    source: Bundle, files: Mapping[str, Span], folder: Path, limits: Limits
) -> tuple[WeightsReport, Bundle]:
    """Compare a written folder with its source; return the report and the folder as read.

    Copied files are compared byte for byte, tensors that are constants of the graph bit for bit,
    and the names, dtypes and shapes of all.

    Raises:
        VerificationError: Something differs.
    """
    for name, span in files.items():
        compare_spans(name, span, Span.whole(File(folder / name)), "copy")
    output = savedmodel.read(Artifact(folder, limits))
    return compare_tensors(source, output, _compare), output


def check_placement(output: Bundle, device: str, nodes: int) -> None:
    """Check the devices that an output names.

    Args:
        output: As read.
        device: The one device that it may name; ``""`` for none.
        nodes: How many nodes name it, at least.

    Raises:
        VerificationError: It names another device, or this one at fewer nodes.
    """
    devices = dict(output.metadata.devices)
    wrong = sorted(set(devices) - {device})
    if wrong:
        raise VerificationError(f"the output still names {wrong[0]}", expected=device)
    if nodes > devices.get(device, 0):
        raise VerificationError(
            f"the output names {device} {devices.get(device, 0)} times", expected=str(nodes)
        )


def _compare(name: str, theirs: Tensor, ours: Tensor) -> int:
    if any(_lies_in(t, savedmodel.VARIABLES) for t in (theirs, ours)):
        return theirs.nbytes  # a span of a file that was compared as a whole
    left, right = list(theirs.pieces()), list(ours.pieces())
    if len(left) == len(right) == 1 and isinstance(left[0], Span) and isinstance(right[0], Span):
        compare_spans(name, left[0], right[0], "tensor")
        return theirs.nbytes
    return compare_elements(name, theirs, ours)


def _lies_in(tensor: Tensor, folder: str) -> bool:
    """Return whether all of a tensor lies in files of a folder."""
    return all(
        isinstance(piece, Span)
        and isinstance(piece.storage, File)
        and piece.storage.path.parent.name == folder
        for piece in tensor.pieces()
    )
