"""What is there, what is done already, and what there is to do: before anything is converted."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from converter.batch.ledger import Row
from converter.batch.naming import names
from converter.batch.request import Request
from converter.destinations.place import Destination
from converter.job import GOOD, Job, plan_digest
from converter.registries.catalog import open_registry
from converter.registries.entry import Entry, Skipped
from formats.errors import SourceError

# Failures that say nothing of the artifact: its worker was lost, or the storage failed.
PASSING = ("lost",)
STORAGE_EXIT = 6


@dataclass(slots=True)
class Plan:
    """What a batch will do.

    Attributes:
        todo: What is to be converted, in the registry's order.
        done: What is there already.
        failed: What failed before, has not changed, and is not tried again unasked.
        skipped: What is no artifact.
        formats: How many of each format, of all artifacts.
        nbytes: Size of what is to be converted, as far as registries say.
    """

    todo: list[Job] = field(default_factory=list)
    done: list[Row] = field(default_factory=list)
    failed: list[Row] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    nbytes: int = 0


def make(request: Request, known: Sequence[Row], destination: Destination) -> Plan:
    """Look at all registries and at what the ledger knows.

    Raises:
        UsageError: A registry is malformed.
        SourceError: There is no artifact at all.
        StorageError: One cannot be listed.
    """
    plan = Plan()
    entries = _entries(request, plan)
    digest = plan_digest(request.options)
    rows = {row.source: row for row in known}
    called = names(entries, request.options, _names_of(known, request))
    part, parts = request.shard
    for entry in entries:
        name = called[entry.source]
        if parts > 1 and _part(entry.source, parts) != part - 1:
            continue
        if request.limit is not None and len(plan.todo) >= request.limit:
            break
        plan.formats[entry.format or "unknown"] += 1
        row = rows.get(entry.source)
        known_digest = ""
        if row is not None and row.plan == digest and row.name == name:
            same = bool(entry.token) and row.token == entry.token
            if row.status in GOOD and destination.holds(name, row.record):
                if same:
                    plan.done.append(row)
                    continue
                known_digest = row.digest
            elif row.status not in GOOD and same and not _is_passing(row, request):
                plan.failed.append(row)
                continue
        # An output that the ledger knows is ours to replace; any other one is the user's.
        options = replace(request.options, force=request.options.force or row is not None)
        plan.nbytes += entry.nbytes or 0
        plan.todo.append(
            Job(
                entry.source, name, request.destination, options,
                entry.token, known_digest, request.needs,
            )
        )  # fmt: skip
    return plan


def _entries(request: Request, plan: Plan) -> list[Entry]:
    """Return all artifacts, each once, and note what is none."""
    found: dict[str, Entry] = {}
    several = len(request.registries) > 1
    for reference in request.registries:
        registry = open_registry(reference, request.filters)
        for one in registry.find():
            if isinstance(one, Skipped):
                plan.skipped.append(one)
            elif one.source not in found:
                name = f"{registry.label}/{one.name}" if several and registry.label else one.name
                found[one.source] = replace(one, name=name)
    if not found:
        raise SourceError("no artifact found", where=", ".join(request.registries))
    return list(found.values())


def _names_of(known: Sequence[Row], request: Request) -> Mapping[str, str]:
    """Return the names that outputs for this target have already."""
    return {r.source: r.name for r in known if r.record.get("to") == request.options.to}


def _is_passing(row: Row, request: Request) -> bool:
    return request.retry_failed or row.status in PASSING or row.exit_code == STORAGE_EXIT


def _part(source: str, parts: int) -> int:
    """Return the shard of an artifact: by its name alone, so that all drivers agree."""
    return (
        int.from_bytes(hashlib.sha256(source.encode("utf-8", "surrogateescape")).digest()[:8])
        % parts
    )
