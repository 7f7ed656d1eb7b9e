"""Ctrl-C and SIGTERM while a batch runs: it stops at once, but never between two halves of a thing.

A signal raises `KeyboardInterrupt` only where `listening` says so, that is, while there is nothing
to do but to wait; what comes at another time is raised at the next such place.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
INSISTS = 4  # signals after which not even tidying up goes on


class Stop:
    """Whether the user wants a batch to stop, and how much."""

    def __init__(self) -> None:
        self._signals = 0
        self._listening = False
        self._stopping = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Let a signal interrupt this block; one that came before interrupts it at once.

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

    def ending(self) -> None:
        """Say that all comes to its end by itself now."""
        self._stopping = True

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._signals += 1
        if self._stopping:
            if self._signals >= INSISTS:
                raise KeyboardInterrupt
        elif self._listening or self._signals > 1:
            # The second one finds whoever keeps the batch from listening: a full pipe, say.
            self._interrupt()

    def _interrupt(self) -> None:
        self._stopping = True
        raise KeyboardInterrupt


@contextmanager
def stopping() -> Iterator[Stop]:
    """Yield what signals do while the block runs; those that are ignored stay so."""
    stop = Stop()
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup does
                before[number] = signal.signal(number, stop._signalled)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
