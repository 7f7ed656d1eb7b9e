"""The reports of a batch, however it ended: of every artifact of its plan."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from converter.batch.driver import default_ledger
from converter.batch.plan import Plan
from converter.batch.records import records
from converter.batch.request import Request
from converter.reports import catalog


def write(
    paths: Sequence[Path], plan: Plan, request: Request, summary: Mapping[str, Any], *, ended: str
) -> None:
    """Write reports.

    Args:
        paths: Where to; the suffix says what kind.
        plan: What was to be done.
        request: What was asked for.
        summary: Of the run, as ``--json`` has it.
        ended: How the run ended: ``finished``, ``interrupted``, ``dry run``, or what stopped it.

    Raises:
        StorageError: One cannot be written, or the ledger not read.
    """
    if not paths:
        return
    ledger = request.ledger or default_ledger(request.destination)
    options = request.options
    asked = {
        "to": options.to,
        "device": options.device,
        "precision": options.precision,
        "verify": options.verify,
        "require": options.require,
        "destination": request.destination,
        "engine": request.engine,
        "shard": None if request.shard == (1, 1) else "{}/{}".format(*request.shard),
    }
    report = catalog.Report(
        title=", ".join(request.registries),
        records=lambda: records(plan, ledger),
        skipped=Counter(one.reason for one in plan.skipped),
        summary={
            **summary,
            "ended": ended,
            "options": {key: value for key, value in asked.items() if value is not None},
        },
    )
    for path in paths:
        catalog.write(report, path)
