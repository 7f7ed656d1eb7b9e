"""Declare the inputs of a model of transformers, from its ``forward``, configuration and processor.

Imports nothing of the project, as the other files of the child. Inputs have the names and dynamic
axes that Optimum gives them. Those that a model needs for training only, or fills in itself, are
not declared. Sizes are those of the configuration, or of the processor that lies in the folder:
Spec: https://huggingface.co/docs/optimum-onnx/onnx/usage_guides/export_a_model
"""

import inspect
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TEXT = ["batch", "sequence"]
DEFAULT_IMAGE = (224, 224)
# Models of these use the inputs of their encoder for the decoder, shifted.
SHIFTING = ("ForSequenceClassification", "ForQuestionAnswering")
FLOATS = (
    "pixel_values", "pixel_values_videos", "input_values", "input_features", "input_points",
    "past_values", "visual_feats", "visual_pos",
)  # fmt: skip
SOUNDS = {"input_values", "input_features"}
# Settings with the token of a text that an image or a sound takes the place of.
PLACEHOLDERS = (
    "image_token_id", "image_token_index", "video_token_id", "audio_token_id",
    "audio_token_index", "boi_token_id",
)  # fmt: skip
# Sizes of other free axes in examples. They differ; of sounds they are so long that several states
# remain after convolutions with strides: torch.export takes a size of 1 as a constant.
EXAMPLES = {"text_batch": 3, "image_batch": 2, "queries": 3, "choices": 3, "point_batch": 3,
            "points": 4, "patches": 24, "boxes": 5, "samples": 8000, "frames": 160}  # fmt: skip
# Settings with the length of the parts that a sequence is computed in: an example takes several.
CHUNKS = ("chunk_size", "mamba_chunk_size")
OF_VIDEOS = ("Timesformer", "VideoMAE", "Vivit")
TEXTUAL = ("ForConditionalGeneration", "LM", "ForSequenceClassification")
MULTIMODAL = ("image-text-to-text", "image-to-text", "automatic-speech-recognition")
TEXT_ALONE = "its graph takes text alone: images, sounds and videos are no inputs"


class UnservedError(Exception):
    """A model that no graph with plain inputs computes."""


@dataclass(frozen=True)
class Facts:
    """What tells the inputs of a model.

    Attributes:
        class_name: Of the model.
        parameters: Of its ``forward``.
        config: Its configuration.
        processor: Settings in ``preprocessor_config.json``.
        tokenizer: Settings in ``tokenizer_config.json``.
        is_contrastive: Whether it compares any number of texts with any number of images.
    """

    class_name: str
    parameters: tuple[str, ...]
    config: Any
    processor: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    is_contrastive: bool

    def part(self, *names: str) -> Any:
        """Return the first nested configuration of these names, or else the whole one."""
        found = (getattr(self.config, name, None) for name in names)
        return next((part for part in found if part is not None), self.config)


Shapes = dict[str, list[Any]]


