"""Run one job, from its reference to its published output and its record.

Runs in the process that an executor chose. It never raises: an error is part of the outcome. The
executor reports the end of the process itself.
"""

import os
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from converter.destinations.catalog import open_destination
from converter.destinations.protocol import Destination, Published
from converter.events import Compared, Lowered, Opened, Step
from converter.filesystem.temporary_copies import name_source_in_errors
from converter.graphs import gaps_of
from converter.jobs.job import Job, Outcome, Status, new_record
from converter.jobs.record import (
    Record,
    RecordedError,
    RecordedGraph,
    RecordedStep,
    Unsupported,
)
from converter.pipeline import Conversion, steps
from converter.references import display_name
from converter.registries.catalog import stage
from converter.registries.entry import Staged
from converter.registries.staged import add_hints
from formats import catalog, portable
from formats.artifact import Artifact
from formats.core import digests
from formats.core.storage import File, Span
from formats.errors import ConvertError

LONGEST_UNSUPPORTED = 200  # characters: some hold a framework's message


class _Draft:
    """The record of the job that runs, as far as it is known."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def update(self, **changes: Any) -> None:
        """Replace fields of the record."""
        self.record = replace(self.record, **changes)


def work(job: Job, scratch: Path) -> Outcome:
    """Convert one artifact.

    Args:
        job: The artifact and how to convert it.
        scratch: Folder for temporary files; everything put there is removed again.
    """
    draft = _Draft(new_record(job))
    draft.update(started=round(time.time(), 3), host=socket.gethostname())
    begin = time.perf_counter()
    status: Status = "failed"
    exit_code = 0
    try:
        with _folder(scratch) as folder:
            status = _convert(job, folder, draft)
    except ConvertError as e:
        exit_code = e.exit_code
        unsupported = draft.record.unsupported or _counted(gaps_of(e))
        draft.update(error=_describe(e), unsupported=unsupported)
    except MemoryError as e:
        status, exit_code = "memory", 7
        draft.update(error=_describe(e))
    except Exception as e:  # noqa: BLE001 - a bug of ours fails only this artifact
        exit_code = 70
        draft.update(error=_describe(e))
    seconds = round(time.perf_counter() - begin, 4)
    draft.update(status=status, exit_code=exit_code, seconds=seconds)
    return Outcome(job.source, job.name, status, exit_code, draft.record)


def _convert(job: Job, folder: Path, draft: _Draft) -> Status:
    """Convert, and add to the draft each fact as soon as it is known."""
    destination = open_destination(job.destination)
    staged = stage(job.source, folder)
    if job.note:
        draft.update(warnings=(job.note,))
    with name_source_in_errors(staged.path, display_name(job.source)):
        if not job.checkpoint:
            return _convert_staged(job, staged, destination, folder, draft)
        checkpoint = stage(job.checkpoint, folder).path
        with name_source_in_errors(checkpoint, display_name(job.checkpoint)):
            staged = replace(staged, checkpoint=checkpoint)
            return _convert_staged(job, staged, destination, folder, draft)


def _convert_staged(
    job: Job, staged: Staged, destination: Destination, folder: Path, draft: _Draft
) -> Status:
    if job.known_digest and _digest_of(staged, job) == job.known_digest:
        draft.update(source_digest=job.known_digest)
        return "unchanged"
    if job.heirlooms and _inherit(job, staged, destination, draft):
        return "moved"
    options = add_hints(job.options, staged)
    target = destination.local(job.name, folder)
    opened: Opened | None = None
    for event in steps(staged.path, target, options):
        if isinstance(event, Step):
            _add_step(event, draft)
        elif isinstance(event, Opened):
            opened = event
            _describe_source(event, draft)
        elif isinstance(event, Lowered):
            _describe_graphs(event, draft)
        elif isinstance(event, Compared):
            verification = draft.record.verification
            graphs = {**verification.graphs, event.signature: event.report}
            draft.update(verification=replace(verification, graphs=graphs))
        elif isinstance(event, Conversion) and opened is not None:
            _describe_result(event, draft)
            if event.digests is None:
                draft.update(source_digest=_files_digest(opened.files))
            published = destination.publish(event.path or target, job, staged, draft.record)
            _describe_published(published, draft)
    return "done"


def _inherit(job: Job, staged: Staged, destination: Destination, draft: _Draft) -> bool:
    """Take over the output of a source that is gone, if the contents are the same.

    Returns:
        Whether an output was taken over.
    """
    digest = _digest_of(staged, job)
    for known, old in job.heirlooms:
        if known == digest:
            published = destination.rename_output(old, job, staged.path.name, digest)
            if published is not None:
                _describe_published(published, draft)
                draft.update(source_digest=digest, moved_from=old)
                return True
    return False


def _add_step(step: Step, draft: _Draft) -> None:
    if step.name == "warning":
        draft.update(warnings=(*draft.record.warnings, step.text))
    seconds = None if step.seconds is None else round(step.seconds, 4)
    draft.update(steps=(*draft.record.steps, RecordedStep(step.name, step.text, seconds)))


def _describe_source(opened: Opened, draft: _Draft) -> None:
    about = opened.bundle.metadata
    weights = opened.bundle.weights
    draft.update(
        format=opened.format,
        evidence=opened.evidence,
        variant=about.variant,
        framework=about.framework,
        recorded=dict(about.recorded),
        devices=dict(about.devices),
        distribution=dict(about.distribution),
        findings=tuple(asdict(f) for f in about.findings),
        bytes=sum(file.size for file in opened.files.values()),
        tensors=len(weights),
        weight_bytes=sum(t.nbytes for t in {t.identity: t for t in weights.values()}.values()),
    )


def _describe_graphs(lowered: Lowered, draft: _Draft) -> None:
    about = lowered.metadata
    draft.update(
        normalisations=tuple(asdict(n) for n in about.normalisations),
        left_out=tuple(x.plain() for x in about.left_out),
        graphs=tuple(RecordedGraph(**graph) for graph in lowered.graphs),  # type: ignore[arg-type]  # JSON
        unsupported=_counted(gap for x in about.left_out for gap in x.gaps),
    )


def _counted(found: Iterable[tuple[str, int]]) -> tuple[Unsupported, ...]:
    """Return the unsupported features with their counts, the most frequent first."""
    counts: Counter[str] = Counter()
    for what, n in found:
        counts[what[:LONGEST_UNSUPPORTED]] += n
    return tuple(Unsupported(what, n) for what, n in counts.most_common())


def _describe_result(result: Conversion, draft: _Draft) -> None:
    equal = result.verification.weights
    if result.digests is not None:
        draft.update(source_digest=result.digests.source)
    if result.digests is not None and result.digests.tensors:
        known, tensors = result.digests.tensors, result.bundle.weights
        digest = digests.of_weights(
            {n: (t.dtype.name, t.shape, known[n]) for n, t in tensors.items()}
        )
        draft.update(weights_digest=digest)
    weights = None if equal is None else {"tensors": equal.tensors, "bytes": equal.nbytes}
    verification = draft.record.verification
    reached = result.verification.level
    draft.update(verification=replace(verification, reached=reached, weights=weights))


def _describe_published(published: Published, draft: _Draft) -> None:
    warnings = (*draft.record.warnings, *published.warnings)
    draft.update(output=published.output, published=published.facts, warnings=warnings)


def _digest_of(staged: Staged, job: Job) -> str:
    """Return the digest of the source files that reading it opens."""
    limits, checkpoint = job.options.limits, staged.checkpoint
    artifact = Artifact(staged.path, limits)
    beside = None if checkpoint is None else Artifact(checkpoint, limits)
    catalog.read(artifact, job.options.format, beside)
    return _files_digest(artifact.opened)


def _files_digest(files: Mapping[str, File]) -> str:
    found = [
        portable.Resource(name, file.size, digests.of_span(Span.whole(file)))
        for name, file in files.items()
    ]
    return portable.files_digest(found)["value"]


def _describe(error: BaseException) -> RecordedError:
    notes = getattr(error, "__notes__", ())
    text = str(error) if isinstance(error, ConvertError) else f"{type(error).__name__}: {error}"
    return RecordedError(type(error).__name__, "\n".join([text, *notes]))


@contextmanager
def _folder(scratch: Path) -> Iterator[Path]:
    """Yield a folder for all temporary files of this process, including those of libraries."""
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    # The name holds the pid, by which `cleanup` finds the folder when this process is killed.
    folder = Path(tempfile.mkdtemp(prefix=f"job-{os.getpid()}-", dir=scratch))
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before[1]
        if before[0] is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before[0]
        shutil.rmtree(folder, ignore_errors=True)
