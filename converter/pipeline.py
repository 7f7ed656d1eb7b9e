"""The spine: detect, read, normalise, lower, write, verify, publish. It reads as that sentence.

`steps` yields what happened as it happens, and last the `Result`; `convert` only returns that.
Nothing here prints.
"""

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

from converter.byte_sizes import readable_size
from converter.child.trust import Trusted
from converter.events import Compared, Lowered, Opened, Progress, Step
from converter.filesystem.atomic_output import check_target, publish, staging, sync_tree
from converter.graphs import gaps_of, graphs_of, reason_of
from converter.normalise.groups import select_groups
from converter.normalise.prefixes import strip_prefixes
from converter.options import Options, Target, check
from converter.verification.verdicts import check_reached, judged
from converter.write import bundle as write
from converter.write.readback import WeightsReport
from converter.write.retarget import PLANNERS, check_device
from formats import catalog
from formats.artifact import Artifact
from formats.core import digests
from formats.core.bundle import JSON, Bundle, LeftOut
from formats.core.storage import Blocks
from formats.errors import (
    CorruptError,
    EnvironmentFault,
    Gaps,
    InternalError,
    SafetyError,
    UnsupportedError,
    UsageError,
    VerificationError,
)
from formats.limits import DEFAULT, Limits
from formats.safetensors import Plan, plan

if TYPE_CHECKING:
    from converter.lower.graph import Graph
    from converter.verification.report import GraphReport
    from converter.write.keras.archive import KerasFile

NO_COMPUTATION = ("of nothing", "tf_object_graph")  # kinds of graphs that no lowering would have
TORCH_SUFFIXES = {"torch": ".pt", "torchscript": ".pt", "pt2": ".pt2"}
Reports: TypeAlias = "dict[str, GraphReport | None]"  # by signature, the default one first


@dataclass(frozen=True, slots=True)
class Result:
    """A finished conversion.

    Attributes:
        path: What was written; None after a dry run.
        source: The artifact converted.
        bundle: What was written, its weights still in the source's files.
        report: The comparison of weights, or None where none was asked for.
        graph: The comparison of graphs, or None where there is no graph, or none was asked for; of
            the default signature's, where there are several.
        others: The same for each other signature.
        precision: What reducing the precision has cost, by signature.
        source_digest: Of the source's files, where it was taken on the way.
        format: Row id of the source's format.
        evidence: Why it was taken for that.
    """

    path: Path | None
    source: Path
    bundle: Bundle
    report: WeightsReport | None
    format: str
    evidence: str
    graph: "GraphReport | None" = None
    others: "Mapping[str, GraphReport | None]" = field(default_factory=dict)
    precision: "Mapping[str, GraphReport | None]" = field(default_factory=dict)
    source_digest: str | None = None
    steps: tuple[Step, ...] = field(default=())


def read(
    source: str | Path,
    *,
    format: str | None = None,
    checkpoint: str | Path | None = None,
    limits: Limits = DEFAULT,
) -> Bundle:
    """Read any artifact into a device-neutral bundle of lazy weights.

    Raises:
        SourceError: It is unreadable, damaged, unknown or over a limit.
        UnsupportedError: It is valid, and not supported yet.
        SafetyError: It names files outside itself.
    """
    values = None if checkpoint is None else Artifact(checkpoint, limits)
    return catalog.read(Artifact(source, limits), format, values)


def convert(
    source: str | Path,
    *,
    to: Target = "portable",
    out: str | Path | None = None,
    options: Options | None = None,
) -> Result:
    """Convert one artifact.

    Args:
        source: File, folder or checkpoint prefix.
        to: Target.
        out: Where to write; by default the source's name with the target's suffix, here.
        options: Everything else.

    Raises:
        ConvertError: As `steps`; nothing is left half-written.
    """
    options = replace(options or Options(), to=to)
    seen: list[Step] = []
    for event in steps(source, out, options):
        if isinstance(event, Result):
            return replace(event, steps=tuple(seen))
        if isinstance(event, Step):
            seen.append(event)
    raise InternalError("steps() ended without a result")


