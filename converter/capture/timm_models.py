"""Load a folder of timm's, and declare the input of its model.

Imports nothing of the project, as the other files of the child. timm makes the architecture that
``config.json`` names and loads all of its weights, with torch's restricted unpickler. The input has
Optimum's name, ``pixel_values``; the output is ``logits``, or ``features`` of a model without
classes. Spec: https://huggingface.co/docs/timm/hf_hub
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

UNIT = 32  # multiples of it are sizes that most models take


def load(folder: Path, device: str) -> list[tuple[Any, ...]]:
    """Return the model's only program: name, model, inputs and call.

    Args:
        folder: The folder.
        device: Name of the device in torch.

    Raises:
        Exception: Whatever timm raises; of tensors that are missing, too.
    """
    timm: Any = importlib.import_module("timm")
    model = timm.create_model(f"local-dir:{folder}", pretrained=True).to(device)
    channels, height, width = model.pretrained_cfg["input_size"]
    weight = next(model.parameters())
    spec: dict[str, Any] = {
        "name": "pixel_values", "dtype": str(weight.dtype).removeprefix("torch."),
        "shape": ["batch", channels, height, width],
    }  # fmt: skip
    if not model.pretrained_cfg.get("fixed_input_size"):
        spec["shape"] = ["batch", channels, "height", "width"]
        spec["sizes"] = {"height": [height, height], "width": [width + UNIT, width]}
    output = "logits" if model.num_classes else "features"

    def call(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        return {output: model(given["pixel_values"])}

    return [("", model, [spec], call)]
