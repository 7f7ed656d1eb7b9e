"""The tasks in flight on a Ray cluster, and the outcome of each.

Reasons, from the behaviour of Ray 2.60: ``max_retries`` does not bound the retries of a task that
ran out of memory, so it is 0 and tries are counted here. A task that fits no node waits for ever
without a message, so there is a time limit without progress. Pools lose the jobs of a worker that
died; `ray.wait` over a window of tasks does not. A task is a generator that first yields `Begun`,
which distinguishes a job that takes hours from one that no node takes.
"""

import os
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from converter.byte_sizes import readable_size
from converter.devices.names import KINDS, parse_device
from converter.executors import ray_node
from converter.executors.ray_protocol import Charter, Wanted
from converter.jobs.job import Job, Outcome, Status, again, report_death
from converter.jobs.record import RecordedError
from formats.errors import ConvertError, DependencyError

POLL_SECONDS = 0.2
END_SECONDS = 10.0  # for tasks to be gone
COUNT_SECONDS = 5.0  # between queries of the cluster's resources
QUEUED = 2  # tasks for each core, so that no core is idle
PAUSE_SECONDS = 1.0  # before a retry, times the tries: a dying node accepts every job it gets
LONGEST = 400  # characters of a message from Ray


class StoppedError(Exception):
    """The driver wants no more outcomes, or is gone."""


@dataclass(slots=True, eq=False)
class Try:
    """One job, and how often it was submitted to the cluster.

    Attributes:
        job: The job.
        tries: How often it was submitted.
        begun: When the last try began, by the monotonic clock.
        host: Node that runs it; "" before it begins.
        sees_source: Whether its source is on that node.
        due: When to try again, by the monotonic clock.
    """

    job: Job
    tries: int = 0
    begun: float = 0.0
    host: str = ""
    sees_source: bool = True
    due: float = 0.0


