"""``--to hf``: weights as safetensors, and the files beside them as they are."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from repository import FIXTURES
from safetensors.numpy import load_file, save_file

import converter
from converter.normalise.quantized.schemes import find_floats
from converter.options import Options
from converter.write.hugging_face import changed_folder
from formats.artifact import Artifact
from formats.errors import CorruptError, UsageError

ADAPTER = FIXTURES / "peft/lora.adapter"


def folder_of(path: Path, **files: str) -> Path:
    path.mkdir()
    arrays = {name: np.full(300, i, "f4") for i, name in enumerate("abc")}
    save_file(arrays, path / "weights.safetensors")
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


def test_an_adapter_keeps_its_configuration_and_its_names(tmp_path: Path) -> None:
    converter.convert(ADAPTER, to="hf", out=tmp_path / "out")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "adapter_config.json", "adapter_model.safetensors",
    }  # fmt: skip
    found, expected = (
        load_file(p / "adapter_model.safetensors") for p in (tmp_path / "out", ADAPTER)
    )
    assert set(found) == set(expected)
    assert all(np.array_equal(found[name], array) for name, array in expected.items())


def test_shards_have_an_index_and_other_files_are_unchanged_but_code(tmp_path: Path) -> None:
    files = {"config__json": '{"model_type": "x"}', "merges__txt": "a b", "own__py": "1 / 0"}
    source, out = folder_of(tmp_path / "source", **files), tmp_path / "out"
    made = converter.convert(source, to="hf", out=out, options=Options(max_shard_size=2000))
    assert {p.name for p in out.iterdir()} == {
        "config.json", "merges.txt", "model.safetensors.index.json",
        "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors",
    }  # fmt: skip
    assert (out / "merges.txt").read_text() == "a b"
    assert [x.name for x in made.bundle.metadata.left_out] == ["own.py"]
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == {"a", "b", "c"}


def test_a_merged_adapter_has_the_files_of_its_base(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    weights = load_file(FIXTURES / "peft/lora.base.safetensors")
    save_file(weights, base / "model.safetensors")
    (base / "config.json").write_text('{"model_type": "x"}')
    options = Options(merge_adapter=base)
    converter.convert(ADAPTER, to="hf", out=tmp_path / "out", options=options)
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"config.json", "model.safetensors"}
    found = load_file(tmp_path / "out/model.safetensors")
    expected = load_file(FIXTURES / "peft/lora.merged.safetensors")
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, atol=1e-6)


def test_a_source_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs the configuration"):
        converter.convert(folder_of(tmp_path / "source"), to="hf", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_errors_name_the_source_and_not_the_changed_copy_of_it(tmp_path: Path) -> None:
    source = tmp_path / "a model"
    shutil.copytree(FIXTURES / "hf_quantized/gptq4_gpt2", source)
    bundle = find_floats(converter.read(source))[0]

    def fail() -> None:
        with changed_folder(bundle, Artifact(source)) as copy:
            path = str(copy.path)
            assert (path != str(source), copy.name) == (True, "a model")
            raise CorruptError(f"{path}/a.json", where=f"{path}/x", expected=path, hint=path)

    with pytest.raises(CorruptError) as raised:
        fail()
    assert str(raised.value) == f"{source}/x: {source}/a.json; expected {source}. {source}"
