"""Plan a batch: find artifacts, compare them with the ledger, and list the jobs."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from converter.batch.leases import Row
from converter.batch.ledger import Ledger
from converter.batch.liveness import is_lost
from converter.batch.naming import kind_of, names
from converter.batch.output_filter import Outputs
from converter.batch.renamed_sources import Vanished
from converter.batch.request import Override, Request
from converter.destinations.protocol import Destination, Recalled
from converter.jobs.job import GOOD, Job, plan_digest
from converter.jobs.record import Record
from converter.options import Options
from converter.registries.catalog import open_registry, scheme_of
from converter.registries.entry import Entry, Skipped
from converter.registries.filters import matches
from converter.write.catalog import check_options
from formats.errors import ConvertError, SourceError

# Failures that say nothing of the artifact, and are tried again unasked: its worker was lost; or
# it could not be fetched or its output not stored, as where something was in its place.
PASSING = ("lost",)
MOVABLE = "portable"  # its manifest names its source, so that an output can be renamed
STORAGE_EXIT = 6


@dataclass(slots=True)
class BatchPlan:
    """The plan of a batch.

    Attributes:
        todo: What is to be converted, in the registry's order.
        done: What is there already.
        failed: What failed before, has not changed, and is not tried again unasked.
        later: How many are left for another run, by ``--limit``.
        skipped: What is no artifact.
        unread: Entries of registries that are not read, by name: models of other libraries, and
            what was named by itself and is no artifact.
        is_refused: Whether something that was named by itself is not read.
        damaged: What was done before and is not as it was left: names of outputs, with the reason.
        formats: How many of each format, of all artifacts.
        nbytes: Size of what is to be converted, as far as registries say.
        unused: Overrides that match no artifact.
        since: The ledger's newest row when this was made.
    """

    todo: list[Job] = field(default_factory=list)
    done: list[Row] = field(default_factory=list)
    failed: list[Row] = field(default_factory=list)
    later: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    unread: dict[str, Skipped] = field(default_factory=dict)
    is_refused: bool = False
    damaged: dict[str, str] = field(default_factory=dict)
    formats: Counter[str] = field(default_factory=Counter)
    nbytes: int = 0
    unused: list[Override] = field(default_factory=list)
    since: int = 0


def make(request: Request, ledger: Ledger, destination: Destination) -> BatchPlan:
    """Read all registries and the ledger.

    Raises:
        UsageError: A registry is malformed, or the destination itself, or an override contradicts
            the options.
        SourceError: There is no artifact at all.
        StorageError: One cannot be listed, or the ledger not be read.
    """
    plan = BatchPlan(since=ledger.latest)
    known = frozenset(row.name for row in ledger.rows())
    entries = _entries(request, plan, Outputs(request, known), ledger)
    recalled = [*destination.recall(known)]
    settings = _choose_settings(request, entries)
    kinds: dict[str, list[Entry]] = {}
    for entry in entries:
        kinds.setdefault(kind_of(settings[entry.source].options), []).append(entry)
    planners = {
        kind: _Planner(request, settings, ledger, destination, kind, group, recalled)
        for kind, group in kinds.items()
    }
    part, parts = request.shard
    for entry in entries:
        if parts > 1 and _part(entry.source, parts) != part - 1:
            continue
        plan.formats[entry.format or "unknown"] += 1
        planners[kind_of(settings[entry.source].options)].add(entry, plan)
    return plan


class _Settings(NamedTuple):
    """Options of an artifact, and the digest of these and of the tool's version."""

    options: Options
    digest: str


def _choose_settings(request: Request, entries: Iterable[Entry]) -> dict[str, _Settings]:
    """Return the options of each artifact by its source.

    Raises:
        UsageError: An override contradicts the options.
    """
    usual = _Settings(request.options, plan_digest(request.options))
    known: dict[tuple[int, ...], _Settings] = {}
    found = {}
    for entry in entries:
        overrides = request.find_overrides(entry.name)
        if not overrides:
            found[entry.source] = usual
            continue
        key = tuple(map(id, overrides))
        if key not in known:
            options = request.options
            for override in overrides:
                options = override.apply(options)
            try:
                check_options(options)
            except ConvertError as e:
                e.add_note(f"these are the options of {entry.name}")
                raise
            known[key] = _Settings(options, plan_digest(options))
        found[entry.source] = known[key]
    return found


