"""Load a folder of Hugging Face's with transformers, and declare the inputs of its model.

Imports nothing of the project, as the other files of the child. The model is of the class that
``config.json`` names under ``architectures``, and transformers loads its weights, without network
and with torch's restricted unpickler. Code that lies in the folder runs only if its module is
trusted. Inputs have the names, dtypes and dynamic axes that Optimum gives them, and outputs the
names of the model's own, without hidden states and attentions. The key-value cache of a decoder is
among them if the task ends in ``-with-past``:
Spec: https://huggingface.co/docs/optimum-onnx/onnx/usage_guides/export_a_model
"""

import importlib
import inspect
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

TEXT = ["batch", "sequence"]
DEFAULT_IMAGE = (224, 224)
# Models of these use the inputs of their encoder for the decoder, shifted.
SHIFTING = ("ForSequenceClassification", "ForQuestionAnswering")
NOT_OUTPUTS = ("loss",)
WITH_PAST = "-with-past"
TOTAL = "past_sequence + sequence"  # what an attention mask covers
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
}  # fmt: skip


class UntrustedError(Exception):
    """The model's class is code that lies in the folder."""


class IncompleteError(Exception):
    """The folder lacks tensors of the model."""


def load(
    torch: Any, folder: Path, device: str, trusted: Mapping[str, Any], task: str | None = None
) -> tuple[Any, list[dict[str, Any]]]:
    """Return the model as a module of tensors, and its inputs: name, dtype and shape of each.

    Args:
        torch: The module.
        folder: The folder.
        device: Name of the device in torch.
        trusted: The user's modules, by name.
        task: Name in `TASKS`, which may end in `WITH_PAST`; by default the configuration decides.

    Raises:
        UntrustedError: The model's class is code in the folder that is not trusted.
        IncompleteError: Tensors of the model are missing.
        Exception: Whatever transformers raises.
    """
    transformers: Any = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    recorded = json.loads((folder / "config.json").read_text("utf-8"))
    own_code = _find_own_code(transformers, recorded)
    if own_code and own_code not in trusted:
        raise UntrustedError(f"trust=['{own_code}={folder / own_code}.py']")
    settings = {"local_files_only": True, "trust_remote_code": bool(own_code)}
    config = transformers.AutoConfig.from_pretrained(folder, **settings)
    config.use_cache = False
    asked = (task or "").removesuffix(WITH_PAST)
    loader = TASKS.get(asked) or _find_class(transformers, recorded, own_code)
    model, found = getattr(transformers, loader).from_pretrained(
        folder, config=config, dtype="auto", attn_implementation="eager",
        output_loading_info=True, **settings,
    )  # fmt: skip
    missing = sorted(found["missing_keys"])
    if missing:
        raise IncompleteError(
            f"lacks {len(missing)} tensors of {type(model).__name__}: {missing[0]}"
        )
    inputs = declare_inputs(model, config, folder)
    model = model.to(device)
    if task is not None and task.endswith(WITH_PAST):
        return _with_past(torch, transformers, model, inputs)
    return _as_module(torch, model, [spec["name"] for spec in inputs], _call), inputs


def _find_own_code(transformers: Any, recorded: Mapping[str, Any]) -> str:
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


def _as_module(torch: Any, model: Any, names: list[str], call: Callable[..., Any]) -> Any:
    """Return a module whose ``forward`` takes tensors of these names and returns a dict of them."""
    own = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in ("self", *names)]
    signature = inspect.Signature(own)

    def forward(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        given = dict(signature.bind(self, *args, **kwargs).arguments)
        del given["self"]
        result = call(self.model, given)
        return {name: value for name, value in result.items() if isinstance(value, torch.Tensor)}

    forward.__signature__ = signature  # type: ignore[attr-defined]
    module = type(type(model).__name__, (torch.nn.Module,), {"forward": forward})()
    module.model = model
    return module


def _call(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    result = model(**given, return_dict=True)
    return {name: value for name, value in result.items() if name not in NOT_OUTPUTS}


def _with_past(
    torch: Any, transformers: Any, model: Any, inputs: list[dict[str, Any]]
) -> tuple[Any, list[dict[str, Any]]]:
    """Return a decoder whose key-value cache is among its inputs and outputs, and its inputs.

    Raises:
        ValueError: Its cache is no plain list of keys and values.
    """
    kept = [spec for spec in inputs if spec["name"] in ("input_ids", "attention_mask")]
    if "position_ids" in inspect.signature(model.forward).parameters:
        kept.append({"name": "position_ids", "dtype": "int64", "shape": TEXT})
    example = torch.ones(1, 2, dtype=torch.int64, device=model.device)
    with torch.no_grad():
        cache = model(input_ids=example, use_cache=True).past_key_values
    layers = getattr(cache, "layers", None) or []
    if not layers or any(type(layer).__name__ != "DynamicLayer" for layer in layers):
        raise ValueError("a key-value cache that is no plain list of keys and values")
    for i, layer in enumerate(layers):
        for kind, tensor in (("key", layer.keys), ("value", layer.values)):
            _, heads, _, width = tensor.shape
            kept.append({
                "name": f"past_key_values__{i}__{kind}", "called": f"past_key_values.{i}.{kind}",
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": ["batch", heads, "past_sequence", width],
            })  # fmt: skip
    for spec in kept:
        if spec["name"] == "attention_mask":
            spec["shape"] = ["batch", TOTAL]

    def call(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        past = transformers.DynamicCache(config=model.config)
        for i, layer in enumerate(past.layers):
            layer.keys, layer.values = (
                given[f"past_key_values__{i}__{kind}"] for kind in ("key", "value")
            )
            layer.dtype, layer.device, layer.is_initialized = layer.keys.dtype, model.device, True
        rest = {name: value for name, value in given.items() if "__" not in name}
        result = model(**rest, past_key_values=past, use_cache=True, return_dict=True)
        found = {"logits": result["logits"]}
        for i, layer in enumerate(past.layers):
            found |= {f"present.{i}.key": layer.keys, f"present.{i}.value": layer.values}
        return found

    return _as_module(torch, model, [spec["name"] for spec in kept], call), kept


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
