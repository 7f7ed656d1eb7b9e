"""Jobs and their outcomes: plain data that passes between processes.

A `Job` holds everything that a worker on any machine needs, an `Outcome` everything that the ledger
and reports keep. Neither holds an open file, a connection or an exception.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from converter.jobs.record import Record, RecordedError
from converter.options import Options
from converter.version import VERSION

# How a job ended. All but the first three are failures. "lost" is a failure of the machine, not of
# the artifact: the worker or its node went away, and a retry may succeed.
Status = Literal["done", "unchanged", "moved", "failed", "crashed", "timeout", "memory", "lost"]
GOOD: frozenset[str] = frozenset({"done", "unchanged", "moved"})
UNASKED = ("overwrite", "sync")  # options that do not change the output


@dataclass(frozen=True, slots=True)
class Needs:
    """Resources that a job needs.

    Attributes:
        cpus: Number of cores.
        gpus: Number of GPUs, or a fraction of one.
        memory_bytes: Limit of resident memory; None for no limit.
        seconds: Time limit; None for no limit.
    """

    cpus: float = 1.0
    gpus: float = 0.0
    memory_bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One artifact to convert.

    Attributes:
        source: The artifact, as any process finds it: an absolute path, a URL, ``models:/name/3``.
        name: Name of the output in the destination, with ``/`` between folders.
        destination: Where outputs go: an absolute path or a URL.
        options: Options of the conversion.
        token: State of the source from the registry (times, sizes, an ETag), or "".
        known_digest: Digest of the source when it was last converted to this output, or ""; if
            it is unchanged, there is nothing to do.
        needs: Resources that the job needs.
        checkpoint: Reference, like ``source``, to a checkpoint with the values of a graph's
            variables; or "".
        note: A warning from the registry, or "".
        heirlooms: Outputs whose sources are gone, as pairs of source digest and output name: if
            the source has one of these digests, it was renamed, and its output is reused.
        entry: Name of the source in its registry, or "".
    """

    source: str
    name: str
    destination: str
    options: Options
    token: str = ""
    known_digest: str = ""
    needs: Needs = field(default_factory=Needs)
    heirlooms: tuple[tuple[str, str], ...] = ()
    checkpoint: str = ""
    note: str = ""
    entry: str = ""

    @property
    def plan(self) -> str:
        """Digest of the options and of the tool's version, independent of the source."""
        return plan_digest(self.options)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    Attributes:
        source: Source of the job.
        name: Name of the job's output.
        status: How it ended.
        exit_code: Exit code of `formats.errors`; 0 for success.
        record: All facts for reports.
    """

    source: str
    name: str
    status: Status
    exit_code: int
    record: Record


def again(job: Job) -> Job:
    """Return a job for a retry, which may overwrite the output of the first try.

    For executors. A job is begun only if its output path was free or held an output of ours.
    """
    return replace(job, options=replace(job.options, overwrite=True))


def plan_digest(options: Options) -> str:
    """Return the digest of options and of the tool's version."""
    plain = {k: v for k, v in asdict(options).items() if k not in UNASKED}
    text = json.dumps([VERSION, plain], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def new_record(job: Job) -> Record:
    """Return the initial record of a job, with the status ``failed``."""
    return Record(job.source, job.name, job.entry, plan=job.plan, to=job.options.to)


def report_death(
    job: Job, status: Status, message: str, *, seconds: float, attempts: int = 1
) -> Outcome:
    """Return the outcome of a job whose worker ended before it could report.

    Args:
        job: The job.
        status: How it ended.
        message: What happened to it, with the signal's name and the last line of output.
        seconds: How long it had run.
        attempts: How often it was tried.
    """
    record = replace(
        new_record(job),
        status=status,
        exit_code=7,
        error=RecordedError("DependencyError", message),
        seconds=round(seconds, 3),
        attempts=attempts,
    )
    return Outcome(job.source, job.name, status, 7, record)
