"""Convert every Keras model of a corpus to ONNX, and compare what it computes with Keras itself.

    python tests/corpus/graphs.py FOLDER --tensorflow-python P [--jobs N] [-v]

FOLDER has an INDEX.tsv with the columns ``kind`` and ``path``, or Keras files. Each is converted by
``convert --to onnx`` and compared by ``convert verify``, in processes that may take so much time
and memory. A verdict each:

    agrees     Keras 3 or tf_keras computes the same
    own code   not converted, or not run: a Lambda or a class of the author's own is in it
    no graph   the file records weights only
    no Keras   converted, accepted by onnxruntime, and no Keras runs the source: why follows
    empty      onnxruntime's output has no element, and neither has Keras's, of the same shape
    WRONG      outputs differ, onnxruntime refuses the file, there is a gap that is no one's own
               code, or anything else kept it from being converted

Exits 1 if anything is WRONG, if there is nothing to convert, or if nothing agrees.
"""

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import onnxruntime

import converter
from converter.verify.runners import PYTHON_VARIABLE
from formats.errors import ConvertError

KINDS = ("keras_h5", "keras_zip")
SUFFIXES = (".h5", ".hdf5", ".keras")
SECONDS = 120  # for a conversion; three times that for a comparison, which starts frameworks
MEMORY_BYTES = 4 << 30  # of address space, for a conversion
UNSUPPORTED = 4  # exit code
WEIGHTS_ONLY = "records no computation"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tensorflow-python", required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    os.environ[PYTHON_VARIABLE] = options.tensorflow_python
    paths = list(models(options.folder))
    verdicts: Counter[str] = Counter()
    start = time.perf_counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        for path, (verdict, detail) in zip(paths, pool.map(judge, paths), strict=True):
            verdicts[verdict] += 1
            if options.verbose or verdict == "WRONG":
                print(f"{verdict:<9} {path.relative_to(options.folder)}  {detail}", flush=True)
    for verdict, count in sorted(verdicts.items()):
        print(f"{count:>4} {verdict}")
    print(f"graphs: {len(paths)} models in {time.perf_counter() - start:.1f} s")
    return 1 if verdicts["WRONG"] or not verdicts["agrees"] else 0


def models(folder: Path) -> Iterator[Path]:
    """Yield the models of a folder, by its index or by their names."""
    index = folder / "INDEX.tsv"
    if index.exists():
        with index.open() as f:
            rows = csv.DictReader(f, delimiter="\t")
            yield from (folder / r["path"] for r in rows if r["kind"] in KINDS)
        return
    yield from (p for p in sorted(folder.rglob("*")) if p.suffix in SUFFIXES and p.is_file())


def judge(path: Path) -> tuple[str, str]:
    """Return a verdict on one model, and what there is to say."""
    try:
        findings = converter.read(path).metadata.findings
    except ConvertError as e:
        return "WRONG", f"cannot be read: {e}"
    own = "; ".join(f"{f.kind} {f.subject}" for f in findings[:3])
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "model.onnx"
        made = run(str(path), "--to", "onnx", "-o", str(file), "--verify", "none", limit=True)
        if made is None:
            return "WRONG", f"converting took more than {SECONDS} s"
        if made.returncode:
            said = last(made)
            if made.returncode == UNSUPPORTED and WEIGHTS_ONLY in said:
                return "no graph", said
            if made.returncode == UNSUPPORTED and own:
                return "own code", said
            return "WRONG", f"exit code {made.returncode}: {said}"
        if refused := refusal(file):
            return "WRONG", f"onnxruntime refuses it: {refused}"
        if own:
            return "own code", f"converted, and not run: {own}"
        compared = run("verify", str(path), str(file), "--json", "--timeout", str(SECONDS))
        if compared is None:
            return "WRONG", f"comparing took more than {3 * SECONDS} s"
        return said_by(compared)


def run(*arguments: str, limit: bool = False) -> "subprocess.CompletedProcess[str] | None":
    """Run ``convert``; None if it takes too long."""
    space = partial(resource.setrlimit, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        return subprocess.run(
            [sys.executable, "-m", "converter", *arguments],
            capture_output=True, text=True, check=False, timeout=SECONDS * (1 if limit else 3),
            preexec_fn=space if limit else None,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None


def last(done: "subprocess.CompletedProcess[str]") -> str:
    """Return the error that was printed, in one line."""
    lines = done.stderr.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith("error")), -1)
    return " ".join(" ".join(lines[first:]).split())[:500]


def refusal(file: Path) -> str:
    """Return why onnxruntime does not take a file, or nothing."""
    try:
        onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    except Exception as e:  # noqa: BLE001 - whatever it raises is its answer
        return " ".join(str(e).split())[:300]
    return ""


def said_by(compared: "subprocess.CompletedProcess[str]") -> tuple[str, str]:
    """Return the verdict of ``convert verify``."""
    try:
        report = json.loads(compared.stdout)["graph"]
    except (ValueError, KeyError):
        return "WRONG", f"exit code {compared.returncode}: {last(compared)}"
    if report["status"] == "passed":
        worst = max(m["max_rel"] for m in report["outputs"])
        little = sum(m["says_little"] for m in report["outputs"])
        note = f", {little} say little but {report['layers']} layers agree" if little else ""
        skipped = f"; skipped {report['skipped']}" if report["skipped"] else ""
        return "agrees", (
            f"max rel {worst:.1e} in {len(report['outputs'])} outputs with "
            f"{report['source']['name']}{note}{skipped}"
        )
    if report["status"] == "not run" and report["lacking"] is None:
        return "no Keras", report["reason"]
    failed = [m for m in report["outputs"] if not m["passed"]]
    # An output of another shape is a problem of its own, and has elements on one side.
    if failed and all("has no element to compare" in " ".join(m["problems"]) for m in failed):
        return "empty", f"{len(failed)} of {len(report['outputs'])} outputs"
    first = report["first_difference"]
    where = f" (layer {first['layer']}, {first['class_name']})" if first else ""
    return "WRONG", f"{report['reason']}{where}"


if __name__ == "__main__":
    sys.exit(main())
