"""Quantised checkpoints become the floats of the libraries that wrote them."""

import json
import random
import shutil
from dataclasses import replace
from math import prod

import ml_dtypes
import numpy as np
import pytest
from repository import FIXTURES

import converter
from converter.normalise.quantized.schemes import dequantize
from converter.options import Options
from formats import catalog
from formats.artifact import Artifact
from formats.core.weights import DTYPES, Tensor
from formats.errors import ConvertError, CorruptError, UnsupportedError, UsageError

QUANTIZED = FIXTURES / "hf_quantized"
KINDS = sorted(p.name for p in QUANTIZED.iterdir() if p.is_dir())
DEQUANTIZE = Options(dequantize=True)
# Not needed, or only where other entries say so.
OPTIONAL = ("bias", "norm.weight", "input_scale", "weight_format", "g_idx", "zero_point")


def read(path):
    return catalog.read(Artifact(path))


def copied(kind, folder, **settings):
    """Return a copy of a folder with other settings of its quantisation."""
    shutil.copytree(QUANTIZED / kind, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] |= settings
    path.write_text(json.dumps(config))
    return folder


def read_floats(bundle):
    return [tensor.tobytes() for tensor in dequantize(bundle).weights.values()]


@pytest.mark.parametrize("kind", KINDS)
def test_floats_are_the_library_s_own(kind, tmp_path):
    out = tmp_path / "out"
    made = converter.convert(QUANTIZED / kind, to="hf", out=out, options=DEQUANTIZE)
    assert made.verification.level == "weights"
    found, expected = read(out), read(QUANTIZED / f"{kind}.expected.safetensors")
    assert set(found.weights) == set(expected.weights)
    for name, theirs in expected.weights.items():
        ours = found.weights[name]
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
        np.testing.assert_array_equal(
            np.asarray(ours.numpy(), np.float64), np.asarray(theirs.numpy(), np.float64)
        )
    config = json.loads((out / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["model_type"]
    (change,) = made.bundle.metadata.normalisations
    assert (change.name, change.count) == ("weights dequantised", 1)


@pytest.mark.parametrize("kind", KINDS)
def test_unasked_they_stay_as_they_are_and_are_named(kind, tmp_path):
    source = QUANTIZED / kind
    converter.convert(source, to="hf", out=tmp_path / "out")
    before, after = read(source), read(tmp_path / "out")
    assert before.metadata.user == after.metadata.user
    assert (tmp_path / "out/config.json").read_bytes() == (source / "config.json").read_bytes()
    for name, tensor in before.weights.items():
        assert after.weights[name].tobytes() == tensor.tobytes()
    scheme = str(before.topology.summary["quantization"])
    method = json.loads((source / "config.json").read_text())["quantization_config"]
    assert scheme.startswith(method.get("quant_method", "bitsandbytes"))


def test_settings_of_older_libraries_stand_in_a_file_of_their_own(tmp_path):
    folder = copied("gptq4", tmp_path / "old")
    config = json.loads((folder / "config.json").read_text())
    settings = config.pop("quantization_config")
    del settings["quant_method"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "quantize_config.json").write_text(json.dumps(settings))
    assert str(read(folder).topology.summary["quantization"]).startswith("gptq, bits 4")
    out = tmp_path / "out"
    converter.convert(folder, to="hf", out=out, options=DEQUANTIZE)
    assert sorted(p.name for p in out.iterdir()) == ["config.json", "model.safetensors"]
    expected = read(QUANTIZED / "gptq4.expected.safetensors").weights
    assert all(t.tobytes() == expected[n].tobytes() for n, t in read(out).weights.items())


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("gptq4", {"quant_method": "hqq"}, "dequantisation of hqq"),
        ("gptq4", {"checkpoint_format": "marlin"}, "GPTQ in the format marlin"),
        ("awq_gemm", {"version": "gemv_fast"}, "AWQ in the version gemv_fast"),
        ("ct_w4", {"config_groups": {}}, "bits"),
        ("fp8_rows", {"quant_method": "gptq"}, "holds no weights quantised by gptq"),
    ],
)
def test_other_forms_are_refused_by_name(kind, settings, message, tmp_path):
    folder = copied(kind, tmp_path / "in", **settings)
    with pytest.raises(UnsupportedError, match=message):
        converter.convert(folder, to="hf", out=tmp_path / "out", options=DEQUANTIZE)
    assert not (tmp_path / "out").exists()


def test_a_bundle_has_no_graph_and_says_which_target_has(tmp_path):
    made = converter.convert(QUANTIZED / "gptq4", to="portable", out=tmp_path / "out")
    (reason,) = [left.reason for left in made.bundle.metadata.left_out]
    assert "weights are quantised (gptq)" in reason
    assert "to='onnx' keeps them in its graph" in reason


