"""Models to ONNX: time, memory and latency beside tf2onnx and Keras's own export.

    python benchmarks/graphs.py [--rounds 3] [--peer-python PATH] [--models ResNet50,...]
    python benchmarks/graphs.py --source savedmodel --models ResNet50,MobileNetV2,LSTM,Transformer

Every route is a whole process from the .h5 file (or the SavedModel) to the .onnx file. The peer's Python has tensorflow,
keras and tf2onnx; each peer is given what it needs to get through (see the scripts). A ratio is the
median of the peer's time by ours of the same round. Nothing is asserted: the figures are printed,
with the targets of issue 3 (SavedModels: of issue 4) beside them.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import remove, run

MAKE = """
import sys, numpy as np, keras
name, path = sys.argv[1:]
L = keras.layers
def lstm():
    x = keras.Input((80,), dtype="int32")
    y = L.Embedding(20000, 128)(x)
    y = L.LSTM(64, return_sequences=True)(y)
    return keras.Model(x, L.Dense(2, activation="softmax")(L.LSTM(64)(y)))
def transformer():
    x = keras.Input((64,), dtype="int32")
    y = L.Embedding(5000, 64)(x)
    for _ in range(2):
        a = L.MultiHeadAttention(4, 16)(y, y)
        y = L.LayerNormalization()(L.Add()([y, a]))
        f = L.Dense(64)(L.Dense(256, activation="gelu")(y))
        y = L.LayerNormalization()(L.Add()([y, f]))
    return keras.Model(x, L.Dense(3, activation="softmax")(L.GlobalAveragePooling1D()(y)))
own = {"LSTM": lstm, "Transformer": transformer}
m = own[name]() if name in own else getattr(keras.applications, name)(weights=None)
rng = np.random.default_rng(0)
for v in m.variables:
    n, s = v.path.split("/")[-1], tuple(v.shape)
    if "variance" in n: v.assign(rng.uniform(0.7, 1.5, s))
    elif n == "gamma": v.assign(rng.uniform(0.7, 1.3, s))
    elif len(s) > 1:
        fan = np.prod(s[:2]) if "depthwise" in v.path else np.prod(s[:-1])
        v.assign(rng.standard_normal(s) * np.sqrt(2 / fan))
    elif v.dtype == "float32": v.assign(rng.standard_normal(s) * 0.1)
m.save(path) if path.endswith(".h5") else m.export(path, verbose=False)
"""
TF2ONNX = """
import sys, keras, tensorflow as tf, tf2onnx
m = keras.models.load_model(sys.argv[1], compile=False)
m = keras.Model(m.inputs, m.outputs)  # a model just loaded has no names that tf2onnx finds
spec = [tf.TensorSpec(i.shape, i.dtype, name=f"x{k}") for k, i in enumerate(m.inputs)]
f = tf.function(lambda *x: m(list(x) if len(x) > 1 else x[0], training=False), input_signature=spec)
tf2onnx.convert.from_function(f, spec, opset=18, output_path=sys.argv[2])
"""
EXPORT = """
import sys, keras, numpy as np
m = keras.models.load_model(sys.argv[1], compile=False)
m([np.zeros([d or 1 for d in i.shape], i.dtype) for i in m.inputs])  # export refuses a model never called
m.export(sys.argv[2], format="onnx", verbose=False)
"""
LATENCY = """
import sys, time, statistics, numpy as np, onnxruntime as ort
o = ort.SessionOptions(); o.intra_op_num_threads = 1
rng = np.random.default_rng(0)
sessions = [ort.InferenceSession(p, o, providers=["CPUExecutionProvider"]) for p in sys.argv[1:]]
def fed(s):
    make = lambda i: [d if isinstance(d, int) else 1 for d in i.shape]
    return {i.name: rng.integers(0, 99, make(i)).astype("i8" if "int64" in i.type else "i4") if "int" in i.type else rng.standard_normal(make(i)).astype("f4") for i in s.get_inputs()}
feeds, times = [fed(s) for s in sessions], [[] for _ in sessions]
for r in range(28):
    for s, f, t in zip(sessions, feeds, times):
        a = time.perf_counter(); s.run(None, f); t.append(time.perf_counter() - a)
