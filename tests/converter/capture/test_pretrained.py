"""The inputs that models of Hugging Face folders are declared with, without transformers."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from repository import FIXTURES, ROOT

import converter
from converter.capture import capture_graph, model_inputs
from converter.capture.pretrained import TASKS
from converter.extras import describe_install
from converter.options import Options
from formats.errors import DependencyError, UnsupportedError, UsageError

SEQUENCE, DECODER = ["batch", "sequence"], ["batch", "decoder_sequence"]


def declared(
    tmp_path: Path,
    parameters: str,
    class_name: str = "Model",
    methods: dict | None = None,
    **config: object,
):
    """Return the shapes of inputs by name, of a class whose forward has these parameters."""
    space: dict[str, object] = {}
    exec(f"def forward(self, {parameters}): ...", space)
    model = type(class_name, (), {"forward": space["forward"], **(methods or {})})()
    specs, _ = model_inputs.declare_inputs(model, SimpleNamespace(**config), tmp_path)
    return {spec["name"]: (spec["dtype"], spec["shape"]) for spec in specs}


def test_text_has_token_types_where_the_configuration_has_several(tmp_path: Path) -> None:
    parameters = "input_ids, attention_mask, token_type_ids, position_ids, labels"
    plain = {"input_ids": ("int64", SEQUENCE), "attention_mask": ("int64", SEQUENCE)}
    assert declared(tmp_path, parameters, type_vocab_size=1) == plain
    typed = {**plain, "token_type_ids": ("int64", SEQUENCE)}
    assert declared(tmp_path, parameters, type_vocab_size=2) == typed
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"model_input_names": ["input_ids", "attention_mask"]})
    )
    assert declared(tmp_path, parameters, type_vocab_size=2) == plain


def test_a_decoder_has_its_own_tokens_but_not_for_classification(tmp_path: Path) -> None:
    parameters = "input_ids, attention_mask, decoder_input_ids"
    found = declared(tmp_path, parameters, "BartForConditionalGeneration")
    assert found["decoder_input_ids"] == ("int64", DECODER)
    found = declared(tmp_path, parameters, "BartForSequenceClassification")
    assert "decoder_input_ids" not in found


@pytest.mark.parametrize(
    ("config", "processor", "size"),
    [
        ({"image_size": 30}, {}, (30, 30)),
        ({"image_size": [20, 40]}, {"size": 8}, (20, 40)),
        ({"vision_config": SimpleNamespace(image_size=48, num_channels=3)}, {}, (48, 48)),
        ({}, {"crop_size": {"height": 56, "width": 64}, "size": {"shortest_edge": 72}}, (56, 64)),
        ({}, {"size": {"shortest_edge": 72}}, (72, 72)),
        ({}, {}, (224, 224)),
    ],
)
def test_images_have_the_size_of_the_configuration_or_the_processor(
    config: dict, processor: dict, size: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    found = declared(tmp_path, "pixel_values", **config)
    assert found == {"pixel_values": ("float32", ["batch", 3, *size])}


def test_sound_is_samples_or_a_spectrogram(tmp_path: Path) -> None:
    assert declared(tmp_path, "input_values") == {"input_values": ("float32", ["batch", "samples"])}
    found = declared(tmp_path, "input_values", num_mel_bins=16, max_length=64)
    assert found == {"input_values": ("float32", ["batch", 64, 16])}
    found = declared(tmp_path, "input_features", num_mel_bins=16, max_source_positions=50)
    assert found == {"input_features": ("float32", ["batch", 16, 100])}
    found = declared(tmp_path, "input_features", input_feat_per_channel=40)
    assert found == {"input_features": ("float32", ["batch", "frames", 40])}


def test_texts_and_images_that_are_compared_have_batches_of_their_own(tmp_path: Path) -> None:
    parameters = "input_ids, pixel_values, attention_mask"
    paired = declared(tmp_path, parameters, image_size=8)
    assert [shape[0] for _, shape in paired.values()] == ["batch"] * 3
    texts = dict.fromkeys(("get_text_features", "get_image_features"))
    found = declared(tmp_path, parameters, "ClipModel", methods=texts, image_size=8)
    assert found["input_ids"][1] == found["attention_mask"][1] == ["text_batch", "sequence"]
    assert found["pixel_values"][1] == ["image_batch", 3, 8, 8]
    found = declared(tmp_path, parameters, "OwlViTForObjectDetection", image_size=8)
    assert [shape[0] for _, shape in found.values()] == ["queries", 1, "queries"]


def test_inputs_of_other_tasks(tmp_path: Path) -> None:
    found = declared(tmp_path, "input_ids, attention_mask", "BertForMultipleChoice")
    assert found["input_ids"][1] == ["batch", "choices", "sequence"]
    found = declared(tmp_path, "past_values", context_length=9, num_input_channels=2)
    assert found == {"past_values": ("float32", ["batch", 9, 2])}
    found = declared(tmp_path, "pixel_values", "VivitModel", image_size=8, num_frames=4)
    assert found["pixel_values"][1] == ["batch", 4, 3, 8, 8]
    found = declared(
        tmp_path, "pixel_values, pixel_attention_mask, spatial_shapes", patch_size=4, image_size=8
    )
    assert [shape for _, shape in found.values()] == [
        ["batch", "patches", 48], ["batch", "patches"], ["batch", 2],
    ]  # fmt: skip
    found = declared(tmp_path, "pixel_values, input_points, input_labels", image_size=8)
    assert found["input_points"] == ("float32", ["batch", "point_batch", "points", 2])
    audio = SimpleNamespace(num_mel_bins=24)
    found = declared(tmp_path, "input_features, attention_mask", encoder_config=audio)
    assert found == {"input_features": ("float32", ["batch", "frames", 24])}


def test_images_in_the_place_of_tokens_are_no_inputs_and_that_is_said(tmp_path: Path) -> None:
    parameters = "input_ids, pixel_values, attention_mask"
    settings = {"image_token_index": 7, "image_size": 8}
    found = declared(tmp_path, parameters, "LlavaForConditionalGeneration", **settings)
    assert [*found] == ["input_ids", "attention_mask"]
    with pytest.raises(model_inputs.UnservedError, match="in the place of tokens"):
        declared(tmp_path, parameters, "GemmaForImageClassification", **settings)
    with pytest.raises(model_inputs.UnservedError, match="forecasts by sampling"):
        declared(tmp_path, "past_values, past_time_features")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import numpy as np
    from safetensors.numpy import save_file

    made = tmp_path / "model"
    made.mkdir()
    save_file({"w": np.ones(3, "f4")}, made / "model.safetensors")
    (made / "config.json").write_text('{"model_type": "bert"}')
    return made


def test_without_transformers_the_extra_is_named(folder: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv(capture_graph.TORCH_PYTHON_VARIABLE, raising=False)
    monkeypatch.setattr(capture_graph.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DependencyError, match="needs transformers") as caught:
        converter.convert(folder, to="onnx", out=tmp_path / "x.onnx")
    assert describe_install("transformers") in str(caught.value)
    made = converter.convert(folder, to="portable", out=tmp_path / "out")
    (left_out,) = made.bundle.metadata.left_out
    assert (left_out.name, "transformers" in left_out.reason) == ("graph (hf_config)", True)
    assert not (tmp_path / "out" / "model.onnx").exists()


def test_a_task_is_for_folders_of_transformers_and_is_one_that_is_known(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "x.onnx"
    with pytest.raises(UsageError, match="task 'sing' is not known"):
        converter.convert(folder, to="onnx", out=out, options=Options(task="sing"))
    source = FIXTURES / "keras/keras30_functional.keras"
    with pytest.raises(UsageError, match="no Hugging Face folder"):
        converter.convert(source, to="onnx", out=out, options=Options(task="fill-mask"))


@pytest.mark.parametrize(
    ("config", "extra"),
    [
        ({"_class_name": "UNet2DModel"}, "diffusers"),
        ({"architecture": "resnet18", "num_classes": 3}, "timm"),
    ],
)
def test_a_configuration_of_another_library_takes_that_library(
    config: dict, extra: str, folder: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.delenv(capture_graph.TORCH_PYTHON_VARIABLE, raising=False)
    monkeypatch.setattr(capture_graph.importlib.util, "find_spec", lambda name: None)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(DependencyError, match=f"needs {extra}") as caught:
        converter.convert(folder, to="onnx", out=tmp_path / "x.onnx")
    assert describe_install(extra) in str(caught.value)


def test_a_configuration_of_no_library_is_not_supported(folder: Path, tmp_path: Path) -> None:
    (folder / "config.json").write_text('{"layers": 3}')
    with pytest.raises(UnsupportedError, match="no model of transformers"):
        converter.convert(folder, to="onnx", out=tmp_path / "x.onnx")


def test_the_documents_list_the_tasks_that_are_served() -> None:
    text = (ROOT / "docs" / "hugging-face.md").read_text()
    table = text.partition("## Tasks")[2].partition("\nImages have")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)} == {*TASKS}