def test_a_source_that_is_not_quantised_is_refused(tmp_path):
    with pytest.raises(UsageError, match="names no quantisation"):
        converter.convert(
            QUANTIZED / "gptq4.expected.safetensors", to="safetensors", out=tmp_path / "x",
            options=DEQUANTIZE,
        )  # fmt: skip


def test_weights_that_are_floats_already_are_not_scaled_again():
    source = read(QUANTIZED / "ct_w8")
    name = "layers.0.fc.weight"
    floats = read(QUANTIZED / "ct_w8.expected.safetensors").weights[name]
    with pytest.raises(UnsupportedError, match="quantised weights of dtype bfloat16"):
        dequantize(replace(source, weights={**source.weights, name: floats}))


@pytest.mark.parametrize(
    ("kind", "role", "settings"),
    [
        ("fp8_blocks", "weight_scale_inv", {"weight_block_size": [16, 32]}),
        ("ct_float8_blocks", "weight_scale", {"config_groups": {"group_0": {"weights": {
            "num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 32]}}}}),
    ],
)  # fmt: skip
def test_the_last_block_of_an_axis_may_be_shorter(kind, role, settings, tmp_path):
    """DeepSeek's 576 rows are four blocks of 128 and a half; equal blocks would be others."""
    source = read(copied(kind, tmp_path / "in", **settings))
    rng = np.random.default_rng(1)
    values = rng.standard_normal((40, 72)).astype(ml_dtypes.float8_e4m3fn)
    scale = rng.random((3, 3)).astype(np.float32)
    name = "layers.0.fc.weight"
    parts = {name: values, name.replace("weight", role): scale}
    tensors = {
        n: Tensor.inline(DTYPES[v.dtype.name], v.shape, v.tobytes()) for n, v in parts.items()
    }
    found = dequantize(replace(source, weights=source.weights | tensors)).weights[name].numpy()
    whole = np.repeat(np.repeat(scale, 16, 0), 32, 1)[:40, :72]
    expected = (values.astype(np.float32) * whole).astype(found.dtype)
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))
    short = {name: Tensor.inline(DTYPES["float8_e4m3fn"], (50, 72), bytes(50 * 72))}
    with pytest.raises(CorruptError, match="do not fit"):
        read_floats(replace(source, weights=source.weights | tensors | short))


@pytest.mark.parametrize("kind", KINDS)
def test_other_dtypes_and_shapes_are_damage_and_nothing_else(kind):
    """The elements stay, in another dtype or shape, or become any; what comes is errors of ours."""
    source, rng = read(QUANTIZED / kind), random.Random(kind)
    names = [n for n in source.weights if not n.endswith(("bias", "norm.weight"))]
    refused = 0
    for _ in range(40):
        name = rng.choice(names)
        tensor = source.weights[name]
        dtype, shape, data = tensor.dtype, [*tensor.shape], tensor.tobytes()
        match rng.choice(("dtype", "size", "rank", "bytes")):
            case "dtype":
                dtype = DTYPES[rng.choice(("int8", "int32", "float32", "uint8", "bool"))]
            case "size" if shape:
                shape[rng.randrange(len(shape))] += rng.choice((1, 5, 64))
            case "rank":
                shape = rng.choice(([1, *shape], [tensor.size], []))
            case _:
                data = rng.randbytes(len(data))
        size = dtype.nbytes(prod(shape))
        other = Tensor.inline(dtype, shape, (data * (size // len(data) + 1))[:size])
        try:
            read_floats(replace(source, weights={**source.weights, name: other}))
        except ConvertError:
            refused += 1
    assert refused


def test_a_description_that_is_no_json_is_damage():
    source = read(QUANTIZED / "torchao_int8")
    user = {**source.metadata.user, "0.weight": "{broken"}
    with pytest.raises(CorruptError):
        dequantize(replace(source, metadata=replace(source.metadata, user=user)))


def test_the_order_of_inputs_is_needed_where_the_settings_say_so():
    source = read(QUANTIZED / "gptq3_order")
    weights = {n: t for n, t in source.weights.items() if not n.endswith("g_idx")}
    with pytest.raises(CorruptError, match="without its g_idx"):
        dequantize(replace(source, weights=weights))


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_that_are_missing_or_do_not_fit_are_damage(kind):
    source = read(QUANTIZED / kind)
    parts = [n for n in source.weights if not n.endswith(OPTIONAL)]
    for name in parts:
        tensor = source.weights[name]
        short = Tensor.computed(tensor.dtype, (0, *tensor.shape[1:]), list)
        for changed in ({name: short}, {}):
            others = {n: t for n, t in source.weights.items() if n != name}
            with pytest.raises((CorruptError, UnsupportedError)):
                read_floats(replace(source, weights=others | changed))
    assert len(parts) > 1
