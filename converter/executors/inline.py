"""Run jobs one after another in this process, for debuggers and tests."""

from collections.abc import Iterable, Iterator
from types import TracebackType

from converter.executors.engine import Executor, Settings
from converter.executors.worker import work
from converter.jobs.job import Job, Outcome


class Inline:
    """Runs jobs without isolation: a crash ends the whole batch, and no limits are enforced."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Yield the outcome of each job in turn."""
        for job in jobs:
            yield work(job, self._settings.scratch)

    def __enter__(self) -> "Inline":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


def open_executor(settings: Settings) -> Executor:
    """Return the executor; it ignores ``jobs`` and limits."""
    return Inline(settings)
