"""Folders of diffusers and sentence-transformers are read as a whole, component by component."""

import json
from pathlib import Path

import numpy as np
import pytest
from repository import FIXTURES
from safetensors.numpy import save_file

import converter
from converter.options import Options
from formats import catalog, components
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.errors import CorruptError, SafetyError

INDEX = {
    "_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.42.1",
    "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "safety_checker": [None, None], "requires_safety_checker": False,
}  # fmt: skip
MODULES = [
    ("", "sentence_transformers.models.Transformer"),
    ("1_Pooling", "sentence_transformers.models.Pooling"),
    ("2_Dense", "sentence_transformers.models.Dense"),
]


def put(folder: Path, file: str, content: object, **tensors: list[float]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(content))
    arrays = {name: np.array(values, "f4") for name, values in tensors.items()}
    save_file(arrays, folder / file, {"format": "pt"})


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """Return a pipeline whose components have tensors of the same names."""
    folder = tmp_path / "pipeline"
    diffusion = "diffusion_pytorch_model.safetensors"
    put(folder / "unet", diffusion, {"_class_name": "UNet2DConditionModel"}, w=[1], b=[2])
    put(folder / "vae", diffusion, {"_class_name": "AutoencoderKL"}, w=[3])
    put(folder / "text_encoder", "model.safetensors", {"model_type": "clip_text_model"}, w=[4])
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer/vocab.json").write_text("{}")
    (folder / "model_index.json").write_text(json.dumps(INDEX))
    return folder


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    folder = tmp_path / "sentences"
    put(folder, "model.safetensors", {"model_type": "bert"}, w=[1, 2])
    put(folder / "2_Dense", "model.safetensors", {"in_features": 1}, w=[3])
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text("{}")
    write_modules(folder, MODULES)
    return folder


def write_modules(folder: Path, modules: list[tuple[str, str]]) -> None:
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": kind}
        for i, (path, kind) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(entries))


def read(folder: Path) -> Bundle:
    return catalog.read(Artifact(folder))


def values(bundle: Bundle) -> dict[str, list[float]]:
    return {name: tensor.numpy().tolist() for name, tensor in bundle.weights.items()}


def test_the_tensors_of_all_components_are_read_under_their_folders(pipeline: Path) -> None:
    bundle = read(pipeline)
    assert values(bundle) == {
        "unet/w": [1], "unet/b": [2], "vae/w": [3], "text_encoder/w": [4],
    }  # fmt: skip
    assert bundle.topology is not None
    assert bundle.topology.kind == components.DIFFUSERS
    assert {"model_index.json", "unet/config.json", "tokenizer/vocab.json"} <= {*bundle.assets}
    assert not bundle.metadata.left_out


def test_the_root_folder_of_a_model_of_sentences_keeps_its_names(sentences: Path) -> None:
    bundle = read(sentences)
    assert values(bundle) == {"w": [1, 2], "2_Dense/w": [3]}
    assert bundle.topology is not None
    assert bundle.topology.kind == components.SENTENCES


def test_one_module_in_the_root_folder_is_a_folder_as_any_other(sentences: Path) -> None:
    write_modules(sentences, MODULES[:1])
    assert catalog.detect(Artifact(sentences)).format.id == "safetensors"
    (sentences / "modules.json").write_text('{"a": 1}')
    assert catalog.detect(Artifact(sentences)).format.id == "safetensors"


def test_the_files_of_all_components_count_as_the_source(pipeline: Path) -> None:
    artifact = Artifact(pipeline)
    catalog.read(artifact)
    opened = {*artifact.opened}
    assert {f"{n}/config.json" for n in ("unet", "vae", "text_encoder")} <= opened
    assert "vae/diffusion_pytorch_model.safetensors" in opened


def test_of_several_copies_the_plain_one_is_read_and_the_others_are_named(pipeline: Path) -> None:
    unet = pipeline / "unet"
    copy = unet / "diffusion_pytorch_model.fp16.safetensors"
    save_file({"w": np.ones(1, "f2")}, copy)
    bundle = read(pipeline)
    assert values(bundle)["unet/w"] == [1]
    assert [x.name for x in bundle.metadata.left_out] == [f"unet/{copy.name}"]
    (unet / "diffusion_pytorch_model.safetensors").unlink()
    assert read(pipeline).weights["unet/w"].dtype.name == "float16"


def test_what_the_index_does_not_name_is_left_out_and_named(pipeline: Path) -> None:
    put(pipeline / "checkpoint-5", "model.safetensors", {}, w=[9])
    save_file({"all": np.ones(1, "f4")}, pipeline / "v1-5-pruned.safetensors")
    bundle = read(pipeline)
    assert "unet/w" in bundle.weights
    assert {x.name for x in bundle.metadata.left_out} == {"checkpoint-5", "v1-5-pruned.safetensors"}


def test_pickled_weights_and_inner_folders_are_read_too(sentences: Path) -> None:
    put(sentences / "2_Dense/0_Inner", "model.safetensors", {}, w=[7])
    assert values(read(sentences))["2_Dense/0_Inner/w"] == [7]


@pytest.mark.parametrize("path", ["../elsewhere", "/etc"])
def test_an_index_does_not_lead_out_of_its_folder(path: str, sentences: Path) -> None:
    write_modules(sentences, [*MODULES, (path, "sentence_transformers.models.Dense")])
    with pytest.raises(SafetyError, match="the index names the folder"):
        read(sentences)


def test_a_damaged_component_is_named(pipeline: Path) -> None:
    path = pipeline / "vae/diffusion_pytorch_model.safetensors"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(CorruptError, match="diffusion_pytorch_model"):
        read(pipeline)
    (pipeline / "model_index.json").write_text("{")
    with pytest.raises(CorruptError, match=r"model_index\.json"):
        read(pipeline)


def test_a_pipeline_becomes_one_file_with_all_tensors(pipeline: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    made = converter.convert(pipeline, to="safetensors", out=out)
    assert made.verification.level == "weights"
    assert values(read(out)) == values(read(pipeline))


@pytest.mark.parametrize("name", ["pipeline", "sentences"])
def test_each_component_gets_its_own_files_again(name: str, tmp_path: Path, request) -> None:
    folder, out = request.getfixturevalue(name), tmp_path / "out"
    converter.convert(folder, to="hf", out=out, options=Options(verify="weights"))
    there = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert there == {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", ["pipeline", "sentences"])
def test_folders_of_the_libraries_have_the_tensors_of_their_modules(name: str) -> None:
    bundle = read(FIXTURES / "components" / name)
    with np.load(FIXTURES / "components" / f"{name}.npz") as expected:
        assert {*bundle.weights} == {*expected.files}
        for key, tensor in bundle.weights.items():
            np.testing.assert_array_equal(tensor.numpy(), expected[key])
    assert not bundle.metadata.left_out
