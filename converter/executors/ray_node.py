"""The Ray task on a node: one job, in a child process.

The task's process belongs to Ray and runs no part of the job itself. A job that crashes, hangs or
exceeds its memory does so in a child, is reported as by the engine ``processes``, and affects no
other job. Nothing here imports Ray.
"""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from converter.executors.processes import Processes
from converter.executors.ray_protocol import Charter
from converter.filesystem import directory_lock
from converter.jobs.job import Job, Outcome
from converter.registries.catalog import scheme_of
from formats.errors import StorageError

PLACES = 1024  # folders for tasks that run on one node at a time
# A task without a GPU must not use one that another task was given: Ray lets it see all.
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}


@dataclass(frozen=True, slots=True)
class Begun:
    """Message that a job has begun.

    Attributes:
        host: Name of the node.
        sees_source: Whether the source exists on the node; true for a source that is not a path.
    """

    host: str
    sees_source: bool


class Station:
    """The fork server that a Ray worker process keeps from one job to the next.

    Starting one takes a second, an artifact often a few milliseconds. It ends with the process.
    """

    def __init__(self) -> None:
        self._executor: Processes | None = None
        self._place: Path | None = None  # folder of its temporary files; absent between jobs
        self._visible: dict[str, str | None] = {}

    def run(self, job: Job, charter: Charter, *, has_gpu: bool) -> Outcome:
        """Run one job in a child.

        Raises:
            ConvertError: No child can be started, or its temporary folder cannot be made.
        """
        visible = {name: os.environ.get(name) if has_gpu else none for name, none in NO_GPU.items()}
        if visible != self._visible:
            self._close()
        folder, lock = self._folder()
        try:
            with _environment(visible):
                if self._executor is None:
                    settings = replace(charter.settings, jobs=1, scratch=folder)
                    self._executor, self._visible = Processes(settings, charter.task), visible
                (outcome,) = self._executor.run([job])
        except BaseException:
            self._close()
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
        return outcome

    def _folder(self) -> tuple[Path, int]:
        """Make and lock the current server's folder, or one for a new server."""
        try:
            if self._place is not None:
                try:
                    return directory_lock.make([self._place])
                except FileExistsError:  # another process has it now
                    self._close()
            self._place, lock = directory_lock.make(_places())
        except OSError as e:
            raise StorageError.writing(tempfile.gettempdir(), e) from e
        return self._place, lock

    def _close(self) -> None:
        executor, self._executor, self._place = self._executor, None, None
        if executor is not None:
            with executor:
                pass


STATION = Station()


def convert(job: Job, charter: Charter, *, has_gpu: bool) -> Iterator[Begun | Outcome]:
    """Run one job; yield `Begun`, then its outcome.

    Args:
        job: The job.
        charter: Configuration of the executor.
        has_gpu: Whether Ray has given the task a GPU, or a fraction of one.

    Raises:
        ConvertError: No job can be run on this node.
    """
    is_path = scheme_of(job.source) == ""
    yield Begun(socket.gethostname(), not is_path or os.path.lexists(job.source))
    yield STATION.run(job, charter, has_gpu=has_gpu)


def sweep() -> None:
    """Remove the files of killed tasks on this node."""
    for place in _places():
        directory_lock.remove_abandoned(place)


def _places() -> Iterator[Path]:
    base = Path(tempfile.gettempdir())
    return (base / f"convert-ray-{os.getuid()}-{n}" for n in range(PLACES))


@contextmanager
def _environment(given: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables for the block, then restore the values that Ray set."""
    before = {name: os.environ.get(name) for name in given}
    _set(given)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
