"""Plant faults in converted graphs, and count which of them verification catches.

    python benchmarks/mutations.py [--models NAME,...] [--faults NAME,...] [-v]

Models of Keras, TensorFlow and torch are built with random weights, as far as these are installed,
and converted to ONNX. Each fault is planted in the first node, or weight, that it applies to; then
the file is verified against its source as `convert verify` does. A row for each fault says how many
changed an output by more than four times the noise of rounding, how many of these were caught, and
how many of the others. What is missed is listed, with its effect in units of noise.

Weights inside the file are left out of the comparison: they alone would give most faults away.
"""

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from mutation_models import MODELS
from onnx import numpy_helper

import converter
from converter.child import process as child
from converter.child.process import Allowance
from converter.options import Options
from converter.verification.coverage import extend_plan
from converter.verification.engine import plan_inputs
from converter.verification.graphs import verify_graph
from converter.verification.inputs import graph_hints
from converter.verification.inputs.draw import Hint
from converter.verification.noise import measure_noise
from converter.verification.onnx_values import read_interface
from converter.verification.runners import load_output, run_onnx, write_inputs
from converter.verification.sources.keras import lower_file
from converter.verification.sources.onnx_file import OnnxSource
from formats.errors import ConvertError

ABOVE = 4.0  # times the noise: a fault of more must be caught
Graph = Any  # onnx.GraphProto
FRAMEWORKS = ("run_keras.py", "run_tensorflow.py", "run_torch.py")


# -- faults ----------------------------------------------------------------------------------------
# Each changes a graph in place, and returns whether it applies.


def weights(graph: Graph, axes: int = 2) -> list[Any]:
    """Return the floating point weights with at least so many axes."""
    return [t for t in graph.initializer if t.data_type == 1 and len(t.dims) >= axes]


