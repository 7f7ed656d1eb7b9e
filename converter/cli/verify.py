"""``convert verify SOURCE CONVERTED``: what was converted, against what it was converted from.

Weights are compared bit for bit where the converted artifact keeps them under the source's names,
or under those that `--to keras` gives them; a graph, a `.keras` file, or what was issued again (a
SavedModel, a program of torch's) is computed beside the source's own. With ``--device`` both are
computed there too, and must have been there. The figures go to standard output.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from converter.cli.comparison import Weights, document, lines
from converter.cli.parameters import Json, Verbose, flags_given, make_options, rows_of
from converter.cli.references import Given, fetching
from converter.cli.rows import collects
from formats.errors import UsageError

if TYPE_CHECKING:  # `--help` need not pay for these
    from converter.child.trust import Trusted
    from converter.options import Options
    from converter.verification.graphs import Options as HowToRun
    from converter.verification.report import GraphReport
    from formats.core.bundle import Bundle

LEVELS = ("weights", "cpu", "device")
GRAPH, MANIFEST, TRITON = "model.onnx", "manifest.json", "config.pbtxt"
KERAS, SAVED_MODEL = "keras", "savedmodel"
MOVED = {"torchscript": "torchscript", "torch-export": "pt2"}  # formats that `--to` moves
RUN_BY_FRAMEWORKS = (KERAS, SAVED_MODEL, *MOVED)  # formats that are no graphs of ours, and yet run
KEEPS_WEIGHTS = ("portable", "safetensors")  # formats that hold the source's tensors as they are
TIMEOUT = 900.0
LIKE_THE_SOURCE = ("torch", *MOVED)  # formats that do so where the source is of the same


@fetching("source", "converted")
@collects("options", rows_of("verify"), make_options)
def verify(
    source: Annotated[
        Given,
        typer.Argument(
            metavar="SOURCE", help="What was converted; or, alone, a folder of portable bundles."
        ),
    ],
    converted: Annotated[
        Given | None,
        typer.Argument(
            metavar="[CONVERTED]",
            show_default=False,
            help="An .onnx or .keras file, or what convert wrote of SOURCE.",
        ),
    ] = None,
    *,
    options: "Options",
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time limit of each of the two runtimes.")
    ] = TIMEOUT,
    report: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.(jsonl|html|xml)", help="Of a folder alone: report on it. Repeatable."
        ),
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Compare a converted artifact with its source: weights bit by bit, graphs by running both.

    A folder alone, of portable bundles, is held against its manifests: every file's digest, and how
    far each was verified (--require).
    """
    del verbose  # `run` has read it
    require = options.require
    if require not in (None, *LEVELS):
        raise UsageError(f"--require {require}", expected=", ".join(LEVELS))
    if converted is None:
        from converter.cli import gate

        others = [flag for flag in flags_given(options, "verify") if flag != "--require"]
        gate.only_two([*others, *(["--timeout"] if timeout != TIMEOUT else [])])
        raise typer.Exit(gate.check(source, require, reports=report or (), as_json=json))
    if report:
        raise UsageError("--report with two arguments", expected="one: a folder of bundles")
    comparison = options.comparison
    from converter.verification.device.compare import place

    if place(options.device, allow_tf32=comparison.allow_tf32) is None and require == "device":
        raise UsageError("--require device", expected="--device cuda:0, GPU:0, …")
    from converter.reading import read

    bundle = read(source, checkpoint=options.checkpoint)
    form = _format_of(converted)
    if form == KERAS:
        weights = _keras_weights(bundle, converted, options.trust)
    else:
        is_alike = form in LIKE_THE_SOURCE and form == bundle.metadata.format
        keeps = form in KEEPS_WEIGHTS or is_alike
        weights = _weights(bundle, converted) if keeps else None
    reports: dict[str, GraphReport] = {}
    models = _graphs_of(converted)
    if models or form in RUN_BY_FRAMEWORKS:
        from converter.child.process import Allowance
        from converter.verification.graphs import Options as HowToRun

        how = HowToRun(
            comparison.atol, comparison.rtol, comparison.inputs, comparison.seed,
            comparison.samples, Allowance(timeout), options.trust,
            signature=next(iter(options.signatures), None),
            arch=options.arch, specs=options.inputs,
            device=options.device, allow_tf32=comparison.allow_tf32,
            allow_cpu_nodes=comparison.allow_cpu_nodes,
        )  # fmt: skip
        reports = _compared(source, bundle, converted, form, models, how)
    level = _level(weights, reports)
    code = _exit_code(weights, _worst(reports), level, require)
    if json:
        document(source, converted, weights, reports, level)
    else:
        lines(weights, reports, level, require)
    raise typer.Exit(code)


def _compared(
    source: Path,
    bundle: "Bundle",
    converted: Path,
    form: str,
    models: Sequence[Path],
    options: "HowToRun",
) -> "dict[str, GraphReport]":
    """Return a report for each of a converted artifact's graphs, by what it is called."""
    from converter.verification.report import GraphReport

    if models:
        from converter.verification.graphs import verify_graph

        top = converted if converted.is_dir() else converted.parent
        return {
            str(m.relative_to(top)): verify_graph(source, bundle, m, options=options)
            for m in models
        }
    if form == KERAS:
        from converter.verification.keras_files import verify_keras

        return {converted.name: verify_keras(source, bundle, converted, options=options)}
    if form in MOVED:
        return _moved(source, bundle, converted, form, options)
    if bundle.topology is None or bundle.topology.kind != "graphdef":
        reason = "a SavedModel is compared with what TensorFlow runs, and the source is none"
        return {converted.name: GraphReport("not run", reason)}
    from converter.reading import read
    from converter.verification.savedmodel_files import verify_savedmodel

    found = verify_savedmodel(source, bundle, converted, read(converted), options=options)
    return {name or converted.name: report for name, report in found.items()}


