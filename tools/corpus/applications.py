"""Convert the models of keras.applications, and compare what they compute with Keras itself.

    python tools/corpus/applications.py --tensorflow-python P [--keras keras,tf_keras]
        [--form files|savedmodel] [--size smallest,default] [--deadline SECONDS] [--results FILE]
        [NAME...]

Weights are seeded, and such that the signal stays alive: see make_applications.py. Keras 3 saves
``.h5`` and ``.keras``, tf_keras ``.h5``, or each a SavedModel; each is converted by ``convert --to
onnx`` and run in onnxruntime, and then deleted, one model at a time; where two files give the same
graph, to the byte, it is run once. Prints a row for each, and adds it to a file if one is given; what has
rows there is not done again. Exits 1 where outputs differ by more than 1e-4 of the largest, hardly
depend on the image, or there are none.
"""

import argparse
import datetime
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import onnxruntime

HERE = Path(__file__).parent
TOLERANCE = 1e-4  # of the largest output
LEAST_SPREAD = 1e-2  # of the outputs of two images, likewise: less, and it hides what differs
MOST_MADE = 300e6  # parameters, after which a child gives its memory back by ending
NAMES = """
import importlib, sys
from inspect import isfunction
module = importlib.import_module(sys.argv[1]).applications
print(*(n for n in dir(module) if isfunction(getattr(module, n))))
"""
COLUMNS = (
    "model", "size", "file", "image", "millions", "MB", "s", "max rel", "spread", "verdict",
)  # fmt: skip
HEAD = """\
# keras.applications, compared with Keras

Written by `python tools/corpus/applications.py --results tools/corpus/APPLICATIONS.md`: every model
with seeded weights, saved by its Keras, converted by `convert --to onnx`, and run in onnxruntime
{onnxruntime} on two images. Begun on {date}. *millions* are parameters, *MB* the ONNX file, *s* the
whole process of the conversion; *max rel* is the largest difference from what Keras computed,
as part of the largest output (at most {tolerance:g}), *spread* that between the two images (at
least {spread:g}). "same graph": the ONNX file is that of the row above, to the byte, and was not
run again. What has no row has not been run.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one file; numbers are as they are printed."""

    model: str
    size: str
    file: str
    image: str = ""
    millions: str = ""
    megabytes: str = ""
    seconds: str = ""
    far: str = ""
    spread: str = ""
    verdict: str = "agrees"

    @property
    def is_right(self) -> bool:
        return self.verdict in ("agrees", "same graph")

    def cells(self) -> list[str]:
        return [
            self.model, self.size, self.file, self.image, self.millions, self.megabytes,
            self.seconds, self.far, self.spread, self.verdict,
        ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--tensorflow-python", default=sys.executable)
    parser.add_argument("--keras", default="keras,tf_keras")
    parser.add_argument("--form", choices=("files", "savedmodel"), default="files")
    parser.add_argument("--size", default="smallest")
    parser.add_argument("--deadline", type=float, default=float("inf"), help="start none after")
    parser.add_argument("--results", type=Path, help="a table that rows are added to")
    options = parser.parse_args()
    known = done(options.results)
    print(line(COLUMNS))
    start = time.perf_counter()
    wrong = right = left = 0
    for size in options.size.split(","):
        for keras in options.keras.split(","):
            with Maker(options.tensorflow_python, keras, options.form) as maker:
                for name in options.names or maker.names():
                    if (name, size, keras) in known:
                        continue
                    if time.perf_counter() - start > options.deadline:
                        left += 1
                        continue
                    rows = list(judged(maker, name, size))
                    for row in rows:
                        wrong, right = wrong + (not row.is_right), right + row.is_right
                        print(line(row.cells()), flush=True)
                    if options.results:
                        add(options.results, rows)
    print(f"applications: {right} agree, {wrong} wrong, {len(known)} known, {left} not tried, "
          f"{time.perf_counter() - start:.0f} s")  # fmt: skip
    return 1 if wrong or not right + len(known) else 0


def line(cells: Sequence[str]) -> str:
    """Return a row as it is printed."""
    widths = (18, 8, 24, 9, 8, 6, 6, 8, 6, 0)
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def done(results: Path | None) -> set[tuple[str, str, str]]:
    """Return what a table has good rows of: name, size and the Keras that wrote it."""
    if results is None or not results.exists():
        return set()
    found = set()
    for text in results.read_text().splitlines():
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        if len(cells) == len(COLUMNS) and cells[-1] in ("agrees", "same graph"):
            found.add((cells[0], cells[1], cells[2].split()[0]))
    return found


def add(results: Path, rows: Sequence[Row]) -> None:
    """Add rows to a table, and begin it if there is none."""
    if not results.exists():
        head = HEAD.format(
            onnxruntime=metadata.version("onnxruntime"), tolerance=TOLERANCE, spread=LEAST_SPREAD,
            date=datetime.datetime.now(tz=datetime.UTC).date(),
        )  # fmt: skip
        rule = "|".join("---" for _ in COLUMNS)
        results.write_text(f"{head}\n| {' | '.join(COLUMNS)} |\n|{rule}|\n")
    with results.open("a") as stream:
        stream.writelines(f"| {' | '.join(row.cells())} |\n" for row in rows)


class Maker:
    """A child process that makes models; another one takes its place if it dies."""

    def __init__(self, python: str, keras: str, form: str) -> None:
        self.python = python
        self.form = form
        self.keras = keras
        self.process: subprocess.Popen[str] | None = None
        self.made = 0

    def __enter__(self) -> "Maker":
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = Path(self.scratch.name)
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()
        self.scratch.cleanup()

    def end(self) -> None:
        """End the child, which frees what it holds."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process, self.made = None, 0

    def names(self) -> list[str]:
        """Return the names of all models."""
        command = [self.python, "-c", NAMES, self.keras]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.split()

    def make(self, name: str, size: str) -> dict:
        """Return what was made of one model."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [
                    self.python, HERE / "make_applications.py", self.keras, self.folder, self.form,
                ],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        self.process.stdin.write(f"{name} {size}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        made = json.loads(answer) if answer else {"error": f"{self.keras} died"}
        self.made += made.get("parameters", 0)
        if self.made > MOST_MADE:
            self.end()
        return made


def judged(maker: Maker, name: str, size: str) -> Iterator[Row]:
    """Yield how well each of a model's files was converted."""
    made = maker.make(name, size)
    if "error" in made:
        yield Row(name, size, maker.keras, verdict=f"WRONG: not made: {made['error']}")
        return
    stored = maker.folder / f"{name}.npz"
    with np.load(stored) as arrays:
        x, expected = arrays["x"], arrays["y"]
    stored.unlink()
    digest = ""
    for file in made["files"]:
        path, target = maker.folder / file, maker.folder / "model.onnx"
        begin = time.perf_counter()
        command = [sys.executable, "-m", "converter", path, "--to", "onnx", "-o", target]
        done = subprocess.run(
            [*command, "--verify", "none"], capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - begin
        is_folder = path.is_dir()
        shutil.rmtree(path) if is_folder else path.unlink()
        parts = sorted(maker.folder.glob("model.onnx*"))
        figures = {
            "image": "x".join(map(str, made["shape"][:2])),
            "millions": f"{made['parameters'] / 1e6:.1f}",
            "megabytes": f"{sum(f.stat().st_size for f in parts) / 1e6:.0f}",
            "seconds": f"{seconds:.2f}",
        }
        what = f"{maker.keras} {made['version']} {'SavedModel' if is_folder else path.suffix}"
        if done.returncode:
            said = " ".join(done.stderr.split()).replace("|", "/")[:300]
            verdict = f"WRONG: exit code {done.returncode}: {said}"
            yield Row(name, size, what, **figures, verdict=verdict)
        elif digest and digest == digest_of(parts):
            yield Row(name, size, what, **figures, verdict="same graph")
        else:
            far, spread = difference(target, x, expected)
            good = far <= TOLERANCE and spread >= LEAST_SPREAD
            figures |= {"far": f"{far:.1e}", "spread": f"{spread:.3f}"}
            yield Row(name, size, what, **figures, verdict="agrees" if good else "WRONG")
            digest = digest_of(parts) if good else ""
        for part in parts:
            part.unlink()


def digest_of(files: Sequence[Path]) -> str:
    """Return the digest of an ONNX file and what lies beside it."""
    whole = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            whole.update(hashlib.file_digest(stream, "sha256").digest())
    return whole.hexdigest()


def difference(file: Path, x: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """Return how far a graph is from its source, and images from each other, by scale."""
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: x})
    scale = float(np.abs(expected).max())
    if found.shape != expected.shape or not np.isfinite(expected).all():
        return float("inf"), 0.0
    spread = float(np.abs(expected[0] - expected[1]).max())
    return float(np.abs(found - expected).max()) / scale, spread / scale


if __name__ == "__main__":
    sys.exit(main())
