"""The road: read, normalise, lower, plan, write, verify, publish. It reads as that sentence.

`steps` yields what happened as it happens, and last the `Conversion`; `convert` only returns that.
Nothing here prints.
"""

import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

from converter.byte_sizes import readable_size
from converter.events import Compared, Lowered, Opened, Progress, Step
from converter.filesystem.atomic_output import check_target, publish, staging, sync_tree
from converter.graphs import describe_graph, lower_optional, lower_required
from converter.normalise.groups import select_groups
from converter.normalise.prefixes import strip_prefixes
from converter.options import Options
from converter.verification.outputs import compare_output
from converter.verification.result import Verification
from converter.write import catalog as targets
from converter.write.output_path import check_apart, default_output, settle_output
from converter.write.plan import Digests
from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import Bundle, LeftOut
from formats.errors import InternalError, SafetyError, VerificationError
from formats.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from converter.lower.graph import Graph

Event: TypeAlias = "Step | Progress | Opened | Lowered | Compared | Conversion"


@dataclass(frozen=True, slots=True)
class Conversion:
    """A finished conversion.

    Attributes:
        path: What was written; None after a dry run.
        source: The artifact converted.
        bundle: What was written, its weights still in the source's files.
        format: Row of `formats.catalog` of the source.
        evidence: Why the source was taken for that format.
        verification: What was compared, and how far it was verified.
        digests: Of the source's files and of its tensors, where they were taken on the way.
        steps: What happened, in order.
    """

    path: Path | None
    source: Path
    bundle: Bundle
    format: str
    evidence: str
    verification: Verification = field(default_factory=Verification)
    digests: Digests | None = None
    steps: tuple[Step, ...] = ()


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
    to: str = targets.DEFAULT,
    out: str | Path | None = None,
    options: Options | None = None,
) -> Conversion:
    """Convert one artifact.

    Args:
        source: File, folder or checkpoint prefix.
        to: Target, a row of `converter.write.catalog`.
        out: Where to write; by default the source's name with the target's suffix, here.
        options: Everything else.

    Raises:
        ConvertError: As `steps`; nothing is left half-written.
    """
    seen: list[Step] = []
    for event in steps(source, out, replace(options or Options(), to=to)):
        if isinstance(event, Conversion):
            return replace(event, steps=tuple(seen))
        if isinstance(event, Step):
            seen.append(event)
    raise InternalError("steps() ended without a result")


def steps(
    source: str | Path, out: str | Path | None, options: Options, *, dry_run: bool = False
) -> Iterator[Event]:
    """Convert one artifact, yielding each step as it is done, and the result last.

    Raises:
        UsageError: The options contradict each other or the output exists.
        SourceError: The source is unreadable.
        UnsupportedError: Source, target or verification are not supported yet.
        SafetyError: ``strict_safety`` found something.
        StorageError: The output could not be written.
        VerificationError: The output is not the source, or less was verified than required.
    """
    target = targets.check_options(options)
    source, is_named = Path(source), out is not None
    output = Path(out) if out is not None else default_output(source, target, options.device)
    if not dry_run:
        check_apart(source, output)
        check_target(output, force=options.overwrite)

    artifact = Artifact(source, options.limits)
    match, bundle = yield from _read(artifact, output, options, dry_run=dry_run)
    if not target.keeps_source:
        bundle = strip_prefixes(select_groups(bundle, options.include), options.strip_prefix)
    only_one = target.is_one_file(output if is_named else None)
    bundle, graphs = yield from _lower(target, bundle, artifact, options, only_one=only_one)
    plan = target.plan(bundle, graphs, artifact, options)
    yield from _describe(plan.bundle, plan.warnings, graphs)
    output = settle_output(output, target, plan, is_named=is_named)
    result = Conversion(None, source, plan.bundle, match.format.id, match.evidence)
    if dry_run:
        yield Step("planned", f"{output}: {plan.summary()}")
        yield result
        return

    check_target(output, force=options.overwrite)
    with staging(output) as folder:
        payload = folder / "payload"
        payload.mkdir()
        sync = options.sync or os.path.lexists(output)
        written, weights = yield from plan.write(
            payload, verify=options.verify != "none", sync=sync
        )
        verification = yield from compare_output(
            source, bundle, plan, written, weights, target.format, options
        )
        verification.check(options)
        digests = plan.record(written, verification.manifest(options), sync=sync)
        for file in artifact.opened.values():
            file.check_unchanged()
        if sync:
            sync_tree(payload)
        publish(written, output, force=options.overwrite, sync=sync)
    yield replace(result, path=output, verification=verification, digests=digests)


