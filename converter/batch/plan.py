"""What is there, what is done already, and what there is to do: before anything is converted."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field, replace

from converter.batch.leases import Row
from converter.batch.ledger import Ledger
from converter.batch.liveness import is_lost
from converter.batch.naming import kind_of, names
from converter.batch.output_filter import Outputs
from converter.batch.renamed_sources import Vanished
from converter.batch.request import Request
from converter.destinations.protocol import Destination
from converter.jobs.job import GOOD, Job, plan_digest
from converter.jobs.record import Record
from converter.registries.catalog import open_registry
from converter.registries.entry import Entry, Skipped
from formats.errors import SourceError

# Failures that say nothing of the artifact, and are tried again unasked: its worker was lost; or
# it could not be fetched or its output not stored, as where something stood in its place.
PASSING = ("lost",)
STORAGE_EXIT = 6


@dataclass(slots=True)
class BatchPlan:
    """What a batch will do.

    Attributes:
        todo: What is to be converted, in the registry's order.
        done: What is there already.
        failed: What failed before, has not changed, and is not tried again unasked.
        later: How many are left for another run, by ``--limit``.
        skipped: What is no artifact.
        unread: Entries of registries that are not read, by name: models of other libraries, and
            what was named by itself and is no artifact.
        is_refused: Whether something that was named by itself is not read.
        harmed: What was done before and is not as it was left: names of outputs, with the reason.
        formats: How many of each format, of all artifacts.
        nbytes: Size of what is to be converted, as far as registries say.
        digest: Of the options and the tool's version.
        since: The ledger's newest row when this was made.
    """

    todo: list[Job] = field(default_factory=list)
    done: list[Row] = field(default_factory=list)
    failed: list[Row] = field(default_factory=list)
    later: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    unread: dict[str, Skipped] = field(default_factory=dict)
    is_refused: bool = False
    harmed: dict[str, str] = field(default_factory=dict)
    formats: Counter[str] = field(default_factory=Counter)
    nbytes: int = 0
    digest: str = ""
    since: int = 0


def make(request: Request, ledger: Ledger, destination: Destination) -> BatchPlan:
    """Look at all registries and at what the ledger knows.

    Raises:
        UsageError: A registry is malformed, or the destination itself.
        SourceError: There is no artifact at all.
        StorageError: One cannot be listed, or the ledger not be read.
    """
    plan = BatchPlan(digest=plan_digest(request.options), since=ledger.latest)
    kind = kind_of(request.options)
    known = frozenset(row.name for row in ledger.rows())
    entries = _entries(request, plan, Outputs(request, known), ledger)
    recalled = ledger.adopt(destination.recall(known), kind)
    rows = {row.source: row for row in ledger.rows(kind)} | recalled
    vanished = Vanished(entries, rows, plan.digest, request)
    heirs = vanished.heirs(entries)
    called = ledger.choose_names(
        kind,
        {row.source: row.name for row in recalled.values()},
        lambda given, others: names(entries, request.options, given, others, heirs),
    )
    part, parts = request.shard
    for entry in entries:
        if parts > 1 and _part(entry.source, parts) != part - 1:
            continue
        name = called[entry.source]
        plan.formats[entry.format or "unknown"] += 1
        row = rows.get(entry.source)
        known_digest = harm = ""
        kept = None if row is not None else vanished.kept(entry, name)
        if kept is not None:
            harm = _harm(kept, ledger, destination)
            known_digest = "" if harm else kept.digest
        if row is not None and row.plan == plan.digest:
            is_same = bool(entry.token) and row.token == entry.token
            if row.status in GOOD:
                if entry.source not in recalled:
                    harm = _harm(row, ledger, destination)
                if is_same and not harm:
                    plan.done.append(row)
                    continue
                known_digest = "" if harm else row.digest
            elif is_same and not _is_tried_again(row, request):
                plan.failed.append(row)
                continue
        if request.limit is not None and len(plan.todo) >= request.limit:
            plan.later += 1
            continue
        if harm:
            plan.harmed[name] = harm
        heirlooms = vanished.like(entry) if row is None and kept is None else ()
        plan.nbytes += entry.nbytes or 0
        plan.todo.append(
            Job(
                entry.source, name, request.destination, request.options, entry.token,
                known_digest, request.needs, heirlooms, entry.checkpoint, entry.note,
            )
        )  # fmt: skip
    return plan


def _entries(request: Request, plan: BatchPlan, outputs: Outputs, ledger: Ledger) -> list[Entry]:
    """Return all artifacts, each once, and record what is skipped."""
    found: dict[str, Entry] = {}
    several = len(request.registries) > 1
    known = ledger.no_artifacts()
    filters = replace(request.filters, apart=outputs.apart, known=known)
    for reference in request.registries:
        outputs.check(reference)
        registry = open_registry(reference, filters)
        before, skipped = len(found), len(plan.skipped)
        for one in registry.find():
            reason = outputs.reason(one.source)
            if reason is not None:
                plan.skipped.append(Skipped(one.source, reason))
            elif isinstance(one, Skipped):
                plan.skipped.append(one)
            elif one.source not in found:
                name = f"{registry.label}/{one.name}" if several and registry.label else one.name
                found[one.source] = replace(one, name=name)
        new = plan.skipped[skipped:]
        plan.unread |= {one.name: one for one in new if one.name}
        if len(found) == before and len(new) == 1 and several:
            plan.unread[new[0].name or new[0].source] = new[0]
            plan.is_refused = True
    sniffed = {one.source: (one.token, one.reason) for one in plan.skipped if one.token}
    if sniffed != known:
        ledger.remember_no_artifacts(sniffed)
    if not found:
        raise SourceError("no artifact found", where=", ".join(request.registries))
    return list(found.values())


def _harm(row: Row, ledger: Ledger, destination: Destination) -> str:
    """Return why a finished output is no longer valid; "" if it is."""
    if is_lost(row.boot):
        return "may not have reached the disk before this machine was started again"
    return destination.harm(row.name, ledger.record(row.name) or Record(row.source, row.name))


def _is_tried_again(row: Row, request: Request) -> bool:
    return request.retry_failed or row.status in PASSING or row.exit_code == STORAGE_EXIT


def _part(source: str, parts: int) -> int:
    """Return the shard of an artifact: by its name alone, so that all drivers agree."""
    digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) % parts
