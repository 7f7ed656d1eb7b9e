"""Compare a newly written output with its source: graphs by running both.

The format of the output determines what is run, and in which runtime.
"""

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from converter.child.process import reuse_children
from converter.events import Compared, Started, Step
from converter.options import Options
from converter.verification.report import GraphReport
from converter.verification.report_steps import judge, judge_precision, judge_weights
from converter.verification.result import Verification, Weights, merge_weights
from converter.write.plan import GraphFile, Plan
from converter.write.readback import WeightsReport
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
) -> Generator[Compared | Started | Step, None, Verification]:
    """Run a source and its output on the same inputs, if both runtimes are installed.

    Args:
        source: The artifact.
        bundle: The bundle that the plan is based on.
        plan: The plan of the output.
        written: Path of the output.
        weights: Result of the comparison of weights.
        format: The output's row of `formats.catalog`.
        options: Options of the conversion.

    Raises:
        VerificationError: The outputs differ.
        DependencyError: A child died, hung, or took too much memory.
    """
    found = None if weights is None else Weights(weights.tensors, weights.nbytes)
    if options.verify == "none":
        return Verification(found)
    with reuse_children():
        return (yield from _compare(source, bundle, plan, written, found, format, options))


def _compare(
    source: Path,
    bundle: Bundle,
    plan: Plan,
    written: Path,
    found: Weights | None,
    format: str,
    options: Options,
) -> Generator[Compared | Started | Step, None, Verification]:
    """Compare weights inside graphs, then all graphs."""
    files = plan.graph_files()
    if found is None and files and options.precision is None:
        found = _compare_initializers(bundle, files, options)
        yield from judge_weights(found)
    if options.verify == "weights":
        return Verification(found)
    graphs: Mapping[str, GraphReport] = {}
    precision: dict[str, GraphReport] = {}
    if files:
        graphs = yield from _compare_graphs(source, bundle, files, options)
        if options.verify != "smoke":
            precision = yield from _compare_precision(files, options)
    elif format in PROGRAMS and options.verify != "smoke":
        yield Started("comparing", f"{written.name} with {source.name}, each run by its framework")
        graphs = compare_program(source, bundle, written, format, options, plan.bundle)
        for name, report in graphs.items():
            for note in report.notes if format == "keras" else ():
                yield Step("warning", note)
            yield Compared(name, report.plain())
            yield from judge(report, name if len(graphs) > 1 else "")
    return Verification(found, graphs, precision)


def _compare_initializers(
    bundle: Bundle, files: Sequence[GraphFile], options: Options
) -> Weights | None:
    """Compare the weights inside the ONNX files with the source's; None if that says nothing."""
    from converter.verification.initializers import compare_initializers  # it imports numpy
    from converter.verification.onnx_values import read_interface

    reports = [
        compare_initializers(
            bundle, read_interface(file.path, options.limits), file.graph.signature or None,
            tuple(options.inputs),
        )
        for file in files
    ]  # fmt: skip
    return merge_weights(reports)


def _compare_graphs(
    source: Path, bundle: Bundle, files: Sequence[GraphFile], options: Options
) -> Generator[Compared | Started | Step, None, dict[str, GraphReport]]:
    """Compare each graph with the source's signature that it was lowered from."""
    from converter.verification.graphs import verify_graph  # it imports numpy

    reports = {}
    for file in files:
        name = file.graph.signature
        yield Started("comparing", _describe_comparison(source, file, options))
        report = verify_graph(
            source, bundle, file.path, options=options, signature=name or None, program=file.program
        )
        yield Compared(name, report.plain())
        yield from judge(report, name if len(files) > 1 else "")
        reports[name] = report
    return reports


def _describe_comparison(source: Path, file: GraphFile, options: Options) -> str:
    name = (file.program or file.path).name
    graph = f"{name} ({file.graph.signature})" if file.graph.signature else name
    runtime = "onnxruntime" if file.program is None else "torch"
    if options.verify == "smoke":
        return f"{graph}: running it alone"
    return f"{graph} in {runtime} with {source.name} in its own framework"


def _compare_precision(
    files: Sequence[GraphFile], options: Options
) -> Generator[Compared | Started | Step, None, dict[str, GraphReport]]:
    """Compare each graph of reduced precision with its full-precision version."""
    from converter.passes.reduce_precision import NARROW
    from converter.verification.precision import verify_precision

    reports = {}
    for file in files:
        if file.reduced is None or file.emulated is None:
            continue
        name, dtype = file.graph.signature, NARROW[str(options.precision)]
        yield Started("comparing", f"{file.path.name} in {options.precision} with float32")
        report = verify_precision(
            file.path, file.emulated, file.graph, dtype, on_device=file.reduced, options=options
        )
        yield Compared(f"{name} in {options.precision}".lstrip(), report.plain())
        yield from judge_precision(report, dtype)
        reports[name] = report
    return reports


def compare_program(
    source: Path,
    bundle: Bundle,
    written: Path,
    format: str,
    options: Options,
    planned: Bundle | None = None,
    signature: str | None = None,
) -> Mapping[str, GraphReport]:
    """Compare a source with an output in its own program format.

    Args:
        source: The artifact.
        bundle: The bundle read from it.
        written: The output.
        format: One of `PROGRAMS`.
        options: Options of the conversion.
        planned: The plan of the output, if known.
        signature: Signature of a SavedModel to compare; default: all.

    Returns:
        A report by signature.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
        UsageError: The user's inputs or tolerances do not fit this model.
    """
    if format == "keras":
        from converter.verification.keras_files import verify_keras

        return {"": verify_keras(source, bundle, written, options=options)}
    if format == "savedmodel":
        from converter.verification.savedmodel_files import verify_savedmodel

        changes = () if planned is None else tuple(planned.metadata.normalisations)
        return verify_savedmodel(
            source, bundle, written, changes=changes, options=options, signature=signature
        )
    from converter.verification.torch_programs import verify_program

    return {"": verify_program(source, bundle, written, options=options)}