@cache
def _suffixes() -> frozenset[str]:
    return frozenset(s for row in catalog.FORMATS for s in row.suffixes) | {".weights"}


def default_out(source: Path, to: Target, device: str | None = None) -> Path:
    """Return the output's path where none was given: the source's stem in the current folder.

    A file of torch's is called after its device, too: its source may stand in the same folder.
    """
    stem = source.name or source.resolve().name
    while (dot := stem.rfind(".")) > 0 and stem[dot:].lower() in _suffixes():
        stem = stem[:dot]
    if to in TORCH_SUFFIXES:
        return Path(f"{stem}.{(device or 'cpu').replace(':', '-')}{TORCH_SUFFIXES[to]}")
    return Path(f"{stem}.{to}")


def steps(
    source: str | Path, out: str | Path | None, options: Options, *, dry_run: bool = False
) -> Iterator[Step | Progress | Opened | Lowered | Compared | Result]:
    """Convert one artifact, yielding each step as it is done, and the result last.

    Raises:
        UsageError: The options contradict each other or the target exists.
        SourceError: The source is unreadable.
        UnsupportedError: Source, target or verification are not supported yet.
        SafetyError: ``strict_safety`` found something.
        StorageError: The output could not be written.
        VerificationError: The output is not the source, or less was verified than required.
    """
    source = Path(source)
    check(options)
    if options.to in PLANNERS:
        check_device(options)
    target = Path(out) if out is not None else default_out(source, options.to, options.device)
    if not dry_run:
        _check_apart(source, target)
        check_target(target, force=options.overwrite)

    clock = perf_counter()
    artifact = Artifact(source, options.limits)
    if options.checkpoint is None:
        match = catalog.detect(artifact, options.format)
        yield Step("detected", f"{match.format.id}: {match.evidence}")
        bundle = match.format.read(artifact)
    else:
        match = catalog.detect_graph(artifact, options.format)
        evidence = f"{match.evidence}, with checkpoint {options.checkpoint}"
        yield Step("detected", f"{match.format.id}: {evidence}")
        if not dry_run:
            _check_apart(options.checkpoint, target)
        bundle = catalog.read_joined(artifact, Artifact(options.checkpoint, options.limits))
    catalog.check_expansion(bundle, artifact)
    yield Step("read", _read_line(bundle), perf_counter() - clock)
    yield Opened(match.format.id, match.evidence, bundle, artifact.opened)
    for finding in bundle.metadata.findings:
        yield Step("warning", f"{finding.kind}: {finding.subject} in {finding.where}")
    if options.strict_safety and bundle.metadata.findings:
        raise SafetyError(
            f"{len(bundle.metadata.findings)} safety findings, first: "
            f"{bundle.metadata.findings[0].subject}",
            where=source,
            hint="Without --strict-safety it converts; nothing of it is run",
        )
    if options.to in PLANNERS:
        yield from _reissued(source, bundle, artifact, target, match, options, dry_run=dry_run)
        return

    bundle = strip_prefixes(select_groups(bundle, options.include), options.strip_prefix)
    clock = perf_counter()
    bundle, graphs = _lowered(bundle, artifact, options, is_file=_is_file(out, options.to))
    for graph in graphs:
        yield Step("lowered", _graph_line(graph), perf_counter() - clock)
        for note in graph.notes:
            yield Step("warning", note)
    yield Lowered([_graph_facts(graph) for graph in graphs], bundle.metadata)
    runs = {"cpu", "device"} & {options.require, options.verify}
    if not graphs and runs and options.to != "keras":
        raise VerificationError("there is no graph to compare, as was asked", where=source)
    for change in bundle.metadata.normalisations:
        yield Step("normalised", f"{change.name}: {change.count}, {change.detail}")
    if bundle.metadata.left_out:
        yield Step("left out", _left_out_line(bundle.metadata.left_out))
    if not bundle.weights and options.to == "safetensors":
        raise UnsupportedError("holds no tensors", where=source)

    if not bundle.weights and options.require is not None:
        raise VerificationError(
            f"--require {options.require}: there is no tensor to compare", where=source
        )

    keras_file = _keras_file(bundle, options.trust) if options.to == "keras" else None
    layout = plan(bundle.weights, bundle.encodings, max_shard_bytes=options.shard_bytes)
    target = _folder_target(target, out, layout, len(graphs), options.to)
    if dry_run:
        planned = write.files_line(layout)
        if options.to in ("onnx", "triton"):
            planned = "; ".join(map(_graph_line, graphs))
        if keras_file is not None:
            planned = f"{len(keras_file.variables)} variables"
        yield Step("planned", f"{target}: {planned}")
        yield Result(None, source, bundle, None, match.format.id, match.evidence)
        return
    check_target(target, force=options.overwrite)
    with staging(target) as folder:
        payload = folder / "payload"
        payload.mkdir()
        sync = options.sync or os.path.lexists(target)
        report: WeightsReport | None = None
        compared: Reports = {}
        precision: Reports = {}
        digest: str | None = None
        if options.to in ("onnx", "triton"):
            aside = folder / "aside"
            aside.mkdir()
            from converter.write import onnx

            files = yield from onnx.write(graphs, bundle, payload, aside, options, sync=sync)
            compared = yield from _verify_graphs(source, bundle, graphs, files.full, options)
            precision |= yield from onnx.compare_precision(graphs, bundle, files, aside, options)
            if options.to == "triton":
                onnx.arrange(payload)
            made = files.path
        elif keras_file is not None:
            made, report, alone = yield from _write_keras(
                source, bundle, keras_file, payload, options, sync=sync
            )
            compared = {"": alone}
        else:
            report, compared, digest = yield from _write_weights(
                source, bundle, graphs, layout, artifact, payload, options, sync=sync
            )
            is_one_file = options.to == "safetensors" and layout.index is None
            made = payload / layout.shards[0].name if is_one_file else payload
        for file in artifact.opened.values():
            file.check_unchanged()
        if sync:
            sync_tree(payload)
        for one in (*compared.values(), *precision.values()) or (None,):
            check_reached(options, report, one)
        publish(made, target, force=options.overwrite, sync=sync)
    result = _result(target, source, bundle, match, report, compared)
    yield replace(result, precision=precision, source_digest=digest)


