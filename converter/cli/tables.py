"""Print tables of models: in columns where they fit the terminal, else a few lines for each."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from converter.byte_sizes import readable_size
from converter.cli.terminal import say

if TYPE_CHECKING:  # keeps `convert --help` fast
    from converter.doctor.diagnosis import Diagnosis
    from converter.inspection import Inspection
    from converter.listing import ListedModel

# Column → characters that it is cut to before a table becomes blocks.
SHORTEST = {-1: 10, 0: 18, -2: 11, -3: 9}
DEVICES = 2  # devices that are named


def models(found: "Iterable[ListedModel]") -> None:
    """Print what `list_models` found."""
    rows = list(found)
    print_table(
        ("model", "format", "framework", "size", "devices", "loads here?", "findings"),
        [
            (
                one.source,
                one.format or "unknown",
                f"{one.framework} {one.version}".strip() or "-",
                "-" if one.bytes is None else readable_size(one.bytes),
                describe_devices(one.devices),
                "damaged" if one.error else _join(one.loads, one.why),
                _shorten(one.error, one.source) or _kinds(one.findings),
            )
            for one in rows
        ],
        spare=(2,),
    )


def inspections(found: "Sequence[Inspection]") -> None:
    """Print a row for each inspection."""
    print_table(
        ("model", "format", "variant", "tensors", "size", "devices", "findings"),
        [
            (
                one.source,
                one.format,
                one.variant,
                f"{one.weights.tensors:,}",
                readable_size(one.weights.bytes),
                describe_devices(one.devices),
                _kinds(f.kind for f in one.findings),
            )
            for one in found
        ],
        spare=(2,),
    )


def diagnoses(found: "Sequence[Diagnosis]") -> None:
    """Print a row for each diagnosis of a source: does it load, why not, and what to do."""
    rows = []
    for one in found:
        usual = next(iter(one.predictions), None)
        outcome, why = "-", ""
        if usual is not None:
            outcome = {"loads": "yes", "fails": "no"}.get(usual.outcome, usual.outcome)
            why = usual.cause.replace("-", " ") or usual.error
            if not usual.installed:
                outcome, why = "no", f"{usual.framework} is not installed"
        commands = one.advice.commands if one.advice else ()
        remedy = commands[0].command if commands else "-"
        path = one.source.path if one.source else ""
        rows.append((path, _join(outcome, why), remedy))
    print_table(("model", "loads here?", "what helps"), rows)


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, spare: Sequence[int] = ()
) -> None:
    """Print rows in columns. In a terminal that is too narrow cells are cut, or rows are blocks.

    Args:
        titles: Of the columns.
        rows: Their cells.
        spare: Columns that a narrow terminal does without.
    """
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    excess = sum(widths) + 2 * (len(widths) - 1) - get_terminal_size().columns
    if not sys.stdout.isatty() or excess <= 0:
        _print_columns(titles, rows, widths)
        return
    kept = [i for i in range(len(titles)) if i not in spare]
    excess -= sum(widths[i] + 2 for i in spare)
    for column, shortest in SHORTEST.items():
        cut = max(min(excess, widths[column] - shortest), 0)
        widths[column] -= cut
        excess -= cut
    if excess <= 0:
        rows = [[row[i] for i in kept] for row in rows]
        _print_columns([titles[i] for i in kept], rows, [widths[i] for i in kept])
        return
    for row in rows:
        say("", label=row[0], style="bold")
        for title, text in zip(titles[1:], row[1:], strict=True):
            if text != "-":
                say(text, label=f"  {title + ':':<13} ", style="dim")


def _print_columns(
    titles: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]
) -> None:
    say("", label=_line(titles, widths), style="bold")
    for row in rows:
        say(_line(row, widths))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """Return a row; a name keeps its end, and other cells their beginning."""
    cells = []
    for i, (text, width) in enumerate(zip(row, widths, strict=True)):
        if len(text) > width:
            text = text[: width - 1] + "…" if i else "…" + text[1 - width :]
        cells.append(f"{text:<{width}}")
    return "  ".join(cells).rstrip()


def describe_devices(devices: Mapping[str, int]) -> str:
    """Return the first devices, and how many more there are."""
    names = list(dict.fromkeys(name.rpartition("/device:")[2] for name in devices))
    more = f" +{len(names) - DEVICES}" if len(names) > DEVICES else ""
    return ", ".join(names[:DEVICES]) + more or "-"


def _kinds(findings: Iterable[str]) -> str:
    """Return each kind of finding with its count."""
    counts: dict[str, int] = {}
    for finding in findings:
        kind = finding.partition(":")[0]
        counts[kind] = counts.get(kind, 0) + 1
    return ", ".join(f"{n} {kind}" if n > 1 else kind for kind, n in counts.items()) or "-"


def _shorten(error: str, source: str) -> str:
    """Return an error without the name of its source, which the same row shows."""
    return error.removeprefix(f"{source}: ").removeprefix(f"{source}/")


def _join(answer: str, why: str) -> str:
    return f"{answer}: {why}" if why else answer or "-"
