"""Decide whether rounding explains the difference of two outputs.

Two runtimes that compute the same model differ by rounding only. How much that is for this model on
these inputs is measured (see `converter.verification.noise`), per element; the difference must be
of that size as a whole, in each slice along each axis (a channel, a column, a sample), and in each
element. Where the noise is as large as the values, nothing can be said.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from converter.verification.measure import Measure

# How many times the noise a difference may be, by its root mean square over the output, over a
# slice, and in an element. Both runtimes are off, and fewer numbers measure noise less well.
OUTPUT_FACTOR, SLICE_FACTOR, ELEMENT_FACTOR = 4.0, 6.0, 12.0
SLICE_ELEMENTS = 16  # the smallest slice whose noise is measured well enough
# An element whose noise is a larger part of the output's scale is undecided.
UNDECIDED = 0.125
TRUSTED = 16.0  # an exact result that is further off, in noises, is not of this graph
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
TINY = 2.0**-126  # below it, runtimes flush to zero

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one output in one case.

    Attributes:
        mean_square: Mean square of the changes of each element in runs that differ by rounding.
        largest: The largest of them; of integers, booleans and strings, whether they changed.
        exact: The output in float64, if it was computed.
    """

    mean_square: np.ndarray
    largest: np.ndarray
    exact: np.ndarray | None = None

    @property
    def level(self) -> float:
        """Root mean square of the noise, where it is finite."""
        finite = self.mean_square[np.isfinite(self.mean_square)]
        return sqrt(float(finite.mean())) if finite.size else 0.0

    def scale(self, factor: float) -> "Evidence":
        """Return what is known of the output with a larger noise."""
        return Evidence(self.mean_square * factor**2, self.largest, self.exact)

    def join(self, other: "Evidence") -> "Evidence":
        """Return what is known of the output with the larger noise of two, element by element."""
        if other.largest.shape != self.largest.shape:
            return self
        squares = np.maximum(self.mean_square, other.mean_square)
        return Evidence(squares, np.maximum(self.largest, other.largest), self.exact)

    def transpose(self, axes: Sequence[int]) -> "Evidence":
        """Return what is known of the output with its axes in another order."""
        if self.mean_square.ndim != len(axes):
            return self
        exact = None if self.exact is None else self.exact.transpose(axes)
        return Evidence(self.mean_square.transpose(axes), self.largest.transpose(axes), exact)


SourceNoise = Mapping[tuple[int, int], Evidence]  # by the indices of the case and of the output


def judge_numbers(
    measure: Measure, expected: Array, found: Array, dtype: str, evidence: Evidence
) -> Measure:
    """Return the measure of two outputs of floating point numbers, with its verdict.

    Args:
        measure: What was measured without regard to noise.
        expected: The source's output in float64.
        found: The converted model's output in float64.
        dtype: Dtype of both.
        evidence: Noise of the output, and its exact result.
    """
    if evidence.largest.shape != expected.shape:
        return replace(
            measure, verdict="ill-conditioned", problems=()
        )  # rounding changes even the shape
    finite = np.isfinite(expected) & np.isfinite(found)
    same = (expected == found) | (np.isnan(expected) & np.isnan(found))
    if same.all():
        # A result that is not a number says nothing of how it was computed.
        is_number = not np.isnan(expected).all()
        return replace(measure, verdict="equal" if is_number else "ill-conditioned", problems=())
    scale = _rms(expected[finite])
    undecided = ~same & np.where(
        finite, evidence.largest > UNDECIDED * scale, np.isinf(evidence.largest)
    )
    odd = ~same & ~finite & ~undecided
    gap = np.where(finite & ~undecided, expected - found, 0.0)
    noise = np.where(finite & ~undecided, evidence.mean_square, 0.0)
    noise = np.where(np.isfinite(noise), noise, 0.0)
    noise += (EPSILON.get(dtype, 0.0) * np.where(finite, np.abs(expected), 0.0)) ** 2 + TINY**2
    level = sqrt(float(noise.mean()))
    measure = replace(measure, noise=level, atol=OUTPUT_FACTOR * level)
    allowed = noise
    if evidence.exact is not None and evidence.exact.shape == expected.shape:
        theirs, ours = ((a - evidence.exact)[finite] for a in (expected, found))
        if _rms(ours) <= TRUSTED * level:
            measure = replace(measure, source_error=_rms(theirs), converted_error=_rms(ours))
            error = np.where(finite, found - evidence.exact, 0.0) ** 2
            allowed = np.maximum(noise, np.where(np.isfinite(error), error, 0.0))
    if 2 * np.count_nonzero(undecided) > expected.size and not odd.any():
        return replace(measure, verdict="ill-conditioned", problems=())
    problems = [*_describe_odd(odd), *_find_excess(gap**2, allowed)]
    if problems:
        return replace(measure, verdict="unexplained", problems=tuple(problems))
    return replace(measure, verdict="explained", problems=())


def judge_decisions(measure: Measure, differs: Array, evidence: Evidence) -> Measure:
    """Return the measure of integers, booleans or strings, with its verdict.

    An element may differ only where rounding changes it, too: a choice between near equals.

    Args:
        measure: What was measured without regard to noise.
        differs: Which elements differ.
        evidence: Which elements change by rounding.
    """
    if not differs.any():
        return replace(measure, verdict="equal", problems=())
    if evidence.largest.shape != differs.shape:
        return replace(measure, verdict="ill-conditioned", problems=())
    changing = evidence.largest > 0
    if not (differs & ~changing).any():
        rare = 2 * np.count_nonzero(changing) <= differs.size
        return replace(measure, verdict="explained" if rare else "ill-conditioned", problems=())
    return replace(measure, verdict="unexplained")


def _describe_odd(odd: Array) -> Iterator[str]:
    if count := np.count_nonzero(odd):
        yield f"{count} of {odd.size} elements are not finite on one side only"


def _find_excess(gap: Array, allowed: Array) -> Iterator[str]:
    """Yield where the mean squares of a difference are more than rounding explains."""
    whole = _ratio(gap.mean(), allowed.mean())
    if whole > OUTPUT_FACTOR:
        yield f"differs by {whole:.3g} times the rounding noise"
        return
    group = np.full(gap.shape, float(allowed.mean()))
    for axis in range(gap.ndim):
        others = tuple(i for i in range(gap.ndim) if i != axis)
        if gap.shape[axis] < 2 or gap.size // gap.shape[axis] < SLICE_ELEMENTS:
            continue
        noise = allowed.mean(axis=others, keepdims=True)
        group = np.minimum(group, noise)
        ratios = np.sqrt(gap.mean(axis=others) / noise.reshape(-1))
        worst = int(np.argmax(ratios))
        if ratios[worst] > SLICE_FACTOR:
            yield (
                f"differs by {ratios[worst]:.3g} times the rounding noise at index {worst} "
                f"of axis {axis}"
            )
            return
    ratios = np.sqrt(gap / (allowed + group))
    worst = int(np.argmax(ratios))
    if ratios.flat[worst] > ELEMENT_FACTOR:
        where = [int(i) for i in np.unravel_index(worst, gap.shape)]
        yield f"differs by {ratios.flat[worst]:.3g} times the rounding noise at {where}"


def _ratio(gap: float, noise: float) -> float:
    return sqrt(float(gap) / float(noise)) if noise else float("inf") if gap else 0.0


def _rms(array: Array) -> float:
    array = array[np.isfinite(array)]
    if not array.size:
        return 0.0
    largest = float(np.abs(array).max()) or 1.0  # squares of large numbers stay finite
    return largest * sqrt(float(np.mean(np.square(array / largest))))
