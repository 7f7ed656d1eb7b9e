"""Handle Ctrl-C and SIGTERM while a batch runs: stop soon, but never inside a critical section.

A signal raises `KeyboardInterrupt` only where `listening` says so, that is, while there is nothing
to do but to wait; what comes at another time is raised at the next such place.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
INSISTS = 4  # signals after which not even tidying up goes on


class _Passed(NamedTuple):
    """The owner of a signal that arrives after the end."""

    to: Any


class Stop:
    """Whether the user asked a batch to stop, and how often."""

    def __init__(self) -> None:
        self._signals = 0
        self._listening = False
        self._stopping = False
        self._before: dict[int, Any] = {}

    def begin(self) -> None:
        """Install the handlers, in the main thread."""
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup does
                self._before[number] = signal.signal(number, self._signal)

    def end(self) -> None:
        """Restore the former handlers; of two batches in one process, either may end first."""
        for number, before in [*self._before.items()]:
            if signal.getsignal(number) == self._signal:
                signal.signal(number, self._before.pop(number))
            else:
                self._before[number] = _Passed(before)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Let signals interrupt this block; a pending one interrupts it at once.

        Raises:
            KeyboardInterrupt: One came.
        """
        self._listening = True
        try:
            if self._signals and not self._stopping:
                self._interrupt()
            yield
        finally:
            self._listening = False

    def announce_end(self) -> None:
        """Note that the batch is ending by itself."""
        self._stopping = True

    def _signal(self, number: int, frame: FrameType | None) -> None:
        before = self._before[number]
        if isinstance(before, _Passed):
            signal.signal(number, before.to)
            signal.raise_signal(number)
            return
        del frame
        self._signals += 1
        if self._stopping:
            if self._signals >= INSISTS:
                raise KeyboardInterrupt
        elif self._listening or self._signals > 1:
            # The second signal interrupts what keeps the batch from listening, such as a full pipe.
            self._interrupt()

    def _interrupt(self) -> None:
        self._stopping = True
        raise KeyboardInterrupt


@contextmanager
def stopping() -> Iterator[Stop]:
    """Handle signals while the block runs; ignored signals stay ignored."""
    stop = Stop()
    if threading.current_thread() is threading.main_thread():
        stop.begin()
    try:
        yield stop
    finally:
        stop.end()
