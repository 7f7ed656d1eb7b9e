"""Convert the models of keras.applications, and compare what they compute with Keras itself.

    python tests/corpus/applications.py --tensorflow-python P [--keras keras,tf_keras]
        [--size smallest,default] [--deadline SECONDS] [NAME...]

Weights are seeded, and such that the signal stays alive: see make_applications.py. Keras 3 saves
``.h5`` and ``.keras``, tf_keras ``.h5``; each is converted by ``convert --to onnx`` and run in
onnxruntime, and then deleted, one model at a time. Prints a row for each. Exits 1 where outputs
differ by more than 1e-4 of the largest, hardly depend on the image, or there are none.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime

HERE = Path(__file__).parent
TOLERANCE = 1e-4  # of the largest output
LEAST_SPREAD = 1e-2  # of the outputs of two images, likewise: less, and it hides what differs
NAMES = """
import importlib, sys
from inspect import isfunction
module = importlib.import_module(sys.argv[1]).applications
print(*(n for n in dir(module) if isfunction(getattr(module, n))))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--tensorflow-python", default=sys.executable)
    parser.add_argument("--keras", default="keras,tf_keras")
    parser.add_argument("--size", default="smallest")
    parser.add_argument("--deadline", type=float, default=float("inf"), help="start none after")
    options = parser.parse_args()
    print(f"{'model':<18} {'file':<14} {'image':>9} {'millions':>8} {'MB':>6} {'s':>6} "
          f"{'max rel':>8} {'spread':>7}")  # fmt: skip
    start = time.perf_counter()
    wrong = right = left = 0
    for size in options.size.split(","):
        for keras in options.keras.split(","):
            with Maker(options.tensorflow_python, keras) as maker:
                for name in options.names or maker.names():
                    if time.perf_counter() - start > options.deadline:
                        left += 1
                        continue
                    for is_right, row in judged(maker, name, size):
                        wrong, right = wrong + (not is_right), right + is_right
                        print(f"{name:<18} {row}" + ("" if is_right else "  WRONG"), flush=True)
    print(f"applications: {right} agree, {wrong} wrong, {left} not tried, "
          f"{time.perf_counter() - start:.0f} s")  # fmt: skip
    return 1 if wrong or not right else 0


class Maker:
    """A child process that makes models; another one takes its place if it dies."""

    def __init__(self, python: str, keras: str) -> None:
        self.python = python
        self.keras = keras
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Maker":
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = Path(self.scratch.name)
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.scratch.cleanup()

    def names(self) -> list[str]:
        """Return the names of all models."""
        command = [self.python, "-c", NAMES, self.keras]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.split()

    def make(self, name: str, size: str) -> dict:
        """Return what was made of one model."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [self.python, HERE / "make_applications.py", self.keras, self.folder],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        self.process.stdin.write(f"{name} {size}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        return json.loads(answer) if answer else {"error": f"{self.keras} died"}


def judged(maker: Maker, name: str, size: str) -> Iterator[tuple[bool, str]]:
    """Yield whether a model's files were converted well, and the figures."""
    made = maker.make(name, size)
    if "error" in made:
        yield False, f"{maker.keras}: not made: {made['error']}"
        return
    millions, image = made["parameters"] / 1e6, "x".join(map(str, made["shape"][:2]))
    with np.load(maker.folder / f"{name}.npz") as stored:
        x, expected = stored["x"], stored["y"]
    for file in made["files"]:
        path, target = maker.folder / file, maker.folder / "model.onnx"
        begin = time.perf_counter()
        command = [sys.executable, "-m", "converter", path, "--to", "onnx", "-o", target]
        done = subprocess.run(
            [*command, "--verify", "none"], capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - begin
        what = maker.keras + path.suffix
        if done.returncode:
            said = " ".join(done.stderr.split())[:300]
            yield False, f"{what:<14} {image:>9} exit code {done.returncode}: {said}"
        else:
            far, spread = difference(target, x, expected)
            size_mb = sum(f.stat().st_size for f in maker.folder.glob("model.onnx*")) / 1e6
            yield (
                far <= TOLERANCE and spread >= LEAST_SPREAD,
                (
                    f"{what:<14} {image:>9} {millions:>8.1f} {size_mb:>6.0f} {seconds:>6.2f} "
                    f"{far:>8.1e} {spread:>7.3f}"
                ),
            )
        for left in (path, *maker.folder.glob("model.onnx*")):
            left.unlink(missing_ok=True)
    (maker.folder / f"{name}.npz").unlink()


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
