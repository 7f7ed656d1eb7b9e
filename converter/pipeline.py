"""The conversion pipeline: read, normalise, lower, plan, write, verify, publish.

`steps` yields events as they happen, and the `Conversion` last. Nothing here prints.
"""

import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

from converter.byte_sizes import readable_size
from converter.events import Compared, Lowered, Opened, Progress, Started, Step
from converter.filesystem.atomic_output import check_target, publish, staging, sync_tree
from converter.graphs import (
    describe_graph,
    graph_facts,
    keep_quantized,
    lower_optional,
    lower_required,
    options_of_quantized,
)
from converter.normalise.groups import TRAINING_STATE, select_groups
from converter.normalise.prefixes import REMOVED, strip_prefixes
from converter.normalise.quantized.forms import FindForm
from converter.normalise.quantized.schemes import find_floats
from converter.normalise.wording import describe_change
from converter.notebook import render_table
from converter.options import Options
from converter.reading import is_changed, is_quantized, read_steps
from converter.verification.outputs import compare_output
from converter.verification.result import Verification
from converter.write import catalog as targets
from converter.write.background import Background
from converter.write.hugging_face import changed_folder
from converter.write.output_path import AnyPath, check_apart, locate_output, settle_output
from converter.write.plan import Digests
from formats.artifact import Artifact
from formats.core.bundle import Bundle, LeftOut
from formats.core.plurals import count
from formats.errors import VerificationError

if TYPE_CHECKING:
    from converter.lower.graph import Graph

NAMED = 3  # things left out for one reason that are named

Event: TypeAlias = "Step | Started | Progress | Opened | Lowered | Compared | Conversion"


@dataclass(frozen=True, slots=True, repr=False)
class Conversion:
    """A finished conversion.

    Attributes:
        path: The output; None after a dry run or an upload.
        source: The converted artifact, as given.
        bundle: The bundle that was written; its weights are still in the source's files.
        format: Row of `formats.catalog` of the source.
        evidence: Why the source was detected as that format.
        verification: What was compared, and the level reached.
        digests: Digests of the source's files and tensors, where they were computed.
        steps: The finished steps, in order.
        url: URL of the uploaded output.
    """

    path: Path | None
    source: str
    bundle: Bundle
    format: str
    evidence: str
    verification: Verification = field(default_factory=Verification)
    digests: Digests | None = None
    steps: tuple[Step, ...] = ()
    url: str | None = None

    def __repr__(self) -> str:
        output = self.url or self.path or "nothing (a dry run)"
        tensors = count("tensor", len(self.bundle.weights))
        return (
            f"<Conversion of {self.source} to {output}: {tensors}, "
            f"verified: {self.verification.level}>"
        )

    def _repr_html_(self) -> str:
        changes = self.bundle.metadata
        rows = [
            ("source", f"{self.source} ({self.format})"),
            ("output", self.url or self.path or ""),
            ("verified", self.verification.level),
            *((step.name, step.text) for step in self.steps),
            *(("left out", f"{x.name}: {x.reason}") for x in changes.left_out),
        ]
        return render_table("conversion", rows)


