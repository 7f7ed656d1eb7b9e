"""Targets that are ONNX files: each graph alone, in the precision asked for; Triton's entries."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from converter import passes
from converter.byte_sizes import readable_size
from converter.events import Compared, Progress, Step
from converter.lower.graph import Graph, needed
from converter.options import Options
from converter.passes.reduce_precision import NARROW, Reduced, reduce_precision
from converter.verification.options import verification_of
from converter.verification.report import GraphReport
from converter.verification.verdicts import judged_precision
from converter.write import graph_files
from formats.core.bundle import Bundle
from formats.core.output import Output

EMULATED = ("bf16",)  # precisions that CPUs have no kernels for


@dataclass(slots=True)
class Written:
    """What stands in the payload.

    Attributes:
        path: The file, or the folder of several.
        full: Where the files are that compute what the source does, in full precision.
        reduced: What was made of each graph in less; none where that was not asked for.
    """

    path: Path
    full: Path
    reduced: list[tuple[Graph, Reduced]] = field(default_factory=list)


def write(
    graphs: Sequence[Graph],
    bundle: Bundle,
    payload: Path,
    aside: Path,
    options: Options,
    *,
    sync: bool,
) -> Generator[Step | Progress, None, Written]:
    """Write graphs into a folder.

    Args:
        graphs: As lowered.
        bundle: Their weights.
        payload: The folder.
        aside: Another, for what is only there to compare with.
        options: Target, device and precision.
        sync: Wait until the bytes are on the disk.

    Raises:
        StorageError: It cannot be written.
        UnsupportedError: Triton cannot take it.
    """
    home = _entry(graphs[0], payload, options, sync=sync) if options.to == "triton" else payload
    made = Written(payload, home if options.precision is None else aside)
    for graph, name in zip(graphs, graph_files.names(graphs), strict=True):
        begin = perf_counter()
        whole = passes.run(graph, bundle.weights)
        final = whole
        if options.precision is not None:
            yield from graph_files.alone(whole, bundle, aside, name, sync=False)
            reduced = reduce_precision(whole, bundle.weights, options.precision)
            yield Step("reduced", _reduced_line(reduced, options.precision))
            made.reduced.append((whole, reduced))
            final = needed(reduced.graph)
        path = yield from graph_files.alone(final, bundle, home, name, sync=sync)
        size = sum(p.stat().st_size for p in home.glob(f"{name}*"))
        yield Step("written", readable_size(size), perf_counter() - begin)
        if len(graphs) == 1 and options.to == "onnx":
            made.path = path
    return made


def compare_precision(
    graphs: Sequence[Graph], bundle: Bundle, made: Written, aside: Path, options: Options
) -> Generator[Step | Progress | Compared, None, dict[str, GraphReport]]:
    """Run each graph in full and in reduced precision, where onnxruntime is here.

    Returns:
        A report by signature.

    Raises:
        VerificationError: Reducing it costs more than so few bits are expected to.
    """
    from converter.verification.precision import verify_precision

    reports: dict[str, GraphReport] = {}
    precision = options.precision
    if precision is None or options.verify in ("none", "weights"):
        return reports
    home = made.path if made.path.is_dir() else made.path.parent
    for graph, name, (whole, _) in zip(
        graphs, graph_files.names(graphs), made.reduced, strict=True
    ):
        final = model = next(home.rglob(name))
        if precision in EMULATED:
            emulated = reduce_precision(whole, bundle.weights, precision, emulate=True)
            beside = aside / precision
            beside.mkdir(exist_ok=True)
            yield from graph_files.alone(needed(emulated.graph), bundle, beside, name, sync=False)
            model = beside / name
        report = verify_precision(
            aside / name, model, graph, NARROW[precision], there=final,
            options=verification_of(options),
        )  # fmt: skip
        yield Compared(f"{graph.signature} in {precision}".lstrip(), report.plain())
        yield from judged_precision(report, NARROW[precision], emulated=precision in EMULATED)
        reports[graph.signature] = report
    return reports


def _reduced_line(reduced: Reduced, precision: str) -> str:
    text = f"{NARROW[precision]}: {reduced.narrow.total()} nodes"
    if reduced.wide:
        kept = ", ".join(f"{op} {n}" for op, n in sorted(reduced.wide.items()))
        text += f"; float32 for what they read: {kept}"
    return text


# -- Triton -------------------------------------------------------------------------------------


def _entry(graph: Graph, payload: Path, options: Options, *, sync: bool) -> Path:
    """Write a model's configuration; return the folder of its one version."""
    from converter.write.triton.configuration import CONFIGURATION, VERSION, configuration

    with Output(payload / CONFIGURATION) as out:
        out.write(configuration(graph, str(options.device)).text().encode())
        if sync:
            out.sync()
    home = payload / VERSION
    home.mkdir()
    return home


def arrange(payload: Path) -> None:
    """Put a graph whose weights are in a file of their own where Triton looks for both.

    Spec: https://github.com/triton-inference-server/server/blob/main/docs/user_guide/model_repository.md#onnx-models
    """
    from converter.write.triton.configuration import VERSION

    files = [*(payload / VERSION).iterdir()]
    if len(files) == 1:
        return
    folder = payload / VERSION / "folder"
    folder.mkdir()
    for file in files:
        file.rename(folder / file.name)
    folder.rename(payload / VERSION / graph_files.GRAPH)
