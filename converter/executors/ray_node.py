"""The Ray task on a node: one job, in a child process.

The task's process is Ray's and does nothing of the job itself: what crashes, hangs or swells is a
child, is named as with the engine ``processes``, and takes nobody along. Nothing here imports Ray.
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

PLACES = 1024  # for folders of tasks that run on one node at a time
# A task that has no GPU must not take one that another task was given: Ray lets it see all.
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}


@dataclass(frozen=True, slots=True)
class Begun:
    """A job is being done.

    Attributes:
        host: Where.
        sees_source: Whether a source that is a path is there; true for one that is none.
    """

    host: str
    sees_source: bool


class Station:
    """What a process of Ray's keeps from one job to the next: a fork server.

    To start one takes a second, an artifact often a few milliseconds. It ends with the process.
    """

    def __init__(self) -> None:
        self._executor: Processes | None = None
        self._place: Path | None = None  # of its temporary files; there are none between jobs
        self._visible: dict[str, str | None] = {}

    def run(self, job: Job, charter: Charter, *, has_gpu: bool) -> Outcome:
        """Do one job in a child.

        Raises:
            ConvertError: No child can be started, or it would have no place.
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
        """Make the folder that the server knows, or one for a new server, and lock it."""
        try:
            if self._place is not None:
                try:
                    return directory_lock.make([self._place])
                except FileExistsError:  # it is another process's by now
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
    """Do one job: yield that it is begun, and what came of it.

    Args:
        job: Which.
        charter: What the executor was told.
        has_gpu: Whether Ray has given the task one, or a part of one.

    Raises:
        ConvertError: Nothing can be run on this node.
    """
    is_path = scheme_of(job.source) == ""
    yield Begun(socket.gethostname(), not is_path or os.path.lexists(job.source))
    yield STATION.run(job, charter, has_gpu=has_gpu)


def sweep() -> None:
    """Remove what tasks left on this node whose processes were killed."""
    for place in _places():
        directory_lock.remove_abandoned(place)


def _places() -> Iterator[Path]:
    base = Path(tempfile.gettempdir())
    return (base / f"convert-ray-{os.getuid()}-{n}" for n in range(PLACES))


@contextmanager
def _environment(given: Mapping[str, str | None]) -> Iterator[None]:
    """Have some variables set; what Ray has set is its own again after that."""
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
