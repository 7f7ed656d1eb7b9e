"""Show the progress of a conversion on standard error, and its result on standard output."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from time import monotonic
from typing import Any

from converter.byte_sizes import readable_size
from converter.cli.render import document
from converter.cli.spelling import spell_flags
from converter.cli.terminal import say
from converter.events import Compared, Lowered, Opened, Progress, Step
from converter.pipeline import Conversion


def conversion(
    events: Iterator[Step | Progress | Opened | Lowered | Compared | Conversion],
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print a line for each step of a conversion, then the path of the output."""
    bar = _Bar(enabled=not quiet and not as_json and sys.stderr.isatty())
    done: list[Step] = []
    for event in events:
        match event:
            case Progress():
                bar.show(event)
            case Step():
                bar.clear()
                done.append(event)
                if not quiet and not as_json:
                    say(_line(event), sys.stderr)
            case Conversion():
                bar.clear()
                if as_json:
                    document(_result(event, done))
                elif output := event.url or event.path:
                    say(str(output))


class _Bar:
    """A progress line with rate and time left, on a terminal, once a step lasts over a second."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._start = monotonic()
        self._shown = 0.0

    def show(self, progress: Progress) -> None:
        now = monotonic()
        elapsed = now - self._start
        if not self._enabled or elapsed < 1 or now - self._shown < 0.1:
            return
        self._shown = now
        rate = progress.done / elapsed
        left = (progress.total - progress.done) / rate if rate else 0
        share = progress.done / progress.total if progress.total else 1
        filled = round(30 * share)
        line = (
            f"{progress.name:<11} [{'#' * filled}{'.' * (30 - filled)}] {share:4.0%}"
            f"  {readable_size(rate)}/s  {left:.0f} s left"
        )
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = 0.0
        self._start = monotonic()


def _line(step: Step) -> str:
    time = "" if step.seconds is None else f"  ({step.seconds:.2f} s)"
    return f"{step.name:<11} {spell_flags(step.text)}{time}"


def _result(result: Conversion, done: Sequence[Step]) -> dict[str, Any]:
    report = result.verification.weights
    graphs = [one.plain() for one in result.verification.graphs.values()]
    about, output = result.bundle.metadata, result.url or result.path
    return {
        "source": result.source,
        "format": result.format,
        "evidence": result.evidence,
        "output": None if output is None else str(output),
        "tensors": len(result.bundle.weights),
        "verified": report and {"tensors": report.tensors, "bytes": report.nbytes},
        "graph": graphs[0] if graphs else None,
        "precision": {n: one.plain() for n, one in result.verification.precision.items()},
        "normalisations": [asdict(n) for n in about.normalisations],
        "left_out": [x.plain() for x in about.left_out],
        "findings": [asdict(f) for f in about.findings],
        "steps": [s._asdict() for s in done],
    }
