"""Every row of fixtures/torch_ops: our graph, run by onnxruntime, gives what torch gave.

Each is converted from its archive, without torch, and run at two sizes of its dynamic axes.
"""

import io
import json
import zipfile

import pytest
from op_rows import Row, lower_row, members, opened, rows

from converter.lower.torch.lowering import lower
from converter.lower.torch.table import OPS, plain_name

pytestmark = pytest.mark.thorough

# Of the largest output, by the narrowest dtype that a row computes in.
TOLERANCES = {"bfloat16": 2e-2, "float16": 4e-3, "float32": 1e-5, "float64": 1e-9}


@pytest.mark.parametrize(("family", "name"), rows("torch_ops", ".pt2"))
def test_the_graph_computes_what_torch_computes(tmp_path, family, name):
    bundle, stored = opened("torch_ops", family, name, tmp_path)
    graph = lower_row(lower, bundle, stored)
    if graph is None:
        return
    tolerances = (
        dict.fromkeys(TOLERANCES, float(stored["tolerance"]))
        if "tolerance" in stored
        else TOLERANCES
    )
    row = Row(graph, bundle, tolerances)
    for k in range(2):
        # What a program does not read is no input of its graph, but stays one of ours.
        fed = {spec.name: stored[f"in{k}_{i}"] for i, spec in enumerate(row.inputs)}
        row.check(fed, [stored[key] for key in stored.files if key.startswith(f"out{k}_")])


def test_the_matrix_says_what_each_op_computes():
    found = OPS.support_matrix()
    assert len(found) > 500
    assert all(row["computes"].endswith(".") for row in found)


# Handlers that no stored program reaches: torch.export writes others in their place, or they are
# of Python's numbers and of other devices, or only TorchScript has them (test_torch_script.py), or
# programs that keep state (test_torch_state.py).
UNREACHED = frozenset((
    "_cast_Byte", "_cast_Char", "_cast_Half", "_cast_Short", "_fused_rms_norm",
    "_native_batch_norm_legit_functional", "_operator.and_", "cudnn_batch_norm",
    "_operator.eq", "_operator.getitem", "_operator.le", "_operator.lt", "_operator.ne",
    "_operator.not_", "_operator.or_", "_operator.truediv", "_reshape_alias", "_reshape_copy",
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention", "_unsafe_masked_index", "_upsample_nearest_exact1d",
    "as_strided.in_order", "as_strided_copy.in_order", "as_strided_scatter.in_order", "as_tensor",
    "bfloat16", "bool", "builtins.round", "byte", "char", "dim",
    "double", "empty_permuted", "empty_strided", "float", "half", "int", "long", "math.ceil",
    "math.floor", "math.sqrt", "math.trunc", "new_empty_strided", "nonzero_numpy",
    "rrelu_with_noise", "short", "size", "softmin", "softsign", "sym_size", "tanhshrink", "tensor",
    "torch._sym_sqrt", "torch.sym_max", "torch.sym_not", "view.dtype",
    "det", "inverse", "bartlett_window",
    # torch.export fails on them (tests/live/torch/test_edge_values.py)
    "cov", "corrcoef", "tensor_split.tensor_indices_or_sections", "combinations", "linalg_lstsq",
    "linalg_matrix_rank.tol_tensor", "linalg_matrix_rank.atol_rtol_float", "_lu_with_info",
    "unique_dim", "narrow.Tensor", "histogram.bin_ct",
    # test_torch_quantized.py
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
    for family, name in (row.values for row in rows("torch_ops", ".pt2")):
        with zipfile.ZipFile(io.BytesIO(members("torch_ops", family)[name]())) as z:
            (program,) = (n for n in z.namelist() if "/models/" in n)
            met.update(targets(json.loads(z.read(program))["graph_module"]["graph"]))
    met |= {name.removesuffix("_") for name in met}  # what is written in place
    tried = {OPS[name].function for name in met if name in OPS}
    left = {name for name, row in OPS.items() if row.function not in tried}
    assert {n for n in left if not n.startswith(("quantized.", "prepacked."))} <= UNREACHED
