"""DeepSpeed's checkpoints, against what its own script makes of them (fixtures/deepspeed)."""

import io
import random
import shutil
import zipfile

import numpy as np
import pytest
from damage import damage
from detected import read_detected
from repository import FIXTURES

from converter import Options, convert
from formats import catalog
from formats.artifact import Artifact
from formats.core.weights import DTYPES, Tensor
from formats.errors import ConvertError, CorruptError, UnsupportedError
from formats.torch.deepspeed import Piece, cut, join

FOLDER = FIXTURES / "deepspeed"
STAGES = ("zero1", "zero2", "zero3")


def read(path):
    return read_detected(path, "torch-deepspeed")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("part", ["", "global_step2"])
def test_the_parts_of_all_ranks_are_joined(stage, part):
    found = read(FOLDER / stage / part)
    expected = catalog.read(Artifact(FOLDER / f"{stage}.expected.safetensors")).weights
    assert set(found.weights) == set(expected)
    for name, theirs in expected.items():
        ours = found.weights[name].numpy().astype(np.float32)  # buffers keep their dtype
        np.testing.assert_array_equal(ours, theirs.numpy().astype(np.float32))
        if "frozen" not in name and name != "seen":
            assert found.weights[name].dtype.name == "float32"
    assert found.weights["head.weight"].identity == found.weights["table.weight"].identity
    assert found.metadata.distribution["ranks"] == 2
    assert found.metadata.recorded["deepspeed"] == "0.19.8"
    assert found.metadata.user["epoch"] == 3
    assert sum(left.name.endswith("_optim_states.pt") for left in found.metadata.left_out) == 2


@pytest.mark.parametrize("target", ["portable", "torch"])
def test_they_convert(tmp_path, target):
    options = Options(device="cpu" if target == "torch" else None)
    made = convert(FOLDER / "zero3", to=target, out=tmp_path / "out", options=options)
    assert made.verification.weights.tensors == 11


def copied(tmp_path, stage="zero2"):
    shutil.copytree(FOLDER / stage, tmp_path / stage)
    return tmp_path / stage


def test_a_rank_that_is_missing_is_damage(tmp_path):
    folder = copied(tmp_path)
    next(folder.glob("*/zero_pp_rank_1_*")).unlink()
    with pytest.raises(CorruptError, match="has 1 of 2 ranks"):
        read(folder)
    next(folder.glob("*/zero_pp_rank_0_*")).unlink()
    with pytest.raises(CorruptError, match="holds no"):
        read(folder)


@pytest.mark.parametrize(
    "name", ["mp_rank_01_model_states.pt", "layer_01-model_00-model_states.pt",
             "expert_0_mp_rank_00_model_states.pt", "layer_0_expert_1_mp_rank_00_model_states.pt"]
)  # fmt: skip
def test_split_tensors_are_refused(tmp_path, name):
    folder = copied(tmp_path)
    shutil.copy(folder / "global_step2/mp_rank_00_model_states.pt", folder / "global_step2" / name)
    with pytest.raises(UnsupportedError, match="tensor or pipeline parallelism"):
        read(folder)


def test_without_zero_the_module_has_the_weights(tmp_path):
    """Such a file has no ``param_shapes``; here it is one by hand, with the archive's own bytes."""
    folder = tmp_path / "plain"
    folder.mkdir()
    source = FOLDER / "zero2/global_step2/mp_rank_00_model_states.pt"
    out = io.BytesIO()
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(out, "w") as into:
        for name in archive.namelist():
            data = archive.read(name)
            if name.endswith("data.pkl"):
                assert data.count(b"param_shapes") == 2  # frozen ones as well
                data = data.replace(b"frozen_param_shapes", b"frozen_param_sizes_")
                data = data.replace(b"param_shapes", b"param_sizes_")
            into.writestr(name, data)
    (folder / "mp_rank_00_model_states.pt").write_bytes(out.getvalue())
    found = read(folder)
    assert {"table.weight", "frozen.bias", "seen"} <= set(found.weights)


def test_two_files_of_one_rank_are_damage(tmp_path):
    folder = copied(tmp_path)
    one = next(folder.glob("*/zero_pp_rank_1_*"))
    shutil.copy(one, one.with_name(f"bf16_{one.name}"))
    with pytest.raises(CorruptError, match="is of the same rank"):
        read(folder)


def test_a_folder_that_names_no_step_is_none(tmp_path):
    for number, text in enumerate((b"gone", b"..", b"\xff\xfe", b"/tmp", b"a/../../b")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "latest").write_bytes(text)
        with pytest.raises(ConvertError, match="is not a model"):
            catalog.detect(Artifact(folder))


@pytest.mark.parametrize("seed", range(60))
def test_damage_is_said_and_nothing_else(tmp_path, seed):
    folder = copied(tmp_path, STAGES[seed % 3])
    files = sorted(folder.glob("*/*.pt"))
    path = files[seed % len(files)]
    path.write_bytes(damage(path.read_bytes(), random.Random(seed)))
    try:
        for tensor in read(folder).weights.values():
            tensor.tobytes()
    except ConvertError:
        pass


def vector(*values):
    data = np.array(values, "f4").tobytes()
    return Tensor.inline(DTYPES["float32"], (len(values),), data)


def test_runs_across_vectors():
    vectors = [vector(0, 1, 2), vector(3), vector(4, 5, 6, 7)]
    for start in range(8):
        for length in range(1, 9 - start):
            found = join(
                cut(vectors, start, length), (length,), "x", dtype=DTYPES["float32"]
            ).numpy()
            np.testing.assert_array_equal(found, np.arange(start, start + length))
    with pytest.raises(CorruptError, match="weights end at"):
        list(cut(vectors, 6, 3))
    with pytest.raises(CorruptError, match="4 of 5 elements"):
        join([Piece(vectors[2], 0, 4)], (5,), "x", dtype=DTYPES["float32"])
    empty = join([], (0, 3), "x", dtype=DTYPES["float32"])
    assert (empty.shape, empty.tobytes()) == ((0, 3), b"")