class _Planner:
    """Plans the artifacts whose outputs are of one kind."""

    def __init__(
        self,
        request: Request,
        settings: Mapping[str, _Settings],
        ledger: Ledger,
        destination: Destination,
        kind: str,
        entries: Sequence[Entry],
        recalled: Sequence[Recalled],
    ) -> None:
        self._request, self._settings = request, settings
        self._ledger, self._destination = ledger, destination
        options = settings[entries[0].source].options  # target and device are those of all
        self._recalled = ledger.adopt(recalled, kind)
        self._rows = {row.source: row for row in ledger.rows(kind)} | self._recalled
        self._vanished = Vanished(
            entries,
            self._rows if scheme_of(request.destination) == "" else {},
            lambda entry: settings[entry.source].digest,
            is_movable=options.to == MOVABLE,
        )
        heirs = self._vanished.find_renamed(entries)
        self._names = ledger.choose_names(
            kind,
            {row.source: row.name for row in self._recalled.values()},
            lambda given, others: names(entries, options, given, others, heirs),
        )

    def add(self, entry: Entry, plan: BatchPlan) -> None:
        """Add an artifact to the plan: as a job, as done, or as failed before."""
        request, vanished = self._request, self._vanished
        options, digest = self._settings[entry.source]
        name, row = self._names[entry.source], self._rows.get(entry.source)
        kept = None if row is not None else vanished.find_adopted(entry, name)
        former = _compare(entry, row, kept, request, digest, self._find_damage)
        if row is not None and former.is_settled:
            (plan.done if row.status in GOOD else plan.failed).append(row)
        elif request.limit is not None and len(plan.todo) >= request.limit:
            plan.later += 1
        else:
            if former.damage:
                plan.damaged[name] = former.damage
            heirlooms = vanished.find_candidates(entry) if row is None and kept is None else ()
            plan.nbytes += entry.nbytes or 0
            plan.todo.append(
                Job(
                    entry.source, name, request.destination, options, entry.token,
                    former.digest, request.needs, heirlooms, entry.checkpoint, entry.note,
                    entry.name,
                )
            )  # fmt: skip

    def _find_damage(self, row: Row) -> str:
        is_recalled = self._recalled.get(row.source) is row  # the destination has just named it
        return "" if is_recalled else _find_damage(row, self._ledger, self._destination)


class Former(NamedTuple):
    """The output of an artifact from an earlier run.

    Attributes:
        digest: Of the source of an output that is good as long as this digest is that of the
            artifact; "" for none.
        damage: Why an output that was good is not any more; "" if it is, or if there is none.
        is_settled: Whether nothing is to be done: it is converted, or failed and is not tried
            again.
    """

    digest: str = ""
    damage: str = ""
    is_settled: bool = False


def _compare(
    entry: Entry,
    row: Row | None,
    kept: Row | None,
    request: Request,
    plan: str,
    find_damage: Callable[[Row], str],
) -> Former:
    """Compare an artifact with its row in the ledger.

    Args:
        entry: The artifact.
        row: Its row; None if it is new.
        kept: Row of a source that is gone, whose output a new artifact takes over, or None.
        request: The request.
        plan: Digest of the options and the tool's version.
        find_damage: Returns why the output of a row is no longer valid, or "".
    """
    if row is None:
        damage = find_damage(kept) if kept is not None else ""
        return Former(kept.digest if kept is not None and not damage else "", damage)
    if row.plan != plan:
        return Former()
    is_same = bool(entry.token) and row.token == entry.token
    if row.status not in GOOD:
        return Former(is_settled=is_same and not _is_tried_again(row, request))
    damage = find_damage(row)
    return Former("" if damage else row.digest, damage, is_settled=is_same and not damage)


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
    plan.unused = [
        override
        for override in request.overrides
        if not any(matches(override.names, entry.name) for entry in found.values())
    ]
    return list(found.values())


def _find_damage(row: Row, ledger: Ledger, destination: Destination) -> str:
    """Return why a finished output is no longer valid; "" if it is."""
    if is_lost(row.boot):
        return "may not have reached the disk before this machine was started again"
    return destination.find_damage(
        row.name, ledger.record(row.name) or Record(row.source, row.name)
    )


def _is_tried_again(row: Row, request: Request) -> bool:
    return request.retry_failed or row.status in PASSING or row.exit_code == STORAGE_EXIT


def _part(source: str, parts: int) -> int:
    """Return the shard of an artifact, which depends on its name alone."""
    digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) % parts