def steps(
    source: str | Path, out: AnyPath | None, options: Options, *, dry_run: bool = False
) -> Iterator[Event]:
    """Convert one artifact; yield each finished step, and the result last.

    ``out`` is a path, or a folder that ends in a slash (see `locate_output`).

    Raises:
        UsageError: The options contradict each other or the output exists.
        SourceError: The source is unreadable.
        UnsupportedError: Source, target or verification are not supported yet.
        SafetyError: ``strict_safety`` found something.
        StorageError: The output could not be written.
        VerificationError: The output differs from the source, or less was verified than required.
    """
    target = targets.check_options(options)
    source = Path(source)
    output, is_named = locate_output(source, out, target, options.device)
    if not dry_run:
        for path in (source, *filter(None, [options.checkpoint, options.merge_adapter])):
            check_apart(path, output)
        check_target(output, force=options.overwrite)

    artifact = Artifact(source, options.limits)
    match, bundle = yield from read_steps(artifact, options)
    forms: Mapping[Hashable, FindForm] = {}
    if target.graph == "required" and is_quantized(bundle):
        options = options_of_quantized(options)
        bundle, forms = find_floats(bundle)
    if not target.keeps_source:
        bundle = strip_prefixes(select_groups(bundle, options.include), options.strip_prefix)
    only_one = target.is_one_file(output if is_named else None, options)
    with ExitStack() as kept:
        model, begin = artifact, perf_counter()
        if forms or (is_changed(bundle, options) and target.graph_of(match.format.id) != "none"):
            model = kept.enter_context(changed_folder(bundle, artifact))
        if target.graph_of(match.format.id) in ("required", "optional"):
            yield Started("lowering", f"the graph of {source.name}")
        bundle, graphs = _lower(target, bundle, model, options, only_one=only_one)
        stored = keep_quantized(graphs, bundle, forms) if forms else bundle
        for graph in graphs:
            yield Step("lowered", describe_graph(graph), perf_counter() - begin)
            for note in graph.notes:
                yield Step("warning", note)
        plan = target.plan(stored, graphs, artifact, options)
        yield from _describe(plan.bundle, plan.warnings, graphs)
        output = settle_output(output, target, plan, is_named=is_named)
        plan.settle(output)
        result = Conversion(None, str(source), plan.bundle, match.format.id, match.evidence)
        if dry_run:
            yield Step("planned", f"{output}: {plan.summary()}")
            yield result
            return

        check_target(output, force=options.overwrite)
        folder = kept.enter_context(staging(output))
        damage = kept.enter_context(Background(artifact.check_checksums))
        payload = folder / "payload"
        payload.mkdir()
        sync = options.sync or os.path.lexists(output)
        begin = perf_counter()
        written, weights = yield from plan.write(
            payload, verify=options.verify != "none", sync=sync
        )
        seconds = perf_counter() - begin
        damage.result()
        verification = yield from compare_output(
            model.path, bundle, plan, written, weights, target.format, options
        )
        verification.check(options)
        signatures = [file.graph.signature for file in plan.graph_files()]
        evidence = verification.manifest(len(plan.bundle.weights), signatures)
        digests = plan.record(written, evidence, sync=sync)
        for file in artifact.opened.values():
            file.check_unchanged()
        if sync:
            sync_tree(payload)
        publish(written, output, force=options.overwrite, sync=sync)
        yield Step("written", _describe_files(output), seconds)
    yield replace(result, path=output, verification=verification, digests=digests)


def _lower(
    target: targets.Target,
    bundle: Bundle,
    artifact: Artifact,
    options: Options,
    *,
    only_one: bool,
) -> "tuple[Bundle, Sequence[Graph]]":
    """Lower the source if the target contains graphs."""
    graphs: list[Graph] = []
    wanted = target.graph_of(bundle.metadata.format)
    if wanted == "required":
        bundle, graphs = lower_required(bundle, artifact, options, only_one=only_one)
    elif wanted == "optional":
        bundle, graphs = lower_optional(bundle, artifact, options)
    runs = {"cpu", "device"} & {options.require, options.verify}
    if runs and not graphs and wanted != "own":
        raise VerificationError(
            "there is no graph to compare, which is required", where=artifact.path
        )
    return bundle, graphs


def _describe(
    bundle: Bundle, warnings: Sequence[str], graphs: "Sequence[Graph]"
) -> Iterator[Step | Lowered]:
    """Yield the planned changes and omissions."""
    about = bundle.metadata
    for warning in warnings:
        yield Step("warning", warning)
    yield Lowered([graph_facts(graph) for graph in graphs], about)
    for change in about.normalisations:
        name = "renamed" if change.detail == REMOVED else "normalised"
        yield Step(name, describe_change(change))
    yield from _describe_left_out(about.left_out)


def _describe_files(output: Path) -> str:
    """Return how many files an output has, and how large they are."""
    paths = [path for path in (output, *output.rglob("*")) if path.is_file()]
    return f"{count('file', len(paths))}, {readable_size(sum(p.stat().st_size for p in paths))}"


def _describe_left_out(entries: Sequence[LeftOut]) -> Iterator[Step]:
    """Yield a step for each reason, with what is left out for it."""
    by_reason: dict[str, list[str]] = {}
    for entry in entries:
        by_reason.setdefault(entry.reason, []).append(entry.name)
    for reason, names in by_reason.items():
        if reason in TRAINING_STATE:
            yield Step("left out", f"{count('tensor', len(names))} of {reason}")
            continue
        text = ", ".join(names[:NAMED])
        text += f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield Step("left out", f"{text}: {reason}")
