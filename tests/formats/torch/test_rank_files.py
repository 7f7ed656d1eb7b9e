"""Files of ranks with parts of tensors, against the model that FSDP split (fixtures/fsdp)."""

import random
import shutil

import numpy as np
import pytest
from attacks.pickles import (
    EMPTY_TUPLE,
    MARK,
    NEWOBJ,
    PROTO,
    STOP,
    build,
    call,
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

FOLDER = FIXTURES / "fsdp"
FORMS = ("sharded", "fully_shard", "mesh")


def read(path, form="torch-ranks"):
    return read_detected(path, form)


def expected():
    weights = catalog.read(Artifact(FOLDER / "expected.safetensors")).weights
    return {name: weight.numpy() for name, weight in weights.items()}


def check(found):
    whole = expected()
    weights = {name.removeprefix("model."): w for name, w in found.weights.items()}
    assert set(weights) == set(whole)
    for name, array in whole.items():
        assert weights[name].dtype.name == array.dtype.name
        np.testing.assert_array_equal(weights[name].numpy(), array, name)
    assert not found.metadata.left_out
    assert not found.metadata.tensor_notes


@pytest.mark.parametrize("form", FORMS)
def test_the_parts_of_all_ranks_are_joined(form):
    found = read(FOLDER / form)
    check(found)
    assert found.metadata.distribution == {"ranks": 4 if form == "mesh" else 2}


@pytest.mark.parametrize("form", FORMS)
def test_a_file_stands_for_those_of_all_ranks(form):
    check(read(max((FOLDER / form).iterdir())))


@pytest.mark.parametrize("target", ["portable", "torch"])
def test_they_convert(tmp_path, target):
    options = Options(device="cpu" if target == "torch" else None)
    made = convert(FOLDER / "mesh", to=target, out=tmp_path / "out", options=options)
    assert made.verification.weights.tensors == 9


def test_flat_parameters_are_refused():
    """Nothing records which parameters are in them."""
    with pytest.raises(UnsupportedError, match=r"as _flat_param: .* SHARDED_STATE_DICT"):
        read(FOLDER / "local")


@pytest.mark.parametrize("form", FORMS)
def test_a_file_under_another_name_is_refused_alone(tmp_path, form):
    for path in (FOLDER / form).iterdir():
        shutil.copy(path, tmp_path / "checkpoint.pt")
        with pytest.raises(UnsupportedError, match=r"parts of one rank.* all ranks"):
            read(tmp_path / "checkpoint.pt", "torch")


@pytest.mark.parametrize("form", FORMS)
def test_ranks_that_are_missing_or_there_twice_are_damage(tmp_path, form):
    shutil.copytree(FOLDER / form, tmp_path / "x")
    first, *_, last = sorted((tmp_path / "x").iterdir())
    again = last.with_name(last.name.replace("rank", "rank0").replace("rank0_", "rank_0"))
    shutil.copy(last, again)
    with pytest.raises(CorruptError, match="another file is of rank"):
        read(tmp_path / "x")
    again.unlink()
    last.unlink()
    with pytest.raises(CorruptError, match=r"has \d of \d ranks"):
        read(tmp_path / "x")
    shutil.copy(FOLDER / form / last.name, last)
    first.unlink()
    with pytest.raises(CorruptError, match="the file of rank 0 is not there"):
        read(tmp_path / "x")


def test_the_file_of_another_rank_is_damage(tmp_path):
    for form in FORMS:
        shutil.copytree(FOLDER / form, tmp_path / form)
        first, *_, last = sorted((tmp_path / form).iterdir())
        shutil.copy(first, last)
        with pytest.raises(CorruptError, match="do not fill"):
            read(tmp_path / form)


def test_a_folder_of_two_checkpoints_is_not_guessed(tmp_path):
    for step in ("ep0-ba1", "ep0-ba2"):
        for rank in (0, 1):
            source = FOLDER / f"sharded/pytorch_model_fsdp_rank{rank}.bin"
            shutil.copy(source, tmp_path / f"{step}-rank{rank}.pt")
            shutil.copy(source, tmp_path / f"optim-{step}-rank{rank}.pt")
    with pytest.raises(UnsupportedError, match="2 checkpoints of ranks"):
        read(tmp_path)
    check(read(tmp_path / "ep0-ba2-rank1.pt"))


def test_what_else_a_folder_has_is_named(tmp_path):
    shutil.copytree(FOLDER / "fully_shard", tmp_path / "x")
    for name in ("optim_world_size_2_rank_0.pt", "notes.md"):
        (tmp_path / "x" / name).write_bytes(b"x")
    left = {item.name: item.reason for item in read(tmp_path / "x").metadata.left_out}
    assert left == {"optim_world_size_2_rank_0.pt": "training state of one rank",
                    "notes.md": "another file of the folder"}  # fmt: skip


# -- DTensors assembled here ----------------------------------------------------------------------

MODULE = "torch.distributed.tensor."


def instance(cls, state, *args):
    made = call(cls, *args) if args else named(cls) + EMPTY_TUPLE + NEWOBJ
    return build(made, state)


def shard(dim, factor=None):
    if factor is None:
        return instance(f"{MODULE}placement_types.Shard", {"dim": dim})
    state = {"dim": dim, "split_factor": factor}
    return instance(f"{MODULE}placement_types._StridedShard", state)


REPLICATE = instance(f"{MODULE}placement_types.Replicate", {})
PARTIAL = instance(f"{MODULE}placement_types.Partial", {"reduce_op": "sum"})


def dtensor(key, part, shape, placements, sizes, at, **mesh):
    """Return a DTensor; its mesh is recorded as torch 2.10 does, or as ``mesh`` says."""
    layout = instance("torch.distributed._mesh_layout._MeshLayout", {"shape": sizes})
    about = {"_layout": layout, "_coordinate_on_dim": at} | mesh
    spec = {"mesh": instance("torch.distributed.device_mesh.DeviceMesh", about),
            "placements": placements}  # fmt: skip
    strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    cls = named(f"{MODULE}DTensor")
    made = (cls, named("torch.float32"), shape, strides, 0, named("torch.strided"), "cpu", False)
    state = {"_local_tensor": tensor(key, part.shape),
             "_spec": instance(f"{MODULE}_dtensor_spec.DTensorSpec", spec)}  # fmt: skip
    rebuild = named("torch._utils._rebuild_wrapper_subclass")
    return call("torch._tensor._rebuild_from_type_v2", rebuild, cls, made, (None, state))


def save(folder, parts):
    """Write files of ranks, each of one DTensor: opcodes and the part by rank."""
    folder.mkdir()
    for rank, (opcodes, part) in enumerate(parts):
        pickle = PROTO + call("collections.OrderedDict") + MARK + text("w") + opcodes + b"u" + STOP
        data = torch_zip(pickle, {"w": part, "mesh": np.arange(2)})
        (folder / f"model_rank{rank}.pt").write_bytes(data)
    return folder


def chunk(array, count, at, dim):
    """Return a part as `torch.chunk` cuts it: all have one size but the last ones."""
    run = -(-array.shape[dim] // count)
    box = [slice(None)] * array.ndim
    box[dim] = slice(run * at, run * (at + 1))
    return array[tuple(box)]


@pytest.mark.parametrize("shape", [(7, 5), (1, 3), (8, 8), (2, 9), (0, 3)])
@pytest.mark.parametrize("sizes", [(2, 2), (3, 2), (2, 3)])
@pytest.mark.parametrize("kind", ["rows and columns", "rows twice", "strided", "copies"])
def test_meshes(tmp_path, shape, sizes, kind):
    whole = np.random.default_rng(3).standard_normal(shape).astype("f4")
    parts = []
    for at in np.ndindex(*sizes):
        (first, second), (i, j) = sizes, at
        if kind == "rows and columns":
            placements, part = (shard(0), shard(1)), chunk(chunk(whole, first, i, 0), second, j, 1)
        elif kind == "rows twice":
            placements, part = (shard(0), shard(0)), chunk(chunk(whole, first, i, 0), second, j, 0)
        elif kind == "strided":  # tensor parallelism has split before FSDP does
            placements = (shard(0, second), shard(0))
            part = chunk(chunk(whole, second, j, 0), first, i, 0)
        else:
            placements, part = (REPLICATE, shard(1)), chunk(whole, second, j, 1)
        part = np.ascontiguousarray(part)
        parts.append((dtensor("0", part, shape, placements, sizes, at), part))
    found = read(save(tmp_path / "x", parts)).weights["w"]
    np.testing.assert_array_equal(found.numpy(), whole)


def test_other_placements_are_refused(tmp_path):
    part = np.zeros((2, 3), "f4")
    for number, (placement, message) in enumerate([
        (PARTIAL, "placed as Partial"), (shard(0, 3), "another stride"), (value(5), "placed as"),
    ]):  # fmt: skip
        parts = [(dtensor("0", part, (4, 3), (placement,), (2,), (i,)), part) for i in (0, 1)]
        with pytest.raises(UnsupportedError, match=message):
            read(save(tmp_path / f"{number}", parts))


def test_descriptions_that_do_not_fit_are_damage(tmp_path):
    part = np.zeros((2, 3), "f4")
    wrong = [
        ((4, 3), (shard(2),), (2,), (0,)), ((4, 3), (shard(-1),), (2,), (0,)),
        ((5, 3), (shard(0),), (2,), (0,)), ((4, 3), (shard(0),), (2,), (2,)),
        ((4, 3), (shard(0),), (2,), (0, 0)), ((4, 3), (), (2,), (0,)),
        ((4, 3), (shard(0),) * 9, (2,) * 9, (0,) * 9), ((4, 3), (shard(0),), (2,), "x"),
        ((4, 3), (shard(0),), (1 << 70,), (0,)), ((4, 3), (shard(0),), (0,), (0,)),
    ]  # fmt: skip
    for number, (shape, *more) in enumerate(wrong):
        parts = [(dtensor("0", part, shape, *more), part)] * 2
        with pytest.raises(CorruptError):
            read(save(tmp_path / f"{number}", parts))


def test_a_mesh_as_old_torch_records_it(tmp_path):
    whole = np.arange(12, dtype="f4").reshape(4, 3)
    parts = []
    for rank in (0, 1):
        part = whole[2 * rank : 2 * rank + 2]
        mesh = {"_layout": None, "mesh": tensor("1", (2,), kind="LongStorage")}
        parts.append((dtensor("0", part, (4, 3), (shard(0),), (), (rank,), **mesh), part))
    found = read(save(tmp_path / "x", parts)).weights["w"]
    np.testing.assert_array_equal(found.numpy(), whole)


def test_plain_tensors_that_differ_are_refused_but_for_statistics(tmp_path):
    part = np.zeros((2, 3), "f4")
    for name, is_own in (("x.running_mean", True), ("x.weight", False)):
        folder = tmp_path / name
        folder.mkdir()
        for rank in (0, 1):
            split = dtensor("0", part, (4, 3), (shard(0),), (2,), (rank,))
            entries = text("w") + split + text(name) + tensor("1", (2,))
            pickle = PROTO + call("collections.OrderedDict") + MARK + entries + b"u" + STOP
            arrays = {"w": part, "x": np.full(2, rank, "f4")}
            (folder / f"model_rank{rank}.pt").write_bytes(torch_zip(pickle, arrays))
        if is_own:
            found = read(folder)
            assert found.weights[name].numpy().tolist() == [0.0, 0.0]
            assert [item.name for item in found.metadata.left_out] == [f"{name} of rank 1"]
        else:
            with pytest.raises(UnsupportedError, match=r"1 tensor .*: x.weight"):
                read(folder)


@pytest.mark.parametrize("seed", range(60))
def test_damage_is_said_and_nothing_else(tmp_path, seed):
    form = FORMS[seed % 3]
    shutil.copytree(FOLDER / form, tmp_path / form)
    files = sorted((tmp_path / form).iterdir())
    path = files[seed // 3 % len(files)]
    path.write_bytes(damage(path.read_bytes(), random.Random(seed)))
    try:
        for weight in catalog.read(Artifact(tmp_path / form)).weights.values():
            weight.tobytes()
    except ConvertError as e:
        assert e.exit_code in (3, 4)
