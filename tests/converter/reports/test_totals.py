"""Each figure of a batch: a record of every kind, and what it must not count as."""

from dataclasses import replace

from converter.jobs.record import Record, RecordedVerification
from converter.reports.totals import Totals

DONE = Record(
    "a", "a", status="done", exit_code=0, bytes=10, seconds=2.0, weights_digest="d",
    weight_bytes=4, verification=RecordedVerification("cpu", {"tensors": 3, "bytes": 4}),
)  # fmt: skip


def totals(*records):
    found = Totals()
    for record in records:
        found.add(record)
    return found


def test_a_converted_artifact_counts_in_all_figures():
    found = totals(DONE)
    assert (found.artifacts, found.converted, found.equal, found.compared) == (1, 1, 1, 1)
    assert (found.bytes, found.seconds) == (10, 2.0)


def test_weights_that_were_not_compared_are_not_equal():
    found = totals(replace(DONE, verification=RecordedVerification("cpu", None)))
    assert (found.equal, found.compared) == (0, 1)


def test_graphs_that_were_run_alone_are_not_compared():
    for level in ("none", "smoke", "weights"):
        assert totals(replace(DONE, verification=RecordedVerification(level, None))).compared == 0


def test_what_failed_or_was_not_read_has_no_output():
    failed = replace(DONE, status="failed", exit_code=3)
    skipped = replace(DONE, status="skipped", exit_code=None, bytes=None)
    found = totals(failed, skipped)
    assert (found.artifacts, found.converted, found.equal, found.bytes) == (2, 0, 0, 10)


def test_weights_that_are_there_more_than_once_are_copies():
    other = replace(DONE, weights_digest="e", weight_bytes=9)
    assert totals(DONE, other, replace(DONE, weights_digest=""), DONE).copies() == [(4, [0, 3])]
    assert totals(DONE, other).copies() == []
