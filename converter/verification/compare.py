"""Comparison of arrays: how far they differ, and whether the tolerance allows it.

An element passes where ``|found - expected| <= atol + rtol * |expected|``. By default rtol is zero
and atol a fraction of the output's scale, its largest magnitude: the rounding errors of a deep
model grow with its sums, not with each result. NaN and infinities must be at the same indices;
integers, booleans and strings must be equal. A comparison without elements fails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from converter.verification.measure import Measure, Verdict
from converter.verification.verdict import Evidence, judge_decisions, judge_numbers

# dtype -> tolerance as a fraction of an output's scale: for float32 the rounding errors of the
# deepest CNNs, for the other dtypes about as many of their roundings.
RELATIVE: Mapping[str, float] = {
    "float64": 1e-7,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 5e-2,
    "8 bits": 5e-2,  # of intermediate values: no output has this dtype
}
ROUNDED = "8 bits"
VERDICTS: Sequence[Verdict] = (
    "equal", "explained", "tolerated", "ill-conditioned", "unexplained",
)  # fmt: skip
EMPTY = "has no element to compare"
DECADES = 10.0 ** np.arange(-9, 1)  # upper bounds of the bins of `Measure.decades`
LEAST_SCALE = 1e-10  # of an output: one that is saturated to almost zero has rounding errors only


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Tolerance of a comparison, by output; the empty name is the default of all outputs.

    Attributes:
        atol: Absolute tolerances that the user set.
        rtol: Relative tolerances that the user set.
        precision: The coarsest floating point dtype of the model, which sets the default.
    """

    atol: Mapping[str, float] = field(default_factory=dict)
    rtol: Mapping[str, float] = field(default_factory=dict)
    precision: str = "float32"

    def of(self, name: str, dtype: str, scale: float) -> tuple[float, float]:
        """Return atol and rtol of an output."""
        if dtype not in RELATIVE:
            return 0.0, 0.0
        noise = max(RELATIVE[dtype], RELATIVE[self.precision])
        atol = self.atol.get(name, self.atol.get("", noise * max(scale, LEAST_SCALE)))
        return atol, self.rtol.get(name, self.rtol.get("", 0.0))

    def is_explicit(self, name: str) -> bool:
        """Return whether the user set a tolerance for an output."""
        return any(key in bounds for bounds in (self.atol, self.rtol) for key in ("", name))

    def general(self) -> "Tolerance":
        """Return the default tolerance of this model, without those that the user set."""
        return Tolerance(precision=self.precision)


@dataclass(frozen=True, slots=True)
class Array:
    """An output, and its dtype in its own runtime.

    numpy has no bfloat16 and no strings: they are float32 and unicode in `data`.
    """

    data: np.ndarray
    dtype: str


def coarsest_dtype(dtypes: "set[str]") -> str:
    """Return the floating point dtype of the least precision; float64 if there is none."""
    return max(dtypes & RELATIVE.keys(), key=lambda d: RELATIVE[d], default="float64")


def compare(
    name: str,
    expected: Array,
    found: Array,
    tolerance: Tolerance,
    case: str = "",
    evidence: Evidence | None = None,
) -> Measure:
    """Compare one output in one case.

    Args:
        name: Name of the output.
        expected: The source's output.
        found: The converted model's output.
        tolerance: Tolerance, which decides if the user set one, or if there is no evidence.
        case: Name of the case.
        evidence: The noise of the output, which decides otherwise.
    """
    measure = Measure(name, expected.dtype, expected.data.shape, worst_case=case)
    problems = []
    if found.dtype != expected.dtype:
        problems.append(f"is {found.dtype}, not {expected.dtype}")
    if found.data.shape != expected.data.shape:
        problems.append(f"has shape {list(found.data.shape)}, not {list(expected.data.shape)}")
    if problems:
        return replace(measure, problems=tuple(problems), verdict="unexplained")
    if not expected.data.size:
        return replace(measure, problems=(EMPTY,))
    if expected.data.dtype.kind not in "fiub":
        measure = _compare_strings(measure, expected.data, found.data)
    else:
        measure = _compare_numbers(measure, expected, found, tolerance)
    if evidence is None or tolerance.is_explicit(name):
        is_equal = not measure.max_abs and measure.passed
        verdict: Verdict = "equal" if is_equal else "tolerated" if measure.passed else "unexplained"
        return replace(measure, verdict=verdict)
    if expected.data.dtype.kind != "f":
        return judge_decisions(measure, expected.data != found.data, evidence)
    a, b = expected.data.astype(np.float64), found.data.astype(np.float64)
    return judge_numbers(measure, a, b, expected.dtype, evidence)


def _compare_strings(measure: Measure, expected: np.ndarray, found: np.ndarray) -> Measure:
    wrong = np.argwhere(expected != found)
    decades = (expected.size - len(wrong), *[0] * DECADES.size, len(wrong))
    measure = replace(measure, elements=expected.size, decades=decades)
    if not len(wrong):
        return measure
    where = tuple(int(i) for i in wrong[0])
    return replace(
        measure,
        worst_index=where,
        expected=str(expected[where]),
        found=str(found[where]),
        problems=(f"{len(wrong)} of {expected.size} texts differ",),
    )


