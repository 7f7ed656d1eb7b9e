"""What a verification found, and how far it reached: the one rule, for all who report it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from converter.notebook import render_table
from converter.options import LEVELS, Options
from converter.verification.report import GraphReport
from formats.core.bundle import JSON
from formats.errors import DependencyError, VerificationError


def find_level(*, weights: bool, graphs: Iterable[str | None]) -> str:
    """Return how far an output is verified: the least over all that was to be verified.

    A graph that was not compared counts as far as the weights were verified.

    Args:
        weights: Whether at least one tensor was compared, and all were equal.
        graphs: For each graph that was to be compared, ``cpu`` or ``device`` where it was run and
            agreed, ``smoke`` where it ran alone, None where it was not run.

    Returns:
        ``none``, ``smoke``, ``weights``, ``cpu`` or ``device``.
    """
    least = "weights" if weights else "none"
    levels = (
        max(least, level or least, key=LEVELS.index) if level in (None, "smoke") else level
        for level in graphs
    )
    return min(levels, key=LEVELS.index, default=least)


@dataclass(frozen=True, slots=True)
class Weights:
    """What a comparison of weights found, bit for bit.

    Attributes:
        tensors: Number of tensors that are equal.
        nbytes: Their bytes, each storage once; 0 where they were not counted.
        different: Tensors of the source that are changed or missing, each with what is wrong.
    """

    tensors: int
    nbytes: int = 0
    different: tuple[str, ...] = ()


def merge_weights(reports: Sequence[Weights | None]) -> Weights | None:
    """Return the comparison of several files; None if one of them was not compared."""
    known = [report for report in reports if report is not None]
    if not known or len(known) < len(reports):
        return None
    return Weights(
        sum(report.tensors for report in known),
        sum(report.nbytes for report in known),
        tuple(name for report in known for name in report.different),
    )


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """What was compared of an output, and what was found.

    Attributes:
        weights: The comparison of weights, bit for bit; None where none was made.
        graphs: Each graph that was to be compared with the source's, by signature.
        precision: Each graph of reduced precision, compared with the same in full precision.
    """

    weights: Weights | None = None
    graphs: Mapping[str, GraphReport] = field(default_factory=dict)
    precision: Mapping[str, GraphReport] = field(default_factory=dict)

    @property
    def graph(self) -> GraphReport | None:
        """The comparison of the default graph, or None where none was to be compared."""
        return next(iter(self.graphs.values()), None)

    @property
    def reports(self) -> tuple[GraphReport, ...]:
        """All comparisons of graphs."""
        return (*self.graphs.values(), *self.precision.values())

    @property
    def failed(self) -> bool:
        """Whether anything that was compared differs."""
        weights = self.weights
        return bool(weights and weights.different) or any(
            report.status == "failed" for report in self.reports
        )

    @property
    def level(self) -> str:
        """How far it is verified: ``none``, ``smoke``, ``weights``, ``cpu`` or ``device``."""
        if self.failed:
            return "none"
        compared = self.weights is not None and self.weights.tensors > 0
        return find_level(weights=compared, graphs=(r.reached for r in self.reports))

    def __repr__(self) -> str:
        parts = [": ".join(row) for row in self._rows()]
        return f"<Verification {'; '.join(parts)}>"

    def _repr_html_(self) -> str:
        return render_table("verification", self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        """Return what was compared, and what was found, in words."""
        rows = [("level", self.level)]
        if self.weights is not None:
            equal, wrong = self.weights.tensors, len(self.weights.different)
            rows.append(("weights", f"{equal} equal, {wrong} different"))
        graphs = (("graph", self.graphs), ("precision", self.precision))
        return rows + [
            (f"{kind} {name}".strip(), f"{report.status} {report.reason}".strip())
            for kind, found in graphs
            for name, report in found.items()
        ]

    def check(self, options: Options) -> None:
        """Hold what was verified against what was asked for.

        Raises:
            VerificationError: It is less.
            DependencyError: It is less because something is not installed.
        """
        asked = {options.require, options.verify} - {None, "none", "auto"}
        if "device" in asked or "cpu" in asked:
            for report in self.reports:
                _check_graph(report, asked, options.device)
        needed = max((level for level in asked if level), key=LEVELS.index, default="none")
        if options.require is None and options.verify == "weights":
            return  # an output without weights of its own was not asked for more
        if LEVELS.index(self.level) < LEVELS.index(needed):
            raise VerificationError(
                f"verified as far as {self.level!r}, and {needed!r} is required"
                if self.level != "none"
                else f"nothing was compared, and {needed!r} is required"
            )

    def manifest(self, tensors: int, signatures: Sequence[str]) -> dict[str, JSON]:
        """Return it as manifests have it: the same conversion gives the same bytes each time.

        Args:
            tensors: How many there are in the output.
            signatures: Of its graphs, the default one first.
        """
        weights = self.weights
        reason = "--verify none" if tensors else "there are no tensors"
        passed = "the output was read again and compared bit for bit with the source"
        status = "not run" if weights is None else "failed" if weights.different else "passed"
        reports = {name: _without_time(report.plain()) for name, report in self.graphs.items()}
        first, *others = signatures or ("",)
        return {
            "reached": self.level,
            "weights": {
                "status": status,
                "detail": reason if weights is None else passed,
                "tensors": 0 if weights is None else weights.tensors,
                "bytes": 0 if weights is None else weights.nbytes,
            },
            "graph": reports.get(first),
            **({"graphs": {name: reports.get(name) for name in others}} if others else {}),
        }


def _check_graph(report: GraphReport, asked: "set[str | None]", device: str | None) -> None:
    if report.status != "passed":
        is_elsewhere = report.lacking or report.is_failing
        kind = DependencyError if is_elsewhere else VerificationError
        raise kind(
            f"the graph was not compared, which is required: {report.reason}", hint=report.lacking
        )
    if "device" in asked and report.reached != "device":
        reason = "nothing was asked to run there" if report.device is None else report.device.reason
        raise DependencyError(f"{device} was not verified, which is required: {reason}")


def _without_time(report: dict[str, JSON]) -> dict[str, JSON]:
    return {key: value for key, value in report.items() if key != "seconds"}
