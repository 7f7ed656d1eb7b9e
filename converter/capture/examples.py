"""Inputs that lie beside a model: what MLflow writes, and what serving frameworks take.

``input_example.json`` and ``serving_input_example.json`` hold numbers; their dtypes and which of
their axes are dynamic are in the ``MLmodel`` file, where that is there.
Spec: https://mlflow.org/docs/latest/ml/model/signatures.html
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats.core.bundle import TensorSpec
from formats.errors import CorruptError

if TYPE_CHECKING:
    import numpy as np

NAMES = ("input_example.json", "serving_input_example.json")
MLMODEL = "MLmodel"
BATCH = "batch"
UNNAMED = ""  # whatever the program's first argument is called
LARGEST = 64 << 20  # bytes of an example, 1 << 20 of an MLmodel
SIGNATURE = re.compile(r"^\s+inputs:\s*'(.*?)'\s*$", re.MULTILINE | re.DOTALL)
PREDICTIONS = ("inputs", "instances", "data", "dataframe_split")


@dataclass(frozen=True, slots=True)
class Example:
    """One input: what it is, and one value of it."""

    spec: TensorSpec
    array: "np.ndarray[Any, Any]"


def beside(source: Path) -> list[Example]:
    """Return the example inputs beside an artifact, or up to two folders above it.

    Raises:
        CorruptError: There is an example that is none.
    """
    start = source.absolute()
    for folder in ([start] if start.is_dir() else []) + list(start.parents)[:2]:
        for name in NAMES:
            path = folder / name
            if path.is_file() and path.stat().st_size <= LARGEST:
                try:
                    return _read(json.loads(path.read_text("utf-8")), _declared(folder))
                except (ValueError, TypeError, RecursionError) as e:
                    raise CorruptError(f"is no example of inputs: {e}", where=path) from e
    return []


def _read(content: Any, declared: Sequence[Mapping[str, Any]]) -> list[Example]:
    """Return what an example says; a table of columns is one input of two axes."""
    import numpy as np

    for key in PREDICTIONS:
        if isinstance(content, dict) and key in content and "columns" not in content:
            content = content[key]
    if isinstance(content, dict) and isinstance(content.get("data"), list):
        content = content["data"]
    values = content if isinstance(content, dict) else {UNNAMED: content}
    found = []
    for i, (name, value) in enumerate(values.items()):
        said = next((d for d in declared if d.get("name") == name), None)
        if said is None and len(declared) == len(values):
            said = declared[i]
        tensor = (said or {}).get("tensor-spec", {})
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{name or 'the input'} holds no numbers")
        usual = {"f": "float32", "i": "int64", "u": "int64", "b": "bool"}[array.dtype.kind]
        dtype = str(tensor.get("dtype", usual))
        shape = _shape(array.shape, tensor.get("shape"), name)
        found.append(Example(TensorSpec(str(name), dtype, shape), array.astype(dtype)))
    return found


def _shape(sizes: tuple[int, ...], declared: Any, name: str) -> tuple[int | str, ...]:
    """Return sizes and names of dynamic axes: those that are declared so, or the first."""
    if isinstance(declared, list) and len(declared) == len(sizes):
        return tuple(
            n if said != -1 else BATCH if i == 0 else f"{name or 'input'}_{i}"
            for i, (n, said) in enumerate(zip(sizes, declared, strict=True))
        )
    return (BATCH, *sizes[1:]) if len(sizes) > 1 else sizes


def _declared(folder: Path) -> list[Mapping[str, Any]]:
    """Return the inputs of the signature in an MLmodel file: YAML, with JSON in it."""
    path = folder / MLMODEL
    if not path.is_file() or path.stat().st_size > LARGEST >> 6:
        return []
    found = SIGNATURE.search(path.read_text("utf-8", "replace"))
    if found is None:
        return []
    said = json.loads(re.sub(r"\n\s*", " ", found.group(1)).replace("''", "'"))
    return [entry for entry in said if isinstance(entry, dict)] if isinstance(said, list) else []