def _reissued(
    source: Path,
    bundle: Bundle,
    artifact: Artifact,
    target: Path,
    match: catalog.Match,
    options: Options,
    *,
    dry_run: bool,
) -> Iterator[Step | Progress | Lowered | Compared | Result]:
    """Write the source's own artifact again, for one device or for none."""
    from converter.write import retarget

    clock = perf_counter()
    made = retarget.plan(bundle, artifact, options)
    about = made.bundle.metadata
    for warning in made.warnings:
        yield Step("warning", warning)
    for change in about.normalisations:
        yield Step("normalised", f"{change.name}: {change.count}, {change.detail}")
    if about.left_out:
        yield Step("left out", _left_out_line(about.left_out))
    yield Lowered([], about)
    if dry_run:
        yield Step("planned", f"{target}: {made.planned()}", perf_counter() - clock)
        yield Result(None, source, made.bundle, None, match.format.id, match.evidence)
        return
    for event in retarget.steps(made, source, artifact, target, options):
        if isinstance(event, retarget.Evidence):
            yield _result(target, source, made.bundle, match, event.weights, event.graphs)
        else:
            yield event


def _result(
    path: Path,
    source: Path,
    bundle: Bundle,
    match: catalog.Match,
    report: WeightsReport | None,
    compared: "Mapping[str, GraphReport | None]",
) -> Result:
    first, *others = compared or ("",)
    return Result(
        path, source, bundle, report, match.format.id, match.evidence, compared.get(first),
        {name: compared[name] for name in others},
    )  # fmt: skip


