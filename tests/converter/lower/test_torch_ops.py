"""Every row of fixtures/torch_ops: our graph, run by onnxruntime, gives what torch gave.

Each is converted from its archive, without torch, and run at two sizes of its dynamic axes.
"""

import io
import json
import tarfile
import zipfile
from functools import cache

import numpy as np
import pytest
from onnx_run import session
from repository import ROOT

import converter
from converter.lower import OPSET
from converter.lower.graph import Node, Spec
from converter.lower.torch import matrix
from converter.lower.torch.lowering import lower
from converter.lower.torch.table import OPS, plain_name
from converter.verification.compare import coarsest
from formats.errors import UnsupportedError

pytest.importorskip("onnxruntime")

FIXTURES = ROOT / "fixtures" / "torch_ops"
# Of the largest output, by the narrowest dtype that a row computes in.
TOLERANCES = {"bfloat16": 2e-2, "float16": 4e-3, "float32": 1e-5, "float64": 1e-9}


@cache
def archive(family):
    with tarfile.open(FIXTURES / f"{family}.tar.xz") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def rows():
    for path in sorted(FIXTURES.glob("*.tar.xz")):
        family = path.name.removesuffix(".tar.xz")
        for name in archive(family):
            if name.endswith(".pt2"):
                yield pytest.param(family, name, id=f"{family}:{name.removesuffix('.pt2')}")


def widen(graph):
    """Cast inputs and outputs that numpy, and so onnxruntime's Python, has no dtype for."""
    for i, name in enumerate(graph.inputs):
        if graph.specs[name].dtype == "bfloat16":
            graph.nodes.insert(0, Node("Cast", [f"{name}:wide"], [name], {"to": 16}))
            graph.specs[f"{name}:wide"] = Spec("float32", graph.specs[name].shape)
            graph.inputs[i] = f"{name}:wide"
    for i, name in enumerate(graph.outputs):
        if graph.specs[name].dtype == "bfloat16":
            graph.nodes.append(Node("Cast", [name], [f"{name}:wide"], {"to": 1}))
            graph.specs[f"{name}:wide"] = Spec("float32", graph.specs[name].shape)
            graph.outputs[i] = f"{name}:wide"


@pytest.mark.parametrize(("family", "name"), list(rows()))
def test_the_graph_computes_what_torch_computes(tmp_path, family, name):
    data = archive(family)
    source = tmp_path / "model.pt2"
    source.write_bytes(data[name])
    stored = np.load(io.BytesIO(data[name.rsplit(".", 2)[0] + ".npz"]))
    bundle = converter.read(source)
    opset = int(stored["opset"]) if "opset" in stored.files else OPSET
    if "gap" in stored.files:
        with pytest.raises(UnsupportedError) as caught:
            lower(bundle, opset=opset)
        assert str(stored["gap"]) in str(caught.value)
        return
    graph = lower(bundle, opset=opset)
    kinds = {s.dtype for s in graph.specs.values()} | ({"float32"} if graph.narrowed else set())
    widen(graph)
    model = session(graph, bundle)
    relative = float(stored["tolerance"]) if "tolerance" in stored else TOLERANCES[coarsest(kinds)]
    for k in range(2):
        # What a program does not read is no input of its graph, but stays one of ours.
        fed = {spec.name: stored[f"in{k}_{i}"] for i, spec in enumerate(model.get_inputs())}
        found = model.run(None, fed)
        expected = [stored[n] for n in stored.files if n.startswith(f"out{k}_")]
        assert len(found) == len(expected)
        for ours, theirs, spec in zip(found, expected, model.get_outputs(), strict=True):
            compare(ours, theirs, spec, relative)


def compare(ours, theirs, spec, relative):
    assert ours.shape == theirs.shape, spec.name
    assert ours.dtype == theirs.dtype, spec.name
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    assert np.array_equal(np.isnan(a), np.isnan(b)), spec.name
    infinite = np.isinf(b)
    assert np.array_equal(a[infinite], b[infinite]), spec.name
    finite = np.isfinite(b)
    scale = max(float(np.abs(b[finite]).max(initial=0)), 1e-3)
    bound = relative * scale if theirs.dtype.kind == "f" else 0
    assert np.abs(a[finite] - b[finite]).max(initial=0) <= bound, spec.name
    # What the graph declares of its outputs must be what it computes.
    for declared, size in zip(spec.shape, ours.shape, strict=True):
        assert not isinstance(declared, int) or declared == size