class Window:
    """The submitted tasks, running or waiting for resources."""

    def __init__(self, line: Connection, charter: Charter) -> None:
        """Store the line; nothing is received yet."""
        import ray

        self._ray = ray
        self._line = line
        self._settings = charter.settings
        self._charter = charter
        self._convert = ray.remote(max_retries=0, num_returns="streaming")(ray_node.convert)
        self._flying: dict[Any, Try] = {}  # by the task's generator
        self._again: deque[Try] = deque()
        self._is_all = False  # whether the driver has no more jobs
        self._progress = time.monotonic()
        self._counted = 0.0
        self._size = 0

    def run(self) -> None:
        """Run all jobs.

        Raises:
            StoppedError: The driver wants no more outcomes.
            DependencyError: The cluster takes no jobs.
        """
        while True:
            self._fill()
            if not self._flying and not self._again:
                return
            for generator in self._ready():
                self._take(generator)
            if self._line.poll():
                raise StoppedError
            self._check_progress()

    def _fill(self) -> None:
        """Submit tasks until the window is full."""
        now = time.monotonic()
        while self._again and self._again[0].due <= now and len(self._flying) < self._room():
            self._submit(self._again.popleft())
        if self._is_all or len(self._flying) + len(self._again) >= self._room():
            return
        wanted = self._room() - len(self._flying) - len(self._again)
        self._line.send(Wanted(wanted))
        jobs = self._line.recv()
        self._is_all = len(jobs) < wanted
        for job in jobs:
            self._submit(Try(job))

    def _room(self) -> int:
        now = time.monotonic()
        if self._settings.jobs is not None:
            return self._settings.jobs
        if now - self._counted > COUNT_SECONDS:  # clusters grow and shrink
            self._counted = now
            self._size = int(self._ray.cluster_resources().get("CPU", 0))
        return QUEUED * max(1, self._size)

    def _submit(self, one: Try) -> None:
        one.tries += 1
        one.begun, one.host = time.monotonic(), ""
        job = one.job if one.tries == 1 else again(one.job)
        asked = list_resources(job)
        task = self._convert.options(
            name=f"convert {job.name}",
            num_cpus=asked.get("CPU", 0),
            num_gpus=asked.get("GPU", 0),
            memory=job.needs.memory_bytes,
        )
        self._flying[task.remote(job, self._charter, has_gpu="GPU" in asked)] = one

    def _ready(self) -> list[Any]:
        """Return the tasks that have yielded; wait at most `POLL_SECONDS` for the first."""
        if not self._flying:
            time.sleep(POLL_SECONDS)
            return []
        tasks = list(self._flying)
        ready, rest = self._ray.wait(tasks, timeout=POLL_SECONDS)
        if ready and rest:
            more, _ = self._ray.wait(rest, num_returns=len(rest), timeout=0)
            ready += more
        return list(ready)

    def _take(self, generator: Any) -> None:
        """Handle what a task has yielded."""
        one = self._flying[generator]
        self._progress = time.monotonic()
        try:
            word = self._ray.get(next(generator))
        except StopIteration:  # it ended without an outcome
            word = None
        except Exception as e:  # noqa: BLE001 - any error is this job's
            del self._flying[generator]
            self._lost(one, e)
            return
        if isinstance(word, ray_node.Begun):
            one.begun, one.host = time.monotonic(), word.host
            one.sees_source = word.sees_source
            return
        del self._flying[generator]
        if isinstance(word, Outcome):
            self._end(word, one)
        else:
            self._end(
                report_death(one.job, "failed", f"the task gave {word!r:.80}", seconds=0.0), one
            )

    def _lost(self, one: Try, error: Exception) -> None:
        """Retry or fail a task that gave no outcome.

        Raises:
            DependencyError: No other task will give one either.
        """
        if isinstance(error, self._ray.exceptions.LocalRayletDiedError):
            # Not the raylet of the node that ran it, but the one through which we submit tasks.
            raise DependencyError(
                "Ray's own process on this machine (raylet) went away",
                hint="Run the batch again when it is back: what is done is done",
            )
        seconds = time.monotonic() - one.begun
        status, message = what_happened(error, self._ray.exceptions)
        outcome = report_death(one.job, status, f"{_on(one)}{message}", seconds=seconds)
        if status == "failed":
            cause = getattr(error, "cause", None)
            self._end(outcome, one, cause if isinstance(cause, ConvertError) else None)
        elif one.tries <= self._settings.retries:
            one.due = time.monotonic() + PAUSE_SECONDS * one.tries
            self._again.append(one)
        else:
            self._end(outcome, one)

    def _end(self, outcome: Outcome, one: Try, fault: ConvertError | None = None) -> None:
        """Send an outcome to the driver.

        Args:
            outcome: From the job's child, or made here.
            one: The job.
            fault: The error that kept the node from running it, where it is known.
        """
        record = outcome.record
        tries = record.attempts + one.tries - 1  # attempts on the node are counted there
        record = replace(record, attempts=tries, host=one.host or record.host)
        if outcome.status == "failed" and not one.sees_source and os.path.lexists(one.job.source):
            fault = make_unseen_error(one.job.source, one.host)
        if fault is not None:
            error = RecordedError(type(fault).__name__, f"{_on(one)}{fault}")
            record = replace(record, error=error, exit_code=fault.exit_code)
        self._line.send(replace(outcome, record=record, exit_code=record.exit_code or 0))

    def _check_progress(self) -> None:
        """Raise an error if no task runs and no message has arrived for too long."""
        now = time.monotonic()
        if any(one.host for one in self._flying.values()):
            self._progress = now
        elif self._flying and now - self._progress > self._settings.patience:
            one = next(iter(self._flying.values()))
            raise DependencyError(
                f"the Ray cluster has taken no job for {self._settings.patience:g} s:"
                f" each asks for {readable(list_resources(one.job))}",
                expected=f"at most what a node has: {self._nodes()}",
                hint="Ask for less (needs.gpus=, needs.memory_bytes=), or wait longer (patience=)",
            )

    def _nodes(self) -> str:
        """Return the resources of the cluster's nodes, the largest first."""
        nodes = [n["Resources"] for n in self._ray.nodes() if n["Alive"]]
        nodes.sort(key=lambda n: (n.get("GPU", 0), n.get("CPU", 0)), reverse=True)
        texts = [readable(n) for n in nodes]
        kinds = [f"{texts.count(t)} x ({t})" for t in dict.fromkeys(texts)]
        return ", ".join(kinds[:5]) or "there is none"

    def end(self) -> None:
        """Cancel all tasks, and wait for their end."""
        for generator in self._flying:
            with suppress(Exception):
                self._ray.cancel(generator, force=True)
        until = time.monotonic() + END_SECONDS
        for generator in self._flying:
            with suppress(Exception):  # any error means that the task has ended
                while time.monotonic() < until:
                    ready, _ = self._ray.wait([generator], timeout=until - time.monotonic())
                    if ready:
                        self._ray.get(next(generator))
        self._flying.clear()