def _read(
    artifact: Artifact, output: Path, options: Options, *, dry_run: bool
) -> "Generator[Step | Opened, None, tuple[catalog.Match, Bundle]]":
    """Detect the source's format, read it, and say what is suspicious about it."""
    begin = perf_counter()
    checkpoint = options.checkpoint
    if checkpoint is None:
        match = catalog.detect(artifact, options.format)
        yield Step("detected", f"{match.format.id}: {match.evidence}")
        bundle = match.format.read(artifact)
    else:
        match = catalog.detect_graph(artifact, options.format)
        evidence = f"{match.evidence}, with checkpoint {checkpoint}"
        yield Step("detected", f"{match.format.id}: {evidence}")
        if not dry_run:
            check_apart(checkpoint, output)
        bundle = catalog.read_joined(artifact, Artifact(checkpoint, options.limits))
    catalog.check_expansion(bundle, artifact)
    yield Step("read", _describe_bundle(bundle), perf_counter() - begin)
    yield Opened(match.format.id, match.evidence, bundle, artifact.opened)
    findings = bundle.metadata.findings
    for finding in findings:
        yield Step("warning", f"{finding.kind}: {finding.subject} in {finding.where}")
    if options.strict_safety and findings:
        raise SafetyError(
            f"{len(findings)} safety findings, first: {findings[0].subject}",
            where=artifact.path,
            hint="Without --strict-safety it converts; nothing of it is run",
        )
    return match, bundle


def _lower(
    target: targets.Target,
    bundle: Bundle,
    artifact: Artifact,
    options: Options,
    *,
    only_one: bool,
) -> "Generator[Step, None, tuple[Bundle, Sequence[Graph]]]":
    """Lower what the target has graphs of."""
    begin = perf_counter()
    graphs: list[Graph] = []
    if target.graph == "required":
        bundle, graphs = lower_required(bundle, artifact, options, only_one=only_one)
    elif target.graph == "optional":
        bundle, graphs = lower_optional(bundle, artifact, options)
    for graph in graphs:
        yield Step("lowered", describe_graph(graph), perf_counter() - begin)
        for note in graph.notes:
            yield Step("warning", note)
    if (
        not graphs
        and target.graph != "own"
        and {"cpu", "device"} & {options.require, options.verify}
    ):
        raise VerificationError("there is no graph to compare, as was asked", where=artifact.path)
    return bundle, graphs


def _describe(
    bundle: Bundle, warnings: Sequence[str], graphs: "Sequence[Graph]"
) -> Iterator[Step | Lowered]:
    """Say what is planned: what is changed, and what is left out."""
    about = bundle.metadata
    for warning in warnings:
        yield Step("warning", warning)
    yield Lowered(
        [
            {
                "signature": g.signature,
                "nodes": len(g.nodes),
                "opset": g.opset,
                "exporter": g.exporter,
            }
            for g in graphs
        ],
        about,
    )
    for change in about.normalisations:
        yield Step("normalised", f"{change.name}: {change.count}, {change.detail}")
    if about.left_out:
        yield Step("left out", _describe_left_out(about.left_out))


def _describe_bundle(bundle: Bundle) -> str:
    about = bundle.metadata
    total = sum(t.nbytes for t in {t.identity: t for t in bundle.weights.values()}.values())
    text = f"{about.variant}: {len(bundle.weights)} tensors, {readable_size(total)}"
    if about.devices:
        text += ", devices " + ", ".join(f"{d} x{n}" for d, n in about.devices.items())
    return text


def _describe_left_out(entries: Sequence[LeftOut]) -> str:
    reasons: dict[str, int] = {}
    for entry in entries:
        reasons[entry.reason] = reasons.get(entry.reason, 0) + 1
    return "; ".join(f"{n} x {reason}" for reason, n in reasons.items())
