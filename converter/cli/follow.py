"""Show the progress of a conversion on standard error, and its result on standard output."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from converter.cli.progress import Bar, Spinner
from converter.cli.render import document
from converter.cli.spelling import spell_flags
from converter.cli.terminal import is_terminal, say, say_step
from converter.events import Progress, Started, Step
from converter.pipeline import Conversion, Event
from formats.errors import InternalError

STYLES = {"verified": "green", "warning": "yellow", "not run": "yellow"}


def conversion(events: Iterator[Event], *, as_json: bool, quiet: bool) -> None:
    """Print a line for each step of a conversion, then the path of the output."""
    if as_json:
        document(collect(events))
        return
    enabled = not quiet and is_terminal(sys.stderr)
    with Spinner(enabled=enabled) as spinner, Bar(enabled=enabled) as bar:
        for event in events:
            spinner.stop()
            match event:
                case Progress():
                    bar.show(event)
                case Started():
                    bar.clear()
                    spinner.start(event.name, event.text)
                case Step():
                    bar.clear()
                    if not quiet:
                        _say_step(event)
                case Conversion():
                    bar.clear()
                    if output := event.url or event.path:
                        say(str(output))


def collect(events: Iterator[Event]) -> dict[str, Any]:
    """Follow a conversion to its end, and return its JSON document."""
    done: list[Step] = []
    for event in events:
        if isinstance(event, Step):
            done.append(event)
        elif isinstance(event, Conversion):
            return _result(event, done)
    raise InternalError("a conversion ended without a result")


def _say_step(step: Step) -> None:
    time = "" if step.seconds is None else f"  ({step.seconds:.2f} s)"
    style = STYLES.get(step.name, "bold")
    say_step(step.name, f"{spell_flags(step.text)}{time}", style=style)


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
