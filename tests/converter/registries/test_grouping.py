"""Which names of a folder are one artifact, without any folder."""

from collections.abc import Mapping
from pathlib import PurePosixPath

import pytest

from converter.registries.grouping.division import Division, Listing
from converter.registries.grouping.rules import RULES, divide


def divided(files: Mapping[str, bytes], label: str = "model") -> Division:
    """Divide a folder of these files, by name relative to it."""
    top = sorted(n for n in files if "/" not in n)
    folders = sorted({n.partition("/")[0] for n in files if "/" in n})

    def read(name: str, most: int) -> bytes:
        return files[name] if len(files[name]) <= most else b""

    def head(name: str, most: int) -> bytes:
        return files[name][:most]

    def inside(folder: str) -> list[str]:
        below = (n.removeprefix(f"{folder}/") for n in files if n.startswith(f"{folder}/"))
        return sorted({n.partition("/")[0] for n in below})

    return divide(Listing(label, top, folders, read, head, inside))


def names(text: str) -> dict[str, bytes]:
    return dict.fromkeys(text.split(), b"")


LOCATION = b"\n\x08location\x12"

# Files of a folder; what groups open and are called; names left alone; names that are none.
ROWS = [
    ("a.h5 b.pt c.txt", {}, "a.h5 b.pt c.txt", ""),
    ("MLmodel data/model.pth conda.yaml", {"": ""}, "", ""),
    ("config.pbtxt 1/model.onnx labels.txt", {"": ""}, "labels.txt", ""),
    ("config.pbtxt 1/model.onnx/m.onnx 1/model.onnx/m.data", {"": ""}, "", ""),
    ("config.pbtxt 2/model.onnx 10/model.onnx 10/w.data", {"": ""}, "", "2"),
    ("config.pbtxt 1/model.plan", {}, "config.pbtxt", ""),
    ("config.pbtxt model.onnx", {}, "config.pbtxt model.onnx", ""),
    ("saved_model.pb variables/x assets/y other/z frozen.pb", {"": ""}, "frozen.pb", ""),
    ("saved_model.pbtxt fingerprint.pb", {"": ""}, "", ""),
    ("config.json metadata.json model.weights.h5 tokenizer.json", {"": ""}, "tokenizer.json", ""),
    ("__0_0.distcp __1_0.distcp .metadata notes.md", {"": ""}, "notes.md", ""),
    ("mp_rank_00_model_states.pt zero_pp_rank_0_mp_rank_00_optim_states.pt", {"": ""}, "", ""),
    ("mp_rank_00/model_optim_rng.pt mp_rank_01/model_optim_rng.pt notes.md", {"": ""}, "notes.md",
     ""),
    ("mp_rank_00/notes.md a.pt", {}, "a.pt", ""),
    ("__0_0.distcp .metadata common.pt metadata.json", {"": ""}, "", ""),
    ("__0_0.distcp .metadata metadata.json", {"": ""}, "metadata.json", ""),
    ("__0_0.distcp .metadata meta.pt", {"": ""}, "", ""),
    ("m_rank0.pt m_rank1.pt", {}, "m_rank0.pt m_rank1.pt", ""),  # whole models, for all we know
    ("config.json model.safetensors", {"": ""}, "", ""),
    ("config.json model.safetensors model.fp16.safetensors", {"model.safetensors": ""}, "",
     "model.fp16.safetensors"),
    ("config.json model.safetensors pytorch_model.bin consolidated.00.pth", {"": ""},
     "consolidated.00.pth", "pytorch_model.bin"),
    ("config.json diffusion_pytorch_model.safetensors diffusion_pytorch_model.bin", {"": ""}, "",
     "diffusion_pytorch_model.bin"),
    ("adapter_config.json adapter_model.bin", {"": ""}, "", ""),
    ("config.json model.onnx model_fp16.onnx", {"model.onnx": ""}, "", "model_fp16.onnx"),
    ("config.json encoder_model.onnx decoder_model.onnx", {},
     "config.json decoder_model.onnx encoder_model.onnx", ""),
    ("config.json onnx/model.onnx onnx/model_q4.onnx", {"onnx/model.onnx": ""}, "",
     "onnx/model_q4.onnx"),
    ("model.safetensors model.bin", {}, "model.bin model.safetensors", ""),
    ("pytorch_model.bin.index.json pytorch_model-00001-of-00002.bin", {"": ""}, "", ""),
    ("a-00001-of-00002.bin a-00002-of-00002.bin", {"": ""}, "", ""),
    ("a-00001-of-00002.bin a-00002-of-00002.bin b.bin", {},
     "a-00001-of-00002.bin a-00002-of-00002.bin b.bin", ""),
    ("m.weights.json m_00000.weights.h5 m_00001.weights.h5 n.weights.h5",
     {"m.weights.json": "m.weights.json"}, "n.weights.h5", ""),
    ("trainer_state.json optimizer.pt rng_state_0.pth model.pt", {}, "model.pt trainer_state.json",
     "optimizer.pt rng_state_0.pth"),
    ("model.safetensors optimizer.bin random_states_0.pkl", {}, "model.safetensors",
     "optimizer.bin random_states_0.pkl"),
    ("optimizer.pt model.pt", {}, "model.pt optimizer.pt", ""),
    ("ckpt-1.index ckpt-1.data-00000-of-00001 ckpt-1.meta ckpt-2.index ckpt-2.data-00000-of-00001",
     {"ckpt-1": "ckpt-1", "ckpt-2": "ckpt-2"}, "", ""),
    ("c.index c.data-00000-of-00001 c", {"c.index": "c"}, "c", ""),
    ("c.data-00000-of-00002 c.data-00001-of-00002",
     {"c.data-00000-of-00002": "c.data-00000-of-00002"}, "", ""),
    ("faiss.index", {}, "faiss.index", ""),
    ("v1-00000-of-00002 v1-00001-of-00002 v1.meta", {"v1-00000-of-00002": "v1"}, "", ""),
    ("export export.meta", {"export": "export"}, "", ""),
    ("alone.meta", {}, "alone.meta", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "groups", "alone", "skipped"), ROWS, ids=[row[0][:40] for row in ROWS]
)
def test_what_belongs_together(
    files: str, groups: dict[str, str], alone: str, skipped: str
) -> None:
    found = divided(names(files))
    assert {g.paths[0]: g.called for g in found.groups} == groups
    assert sorted(found.files) == alone.split()
    assert sorted(found.skipped) == skipped.split()
    # Nothing is lost, and nothing is in two places.
    named = [*found.files, *found.skipped, *(n for g in found.groups for n in g.files)]
    tops = {n for n in files.split() if "/" not in n}
    inside = {n for g in found.groups for n in g.folders} | set(found.folders)
    assert len(set(named)) == len(named)
    assert tops <= set(named)
    for name in set(files.split()) - tops:
        folders = {str(folder) for folder in PurePosixPath(name).parents}
        assert name in named or folders & (inside | set(found.skipped))


