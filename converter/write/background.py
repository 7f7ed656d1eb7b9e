"""One function on a thread of its own, and what came of it.

`concurrent.futures` does this and more, and its import alone is felt at start-up: it brings
`logging`.
"""

from collections.abc import Callable
from threading import Thread
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Run a function beside the caller; as a context, until the block ends."""

    def __init__(self, function: Callable[[], T]) -> None:
        """Start it."""
        self._function = function
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as e:  # noqa: BLE001 - raised again by `result`, where someone sees it
            self._error = e

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()

    def wait(self) -> None:
        """Wait for its end."""
        self._thread.join()

    def result(self) -> T:
        """Wait for its end and return its value, or raise what it raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._value
