"""What runs on a Ray cluster's nodes: a task does one job, in a child of its own.

The task's process is Ray's and does nothing of the job itself: what crashes, hangs or swells is a
child, is named as with ``--engine processes``, and takes nobody along. Nothing here imports Ray.
"""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from converter import locked
from converter.executors.isolated import run_isolated
from converter.job import Job, Outcome
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


def convert(job: Job, task: str, *, has_gpu: bool) -> Iterator[Begun | Outcome]:
    """Do one job: yield that it is begun, and what came of it.

    Args:
        job: Which.
        task: What the child does with it, ``module:function``.
        has_gpu: Whether Ray has given it one, or a part of one.

    Raises:
        ConvertError: Nothing can be run on this node.
    """
    is_path = scheme_of(job.source) == ""
    yield Begun(socket.gethostname(), not is_path or os.path.lexists(job.source))
    with _environment({} if has_gpu else NO_GPU), _folder() as folder:
        yield run_isolated(job, folder, task=task)


def sweep() -> None:
    """Remove what tasks left on this node whose processes were killed."""
    for place in _places():
        locked.remove_abandoned(place)


def _places() -> Iterator[Path]:
    base = Path(tempfile.gettempdir())
    return (base / f"convert-ray-{os.getuid()}-{n}" for n in range(PLACES))


@contextmanager
def _folder() -> Iterator[Path]:
    """Yield a folder for temporary files, which is gone when the block ends."""
    try:
        folder, lock = locked.make(_places())
    except OSError as e:
        raise StorageError.writing(tempfile.gettempdir(), e) from e
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextmanager
def _environment(given: dict[str, str]) -> Iterator[None]:
    """Have some variables set; Ray gives this process other tasks later."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
