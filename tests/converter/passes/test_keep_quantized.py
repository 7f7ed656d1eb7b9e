"""Weights that stay quantised in a graph are the library's floats, as onnxruntime computes them."""

import json
from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx_run
import pytest
from repository import FIXTURES

from converter.graphs import options_of_quantized
from converter.lower.graph import Graph, Node, Spec, Weight
from converter.normalise.quantized.forms import lazy_values
from converter.normalise.quantized.schemes import find_floats
from converter.options import Options
from converter.passes.keep_quantized import keep_quantized
from converter.verification.initializers import compare_initializers
from converter.verification.onnx_values import read_interface
from formats import catalog
from formats.artifact import Artifact
from formats.core.weights import DTYPES, Tensor
from formats.errors import CorruptError, UsageError

onnx = pytest.importorskip("onnx")
reference = pytest.importorskip("onnx.reference")

QUANTIZED = FIXTURES / "hf_quantized"
KINDS = sorted(p.name for p in QUANTIZED.iterdir() if p.is_dir())
CODED = ("bnb_fp4", "bnb_nf4", "bnb_nf4_nested", "mxfp4")
# Bytes of what a graph of opset 21 stores in more bits, or for each row, beside those of the file.
WIDER = {"gptq3_order": 1.4, "gptq2_v2": 2.0, "ct_w3": 1.4}


def read(kind):
    return catalog.read(Artifact(QUANTIZED / kind))


def changed(bundle, **tensors):
    """Return a bundle with other tensors under names that end so."""
    weights = dict(bundle.weights)
    for end, array in tensors.items():
        (name,) = (n for n in weights if n.endswith(end) and not n.startswith("norm"))
        weights[name] = Tensor.inline(DTYPES[array.dtype.name], array.shape, array.tobytes())
    return replace(bundle, weights=weights)


def kept(source):
    """Return a graph whose output is the weight, the bundles of its parts and of the floats."""
    bundle, forms = find_floats(source)
    (name,) = (n for n, t in bundle.weights.items() if t.identity in forms)
    spec = Spec(bundle.weights[name].dtype.name, bundle.weights[name].shape)
    out = replace(spec, dtype="float32" if spec.dtype == "bfloat16" else spec.dtype)
    graph = Graph(
        "g", 21, [Node("Cast", [name], ["out"], {"to": {"float32": 1, "float16": 10}[out.dtype]})],
        [], ["out"], {name: spec, "out": out}, {name: Weight(name)},
    )  # fmt: skip
    return graph, keep_quantized([graph], bundle, forms), bundle, name


def check(source):
    """Check that the graph computes the floats, by all runtimes; return it and the changes."""
    graph, stored, floats, name = kept(source)
    expected = floats.weights[name].numpy().astype(graph.specs["out"].dtype)
    data = onnx_run.onnx_bytes(graph, stored.weights)
    onnx.checker.check_model(data, full_check=True)
    with np.errstate(all="ignore"):
        evaluated = reference.ReferenceEvaluator(onnx.load_model_from_string(data)).run(None, {})
    for found in (*onnx_run.run(data), *evaluated):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()
    return graph, stored


def operators(graph):
    return [node.op_type for node in graph.nodes[:-1]]


