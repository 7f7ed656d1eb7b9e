"""Torch programs to ONNX: time, memory and latency beside torch's own exporters.

    python benchmarks/torch_graphs.py [--rounds 3] [--peer-python PATH] [--models ResNet50,...]

Every route is a whole process from the file to the .onnx file: of a .pt2, torch's exporter that is
based on torch.export; of a TorchScript archive the older one, which alone takes those. The peer's
Python has torch and onnxscript. A ratio is the median of the peer's time by ours of the same round.
Nothing is asserted: the figures are printed.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from graphs import latencies
from measure import remove, run

MAKE = """
import sys, torch, warnings
from torch import nn
warnings.simplefilter("ignore"); torch.manual_seed(0)
name, trace, exported = sys.argv[1:]
class Bottleneck(nn.Module):
    def __init__(self, i, m, stride):
        super().__init__()
        def conv(a, b, k, s=1): return [nn.Conv2d(a, b, k, s, k // 2, bias=False), nn.BatchNorm2d(b)]
        self.body = nn.Sequential(*conv(i, m, 1), nn.ReLU(), *conv(m, m, 3, stride), nn.ReLU(), *conv(m, 4 * m, 1))
        self.down = nn.Sequential(*conv(i, 4 * m, 1, stride)) if stride > 1 or i != 4 * m else nn.Identity()
    def forward(self, x): return torch.relu(self.body(x) + self.down(x))
def resnet50():
    parts, i = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for m, n, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(n):
            parts.append(Bottleneck(i, m, stride if k == 0 else 1)); i = 4 * m
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))
class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__(); self.h = h; self.n1 = nn.LayerNorm(d); self.n2 = nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d); self.o = nn.Linear(d, d); self.f = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.h, d // self.h).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        return x + self.f(self.n2(x))
class GPT(nn.Module):
    def __init__(self, d=512, h=8, n=8, v=8000, t=64):
        super().__init__(); self.e = nn.Embedding(v, d); self.p = nn.Parameter(torch.randn(t, d) * 0.02)
        self.blocks = nn.Sequential(*(Block(d, h) for _ in range(n))); self.n = nn.LayerNorm(d); self.o = nn.Linear(d, v, bias=False)
    def forward(self, ids): return self.o(self.n(self.blocks(self.e(ids) + self.p)))
class Tagger(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Embedding(20000, 128); self.l = nn.LSTM(128, 64, 2, batch_first=True, bidirectional=True); self.o = nn.Linear(128, 9)
    def forward(self, ids): return self.o(self.l(self.e(ids))[0])
m, x = {
    "ResNet50": lambda: (resnet50(), torch.randn(2, 3, 224, 224)),
    "GPT": lambda: (GPT(), torch.randint(0, 8000, (2, 64))),
    "LSTM": lambda: (Tagger(), torch.randint(0, 20000, (2, 40))),
}[name]()
m.eval()
for b in m.modules():
    if isinstance(b, nn.BatchNorm2d):
        b.running_mean.normal_(0, 0.1); b.running_var.uniform_(0.7, 1.5); nn.init.uniform_(b.weight, 0.7, 1.3)
with torch.no_grad():
    torch.jit.trace(m, x).save(trace)
    torch.export.save(torch.export.export(m, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},)), exported)
"""
EXPORT = """
import sys, torch
torch.onnx.export(torch.export.load(sys.argv[1]), (), sys.argv[2], dynamo=True, verbose=False, external_data=False)
"""
LEGACY = """
import sys, torch, warnings
warnings.simplefilter("ignore")
shape = [int(n) for n in sys.argv[2].split(",")]
x = torch.randn(shape) if len(shape) > 2 else torch.randint(0, 99, shape)
m = torch.jit.load(sys.argv[1])
torch.onnx.export(m, (x,), sys.argv[3], dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "batch"}})
"""
SHAPES = {"ResNet50": "2,3,224,224", "GPT": "2,64", "LSTM": "2,40"}
INPUTS = {
    "ResNet50": "input:float32:batch,3,224,224",
    "GPT": "ids:int64:batch,64",
    "LSTM": "ids:int64:batch,40",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--models", default=",".join(SHAPES))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for model in options.models.split(","):
            trace, exported = Path(name, f"{model}.pt"), Path(name, f"{model}.pt2")
            subprocess.run(
                [options.peer_python, "-c", MAKE, model, trace, exported],
                check=True, capture_output=True,
            )  # fmt: skip
            for source in (trace, exported):
                table(source, options)
                remove(source)


def table(source: Path, options: argparse.Namespace) -> None:
    model, is_trace = source.stem, source.suffix == ".pt"
    ours = [sys.executable, "-m", "converter", source, "--to", "onnx", "--verify", "none", "-q"]
    theirs = [options.peer_python, "-c", LEGACY if is_trace else EXPORT, source]
    if is_trace:
        ours += ["--exporter", "native", "--input", INPUTS[model]]
        theirs.append(SHAPES[model])
    routes = {"convert": [*ours, "-o"], "torch.onnx": theirs}
    outs = {name: source.with_name(f"{source.name}.{name}.onnx") for name in routes}
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in routes}
    for r in range(options.rounds):
        for name in list(routes)[:: 1 if r % 2 else -1]:
            remove(outs[name])
            found[name].append(run([*routes[name], outs[name]]))
    print(f"{model}{source.suffix}  ({source.stat().st_size / 1e6:.0f} MB)")
    print(f"  {'':<12} wall s   cpu s   x convert   peak MB")
    base = [wall for wall, _, _ in found["convert"]]
    for name, rows in found.items():
        wall, cpu, peak = (median(column) for column in zip(*rows, strict=True))
        ratio = median(w / b for (w, _, _), b in zip(rows, base, strict=True))
        print(f"  {name:<12} {wall:6.2f} {cpu:7.2f} {ratio:11.1f} {peak:9.0f}", flush=True)
    print("  onnxruntime, one thread:", ", ".join(latencies([*routes], outs)), flush=True)
    for path in outs.values():
        remove(path)


if __name__ == "__main__":
    main()
