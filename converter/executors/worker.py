"""Run one job, from its reference to its published output and its record.

Runs in whatever process an executor chose. It never raises: what goes wrong is the outcome. What
takes the process itself down, its executor tells.
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
from converter.destinations.protocol import Destination
from converter.events import Compared, Lowered, Opened, Step
from converter.graphs import gaps_of
from converter.jobs.job import Job, Outcome, Status, blank_record
from converter.pipeline import Conversion, steps
from converter.registries.catalog import stage
from converter.registries.entry import Staged
from converter.registries.staged import hinted, named
from formats import catalog, portable
from formats.artifact import Artifact
from formats.core import digests
from formats.core.storage import File, Span
from formats.errors import ConvertError

LONGEST_GAP = 200  # characters of what a gap is called: some hold what a framework said


def work(job: Job, scratch: Path) -> Outcome:
    """Convert one artifact.

    Args:
        job: Which, and how.
        scratch: Folder for temporary files; what is put there is removed again.
    """
    record = blank_record(job)
    record |= {"started": round(time.time(), 3), "host": socket.gethostname()}
    begin = time.perf_counter()
    status: Status = "failed"
    try:
        with _folder(scratch) as folder:
            status = _convert(job, folder, record)
        record["exit_code"] = 0
    except ConvertError as e:
        record["exit_code"] = e.exit_code
        record["error"] = _described(e)
        record["gaps"] = record["gaps"] or _counted(gaps_of(e))
    except MemoryError as e:
        status = "memory"
        record["exit_code"] = 7
        record["error"] = _described(e)
    except Exception as e:  # noqa: BLE001 - one artifact's bug of ours costs that artifact
        record["exit_code"] = 70
        record["error"] = _described(e)
    record["status"] = status
    record["seconds"] = round(time.perf_counter() - begin, 4)
    return Outcome(job.source, job.name, status, record["exit_code"], record)


def _convert(job: Job, folder: Path, record: dict[str, Any]) -> Status:
    """Convert, telling the record all that is learnt as it is learnt."""
    destination = open_destination(job.destination)
    staged = stage(job.source, folder)
    if job.note:
        record["warnings"].append(job.note)
    with named(staged.path, job.source):
        if not job.checkpoint:
            return _convert_staged(job, staged, destination, folder, record)
        beside = stage(job.checkpoint, folder).path
        with named(beside, job.checkpoint):
            staged = replace(staged, checkpoint=beside)
            return _convert_staged(job, staged, destination, folder, record)


def _convert_staged(
    job: Job, staged: Staged, destination: Destination, folder: Path, record: dict[str, Any]
) -> Status:
    if job.known_digest and _digest_of(staged, job) == job.known_digest:
        record["source_digest"] = job.known_digest
        return "unchanged"
    if job.heirlooms and _inherits(job, staged, destination, record):
        return "moved"
    options = hinted(job.options, staged)
    target = destination.local(job.name, folder)
    opened: Opened | None = None
    for event in steps(staged.path, target, options):
        if isinstance(event, Step):
            _note(event, record)
        elif isinstance(event, Opened):
            opened = event
            _describe_source(event, record)
        elif isinstance(event, Lowered):
            _describe_graphs(event, record)
        elif isinstance(event, Compared):
            record["verification"]["graphs"][event.signature] = event.report
        elif isinstance(event, Conversion) and opened is not None:
            _describe_result(event, record)
            if event.digests is None:
                record["source_digest"] = _files_digest(opened.files)
            record["output"] = destination.publish(event.path or target, job, staged, record)
    return "done"


def _inherits(job: Job, staged: Staged, destination: Destination, record: dict[str, Any]) -> bool:
    """Reuse the output of a vanished source with the same digest; return whether there is one."""
    digest = _digest_of(staged, job)
    for known, old in job.heirlooms:
        if known == digest and (facts := destination.inherit(old, job, staged.path.name, digest)):
            record |= facts | {"source_digest": digest, "moved_from": old}
            return True
    return False


def _note(step: Step, record: dict[str, Any]) -> None:
    if step.name == "warning":
        record["warnings"].append(step.text)
    record["steps"].append(
        {
            "name": step.name,
            "text": step.text,
            "seconds": None if step.seconds is None else round(step.seconds, 4),
        }
    )


def _describe_source(opened: Opened, record: dict[str, Any]) -> None:
    about = opened.bundle.metadata
    weights = opened.bundle.weights
    record |= {
        "format": opened.format,
        "evidence": opened.evidence,
        "variant": about.variant,
        "framework": about.framework,
        "recorded": dict(about.recorded),
        "devices": dict(about.devices),
        "distribution": dict(about.distribution),
        "findings": [asdict(f) for f in about.findings],
        "bytes": sum(file.size for file in opened.files.values()),
        "tensors": len(weights),
        "weight_bytes": sum(t.nbytes for t in {t.identity: t for t in weights.values()}.values()),
    }


def _describe_graphs(lowered: Lowered, record: dict[str, Any]) -> None:
    about = lowered.metadata
    record |= {
        "normalisations": [asdict(n) for n in about.normalisations],
        "left_out": [x.plain() for x in about.left_out],
        "graphs": [*lowered.graphs],
        "gaps": _counted(gap for x in about.left_out for gap in x.gaps),
    }


def _counted(gaps: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return gaps, each once, the most frequent first."""
    counts: Counter[str] = Counter()
    for what, n in gaps:
        counts[what[:LONGEST_GAP]] += n
    return [{"what": what, "count": n} for what, n in counts.most_common()]


def _describe_result(result: Conversion, record: dict[str, Any]) -> None:
    equal = result.verification.weights
    if result.digests is not None:
        record["source_digest"] = result.digests.source
    if result.digests is not None and result.digests.tensors:
        known, tensors = result.digests.tensors, result.bundle.weights
        record["weights_digest"] = digests.of_weights(
            {n: (t.dtype.name, t.shape, known[n]) for n, t in tensors.items()}
        )
    record["verification"] |= {
        "reached": result.verification.level,
        "weights": None if equal is None else {"tensors": equal.tensors, "bytes": equal.nbytes},
    }


def _digest_of(staged: Staged, job: Job) -> str:
    """Return the digest of a source's files: of those that reading it opens."""
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


def _described(error: BaseException) -> dict[str, str]:
    notes = getattr(error, "__notes__", ())
    text = str(error) if isinstance(error, ConvertError) else f"{type(error).__name__}: {error}"
    return {"type": type(error).__name__, "message": "\n".join([text, *notes])}


@contextmanager
def _folder(scratch: Path) -> Iterator[Path]:
    """Yield a folder for all temporary files of this process, those of libraries too."""
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    # Who ends this process knows its number, and so what it leaves.
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
