"""The options of a batch, one row each, besides those of its conversions."""

from pathlib import Path
from typing import TYPE_CHECKING

from converter.cli.help_pages import ARTIFACTS, RUNNING
from converter.cli.parameters import as_tuple, make_options
from converter.cli.rows import Fields, Row, below, top
from formats.errors import UsageError

if TYPE_CHECKING:
    from converter.batch.request import Override, Request


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


def parse_overrides(path: Path | None) -> "tuple[Override, ...]":
    """Return the options of single artifacts (see `converter.cli.artifact_settings`)."""
    if path is None:
        return ()
    from converter.cli.artifact_settings import read_overrides

    return read_overrides(path)


# fmt: off
REQUEST: tuple[Row, ...] = (
    Row("registries", "", list[str], metavar="REGISTRY...", key="registries", parse=as_tuple,
        help="Folders, files, globs, list:FILE, s3://…, models:/…: what holds artifacts."),
    Row("destination", "--out -o", str, metavar="DEST", default="", group=ARTIFACTS,
        help="A folder, s3://…, or models:/{name}_portable."),
    Row("filters.include", "--include", list[str] | None, metavar="GLOB", parse=as_tuple, group=ARTIFACTS,
        help="Only artifacts whose name matches. Repeatable."),
    Row("filters.exclude", "--exclude", list[str] | None, metavar="GLOB", parse=as_tuple, group=ARTIFACTS,
        help="No artifacts whose name matches. Repeatable."),
    Row("filters.query", "--filter", str, metavar="QUERY", default="", group=ARTIFACTS,
        help="MLflow's filter string: name LIKE 'team%'."),
    Row("overrides", "--settings", Path | None, metavar="FILE.toml", parse=parse_overrides, in_files=False, group=ARTIFACTS,
        help="Options of single artifacts, by globs over their names: tables [[artifact]]."),
    Row("limit", "--limit", int | None, metavar="N", min=1, group=ARTIFACTS,
        help="Convert at most N artifacts."),
    Row("shard", "--shard", str, metavar="I/N", default="1/1", parse=parse_shard, group=RUNNING,
        help="Only the I-th of N parts, for N machines."),
    Row("engine", "--engine", str, metavar="processes|inline|ray", default="processes", group=RUNNING,
        help="What runs the conversions."),
    Row("jobs", "--jobs -j", int | None, metavar="N", min=1, group=RUNNING,
        help="How many conversions run at a time."),
    Row("address", "--address", str | None, group=RUNNING,
        help="Address of a Ray cluster. Default: RAY_ADDRESS."),
    Row("needs.seconds", "--timeout", float | None, metavar="S", group=RUNNING,
        help="Seconds that one artifact may take."),
    Row("needs.memory_bytes", "--memory", float | None, metavar="GIB", parse=parse_memory, group=RUNNING,
        help="Memory that one artifact may take."),
    Row("needs.gpus", "--gpus", float, metavar="N", default=0.0, min=0, group=RUNNING,
        help="GPUs of each job, with --engine ray."),
    Row("retries", "--retries", int, metavar="N", default=2, min=0, group=RUNNING,
        help="Retries of a job whose worker was lost."),
    Row("patience", "--patience", float, metavar="S", default=600.0, group=RUNNING,
        help="Give up a cluster after this many seconds without progress."),
    Row("retry_failed", "--retry-failed", bool, default=False, group=ARTIFACTS,
        help="Also retry what failed before and has not changed."),
    Row("fail_fast", "--fail-fast", bool, default=False, group=RUNNING,
        help="Stop at the first failure."),
    Row("fail_on_skipped", "--fail-on-skipped", bool, default=False, group=ARTIFACTS,
        help="Fail (exit 4) if a registry has models that are not read."),
    Row("link", "--link", str | None, metavar="reflink|hardlink", group=ARTIFACTS,
        help="Store files that several bundles share once; DEST must be local."),
    Row("ledger", "--ledger", Path | None, metavar="FILE", group=ARTIFACTS,
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
