"""Compare the tensors of an artifact that was moved to another device with its source's."""

from collections.abc import Callable

from converter.write.readback import WeightsReport
from formats.core.bundle import Bundle
from formats.core.output import STRIDE
from formats.core.storage import Span
from formats.core.weights import Tensor
from formats.errors import VerificationError


def compare_tensors(
    source: Bundle, output: Bundle, compare: Callable[[str, Tensor, Tensor], int]
) -> WeightsReport:
    """Compare all tensors of two bundles, those of training state too, and their signatures.

    Args:
        source: As read from the source.
        output: As read from what was written.
        compare: Compares two tensors of one dtype and shape, raises where they differ, and returns
            how many bytes it compared.

    Raises:
        VerificationError: Names, dtypes, shapes, order, elements or signatures differ.
    """
    tensors = nbytes = 0
    groups = [(source.weights, output.weights)]
    groups += [(source.leftovers[g], output.leftovers.get(g, {})) for g in source.leftovers]
    for theirs, ours in groups:
        if list(theirs) != list(ours):
            name = next(iter(theirs.keys() ^ ours.keys()), "their order")
            raise VerificationError("the output has other tensors than the source", where=name)
        for name, tensor in theirs.items():
            if (tensor.dtype, tensor.shape) != (ours[name].dtype, ours[name].shape):
                raise VerificationError("the tensor has another type or shape", where=name)
            nbytes += compare(name, tensor, ours[name])
            tensors += 1
    if source.signatures != output.signatures:
        raise VerificationError("the signatures of the output are not the source's")
    return WeightsReport(tensors, nbytes, {}, {})


def compare_elements(name: str, theirs: Tensor, ours: Tensor) -> int:
    """Compare the elements of two tensors in memory; return their bytes.

    Raises:
        VerificationError: They differ.
    """
    if theirs.tobytes() != ours.tobytes():
        raise VerificationError("the tensor differs from the source", where=name)
    return theirs.nbytes


def compare_spans(name: str, theirs: Span, ours: Span, what: str) -> int:
    """Compare two spans of bytes, a block at a time; return their length.

    Args:
        name: Of the tensor or file, for the message.
        theirs: Of the source.
        ours: Of the output.
        what: They are, for the message: ``tensor``, ``copy``.

    Raises:
        VerificationError: They differ.
    """
    if theirs.length != ours.length:
        raise VerificationError(f"the {what} has another length", where=name)
    for at in range(0, theirs.length, STRIDE):
        count = min(STRIDE, theirs.length - at)
        if theirs.read(at, count) != ours.read(at, count):
            raise VerificationError(f"the {what} differs from the source", where=name, offset=at)
    return theirs.length