def test_the_matrix_says_what_each_op_computes():
    found = matrix.rows()
    assert len(found) > 500
    assert all(row["computes"].endswith(".") for row in found)


# Handlers that no stored program reaches: torch.export writes others in their place, or they are
# of Python's numbers and of other devices, or only TorchScript has them (test_torch_script.py).
UNREACHED = frozenset((
    "_cast_Byte", "_cast_Char", "_cast_Half", "_cast_Short", "_fused_rms_norm", "_operator.and_",
    "_operator.eq", "_operator.getitem", "_operator.le", "_operator.lt", "_operator.ne",
    "_operator.not_", "_operator.or_", "_operator.truediv", "_reshape_alias", "_reshape_copy",
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention", "_unsafe_masked_index", "_upsample_nearest_exact1d",
    "as_strided.in_order", "as_tensor", "bfloat16", "bool", "builtins.round", "byte", "char", "dim",
    "double", "empty_permuted", "empty_strided", "float", "half", "int", "long", "math.ceil",
    "math.floor", "math.sqrt", "math.trunc", "new_empty_strided", "nonzero_numpy",
    "rrelu_with_noise", "short", "size", "softmin", "softsign", "sym_size", "tanhshrink", "tensor",
    "torch._sym_sqrt", "torch.sym_max", "torch.sym_not", "view.dtype",
    "det", "inverse", "bartlett_window",
    # test_torch_quantised.py
    "dequantize.self", "dequantize.tensor", "int_repr", "q_scale", "q_zero_point",
    "quantize_per_tensor", "quantize_per_tensor.tensor_qparams",
    # test_torch_random.py
    "bernoulli", "exponential", "feature_dropout", "multinomial", "normal", "normal.Tensor_Tensor",
    "normal.float_float", "rand", "rand_like", "randint", "randint.low", "randint_like",
    "randint_like.low_dtype", "randn", "randn_like", "randperm", "uniform", "uniform_functional",
    "bernoulli.float", "bernoulli.p", "bernoulli.Tensor", "normal_functional",
    "normal.Tensor_float", "normal.float_Tensor", "rand.generator", "rand_like.generator",
    "randn.generator", "randn_like.generator", "randint.generator", "randint.low_generator",
    "randint_like.generator", "randint_like.low_generator_dtype", "randperm.generator",
    "alpha_dropout", "feature_alpha_dropout",
    # test_torch_models.py
    "ravel", "column_stack", "dstack", "hsplit.int", "hsplit.array", "vsplit.int", "vsplit.array",
    "dsplit.int", "dsplit.array", "pad_sequence", "linalg_vecdot", "fill_diagonal", "equal",
    "allclose",
    "_nested_tensor_from_mask", "to_padded_tensor", "_pack_padded_sequence",
    "_pad_packed_sequence", "lstm.data", "gru.data", "rnn_tanh.data", "rnn_relu.data",
    # test_torch_script.py
    "__interpolate", "__interpolate.scale_list", "__interpolate.size_list",
    "__interpolate.size_list_scale_list", "__upsample", "__upsample.size_list",
    "__upsample_bilinear", "__upsample_bilinear.scale_list", "__upsample_bilinear.size_list",
    "__upsample_bilinear.size_list_scale_list", "__upsample_nearest",
    "__upsample_nearest.size_list", "_dim_arange", "_shape_as_tensor",
))  # fmt: skip


def targets(graph):
    """Yield the ops of a graph and of those inside it."""
    for node in graph["nodes"]:
        yield plain_name(node["target"])
        for given in node["inputs"]:
            if "as_graph" in given["arg"]:
                yield from targets(given["arg"]["as_graph"]["graph"])


def test_every_handler_has_a_row():
    met = set()
    for family in {param.values[0] for param in rows()}:
        for name, data in archive(family).items():
            if name.endswith(".pt2"):
                with zipfile.ZipFile(io.BytesIO(data)) as z:
                    (program,) = (n for n in z.namelist() if "/models/" in n)
                    met.update(targets(json.loads(z.read(program))["graph_module"]["graph"]))
    tried = {OPS[name].handler for name in met if name in OPS}
    left = {name for name, row in OPS.items() if row.handler not in tried}
    assert {n for n in left if not n.startswith(("quantized.", "prepacked."))} <= UNREACHED
