"""Load a folder of Hugging Face's with transformers, and declare the inputs of its model.

Imports nothing of the project, as the other files of the child. The model is of the class that
``config.json`` names under ``architectures``, and transformers loads its weights, without network
and with torch's restricted unpickler. Code that lies in the folder runs only if its module is
trusted. Inputs have the names, dtypes and dynamic axes that Optimum gives them, and outputs the
names of the model's own, without hidden states and attentions:
Spec: https://huggingface.co/docs/optimum-onnx/onnx/usage_guides/export_a_model
"""

import importlib
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TEXT = ["batch", "sequence"]
DEFAULT_IMAGE = (224, 224)
COUNTER = ".num_batches_tracked"  # of steps of training: nothing is computed from it
# Models of these use the inputs of their encoder for the decoder, shifted.
SHIFTING = ("ForSequenceClassification", "ForQuestionAnswering")
# Optimum's name of a task -> the class that loads a model with the task's head.
TASKS = {
    "feature-extraction": "AutoModel", "fill-mask": "AutoModelForMaskedLM",
    "text-generation": "AutoModelForCausalLM", "text2text-generation": "AutoModelForSeq2SeqLM",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "image-classification": "AutoModelForImageClassification",
    "object-detection": "AutoModelForObjectDetection",
    "semantic-segmentation": "AutoModelForSemanticSegmentation",
    "zero-shot-image-classification": "AutoModelForZeroShotImageClassification",
    "audio-classification": "AutoModelForAudioClassification",
    "automatic-speech-recognition": "AutoModelForSpeechSeq2Seq",
    "image-to-text": "AutoModelForImageTextToText",
}  # fmt: skip


class UntrustedError(Exception):
    """The model's class is code that lies in the folder."""


class IncompleteError(Exception):
    """The folder lacks tensors of the model."""


def load(
    folder: Path, device: str, trusted: Mapping[str, Any], task: str | None = None
) -> tuple[Any, list[dict[str, Any]], list[str]]:
    """Return the model, its inputs (name, dtype and shape of each), and notes on its weights.

    Args:
        folder: The folder.
        device: Name of the device in torch.
        trusted: The user's modules, by name.
        task: Name in `TASKS`; by default the configuration decides.

    Raises:
        UntrustedError: The model's class is code in the folder that is not trusted.
        IncompleteError: Tensors of the model are missing.
        Exception: Whatever transformers raises.
    """
    transformers: Any = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    recorded = json.loads((folder / "config.json").read_text("utf-8"))
    own_code = find_own_code(transformers, recorded)
    check_trusted(folder, {own_code} - {""}, trusted)
    settings = {"local_files_only": True, "trust_remote_code": bool(own_code)}
    config = transformers.AutoConfig.from_pretrained(folder, **settings)
    config.use_cache = False
    loader = TASKS.get(task or "") or _find_class(transformers, recorded, own_code)
    model, found = getattr(transformers, loader).from_pretrained(
        folder, config=config, dtype="auto", attn_implementation="eager",
        output_loading_info=True, **settings,
    )  # fmt: skip
    missing = [n for n in sorted(found["missing_keys"]) if not n.endswith(COUNTER)]
    if missing:
        raise IncompleteError(
            f"lacks tensors of {type(model).__name__} ({len(missing)}): {missing[0]}"
        )
    unused = sorted(found["unexpected_keys"])
    said = f"{type(model).__name__} does not use all tensors"
    notes = [f"{said} ({len(unused)} are left): {', '.join(unused[:3])}"]
    return model.to(device), declare_inputs(model, config, folder), notes[: len(unused)]


def find_own_code(transformers: Any, recorded: Mapping[str, Any]) -> str:
    """Return the module of the folder that has the model's class; empty if transformers has it.

    Raises:
        UntrustedError: It is the module of another folder.
    """
    classes = recorded.get("auto_map") or {}
    places = [str(place) for name, place in classes.items() if name.startswith("AutoModel")]
    if not places or any(_is_model(transformers, n) for n in recorded.get("architectures") or []):
        return ""
    if any("--" in place for place in (*places, str(classes.get("AutoConfig")))):
        raise UntrustedError(f"it is that of another folder, {places[0]}, and is not run")
    return places[0].partition(".")[0]


def check_trusted(folder: Path, modules: Iterable[str], trusted: Mapping[str, Any]) -> None:
    """Raise UntrustedError if a module of a folder is not trusted."""
    for name in sorted(modules):
        if name not in trusted:
            raise UntrustedError(f"trust=['{name}={folder / name}.py']")


