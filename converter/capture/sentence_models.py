"""Load a folder of sentence-transformers, and declare the inputs of its model.

Imports nothing of the project, as the other files of the child. sentence-transformers loads the
modules that ``modules.json`` names, if they are its own or trusted, without network. Outputs have
the names that the library and Optimum give them. Spec:
https://sbert.net/docs/sentence_transformer/usage/custom_models.html#structure-of-sentence-transformer-models
"""

import importlib
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LIBRARY = "sentence_transformers"
OUTPUTS = ("token_embeddings", "sentence_embedding")
SETTINGS = "config_sentence_transformers.json"
CLASSES = ("SentenceTransformer", "SparseEncoder")
UNUSED = "pooler."  # a head of transformers' that no module reads


def load(
    folder: Path, device: str, trusted: Mapping[str, Any], pretrained: Any, model_inputs: Any
) -> tuple[list[tuple[Any, ...]], list[str]]:
    """Return the model's only program, name, model, inputs and call; and notes.

    Args:
        folder: The folder.
        device: Name of the device in torch.
        trusted: The user's modules, by name.
        pretrained: The module that loads transformers' models.
        model_inputs: The module that declares their inputs.

    Raises:
        UntrustedError: A class is code in the folder that is not trusted.
        IncompleteError: Tensors of the model are missing.
        ValueError: It is no model of sentences.
        Exception: Whatever sentence-transformers raises.
    """
    entries = json.loads((folder / "modules.json").read_text("utf-8"))
    kinds = [str(entry["type"]) for entry in entries]
    foreign = {k.partition(".")[0] for k in kinds if k.partition(".")[0] != LIBRARY}
    pretrained.check_trusted(folder, foreign, trusted)
    transformers: Any = importlib.import_module("transformers")
    own_code = bool(foreign)
    for entry in entries:
        config = folder / entry["path"] / "config.json"
        recorded = json.loads(config.read_text("utf-8")) if config.is_file() else {}
        name = pretrained.find_own_code(transformers, recorded)
        pretrained.check_trusted(config.parent, {name} - {""}, trusted)
        own_code |= bool(name)
    library: Any = importlib.import_module(LIBRARY)
    path = folder / SETTINGS
    settings = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    class_name = settings.get("model_type", CLASSES[0])
    if class_name not in CLASSES:
        raise ValueError(f"models of the class {class_name} of sentence-transformers")
    with pretrained.note_missing(transformers) as missing:
        model = getattr(library, class_name)(
            str(folder), device=device, trust_remote_code=own_code, local_files_only=True,
            model_kwargs={"attn_implementation": "eager"},
        )  # fmt: skip
    missing = [name for name in missing if not name.startswith(UNUSED)]
    if missing:
        raise pretrained.IncompleteError(f"lacks tensors ({len(missing)}): {missing[0]}")
    first = model[0]
    transformer = getattr(first, "model", None) or getattr(first, "auto_model", None)
    if transformer is None or "input_ids" not in inspect.signature(transformer.forward).parameters:
        raise ValueError(f"models that begin with a {type(first).__name__}")
    place = folder / entries[0]["path"]
    specs, _ = model_inputs.declare_inputs(transformer, transformer.config, place)
    inputs = [spec for spec in specs if not spec["name"].startswith(("decoder_", "pixel_"))]
    notes = [
        "of sentences with a prompt the mask must leave out its tokens: the pooling excludes them"
        for module in model
        if getattr(module, "include_prompt", True) is False
    ]
    return [("", model, inputs, _call)], notes


def _call(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    features = dict(given)
    for module in model:
        features = module(features)
    return {name: features[name] for name in OUTPUTS if name in features}
