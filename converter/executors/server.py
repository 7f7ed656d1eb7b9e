"""A fork server as its driver sees it: started, given orders, listened to, stopped."""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from tempfile import TemporaryFile

from converter.executors.orders import Charter, Unframing, Word, framed, order, packed, word_of
from converter.job import Job
from formats.errors import EnvironmentFault

CHUNK_BYTES = 1 << 18
STOP_SECONDS = 15.0
CHILDREN_SECONDS = 2.0
MODULE = "converter.executors.fork_server"
# numpy starts threads for its BLAS, which a process that forks must not have. Children drop it.
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


class ServerLostError(Exception):
    """The server is gone, and its children with it."""


class Server:
    """A fork server. A context manager: its end is the end of all its children."""

    def __init__(self, charter: Charter) -> None:
        """Start one; this does not wait until it is ready.

        Raises:
            EnvironmentFault: No process can be started.
        """
        self._unframing = Unframing()
        orders, self._orders_fd = os.pipe()
        self._words_fd, words = os.pipe()
        self._lifeline_fd, lifeline = os.pipe()  # held open by the server and all its children
        self._log = TemporaryFile(dir=charter.scratch)  # noqa: SIM115 - as long as the server
        command = [sys.executable, "-P", "-m", MODULE, str(orders), str(words), str(lifeline)]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, **ENVIRONMENT},
                pass_fds=(orders, words, lifeline),
                start_new_session=True,  # Ctrl-C in a terminal is the driver's business
            )
        except OSError as e:
            os.close(self._orders_fd)
            os.close(self._words_fd)
            os.close(self._lifeline_fd)
            raise EnvironmentFault(f"cannot be run: {e.strerror}", where=sys.executable) from e
        finally:
            os.close(orders)
            os.close(words)
            os.close(lifeline)
        self._is_ready = False
        with suppress(ServerLostError):  # then there is no word of it either
            self._write(framed(packed(charter)))

    @property
    def pid(self) -> int:
        """Of the server."""
        return self._process.pid

    def send(self, number: int, job: Job) -> None:
        """Give an order.

        Raises:
            ServerLostError: There is nobody to take it.
        """
        self._write(order(number, job))

    def _write(self, some: bytes) -> None:
        rest = memoryview(some)
        try:
            while rest:
                rest = rest[os.write(self._orders_fd, rest) :]
        except BrokenPipeError as e:
            raise ServerLostError from e

    def hear(self) -> list[Word]:
        """Wait for news, and return them.

        Raises:
            ServerLostError: There will be none.
            EnvironmentFault: The server could not even begin.
        """
        while True:
            some = os.read(self._words_fd, CHUNK_BYTES)
            if not some:
                if not self._is_ready:
                    raise self._fault()
                raise ServerLostError
            news = list(map(word_of, self._unframing.feed(some)))
            if not self._is_ready and news:
                self._is_ready, news = True, news[1:]
            if news:
                return news

    def _fault(self) -> EnvironmentFault:
        self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return EnvironmentFault(
            f"the process that starts conversions ended with {self._process.returncode}"
            + (f": {lines[-1][:300]}" if lines else "")
        )

    def stop(self) -> None:
        """End it and all its children, and wait for that."""
        with suppress(OSError):
            os.close(self._orders_fd)  # it ends of that; what it has to say is not waited for
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
            select.select([self._lifeline_fd], [], [], CHILDREN_SECONDS)
            os.close(self._lifeline_fd)
            self._log.close()
