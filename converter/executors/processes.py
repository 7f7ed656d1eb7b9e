"""Run jobs in crash-isolated child processes on this machine.

A fork server does the work (`fork_server`); this module schedules and retries jobs. A job is
retried only if the failure may not be its own fault, ``Settings.retries`` times, and alone, so that
a job which takes others down with it is identified:

- a job that crashed in a child which had run other jobs before is retried in a fresh child;
- a job whose server died is retried, and is ``lost`` in the end;
- so is a job that was killed (SIGKILL) from outside: by a person, a scheduler or the kernel. If it
  is killed again while it runs alone, the fault is its own: ``memory`` where the kernel reports
  that memory ran out, else ``crashed``, which later runs do not retry unless asked to.
"""

import json
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from types import TracebackType

from converter.executors import cleanup
from converter.executors.engine import Executor, Settings
from converter.executors.protocol import WORK, Charter, Word
from converter.executors.server import Server, ServerLostError
from converter.jobs.job import Job, Outcome, Status, again, report_death
from converter.jobs.record import Record

QUEUED = 4  # jobs queued at the server for each running one
LOST = "the process that ran it went away"


@dataclass(slots=True)
class Try:
    """One job, and how often it was begun.

    Attributes:
        job: The job.
        begun: How often it was begun.
        pid: Pid of the child of the current server that runs it; 0 where none does.
        began: When it was last begun, by the monotonic clock.
    """

    job: Job
    begun: int = 0
    pid: int = 0
    began: float = 0.0


class Processes:
    """Runs each job in a child process that is fresh or unchanged."""

    def __init__(self, settings: Settings, task: str = WORK, *, preloads: bool = True) -> None:
        """Store the settings; processes are started by the first job.

        Args:
            settings: Settings of the executor.
            task: Function that a child calls with its job, ``module:function``.
            preloads: Whether the server imports the modules of a conversion once for all children.
        """
        self._settings = settings
        self._task = task
        self._preloads = preloads
        self._jobs = settings.jobs or cores()
        self._server: Server | None = None
        self._numbers = 0
        self._sent: dict[int, Try] = {}  # by order
        self._again: deque[Try] = deque()
        self._suspects: deque[Try] = deque()  # tried again one at a time

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Yield the outcome of each job as it ends.

        Raises:
            DependencyError: No process can be started.
            StorageError: The folder for temporary files cannot be written.
        """
        rest = iter(jobs)
        while True:
            try:
                self._send(rest)
                if not self._sent:
                    return
                news = self._server.hear() if self._server is not None else []
            except ServerLostError as e:
                yield from self._lost(f"{LOST}{e}")
                continue
            for word in news:
                outcome = self._take(word)
                if outcome is not None:
                    yield outcome

    def _send(self, rest: Iterator[Job]) -> None:
        """Send orders until the server's queue is full."""
        if self._suspects:
            if not self._sent:
                self._order(self._suspects.popleft())
            return
        room = self._jobs * (1 + QUEUED) - len(self._sent)
        while self._again and room:
            self._order(self._again.popleft())
            room -= 1
        for job in islice(rest, room):
            self._order(Try(job))

    def _order(self, one: Try) -> None:
        if self._server is None:
            scratch = str(self._settings.scratch)
            self._server = Server(Charter(scratch, self._jobs, one.job, self._preloads, self._task))
        self._numbers += 1
        one.pid = 0
        self._sent[self._numbers] = one
        self._server.send(self._numbers, again(one.job) if one.begun else one.job)

    def _take(self, word: Word) -> Outcome | None:
        """Handle a message of the server; return the outcome if the message holds one."""
        one = self._sent[word.number]
        if word.end == "begun":
            one.begun += 1
            one.pid = int(word.text)
            one.began = time.monotonic()
            return None
        del self._sent[word.number]
        if word.end == "answered":
            return _answered(one, word)
        if word.end == "spoilt":  # a retry in a fresh child shows whether the job is at fault
            self._suspects.append(one)
            return None
        if word.end in ("killed", "oom"):
            return self._killed(one, word)
        return _report_death(one, status_of(word), word.text.decode(), word.seconds)

    def _killed(self, one: Try, word: Word) -> Outcome | None:
        """Retry a job whose worker was SIGKILLed; give up if the OOM killer strikes again."""
        is_own_fault = word.end == "oom" and one.begun > 1
        if one.begun <= self._settings.retries and not is_own_fault:
            self._suspects.append(one)
            return None
        status, text = status_of(word), word.text.decode()
        if one.begun > 1 and status == "lost":
            status = "crashed"
            text += f" ({one.begun} times)"
        return _report_death(one, status, text, word.seconds)

    def _lost(self, what: str) -> Iterator[Outcome]:
        """Requeue the jobs of a dead server; yield those without retries left as ``lost``."""
        self._stop()
        sent, self._sent = list(self._sent.values()), {}
        # Jobs are begun in the order in which they were sent: these were, or may have been.
        suspects = sent[: self._jobs]
        self._again.extend(sent[self._jobs :])
        for one in suspects:
            # Its child may have published the output before the "begun" message was received.
            one.job = again(one.job)
            if len(sent) == 1 and not one.pid:  # it was begun, but the message was lost
                one.begun += 1
                one.began = time.monotonic()
            if one.begun <= self._settings.retries:
                self._suspects.append(one)
            else:
                yield _report_death(one, "lost", what, time.monotonic() - one.began)

    def _stop(self) -> None:
        """Stop the server, and remove files that it may have left."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()
            for one in self._sent.values():
                cleanup.remove(one.job, self._settings.scratch)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        self._sent.clear()


def open_executor(settings: Settings) -> Executor:
    """Return the executor."""
    return Processes(settings)


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def status_of(word: Word) -> Status:
    """Return the status of a job that gave no answer and is not retried."""
    if word.end == "oom":
        return "memory"
    if word.end in ("timeout", "memory", "crashed"):
        return word.end
    return "lost"


def _answered(one: Try, word: Word) -> Outcome:
    job = one.job
    try:
        record = Record.from_json(json.loads(word.text))
    except ValueError:  # some code in that process wrote to our pipe
        return _report_death(one, "crashed", "its answer is damaged", word.seconds)
    record = replace(record, attempts=one.begun)
    status: Status = record.status  # type: ignore[assignment]  # it was one when sent
    return Outcome(job.source, job.name, status, record.exit_code or 0, record)


def _report_death(one: Try, status: Status, message: str, seconds: float) -> Outcome:
    return report_death(one.job, status, message, seconds=seconds, attempts=one.begun)
