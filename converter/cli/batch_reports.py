"""Write the reports of a batch on every artifact of its plan, however it ended."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from converter.batch.driver import default_ledger
from converter.batch.plan import BatchPlan
from converter.batch.records import records
from converter.batch.request import Request
from converter.reports import catalog


def write(
    paths: Sequence[Path],
    plan: BatchPlan,
    request: Request,
    summary: Mapping[str, Any],
    *,
    ended: str,
) -> None:
    """Write reports.

    Args:
        paths: Files to write; the suffix selects the format.
        plan: The plan of the batch.
        request: The request of the batch.
        summary: Summary of the run, as in ``--json``.
        ended: How the run ended: ``finished``, ``interrupted``, ``dry run``, or what stopped it.

    Raises:
        StorageError: A report cannot be written, or the ledger cannot be read.
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
