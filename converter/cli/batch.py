"""The command ``convert batch``."""

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from converter.cli.parameters import Config, Json, Quiet, Verbose, as_tuple, make_options, rows_of
from converter.cli.rows import Fields, Row, below, collects, nested, top
from formats.errors import UsageError

if TYPE_CHECKING:
    from converter.batch.request import Request


def parse_memory(gib: float | None) -> int | None:
    """Return bytes."""
    return None if gib is None else int(gib * (1 << 30))


def parse_shard(text: str) -> tuple[int, int]:
    """Return a part and the number of parts.

    Raises:
        UsageError: It is not ``I/N``.
    """
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal()):
        raise UsageError(text, expected="I/N with I from 1 to N")
    return int(part), int(parts)


# fmt: off
REQUEST: tuple[Row, ...] = (
    Row("registries", "", list[str], metavar="REGISTRY...", key="registries", parse=as_tuple,
        help="Folders, files, globs, list:FILE, s3://…, models:/…: what holds artifacts."),
    Row("destination", "--out -o", str, metavar="DEST", default="",
        help="A folder, s3://…, or models:/{name}_portable."),
    Row("filters.include", "--include", list[str] | None, metavar="GLOB", parse=as_tuple,
        help="Only artifacts whose name matches. Repeatable."),
    Row("filters.exclude", "--exclude", list[str] | None, metavar="GLOB", parse=as_tuple,
        help="No artifacts whose name matches. Repeatable."),
    Row("filters.query", "--filter", str, metavar="QUERY", default="",
        help="MLflow's filter string: name LIKE 'team%'."),
    Row("limit", "--limit", int | None, metavar="N", min=1,
        help="Convert at most N artifacts."),
    Row("shard", "--shard", str, metavar="I/N", default="1/1", parse=parse_shard,
        help="Only the I-th of N parts, for N machines."),
    Row("engine", "--engine", str, metavar="processes|inline|ray", default="processes",
        help="What runs the conversions."),
    Row("jobs", "--jobs -j", int | None, metavar="N", min=1,
        help="How many conversions run at a time."),
    Row("address", "--address", str | None,
        help="Address of a Ray cluster. Default: RAY_ADDRESS."),
    Row("needs.seconds", "--timeout", float | None, metavar="S",
        help="Seconds that one artifact may take."),
    Row("needs.memory_bytes", "--memory", float | None, metavar="GIB", parse=parse_memory,
        help="Memory that one artifact may take."),
    Row("needs.gpus", "--gpus", float, metavar="N", default=0.0, min=0,
        help="GPUs of each job, with --engine ray."),
    Row("retries", "--retries", int, metavar="N", default=2, min=0,
        help="Retries of a job whose worker was lost."),
    Row("patience", "--patience", float, metavar="S", default=600.0,
        help="Give up a cluster after this many seconds without progress."),
    Row("retry_failed", "--retry-failed", bool, default=False,
        help="Also retry what failed before and has not changed."),
    Row("fail_fast", "--fail-fast", bool, default=False,
        help="Stop at the first failure."),
    Row("link", "--link", str | None, metavar="reflink|hardlink",
        help="Store files that several bundles share once; DEST must be local."),
    Row("ledger", "--ledger", Path | None, metavar="FILE",
        help="Default: DEST.ledger.sqlite, beside DEST."),
)
# fmt: on


def make_request(fields: Fields) -> "Request":
    """Return the request of a batch, made of values by field.

    Raises:
        UsageError: A value is malformed.
    """
    from converter.batch.request import Request
    from converter.jobs.job import Needs
    from converter.registries.filters import Filters

    return Request(
        **top(fields),
        options=make_options(below("options", fields)),
        filters=Filters(**below("filters", fields)),
        needs=Needs(**below("needs", fields)),
    )


@collects("request", REQUEST + nested("options", rows_of("batch")), make_request)
def batch(
    request: "Request",
    report: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE.(jsonl|html|xml)", help="Report on all artifacts. Repeatable."),
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
