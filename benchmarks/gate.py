"""How fast `convert verify DIR` reads: beside `cp`, and beside blake3 on bytes in memory.

    python benchmarks/gate.py [--megabytes 1024] [--bundles 200] [--folder F]

One bundle of random weights, and many small ones. Files are in the page cache, as they are right
after a conversion; from a disk it is the disk that counts. No measured figure is a test.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from blake3 import blake3
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).parents[1]))

import converter
from converter.verification.bundle_check import check_folder


def best(work, rounds=3):
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def passes(folder):
    assert all(checked.exit_code == 0 for checked in check_folder(folder, "weights"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--bundles", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        part = rng.integers(0, 256, 1 << 24, dtype="u1")
        count = max(options.megabytes >> 4, 1)
        save_file({f"w{n}": np.roll(part, n) for n in range(count)}, folder / "m.safetensors")
        converter.convert(folder / "m.safetensors", out=folder / "one")
        (folder / "m.safetensors").unlink()
        weights = folder / "one/model.safetensors"
        size = weights.stat().st_size / 1e9
        print(f"cores {len(os.sched_getaffinity(0))}, load {os.getloadavg()[0]:.1f}")
        print(f"gate    {size / best(lambda: passes(folder / 'one')):.2f} GB/s, {size:.2f} GB")
        print(f"cp      {size / best(lambda: shutil.copy(weights, folder / 'copy')):.2f} GB/s")
        (folder / "copy").unlink()
        data = bytes(part)
        speed = len(data) / 1e9 / best(lambda: blake3(data).hexdigest(), 10)
        print(f"blake3  {speed:.2f} GB/s of bytes in memory, one thread")
        shutil.rmtree(folder / "one")
        save_file({"w": part[:1000], "b": part[:10]}, folder / "s.safetensors")
        (folder / "many").mkdir()
        for n in range(options.bundles):
            converter.convert(folder / "s.safetensors", out=folder / f"many/{n}")
        small = best(lambda: passes(folder / "many"))
        print(f"small   {options.bundles / small:.0f} bundles/s, weights only")


if __name__ == "__main__":
    main()
