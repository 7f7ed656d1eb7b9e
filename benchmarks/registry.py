"""A registry of ten thousand small artifacts of all formats, one in twenty damaged, converted whole.

    python benchmarks/registry.py [--counts 1000,3000,10000] [--to safetensors,portable]
        [--engine processes] [--jobs N] [--folder DIR]

Prints what listing costs, the throughput of each run, and the peak memory of the driver, which must
not grow with the count by more than what a plan of so many jobs takes. Exits 1 unless every good
artifact was converted and verified, and every damaged one named with the exit code it must have.
The target of issue 6 is printed beside the figures: 150 artifacts a second on two cores.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

import registry_zoo  # noqa: E402

TARGET = 150  # artifacts a second


@dataclass(frozen=True)
class Run:
    """What one batch did."""

    code: int
    seconds: float
    peak: int  # bytes, of the driver itself
    driver: float  # seconds of the driver's own CPU
    cpu: float  # seconds of all processes' CPU
    rows: dict[str, dict]
    said: str


def run(registry: Path, out: Path, *options: str) -> Run:
    """Run a batch as a process, and watch its driver."""
    report = out.with_name(f"{out.name}.jsonl")
    command = [
        sys.executable, "-m", "converter", "batch", str(registry), "-o", str(out),
        "--verify", "weights", "--report", str(report), "--quiet", *options,
    ]  # fmt: skip
    begin, before = time.perf_counter(), _of_children()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, cwd=ROOT, stderr=errors, stdout=subprocess.DEVNULL)
        peak, cpu = 0, 0.0
        while process.poll() is None:
            peak, cpu = max(peak, _peak(process.pid)), _cpu(process.pid) or cpu
            time.sleep(0.02)
        seconds = time.perf_counter() - begin
        errors.seek(0)
        said = errors.read().decode()
    lines = report.read_text().splitlines() if report.exists() else []
    rows = {row["source"]: row for row in map(json.loads, lines)}
    return Run(process.returncode, seconds, peak, cpu, _of_children() - before, rows, said)


def wrong(expected: dict[str, int], rows: dict[str, dict]) -> list[str]:
    """Return what became of artifacts that should not have, a line each."""
    found = [f"{source}: not in the report" for source in expected if source not in rows]
    found += [f"{source}: nobody made it" for source in rows if source not in expected]
    for source, code in expected.items():
        row = rows.get(source)
        if row is None:
            continue
        if row["exit_code"] != code:
            found.append(f"{source}: exit {row['exit_code']}, not {code}: {row['error']}")
        elif code == 0 and row["tensors"] and not row["verification"]["weights"]:
            found.append(f"{source}: converted, and not verified")
        elif code and not row["error"]["message"]:
            found.append(f"{source}: failed without a word")
    return found


def _peak(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    line = next((x for x in status.splitlines() if x.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(line.split()[1]) * 1024


def _cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


LISTING = """
import sys, time
begin, cpu = time.perf_counter(), time.process_time()
from converter.registries.catalog import open_registry
from converter.registries.filters import Filters
count = sum(1 for _ in open_registry(sys.argv[1], Filters()).find())
print(count, time.perf_counter() - begin, time.process_time() - cpu)
"""


def _listing(registry: Path) -> str:
    command = [sys.executable, "-c", LISTING, str(registry)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    count, seconds, cpu = printed.split()
    rate = int(count) / float(seconds)
    return f"{count} entries, {rate:.0f}/s ({int(count) / float(cpu):.0f}/s of CPU), Python cold"


def main() -> int:
    """Make registries, convert them, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="1000,3000,10000")
    parser.add_argument("--to", default="safetensors,portable")
    parser.add_argument("--engine", default="processes")
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-registry-", dir=given.folder))
    failed = False
    try:
        for count in map(int, given.counts.split(",")):
            registry = folder / f"registry-{count}"
            begin = time.perf_counter()
            expected = registry_zoo.make(registry, count, seed=count)
            codes = dict(sorted(Counter(expected.values()).items()))
            print(
                f"{count} artifacts made in {time.perf_counter() - begin:.1f} s, by exit code {codes}"
            )
            print(f"  listing      {_listing(registry)}")
            for target in given.to.split(","):
                out = folder / "out"
                options = ("--to", target, "--engine", given.engine, "--jobs", given.jobs)
                done = run(registry, out, *options)
                print(
                    f"  {target:12} {count / done.seconds:.0f} artifacts/s (target {TARGET}), {done.seconds:.1f} s;"
                    f" {1e3 * done.cpu / count:.1f} ms of CPU an artifact, {1e3 * done.driver / count:.2f} of it"
                    f" the driver's, which has {done.peak >> 20} MiB"
                )
                again = run(registry, out, *options)
                print(f"  again        {again.seconds:.1f} s, exit {again.code}")
                for line in wrong(expected, done.rows)[:20]:
                    print(f"    WRONG {line}")
                    failed = True
                if done.code != max(expected.values()) or again.code != done.code:
                    print(
                        f"    WRONG exit {done.code}, then {again.code}: {done.said[-500:]}{again.said[-500:]}"
                    )
                    failed = True
                for left in folder.glob("out*"):
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
            shutil.rmtree(registry)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
