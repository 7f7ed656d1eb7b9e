"""Run jobs on an existing Ray cluster: one task each, wherever resources are free.

Ray itself runs in a separate process (`ray_driver`), because it ends the process that joined a
cluster when the cluster dies, and writes to the terminal regardless of its settings. Neither is
acceptable in a program that keeps a ledger. That process ends with this one, and ends its tasks.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from itertools import chain, islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO

from converter.executors.engine import Executor, Settings
from converter.executors.protocol import WORK
from converter.executors.ray_protocol import Charter, Wanted
from converter.extras import describe_install
from converter.jobs.job import Job, Outcome
from formats.errors import ConvertError, DependencyError, UnsupportedError, UsageError

MODULE = "converter.executors.ray_driver"
STOP_SECONDS = 30.0  # to end tasks and remove their files
LAST_BYTES = 4096


class Ray:
    """Sends jobs to the process that has joined the cluster."""

    def __init__(self, settings: Settings, task: str = WORK) -> None:
        """Store the settings; the cluster is joined with the first job.

        Args:
            settings: Settings of the executor.
            task: Function that a child calls with its job, ``module:function``.

        Raises:
            DependencyError: Ray is not installed.
            UsageError: The address is not that of a cluster.
            UnsupportedError: The address is for Ray Client.
        """
        self._settings = settings
        self._task = task
        self._process: subprocess.Popen[bytes] | None = None
        self._line: Connection | None = None
        self._log: IO[bytes] | None = None
        if find_spec("ray") is None:
            hint = f"In the version that the cluster has: {describe_install('ray')}"
            raise DependencyError("engine='ray' takes Ray, which is not installed", hint=hint)
        _check_address(settings.address or os.environ.get("RAY_ADDRESS") or "auto")

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Yield the outcome of each job as it ends.

        Raises:
            DependencyError: The cluster does not exist or went away, or its nodes lack this
                program, do not see local files, or take no job for ``Settings.patience`` seconds.
            UsageError: Jobs need a fractional number of GPUs above one.
        """
        rest = iter(jobs)
        first = next(rest, None)
        if first is None:
            return
        _check_gpus(first.needs.gpus)
        rest = chain([first], rest)
        line = self._start(Charter(self._settings, first, self._task))
        try:
            while True:
                match line.recv():
                    case Outcome() as outcome:
                        yield outcome
                    case Wanted(n):
                        line.send(list(islice(rest, n)))
                    case ConvertError() as fault:
                        raise fault
                    case None:
                        return
        except (EOFError, ConnectionError) as e:
            raise self._fault() from e

    def _start(self, charter: Charter) -> Connection:
        line, theirs = Pipe()
        self._line = line
        self._log = TemporaryFile(dir=self._settings.scratch)  # noqa: SIM115 - as long as it runs
        command = [sys.executable, "-P", "-m", MODULE, str(theirs.fileno()), str(os.getpid())]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C in a terminal is this process's business
            )
        except OSError as e:
            raise DependencyError(f"cannot be run: {e.strerror}", where=sys.executable) from e
        finally:
            theirs.close()
        with suppress(OSError):  # it died at once: `run` detects that when it receives
            line.send(charter)
        return line

    def _fault(self) -> DependencyError:
        """Return the error for a process that ended without a message."""
        code = self._process.wait() if self._process is not None else 0
        lines = []
        if self._log is not None:
            self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - LAST_BYTES))
            lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return DependencyError(
            f"the Ray cluster went away, and Ray ended with {code}"
            + (f": {lines[-1].strip()[:300]}" if lines else ""),
            where=self._settings.address,
            hint="Run the batch again when the cluster is back: what is done is done",
        )

    def __enter__(self) -> "Ray":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._line is not None:
            self._line.close()  # this makes the process end
        if self._process is not None:
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            finally:
                if self._process.poll() is None:
                    self._process.kill()
                    self._process.wait()
        if self._log is not None:
            self._log.close()


def _check_address(address: str) -> None:
    expected = "HOST:PORT of a cluster, or auto for the one on this machine"
    if address == "local":
        raise UsageError("address='local'", expected=expected, hint="convert starts no cluster")
    if address.startswith("ray://"):
        hint = "Run on a node of the cluster, with address='auto'; ray job submit does that"
        raise UnsupportedError(f"not supported: address={address!r} (Ray Client)", hint=hint)
    if address == "auto" or "://" in address:
        return
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdecimal()):
        raise UsageError(f"address={address!r}", expected=expected)


def _check_gpus(gpus: float) -> None:
    if gpus > 1 and gpus != int(gpus):
        raise UsageError(f"needs.gpus={gpus:g}", expected="a part of one GPU, or whole ones")


def open_executor(settings: Settings) -> Executor:
    """Return the executor."""
    return Ray(settings)