def _moved(
    source: Path, bundle: "Bundle", converted: Path, form: str, options: "HowToRun"
) -> "dict[str, GraphReport]":
    """Compare a program of torch's with the same, moved to the device that it names itself."""
    from converter import options as conversion
    from converter.devices.names import parse_device
    from converter.verification.report import GraphReport
    from converter.verification.torch_programs import verify_program
    from formats import catalog
    from formats.artifact import Artifact

    if form != bundle.metadata.format:
        reason = f"{converted.name} is {form}, and is compared with a source of the same format"
        return {converted.name: GraphReport("not run", reason)}
    asked = options.device
    device = parse_device(asked).torch if asked not in (None, "none") else ""
    if not device:
        recorded = catalog.read(Artifact(converted), form).metadata.devices
        device = next((name for name in recorded if name != "cpu"), "cpu")
    told = conversion.Options(
        to=MOVED[form],
        device=device,
        inputs=tuple(options.specs),
        trust=tuple(options.trust),
        comparison=conversion.Comparison(
            options.atol, options.rtol, options.inputs, options.seed, options.samples,
            options.allow_tf32, options.allow_cpu_nodes,
        ),
    )  # fmt: skip
    found = verify_program(source, bundle, converted, told)
    return {name or converted.name: report for name, report in found.items()}


def _graphs_of(converted: Path) -> list[Path]:
    """Return the ONNX files that an artifact is, or holds, the default one first."""
    if (converted / TRITON).is_file():
        return sorted(converted.glob(f"*/{GRAPH}"))
    if converted.is_dir():
        found = sorted(converted.glob("model*.onnx"), key=lambda p: (p.name != GRAPH, p.name))
        return found if (converted / GRAPH).is_file() else []
    return [converted] if converted.suffix == ".onnx" else []


def _worst(reports: "Mapping[str, GraphReport]") -> "GraphReport | None":
    """Return the report that decides: one that failed, or is not run, or else went least far."""
    order = ("failed", "not run", "passed")
    return min(
        reports.values(),
        key=lambda r: (order.index(r.status), r.reached == "device"),
        default=None,
    )


def _format_of(converted: Path) -> str:
    from formats import catalog
    from formats.artifact import Artifact

    if converted.is_dir() and _graphs_of(converted) and not (converted / MANIFEST).exists():
        return "onnx"  # one file for each signature
    return catalog.detect(Artifact(converted)).format.id


def _keras_weights(bundle: "Bundle", converted: Path, trust: "Sequence[Trusted]") -> Weights | None:
    """Compare a `.keras` file's variables with those that the source would be written with."""
    from converter.normalise.groups import select_groups
    from converter.normalise.prefixes import strip_prefixes
    from converter.write.keras import archive
    from formats.errors import UnsupportedError

    try:
        model = strip_prefixes(select_groups(bundle, ()), "auto")
        wanted = archive.plan_file(model, trust).variables
    except UnsupportedError:
        return None  # the file is somebody else's: its variables stand where they do
    found = archive.read_again(converted)
    if not wanted or not any(path in found for path in wanted):
        return None
    wrong = [f"{path} (only in A)" for path in wanted if path not in found]
    equal = 0
    for path in (path for path in wanted if path in found):
        a, b = wanted[path], found[path]
        if (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes():
            equal += 1
        else:
            wrong.append(f"{path} (changed)")
    return Weights(equal, tuple(wrong))


def _weights(bundle: "Bundle", converted: Path) -> Weights | None:
    """Compare the weights, where the converted artifact keeps them as the source has them."""
    from formats import catalog
    from formats.artifact import Artifact

    artifact = Artifact(converted)
    match = catalog.detect(artifact)
    if not bundle.weights:
        return None
    from converter.tensor_diff import diff

    found = diff(bundle, match.format.read(artifact))
    equal = [d for d in found if d.kind in ("equal", "renamed")]
    wrong = [f"{d.a} ({d.kind})" for d in found if d.kind in ("changed", "only in A")]
    return Weights(len(equal), tuple(wrong))


def _level(weights: Weights | None, reports: "Mapping[str, GraphReport]") -> str | None:
    """Return how far it is verified: as far as the least of its graphs."""
    report = _worst(reports)
    if report is not None and report.reached is not None:
        return report.reached
    return "weights" if weights is not None and weights.equal and not weights.different else None


def _exit_code(
    weights: Weights | None, report: "GraphReport | None", level: str | None, require: str | None
) -> int:
    failed = report is not None and report.status == "failed"
    if failed or (weights is not None and weights.different):
        return 1
    if require is not None and (level is None or LEVELS.index(level) < LEVELS.index(require)):
        has_no_device = report is not None and report.device is not None
        return 7 if require == "device" and has_no_device else 1
    if level is not None:
        return 0
    return 7 if report is not None and report.lacking else 1