def test_files_of_ranks_that_hold_parts_of_tensors() -> None:
    parts = b"torch.distributed.tensor.DTensor"
    files = {"a_rank0.pt": parts, "a_rank1.pt": b"", "optim_rank0.pt": parts, "x.pt": b""}
    found = divided(files)
    assert [(g.paths, g.files) for g in found.groups] == [
        (("", "a_rank0.pt"), ("a_rank0.pt", "a_rank1.pt"))
    ]
    assert (list(found.files), list(found.skipped)) == (["x.pt"], ["optim_rank0.pt"])
    found = divided({f"ba{step}-rank{rank}.pt": parts for step in (1, 2) for rank in (0, 1)})
    assert [g.called for g in found.groups] == ["ba1-rank0.pt", "ba2-rank0.pt"]


def test_a_configuration_says_what_triton_serves() -> None:
    files = names("1/model.onnx 2/model.onnx 2/net.onnx")

    def served(text: bytes) -> tuple[list[tuple[str, ...]], list[str]]:
        found = divided({**files, "config.pbtxt": text})
        return [group.files for group in found.groups], sorted(found.skipped)

    newest = ("config.pbtxt", "2/model.onnx", "2/net.onnx")
    assert served(b'backend: "onnxruntime"') == ([newest], ["1"])
    assert served(b'default_model_filename: "net.onnx"') == ([newest], ["1"])
    one = b"version_policy { specific { versions: [1] } }"
    assert served(one) == ([("config.pbtxt", "1/model.onnx")], ["2"])
    assert served(b'platform: "tensorrt_plan"') == ([], [])
    assert served(b"no { message") == ([], [])


