"""The default command: ``convert SOURCE...``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from converter.cli.help_pages import OUTPUT
from converter.cli.parameters import Config, Json, Quiet, Verbose, make_options, rows_of
from converter.cli.rows import collects

if TYPE_CHECKING:
    from converter.options import Options


@collects("options", rows_of("convert"), make_options)
def convert(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Files, folders, checkpoint prefixes; s3://…, gs://…, models:/name/3.",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            "--output",
            metavar="OUT",
            rich_help_panel=OUTPUT,
            help="Output: a path, s3://…, or a folder with a slash at its end. "
            "Default: SOURCE's name with the target's suffix, here.",
        ),
    ] = None,
    *,
    options: "Options",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and plan; write nothing.")
    ] = False,
    attest: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            rich_help_panel=OUTPUT,
            help="Write provenance (SLSA, in-toto), a bill of materials (CycloneDX) and, where the "
            "output has none, a manifest.",
        ),
    ] = None,
    config: Config = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Convert one or several artifacts.

    The target is --to's, or the one that writes files with OUT's suffix, or portable. Of a folder
    that is no artifact itself the only model in it is converted; `convert batch` takes folders of
    many.
    """
    del config  # `run` has read it
    from converter.api import convert_steps
    from converter.cli import follow
    from converter.cli.misspelled import check_command

    check_command(sources[0])
    if len(sources) == 1:
        events = convert_steps(sources[0], out, options, dry_run=dry_run, attest=attest)
        follow.conversion(events, as_json=json, quiet=quiet)
        return
    code = _convert_each(
        sources, out, options, as_json=json, quiet=quiet, verbose=verbose,
        dry_run=dry_run, attest=attest,
    )  # fmt: skip
    if code:
        raise typer.Exit(code)


def _convert_each(
    sources: list[str],
    out: str | None,
    options: "Options",
    *,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **given: Any,
) -> int:
    """Convert several artifacts, each for itself, and return the worst exit code."""
    import sys

    from converter.api import convert_steps
    from converter.cli import follow
    from converter.cli.errors import report, spell_error
    from converter.cli.render import document
    from converter.cli.terminal import say
    from converter.write.output_path import folder_of_outputs
    from formats.errors import ConvertError

    folder = folder_of_outputs(sources, out, options)
    code = 0
    results: list[dict[str, Any]] = []
    for i, source in enumerate(sources):
        if not quiet and not as_json:
            say("", sys.stderr, label=f"[{i + 1}/{len(sources)}] {source}", style="bold")
        try:
            events = convert_steps(source, folder, options, **given)
            if as_json:
                results.append(follow.collect(events))
            else:
                follow.conversion(events, as_json=False, quiet=quiet)
        except ConvertError as e:
            results.append({"source": source, "error": spell_error(e), "exit_code": e.exit_code})
            code = max(code, e.exit_code if as_json else report(e, e.exit_code, verbose=verbose))
    if as_json:
        document({"exit_code": code, "conversions": results})
    return code