def list_resources(job: Job) -> dict[str, float]:
    """Return the resources that a job requests from a node, by Ray's names.

    A verification on a GPU requests one even if ``needs`` does not: otherwise Ray hides all GPUs.
    """
    needs, options = job.needs, job.options
    gpus = needs.gpus
    if not gpus and options.device is not None and "device" in (options.verify, options.require):
        device = parse_device(options.device)
        if KINDS[device.kind].torch == "cuda":
            gpus = device.index + 1  # a task's GPUs are counted from 0
    asked = {"CPU": needs.cpus, "GPU": gpus, "memory": float(needs.memory_bytes or 0)}
    return {name: amount for name, amount in asked.items() if amount}


def readable(resources: Mapping[str, float]) -> str:
    """Format resources for messages."""
    texts = [f"{name} {resources[name]:g}" for name in ("CPU", "GPU") if resources.get(name)]
    if resources.get("memory"):
        texts.append(f"{readable_size(int(resources['memory']))} of memory")
    return ", ".join(texts) or "nothing"


def what_happened(error: Exception, exceptions: Any) -> tuple[Status, str]:
    """Return the status and message of a task without outcome; ``failed`` if a retry is useless."""
    found: tuple[tuple[str, Status, str], ...] = (
        ("OutOfMemoryError", "memory", "Ray stopped it: the node ran out of memory"),
        ("NodeDiedError", "lost", "its node went away"),
        ("WorkerCrashedError", "lost", "the process that ran it went away"),
        ("TaskCancelledError", "lost", "somebody cancelled it"),
        ("ObjectLostError", "lost", "its outcome was lost with its node"),
        ("OwnerDiedError", "lost", "its outcome was lost with its node"),
    )
    for name, status, text in found:
        kind = getattr(exceptions, name, None)
        if kind is not None and isinstance(error, kind):
            hint = (
                "Give each job needs.memory_bytes=, so that fewer run at a time"
                if status == "memory"
                else None
            )
            return status, str(DependencyError(text, hint=hint))
    return "failed", str(DependencyError(f"Ray could not run it: {line_of(error)}"))


def make_unseen_error(path: str, host: str) -> DependencyError:
    """Return the error for a file that a node does not see."""
    return DependencyError(
        f"is on this machine, and not on the node {host} of the Ray cluster",
        where=path,
        hint="Have it in a folder that all nodes share, or in an object store: s3://…, gs://…",
    )


def _on(one: Try) -> str:
    return f"on {one.host}: " if one.host else ""


def line_of(error: BaseException) -> str:
    """Return an error's message on one line: the last line of a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if "Traceback" in str(error) and lines else " ".join(lines)
    return (text or type(error).__name__)[:LONGEST]
