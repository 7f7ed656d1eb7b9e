"""Megatron's checkpoints, against what Megatron-Core loads on one rank (fixtures/megatron).

Others are written here: a model is split as its parallel layers do, and must come back.
"""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from attacks.pickles import (
    EMPTY_DICT,
    EMPTY_TUPLE,
    MARK,
    NEWOBJ,
    PROTO,
    STOP,
    build,
    named,
    tensor,
    text,
    torch_zip,
    value,
)
from damage import damage
from detected import read_detected
from repository import FIXTURES

from converter import Options, convert
from formats import catalog
from formats.artifact import Artifact
from formats.errors import ConvertError, CorruptError, UnsupportedError

FOLDER = FIXTURES / "megatron"
FORMS = {
    "torch": "torch-megatron", "torch/iter_0000003": "torch-megatron",
    "torch_dist": "torch-dcp", "zarr": "torch-zarr",
}  # fmt: skip
# dist_checkpointing gives norms the names that they have in Transformer Engine's fused layers.
FUSED = {
    "self_attention.linear_qkv.layer_norm_": "input_layernorm.",
    "mlp.linear_fc1.layer_norm_": "pre_mlp_layernorm.",
}


def read(path, form="torch-megatron"):
    return read_detected(path, form)


@pytest.mark.parametrize("folder", FORMS)
def test_the_parts_of_all_ranks_are_joined(folder):
    found = read(FOLDER / folder, FORMS[folder])
    weights = {}
    for name, weight in found.weights.items():
        for fused, own in FUSED.items():
            name = name.replace(fused, own)
        weights[name] = weight
    expected = catalog.read(Artifact(FOLDER / "expected.safetensors")).weights
    assert set(weights) == set(expected)
    for name, theirs in expected.items():
        assert weights[name].dtype == theirs.dtype
        np.testing.assert_array_equal(weights[name].numpy(), theirs.numpy(), name)
    assert found.metadata.user["args"]["padded_vocab_size"] == 12
    assert found.metadata.user["iteration"] == 3


def test_what_else_there_was_is_said():
    metadata = read(FOLDER / "torch").metadata
    assert metadata.distribution == {"ranks": 4, "tensor_parallel": 2, "pipeline_parallel": 2}
    assert metadata.recorded["checkpoint_version"] == "3.0"
    left = {item.name: item.reason for item in metadata.left_out}
    assert left.pop("output_layer.weight") == "the last stage's copy of the embedding"
    assert left == {f"rank ({t}, {p}, 0): optimizer": "training state of one rank"
                    for t in (0, 1) for p in (0, 1)}  # fmt: skip


@pytest.mark.parametrize(("folder", "target"), [("torch", "torch"), ("torch_dist", "portable"),
                                                ("zarr", "safetensors")])  # fmt: skip
def test_they_convert(tmp_path, folder, target):
    options = Options(device="cpu" if target == "torch" else None)
    made = convert(FOLDER / folder, to=target, out=tmp_path / "out", options=options)
    assert made.verification.weights.tensors == 28


@pytest.mark.parametrize("sign", ["mcore_data", "metadata.json"])
def test_newer_cores_say_it_in_one_place_only(tmp_path, sign):
    """0.16 writes no ``mcore_data``; what has neither sign is no checkpoint of Megatron-Core."""
    folder = tmp_path / "x"
    shutil.copytree(FOLDER / "torch_dist", folder)
    metadata = (folder / ".metadata").read_bytes()
    name = "decoder.layers.0.mlp.linear_fc1.weight"
    if sign == "mcore_data":
        (folder / "metadata.json").unlink()
        assert name in read(folder, "torch-dcp").weights
    (folder / ".metadata").write_bytes(metadata.replace(b"mcore_data", b"other_data"))
    found = read(folder, "torch-dcp")
    assert (name in found.weights) == (sign == "metadata.json")
    assert (name.replace(".0", "") in found.weights) == (sign == "mcore_data")


# -- models split here ----------------------------------------------------------------------------


