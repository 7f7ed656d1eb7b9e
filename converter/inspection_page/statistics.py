"""Statistics and histograms of tensors, with bounded work and memory.

At most `BUDGET` elements of a model are read. Tensors with more elements than `element_limit`
returns are sampled: runs of `RUN` elements at equal distances, the first at the start of the
tensor. The same artifact always gives the same figures.
"""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.core.weights import Tensor

if TYPE_CHECKING:
    import numpy as np

BUDGET = 1 << 26  # elements read of one model
MOST = 1 << 22  # elements read of one tensor
RUN = 1 << 12  # elements of a run of a sample; a multiple of 8: of whole bytes at any width
BANDS = 32  # bands of a histogram


class TensorStatistics(NamedTuple):
    """Statistics of the elements of a tensor, or of a sample of them.

    Attributes:
        elements: Number of elements that were read.
        sampled: Whether the tensor has more elements than these.
        nan: Number of NaN among them.
        infinite: Number of infinities.
        zeros: Number of zeros.
        minimum: Smallest finite element; None if there is none, as for the next three.
        maximum: Largest finite element.
        mean: Mean of finite elements.
        deviation: Standard deviation of finite elements.
        histogram: Finite elements in each of `BANDS` equal bands from minimum to maximum; one band
            where these are equal; empty if there are none.
        absolute: Whether the figures are of absolute values, as those of complex numbers are.
    """

    elements: int
    sampled: bool
    nan: int
    infinite: int
    zeros: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    deviation: float | None
    histogram: tuple[int, ...]
    absolute: bool


def element_limit(sizes: Collection[int], budget: int = BUDGET, most: int = MOST) -> int:
    """Return the number of elements up to which tensors are read whole.

    It is the largest one for which at most ``budget`` elements are read in all, and at most
    ``most``; at least `RUN`.
    """
    left = budget
    ordered = sorted(sizes)
    for i, size in enumerate(ordered):
        share = left // (len(ordered) - i)
        if size > share:
            return max(min(share, most), RUN)
        left -= size
    return most


def compute_statistics(tensor: Tensor, limit: int) -> TensorStatistics:
    """Return statistics of a tensor; with more than ``limit`` elements, of a sample.

    Raises:
        CorruptError: The tensor cannot be read.
    """
    import numpy as np

    sampled = tensor.size > limit
    values = sample_elements(tensor, limit) if sampled else tensor.numpy().ravel()
    absolute = values.dtype.kind == "c"
    with np.errstate(all="ignore"):
        if absolute:
            values = np.abs(values)
        if values.dtype not in (np.float32, np.float64):
            # Integers, bool and short floats: float32 represents those of 16 bits exactly.
            values = values.astype(np.float32 if tensor.dtype.bits <= 16 else np.float64)
        finite = values[np.isfinite(values)]
        nan = int(np.count_nonzero(np.isnan(values)))
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
        return TensorStatistics(
            elements=values.size,
            sampled=sampled,
            nan=nan,
            infinite=values.size - finite.size - nan,
            zeros=values.size - int(np.count_nonzero(values)),
            minimum=low,
            maximum=high,
            mean=float(finite.mean(dtype=np.float64)) if finite.size else None,
            deviation=float(finite.std(dtype=np.float64)) if finite.size else None,
            histogram=() if low is None or high is None else _count_bands(finite, low, high),
            absolute=absolute,
        )


def sample_elements(tensor: Tensor, limit: int) -> "np.ndarray[Any, Any]":
    """Return at most ``limit`` elements of a larger tensor: runs of `RUN`, at equal distances."""
    runs = max(limit // RUN, 1)
    stride = tensor.size // runs // RUN * RUN
    step, width = tensor.dtype.nbytes(stride), tensor.dtype.nbytes(RUN)
    extent = tensor.extent()
    if extent is not None:
        data = b"".join(extent.read(i * step, width) for i in range(runs))
    else:
        data = b"".join(_runs_of_stream(tensor, runs, step, width))
    return Tensor.inline(tensor.dtype, (runs * RUN,), data).numpy()


def _runs_of_stream(tensor: Tensor, runs: int, step: int, width: int) -> Iterator[bytes]:
    """Yield the bytes of runs of a tensor that can only be read from its start."""
    position, run = 0, 0
    for chunk in tensor.chunks():
        while run < runs:
            begin = max(run * step - position, 0)
            end = run * step + width - position
            yield chunk[begin : min(end, len(chunk))]
            if end > len(chunk):
                break
            run += 1
        position += len(chunk)


def _count_bands(finite: "np.ndarray[Any, Any]", low: float, high: float) -> tuple[int, ...]:
    import numpy as np

    if low == high:
        return (finite.size,)
    # Halves: the difference of the largest and the smallest double is not a double.
    scale = high / 2 - low / 2
    position = (finite / 2 - low / 2).astype(np.float64, copy=False) / scale
    bands = np.minimum(np.maximum(position * BANDS, 0).astype(np.intp), BANDS - 1)
    return tuple(np.bincount(bands, minlength=BANDS).tolist())
