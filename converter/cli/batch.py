"""The command ``convert batch``, and its progress."""

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from converter.cli.parameters import (
    Arguments,
    Bounds,
    Config,
    CpuNodes,
    Device,
    Exporter,
    Factory,
    Force,
    From,
    Inputs,
    Json,
    KeepStructure,
    Opset,
    Precision,
    Quiet,
    Require,
    Samples,
    Seed,
    ShardSize,
    Signature,
    StrictSafety,
    StripPrefix,
    Sync,
    Tf32,
    To,
    Trust,
    Verbose,
    Verify,
    options_of,
)  # fmt: skip
from formats.errors import UsageError

if TYPE_CHECKING:
    from converter.batch.request import Request


def batch(
    registries: Annotated[
        list[str],
        typer.Argument(
            metavar="REGISTRY...",
            help="Folders, files, globs, list:FILE, s3://…, models:/… — whatever holds artifacts.",
        ),
    ],
    to: To = "portable",
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", metavar="DEST", help="A folder, s3://…, or models:/{name}_portable."
        ),
    ] = "",
    include: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Only artifacts so named; repeatable.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="No artifacts so named; repeatable.")
    ] = None,
    filter: Annotated[
        str, typer.Option(metavar="QUERY", help="MLflow's filter string: name LIKE 'team%'.")
    ] = "",
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Convert at most so many.")
    ] = None,
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Only the I-th of N parts, for N machines.")
    ] = "1/1",
    engine: Annotated[
        str, typer.Option(metavar="processes|inline|ray", help="Who runs the conversions.")
    ] = "processes",
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", metavar="N", min=1, help="How many at a time."),
    ] = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster; else RAY_ADDRESS.")] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds that one artifact may take.")
    ] = None,
    memory: Annotated[
        float | None, typer.Option(metavar="GIB", help="Memory that one artifact may take.")
    ] = None,
    gpus: Annotated[
        float, typer.Option(metavar="N", min=0, help="Of each job, with --engine ray.")
    ] = 0.0,
    retries: Annotated[
        int, typer.Option(metavar="N", min=0, help="Of a job whose worker was lost.")
    ] = 2,
    patience: Annotated[
        float, typer.Option(metavar="S", help="Give a cluster up after so long without progress.")
    ] = 600.0,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Also do again what failed and has not changed.")
    ] = False,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Stop at the first failure.")
    ] = False,
    link: Annotated[
        str | None,
        typer.Option(
            metavar="reflink|hardlink",
            help="Store files that several bundles have once; DEST must be local.",
        ),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: DEST.ledger.sqlite, beside DEST.")
    ] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE.(jsonl|html|xml)", help="Report on all artifacts; repeatable."),
    ] = None,
    events: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A JSON line for each thing that happens.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan; convert nothing.")] = False,
    training_state: Annotated[
        str, typer.Option(metavar="GROUP,...", help="Keep training state: optimizer, training.")
    ] = "",
    device: Device = None,
    precision: Precision = None,
    keep_structure: KeepStructure = False,
    from_format: From = None,
    arch: Factory = None,
    arch_args: Arguments = None,
    input: Inputs = None,
    exporter: Exporter = "auto",
    strip_prefix: StripPrefix = "auto",
    verify: Verify = "auto",
    require: Require = None,
    atol: Bounds = None,
    rtol: Bounds = None,
    seed: Seed = 0,
    samples: Samples = 1,
    allow_tf32: Tf32 = False,
    allow_cpu_nodes: CpuNodes = 0,
    max_shard_size: ShardSize = "50GB",
    opset: Opset = None,
    signature: Signature = None,
    trust: Trust = None,
    strict_safety: StrictSafety = False,
    sync: Sync = False,
    force: Force = False,
    config: Config = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Convert every artifact of whole registries; a second run does what is missing or changed."""
    given = locals()  # before anything else is a local
    gc.enable()  # this one lasts
    request = _request(given)
    from converter.batch import driver
    from converter.cli import batch_progress

    code = batch_progress.follow(
        driver.run(request, dry_run=dry_run), request, reports=report or [], events=events,
        dry_run=dry_run, as_json=json, quiet=quiet,
    )  # fmt: skip
    if code:
        raise typer.Exit(code)


def _request(given: "dict[str, Any]") -> "Request":
    """Return what is asked, from the command's parameters by name."""
    from converter.batch import links
    from converter.batch.request import Request
    from converter.executors.catalog import ENGINES
    from converter.jobs.job import Needs
    from converter.registries.catalog import scheme_of
    from converter.registries.filters import Filters
    from converter.reports import catalog as reports
    from converter.write.catalog import check_options

    if not given["out"]:
        raise UsageError("convert batch without -o", expected="-o DEST")
    for path in given["report"] or ():
        reports.check(path)
    if given["engine"] not in ENGINES:
        raise UsageError(f"--engine {given['engine']}", expected=", ".join(ENGINES))
    memory, seconds = given["memory"], given["timeout"]
    for option, value in (("--memory", memory), ("--timeout", seconds)):
        if value is not None and not value > 0:
            raise UsageError(f"{option} {value:g}", expected="more than zero")
    options = options_of(given | {"include": given["training_state"]})
    check_options(options)
    links.check(given["link"], is_local=scheme_of(given["out"]) == "", target=options.to)
    return Request(
        registries=tuple(given["registries"]),
        destination=given["out"],
        options=options,
        filters=Filters(
            tuple(given["include"] or ()), tuple(given["exclude"] or ()), given["filter"]
        ),
        ledger=given["ledger"],
        engine=given["engine"],
        jobs=given["jobs"],
        needs=Needs(
            gpus=given["gpus"],
            memory_bytes=None if memory is None else int(memory * (1 << 30)),
            seconds=seconds,
        ),
        address=given["address"],
        retries=given["retries"],
        patience=given["patience"],
        shard=_shard(given["shard"]),
        limit=given["limit"],
        retry_failed=given["retry_failed"],
        fail_fast=given["fail_fast"],
        link=given["link"],
    )


def _shard(text: str) -> tuple[int, int]:
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise UsageError(f"--shard {text}", expected="I/N with I from 1 to N")
    return int(part), int(parts)
