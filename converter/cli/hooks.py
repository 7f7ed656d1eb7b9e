"""Hooks that pre-commit runs on the files of a commit (see ``.pre-commit-hooks.yaml``).

``python -m converter.cli.hooks verify FILES...`` checks the bundles that the files belong to, as
``convert verify DIR`` does; ``safety`` refuses models that refer to code or to outside files.
Files outside bundles, and files that are not models, pass.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from converter import safety as safety_findings
from converter.cli.app import run
from converter.cli.terminal import say
from formats.errors import ConvertError, SafetyError, UnknownFormatError

# These formats are pickles, and pickles are programs: unreadable ones are refused.
PICKLES = (
    ".ckpt", ".dill", ".jit", ".joblib", ".pickle", ".pkl", ".pt", ".pth", ".ptl", ".th",
)  # fmt: skip

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Checks of models that pre-commit runs.",
)
Files = Annotated[list[Path], typer.Argument(metavar="FILE...")]


@app.command()
def verify(
    files: Files,
    require: Annotated[
        str | None,
        typer.Option(metavar="weights|cpu|device", help="Fail unless that much was verified."),
    ] = None,
) -> None:
    """Check the portable bundles that files belong to."""
    from converter.cli import gate

    code = 0
    for bundle in _bundles(files):
        code = max(code, gate.check(bundle, require, reports=(), as_json=False))
    raise typer.Exit(code)


@app.command()
def safety(files: Files) -> None:
    """Refuse models that name code, or files outside themselves."""
    code = 0
    for file in files:
        try:
            _examine(file)
        except ConvertError as e:
            say(str(e))
            code = max(code, e.exit_code)
    raise typer.Exit(code)


def _examine(file: Path) -> None:
    """Raise SafetyError for an unsafe model, or the error of one that cannot be checked."""
    from formats import catalog
    from formats.artifact import Artifact

    try:
        artifact = Artifact(file)
        if not artifact.is_file:
            return  # a link to a folder, a submodule
        findings = catalog.detect(artifact).format.read(artifact).metadata.findings
    except UnknownFormatError:
        if file.suffix.lower() in PICKLES:
            raise
        return
    if findings:
        shown = [safety_findings.describe(f) for f in findings]
        rest = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
        raise SafetyError(
            f"names {', '.join(shown[:3])}{rest}", where=file,
            hint="`convert inspect` lists all; `convert FILE --to portable` leaves code behind",
        )  # fmt: skip


def _bundles(files: Iterable[Path]) -> list[Path]:
    """Return the distinct bundles that files belong to."""
    from formats import portable
    from formats.artifact import Artifact

    known: dict[Path, bool] = {}
    for file in files:
        for folder in file.parents:
            if folder not in known:
                known[folder] = (folder / portable.MANIFEST).is_file() and bool(
                    portable.sniff(Artifact(folder))
                )
    return sorted(folder for folder, is_bundle in known.items() if is_bundle)


def main() -> None:
    """Run a hook, and exit with its exit code."""
    sys.exit(run(sys.argv[1:], app))


if __name__ == "__main__":
    main()
