"""Records as batches make them, of artifacts that nobody has: also such as mean harm."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from converter.jobs.job import Job, new_record, report_death
from converter.jobs.record import Record
from converter.options import Options
from converter.reports.catalog import Report
from converter.verification.compare import Array, Tolerance, compare
from converter.verification.measure import Runtime
from converter.verification.report import CaseReport, GraphReport

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<!--<script>",
    "<img src=x onerror=document.title='owned'>",
    "quotes \" ' ` & &amp; <b>",
    "controls \x00 \x07 \x1b[31mred\x1b[0m \x7f \x9b31m",
    "lines\nand\ttabs\r\n",
    "surrogate \udcff and \ud800",
    "ünï 模型 🐙 ‮evil‬ \u2028\u2029 \ufffe \uffff",
    "]]> ${title} {{x}} %s \\u003c",
    "very " * 2000 + "long",
)


def job(name: str, **options: Any) -> Job:
    return Job(f"/registry/{name}", f"{name}.portable", "/out", Options(**options))


BLANK = new_record(job("", verify="weights")).to_json()


def good(name: str, number: int = 0, **changes: Any) -> dict[str, Any]:
    """Return the record of a small torch file, converted, its weights compared."""
    return BLANK | {
        "source": f"/registry/{name}",
        "name": f"{name}.portable",
        "status": "done",
        "exit_code": 0,
        "output": f"/out/{name}.portable",
        "bytes": 1000 + 37 * number,
        "format": "torch",
        "variant": "zip archive (torch 1.6 and later)",
        "evidence": "a zip archive with archive/data.pkl",
        "framework": "torch",
        "recorded": {"archive_version": "3", "byteorder": "little"},
        "devices": {"cuda:0": 4},
        "source_digest": f"{number:064x}",
        "weights_digest": f"{number + 1:064x}",
        "tensors": 4,
        "weight_bytes": 900,
        "verification": {
            "reached": "weights", "weights": {"tensors": 4, "bytes": 900}, "graphs": {},
        },
        "steps": [
            {"name": "detected", "text": "torch: a zip archive", "seconds": None},
            {"name": "read", "text": "zip archive: 4 tensors, 900 B", "seconds": 0.0021},
            {"name": "written", "text": "1 file, 1.4 KiB", "seconds": 0.0019},
            {"name": "verified", "text": "weights: 4 tensors, 900 B, equal", "seconds": 0.001},
        ],
        "seconds": 0.005 + number / 1000,
        "started": 1795337774.0 + number,
        "host": "machine",
    } | changes  # fmt: skip


def bad(name: str, code: int, message: str, **changes: Any) -> dict[str, Any]:
    """Return the record of a failure."""
    error = {"type": "SourceError", "message": f"/registry/{name}: {message}"}
    return good(name) | {
        "status": "failed", "exit_code": code, "output": None, "error": error,
        "weights_digest": None, "verification": BLANK["verification"],
    } | changes  # fmt: skip


def gaps(**counts: int) -> list[dict[str, Any]]:
    return [{"what": f"TensorFlow op {name}", "count": n} for name, n in counts.items()]


def compared(*differences: float, elements: int = 1000) -> dict[str, Any]:
    """Return a comparison with an output for each difference, in parts of the scale."""
    draw = np.random.default_rng(1)
    outputs = {}
    for i, difference in enumerate(differences):
        expected = draw.normal(size=elements).astype("f4")
        found = expected + (difference * draw.random(elements) * expected.max()).astype("f4")
        found[: elements // 2] = expected[: elements // 2]
        name = f"output_{i}"
        outputs[name] = compare(
            name, Array(expected, "float32"), Array(found, "float32"), Tolerance(), "seed 0"
        )
    failed = [m for m in outputs.values() if not m.passed]
    return GraphReport(
        "failed" if failed else "passed",
        failed[0].problems[0] if failed else "",
        source=Runtime("keras", "3.15.1", "cpu:0"),
        converted=Runtime("onnxruntime", "1.31.1", "CPUExecutionProvider"),
        seed=0,
        cases=(CaseReport("seed 0", {"x": ("float32", (2, 3))}),),
        outputs=outputs,
        seconds=1.5,
    ).plain()


def some() -> list[dict[str, Any]]:
    """Return a dozen records: of each outcome at least one."""
    verified = {"reached": "cpu", "weights": {"tensors": 4, "bytes": 900}}
    lost = report_death(job("lost.h5"), "lost", "its worker went away", seconds=2.0, attempts=3)
    crashed = report_death(job("crash.pt"), "crashed", "SIGSEGV", seconds=1.0)
    waiting = new_record(job("waiting.pt")).to_json() | {"status": "pending", "exit_code": None}
    records = [
        good("plain.pt", 1),
        good("copy.pt", 1, weights_digest=f"{2:064x}"),
        good("graph.h5", 3, format="keras-h5", framework="keras", devices={},
             recorded={"keras_version": "2.3.1"}, graphs=[
                 {"signature": "", "nodes": 12, "opset": 18, "exporter": ""}],
             verification=verified | {"graphs": {"": compared(1e-7, 3e-5)}}),
        good("heads", 4, format="savedmodel", framework="tensorflow",
             recorded={"tensorflow_version": "2.5.0"}, gaps=gaps(ParseExample=2, DecodeWav=1)),
        bad("differs.h5", 1, "the graph does not compute what the source does", format="keras-h5",
            verification=verified | {"reached": "none", "graphs": {"": compared(1e-7, 0.3)}}),
        bad("damaged.h5", 3, "the superblock is cut off", format="keras-h5"),
        bad("blocked.pb", 4, "2 gaps: op ParseExample; op Svd", format="graphdef",
            gaps=gaps(ParseExample=1, Svd=3)),
        bad("blocked2.pb", 4, "1 gaps: op ParseExample", format="graphdef",
            gaps=gaps(ParseExample=1)),
        bad("evil.pkl", 5, "names code outside itself"),
        bad("far.pt", 6, "s3://bucket: no route"),
        crashed.record.to_json(), lost.record.to_json(), waiting,
        bad("bug.pt", 70, "a bug of convert"),
    ]  # fmt: skip
    return sorted(records, key=lambda record: record["name"])


def hostile() -> list[dict[str, Any]]:
    """Return records in which every text means harm."""
    records = []
    for i, text in enumerate(HOSTILE):
        record = bad(f"{i} {text}", 4, text, format=text, framework=text, evidence=text)
        record |= {
            "variant": text,
            "recorded": {text: text},
            "devices": {text: 1},
            "distribution": {text: text},
            "source": text,
            "host": text,
            "normalisations": [{"name": text, "count": 1, "detail": text}],
            "left_out": [{"name": text, "reason": text}],
            "gaps": [{"what": text, "count": 1}],
            "findings": [{"kind": text, "subject": text, "where": text}],
            "warnings": [text],
            "graphs": [{"signature": text, "nodes": 1, "opset": 18, "exporter": text}],
            "steps": [{"name": text, "text": text, "seconds": 0.1}],
        }
        comparison = compared(1e-6)
        comparison["outputs"][0] |= {"name": text, "problems": [text], "max_abs": float("nan")}
        record["verification"] = {
            "reached": "cpu", "weights": None, "graphs": {text: comparison | {"reason": text}},
        }  # fmt: skip
        records.append(record)
    return records


def many(n: int) -> Iterator[dict[str, Any]]:
    """Yield the records of a large registry of small artifacts, a twentieth of them damaged."""
    draw = random.Random(1)
    report = compared(1e-7, 2e-6)
    for i in range(n):
        name = f"team-{i // 600:02}/project-{i // 40:03}/model-{i:05}.pt"
        if i % 20 == 0:
            yield bad(name, 3, "the archive's directory is cut off", bytes=i)
        elif i % 11 == 0:
            yield good(name, i, gaps=gaps(**{f"Op{draw.randrange(60)}": 1 + i % 3 for _ in "abc"}))
        elif i % 7 == 0:
            verified = {"reached": "cpu", "weights": {"tensors": 4, "bytes": 900}}
            yield good(name, i, format="keras-h5", framework="keras",
                       recorded={"keras_version": f"2.{i % 9}.0"},
                       verification=verified | {"graphs": {"": report}})  # fmt: skip
        else:
            yield good(name, i)


def report_of(records: Any, title: str = "/registry", **summary: Any) -> Report:
    """Return a report of records as JSON: a list of them, or a function that yields them."""
    about = {"exit_code": 4, "seconds": 12.5, "ended": "finished", "counts": {}}
    about["options"] = {"to": "portable", "verify": "auto", "destination": "/out"}
    return Report(
        title,
        lambda: map(Record.from_json, records() if callable(records) else records),
        {"no model": 3},
        about | summary,
    )


__all__ = ["HOSTILE", "bad", "compared", "gaps", "good", "hostile", "many", "report_of", "some"]
