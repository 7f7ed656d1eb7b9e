"""The command ``convert batch``."""

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from converter.cli.batch_parameters import REQUEST, make_request
from converter.cli.parameters import Config, Json, Quiet, Verbose, rows_of
from converter.cli.rows import collects, nest_rows

if TYPE_CHECKING:
    from converter.batch.request import Request


@collects("request", REQUEST + nest_rows("options", rows_of("batch")), make_request)
def batch(
    request: "Request",
    report: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.(jsonl|html|xml|md)", help="Report on all artifacts. Repeatable."
        ),
    ] = None,
    events: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a JSON line for each event.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan; convert nothing.")] = False,
    config: Config = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Convert every artifact of whole registries; a second run does what is missing or changed."""
    del config, verbose  # `run` has read them
    gc.enable()  # this one lasts
    from converter.batch import driver
    from converter.cli import batch_progress
    from converter.reports import catalog as reports

    for path in report or ():
        reports.check(path)
    code = batch_progress.follow(
        driver.run(request, dry_run=dry_run), request, reports=report or [], events=events,
        dry_run=dry_run, as_json=json, quiet=quiet,
    )  # fmt: skip
    if code:
        raise typer.Exit(code)
