"""ONNX graphs as modules of torch's: ONNX's own cases of each operator, and Keras's layers.

The cases are those of `onnx.backend.test`, with the outputs of ONNX's reference implementation. An
input that is a size, an axis or an amount is a constant there, as it is in the graphs of models.
"""

import io
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from repository import ROOT

import converter
from converter.graphs import lower_signature
from converter.write import graph_files
from formats.errors import ConvertError

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
from onnx import numpy_helper  # noqa: E402
from onnx.backend.test.loader import load_node_model_tests  # noqa: E402

from converter.write.torch.graph_module.export_graph import export  # noqa: E402
from converter.write.torch.graph_module.module import GraphModule  # noqa: E402
from converter.write.torch.graph_module.operators import (  # noqa: E402
    NotSupportedError,
    from_numpy,
)

pytestmark = pytest.mark.filterwarnings("ignore")
# Operators with an input that says sizes, axes or amounts -> the first such input.
SIZES = {
    "Reshape": 1, "Slice": 1, "Unsqueeze": 1, "Squeeze": 1, "Expand": 1, "Tile": 1, "Pad": 1,
    "TopK": 1, "Split": 1, "CumSum": 1, "Resize": 1, "Trilu": 1, "Col2Im": 1, "DFT": 1,
    "ConstantOfShape": 0, "Range": 0, "CenterCropPad": 1, "AffineGrid": 1,
    "ReduceSum": 1, "ReduceMean": 1, "ReduceMax": 1, "ReduceMin": 1, "ReduceProd": 1,
    "ReduceL1": 1, "ReduceL2": 1, "ReduceLogSum": 1, "ReduceLogSumExp": 1, "ReduceSumSquare": 1,
    "HannWindow": 0, "HammingWindow": 0, "BlackmanWindow": 0,
}  # fmt: skip
# Random numbers are others; products in bfloat16 are rounded in another order.
LEFT_OUT = ("bernoulli", "bf16", "dropout_default_mask_ratio", "training_dropout")
NOT_COMPUTED = ("uint16", "uint32", "uint64")  # by torch, on the CPU
# How many cases of these must be proven; fewer means that the test no longer sees them.
LEAST = {
    "Conv": 4, "ConvTranspose": 8, "MaxPool": 15, "AveragePool": 15, "Resize": 25, "LSTM": 2,
    "GRU": 2, "ScatterND": 4, "Pad": 6, "Slice": 7, "GatherND": 3, "Einsum": 5,
    "LayerNormalization": 15, "QuantizeLinear": 2, "DequantizeLinear": 2, "ReduceMax": 8, "TopK": 4,
}  # fmt: skip


@cache
def cases():
    """Return the cases of each operator that have tensors alone, of opset 13 and later."""
    found = {}
    for case in load_node_model_tests():
        model = case.model
        versions = {o.domain: o.version for o in model.opset_import}
        is_old = versions.get("", 13) < 13 or any("preview" in domain for domain in versions)
        if is_old or model.functions or not case.data_sets or any(n in case.name for n in LEFT_OUT):
            continue
        arrays = [v for part in case.data_sets[0] for v in part]
        if all(isinstance(v, np.ndarray | np.generic) for v in arrays) and not any(
            np.asarray(v).dtype.kind in "OSU" or str(v.dtype) in NOT_COMPUTED for v in arrays
        ):
            found.setdefault(model.graph.node[0].op_type, []).append(case)
    return found


def prepared(case):
    """Return a case's model with constants for sizes, its other inputs, and its outputs."""
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    graph, (given, wanted) = model.graph, case.data_sets[0]
    given = [np.asarray(v) for v in given]
    first = SIZES.get(graph.node[0].op_type, len(given))
    if graph.node[0].op_type == "OneHot":
        first = 1
    for i in range(len(given) - 1, first - 1, -1):
        graph.initializer.append(numpy_helper.from_array(given[i], graph.input[i].name))
        del graph.input[i]
    return model, given[:first], [np.asarray(v) for v in wanted]


def compare(found, wanted):
    found = found if isinstance(found, tuple) else (found,)
    for ours, theirs in zip(found, wanted, strict=False):
        if ours.dtype == torch.bfloat16 or "float8" in str(ours.dtype):
            ours, theirs = ours.float(), theirs.astype(np.float32)
        ours = ours.detach().numpy()
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        if theirs.dtype.kind not in "fc":
            np.testing.assert_array_equal(ours, theirs)
            continue
        step = 1e-3 if theirs.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(
            ours.astype(np.float64), theirs.astype(np.float64), rtol=1e-3, atol=step
        )


def names():
    known = [path.stem for path in Path(onnx.__file__).parent.glob("backend/test/case/node/*.py")]
    return sorted({name.partition("_")[0] for name in known if not name.startswith("_")})


