"""The protocol of executors: each job has one outcome, and none affects another."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

from converter.jobs.job import Job, Outcome


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an executor.

    Attributes:
        jobs: Jobs that run at a time; None for one per core, or as many as a cluster takes.
        scratch: Folder for temporary files, the executor's own; the caller removes it.
        address: Address of a cluster, or None for the one that the environment names.
        retries: How often a job is retried after its worker was lost.
        patience: Seconds without progress after which a cluster is given up.
    """

    jobs: int | None
    scratch: Path
    address: str | None = None
    retries: int = 2
    patience: float = 600.0


class Executor(Protocol):
    """Runs jobs. A context manager: on exit it stops all running jobs and waits for their end."""

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Yield the outcome of each job as it ends, in any order.

        Jobs are taken from ``jobs`` lazily, as there is room for them. A job never raises.

        Raises:
            DependencyError: The executor itself cannot work: no cluster, no process.
        """

    def __enter__(self) -> "Executor": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
