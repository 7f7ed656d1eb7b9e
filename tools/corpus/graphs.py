"""Convert the models and graphs of a corpus, and compare with the frameworks.

    python tools/corpus/graphs.py FOLDER --tensorflow-python P [--kind K,...] [--jobs N] [-v]
    python tools/corpus/graphs.py FOLDER --torch-python P [--exporter auto|native|export|…] [-v]

FOLDER has an INDEX.tsv with the columns ``kind`` and ``path``, or files. Each is converted by
``convert --to onnx`` and compared by ``convert verify``, in processes that may take so much time
and memory; of a TensorFlow graph each signature is, by `tensorflow_graphs`; torch's programs are
given their inputs by `torch_graphs`. Kinds are those that the given frameworks run, unless said. A
verdict each:

    agrees     Keras 3, tf_keras, TensorFlow or torch computes the same
    own code   not converted, or not run: a Lambda or a class of the author's own is in it
    no graph   the file records weights only
    no run     converted, accepted by onnxruntime, and no framework runs the source: why follows;
               or a torch program that torch itself does not run on what we guess, so none was made
    gap        a TensorFlow graph or torch program that is not converted; what of it is named
    random     of a TensorFlow graph or torch program some outputs differ from run to run; all
               others agree
    empty      onnxruntime's output has no element, and neither has the source's, of the same shape
    WRONG      outputs differ, onnxruntime refuses the file, there is a gap in a Keras model that
               is no one's own code, or anything else kept it from being converted

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
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import onnxruntime

import converter
from converter.child.process import PYTHON_VARIABLE, TORCH_PYTHON_VARIABLE
from formats.errors import ConvertError

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "tests" / "support"))
import torch_graphs  # noqa: E402
from tensorflow_server import stand_in  # noqa: E402
from warm_python import warm  # noqa: E402

KERAS = ("keras_h5", "keras_zip")
TENSORFLOW = ("savedmodel", "tf1_frozen", "tf_checkpoint")
TORCH = ("torch", "torchscript", "torch_export")
SUFFIXES = {
    ".h5": "keras_h5", ".hdf5": "keras_h5", ".keras": "keras_zip", ".pb": "tf1_frozen",
    ".pt": "torch", ".pth": "torch", ".pt2": "torch_export", ".jit": "torchscript",
}  # fmt: skip
SECONDS = 120  # for a conversion; three times that for a comparison, which starts frameworks
SAVED_MODELS = ("saved_model.pb", "saved_model.pbtxt")
SAVED_MODEL_PARTS = (*SAVED_MODELS, "tfhub_module.pb", "keras_metadata.pb", "fingerprint.pb")
MEMORY_BYTES = 4 << 30  # of address space, for a conversion
UNSUPPORTED = 4  # exit code
WEIGHTS_ONLY = "records no computation"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tensorflow-python")
    parser.add_argument("--torch-python")
    parser.add_argument("--exporter", default="auto", help="of torch's programs")
    parser.add_argument("--kind")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    kinds: list[str] = []
    if options.tensorflow_python:
        kinds += [*KERAS, *TENSORFLOW]
    if options.torch_python:
        os.environ[TORCH_PYTHON_VARIABLE] = options.torch_python
        kinds += TORCH
    if not kinds:
        parser.error("--tensorflow-python or --torch-python says who runs the sources")
    kinds = options.kind.split(",") if options.kind else kinds
    found = [m for m in models(options.folder) if m[0] in kinds]
    verdicts: Counter[str] = Counter()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        asks = None
        if options.tensorflow_python:
            folder = Path(scratch) / "w"
            folder.mkdir()
            keras = stack.enter_context(warm(options.tensorflow_python, folder, "tensorflow"))
            os.environ[PYTHON_VARIABLE] = str(keras)
        if any(kind in TENSORFLOW for kind, _ in found):
            asks = stack.enter_context(stand_in(options.tensorflow_python, Path(scratch)))
        with ThreadPoolExecutor(options.jobs) as pool:
            judged = pool.map(partial(judge, asks, options.exporter), found)
            for (_, path), rows in zip(found, judged, strict=True):
                for verdict, detail in rows:
                    verdicts[verdict] += 1
                    if options.verbose or verdict == "WRONG":
                        name = path.relative_to(options.folder)
                        print(f"{verdict:<9} {name}  {detail}", flush=True)
    for verdict, count in sorted(verdicts.items()):
        print(f"{count:>4} {verdict}")
    seconds = time.perf_counter() - start
    print(f"graphs: {sum(verdicts.values())} of {len(found)} models in {seconds:.1f} s")
    return 1 if verdicts["WRONG"] or not verdicts["agrees"] else 0


def models(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield kind and path of the models of a folder, by its index or by their names."""
    index = folder / "INDEX.tsv"
    if index.exists():
        with index.open() as f:
            rows = csv.DictReader(f, delimiter="\t")
            yield from ((r["kind"], folder / r["path"]) for r in rows)
        return
    for path in sorted(folder.rglob("*")):
        if path.name in SAVED_MODELS:
            yield "savedmodel", path.parent
        elif path.suffix in SUFFIXES and path.is_file() and path.name not in SAVED_MODEL_PARTS:
            yield SUFFIXES[path.suffix], path


def judge(asks: Path | None, exporter: str, model: tuple[str, Path]) -> list[tuple[str, str]]:
    """Return verdicts on one artifact, and what there is to say."""
    kind, path = model
    if kind in TORCH:
        return [torch_graphs.judge(path, exporter, sys.modules[__name__])]
    return [of_model(path)] if kind in KERAS else of_graph(path, asks)


def of_graph(path: Path, asks: Path | None) -> list[tuple[str, str]]:
    """Return a verdict on each signature of a TensorFlow graph."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            done = subprocess.run(
                [sys.executable, HERE / "tensorflow_graphs.py", path, scratch],
                capture_output=True, text=True, check=False, timeout=SECONDS * 5,
                env={**os.environ, PYTHON_VARIABLE: str(asks)},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return [("WRONG", f"took more than {SECONDS * 5} s")]
    try:
        return [tuple(row) for row in json.loads(done.stdout.splitlines()[-1])]
    except (ValueError, IndexError):
        said = " ".join(done.stderr.split())[-300:]
        return [("WRONG", f"exit code {done.returncode}: {said}")]


def of_model(path: Path) -> tuple[str, str]:
    """Return the verdict on one Keras model, and what there is to say."""
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
        return "no run", report["reason"]
    failed = [m for m in report["outputs"] if not m["passed"]]
    # An output of another shape is a problem of its own, and has elements on one side.
    if failed and all("has no element to compare" in " ".join(m["problems"]) for m in failed):
        return "empty", f"{len(failed)} of {len(report['outputs'])} outputs"
    first = report["first_difference"]
    where = f" (layer {first['layer']}, {first['class_name']})" if first else ""
    return "WRONG", f"{report['reason']}{where}"


if __name__ == "__main__":
    sys.exit(main())
