"""``convert verify DIR``: check that outputs are unchanged since they were written and verified.

Lines go to standard output, one for each output and one for each reason; the last is a summary.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converter.byte_sizes import readable_size
from converter.cli.terminal import say
from formats.core.plurals import count
from formats.errors import UsageError

if TYPE_CHECKING:  # keeps `--help` fast
    from converter.verification.bundle_check import CheckResult

UNGATED = "has no record"  # in the message on models that are not ours


def check(folder: Path, require: str | None, *, reports: Sequence[Path], as_json: bool) -> int:
    """Check all outputs in a folder, print the results, and return the exit code.

    Raises:
        SourceError: The folder cannot be read.
        StorageError: A report cannot be written.
        UsageError: The level or the suffix of a report is unknown.
        VerificationError: The folder contains no output of ours.
    """
    from time import perf_counter

    from converter.options import LEVELS, check_choice
    from converter.verification.bundle_check import check_folder

    if require is not None:
        check_choice("require", require, LEVELS[1:])

    if reports:
        from converter.reports import catalog

        for path in reports:
            catalog.check(path)
    begin = perf_counter()
    found: list[dict[str, Any]] = []
    outputs: list[CheckResult] = []
    for checked in check_folder(folder, require):
        found.append(_plain(checked, folder))
        if reports:
            outputs.append(checked)
        if not as_json:
            _say(checked, folder, require)
    summary = _summary(found, require, perf_counter() - begin)
    if as_json:
        from converter.cli.render import document

        document({"folder": str(folder), **summary, "outputs": found})
    else:
        _say_summary(summary)
    if reports:
        _report(folder, outputs, summary, reports)
    return int(summary["exit_code"])


def only_two(flags: Sequence[str]) -> None:
    """Refuse options that apply only to a comparison with a source.

    Args:
        flags: The given flags among them.

    Raises:
        UsageError: There is at least one.
    """
    if flags:
        raise UsageError(
            f"{flags[0]} with one argument",
            expected="convert verify SOURCE CONVERTED",
            hint="With one, nothing is computed: files are held against their manifests",
        )


def _name(checked: "CheckResult", folder: Path) -> str:
    relative = checked.path.relative_to(folder).as_posix()
    return folder.name or str(folder) if relative == "." else relative


def _plain(checked: "CheckResult", folder: Path) -> dict[str, Any]:
    return {
        "name": _name(checked, folder),
        "path": str(checked.path),
        "passed": not checked.exit_code,
        "exit_code": checked.exit_code,
        "verified": checked.reached,
        "reason": checked.reason,
        "problems": list(checked.problems),
        "files": checked.files,
        "bytes": checked.nbytes,
        "seconds": round(checked.seconds, 4),
        "source": _source(checked),
    }


def _source(checked: "CheckResult") -> dict[str, Any] | None:
    source = checked.manifest.get("source")
    if not isinstance(source, dict):
        return None
    return {key: source.get(key) for key in ("name", "format", "digest")}


def _summary(
    found: Sequence[Mapping[str, Any]], require: str | None, seconds: float
) -> dict[str, Any]:
    return {
        "required": require,
        "exit_code": max(one["exit_code"] for one in found),
        "outputs_checked": len(found),
        "failed": sum(not one["passed"] for one in found),
        "files": sum(one["files"] for one in found),
        "bytes": sum(one["bytes"] for one in found),
        "seconds": round(seconds, 3),
    }


def _say(checked: "CheckResult", folder: Path, require: str | None) -> None:
    name = _name(checked, folder)
    size = f"{count('file', checked.files)}, {readable_size(checked.nbytes)}"
    if not checked.exit_code:
        say(f"passed      {name}  verified {checked.reached}; {size}")
        return
    say(f"FAILED      {name}")
    for problem in checked.problems:
        say(f"            {problem}")
    if not checked.manifest:
        if any(problem.startswith(UNGATED) for problem in checked.problems):
            say(f"            compare it: convert verify SOURCE {checked.path}")
        return
    if checked.problems and checked.problems[-1].endswith(f"required: {require}"):
        if checked.reason:
            say(f"            {checked.reason}")
        if checked.manifest.get("graph") is not None:
            say(f"            compare again: {_again(checked, require)}")


def _again(checked: "CheckResult", require: str | None) -> str:
    """Return the command that compares an output with its source again."""
    source = _source(checked) or {}
    device = " --device DEV" if require == "device" else ""
    name, digest = source.get("name"), source.get("digest")
    value = digest.get("value") if isinstance(digest, dict) else None
    return (
        f"convert verify SOURCE {checked.path}{device} --require {require}"
        f", where SOURCE is {name} ({value})"
    )


def _say_summary(summary: Mapping[str, Any]) -> None:
    size, seconds = summary["bytes"], summary["seconds"]
    rate = f" at {readable_size(size / seconds)}/s" if seconds else ""
    outputs, files = summary["outputs_checked"], count("file", summary["files"])
    failed = summary["failed"]
    verdict = f"{failed} of {outputs} failed" if failed else f"{outputs} passed"
    say(f"checked     {verdict}; {files}, {readable_size(size)}{rate}")


def _report(
    folder: Path,
    found: Sequence["CheckResult"],
    summary: Mapping[str, Any],
    reports: Sequence[Path],
) -> None:
    if not reports:
        return
    from converter.reports import catalog
    from converter.reports.checked_outputs import record_of

    records = [record_of(checked, _name(checked, folder)) for checked in found]
    for path in reports:
        report = catalog.Report(f"convert verify {folder}", lambda: iter(records), {}, summary)
        catalog.write(report, path)
