"""Run the tests of devices, and print what they found as DEVICES.md:

    python benchmarks/devices.py >> benchmarks/DEVICES.md

in each environment that has a framework: torch's, TensorFlow's. It says which part a GPU had in it.
"""

import io
import platform
import sys
from collections import Counter
from contextlib import redirect_stdout
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = [str(ROOT / "tests/live" / name) for name in (
    "torch/test_torch_device.py", "torch/test_moved_programs.py",
    "tensorflow/test_tensorflow_device.py",
)]  # fmt: skip
PACKAGES = ("torch", "tensorflow", "onnxruntime", "onnxruntime-gpu", "onnx", "numpy")


class Recorder:
    """Keeps the outcome of each test, and why it was skipped."""

    def __init__(self):
        self.rows = []

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            why = ""
            if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
                why = report.longrepr[2].removeprefix("Skipped: ")
            self.rows.append((report.nodeid.rpartition("/")[2], report.outcome, why))


def versions():
    found = {"Python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def main():
    sys.path.insert(0, str(ROOT))
    from converter.verification.children import cuda_driver

    recorder = Recorder()
    with redirect_stdout(io.StringIO()):
        code = pytest.main(["-q", "-p", "no:cacheprovider", *TESTS], plugins=[recorder])
    gpu = cuda_driver.facts(0)
    on_gpu = [row for row in recorder.rows if "[cuda:0" in row[0] or "-cuda:0" in row[0]]
    ran = [row for row in on_gpu if row[1] != "skipped"]
    print("# Tests of devices\n")
    print(f"`{' '.join(['python', *sys.argv])}` on {datetime.now(UTC):%Y-%m-%d}\n")
    device = ", ".join(f"{k} {v}" for k, v in gpu.items()) or f"none ({cuda_driver.lacks(0)})"
    print(f"- GPU: {device}")
    print(f"- GPU part: {f'{len(ran)} of {len(on_gpu)} tests run' if ran else 'not run'}")
    print("".join(f"- {name}: {version}\n" for name, version in versions().items()))
    print("| test | outcome | why |\n|---|---|---|")
    for name, outcome, why in recorder.rows:
        print(f"| `{name}` | {outcome} | {why.replace('|', '/')} |")
    counts = Counter(outcome for _, outcome, _ in recorder.rows)
    print("\n" + ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())))
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