def _compare_numbers(
    measure: Measure, expected: Array, found: Array, tolerance: Tolerance
) -> Measure:
    a, b = expected.data.astype(np.float64), found.data.astype(np.float64)
    finite = np.isfinite(a)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    odd = ~same & ~(finite & np.isfinite(b))
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0, np.abs(a - b))  # equal infinities subtract to NaN
    gap = np.where(odd, np.inf, gap)
    magnitude = np.where(finite, np.abs(a), 0)
    scale = float(magnitude.max())
    atol, rtol = tolerance.of(measure.name, expected.dtype, scale)
    wrong = gap > atol + rtol * magnitude
    if expected.data.dtype.kind in "iu":
        # float64 holds integers up to 2**53 only: those beyond are compared as they are.
        wrong = expected.data != found.data
    worst = np.unravel_index(
        int(np.argmax(np.where(wrong, gap, -1) if wrong.any() else gap)), a.shape
    )
    max_abs = float(gap.max())
    problems = []
    if odd.any():
        problems.append(f"{int(odd.sum())} of {a.size} elements are not finite on one side only")
    far = int((wrong & ~odd).sum())
    if far:
        problems.append(f"{far} of {a.size} elements differ by more than is allowed")
    if not finite.any():
        problems.append("has no finite element to compare")
    return replace(
        measure,
        elements=a.size,
        scale=scale,
        max_abs=max_abs,
        max_rel=_ratio(max_abs, scale),
        cosine=_cosine(a[finite & ~odd], b[finite & ~odd]),
        worst_index=tuple(int(i) for i in worst),
        expected=float(a[worst]),
        found=float(b[worst]),
        smallest_atol=max_abs,
        smallest_rtol=_smallest_rtol(gap, magnitude),
        atol=atol,
        rtol=rtol,
        decades=_decades(gap, scale),
        problems=tuple(problems),
    )


def _decades(gap: np.ndarray, scale: float) -> tuple[int, ...]:
    there = gap[gap > 0]
    counts = np.bincount(np.searchsorted(DECADES * scale, there, "right"), minlength=11)
    return (gap.size - there.size, *map(int, counts))


def _ratio(part: float, whole: float) -> float:
    if not part:
        return 0.0
    return part / whole if whole else float("inf")


def _smallest_rtol(gap: np.ndarray, magnitude: np.ndarray) -> float:
    there = gap > 0
    if not there.any():
        return 0.0
    with np.errstate(divide="ignore"):
        return float((gap[there] / magnitude[there]).max())


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    if not a.size:
        return 1.0
    # Scaled first, so that squares of large numbers stay finite.
    largest = max(float(np.abs(a).max()), float(np.abs(b).max())) or 1.0
    a, b = a / largest, b / largest
    lengths = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    if not lengths:
        return 1.0 if np.array_equal(a, b) else 0.0
    return float(np.clip(np.dot(a.ravel(), b.ravel()) / lengths, -1, 1))


def says_little(outputs: "list[np.ndarray]", atol: float) -> bool:
    """Return whether an output hardly depends on the inputs: at most two values, or constant.

    A softmax of large numbers is an example: zeros and a one, whatever the layers before it do.

    Args:
        outputs: The source's, in all cases; the first axis is the batch.
        atol: Absolute difference below which two values count as equal.
    """
    if any(a.dtype.kind not in "fiub" for a in outputs):
        return False
    step = atol or 1.0
    wide = [np.asarray(a, np.float64) for a in outputs]
    values = np.concatenate([a[np.isfinite(a)].ravel() for a in wide])
    if np.unique(np.round(values / step)).size <= 2:
        return True
    batches = [a for a in wide if a.ndim and len(a) > 1]
    return bool(batches) and all(bool(np.all(np.abs(a - a[:1]) <= step)) for a in batches)


def merge_measures(measures: "Mapping[str, list[Measure]]") -> dict[str, Measure]:
    """Return one measure for each output.

    An output that is empty in both models passes if another output has elements. If none has,
    nothing was compared.
    """
    outputs = {name: merge_cases(found) for name, found in measures.items()}
    if any(measure.elements for measure in outputs.values()):
        for name, found in measures.items():
            if all(measure.problems == (EMPTY,) for measure in found):
                outputs[name] = replace(outputs[name], problems=())
    return outputs


def are_empty(outputs: Mapping[str, Measure]) -> bool:
    """Return whether all outputs have equal shapes in both models, and no elements."""
    return bool(outputs) and all(
        not m.elements and m.problems and all(p.startswith(EMPTY) for p in m.problems)
        for m in outputs.values()
    )


def merge_cases(measures: "list[Measure]") -> Measure:
    """Return one measure of an output for all its cases: the worst of each statistic.

    The worst case is the one that uses most of its tolerance, since scales may differ. Cases in
    which the output is empty count only if it is empty in all.
    """
    measures = [m for m in measures if m.problems != (EMPTY,)] or measures
    worst = max(measures, key=lambda m: (not m.passed, _used_tolerance(m)))
    problems: dict[str, None] = {}
    for m in measures:
        problems.update((f"{p} ({m.worst_case})" if m.worst_case else p, None) for p in m.problems)
    return replace(
        worst,
        elements=sum(m.elements for m in measures),
        max_abs=max(m.max_abs for m in measures),
        max_rel=max(m.max_rel for m in measures),
        cosine=min(m.cosine for m in measures),
        smallest_atol=max(m.smallest_atol for m in measures),
        smallest_rtol=max(m.smallest_rtol for m in measures),
        decades=tuple(map(sum, zip(*(m.decades for m in measures if m.decades), strict=True))),
        problems=tuple(problems),
        verdict=_merge_verdicts([m.verdict for m in measures]),
        source_error=_first_known([m.source_error for m in measures]),
        converted_error=_first_known([m.converted_error for m in measures]),
    )


def _merge_verdicts(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the worst verdict of the cases in which something can be said."""
    decided = [v for v in verdicts if v != "ill-conditioned"] or verdicts
    return max(decided, key=VERDICTS.index)


def _first_known(numbers: Sequence[float | None]) -> float | None:
    return next((n for n in numbers if n is not None), None)


def _used_tolerance(measure: Measure) -> float:
    allowed = measure.atol + measure.rtol * measure.scale
    return _ratio(measure.max_abs, allowed)
