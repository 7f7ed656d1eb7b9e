"""Lines on a terminal that show what is going on, and are overwritten: a bar and a spinner."""

from collections.abc import Sequence
from itertools import cycle
from shutil import get_terminal_size
from threading import Event, Thread
from time import monotonic

from converter.byte_sizes import readable_size
from converter.cli.terminal import escape, keep_end, overwrite
from converter.events import Progress

PATIENCE = 1.0  # seconds until a line is shown
SPACE = "  "  # between the parts of a line
ITEM = 20  # columns of an item's name that facts make room for


def draw(done: int, total: int) -> str:
    """Return a bar and a percentage; in a narrow terminal, the percentage alone."""
    share = done / total if total else 1
    size = min(30, (get_terminal_size().columns - 50) // 2)
    if size < 5:
        return f"{share:4.0%}"
    filled = round(size * share)
    return f"[{'#' * filled}{'.' * (size - filled)}] {share:4.0%}"


def show_progress(bar: str, facts: Sequence[str], item: str) -> None:
    """Replace the last line by a bar, what is known, and what is being done.

    A narrow terminal shows fewer facts, the last ones first, and the end of the item's name.
    """
    item = escape(item)
    width = get_terminal_size().columns - 1
    shown = list(facts)
    while shown and len(SPACE.join((bar, *shown))) + len(SPACE) + min(len(item), ITEM) > width:
        shown.pop()
    line = SPACE.join((bar, *shown))
    overwrite(SPACE.join((line, keep_end(item, width - len(line) - len(SPACE)))).rstrip())


class Bar:
    """A progress line with rate and time left, once a step lasts over a second."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._start = monotonic()
        self._shown = 0.0

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, progress: Progress) -> None:
        """Show how much is done."""
        now = monotonic()
        elapsed = now - self._start
        if not self._enabled or elapsed < PATIENCE or now - self._shown < 0.1:
            return
        self._shown = now
        rate = progress.done / elapsed
        left = (progress.total - progress.done) / rate if rate else 0
        bar = f"{progress.name:<11} {draw(progress.done, progress.total)}"
        show_progress(bar, (f"{left:.0f} s left", f"{readable_size(rate)}/s"), progress.item)

    def clear(self) -> None:
        """Erase the line, and begin a new step."""
        if self._shown:
            overwrite("")
            self._shown = 0.0
        self._start = monotonic()


class Spinner:
    """A line that says what is being waited for, and for how long, once it takes over a second."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._thread: Thread | None = None
        self._end = Event()

    def __enter__(self) -> "Spinner":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, text: str) -> None:
        """Show a line until `stop` is called, or `start` again."""
        self.stop()
        if self._enabled:
            self._end = Event()
            self._thread = Thread(target=self._spin, args=(name, text, self._end), daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Erase the line."""
        if self._thread is not None:
            self._end.set()
            self._thread.join()
            self._thread = None

    def _spin(self, name: str, text: str, end: Event) -> None:
        begin = monotonic()
        if end.wait(PATIENCE):
            return
        for mark in cycle("|/-\\"):
            overwrite(f"{name:<11} {mark} {monotonic() - begin:3.0f} s  {text}")
            if end.wait(0.2):
                break
        overwrite("")
