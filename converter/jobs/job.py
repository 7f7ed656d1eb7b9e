"""One artifact to convert, and what came of it: plain facts that pass between processes.

A `Job` says everything that a worker on any machine needs; an `Outcome` everything that the ledger
and reports keep. Neither holds an open file, a connection or an exception.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from converter.jobs.record import Record, RecordedError
from converter.options import Options
from converter.version import VERSION

# How a job ended. All but the first three are failures; "lost" is the machine's, not the
# artifact's: the worker or its node went away, and the same job is worth another try.
Status = Literal["done", "unchanged", "moved", "failed", "crashed", "timeout", "memory", "lost"]
GOOD: frozenset[str] = frozenset({"done", "unchanged", "moved"})
UNASKED = ("overwrite", "sync")  # options that change nothing in what is written


@dataclass(frozen=True, slots=True)
class Needs:
    """What a job takes of a machine.

    Attributes:
        cpus: Cores.
        gpus: Devices, or parts of one.
        memory_bytes: Resident, until the job is stopped; None for no limit.
        seconds: Until it is stopped; None for no limit.
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
        name: Of the output in the destination, with ``/`` between folders.
        destination: Where outputs go: an absolute path or a URL.
        options: Of the conversion.
        token: What the registry says of the source's state (times, sizes, an ETag), or "".
        known_digest: Of the source when it was last converted to this very output, or ""; where
            it still has that digest, there is nothing to do.
        needs: What it takes of a machine.
        checkpoint: Of the values that a graph's variables have, as ``source`` is; or "".
        note: A warning of the registry's, or "".
        heirlooms: Outputs whose sources are gone, as digest of the source and name: where the
            source is one of these under another name, its output is taken over.
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

    @property
    def plan(self) -> str:
        """What is to be done, whatever with: a digest of the options and of the tool's version."""
        return plan_digest(self.options)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    Attributes:
        source: The job's.
        name: The job's.
        status: In a word.
        exit_code: As `formats.errors` has them; 0 where it is good.
        record: All that reports say of it.
    """

    source: str
    name: str
    status: Status
    exit_code: int
    record: Record


def again(job: Job) -> Job:
    """Return a job that is tried once more: what stands in its output's place is the first try's.

    For executors. A job is only ever begun where the place was free, or what it held was ours.
    """
    return replace(job, options=replace(job.options, overwrite=True))


def plan_digest(options: Options) -> str:
    """Return the digest of options and of the tool's version."""
    plain = {k: v for k, v in asdict(options).items() if k not in UNASKED}
    text = json.dumps([VERSION, plain], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def new_record(job: Job) -> Record:
    """Return the record of a job of which nothing is known yet, and which has failed so far."""
    return Record(job.source, job.name, plan=job.plan, to=job.options.to)


def died(job: Job, status: Status, message: str, *, seconds: float, attempts: int = 1) -> Outcome:
    """Return the outcome of a job whose worker could not tell it any more.

    Args:
        job: Which.
        status: How it ended.
        message: What happened to it, with the name of a signal and its last words.
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
