"""The client of a fork server: start it, send jobs, read outcomes, stop it."""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from tempfile import TemporaryFile

from converter.executors.protocol import Charter, Unframing, Word, frame, order, pack, word_of
from converter.jobs.job import Job
from formats.errors import DependencyError, StorageError

CHUNK_BYTES = 1 << 18
STOP_SECONDS = 15.0
CHILDREN_SECONDS = 2.0
MODULE = "converter.executors.fork_server"
# numpy starts BLAS threads, which a process that forks must not have. Children reset the variable.
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


class ServerLostError(Exception):
    """The server and its children are gone; the argument is the last line of its output."""


class Server:
    """A fork server process; `stop` ends it with all its children."""

    def __init__(self, charter: Charter) -> None:
        """Start the process; this does not wait until it is ready.

        Raises:
            DependencyError: No process can be started.
            StorageError: The folder for temporary files cannot be written.
        """
        self._unframing = Unframing()
        environment = {name: os.environ.get(name) for name in ENVIRONMENT}
        charter = replace(charter, environment=environment)
        try:
            self._log = TemporaryFile(dir=charter.scratch)  # noqa: SIM115 - as long as the server
        except OSError as e:
            raise StorageError.writing(charter.scratch, e) from e
        pipes: list[int] = []
        try:
            for _ in range(3):
                pipes += os.pipe()
            self._process = self._start(pipes)
        except OSError as e:
            for fd in pipes:
                os.close(fd)
            self._log.close()
            raise DependencyError(f"cannot be run: {e.strerror}", where=sys.executable) from e
        orders, self._orders_fd, self._words_fd, words, self._lifeline_fd, lifeline = pipes
        for fd in (orders, words, lifeline):
            os.close(fd)
        self._is_ready = False
        self._write(frame(pack(charter)))

    def _start(self, pipes: list[int]) -> "subprocess.Popen[bytes]":
        # Pipes for orders to the server and words from it. The lifeline is held open by the server
        # and all its children, and closes when the last of them ends.
        its = pipes[0], pipes[3], pipes[5]
        return subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-P", "-m", MODULE, *map(str, its)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, **ENVIRONMENT},
            pass_fds=its,
            start_new_session=True,  # Ctrl-C in a terminal is the driver's business
        )

    @property
    def pid(self) -> int:
        """Pid of the server."""
        return self._process.pid

    def send(self, number: int, job: Job) -> None:
        """Send an order; if the server is gone, `hear` raises."""
        self._write(order(number, job))

    def _write(self, some: bytes) -> None:
        rest = memoryview(some)
        with suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(self._orders_fd, rest) :]

    def hear(self) -> list[Word]:
        """Wait for messages, and return them.

        Raises:
            ServerLostError: The server is gone.
            DependencyError: The server could not start, or can start no process.
        """
        while True:
            some = os.read(self._words_fd, CHUNK_BYTES)
            if not some:
                code = self._process.wait()
                if code > 0 and not self._is_ready:
                    found = f"ended with {code}{self._last_line()}"
                    raise DependencyError(f"the process that starts conversions {found}")
                raise ServerLostError(self._last_line())
            news = list(map(word_of, self._unframing.feed(some)))
            if not self._is_ready and news:
                self._is_ready, news = True, news[1:]
            for word in news:
                if not word.number:
                    raise DependencyError(word.text.decode())
            if news:
                return news

    def _last_line(self) -> str:
        """Return the last line of the server's output, as the end of a clause; often empty."""
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1][:300]}" if lines else ""

    def stop(self) -> None:
        """End the server and all its children, and wait for their end."""
        with suppress(OSError):
            os.close(self._orders_fd)  # this ends the server; its last messages are not read
        with suppress(OSError):
            os.close(self._words_fd)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if self._process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            # Children of a server that was killed end a moment after it.
            lifeline = select.poll()
            lifeline.register(self._lifeline_fd, select.POLLIN)
            lifeline.poll(CHILDREN_SECONDS * 1000)
            os.close(self._lifeline_fd)
            self._log.close()
