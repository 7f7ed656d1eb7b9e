"""LoRA adapters merge into their bases as PEFT merges them (fixtures/peft/make.py)."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from repository import FIXTURES

import converter
from converter.normalise.adapters import merge_adapter
from converter.options import Options
from formats import catalog
from formats.artifact import Artifact
from formats.errors import CorruptError, UnsupportedError, UsageError

PEFT = FIXTURES / "peft"
KINDS = sorted(p.stem for p in PEFT.glob("*.adapter"))


def read(path: Path):
    return catalog.read(Artifact(path))


def copied(kind: str, folder: Path, **settings: object) -> Path:
    """Return a copy of an adapter with other settings."""
    shutil.copytree(PEFT / f"{kind}.adapter", folder)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_merged_model_is_the_one_that_peft_merges(kind: str, tmp_path: Path) -> None:
    out = tmp_path / "merged.safetensors"
    made = converter.convert(
        PEFT / f"{kind}.adapter", to="safetensors", out=out,
        options=Options(merge_adapter=PEFT / f"{kind}.base.safetensors"),
    )  # fmt: skip
    assert made.verification.level == "weights"
    found, expected = read(out).weights, read(PEFT / f"{kind}.merged.safetensors").weights
    base = read(PEFT / f"{kind}.base.safetensors").weights
    assert set(found) == set(expected)
    changed = 0
    for name, tensor in expected.items():
        ours, theirs = (np.asarray(t.numpy(), np.float64) for t in (found[name], tensor))
        assert found[name].dtype == tensor.dtype
        last_place = 2.0**-7 if tensor.dtype.name == "bfloat16" else 2.0**-22
        np.testing.assert_allclose(ours, theirs, atol=last_place * abs(theirs).max())
        changed += not np.array_equal(theirs, np.asarray(base[name].numpy(), np.float64))
    assert changed


def test_without_its_base_an_adapter_stays_whole_with_its_configuration(tmp_path: Path) -> None:
    made = converter.convert(PEFT / "lora.adapter", to="portable", out=tmp_path / "out")
    assert made.bundle.topology is not None
    assert made.bundle.topology.summary["peft_type"] == "LORA"
    assert set(read(tmp_path / "out").weights) == set(read(PEFT / "lora.adapter").weights)
    with pytest.raises(UnsupportedError, match="computes nothing without its base"):
        converter.convert(PEFT / "lora.adapter", to="onnx", out=tmp_path / "x.onnx")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"peft_type": "IA3"}, "adapters of kind IA3"),
        ({"init_lora_weights": "pissa_niter_4"}, "weights that pissa_niter_4 has changed"),
        ({"target_parameters": ["experts"]}, "target_parameters"),
    ],
)
def test_other_adapters_are_not_supported(settings: dict, message: str, tmp_path: Path) -> None:
    adapter = read(copied("lora", tmp_path / "a", **settings))
    with pytest.raises(UnsupportedError, match=message):
        merge_adapter(adapter, read(PEFT / "lora.base.safetensors"))


def test_an_adapter_of_another_base_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(CorruptError, match="does not fit the base's"):
        merge_adapter(read(copied("transposed", tmp_path / "a", fan_in_fan_out=False)),
                      read(PEFT / "transposed.base.safetensors"))  # fmt: skip
    with pytest.raises(CorruptError, match="no tensor for"):
        converter.convert(
            PEFT / "lora.adapter", to="safetensors", out=tmp_path / "x.safetensors",
            options=Options(merge_adapter=FIXTURES / "peft/lora.adapter/adapter_model.safetensors"),
        )  # fmt: skip
    assert not (tmp_path / "x.safetensors").exists()


def test_a_source_that_is_no_adapter_is_refused(tmp_path: Path) -> None:
    base = PEFT / "lora.base.safetensors"
    with pytest.raises(UsageError, match="merges an adapter, and the source is none"):
        converter.convert(
            base, to="safetensors", out=tmp_path / "x", options=Options(merge_adapter=base)
        )


def test_half_of_a_layer_is_a_corrupt_adapter() -> None:
    adapter = read(PEFT / "lora.adapter")
    name = next(n for n in adapter.weights if n.endswith("lora_B.weight"))
    adapter = type(adapter)(
        adapter.metadata, {k: v for k, v in adapter.weights.items() if k != name},
        topology=adapter.topology,
    )  # fmt: skip
    with pytest.raises(CorruptError, match="lacks lora_A or lora_B"):
        merge_adapter(adapter, read(PEFT / "lora.base.safetensors"))
