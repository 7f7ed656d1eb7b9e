"""Time and memory against `cp` and the frameworks, as ratios within one run.

    python benchmarks/measure.py [--sizes 100,1000,4000] [--rounds 5]
        [--torch-python PATH] [--tensorflow-python PATH]

Every route is a whole process. Rounds alternate their order; each starts without the former output
and with nothing left to write back, so that all meet the same free pages. A ratio is the median of
the paired ratios to `cp` of the same file in the same round. Nothing is asserted: the figures are
printed, with the targets of issues 2 and 5 beside them.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MB = 10**6
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # every route's packages are compiled once

MAKE_PT = """
import sys, torch
path, nbytes = sys.argv[1], int(sys.argv[2])
g = torch.Generator().manual_seed(1)
n = 40
torch.save({f"layer{i}.weight": torch.randn(nbytes // 4 // n // 512, 512, generator=g) for i in range(n)}, path)
"""
MAKE_H5 = """
import sys, h5py, numpy as np
path, nbytes = sys.argv[1], int(sys.argv[2])
rng, n = np.random.default_rng(1), 40
with h5py.File(path, "w") as f:
    f.attrs["layer_names"] = [f"dense_{i}".encode() for i in range(n)]
    f.attrs["backend"], f.attrs["keras_version"] = b"tensorflow", b"2.11.0"
    for i in range(n):
        g = f.create_group(f"dense_{i}")
        g.attrs["weight_names"] = [f"dense_{i}/kernel:0".encode()]
        g[f"dense_{i}/kernel:0"] = rng.standard_normal((nbytes // 4 // n // 512, 512), "f4")
"""
MAKE_TF = """
import sys, tensorflow as tf
path, nbytes = sys.argv[1], int(sys.argv[2])
n = 40
m = tf.Module()
m.v = [tf.Variable(tf.random.stateless_normal((nbytes // 4 // n // 512, 512), (1, i)), name=f"v{i}") for i in range(n)]
tf.saved_model.save(m, path)
"""
TORCH_PEER = """
import sys, torch
from safetensors.torch import save_file
save_file(torch.load(sys.argv[1], map_location="cpu", weights_only=True), sys.argv[2])
"""
TF_PEER = """
import sys, tensorflow as tf
from safetensors.numpy import save_file
r = tf.train.load_checkpoint(sys.argv[1] + "/variables/variables")
save_file({k: r.get_tensor(k) for k in r.get_variable_to_shape_map() if not k.startswith("_")}, sys.argv[2])
"""
KERAS_PEER = """
import sys, h5py, keras
from safetensors.numpy import save_file
with h5py.File(sys.argv[1]) as f:
    units = [f[n][n]["kernel:0"].shape for n in f.attrs["layer_names"]]
m = keras.Sequential([keras.layers.Dense(u[1], use_bias=False, name=f"dense_{i}") for i, u in enumerate(units)])
x = keras.Input((units[0][0],))
for layer, u in zip(m.layers, units): layer.build((None, u[0]))
m.built = True
keras.src.legacy.saving.legacy_h5_format.load_weights_from_hdf5_group(h5py.File(sys.argv[1]), m)
save_file({w.path: w.numpy() for w in m.weights}, sys.argv[2])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,1000,4000", help="megabytes, comma separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--tensorflow-python", default=sys.executable)
    parser.add_argument(
        "--rest",
        type=float,
        default=0,
        help="seconds before each run, where a host lends its cores",
    )
    parser.add_argument("--folder", type=Path, default=None, help="where the large files go")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        start_up(folder, options)
        for megabytes in map(int, options.sizes.split(",")):
            weights(folder, megabytes, options)


def weights(folder: Path, megabytes: int, options: argparse.Namespace) -> None:
    """Measure the three ways in: .pt, .h5 and SavedModel."""
    makers = (
        (".pt", MAKE_PT, options.torch_python, "torch", TORCH_PEER, "torch.load + save_file"),
        (".h5", MAKE_H5, sys.executable, "h5py", KERAS_PEER, "keras load_weights + save_file"),
        (
            "",
            MAKE_TF,
            options.tensorflow_python,
            "tensorflow",
            TF_PEER,
            "tf.train.load_checkpoint + save_file",
        ),
    )
    for suffix, maker, python, package, peer, peer_name in makers:
        if not has(python, package):
            print(f"{package} is not installed in {python}: {suffix or 'SavedModel'} not measured")
            continue
        source = folder / f"source{suffix}"
        subprocess.run(
            [python, "-c", maker, source, str(megabytes * MB)],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        data = (
            source if source.is_file() else source / "variables" / "variables.data-00000-of-00001"
        )
        out = folder / "out"
        routes = {
            "cp": ["cp", data, out],
            "safetensors": [*CONVERT, source, "--to", "safetensors", "-o", out, "-q"],
            "portable": [*CONVERT, source, "--to", "portable", "-o", out, "-q"],
        }
        if suffix == ".pt":  # the same file for another device: issue 5
            retag = [*CONVERT, source, "--to", "torch", "--device", "cuda:1", "-o", out, "-q"]
            routes |= {"torch, cuda:1": retag}
            routes |= {"torch, --keep-structure": [*retag, "--keep-structure"]}
        peer_python = options.tensorflow_python if package != "torch" else python
        needs = {"torch": "torch", "h5py": "keras", "tensorflow": "tensorflow"}[package]
        if (
            has(peer_python, needs)
            and megabytes <= 1000
            and not (package == "h5py" and megabytes > 100)
        ):
            routes[peer_name] = [peer_python, "-c", peer, source, out]
        table(f"{megabytes} MB {suffix or 'SavedModel'}", routes, out, options.rounds, options.rest)
        shutil.rmtree(source) if source.is_dir() else source.unlink()


def start_up(folder: Path, options: argparse.Namespace) -> None:
    routes: dict[str, list[object]] = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "convert --help": [*CONVERT, "--help"],
    }
    if has(options.torch_python, "torch"):
        source = folder / "small.pt"
        subprocess.run([options.torch_python, "-c", MAKE_PT, source, "1000000"], check=True)
        routes["convert inspect small.pt"] = [*CONVERT, "inspect", source]
    print("start-up, median seconds  (targets: --help 0.15, inspect 0.3)")
    found = {name: [run(c)[0] for _ in range(2 * options.rounds)] for name, c in routes.items()}
    for name, seconds in found.items():
        print(f"  {name:<40} {statistics.median(seconds):.3f}")


def table(
    title: str, routes: dict[str, list[object]], out: Path, rounds: int, rest: float = 0
) -> None:
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in routes}
    for r in range(rounds):
        for name in list(routes)[:: 1 if r % 2 else -1]:
            remove(out)
            os.sync()
            time.sleep(rest)
            found[name].append(run(routes[name]))
    remove(out)
    print(
        f"{title}  (targets: safetensors 1.3 x cp + 0.3 s, portable 2 x cp + 0.3 s, peak < 100 MB; "
        "torch 1.3 x cp, peak < 150 MB)"
    )
    print(f"  {'':<40} wall s   cpu s   x cp   (wall - 0.3) x cp   peak MB")
    cp = [wall for wall, _, _ in found["cp"]]
    for name, rows in found.items():
        wall, cpu, peak = (statistics.median(column) for column in zip(*rows, strict=True))
        ratio = statistics.median(w / c for (w, _, _), c in zip(rows, cp, strict=True))
        less = statistics.median((w - 0.3) / c for (w, _, _), c in zip(rows, cp, strict=True))
        print(
            f"  {name:<40} {wall:6.2f} {cpu:7.2f} {ratio:6.2f} {less:19.2f} {peak:9.0f}", flush=True
        )


def run(command: list[object]) -> tuple[float, float, int]:
    """Return wall seconds, CPU seconds and peak resident megabytes of a process."""
    start = time.perf_counter()
    child = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    errors = child.stderr.read() if child.stderr else b""
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    if status:
        raise SystemExit(f"{command} failed: {errors.decode()[-2000:]}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 // MB


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def has(python: str, package: str) -> bool:
    test = f"import importlib.util, json; print(json.dumps(importlib.util.find_spec({package!r}) is not None))"
    return bool(
        json.loads(subprocess.run([python, "-c", test], capture_output=True, check=True).stdout)
    )


CONVERT: list[object] = [sys.executable, "-m", "converter"]

if __name__ == "__main__":
    main()
