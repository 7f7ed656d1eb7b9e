"""An output that was just written, compared with its source: graphs by running both.

What is run, and by whom, follows from the format of the output.
"""

from collections.abc import Generator, Mapping
from pathlib import Path

from converter.events import Compared, Step
from converter.options import Options
from converter.verification.report import GraphReport
from converter.verification.result import Verification
from converter.verification.verdicts import judged, judged_precision
from converter.write.plan import Plan
from converter.write.readback import WeightsReport
from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import Bundle

# Formats of outputs that hold the source's own program.
PROGRAMS = ("keras", "savedmodel", "torchscript", "torch-export")


def compare_output(
    source: Path,
    bundle: Bundle,
    plan: Plan,
    written: Path,
    weights: WeightsReport | None,
    format: str,
    options: Options,
) -> Generator[Compared | Step, None, Verification]:
    """Run a source and what was written of it on the same inputs, where both runtimes are here.

    Args:
        source: The artifact.
        bundle: As its plan was made of.
        plan: What was written.
        written: Where.
        weights: What the comparison of weights has found.
        format: The row of `formats.catalog` that the output is of.
        options: Of the conversion.

    Raises:
        VerificationError: The outputs differ.
        EnvironmentFault: A child died, hung, or took too much memory.
    """
    if options.verify in ("none", "weights"):
        return Verification(weights)
    files = plan.graph_files()
    found: Mapping[str, GraphReport] = {}
    precision: dict[str, GraphReport] = {}
    if files:
        from converter.verification.graphs import verify_graph
        from converter.verification.options import verification_of

        reports = {}
        for file in files:
            name = file.graph.signature
            how = verification_of(options, name or None)
            report = verify_graph(source, bundle, file.path, options=how)
            yield from _tell(report, name, several=len(files) > 1)
            reports[name] = report
        found = reports
        for file in files:
            if file.reduced is None:
                continue
            from converter.passes.reduce_precision import NARROW
            from converter.verification.precision import verify_precision
            from converter.write.onnx import EMULATED

            name, narrow = file.graph.signature, str(options.precision)
            report = verify_precision(
                file.path, file.emulated or file.reduced, file.graph, NARROW[narrow],
                there=file.reduced, options=verification_of(options),
            )  # fmt: skip
            yield Compared(f"{name} in {narrow}".lstrip(), report.plain())
            yield from judged_precision(
                report, NARROW[narrow], emulated=options.precision in EMULATED
            )
            precision[name] = report
    else:
        found = _compare_program(source, bundle, plan, written, format, options)
        for name, report in found.items():
            for note in report.notes if format == "keras" else ():
                yield Step("warning", note)
            yield from _tell(report, name, several=len(found) > 1)
    return Verification(weights, found, precision)


def _tell(
    report: GraphReport, name: str, *, several: bool
) -> Generator[Compared | Step, None, None]:
    yield Compared(name, report.plain())
    yield from judged(report, name if several else "")


def _compare_program(
    source: Path, bundle: Bundle, plan: Plan, written: Path, format: str, options: Options
) -> Mapping[str, GraphReport]:
    """Compare the source's own program, as it was written again; nothing where nothing runs."""
    if format not in PROGRAMS:
        return {}
    from converter.verification.options import verification_of  # it brings numpy

    how = verification_of(options)
    if format == "keras":
        from converter.verification.keras_files import verify_keras

        return {"": verify_keras(source, bundle, written, options=how)}
    if format == "savedmodel":
        from converter.devices.savedmodel.retarget import why_incomparable
        from converter.verification.savedmodel_files import verify_savedmodel

        rewritten = catalog.read(Artifact(written, options.limits), format)
        unlike = why_incomparable(plan.bundle.metadata.normalisations)
        return verify_savedmodel(source, bundle, written, rewritten, unlike=unlike, options=how)
    from converter.verification.torch_programs import verify_program

    return verify_program(source, bundle, written, options)