print(*(statistics.median(t[3:]) for t in times))
"""
TF2ONNX_SAVEDMODEL = """
import sys, runpy
source, out = sys.argv[1:]
sys.argv = ["tf2onnx", "--saved-model", source, "--output", out, "--opset", "18"]
runpy.run_module("tf2onnx.convert", run_name="__main__")
"""
TARGETS = {
    ".h5": "ResNet50 35 x, other CNNs 20 x, small models 10 x; peak 110 MB; latency 1.03 x",
    "": "ResNet50 15 x, others 4 x; peak 250 MB; latency 1.03 x",
}
MODELS = "ResNet50,MobileNetV2,EfficientNetB0,DenseNet121,LSTM,Transformer,VGG16"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--source", choices=("h5", "savedmodel"), default="h5")
    options = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    suffix = ".h5" if options.source == "h5" else ""
    print("targets:", TARGETS[suffix])
    with tempfile.TemporaryDirectory() as name:
        for model in options.models.split(","):
            table(Path(name), f"{model}{suffix}", options)


def table(folder: Path, model: str, options: argparse.Namespace) -> None:
    source = folder / model
    model, is_h5 = source.stem, source.suffix == ".h5"
    peer = options.peer_python
    subprocess.run([peer, "-c", MAKE, model, source], check=True, capture_output=True)
    ours: list[object] = [
        sys.executable, "-m", "converter", source, "--to", "onnx", "--verify", "none", "-q", "-o",
    ]  # fmt: skip
    routes = {"convert": ours}
    routes["tf2onnx"] = [peer, "-c", TF2ONNX if is_h5 else TF2ONNX_SAVEDMODEL, source]
    if is_h5:
        routes["keras export"] = [peer, "-c", EXPORT, source]
    outs = {name: folder / f"{name.split()[0]}.onnx" for name in routes}
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in routes}
    failed: dict[str, str] = {}
    for r in range(options.rounds):
        for name in list(routes)[:: 1 if r % 2 else -1]:
            if name in failed:
                continue
            remove(outs[name])
            try:
                found[name].append(run([*routes[name], outs[name]]))
            except SystemExit as e:
                failed[name] = str(e).strip().splitlines()[-1][:100]
    files = [source] if is_h5 else [p for p in source.rglob("*") if p.is_file()]
    print(f"{model}  ({sum(p.stat().st_size for p in files) / 1e6:.0f} MB)")
    print(f"  {'':<14} wall s   cpu s   x convert   peak MB   nodes")
    base = [wall for wall, _, _ in found["convert"]]
    for name, rows in found.items():
        if name in failed:
            print(f"  {name:<14} failed: {failed[name]}")
            continue
        wall, cpu, peak = (statistics.median(column) for column in zip(*rows, strict=True))
        ratio = statistics.median(w / b for (w, _, _), b in zip(rows, base, strict=True))
        nodes = subprocess.run(
            [sys.executable, "-c", "import onnx, sys; print(len(onnx.load(sys.argv[1]).graph.node))", outs[name]],
            capture_output=True, text=True, check=False,
        ).stdout.strip()  # fmt: skip
        print(
            f"  {name:<14} {wall:6.2f} {cpu:7.2f} {ratio:11.1f} {peak:9.0f} {nodes:>7}", flush=True
        )
    compared = [name for name in routes if name not in failed]
    print("  onnxruntime, one thread:", ", ".join(latencies(compared, outs)), flush=True)
    for path in (source, *outs.values()):
        remove(path)


def latencies(names: list[str], outs: dict[str, Path]) -> list[str]:
    """Return how long each file takes for one input, beside the others that can be run."""
    alone = {
        name: subprocess.run([sys.executable, "-c", LATENCY, outs[name]], capture_output=True, text=True)
        for name in names
    }  # fmt: skip
    runs = [name for name in names if not alone[name].returncode]
    together = subprocess.run(
        [sys.executable, "-c", LATENCY, *(outs[name] for name in runs)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    seconds = dict(zip(runs, map(float, together.stdout.split()), strict=True))
    ours = seconds["convert"]
    lines = [f"{n} {s * 1e3:.2f} ms ({ours / s:.2f} x)" for n, s in seconds.items()]
    refused = [f"{n} is refused" for n in names if n not in runs]
    return lines + refused


if __name__ == "__main__":
    main()