@pytest.mark.parametrize("kind", KINDS)
def test_onnxruntime_computes_the_library_s_floats(kind):
    source = read(kind)
    graph, stored = check(source)
    operator = "Gather" if kind in CODED else "DequantizeLinear"
    assert operator in operators(graph)
    (change,) = stored.metadata.normalisations
    (values,) = (t for n, t in stored.weights.items() if n.endswith("/values"))
    assert (change.name, change.count) == (f"weights kept as {values.dtype} ({operator})", 1)
    largest = max(t.nbytes for t in source.weights.values())
    assert largest <= values.nbytes <= largest * WIDER.get(kind, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_weight_in_a_file_is_compared_with_the_floats(kind, tmp_path):
    graph, stored, floats, name = kept(read(kind))
    path = onnx_run.write_onnx(tmp_path / "m.onnx", graph, stored.weights)
    found = compare_initializers(floats, read_interface(path), None)
    assert (found.tensors, found.nbytes, found.different) == (1, floats.weights[name].nbytes, ())
    model = onnx.load(path)
    (values,) = (t for t in model.graph.initializer if t.name.endswith("/values"))
    values.raw_data = values.raw_data[:-1] + bytes([values.raw_data[-1] ^ 0x11])
    onnx.save(model, path)
    found = compare_initializers(floats, read_interface(path), None)
    assert (found.tensors, found.different) == (0, (f"{name} (changed)",))


def test_an_operator_that_does_not_fit_its_inputs_is_damage(tmp_path):
    graph, stored, floats, _ = kept(read("gptq4"))
    del graph.nodes[0].attributes["block_size"]
    path = onnx_run.write_onnx(tmp_path / "m.onnx", graph, stored.weights)
    with pytest.raises(CorruptError, match="DequantizeLinear does not fit"):
        compare_initializers(floats, read_interface(path), None)


def test_a_product_of_two_factors_is_rounded_once():
    """Scales of float16 do not make the first product one."""
    scales = (np.random.default_rng(7).random(32) * 3).astype(np.float16)
    check(changed(read("bnb_int8"), SCB=scales))


def test_a_zero_point_that_four_bits_do_not_hold_takes_eight():
    """Format 1 of GPTQ stores zero points less one: 15 of 4 bits is 16."""
    _, stored = check(changed(read("gptq4"), qzeros=np.full((4, 4), -1, np.int32)))
    assert stored.metadata.normalisations[0].name == "weights kept as uint8 (DequantizeLinear)"


@pytest.mark.parametrize(
    ("kind", "tensors", "why"),
    [
        ("gptq8", {"qzeros": np.full((1, 8), -1, np.int32)}, "a zero point is 256"),
        ("gptq3_order", {"g_idx": np.arange(64, dtype=np.int32) // 60}, "different sizes"),
        ("torchao_int4", {"weight_zero_point": np.full((32, 2), 300, np.int16)}, "zero point"),
        ("mxfp4", {"gate_up_proj_scales": np.full((2, 32, 2), 255, np.uint8)}, "exponent"),
    ],
)
def test_what_no_operator_computes_exactly_stays_a_float_and_is_named(kind, tensors, why):
    graph, stored, floats, name = kept(changed(read(kind), **tensors))
    assert operators(graph) == []
    assert stored.weights[name] is floats.weights[name]
    (change,) = stored.metadata.normalisations
    assert (change.name, change.count) == ("quantised weights made floats", 1)
    assert why in change.detail
    assert name in change.detail


def test_a_weight_that_the_graph_does_not_have_is_named():
    bundle, forms = find_floats(read("gptq4"))
    graph = Graph("g", 21, [Node("Neg", ["x"], ["y"])], ["x"], ["y"])
    (change,) = keep_quantized([graph], bundle, forms).metadata.normalisations
    assert change.detail == "the model holds it otherwise: h.0.c_fc.weight"


def test_groups_of_inputs_in_any_order_are_put_in_order_and_back():
    places = np.random.default_rng(1).permutation(np.arange(64, dtype=np.int32) // 32)
    graph, _ = check(changed(read("gptq3_order"), g_idx=places))
    assert operators(graph) == ["DequantizeLinear", "Gather"]


@pytest.mark.parametrize("shape", [[32, 71], [1, 1], [3, 5, 7]])
def test_the_last_block_of_a_table_may_be_shorter(shape):
    source, rng = read("bnb_nf4"), np.random.default_rng(2)
    (name,) = (n for n in source.weights if "quant_state" in n)
    state = json.loads(source.weights[name].tobytes()) | {"shape": shape}
    count = int(np.prod(shape))
    graph, _ = check(changed(
        source, absmax=rng.random(-(-count // 64)).astype(np.float32),
        bitsandbytes__nf4=np.frombuffer(json.dumps(state).encode(), np.uint8),
        weight=rng.integers(0, 256, (-(-count // 2), 1), dtype=np.uint8),
    ))  # fmt: skip
    assert "Slice" in operators(graph)


@pytest.mark.parametrize("rows", [40, 33])
def test_the_last_of_blocks_in_two_axes_may_be_shorter(rows):
    rng = np.random.default_rng(3)
    source = read("fp8_blocks")
    values = rng.standard_normal((rows, 72)).astype(ml_dtypes.float8_e4m3fn)
    check(changed(source, weight=values, weight_scale_inv=rng.random((3, 5)).astype(np.float32)))


def test_rows_share_scales_and_columns_name_their_groups():
    """Of compressed-tensors: a scale for 16 rows and the groups of the columns."""
    rng = np.random.default_rng(5)
    source = changed(
        read("ct_w4_zeros"), weight_scale=rng.random((2, 4)).astype(ml_dtypes.bfloat16),
        weight_zero_point=rng.integers(-8, 8, (2, 4)).astype(np.int8),
    )  # fmt: skip
    places = Tensor.inline(
        DTYPES["int32"], (64,), rng.permutation(np.arange(64, dtype="i4") % 4).tobytes()
    )
    weights = source.weights | {"layers.0.fc.weight_g_idx": places}
    graph, _ = check(replace(source, weights=weights))
    assert operators(graph) == ["DequantizeLinear", "Gather", "Cast"]


@pytest.mark.parametrize("kind", ["NVFP4", "MXFP4"])
def test_floats_of_4_bits_with_scales_of_blocks(kind):
    rng, block = np.random.default_rng(6), 16 if kind == "NVFP4" else 32
    scale = rng.random((8, 64 // block)).astype(ml_dtypes.float8_e4m3fn)
    parts = {
        "weight_packed": rng.integers(0, 256, (8, 32), dtype=np.uint8),
        "weight_scale": scale if kind == "NVFP4" else rng.integers(100, 140, scale.shape, "u1"),
    }
    if kind == "NVFP4":
        parts["weight_global_scale"] = np.array([0.37], np.float32)
    weights = {
        f"layers.0.fc.{name}": Tensor.inline(DTYPES[v.dtype.name], v.shape, v.tobytes())
        for name, v in parts.items()
    }
    graph, _ = check(replace(read("ct_w4"), weights=weights))
    assert operators(graph) == ["Cast", "Gather", "Mul", "Reshape", "Cast"]


def test_odd_columns_share_bytes():
    """Rows of an odd number of integers of 4 bits begin in the middle of a byte."""
    rng = np.random.default_rng(4)
    check(changed(
        read("ct_w4"), weight_packed=rng.integers(-(1 << 31), 1 << 31, (3, 8)).astype(np.int32),
        weight_shape=np.array([3, 63]), weight_scale=rng.random((3, 1)).astype(ml_dtypes.bfloat16),
    ))  # fmt: skip
    parts = [np.arange(n, dtype=np.uint8).reshape(1, n) for n in (3, 4, 1, 5)]
    found = lazy_values("uint4", (13,), lambda: parts).numpy()
    np.testing.assert_array_equal(found, np.concatenate(parts, 1).reshape(-1))


@pytest.mark.parametrize("special", [np.nan, np.inf, 0.0, 6e-8])
def test_scales_of_any_value(special):
    scales = np.full((4, 32), special, np.float16)
    check(changed(read("gptq4"), scales=scales))


def test_a_subgraph_computes_a_weight_of_its_own():
    bundle, forms = find_floats(read("gptq4"))
    name = "h.0.c_fc.weight"
    spec = Spec("float16", bundle.weights[name].shape)
    branch = Graph("b", 21, [Node("Identity", ["w"], ["b"])], [], ["b"], {"w": spec, "b": spec},
                   {"w": Weight(name)})  # fmt: skip
    other = Graph("o", 21, [Node("Neg", ["v"], ["o"])], [], ["o"], {"v": spec, "o": spec},
                  {"v": Weight(name)})  # fmt: skip
    graph = Graph(
        "g", 21, [Node("If", ["c"], ["y"], {"then_branch": branch, "else_branch": other})],
        ["c"], ["y"], {"c": Spec("bool", ()), "y": spec},
    )  # fmt: skip
    stored = keep_quantized([graph], bundle, forms)
    expected = bundle.weights[name].numpy()
    data = onnx_run.onnx_bytes(graph, stored.weights)
    np.testing.assert_array_equal(onnx_run.run(data, np.array(True))[0], expected)
    np.testing.assert_array_equal(onnx_run.run(data, np.array(False))[0], -expected)


@pytest.mark.parametrize(
    "options", [Options(opset=18), Options(opset=20), Options(precision="fp16")]
)
def test_options_for_graphs_of_floats_are_refused(options):
    with pytest.raises(UsageError, match="weights that stay quantised"):
        options_of_quantized(options)


def test_later_opsets_are_kept():
    assert options_of_quantized(Options(opset=22)).opset == 22
    assert options_of_quantized(Options()).opset == 21