def change_weight(graph: Graph, change: Callable[[np.ndarray], np.ndarray], axes: int = 2) -> bool:
    """Change the weight in the middle of a graph."""
    found = weights(graph, axes)
    if not found:
        return False
    tensor = found[len(found) // 2]
    before = numpy_helper.to_array(tensor)
    after = np.asarray(change(before.copy()), before.dtype)
    if after.shape != before.shape or np.array_equal(after, before):
        return False
    tensor.CopyFrom(numpy_helper.from_array(after, tensor.name))
    return True


def nodes(graph: Graph, *kinds: str) -> list[Any]:
    """Return the nodes of some operators."""
    return [node for node in graph.node if node.op_type in kinds]


def attribute(node: Any, name: str) -> Any:
    """Return an attribute of a node, or None."""
    return next((a for a in node.attribute if a.name == name), None)


def scaled(exponent: int) -> Callable[[Graph], bool]:
    """Return a fault that makes a weight larger by 2 ** -exponent of itself."""
    return lambda graph: change_weight(graph, lambda w: w * np.float32(1 + 2.0**-exponent))


def one_element(graph: Graph) -> bool:
    """Change the largest element of a weight by one percent."""

    def change(weight: np.ndarray) -> np.ndarray:
        weight.flat[np.argmax(np.abs(weight))] *= 1.01
        return weight

    return change_weight(graph, change)


def square(graph: Graph) -> bool:
    """Transpose a square matrix, or the window of a kernel."""
    for tensor in weights(graph):
        array = numpy_helper.to_array(tensor)
        if array.shape[-1] == array.shape[-2] > 1:
            new = np.ascontiguousarray(np.swapaxes(array, -1, -2))
            tensor.CopyFrom(numpy_helper.from_array(new, tensor.name))
            return True
    return False


def swapped_channels(graph: Graph) -> bool:
    """Swap the first two channels of a weight."""

    def change(weight: np.ndarray) -> np.ndarray:
        axis = next((i for i, n in enumerate(weight.shape) if n > 1), 0)
        order = [*range(weight.shape[axis])]
        order[:2] = reversed(order[:2])
        return np.take(weight, order, axis)

    return change_weight(graph, change)


def dropped_bias(graph: Graph) -> bool:
    """Set a bias to zero."""
    return change_vector(graph, np.zeros_like)


def change_vector(graph: Graph, change: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Change a vector of weights that is not constant."""
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor)
        if tensor.data_type == 1 and array.ndim == 1 and array.size > 1 and array.any():
            tensor.CopyFrom(numpy_helper.from_array(change(array), tensor.name))
            return True
    return False


def epsilon(factor: float) -> Callable[[Graph], bool]:
    """Return a fault that changes the epsilon of a normalisation."""

    def apply(graph: Graph) -> bool:
        for node in nodes(
            graph, "LayerNormalization", "BatchNormalization", "InstanceNormalization"
        ):
            found = attribute(node, "epsilon")
            if found is not None:
                found.f *= factor
                return True
        return False

    return apply


def renamed(old: str, new: str, **attributes: Any) -> Callable[[Graph], bool]:
    """Return a fault that puts one operator in place of another."""

    def apply(graph: Graph) -> bool:
        for node in nodes(graph, old)[:1]:
            node.op_type = new
            del node.attribute[:]
            node.attribute.extend(onnx.helper.make_attribute(k, v) for k, v in attributes.items())
            return True
        return False

    return apply


def clipped(graph: Graph) -> bool:
    """Put Relu6 in place of Relu."""
    for node in nodes(graph, "Relu")[:1]:
        for name, value in (("fault/low", 0.0), ("fault/high", 6.0)):
            graph.initializer.append(numpy_helper.from_array(np.float32(value), name))
            node.input.append(name)
        node.op_type = "Clip"
        return True
    return False


def unclipped(graph: Graph) -> bool:
    """Put Relu in place of a Clip."""
    for node in nodes(graph, "Clip")[:1]:
        del node.input[1:]
        node.op_type = "Relu"
        return True
    return False


def shifted_pads(graph: Graph) -> bool:
    """Move the padding of a convolution from one side to the other."""
    for node in nodes(graph, "Conv", "MaxPool", "AveragePool"):
        pads = attribute(node, "pads")
        if pads is not None and len(pads.ints) >= 4 and any(pads.ints):
            half = len(pads.ints) // 2
            new = [*pads.ints]
            new[0], new[half] = new[0] + new[half], 0
            if new != [*pads.ints]:
                pads.ints[:] = new
                return True
    return False


def other_axis(graph: Graph) -> bool:
    """Normalise along another axis."""
    for node in nodes(graph, "Softmax"):
        axis = attribute(node, "axis")
        if axis is not None and axis.i != 1:
            axis.i = 1
            return True
    return False


def swapped_gates(graph: Graph) -> bool:
    """Swap the first two gates of a recurrent layer."""
    for node in nodes(graph, "LSTM", "GRU"):
        for tensor in graph.initializer:
            if tensor.name in node.input[1:3]:
                array = numpy_helper.to_array(tensor).copy()
                n = array.shape[1] // (4 if node.op_type == "LSTM" else 3)
                first = array[:, :n].copy()
                array[:, :n], array[:, n : 2 * n] = array[:, n : 2 * n], first
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
                return True
    return False


def other_reset(graph: Graph) -> bool:
    """Apply the reset gate of a GRU on the other side of the product."""
    for node in nodes(graph, "GRU")[:1]:
        found = attribute(node, "linear_before_reset")
        if found is None:
            node.attribute.append(onnx.helper.make_attribute("linear_before_reset", 1))
        else:
            found.i = 1 - found.i
        return True
    return False


def other_pixels(graph: Graph) -> bool:
    """Place the pixels of a resized image otherwise."""
    for node in nodes(graph, "Resize")[:1]:
        found = attribute(node, "coordinate_transformation_mode")
        new = b"asymmetric" if found is None or found.s != b"asymmetric" else b"half_pixel"
        if found is None:
            node.attribute.append(onnx.helper.make_attribute("coordinate_transformation_mode", new))
        else:
            found.s = new
        return True
    return False


def tanh_gelu(graph: Graph) -> bool:
    """Put the approximation of GELU by tanh in place of erf."""
    for node in nodes(graph, "Erf")[:1]:
        at = [*graph.node].index(node)
        x, y = node.input[0], node.output[0]
        for name, value in (("fault/a", 0.044715 * 2), ("fault/b", 2 / np.sqrt(np.pi))):
            graph.initializer.append(numpy_helper.from_array(np.float32(value), name))
        made = [
            onnx.helper.make_node("Mul", [x, x], ["fault/x2"]),
            onnx.helper.make_node("Mul", ["fault/x2", x], ["fault/x3"]),
            onnx.helper.make_node("Mul", ["fault/x3", "fault/a"], ["fault/ax3"]),
            onnx.helper.make_node("Add", [x, "fault/ax3"], ["fault/sum"]),
            onnx.helper.make_node("Mul", ["fault/sum", "fault/b"], ["fault/inner"]),
            onnx.helper.make_node("Tanh", ["fault/inner"], [y]),
        ]
        rest = [*graph.node]
        del graph.node[:]
        graph.node.extend([*rest[:at], *made, *rest[at + 1 :]])
        return True
    return False


def swapped_outputs(graph: Graph) -> bool:
    """Swap the names of two outputs."""
    if len(graph.output) < 2:
        return False
    a, b = graph.output[0].name, graph.output[1].name
    new = {a: b, b: a}
    for node in graph.node:
        node.input[:] = [new.get(n, n) for n in node.input]
        node.output[:] = [new.get(n, n) for n in node.output]
    return True


FAULTS: dict[str, Callable[[Graph], bool]] = {
    **{f"weight x (1 + 2^-{k})": scaled(k) for k in (7, 10, 13, 16, 18, 20)},
    "one weight x 1.01": one_element,
    "weights in float16": lambda g: change_weight(g, lambda w: w.astype(np.float16)),
    "channels swapped": swapped_channels,
    "square kernel transposed": square,
    "kernel reversed": lambda g: change_weight(g, lambda w: w[..., ::-1]),
    "bias dropped": dropped_bias,
    "bias x 1.001": lambda g: change_vector(g, lambda b: b * np.float32(1.001)),
    "epsilon x 10": epsilon(10.0),
    "epsilon / 10": epsilon(0.1),
    "Relu -> LeakyRelu(1e-4)": renamed("Relu", "LeakyRelu", alpha=1e-4),
    "Relu -> Elu": renamed("Relu", "Elu"),
    "Relu -> Relu6": clipped,
    "Clip -> Relu": unclipped,
    "Sigmoid -> HardSigmoid": renamed("Sigmoid", "HardSigmoid"),
    "GELU erf -> tanh": tanh_gelu,
    "pads shifted": shifted_pads,
    "Softmax over another axis": other_axis,
    "gates swapped": swapped_gates,
    "GRU reset form": other_reset,
    "Resize other pixels": other_pixels,
    "outputs swapped": swapped_outputs,
}


# -- the table -------------------------------------------------------------------------------------


class Result(NamedTuple):
    """One planted fault: its effect in units of noise, and what verification said."""

    model: str
    fault: str
    effect: float
    caught: bool
    said: str


def main() -> int:
    """Print the table; return 1 if a fault above the noise is missed, or a sound file fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="", help="names, separated by commas")
    parser.add_argument("--faults", default="", help="likewise")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    chosen = [m for m in options.models.split(",") if m] or [*MODELS]
    faults = {f: FAULTS[f] for f in ([f for f in options.faults.split(",") if f] or FAULTS)}
    results: list[Result] = []
    alarms: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        cache_answers(Path(name) / "answers")
        for model in chosen:
            try:
                source = MODELS[model](Path(name))
            except ImportError as e:
                print(f"{model}: not measured, {e}", flush=True)
                continue
            found, alarm = measure(model, source, Path(name), faults)
            results += found
            alarms += alarm
            print(
                f"{model}: {len(found)} faults, {sum(r.caught for r in found)} caught", flush=True
            )
            for result in found if options.verbose else ():
                print(f"    {result.fault:28} {result.effect:10.3g}  {result.said[:110]}")
    return report(results, alarms)


def measure(
    model: str, source: Path, folder: Path, faults: dict[str, Callable[[Graph], bool]]
) -> tuple[list[Result], list[str]]:
    """Plant each fault in a model, and verify it."""
    out = folder / f"{model}.onnx"
    converter.convert(source, to="onnx", out=out, verify="none")
    bundle = converter.read(source)
    first = verify_graph(source, bundle, out)
    if first.status != "passed":
        return [], [f"{model}: {first.status}: {first.reason}"]
    compare = Effects(out, folder / f"{model}-effects")
    found = []
    for name, plant in faults.items():
        path = folder / "faulty.onnx"
        if not plant_fault(out, plant, path):
            continue
        effect = compare.effect(path)
        if not effect:
            continue
        try:
            report = verify_graph(source, bundle, path)
            said, caught = f"{report.status} {report.reason}", report.status == "failed"
        except ConvertError as e:
            said, caught = str(e), True
        found.append(Result(model, name, effect, caught, said))
    return found, []


def plant_fault(sound: Path, plant: Callable[[Graph], bool], path: Path) -> bool:
    """Write a copy of a graph with a fault; return whether the fault applies to it."""
    model = onnx.load(sound)
    if not plant(model.graph):
        return False
    onnx.save(model, path)
    return True


class Effects:
    """Measures how far a fault moves the outputs, in units of the noise of the sound graph."""

    def __init__(self, model: Path, folder: Path) -> None:
        folder.mkdir()
        self.file, allowance = read_interface(model), Allowance()
        graph = lower_file(self.file)
        hints = {} if graph is None else graph_hints.find_hints(graph)
        plan = plan_inputs(self.file.inputs, hints, Options(), is_varied=True)
        specs = self.file.inputs
        wanted = [hints.get(spec.name, Hint()) for spec in specs]
        plan, _ = extend_plan(model, self.file, specs, wanted, plan, folder, allowance)
        self.prepared = write_inputs(folder, specs, plan)
        run = OnnxSource(model, self.file, allowance, graph).run(self.prepared)
        self.cases = run.chosen
        self.outputs = {spec.name: spec.dtype for spec in self.file.outputs}
        noise = measure_noise(
            model, self.file, self.prepared, self.cases, self.outputs, allowance, with_exact=False
        )
        self.noise = noise

    def effect(self, path: Path) -> float:
        """Return the largest effect on an output in a case; 0 if there is none."""
        run = run_onnx(path, self.prepared, self.cases, self.outputs, Allowance(), prefix="faulty")
        if run.refused or run.errors:
            return float("inf")
        return max(self._ratios())

    def _ratios(self) -> Iterator[float]:
        for case in self.cases:
            for i, dtype in enumerate(self.outputs.values()):
                a = load_output(self.prepared, "out", case, i, dtype).data
                b = load_output(self.prepared, "faulty", case, i, dtype).data
                if a.shape != b.shape:
                    yield float("inf")
                elif a.dtype.kind != "f":
                    yield float("inf") if (a != b).any() else 0.0
                else:
                    evidence = self.noise.evidence(case, i)
                    floor = (2.0**-23 * np.abs(a)) ** 2
                    level = np.sqrt(np.mean(evidence.mean_square + floor)) or 1e-30
                    yield float(np.sqrt(np.mean((a.astype(float) - b) ** 2)) / level)


def cache_answers(folder: Path) -> None:
    """Ask a framework once for the same inputs: each start of one takes seconds."""
    folder.mkdir()
    ask = child.ask

    def cached(script: Path, place: Path, question: Any, **keywords: Any) -> Any:
        if script.name not in FRAMEWORKS:
            return ask(script, place, question, **keywords)
        key = hashlib.sha256(json.dumps(question, sort_keys=True, default=str).encode())
        for path in sorted(place.glob("in-*.npy")):
            key.update(path.read_bytes())
        kept = folder / key.hexdigest()
        if not kept.exists():
            before = {path.name for path in place.iterdir()}
            answer = ask(script, place, question, **keywords)
            kept.mkdir()
            (kept / "answer").write_text(json.dumps(answer))
            for path in place.glob("*.npy"):
                if path.name not in before:
                    shutil.copy(path, kept)
        for path in kept.glob("*.npy"):
            shutil.copy(path, place)
        return json.loads((kept / "answer").read_text())

    child.ask = cached


def report(results: list[Result], alarms: list[str]) -> int:
    """Print the table, what was missed, and the false alarms."""
    rows = defaultdict(list)
    for result in results:
        rows[result.fault].append(result)
    print(
        f"\n{'fault':30} {'planted':>8} {'above 4 x noise':>16} {'caught':>7} {'below':>6} {'caught':>7}"
    )
    above = [r for r in results if r.effect > ABOVE]
    for fault in FAULTS:
        found = rows.get(fault, [])
        large = [r for r in found if r.effect > ABOVE]
        small = [r for r in found if r.effect <= ABOVE]
        print(
            f"{fault:30} {len(found):8} {len(large):16} {sum(r.caught for r in large):7} "
            f"{len(small):6} {sum(r.caught for r in small):7}"
        )
    missed = [r for r in above if not r.caught]
    print(f"\n{len(results)} faults changed an output, {len(above)} by more than {ABOVE:g} x the noise: "
          f"{len(above) - len(missed)} of these caught")  # fmt: skip
    for r in sorted(missed, key=lambda r: -r.effect):
        print(f"  missed  {r.model}: {r.fault}, {r.effect:.3g} x the noise; {r.said[:120]}")
    for alarm in alarms:
        print(f"  false alarm or not run  {alarm}")
    return 1 if missed or alarms else 0


if __name__ == "__main__":
    sys.exit(main())
