"""``convert verify SOURCE CONVERTED``: what was converted, against what it was converted from.

Weights are compared bit for bit where the converted artifact keeps them under the source's names,
or under those that `--to keras` gives them; a graph, or a `.keras` file, is computed beside the
source's own. The figures go to standard output.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from converter.cli.parameters import (
    Arguments,
    Bounds,
    Examples,
    Factory,
    Inputs,
    Samples,
    Seed,
    Trust,
    bounds,
)
from converter.cli.terminal import say
from formats.errors import UsageError

if TYPE_CHECKING:  # `--help` need not pay for these
    from converter.verify.report import GraphReport
    from formats.bundle import Bundle

LEVELS = ("weights", "cpu", "device")
GRAPH, MANIFEST = "model.onnx", "manifest.json"
KERAS = "keras"
KEEPS_WEIGHTS = ("portable", "safetensors")  # formats that hold the source's tensors as they are


@dataclass(frozen=True, slots=True)
class Weights:
    """What the comparison of weights found."""

    equal: int
    different: tuple[str, ...]


def verify(
    source: Annotated[Path, typer.Argument(metavar="SOURCE")],
    converted: Annotated[
        Path,
        typer.Argument(
            metavar="CONVERTED", help="An .onnx or .keras file, or what convert wrote of SOURCE."
        ),
    ],
    atol: Bounds = None,
    rtol: Bounds = None,
    inputs: Examples = None,
    seed: Seed = 0,
    samples: Samples = 1,
    arch: Factory = None,
    arch_args: Arguments = None,
    input: Inputs = None,
    trust: Trust = None,
    from_checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--from-checkpoint", metavar="PREFIX", help="The values of SOURCE's variables."
        ),
    ] = None,
    signature: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which of TensorFlow's signatures a file was made of."),
    ] = None,
    require: Annotated[
        str | None,
        typer.Option(
            metavar="weights|cpu|device", help="Fail (exit 1) unless that much was verified."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="For each of the two runtimes.")
    ] = 900,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on standard output.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show tracebacks of errors.")
    ] = False,
) -> None:
    """Compare a converted artifact with its source: weights bit by bit, graphs by running both."""
    del verbose
    if require not in (None, *LEVELS):
        raise UsageError(f"--require {require}", expected=", ".join(LEVELS))
    from converter.pipeline import read

    bundle = read(source, from_checkpoint=from_checkpoint)
    models = _graphs_of(converted)
    form = _format_of(converted)
    if form == KERAS:
        weights = _keras_weights(bundle, converted, trust or ())
    else:
        weights = _weights(bundle, converted) if form in KEEPS_WEIGHTS else None
    reports: dict[str, GraphReport] = {}
    if models or form == KERAS:
        from converter.child import Allowance
        from converter.options import parse_arch, parse_inputs
        from converter.trust import parse_trust
        from converter.verify.graphs import Options, verify_graph

        options = Options(
            bounds("--atol", atol), bounds("--rtol", rtol), inputs, seed, samples,
            Allowance(timeout), parse_trust(trust or ()),
            signature=signature,
            arch=parse_arch(arch, arch_args), specs=parse_inputs(input or ()),
        )  # fmt: skip
        for model in models:
            reports[model.name] = verify_graph(source, bundle, model, options=options)
        if not models:
            from converter.verify.keras_files import verify_keras

            reports[converted.name] = verify_keras(source, bundle, converted, options=options)
    report = _worst(reports)
    level = _level(weights, report)
    code = _exit_code(weights, report, level, require)
    if json:
        _document(source, converted, weights, reports, level)
    else:
        _lines(weights, reports, level, require)
    raise typer.Exit(code)


def _graphs_of(converted: Path) -> list[Path]:
    """Return the ONNX files that an artifact is, or holds, the default one first."""
    if converted.is_dir():
        found = sorted(converted.glob("model*.onnx"), key=lambda p: (p.name != GRAPH, p.name))
        return found if (converted / GRAPH).is_file() else []
    return [converted] if converted.suffix == ".onnx" else []


def _worst(reports: "Mapping[str, GraphReport]") -> "GraphReport | None":
    """Return the report that decides: one that failed, or is not run, or else the first."""
    order = ("failed", "not run", "passed")
    return min(reports.values(), key=lambda r: order.index(r.status), default=None)


def _format_of(converted: Path) -> str:
    from formats import catalog
    from formats.artifact import Artifact

    if converted.is_dir() and _graphs_of(converted) and not (converted / MANIFEST).exists():
        return "onnx"  # one file for each signature
    return catalog.detect(Artifact(converted)).format.id


def _keras_weights(bundle: "Bundle", converted: Path, trust: Sequence[str]) -> Weights | None:
    """Compare a `.keras` file's variables with those that the source would be written with."""
    from converter.normalise import select, strip_prefixes
    from converter.trust import parse_trust
    from converter.write_keras import archive
    from formats.errors import UnsupportedError

    try:
        model = strip_prefixes(select(bundle, ()), "auto")
        wanted = archive.plan(model, parse_trust(trust)).variables
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
    if match.format.id not in KEEPS_WEIGHTS or not bundle.weights:
        return None
    from converter.compare import diff

    found = diff(bundle, match.format.read(artifact))
    equal = [d for d in found if d.kind in ("equal", "renamed")]
    wrong = [f"{d.a} ({d.kind})" for d in found if d.kind in ("changed", "only in A")]
    return Weights(len(equal), tuple(wrong))


