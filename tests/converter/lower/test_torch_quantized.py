"""Quantized TorchScript archives: our graph computes what torch does, within a quantum."""

import io
import zipfile

import numpy as np
import onnx_run
import pytest
from repository import ROOT

from converter.lower import OPSET
from converter.lower.graph import Graph
from converter.lower.torch import calls
from converter.lower.torch.context import Context
from converter.lower.torch.lowering import lower
from converter.lower.torch.mutable_tensors import Reference
from converter.lower.unsupported import Unsupported
from formats.artifact import Artifact
from formats.core.bundle import TensorSpec
from formats.errors import UnsupportedError
from formats.torch import script as torch_script

ARCHIVE = ROOT / "fixtures" / "torch_quantized" / "programs.zip"
with zipfile.ZipFile(ARCHIVE) as held:
    NAMES = [name.removesuffix(".pt") for name in held.namelist() if name.endswith(".pt")]


def lower_stored(name, folder):
    with zipfile.ZipFile(ARCHIVE) as held:
        path = folder / f"{name}.pt"
        path.write_bytes(held.read(f"{name}.pt"))
        arrays = np.load(io.BytesIO(held.read(f"{name}.npz")))
    bundle = torch_script.read(Artifact(path))
    shape = ("batch", *arrays["0.x"].shape[1:])
    if name.startswith(("lstm", "gru")):
        shape = ("batch", "steps", 8)
    inputs = [TensorSpec("", "float32", shape)]
    return lower(bundle, opset=OPSET, inputs=inputs), bundle, arrays


@pytest.mark.parametrize("name", NAMES)
def test_computes_what_torch_computes(name, tmp_path):
    graph, bundle, arrays = lower_stored(name, tmp_path)
    model = onnx_run.session(graph, bundle.weights)
    quantum = float(arrays["quantum"])
    for run in range(2):
        wanted = [arrays[n] for n in arrays.files if n.startswith(f"{run}:")]
        made = onnx_run.run(model, arrays[f"{run}.x"])
        assert len(made) == len(wanted)
        for ours, theirs in zip(made, wanted, strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            assert np.ptp(theirs) > 4 * quantum  # something is compared
            apart = np.abs(ours - theirs)
            assert apart.max() <= 1.01 * quantum
            assert apart.mean() <= 0.2 * quantum


@pytest.fixture
def op():
    return Context(Graph("g", OPSET), {})


def run(op, x, *outputs):
    for i, one in enumerate(outputs):
        op.output(one.read(), f"y{i}")
    return onnx_run.run(op.graph, x)


def test_integers_and_what_they_stand_for(op):
    x = Reference.to(op.input("x", "float32", (6,)))
    q = calls.call(op, "aten.quantize_per_tensor.default", [x, 0.5, 10, 13])
    assert calls.call(op, "aten.q_scale", [q]) == 0.5
    assert calls.call(op, "aten.q_zero_point", [q]) == 10
    ops = ["aten.int_repr", "aten.dequantize.self", "aten.relu", "aten.hardtanh"]
    made = [calls.call(op, name, [q]) for name in ops]
    made[2:] = [calls.call(op, "aten.dequantize.self", [one]) for one in made[2:]]
    given = np.array([-9.0, -0.8, 0.0, 0.3, 1.26, 400], np.float32)
    whole, real, positive, held = run(op, given, *made)
    assert whole.dtype == np.uint8
    assert whole.tolist() == [0, 8, 10, 11, 13, 255]
    assert real.tolist() == [-5.0, -1.0, 0.0, 0.5, 1.5, 122.5]
    assert positive.tolist() == [0.0, 0.0, 0.0, 0.5, 1.5, 122.5]
    assert held.tolist() == [-1.0, -1.0, 0.0, 0.5, 1.0, 1.0]


def test_a_scale_that_a_tensor_says(op):
    x = Reference.to(op.input("x", "float32", (3,)))
    scale, zero = (Reference.to(op.constant(n)) for n in (np.float32(0.25), np.int64(-3)))
    q = calls.call(op, "aten.quantize_per_tensor.tensor_qparams", [x, scale, zero, 12])
    (whole,) = run(op, np.float32([0, 1, -90]), calls.call(op, "aten.int_repr", [q]))
    assert whole.tolist() == [-3, 1, -128]


@pytest.mark.parametrize(
    ("name", "args"), [("aten.exp", ()), ("aten.add.Tensor", (1,)), ("aten.sort", ())]
)
def test_what_is_not_known_of_quantized_tensors_is_not_supported(op, name, args):
    x = Reference.to(op.input("x", "float32", (3,)))
    q = calls.call(op, "aten.quantize_per_tensor.default", [x, 0.25, 3, 13])
    with pytest.raises(Unsupported, match="quantized"):
        calls.call(op, name, [q, *args])


def test_a_scale_that_is_none_is_a_gap(op):
    x = Reference.to(op.input("x", "float32", (3,)))
    for scale, zero in ((0.0, 3), (-1.0, 3), (1.0, 300)):
        with pytest.raises(Unsupported, match="quantized by"):
            calls.call(op, "aten.quantize_per_tensor.default", [x, scale, zero, 13])


def test_numbers_of_a_packed_layer_that_do_not_add_up(tmp_path):
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(ARCHIVE) as held:
        data = held.read("residual-fbgemm-trace.pt")
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith(".py") and b"conv2d_prepack" in content:
                content = content.replace(b"conv2d_prepack", b"conv2d_unpacked")
            new.writestr(name, content)
    bundle = torch_script.read(Artifact(path))
    with pytest.raises(UnsupportedError, match="conv2d_unpacked"):
        lower(bundle, opset=OPSET, inputs=[TensorSpec("", "float32", ("batch", 3, 16, 16))])


def test_a_graph_says_that_it_rounds(tmp_path):
    for name in ("residual-fbgemm-trace", "dense-int8-trace"):
        assert lower_stored(name, tmp_path)[0].rounded
    assert not lower_stored("dense-half-trace", tmp_path)[0].rounded