def save(path, model, *, key="model", args=None, **more):
    """Write the file of one rank: arrays are tensors, dictionaries nest."""
    arrays = []

    def opcodes(x):
        if isinstance(x, dict):
            return EMPTY_DICT + MARK + b"".join(text(k) + opcodes(v) for k, v in x.items()) + b"u"
        if isinstance(x, np.ndarray):
            arrays.append(x)
            kind = {"f4": "FloatStorage", "f2": "HalfStorage"}[x.dtype.str[1:]]
            return tensor(str(len(arrays) - 1), x.shape, kind=kind)
        return value(x)

    state = {key: model, **more} if key else model
    if args is not None:
        state = {"args": build(named("argparse.Namespace") + EMPTY_TUPLE + NEWOBJ, args), **state}
    pickle = PROTO + opcodes(state) + STOP
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(torch_zip(pickle, dict(enumerate(arrays))))


def numbers(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype("f4")


def make_layer(
    seed,
    *,
    gated=True,
    names=(
        "self_attention.linear_qkv",
        "self_attention.linear_proj",
        "mlp.linear_fc1",
        "mlp.linear_fc2",
        "norm",
    ),
):
    """Return the parameters of a layer of 4 hidden and 6 inner units."""
    qkv, proj, first, second, norm = names
    rows = 12 if gated else 6
    shapes = {
        f"{norm}.weight": (4,), f"{qkv}.weight": (12, 4), f"{qkv}.bias": (12,),
        f"{proj}.weight": (4, 12), f"{proj}.bias": (4,), f"{first}.weight": (rows, 4),
        f"{first}.bias": (rows,), f"{second}.weight": (4, 6), f"{second}.bias": (4,),
    }  # fmt: skip
    return {n: numbers(*s, seed=seed + i) for i, (n, s) in enumerate(shapes.items())}


COLUMNS = ("linear_qkv", "linear_fc1", "query_key_value", "dense_h_to_4h", "word_embeddings",
           "output_layer", "word_embeddings_for_head", "lm_head.bias")  # fmt: skip
ROWS = ("linear_proj.weight", "linear_fc2.weight", "attention.dense.weight", "4h_to_h.weight")


def split(name, whole, rank, count, version=3.0):
    """Return the part of one rank, as Megatron's parallel layers split parameters."""
    if any(row in name for row in ROWS):
        return np.ascontiguousarray(np.split(whole, count, 1)[rank])
    if not any(column in name for column in COLUMNS):
        return whole
    is_gated = whole.shape[0] == 12 and ("fc1" in name or "dense_h_to_4h" in name)
    blocks = 2 if is_gated else 3 if "query_key_value" in name and version < 1 else 1
    parts = [np.split(block, count)[rank] for block in np.split(whole, blocks)]
    return np.concatenate(parts)


def check(folder, expected):
    found = read(folder).weights
    assert set(found) == set(expected)
    for name, whole in expected.items():
        np.testing.assert_array_equal(found[name].numpy(), whole, name)


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_stages_of_other_lengths(tmp_path, gated, count):
    """Layers have numbers of their own in each stage; two virtual stages take turns."""
    layers = [make_layer(10 * i, gated=gated) for i in range(7)]
    expected = {f"decoder.layers.{i}.{n}": a for i, layer in enumerate(layers)
                for n, a in layer.items()}  # fmt: skip
    expected["embedding.word_embeddings.weight"] = numbers(6, 4)
    expected["output_layer.weight"] = numbers(6, 4, seed=1)
    expected["final_norm.weight"] = numbers(4)
    stages = {(0, 0): (0, 2), (1, 0): (2, 3), (0, 1): (3, 6), (1, 1): (6, 7)}  # stage, virtual one
    args = {"tensor_model_parallel_size": count, "pipeline_model_parallel_size": 2, "num_layers": 7,
            "untie_embeddings_and_output_weights": True}  # fmt: skip
    for rank in range(count):
        for stage in (0, 1):
            models = {}
            for turn in (0, 1):
                first, end = stages[stage, turn]
                model = {f"decoder.layers.{i - first}.{n}": split(n, a, rank, count)
                         for i in range(first, end) for n, a in layers[i].items()}  # fmt: skip
                if (stage, turn) == (0, 0):
                    name = "embedding.word_embeddings.weight"
                    model[name] = split(name, expected[name], rank, count)
                if (stage, turn) == (1, 1):
                    for name in ("output_layer.weight", "final_norm.weight"):
                        model[name] = split(name, expected[name], rank, count)
                models[f"model{turn}"] = model
            path = tmp_path / f"mp_rank_{rank:02d}_{stage:03d}/model_optim_rng.pt"
            save(path, models.pop("model0"), key="model0", args=args, **models)
    check(tmp_path, expected)


OLD = ("attention.query_key_value", "attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h",
       "input_layernorm")  # fmt: skip


@pytest.mark.parametrize("version", [0, 1.0, 3.0])
def test_models_of_language_model(tmp_path, version):
    """Names of Megatron-LM before its core; version 0 fuses projections one after the other."""
    layers = {f"layers.{i}.{n}": a for i in (0, 1)
              for n, a in make_layer(i, gated=False, names=OLD).items()}  # fmt: skip
    table, positions, bias = numbers(8, 4), numbers(5, 4), numbers(8)
    expected = {f"language_model.transformer.{n}": a for n, a in layers.items()} | {
        "language_model.embedding.word_embeddings.weight": table,
        "language_model.embedding.position_embeddings.weight": positions, "lm_head.bias": bias,
        "lm_head.dense.weight": numbers(4, 4, seed=9),
    }  # fmt: skip
    for rank in (0, 1):

        def part(name, whole, rank=rank):
            return split(name, whole, rank, 2, version)

        first = {n: part(n, a) for n, a in layers.items() if "layers.0" in n}
        second = {n.replace("layers.1", "layers.0"): part(n, a) for n, a in layers.items()
                  if "layers.1" in n}  # fmt: skip
        words = {"word_embeddings": {"weight": part("word_embeddings", table)},
                 "position_embeddings": {"weight": positions}}  # fmt: skip
        head = {"bias": part("lm_head.bias", bias), "dense.weight": numbers(4, 4, seed=9)}
        models = [
            {"language_model": {"embedding": words, "transformer": first}},
            {"language_model": {"transformer": second}, "lm_head": head,
             "word_embeddings_for_head": {"weight": part("word_embeddings", table)}},
        ]  # fmt: skip
        more = {"checkpoint_version": version} if version else {}
        args = {"model_parallel_size": 2, "num_layers": 2}
        for stage, model in enumerate(models):
            path = tmp_path / f"release/mp_rank_{rank:02d}_{stage:03d}/model_optim_rng.pt"
            save(path, model, args=args, **more)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("release\n")
    check(tmp_path, expected)


@pytest.mark.parametrize("named_as", ["mp_rank_00_00{}", "mp_rank_00_000_00{}"])
def test_experts_of_several_ranks(tmp_path, named_as):
    expected = {"decoder.layers.0.mlp.router.weight": numbers(4, 4)}
    for expert in range(4):
        prefix = f"decoder.layers.0.mlp.experts.local_experts.{expert}"
        expected[f"{prefix}.linear_fc1.weight"] = numbers(12, 4, seed=expert)
        expected[f"{prefix}.linear_fc2.weight"] = numbers(4, 6, seed=expert)
    args = {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1,
            "expert_model_parallel_size": 2}  # fmt: skip
    for rank in (0, 1):
        model = {"decoder.layers.0.mlp.router.weight": numbers(4, 4)}
        for own in (0, 1):
            theirs, ours = (f"local_experts.{n}." for n in (own + 2 * rank, own))
            model |= {n.replace(theirs, ours): a for n, a in expected.items() if theirs in n}
        save(tmp_path / named_as.format(rank) / "model_optim_rng.pt", model, args=args)
    check(tmp_path, expected)


def test_folders_of_nemo(tmp_path):
    """No arguments, and names with a prefix that is taken off later."""
    whole = {f"model.decoder.layers.0.{n}": a for n, a in make_layer(0).items()}
    for rank in (0, 1):
        model = {n: split(n, a, rank, 2) for n, a in whole.items()}
        path = tmp_path / f"tp_rank_{rank:02d}_pp_rank_000/model_weights.ckpt"
        save(path, model, key="")
    check(tmp_path, whole)


def two_ranks(folder, change=lambda rank, model: None, args=None):
    """Write a model of two ranks; ``change`` does something to a part first."""
    for rank in (0, 1):
        model = {n: split(n, a, rank, 2) for n, a in make_layer(0).items()}
        change(rank, model)
        recorded = {"tensor_model_parallel_size": 2} if args is None else args
        save(folder / f"mp_rank_{rank:02d}/model_optim_rng.pt", model, args=recorded)
    return folder


def test_norms_that_differ_are_those_of_the_first_rank(tmp_path):
    """Megatron's own converter takes the first as well."""

    def change(rank, model):
        model["norm.weight"] = numbers(4, seed=50 + rank)

    found = read(two_ranks(tmp_path, change))
    np.testing.assert_array_equal(found.weights["norm.weight"].numpy(), numbers(4, seed=50))
    (left,) = found.metadata.left_out
    assert (left.name, left.reason) == (
        "norm.weight of rank 1", "differs from that of rank 0",
    )  # fmt: skip


def test_names_that_are_unknown_are_refused_unless_ranks_have_the_same(tmp_path):
    def change(rank, model):
        model["mixer.in_proj.weight"] = numbers(4, 4, seed=rank)
        model["mixer.a"] = numbers(4, seed=7)

    with pytest.raises(UnsupportedError, match=r"1 parameter .*: mixer.in_proj.weight"):
        read(two_ranks(tmp_path, change))


def test_shapes_that_do_not_fit_are_damage(tmp_path):
    def cut(rank, model):
        if rank:
            model["mlp.linear_fc2.weight"] = model["mlp.linear_fc2.weight"][:2].copy()

    with pytest.raises(CorruptError, match="do not fit along axis 1"):
        read(two_ranks(tmp_path / "rows", cut))

    def drop(rank, model):
        if rank:
            del model["norm.weight"]

    with pytest.raises(CorruptError, match=r"have other parameters: norm.weight"):
        read(two_ranks(tmp_path / "names", drop))

    def convert_half(rank, model):
        if rank:
            model["mlp.linear_fc2.weight"] = model["mlp.linear_fc2.weight"].astype("f2")

    with pytest.raises(CorruptError, match="different element types"):
        read(two_ranks(tmp_path / "types", convert_half))


def test_ranks_that_do_not_fit_are_damage(tmp_path):
    with pytest.raises(CorruptError, match=r"rank 2 of 3 .* is not there"):
        read(two_ranks(tmp_path / "three", args={"tensor_model_parallel_size": 3}))
    with pytest.raises(CorruptError, match="has 2 ranks; expected 1, as its arguments say"):
        read(two_ranks(tmp_path / "one", args={"tensor_model_parallel_size": 1}))
    folder = two_ranks(tmp_path / "mixed")
    shutil.copytree(folder / "mp_rank_01", folder / "mp_rank_01_000")
    with pytest.raises(CorruptError, match="different numbers of ranks"):
        read(folder)
    folder = two_ranks(tmp_path / "twice")
    shutil.copytree(folder / "mp_rank_01", folder / "mp_rank_001")
    with pytest.raises(CorruptError, match="of the same rank"):
        read(folder)
    (folder / "mp_rank_001/model_optim_rng.pt").unlink()
    with pytest.raises(CorruptError, match="mp_rank_001: holds no model"):
        read(folder)
    for rank in ((0, 0), (0, 1), (1, 0), (1, 1)):
        folder = tmp_path / f"{rank}"
        shutil.copytree(FOLDER / "torch/iter_0000003", folder)
        shutil.rmtree(folder / "mp_rank_{:02d}_{:03d}".format(*rank))
        with pytest.raises(CorruptError, match="is not there"):
            read(folder)


def test_layers_that_are_missing_are_damage(tmp_path):
    args = {"num_layers": 2}
    model = {f"decoder.layers.0.{n}": a for n, a in make_layer(0).items()}
    save(tmp_path / "mp_rank_00/model_optim_rng.pt", model, args=args)
    with pytest.raises(CorruptError, match="has 1 layers; expected 2"):
        read(tmp_path)


# -- zarr -----------------------------------------------------------------------------------------


def zarr(folder, array, chunks, name="w", changes=()):
    """Write an array, its last chunks padded."""
    about = {
        "zarr_format": 2, "shape": list(array.shape), "chunks": list(chunks), "order": "C",
        "dtype": array.dtype.str, "compressor": None, "filters": None, "fill_value": None,
    }  # fmt: skip
    (folder / name).mkdir(parents=True)
    (folder / "metadata.json").write_text('{"sharded_backend": "zarr"}')
    (folder / name / ".zarray").write_text(json.dumps(about | dict(changes)))
    grid = [-(-n // m) for n, m in zip(array.shape, chunks, strict=True)]
    for at in np.ndindex(*grid):
        padded = np.zeros(chunks, array.dtype)
        box = tuple(slice(i * m, (i + 1) * m) for i, m in zip(at, chunks, strict=True))
        part = array[box]
        padded[tuple(map(slice, part.shape))] = part
        (folder / name / (".".join(map(str, at)) or "0")).write_bytes(padded.tobytes())
    return folder


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [((5, 7), (2, 3)), ((4,), (4,)), ((), ()), ((0, 3), (1, 3)), ((3, 4, 5), (1, 4, 2))],
)
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "|u1", "<i8", "|b1"])
def test_arrays(tmp_path, shape, chunks, dtype):
    array = (100 * numbers(*shape)).astype(dtype)
    found = read(zarr(tmp_path, array, chunks), "torch-zarr").weights["w"]
    np.testing.assert_array_equal(found.numpy(), array)


