"""The corpus as a registry: one ``convert batch``, and what its reports say of it.

    python tools/corpus/batch.py FOLDER [--reports FOLDER] [--verify LEVEL] [--jobs N]

FOLDER is what INDEX.tsv lies in. Everything in it that is an artifact is converted, weights and
graphs, without any framework. Prints the counts and the gaps that the report's page shows, and
exits 1 when an artifact of INDEX.tsv is missed, a worker dies, we have a bug, reports disagree, or
fewer artifacts are converted, or come with a graph, than ever before.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET  # what is parsed is our own
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from converter.jobs.record import Record
from converter.reports.outcomes import outcome
from converter.reports.unsupported import Gaps

CONVERTED = 120  # all that there are
WITH_GRAPH = 75  # without a framework; many of the others are weights and nothing else
DIED = ("crashed", "timeout", "memory", "lost", "pending")
REPORTS = ("report.html", "report.jsonl", "junit.xml")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reports", type=Path, help="where to leave reports")
    parser.add_argument("--verify", default="weights")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        reports = options.reports or Path(made)
        reports.mkdir(parents=True, exist_ok=True)
        begin = time.monotonic()
        code = convert(options, Path(made) / "out", reports)
        seconds = time.monotonic() - begin
        lines = (reports / "report.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        tell(records, seconds)
        problems = [*missed(options.folder, records), *faults(records, code)]
        problems += disagreements(reports, records)
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


def convert(options: argparse.Namespace, out: Path, reports: Path) -> int:
    """Run the batch, and return its exit code."""
    command = [sys.executable, "-m", "converter", "batch", options.folder, "-o", out, "-q"]
    command += ["--verify", options.verify, "--jobs", str(options.jobs), "--timeout", "300"]
    for name in REPORTS:
        command += ["--report", reports / name]
    quiet = {k: v for k, v in os.environ.items() if not k.startswith("CONVERT_")}
    return subprocess.run(
        command, env=quiet if options.verify == "weights" else None, check=False
    ).returncode


def tell(records: Sequence[dict[str, Any]], seconds: float) -> None:
    """Print what the page shows."""
    size = sum(r["bytes"] or 0 for r in records)
    print(f"{len(records)} artifacts, {size / 1e6:.1f} MB, {seconds:.1f} s")
    for title, counted in (
        ("outcome", Counter(outcome(Record.from_json(r)) for r in records)),
        ("format", Counter(r["format"] for r in records)),
        ("verified", Counter(r["verification"]["reached"] for r in records)),
        ("graphs", Counter("with" if r["graphs"] else "without" for r in records)),
    ):
        print(f"{title:<9}", ", ".join(f"{name} {n}" for name, n in counted.most_common()))
    graphs = [g for r in records for g in r["verification"]["graphs"].values()]
    run = [m for g in graphs if g["status"] == "passed" for m in g["outputs"]]
    if run:
        worst = max(m["max_rel"] or 0 for m in run)
        print(f"beside    {len(run)} outputs, largest difference {worst:.1e}")
    gaps = Gaps()
    for record in records:
        gaps.add(Record.from_json(record).unsupported)
    print(f"gaps      block {gaps.blocked}; in the order to mend them:")
    for gap in gaps.rank_features():
        print(f"  {gap.models:>3} models  {gap.unblocked:>3} free  {gap.what[:100]}")


def missed(folder: Path, records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the artifacts that are listed and were not found."""
    sources = [Path(r["source"]).resolve() for r in records]
    with (folder / "INDEX.tsv").open() as f:
        for row in csv.DictReader(f, delimiter="\t"):
            path = (folder / row["path"]).resolve()
            if not any(path == source or path in source.parents for source in sources):
                yield f"not found: {row['path']}"


def faults(records: Sequence[dict[str, Any]], code: int) -> Iterator[str]:
    """Yield what must not be: deaths, bugs, less than there was."""
    for record in records:
        if record["status"] in DIED or record["exit_code"] == 70:
            yield f"{record['name']}: {record['status']}: {record['error']}"
    worst = max((r["exit_code"] or 0 for r in records), default=-1)
    if code != worst:
        yield f"exit code {code}; the worst of the artifacts is {worst}"
    done = sum(r["status"] == "done" for r in records)
    graphs = sum(bool(r["graphs"]) for r in records)
    if done < CONVERTED:
        yield f"{done} are converted; {CONVERTED} were"
        yield from (f"{r['name']}: {r['error']}" for r in records if r["status"] != "done")
    if graphs < WITH_GRAPH:
        yield f"{graphs} have a graph; {WITH_GRAPH} had"


def disagreements(reports: Path, records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield what one report says and another does not."""
    names = [record["name"] for record in records]
    if names != sorted(names):
        yield "records are not in the order of names"
    tests = {t.get("name"): t for t in ET.parse(reports / "junit.xml").getroot().iter("testcase")}
    entries = {record["name"]: record["entry"] or record["name"] for record in records}
    if sorted(entries.values()) != sorted(map(str, tests)):
        yield "junit.xml has other artifacts"
    bad = {name for name, test in tests.items() if {"failure", "error"} & {e.tag for e in test}}
    if bad != {entries[r["name"]] for r in records if r["exit_code"]}:
        yield "junit.xml has other failures"
    if f'"total":{len(names)},' not in (reports / "report.html").read_text():
        yield "report.html has another number of artifacts"


if __name__ == "__main__":
    sys.exit(main())
