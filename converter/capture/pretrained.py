"""Load a folder of Hugging Face's with transformers.

Imports nothing of the project, as the other files of the child. The model is of the class that
``config.json`` names under ``architectures``, or of one with the head of a task, and transformers
loads its weights, without network and with torch's restricted unpickler. Code that lies in the
folder runs only if its module is trusted.
"""

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COUNTER = ".num_batches_tracked"  # of steps of training: nothing is computed from it
# Optimum's name of a task -> the classes that load a model with the task's head. A task without
# any is that of the model's own class.
TASKS: Mapping[str, tuple[str, ...]] = {
    "feature-extraction": ("AutoModel",),
    "fill-mask": ("AutoModelForMaskedLM",),
    "text-generation": ("AutoModelForCausalLM",),
    "text2text-generation": ("AutoModelForSeq2SeqLM",),
    "text-classification": ("AutoModelForSequenceClassification",),
    "token-classification": ("AutoModelForTokenClassification",),
    "question-answering": ("AutoModelForQuestionAnswering",),
    "multiple-choice": ("AutoModelForMultipleChoice",),
    "image-classification": ("AutoModelForImageClassification",),
    "object-detection": ("AutoModelForObjectDetection",),
    "image-segmentation": (
        "AutoModelForImageSegmentation", "AutoModelForUniversalSegmentation",
        "AutoModelForSemanticSegmentation",
    ),
    "semantic-segmentation": ("AutoModelForSemanticSegmentation",),
    "mask-generation": ("AutoModelForMaskGeneration",),
    "depth-estimation": ("AutoModelForDepthEstimation",),
    "image-to-image": ("AutoModelForImageToImage",),
    "image-to-text": ("AutoModelForImageTextToText",),
    "video-classification": ("AutoModelForVideoClassification",),
    "zero-shot-image-classification": ("AutoModelForZeroShotImageClassification",),
    "zero-shot-object-detection": ("AutoModelForZeroShotObjectDetection",),
    "document-question-answering": (
        "AutoModelForDocumentQuestionAnswering", "AutoModelForImageTextToText",
    ),
    "audio-classification": ("AutoModelForAudioClassification",),
    "audio-frame-classification": ("AutoModelForAudioFrameClassification",),
    "audio-xvector": ("AutoModelForAudioXVector",),
    "automatic-speech-recognition": ("AutoModelForSpeechSeq2Seq", "AutoModelForCTC"),
    "time-series-forecasting": (),
}  # fmt: skip


class UntrustedError(Exception):
    """The model's class is code that lies in the folder."""


class IncompleteError(Exception):
    """The folder lacks tensors of the model."""


def load(
    folder: Path, device: str, trusted: Mapping[str, Any], task: str | None = None
) -> tuple[Any, list[str]]:
    """Return the model, and notes on its weights.

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
    loader = _find_head(transformers, config, task) or _find_class(transformers, recorded, own_code)
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
    return model.to(device), notes[: len(unused)]


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


def _find_head(transformers: Any, config: Any, task: str | None) -> str:
    """Return the class that loads a model of this type with a task's head; empty if none does."""
    heads = TASKS.get(task or "", ())
    known = (n for n in heads if type(config) in getattr(transformers, n)._model_mapping)
    return next(known, heads[0] if heads else "")  # which raises, and says what it loads


def _find_class(transformers: Any, recorded: Mapping[str, Any], own_code: str) -> str:
    """Return the class that loads the model: its own, or the one that chooses by the type."""
    if own_code:
        names = [name for name in recorded["auto_map"] if name != "AutoConfig"]
        return next((n for n in names if n.startswith("AutoModel")), "AutoModel")
    names = recorded.get("architectures") or []
    return next((name for name in names if _is_model(transformers, name)), "AutoModel")
