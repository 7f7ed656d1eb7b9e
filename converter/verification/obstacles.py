"""Say why a model cannot or must not be run here, in a report that fails nothing."""

from collections.abc import Sequence

from converter.extras import describe_install
from converter.options import Options
from converter.verification.report import GraphReport
from converter.verification.runners import RunSkipped, has_onnxruntime
from converter.verification.sources.keras import FRAMEWORKS
from converter.verification.sources.torch import topology_kind
from formats.core.bundle import Bundle, SafetyFinding
from formats.errors import CorruptError

REFERENCE = "pickle-reference"  # a finding that runs nothing
DAMAGE = ("DataLossError", "BadZipFile", "Bad CRC-32")  # in words of frameworks


def find_obstacle(bundle: Bundle, options: Options, *, needs_onnx: bool) -> GraphReport | None:
    """Return the report of a source that cannot or must not be run here, or None."""
    kind = topology_kind(bundle, options.arch)
    if not kind:
        return GraphReport("not run", "the source holds no graph")
    if kind not in FRAMEWORKS:
        return GraphReport("not run", f"graphs of kind {kind} are not run yet")
    # What Keras looks up by name, it finds in trusted modules or nowhere.
    findings = [
        f
        for f in bundle.metadata.findings
        if f.kind != REFERENCE and (f.kind != "custom-object" or not options.trust)
    ]
    if findings:
        found = describe_findings(findings)
        return GraphReport("not run", f"the source would run code of its own ({found})")
    if needs_onnx and not has_onnxruntime():
        return report_missing_onnxruntime()
    framework = FRAMEWORKS[kind]
    if not framework.may_be_here():
        return report_skipped(RunSkipped("", is_missing=True), framework.name)
    return None


def describe_findings(findings: Sequence[SafetyFinding]) -> str:
    """Return the first finding, and the number of further ones."""
    rest = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
    return f"{findings[0].kind}: {findings[0].subject}{rest}"


def report_missing_onnxruntime() -> GraphReport:
    """Return the report for a missing onnxruntime."""
    return GraphReport("not run", "onnxruntime is not installed", lacking=describe_install("cpu"))


def report_skipped(run: RunSkipped, framework: str) -> GraphReport:
    """Return the report of a model that no installed framework runs.

    Raises:
        CorruptError: The framework finds the source damaged.
    """
    if any(word in run.reason for word in DAMAGE):
        raise CorruptError(f"{framework} finds the source damaged: {run.reason}")
    if run.is_missing:
        return GraphReport(
            "not run",
            f"no {framework} is installed that could run the source"
            + (f" ({run.reason})" if run.reason else ""),
            lacking=describe_install("torch" if framework == "torch" else "tensorflow"),
        )
    if run.failure:
        reason = f"the source itself fails on every input that was drawn: {run.failure}"
        return GraphReport("not run", reason, is_failing=True)
    return GraphReport(
        "not run", f"no {framework} here runs the source: verified on weights only ({run.reason})"
    )
