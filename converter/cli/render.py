"""Print inspections, differences and tables on standard output, as text or JSON."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from converter import safety
from converter.byte_sizes import readable_size
from converter.cli.terminal import say
from converter.normalise.wording import describe_change
from formats.core.plurals import list_counts
from formats.errors import StorageError

if TYPE_CHECKING:  # keeps `inspect` and `formats` fast
    from converter.inspection import Inspection, TensorInfo
    from converter.tensor_diff import TensorDiff
    from converter.write.catalog import Target
    from formats.catalog import Format
    from formats.core.bundle import SafetyFinding, TensorSpec

LINES = 60  # tensors listed before `--weights` is needed
LEVELS = 30  # levels of the tree; the rest of a deeper name is printed on one line


def inspection(found: "Inspection", *, as_json: bool, every: bool) -> None:
    """Print an inspection.

    Args:
        found: The inspection.
        as_json: Print one JSON document.
        every: List every tensor, however many there are.
    """
    if as_json:
        document(found.plain())
        return
    topology = found.topology
    rows = [
        ("source", found.source),
        ("format", f"{found.format} ({found.evidence})"),
        ("variant", found.variant),
        ("recorded", _pairs(found.recorded) or "no versions are recorded"),
        ("devices", list_counts(found.devices) or "not recorded"),
        ("distribution", _pairs(found.distribution)),
        ("files", f"{found.files.count}, {readable_size(found.files.bytes)}"),
        ("weights", str(found.weights)),
        *((f"+ {group}", str(totals)) for group, totals in found.leftovers.items()),
        ("topology", f"{topology.kind} ({_pairs(topology.summary)})" if topology else ""),
        ("assets", list_counts(found.assets)),
        ("user data", ", ".join(map(_short, found.user))),
    ]
    for label, text in rows:
        if text:
            say(f"{label:<13} {text}")
    for signature in found.signatures:
        say(f"{'signature':<13} {signature.name}")
        sides = (("input", signature.inputs), ("output", signature.outputs))
        for side, spec in ((side, spec) for side, specs in sides for spec in specs):
            say(f"{'':<13}   {side:<7} {spec.name}: {_spec(spec)}")
    _tree(found.tensors, every)
    _section("objects of unknown classes", [f"{p}: {c}" for p, c in found.opaque.items()])
    _section("left out", [f"{x.name}: {x.reason}" for x in found.left_out])
    _section("changed", [describe_change(n) for n in found.normalisations])
    findings = [safety.describe(f) for f in found.findings]
    _section("safety findings (nothing was run)", findings)


def write_sarif(path: Path, found: "Iterable[tuple[str, Sequence[SafetyFinding]]]") -> None:
    """Write the safety findings of sources as a SARIF log.

    Raises:
        StorageError: The file cannot be written.
    """
    text = json.dumps(safety.as_sarif(found), indent=2)
    try:
        path.write_text(text + "\n", "utf-8")
    except OSError as e:
        raise StorageError.writing(path, e) from e


def differences(found: "Sequence[TensorDiff]", *, as_json: bool) -> bool:
    """Print a comparison, and return whether all weights are equal under the same names."""
    counts: dict[str, int] = {}
    for d in found:
        counts[d.kind] = counts.get(d.kind, 0) + 1
    same = set(counts) == {"equal"}
    if as_json:
        document({"same": same, "counts": counts, "tensors": [asdict(d) for d in found]})
        return same
    for d in found:
        if d.kind == "equal":
            continue
        name = f"{d.a} -> {d.b}" if d.kind == "renamed" else d.a or d.b
        gap = "" if d.max_abs is None else f"  max |a-b| {d.max_abs:.6g}"
        say(f"{d.kind:<10} {name}  {d.types}{gap}")
    say(", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    return same


def operations(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print a support matrix: names, arguments, and what is computed."""
    if as_json:
        document(list(rows))
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        say(f"{row['name']:<{width}}  {row['computes']}")
        if row["arguments"]:
            say(f"{'':<{width}}    {', '.join(row['arguments'])}")


def formats(rows: "Iterable[Format]", targets: "Iterable[Target]", *, as_json: bool) -> None:
    """Print what is read, and what is written."""
    if as_json:
        keys = ("id", "suffixes", "reads")
        read = [{k: getattr(row, k) for k in keys} for row in rows]
        written = [{k: getattr(row, k) for k in ("id", "suffixes", "writes")} for row in targets]
        document({"formats": read, "targets": written})
        return
    say("", label="Read, whatever the file is called:", style="bold")
    print_list([(row.id, row.reads) for row in rows])
    say("")
    say("", label="Written, with --to or by the suffix of -o:", style="bold")
    print_list([(row.id, f"{row.writes} ({', '.join(row.suffixes)})") for row in targets])


def print_list(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and texts in two columns; on a terminal, texts are wrapped."""
    left = max(len(name) for name, _ in rows) + 4
    width = get_terminal_size().columns if sys.stdout.isatty() else 10_000
    for name, text in rows:
        first, *others = wrap(text, max(width - left, 20)) or [""]
        say(f"  {name:<{left - 2}}{first}")
        for line in others:
            say(" " * left + line)


def document(value: "Mapping[str, Any] | list[Any]") -> None:
    """Print one JSON document."""
    if isinstance(value, list):
        print(json.dumps(value, indent=1, default=str))
    else:
        from formats.containers.jsontext import laid_out

        print(laid_out(value, default=str))


def _tree(tensors: "Sequence[TensorInfo]", every: bool) -> None:
    """Print names as a tree; a long list is cut in the middle unless ``every`` is set."""
    print()
    previous: list[str] = []
    shown = tensors if every or len(tensors) <= LINES else tensors[:LINES]
    for tensor in shown:
        *branches, leaf = _segments(tensor.name)
        common = 0
        while common < min(len(branches), len(previous)) and branches[common] == previous[common]:
            common += 1
        for depth in range(common, len(branches)):
            say(f"{'  ' * depth}{branches[depth]}")
        shape = " x ".join(map(str, tensor.shape)) or "scalar"
        say(f"{'  ' * len(branches)}{leaf:<24} {tensor.dtype:<9} {shape}")
        previous = branches
    if len(shown) < len(tensors):
        say(f"… and {len(tensors) - len(shown)} more: --weights lists all")


def _segments(name: str) -> list[str]:
    separator = "/" if "/" in name else "."
    return name.split(separator, LEVELS)


def _section(title: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    print()
    say(title)
    for line in lines[:20]:
        say(f"  {line}")
    if len(lines) > 20:
        say(f"  … and {len(lines) - 20} more: --json lists all")


def _spec(spec: "TensorSpec") -> str:
    shape = "?" if spec.shape is None else " x ".join(map(str, spec.shape)) or "scalar"
    return f"{spec.dtype} {shape}"


def _pairs(table: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {_short(v)}" for k, v in table.items())


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "…"