def _level(weights: Weights | None, report: "GraphReport | None") -> str | None:
    """Return how far it is verified."""
    if report is not None and report.status == "passed":
        return "cpu"
    return "weights" if weights is not None and weights.equal and not weights.different else None


def _exit_code(
    weights: Weights | None, report: "GraphReport | None", level: str | None, require: str | None
) -> int:
    failed = report is not None and report.status == "failed"
    if failed or (weights is not None and weights.different):
        return 1
    if require is not None and (level is None or LEVELS.index(level) < LEVELS.index(require)):
        return 1
    if level is not None:
        return 0
    return 7 if report is not None and report.lacking else 1


def _document(
    source: Path,
    converted: Path,
    weights: Weights | None,
    reports: "Mapping[str, GraphReport]",
    level: str | None,
) -> None:
    from converter.cli.render import document

    compared: dict[str, Any] | None = None
    if weights is not None:
        compared = {"equal": weights.equal, "different": list(weights.different)}
    first, *others = reports.values() or (None,)
    document({
        "source": str(source),
        "converted": str(converted),
        "verified": level,
        "weights": compared,
        "graph": None if first is None else first.plain(),
        "graphs": {name: r.plain() for name, r in reports.items()} if others else {},
    })  # fmt: skip


def _lines(
    weights: Weights | None,
    reports: "Mapping[str, GraphReport]",
    level: str | None,
    require: str | None,
) -> None:
    if weights is None:
        say("weights     not compared: the converted artifact keeps none as the source has them")
    else:
        say(f"weights     {weights.equal} equal, {len(weights.different)} different")
        for name in weights.different[:20]:
            say(f"            {name}")
    if not reports:
        say("graph       not run: the converted artifact has none")
    for name, report in reports.items():
        if len(reports) > 1:
            say(f"file        {name}")
        _graph_lines(report)
    text = level or "nothing"
    if require is not None and text != require:
        text += f" (required: {require})"
    say(f"verified    {text}")


def _graph_lines(report: "GraphReport") -> None:
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
    width = max((len(name) for name in report.outputs), default=0)
    for m in report.outputs.values():
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
    first = report.first_difference
    if first is not None:
        say(f"layer       {first}: max rel {first.measure.max_rel:.3g}")
        if first.last_equal is not None:
            say(f"            {first.last_equal!r} before it is the same")
