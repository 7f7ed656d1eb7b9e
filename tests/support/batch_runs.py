"""Batches that run in this process: a registry's file, a run, and what became of it."""

import json
import struct

import numpy as np

from converter.batch import driver
from converter.batch.driver import Finished, Planned, Summary
from converter.batch.ledger import Ledger
from converter.batch.request import Request
from converter.options import Options


def write(path, seed=0, size=8):
    data = np.random.default_rng(seed).standard_normal(size).astype("<f4").tobytes()
    text = json.dumps({"w": {"dtype": "F32", "shape": [size], "data_offsets": [0, len(data)]}})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text.encode() + data)


def make_request(tmp_path, *registries, **more):
    registries = tuple(map(str, registries or (tmp_path / "registry",)))
    more = {"engine": "inline", "options": Options()} | more
    return Request(registries, str(tmp_path / "out"), **more)


def batch(tmp_path, *registries, **more):
    """Run to the end; return the plan, outcomes by name, and the summary."""
    return run(make_request(tmp_path, *registries, **more))


def run(request):
    planned, *rest, summary = driver.run(request)
    assert isinstance(planned, Planned)
    assert isinstance(summary, Summary)
    outcomes = {e.outcome.name: e.outcome for e in rest if isinstance(e, Finished)}
    return planned.plan, outcomes, summary


def statuses(outcomes):
    return {name: outcome.status for name, outcome in outcomes.items()}


def rows(tmp_path):
    with Ledger(tmp_path / "out.ledger.sqlite", read_only=True) as ledger:
        return {row.name: row for row in ledger.rows()}
