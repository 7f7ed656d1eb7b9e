"""Report comparisons of graphs as steps of a conversion."""

from collections.abc import Iterator

from converter.events import Step
from converter.verification.report import DeviceReport, GraphReport
from converter.verification.result import Weights
from formats.core.plurals import count
from formats.errors import VerificationError


def judge_weights(found: Weights | None) -> Iterator[Step]:
    """Yield the result of a comparison of the weights inside graphs.

    Raises:
        VerificationError: Some differ.
    """
    if found is None:
        return
    if found.different:
        raise VerificationError(
            f"weights in the graph differ from the source's: {found.different[0]}"
        )
    yield Step("verified", f"{count('weight', found.tensors)} in the graph, equal bit for bit")


def judge(report: GraphReport, signature: str = "") -> Iterator[Step]:
    """Yield the result of a comparison.

    Raises:
        VerificationError: The outputs differ.
    """
    if report.status == "failed":
        where = report.first_difference
        if report.device is not None and report.device.status == "failed":
            raise VerificationError(report.reason)
        if report.smoke is not None:
            raise VerificationError(f"the graph does not run: {report.reason}")
        raise VerificationError(
            f"the graph does not compute what the source does: {report.reason}",
            where=None if where is None else f"layer {where}",
        )
    if report.status == "passed":
        of = f"graph {signature}" if signature else "graph"
        outputs = count("output", len(report.outputs))
        text = f"{of}: {outputs}, max rel {report.max_rel:.1e}, "
        yield Step("verified", f"{text}{report.converted} beside {report.source}", report.seconds)
        if report.device is not None:
            yield _describe_device(report.device)
    else:
        yield Step("not run", f"comparison of graphs: {explain_not_run(report)}")
        if report.smoke is not None and report.smoke.status == "passed":
            inputs = count("input", len(report.smoke.cases))
            runs = f"{inputs}: outputs as declared, finite, repeatable"
            yield Step("verified", f"the graph runs alone in {report.smoke.runtime} on {runs}")
        elif report.smoke is not None:
            yield Step("not run", f"the graph alone: {report.smoke.reason}")


def explain_not_run(report: GraphReport) -> str:
    """Return why a comparison was not run, and what to install if that is the reason."""
    return f"{report.reason}. {report.lacking}" if report.lacking else report.reason


def _describe_device(report: DeviceReport) -> Step:
    if report.status != "passed":
        return Step("not run", f"comparison on {report.device}: {report.reason}")
    text = f"on {report.device}: {count('pair', len(report.pairs))}, max rel {report.max_rel:.1e}, "
    found = report.converted.placement
    left = (
        f"; {count('part', len(found.elsewhere))} on the CPU" if found and found.elsewhere else ""
    )
    return Step("verified", f"{text}{report.converted.runtime}{left}", report.seconds)


def judge_precision(report: GraphReport, dtype: str) -> Iterator[Step]:
    """Yield the error introduced by reducing the precision of a graph.

    Raises:
        VerificationError: It exceeds the tolerance.
    """
    if report.status == "failed":
        hint = "precision='bf16' has the range of float32" if dtype == "float16" else None
        raise VerificationError(
            f"the graph in {dtype} is too far from that in float32: {report.reason}", hint=hint
        )
    if report.status == "passed":
        bound = max((m.atol / m.scale for m in report.outputs.values() if m.scale), default=0.0)
        text = f"{dtype}: max rel {report.max_rel:.1e} of full precision (bound {bound:.0e}),"
        yield Step("verified", f"{text} {report.converted}, rounded at each node", report.seconds)
        if report.device is not None:
            yield _describe_device(report.device)
    else:
        yield Step("not run", f"comparison of {dtype} with float32: {report.reason}")