def _is_file(out: str | Path | None, to: Target) -> bool:
    """Tell whether the output is meant to be one ONNX file."""
    return to == "triton" or (to == "onnx" and out is not None and Path(out).suffix == ".onnx")


def _lowered(
    bundle: Bundle, artifact: Artifact, options: Options, *, is_file: bool
) -> tuple[Bundle, "list[Graph]"]:
    """Return the graphs, where the target has any; a bundle does without, and says why."""
    if options.to in ("onnx", "triton"):
        return _graphs(bundle, artifact, options, is_file=is_file)
    if bundle.topology is None and options.arch is None:
        return bundle, []
    gaps: Gaps = ()
    if options.to == "portable":
        try:
            return _graphs(bundle, artifact, options, is_file=False)
        except (UnsupportedError, CorruptError, SafetyError, EnvironmentFault, UsageError) as e:
            # Usage is at fault where a trusted module is; of a torch program it lacks inputs.
            if options.asks_for_graph or (isinstance(e, UsageError) and options.trust):
                raise
            reason, gaps = reason_of(e), gaps_of(e)  # the weights are no worse for it
    elif options.to == "keras":
        return bundle, []  # the file has the configuration itself
    else:
        reason = "a safetensors file holds weights only"
    kind = "of nothing" if bundle.topology is None else bundle.topology.kind
    entry = LeftOut(f"graph ({kind})", reason, () if kind in NO_COMPUTATION else gaps)
    metadata = replace(bundle.metadata, left_out=(*bundle.metadata.left_out, entry))
    return replace(bundle, metadata=metadata), []


def _graphs(
    bundle: Bundle, artifact: Artifact, options: Options, *, is_file: bool
) -> tuple[Bundle, "list[Graph]"]:
    """Return the graphs, of a model that is on no device, and what is said of it then."""
    from converter.devices.savedmodel.strip_placement import strip_placement

    alone = strip_placement(bundle, artifact)
    told, graphs = graphs_of(alone, artifact, options, only_one=is_file)
    return replace(told, topology=bundle.topology), graphs


def _write_weights(
    source: Path,
    bundle: Bundle,
    graphs: "Sequence[Graph]",
    layout: Plan,
    artifact: Artifact,
    payload: Path,
    options: Options,
    *,
    sync: bool,
) -> Generator[Step | Progress | Compared, None, tuple[WeightsReport | None, Reports, str | None]]:
    verify = options.verify != "none"
    blocks = Blocks()
    if options.to == "safetensors":
        report = yield from write.transfer(
            bundle, layout, payload, blocks, None, verify=verify, sync=sync
        )
        return report, {}, None
    sources = digests.FileDigests(artifact.opened, blocks)
    report = yield from write.transfer(
        bundle, layout, payload, blocks, sources, verify=verify, sync=sync
    )
    write.assets(bundle, payload, sync=sync)
    described: list[dict[str, JSON]] = []
    compared: Reports = {}
    if graphs:
        from converter.write import graph_files

        for graph, name in zip(graphs, graph_files.names(graphs), strict=True):
            graph_files.beside_weights(graph, bundle, layout, payload, name, sync=sync)
            described.append(graph_files.described(graph, name))
        compared = yield from _verify_graphs(source, bundle, graphs, payload, options)
    digest = write.manifest(
        bundle, layout, artifact, payload, sources, report,
        verify=verify, graphs=described, compared=compared, sync=sync,
    )  # fmt: skip
    return report, compared, digest