def declare_inputs(
    model: Any, config: Any, folder: Path, task: str = ""
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return name, dtype and shape of each input that a model needs, and notes on others.

    Inputs are in the order of ``forward``.

    Args:
        model: The model.
        config: Its configuration.
        folder: The folder, with the configuration of its tokenizer or processor.
        task: What the model is for; empty is what its class says.

    Raises:
        UnservedError: It is not computed from plain inputs.
    """
    parameters = tuple(inspect.signature(model.forward).parameters)
    name = type(model).__name__
    facts = Facts(
        name, parameters, config, _read_json(folder / "preprocessor_config.json"),
        _read_json(folder / "tokenizer_config.json"), "For" not in name and _compares(model),
    )  # fmt: skip
    if "past_time_features" in parameters:
        raise UnservedError(f"{name} forecasts by sampling one step after another")
    shapes, others = _text(facts), _images(facts) | _sounds(facts) | _series(facts)
    has_places = any(getattr(config, n, None) is not None for n in PLACEHOLDERS)
    notes = []
    if not ("input_ids" in shapes and others and has_places):
        shapes |= others
    elif task in MULTIMODAL or not name.endswith(TEXTUAL):
        raise UnservedError(f"{name} puts images or sounds in the place of tokens of a text")
    else:
        notes.append(f"{name}: {TEXT_ALONE}")
    if shapes.keys() >= SOUNDS:  # for an encoder that takes one of them
        taken = inspect.signature(model.get_encoder().forward).parameters
        shapes = {n: shape for n, shape in shapes.items() if n not in SOUNDS or n in taken}
    if name.startswith("Pop2Piano"):  # its sounds take the place of all tokens
        shapes = {n: shape for n, shape in shapes.items() if shape != TEXT}
    chunk = _find_chunk(model, facts.part("text_config"))
    known = EXAMPLES | ({"sequence": 2 * chunk + 88} if chunk else {})
    return [_spec(n, shapes[n], known) for n in parameters if n in shapes], notes


def _spec(name: str, shape: list[Any], known: Mapping[str, int]) -> dict[str, Any]:
    sizes = {axis: [known[axis]] * 2 for axis in shape if axis in known}
    dtype = "float32" if name in FLOATS else "int64"
    spec: dict[str, Any] = {"name": name, "dtype": dtype, "shape": shape}
    if name == "bbox":  # an example of empty boxes: no right side lies left of a left side
        spec["high"] = 1
    return spec | ({"sizes": sizes} if sizes else {})


def _find_chunk(model: Any, config: Any) -> int | None:
    """Return the length of the parts that a sequence is computed in; None if it is not in parts.

    The configuration has it, or it is a default of a function in the model's file.
    """
    file = type(model).__module__
    functions = [
        f
        for f in vars(sys.modules[file]).values()
        if inspect.isfunction(f) and f.__module__ == file
    ]
    defaults = [inspect.signature(f).parameters.get("chunk_size") for f in functions]
    found = [getattr(config, name, None) for name in CHUNKS]
    found += [parameter.default for parameter in defaults if parameter is not None]
    return next((n for n in found if type(n) is int and n > 0), None)


def _compares(model: Any) -> bool:
    return hasattr(model, "get_text_features") and hasattr(model, "get_image_features")


def _text(facts: Facts) -> Shapes:
    """Return the shapes of tokens, of their masks and types, and of boxes around them."""
    shapes: Shapes = {}
    axes = TEXT
    if facts.is_contrastive:
        axes = ["text_batch", "sequence"]
    elif _finds_by_text(facts):
        axes = ["queries", "sequence"]
    elif facts.class_name.endswith("ForMultipleChoice"):
        axes = ["batch", "choices", "sequence"]
    if "input_ids" in facts.parameters:
        named = facts.tokenizer.get("model_input_names")
        expected = named if isinstance(named, list) else ["input_ids", "attention_mask"]
        text = facts.part("text_config")
        if named is None and getattr(text, "type_vocab_size", 0) > 1:
            expected = [*expected, "token_type_ids"]
        shapes |= dict.fromkeys(["input_ids", *expected], axes)
        shapes |= {"bbox": [*axes, 4]} if "bbox" in facts.parameters else {}
    if "decoder_input_ids" in facts.parameters and not facts.class_name.endswith(SHIFTING):
        channels = getattr(facts.part("decoder_config"), "num_channels", None)
        streams = [channels] if "input_ids" in shapes and channels else []  # codes of sounds
        shapes["decoder_input_ids"] = ["batch", "decoder_sequence", *streams]
    if "visual_feats" in facts.parameters:
        shapes["visual_feats"] = ["batch", "boxes", facts.config.visual_feat_dim]
        shapes["visual_pos"] = ["batch", "boxes", facts.config.visual_pos_dim]
    return shapes


def _finds_by_text(facts: Facts) -> bool:
    """Return whether texts, that are looked for in one image, are the rows of the tokens."""
    return facts.class_name.startswith("Owl") and facts.class_name.endswith("ForObjectDetection")


# -- images --------------------------------------------------------------------------------------


def _images(facts: Facts) -> Shapes:
    """Return the shapes of images or videos, and of points in them."""
    shapes: Shapes = {}
    vision = facts.part("vision_config")
    batch = "image_batch" if facts.is_contrastive else 1 if _finds_by_text(facts) else "batch"
    channels = _channels(vision)
    size = _image_size(facts)
    if "spatial_shapes" in facts.parameters:  # images of any size, as patches
        width = channels * vision.patch_size**2
        shapes["pixel_values"] = [batch, "patches", width]
        shapes["pixel_attention_mask"] = [batch, "patches"]
        shapes["spatial_shapes"] = [batch, 2]
    elif "pixel_values" in facts.parameters:
        frames = [vision.num_frames] if facts.class_name.startswith(OF_VIDEOS) else []
        shapes["pixel_values"] = [batch, *frames, channels, *size]
    if "pixel_values_videos" in facts.parameters:
        count = getattr(vision, "frames_per_clip", None) or getattr(vision, "num_frames", 16)
        shapes["pixel_values_videos"] = [batch, count, channels, *size]
    if "input_points" in facts.parameters:
        shapes["input_points"] = [batch, "point_batch", "points", 2]
        shapes["input_labels"] = [batch, "point_batch", "points"]
    return shapes


def _channels(vision: Any) -> int:
    found = (getattr(vision, name, None) for name in ("num_channels", "in_channels", "in_chans"))
    return int(next((n for n in found if n), 3))


def _image_size(facts: Facts) -> tuple[int, int]:
    """Return height and width as the configuration, or else the image processor, has them."""
    vision, processor = facts.part("vision_config", "encoder"), facts.processor
    own = (getattr(vision, name, None) for name in ("image_size", "crop_size", "input_size"))
    for size in (*own, processor.get("crop_size"), processor.get("size")):
        found = _pair(size)
        if found is not None:
            return found
    return DEFAULT_IMAGE


def _pair(size: Any) -> tuple[int, int] | None:
    if isinstance(size, int) and not isinstance(size, bool):
        return size, size
    if isinstance(size, (list, tuple)) and len(size) == 2:
        return int(size[0]), int(size[1])
    if isinstance(size, dict) and {"height", "width"} <= set(size):
        return int(size["height"]), int(size["width"])
    if isinstance(size, dict) and "shortest_edge" in size:
        return int(size["shortest_edge"]), int(size["shortest_edge"])
    return None


# -- sounds and series ---------------------------------------------------------------------------


def _sounds(facts: Facts) -> Shapes:
    """Return the shapes of samples or of spectrograms."""
    shapes: Shapes = {}
    if "input_values" in facts.parameters:
        bins = getattr(facts.config, "num_mel_bins", None)
        length = getattr(facts.config, "max_length", None)
        is_drawn = bins is not None and "decoder_input_ids" not in facts.parameters
        shapes["input_values"] = ["batch", length, bins] if is_drawn else ["batch", "samples"]
    if "input_features" in facts.parameters:
        shapes["input_features"] = _features(facts)
    return shapes


def _features(facts: Facts) -> list[Any]:
    """Return the shape of a spectrogram: Whisper's has a fixed length, with its bins first."""
    frames = getattr(facts.config, "max_source_positions", None)
    bins = getattr(facts.config, "num_mel_bins", None)
    if frames is not None and bins is not None:
        return ["batch", bins, 2 * frames]
    audio = facts.part("encoder_config", "audio_config")
    names = (
        "input_feat_per_channel", "feature_projection_input_dim", "num_mel_bins", "input_dim",
        "d_model",
    )  # fmt: skip
    bins = next((getattr(audio, n) for n in names if getattr(audio, n, None)), 80)
    return ["batch", "frames", bins]


def _series(facts: Facts) -> Shapes:
    """Return the shape of a time series up to now."""
    settings = [getattr(facts.config, n, None) for n in ("context_length", "num_input_channels")]
    if "past_values" not in facts.parameters or None in settings:
        return {}
    return {"past_values": ["batch", *settings]}


def _read_json(path: Path) -> dict[str, Any]:
    """Return an object from a file; an empty one if there is none."""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text("utf-8"))
        return found if isinstance(found, dict) else {}
    return {}