def test_arrays_of_zarr_that_a_checkpoint_has() -> None:
    config = b'{"sharded_backend": "zarr"}'
    files = {"metadata.json": config, "common.pt": b"", "w/.zarray": b"", "s/shard_0_1.pt": b""}
    (group,) = divided(files).groups
    assert (group.kind, group.folders) == ("torch-zarr", ("s", "w"))
    assert not divided({**files, "metadata.json": b"{}"}).groups


def test_an_optimizer_that_was_saved_like_a_model_is_none() -> None:
    found = divided(names("__0_0.distcp .metadata"), "optimizer_0")
    assert not found.groups
    assert found.skipped == {"__0_0.distcp": "training state beside a model"}
    found = divided(names("mp_rank_00_model_states.pt x_optim_states.pt"), "global_step10")
    (group,) = found.groups  # DeepSpeed's weights are in the optimizer's files
    assert group.files == ("mp_rank_00_model_states.pt", "x_optim_states.pt")


def test_files_that_a_graph_names_belong_to_it() -> None:
    long = b"n" * 200 + b".data"
    content = LOCATION + b"\x0aweights.01" + b"xx" + LOCATION + b"\xcd\x01" + long
    files = {"m.onnx": content, "weights.01": b"", long.decode(): b"", "weights.02": b""}
    found = divided(files)
    assert [set(g.files) for g in found.groups] == [{"m.onnx", "weights.01", long.decode()}]
    assert list(found.files) == ["weights.02"]


def test_a_graph_is_read_only_where_something_may_belong_to_it() -> None:
    looked = []

    def read(name: str, most: int) -> bytes:
        looked.append(name)
        return b""

    for beside, expected in ((["a.json", "b.onnx"], []), (["weights"], ["m.onnx"])):
        files = sorted(["m.onnx", *beside])
        divide(Listing("x", files, [], read, read, lambda _: ()))
        assert looked == expected


def test_a_damaged_index_has_the_shards_that_its_name_says() -> None:
    files = names("llm.safetensors.index.json llm-00001-of-00009.safetensors x.safetensors")
    files["llm.safetensors.index.json"] = b'{"weight_map": {"a": ['
    found = divided(files)
    (group,) = found.groups
    assert group.files == ("llm.safetensors.index.json", "llm-00001-of-00009.safetensors")
    assert list(found.files) == ["x.safetensors"]


@pytest.mark.parametrize(
    "text",
    [b"[]", b"3", b'{"weight_map": 3}', b'{"weight_map": {"a": {}}}', b"\xff", b"[" * 10_000],
)
def test_an_index_of_anything(text: bytes) -> None:
    files = names("m.bin.index.json other.bin")
    files["m.bin.index.json"] = text
    found = divided(files)
    assert [g.files for g in found.groups] == [("m.bin.index.json",)]


def test_every_rule_is_one_that_some_row_needs() -> None:
    for rule in RULES:
        changed = False
        for files, *_ in [*ROWS, ("m.onnx w",), ("model_index.json unet/config.json",)]:
            content = names(files)
            if "m.onnx" in content:
                content["m.onnx"] = LOCATION + b"\x01w"
            if "m_rank0.pt" in content:
                content["m_rank0.pt"] = b"DTensor"
            if "model_index.json" in content:
                content["model_index.json"] = (
                    b'{"_class_name": "P", "unet": ["diffusers", "UNet2DModel"]}'
                )
            found = Division(divided(content).listing)
            rule(found)
            changed |= bool(found.groups or found.skipped)
        assert changed or rule.__name__ == "find_portable", rule