def test_bfloat16_as_tensorstore_names_it(tmp_path):
    array = np.arange(6, dtype="<u2").reshape(2, 3)
    found = read(
        zarr(tmp_path, array, (1, 3), changes={"dtype": "bfloat16"}), "torch-zarr"
    ).weights["w"]
    assert (found.dtype.name, found.tobytes()) == ("bfloat16", array.tobytes())


@pytest.mark.parametrize("chunks", [(1, 2, 2), (2, 4, 2), (3, 3, 1), (3, 4, 2)])
def test_a_tensor_of_all_layers_is_one_for_each(tmp_path, chunks):
    array = numbers(3, 4, 2)
    name = "module.decoder.layers.mlp.linear_fc1.weight"
    found = read(zarr(tmp_path, array, chunks, name), "torch-zarr").weights
    for layer in range(3):
        one = found[name.replace("layers", f"layers.{layer}")].numpy()
        np.testing.assert_array_equal(one, array[layer])
    assert len(found) == 3


@pytest.mark.parametrize("changes", [
    {"compressor": {"id": "zlib"}}, {"order": "F"}, {"zarr_format": 3}, {"dtype": "<U4"},
    {"filters": [{"id": "delta"}]}, {"dtype": [["a", "<f4"]]}, {"dtype": ""},
])  # fmt: skip
def test_other_arrays_are_refused(tmp_path, changes):
    with pytest.raises(UnsupportedError, match="zarr arrays"):
        read(zarr(tmp_path, numbers(2, 2), (1, 2), changes=changes), "torch-zarr")