@contextmanager
def note_missing(transformers: Any) -> Iterator[list[str]]:
    """Collect the tensors that models loaded in this context lack.

    Another library that loads a model with transformers does not return them.
    """
    missing: list[str] = []
    plain = transformers.PreTrainedModel.__dict__["from_pretrained"]

    def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs["output_loading_info"] = True
        model, found = plain.__func__(cls, *args, **kwargs)
        missing.extend(sorted(found["missing_keys"]))
        return model

    transformers.PreTrainedModel.from_pretrained = classmethod(from_pretrained)
    try:
        yield missing
    finally:
        transformers.PreTrainedModel.from_pretrained = plain


def _is_model(transformers: Any, name: Any) -> bool:
    """Return whether this is the name of a class of models in transformers."""
    found = getattr(transformers, str(name), None)
    return isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)


def _find_class(transformers: Any, recorded: Mapping[str, Any], own_code: str) -> str:
    """Return the class that loads the model: its own, or the one that chooses by the type."""
    if own_code:
        names = [name for name in recorded["auto_map"] if name != "AutoConfig"]
        return next((n for n in names if n.startswith("AutoModel")), "AutoModel")
    names = recorded.get("architectures") or []
    return next((name for name in names if _is_model(transformers, name)), "AutoModel")


# -- inputs --------------------------------------------------------------------------------------


def declare_inputs(model: Any, config: Any, folder: Path) -> list[dict[str, Any]]:
    """Return name, dtype and shape of each input that a model needs, in the order of ``forward``.

    Args:
        model: The model.
        config: Its configuration.
        folder: The folder, with the configuration of its tokenizer or processor.
    """
    parameters = [*inspect.signature(model.forward).parameters]
    shapes = _shapes(type(model).__name__, parameters, config, folder)
    dtypes = {"pixel_values": "float32", "input_values": "float32", "input_features": "float32"}
    return [
        {"name": name, "dtype": dtypes.get(name, "int64"), "shape": shapes[name]}
        for name in parameters
        if name in shapes
    ]


def _shapes(
    class_name: str, parameters: list[str], config: Any, folder: Path
) -> dict[str, list[Any]]:
    """Return the shapes of the inputs that a model needs, by name."""
    shapes: dict[str, list[Any]] = {}
    if "input_ids" in parameters:
        named = _read_json(folder / "tokenizer_config.json").get("model_input_names")
        expected = named if isinstance(named, list) else ["input_ids", "attention_mask"]
        text = getattr(config, "text_config", None) or config
        if named is None and getattr(text, "type_vocab_size", 0) > 1:
            expected = [*expected, "token_type_ids"]
        shapes |= dict.fromkeys(["input_ids", *expected], TEXT)
        shapes |= {"bbox": [*TEXT, 4]} if "bbox" in parameters else {}
    if "decoder_input_ids" in parameters and not class_name.endswith(SHIFTING):
        shapes["decoder_input_ids"] = ["batch", "decoder_sequence"]
    processor = _read_json(folder / "preprocessor_config.json")
    if "pixel_values" in parameters:
        shapes["pixel_values"] = ["batch", _channels(config), *_image_size(config, processor)]
    if "input_values" in parameters:
        bins = getattr(config, "num_mel_bins", None)
        length = getattr(config, "max_length", None)
        shapes["input_values"] = ["batch", "samples"] if bins is None else ["batch", length, bins]
    if "input_features" in parameters:
        shapes["input_features"] = _features(config)
    return shapes


def _features(config: Any) -> list[Any]:
    """Return the shape of a spectrogram: Whisper's has a fixed length, with its bins first."""
    frames = getattr(config, "max_source_positions", None)
    bins = getattr(config, "num_mel_bins", None)
    if frames is not None and bins is not None:
        return ["batch", bins, 2 * frames]
    names = ("input_feat_per_channel", "feature_projection_input_dim", "num_mel_bins")
    bins = next((getattr(config, n) for n in names if getattr(config, n, None)), 80)
    return ["batch", "frames", bins]


def _channels(config: Any) -> int:
    vision = getattr(config, "vision_config", None) or config
    return int(getattr(vision, "num_channels", None) or getattr(vision, "in_channels", None) or 3)


def _image_size(config: Any, processor: Mapping[str, Any]) -> tuple[int, int]:
    """Return height and width as the configuration, or else the image processor, has them."""
    vision = getattr(config, "vision_config", None) or getattr(config, "encoder", None) or config
    for size in (getattr(vision, "image_size", None), processor.get("crop_size"),
                 processor.get("size")):  # fmt: skip
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


def _read_json(path: Path) -> dict[str, Any]:
    """Return an object from a file; an empty one if there is none."""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text("utf-8"))
        return found if isinstance(found, dict) else {}
    return {}
