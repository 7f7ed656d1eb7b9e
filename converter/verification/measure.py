"""How far outputs of two runtimes are apart, as frozen records and as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from formats.core.bundle import JSON

# What is said of a difference: none; as large as rounding explains; within a tolerance of the user,
# or of the dtype where noise cannot be measured; noise as large as the values; more than rounding.
Verdict = Literal["equal", "explained", "tolerated", "ill-conditioned", "unexplained"]


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime and the device that it computed on.

    Attributes:
        name: ``onnxruntime``, ``keras``, ``tf_keras``.
        version: Its version.
        device: Device that computed its outputs, as it names it.
        versions: Versions of Python, the backend and numpy.
    """

    name: str
    version: str
    device: str
    versions: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} {self.version} on {self.device}"

    def plain(self) -> dict[str, JSON]:
        """Return it as JSON types."""
        return {
            "name": self.name,
            "version": self.version,
            "device": self.device,
            "versions": dict(self.versions),
        }


@dataclass(frozen=True, slots=True)
class Measure:
    """The difference between an output and its expected value.

    Attributes:
        name: Name of the output or layer.
        dtype: Dtype in the source.
        shape: Shape in the source, in the case with the worst difference.
        elements: Number of compared elements, over all cases.
        scale: Largest finite magnitude in the source.
        max_abs: Largest absolute difference.
        max_rel: That difference as a fraction of ``scale``.
        cosine: Cosine similarity of both as vectors; the minimum over all cases.
        worst_index: Index of the largest difference.
        worst_case: Case of the largest difference.
        expected: Element of the source there.
        found: Element of the converted model there.
        smallest_atol: The smallest atol that would pass with an rtol of zero.
        smallest_rtol: The smallest rtol that would pass with an atol of zero.
        atol: Allowed atol, at the worst case's scale.
        rtol: Allowed rtol, likewise.
        decades: Histogram of the differences as fractions of ``scale``: zero; below 1e-9; each
            power of ten from there to 1; 1 and more, or not finite.
        says_little: Whether it hardly depends on the inputs, so that it hides earlier differences.
        problems: Why it failed, one string for each kind of reason; empty if it passed.
        verdict: Whether rounding explains the difference.
        noise: Root mean square of the noise of rounding; None where it was not measured.
        source_error: Root mean square of the source's error, against the exact result of the
            converted graph in float64; None where that was not computed.
        converted_error: The same of the converted model's error.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    elements: int = 0
    scale: float = 0.0
    max_abs: float = 0.0
    max_rel: float = 0.0
    cosine: float = 1.0
    worst_index: tuple[int, ...] | None = None
    worst_case: str = ""
    expected: float | str | None = None
    found: float | str | None = None
    smallest_atol: float = 0.0
    smallest_rtol: float = 0.0
    atol: float = 0.0
    rtol: float = 0.0
    decades: tuple[int, ...] = ()
    says_little: bool = False
    problems: tuple[str, ...] = ()
    verdict: Verdict = "tolerated"
    noise: float | None = None
    source_error: float | None = None
    converted_error: float | None = None

    @property
    def passed(self) -> bool:
        """Whether it has no problems."""
        return not self.problems

    def plain(self) -> dict[str, JSON]:
        """Return it as JSON types; non-finite numbers are null."""
        return {
            "name": self.name,
            "passed": self.passed,
            "verdict": self.verdict,
            "problems": [*self.problems],
            "dtype": self.dtype,
            "shape": [*self.shape],
            "elements": self.elements,
            "scale": finite_or_none(self.scale),
            "max_abs": finite_or_none(self.max_abs),
            "max_rel": finite_or_none(self.max_rel),
            "cosine": finite_or_none(self.cosine),
            "worst_index": None if self.worst_index is None else [*self.worst_index],
            "worst_case": self.worst_case,
            "expected": finite_or_none(self.expected),
            "found": finite_or_none(self.found),
            "smallest_atol": finite_or_none(self.smallest_atol),
            "smallest_rtol": finite_or_none(self.smallest_rtol),
            "atol": finite_or_none(self.atol),
            "rtol": finite_or_none(self.rtol),
            "noise": finite_or_none(self.noise),
            "source_error": finite_or_none(self.source_error),
            "converted_error": finite_or_none(self.converted_error),
            "decades": [*self.decades],
            "says_little": self.says_little,
        }


def finite_or_none(value: float | str | None) -> JSON:
    """Return a value, or None for a number that JSON does not have."""
    return None if isinstance(value, float) and not isfinite(value) else value