@pytest.mark.parametrize("letter", sorted({name[0] for name in names()}))
def test_operators_compute_what_onnx_says(letter):
    proven, refused, differing = Counter(), Counter(), []
    for op_type, found in cases().items():
        for case in found if op_type[0].lower() == letter else ():
            model, given, wanted = prepared(case)
            try:
                with torch.no_grad():
                    module = GraphModule(model, {}, as_dict=False)
                    compare(module(*(from_numpy(v) for v in given)), wanted)
            except NotSupportedError:
                refused[op_type] += 1
            except Exception as e:  # noqa: BLE001 - all of them are named
                differing.append(f"{case.name}: {type(e).__name__} {str(e)[:200]}")
            else:
                proven[op_type] += 1
    assert not differing, "\n".join(differing)
    few = {op: n for op, n in LEAST.items() if op[0].lower() == letter and proven[op] < n}
    assert not few, f"{few}: proven {dict(proven)}, refused {dict(refused)}"


# Without those that have no tensor of data alone with dynamic axes.
EXPORTED = (
    "Add", "Conv", "ConvTranspose", "MaxPool", "AveragePool", "Gather", "Slice", "Pad", "Resize",
    "ReduceMax", "ReduceSum", "TopK", "LayerNormalization", "ScatterElements", "Expand", "Softmax",
    "NonZero", "Compress", "CumSum", "Concat", "DepthToSpace", "Shape",
)  # fmt: skip


@pytest.mark.parametrize("op_type", EXPORTED)
def test_operators_are_exported_with_dynamic_axes(op_type):
    """The first axis of the data is dynamic; torch may restrict its sizes, and says so."""
    proven, differing = 0, []
    for case in [c for c in cases()[op_type] if not c.name.endswith("_expanded")][:4]:
        model, given, wanted = prepared(case)
        tensors = [from_numpy(array) for array in given]
        shared = [t.ndim and t.shape == tensors[0].shape for t in tensors]
        inputs = [
            {"name": value.name, "dtype": str(tensor.dtype).removeprefix("torch."),
             "shape": ["n", *tensor.shape[1:]] if is_dynamic else list(tensor.shape)}
            for value, tensor, is_dynamic in zip(model.graph.input, tensors, shared, strict=True)
        ]  # fmt: skip
        try:
            with torch.no_grad():
                module = GraphModule(model, {}, as_dict=False)
                program, limits = export(torch, module, inputs)
                sizes = [(t.shape[0], limits.get(s["name"], {}).get(0, (0, None)))
                         for t, s in zip(tensors, inputs, strict=True) if t.ndim]  # fmt: skip
                if all(low <= n <= (n if high is None else high) for n, (low, high) in sizes):
                    compare(program.module()(*tensors), wanted)
                    proven += 1
        except NotSupportedError:
            continue
        except Exception as e:  # noqa: BLE001 - all of them are named
            differing.append(f"{case.name}: {type(e).__name__} {str(e)[:300]}")
    assert not differing, "\n".join(differing)
    assert proven


# -- layers of Keras: our graphs, Keras's own inputs and outputs ---------------------------------

FAMILIES = (
    "convolution", "core", "normalization", "recurrent", "recurrent_masks", "recurrent_wrappers",
    "attention", "activations", "pooling", "merging", "reshaping", "resizing", "images",
)  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_keras_layers_compute_in_torch_what_they_did(tmp_path, family):
    proven, differing = 0, []
    with zipfile.ZipFile(ROOT / "fixtures" / "keras_layers" / f"{family}.zip") as archive:
        for name in (n for n in archive.namelist() if not n.endswith(".npz")):
            folder = tmp_path / name
            folder.mkdir()
            source = folder / f"source{Path(name).suffix}"
            source.write_bytes(archive.read(name))
            arrays = np.load(io.BytesIO(archive.read(f"{Path(name).stem}.npz")))
            bundle = converter.read(source)
            try:
                graph = lower_signature(bundle, 18)
            except ConvertError:
                continue  # a row of what is not lowered
            for _ in graph_files.write_self_contained(graph, bundle, folder, sync=False):
                pass
            try:
                with torch.no_grad():
                    module = GraphModule(onnx.load(folder / "model.onnx"), {}, as_dict=False)
                    keys = sorted(k for k in arrays if k.startswith("in"))
                    if len(keys) != len(graph.inputs):
                        continue
                    given = [
                        from_numpy(arrays[k].astype(graph.specs[n].dtype))
                        for k, n in zip(keys, graph.inputs, strict=True)
                    ]
                    found = module(*given)
            except NotSupportedError:
                continue
            except Exception as e:  # noqa: BLE001 - all of them are named
                differing.append(f"{name}: {type(e).__name__} {str(e)[:200]}")
                continue
            found = found if isinstance(found, tuple) else (found,)
            for i, ours in enumerate(found):
                theirs = arrays[f"out{i}"]
                step = 1e-2 if "half" in name or "mixed" in name else 1e-4
                scale = max(1.0, float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0)))
                if not np.allclose(ours.numpy(), theirs, 10 * step, step * scale, equal_nan=True):
                    differing.append(f"{name}: another result")
                    break
            else:
                proven += 1
    assert not differing, "\n".join(differing)
    assert proven > 3