@pytest.mark.parametrize("changes", [
    {"shape": [2]}, {"shape": None}, {"chunks": [0, 2]}, {"chunks": [1, 1 << 70]},
    {"shape": [1 << 62, 2]}, {"shape": [-1, 2]}, {"shape": [2.0, 2]}, {"dtype": "<f8"},
])  # fmt: skip
def test_damaged_arrays(tmp_path, changes):
    with pytest.raises(ConvertError) as info:
        read(zarr(tmp_path, numbers(2, 2), (1, 2), changes=changes), "torch-zarr")
    assert info.value.exit_code == 3


def test_a_chunk_that_is_missing(tmp_path):
    folder = zarr(tmp_path, numbers(2, 2), (1, 2))
    (folder / "w/1.0").unlink()
    with pytest.raises(ConvertError, match="not there") as info:
        read(folder, "torch-zarr")
    assert info.value.exit_code == 3


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(90))
def test_damage_is_said_and_nothing_else(tmp_path, seed):
    form = ("torch", "torch_dist", "zarr")[seed % 3]
    shutil.copytree(FOLDER / form, tmp_path / form)
    files = sorted(p for p in Path(tmp_path / form).rglob("*") if p.is_file())
    path = files[seed // 3 % len(files)]
    path.write_bytes(damage(path.read_bytes(), random.Random(seed)))
    try:
        for weight in catalog.read(Artifact(tmp_path / form)).weights.values():
            weight.tobytes()
    except ConvertError as e:
        assert e.exit_code in (3, 4)
