"""Print the result of a verification, as lines or as a JSON document."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from converter.cli.terminal import say

if TYPE_CHECKING:  # keeps `--help` fast
    from converter.verification.measure import Measure
    from converter.verification.report import DeviceReport, DeviceRun, GraphReport
    from converter.verification.result import Verification

SHOWN = 20  # names of tensors that differ, or of nodes on other devices


def document(source: str, converted: str, found: "Verification") -> None:
    """Print one JSON document."""
    from converter.cli.render import document as show

    compared: dict[str, Any] | None = None
    if found.weights is not None:
        compared = {"equal": found.weights.tensors, "different": [*found.weights.different]}
    first, *others = found.graphs.values() or (None,)
    show({
        "source": source,
        "converted": converted,
        "verified": None if found.level == "none" else found.level,
        "weights": compared,
        "graph": None if first is None else first.plain(),
        "graphs": {name: r.plain() for name, r in found.graphs.items()} if others else {},
    })  # fmt: skip


def lines(found: "Verification", require: str | None, *, layers: bool) -> None:
    """Print the findings, those of layers if wanted, and last the level reached."""
    weights = found.weights
    if weights is None:
        say("weights     not compared: the converted artifact keeps none as the source has them")
    else:
        say(f"weights     {weights.tensors} equal, {len(weights.different)} different")
        for name in weights.different[:SHOWN]:
            say(f"            {name}")
    if not found.graphs:
        say("graph       not run: the converted artifact has none")
    for name, report in found.graphs.items():
        if len(found.graphs) > 1:
            say(f"file        {name}")
        _graph(report, layers=layers)
    text = "nothing" if found.level == "none" else found.level
    if require is not None and text != require:
        text += f" (required: {require})"
    say(f"verified    {text}")


def _graph(report: "GraphReport", *, layers: bool) -> None:
    say(f"graph       {report.status}" + (f": {report.reason}" if report.reason else ""))
    if report.lacking:
        say(f"            try {report.lacking}")
    if report.source and report.converted:
        say(f"source      {report.source}")
        say(f"converted   {report.converted}")
        seed = "" if report.seed is None else f"; seed {report.seed}"
        say(f"inputs      {', '.join(case.name for case in report.cases)}{seed}")
    for text in report.skipped:
        say(f"skipped     {text}")
    for text in report.notes:
        say(f"note        {text}")
    _measures(report.outputs.values())
    first = report.first_difference
    if first is not None:
        say(f"layer       {first}: max rel {first.measure.max_rel:.3g}")
        if first.last_equal is not None:
            say(f"            {first.last_equal!r} before it is the same")
    for one in report.layer_errors if layers else ():
        noise = "" if one.noise is None else f"  noise {one.noise:.3g}"
        verdict = "layer same" if one.passed else "layer DIFFERS"
        say(f"{verdict:<13} {one.layer} ({one.class_name})  max rel {one.error:.3g}{noise}")
    if report.device is not None:
        _device(report.device)


def _measures(found: "Iterable[Measure]") -> None:
    found = list(found)
    width = max((len(m.name) for m in found), default=0)
    for m in found:
        verdict = "same" if m.passed else "DIFFERS"
        say(
            f"{verdict:<11} {m.name:<{width}}  max abs {m.max_abs:.3g}  max rel {m.max_rel:.3g}"
            f"  cosine {m.cosine:.7f}"
        )
        if not m.passed:
            where = "" if m.worst_index is None else f" at {list(m.worst_index)}"
            say(f"{'':<11} {'; '.join(m.problems)}")
            say(f"{'':<11} worst{where}: {m.found}, not {m.expected}")
            say(
                f"{'':<11} would pass with atol {m.smallest_atol:.3g} or rtol {m.smallest_rtol:.3g}"
            )


def _device(report: "DeviceReport") -> None:
    tf32 = "allowed" if report.allow_tf32 else "off"
    # Failures there are already in the graph's own reason.
    said = f": {report.reason}" if report.status == "not run" else f" (TF32 {tf32})"
    say(f"device      {report.device}: {report.status}{said}")
    for name, side in (("source", report.source), ("converted", report.converted)):
        for i, text in enumerate(_side(side)):
            say(f"{'' if i else name:<11} {text}")
    for name, pair in report.pairs.items():
        say(f"compared    {name}")
        _measures(pair.values())


def _side(side: "DeviceRun") -> Iterator[str]:
    """Yield lines on one of the two models on the device."""
    if side.runtime is None or side.placement is None:
        yield f"{side.status}: {side.reason}"
    else:
        yield f"{side.status}: {side.runtime} ({side.placement.how})"
    placement = side.placement
    if placement is None:
        return
    known = {**placement.facts, **placement.switches}
    if known:
        yield ", ".join(f"{key} {value}" for key, value in known.items())
    for what, places in placement.counts.items():
        counts = ", ".join(f"{n} on {place or 'no device'}" for place, n in places.items())
        yield f"{what}s: {counts}"
    for part in placement.elsewhere[:SHOWN]:
        yield f"elsewhere: {part}"
    if len(placement.elsewhere) > SHOWN:
        yield f"elsewhere: and {len(placement.elsewhere) - SHOWN} more"