def _verify_graphs(
    source: Path, bundle: Bundle, graphs: "Sequence[Graph]", payload: Path, options: Options
) -> Generator[Step | Progress | Compared, None, "Reports"]:
    """Run the source and its graphs beside each other, where both runtimes are here.

    Returns:
        A report by signature; None where no comparison was asked for.

    Raises:
        VerificationError: They differ.
    """
    if options.verify in ("none", "weights"):
        return {graph.signature: None for graph in graphs}
    from converter.verification.graphs import verify_graph
    from converter.verification.options import verification_of
    from converter.write.graph_files import names

    reports: Reports = {}
    for graph, name in zip(graphs, names(graphs), strict=True):
        verification = verification_of(options, graph.signature or None)
        report = verify_graph(source, bundle, payload / name, options=verification)
        yield Compared(graph.signature, report.plain())
        yield from judged(report, graph.signature if len(graphs) > 1 else "")
        reports[graph.signature] = report
    return reports


def _keras_file(bundle: Bundle, trust: Sequence[Trusted]) -> "KerasFile":
    from converter.write.keras import archive

    return archive.plan(bundle, trust)


def _write_keras(
    source: Path,
    bundle: Bundle,
    file: "KerasFile",
    payload: Path,
    options: Options,
    *,
    sync: bool,
) -> Generator[
    Step | Progress | Compared, None, tuple[Path, WeightsReport | None, "GraphReport | None"]
]:
    from converter.write.keras import archive

    verify = options.verify != "none"
    made, report = yield from archive.write(file, payload, verify=verify, sync=sync)
    if options.verify in ("none", "weights"):
        return made, report, None
    from converter.verification.keras_files import verify_keras
    from converter.verification.options import verification_of

    compared = verify_keras(source, bundle, made, options=verification_of(options))
    for note in compared.notes:
        yield Step("warning", note)
    yield Compared("", compared.plain())
    yield from judged(compared)
    return made, report, compared


def _graph_line(graph: "Graph") -> str:
    of = f"signature {graph.signature}: " if graph.signature else ""
    by = f", by {graph.exporter}" if graph.exporter else ""
    return f"{of}{len(graph.nodes)} nodes, opset {graph.opset}{by}"


def _graph_facts(graph: "Graph") -> dict[str, JSON]:
    return {
        "signature": graph.signature,
        "nodes": len(graph.nodes),
        "opset": graph.opset,
        "exporter": graph.exporter,
    }


def _check_apart(source: Path, target: Path) -> None:
    """Refuse an output that would replace its own source, or lie inside it."""
    try:
        here, there = (Path(os.path.realpath(p)) for p in (source, target))
    except ValueError as e:
        raise UsageError(f"no file can have this name: {e}", where=repr(source)) from e
    if here == there or there.is_relative_to(here) or here.is_relative_to(there):
        raise UsageError("the output would stand in its own source", where=target)


def _folder_target(
    target: Path, out: str | Path | None, layout: Plan, graphs: int, to: Target
) -> Path:
    """Several files need a folder; one that would be called a file gets a name of its own."""
    if to == "onnx" and graphs > 1 and out is None:
        return target.with_name(f"{target.stem}-onnx")
    if to == "safetensors" and layout.index is not None and target.suffix == ".safetensors":
        if out is not None:
            raise UsageError(
                f"the weights need {len(layout.shards)} shards, so the output is a folder",
                where=target,
                hint="Give -o a folder's name, or raise --max-shard-size",
            )
        return target.with_name(f"{target.stem}-safetensors")
    return target


def _read_line(bundle: Bundle) -> str:
    about = bundle.metadata
    total = sum(t.nbytes for t in {t.identity: t for t in bundle.weights.values()}.values())
    text = f"{about.variant}: {len(bundle.weights)} tensors, {readable_size(total)}"
    if about.devices:
        text += ", devices " + ", ".join(f"{d} x{n}" for d, n in about.devices.items())
    return text


def _left_out_line(entries: Sequence[LeftOut]) -> str:
    reasons: dict[str, int] = {}
    for entry in entries:
        reasons[entry.reason] = reasons.get(entry.reason, 0) + 1
    return "; ".join(f"{n} x {reason}" for reason, n in reasons.items())
