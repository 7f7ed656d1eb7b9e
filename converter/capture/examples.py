"""Example inputs in a model's folder, as MLflow and serving frameworks write them.

``input_example.json`` and ``serving_input_example.json`` hold the values; the ``MLmodel`` file,
where there is one, holds their dtypes and dynamic axes.
Spec: https://mlflow.org/docs/latest/ml/model/signatures.html
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from formats.core.bundle import TensorSpec
from formats.errors import CorruptError, UsageError

if TYPE_CHECKING:
    import numpy as np

NAMES = ("input_example.json", "serving_input_example.json")
MLMODEL = "MLmodel"
BATCH = "batch"
UNNAMED = ""  # the program's first argument
LARGEST = 64 << 20  # bytes of an example, 1 << 20 of an MLmodel
SIGNATURE = re.compile(r"^\s+inputs:\s*'(.*?)'\s*$", re.MULTILINE | re.DOTALL)
PREDICTIONS = ("inputs", "instances", "data", "dataframe_split")


@dataclass(frozen=True, slots=True)
class Example:
    """An input's specification and one value."""

    spec: TensorSpec
    array: "np.ndarray[Any, Any]"


def find_examples(source: Path) -> list[Example]:
    """Return the example inputs in an artifact's folder, or in the two folders above it.

    Raises:
        CorruptError: The file of examples is malformed.
    """
    start = source.absolute()
    for folder in ([start] if start.is_dir() else []) + list(start.parents)[:2]:
        for name in NAMES:
            path = folder / name
            if path.is_file() and path.stat().st_size <= LARGEST:
                try:
                    return _parse_examples(
                        json.loads(path.read_text("utf-8")), _read_signature(folder)
                    )
                except (ValueError, TypeError, RecursionError) as e:
                    raise CorruptError(f"is no example of inputs: {e}", where=path) from e
    return []


def describe_arrays(path: Path) -> tuple[TensorSpec, ...]:
    """Return the name, dtype and shape of each array of an .npz file; first axes are of any size.

    Raises:
        UsageError: It is not an .npz file of plain arrays.
    """
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, AttributeError, TypeError, BadZipFile) as e:
        raise UsageError(f"is no .npz of plain arrays: {e}", where=path) from e
    return tuple(
        TensorSpec(
            UNNAMED if name.startswith("arr_") else name, array.dtype.name,
            (BATCH, *array.shape[1:]) if array.ndim else (),
        )
        for name, array in arrays.items()
    )  # fmt: skip


def _parse_examples(content: Any, declared: Sequence[Mapping[str, Any]]) -> list[Example]:
    """Return the inputs of an example; a table of columns is one input of two axes."""
    import numpy as np

    for key in PREDICTIONS:
        if isinstance(content, dict) and key in content and "columns" not in content:
            content = content[key]
    if isinstance(content, dict) and isinstance(content.get("data"), list):
        content = content["data"]
    values = content if isinstance(content, dict) else {UNNAMED: content}
    examples = []
    for i, (name, value) in enumerate(values.items()):
        entry = next((d for d in declared if d.get("name") == name), None)
        if entry is None and len(declared) == len(values):
            entry = declared[i]
        tensor = (entry or {}).get("tensor-spec", {})
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{name or 'the input'} is not numeric")
        default = {"f": "float32", "i": "int64", "u": "int64", "b": "bool"}[array.dtype.kind]
        dtype = str(tensor.get("dtype", default))
        shape = _declared_shape(array.shape, tensor.get("shape"), name)
        examples.append(Example(TensorSpec(str(name), dtype, shape), array.astype(dtype)))
    return examples


def _declared_shape(sizes: tuple[int, ...], declared: Any, name: str) -> tuple[int | str, ...]:
    """Return sizes, and names of dynamic axes: those declared as dynamic, else the first."""
    if isinstance(declared, list) and len(declared) == len(sizes):
        return tuple(
            n if size != -1 else BATCH if i == 0 else f"{name or 'input'}_{i}"
            for i, (n, size) in enumerate(zip(sizes, declared, strict=True))
        )
    return (BATCH, *sizes[1:]) if len(sizes) > 1 else sizes


def _read_signature(folder: Path) -> list[Mapping[str, Any]]:
    """Return the inputs of the signature in an MLmodel file, which is YAML with JSON in it."""
    path = folder / MLMODEL
    if not path.is_file() or path.stat().st_size > LARGEST >> 6:
        return []
    match = SIGNATURE.search(path.read_text("utf-8", "replace"))
    if match is None:
        return []
    inputs = json.loads(re.sub(r"\n\s*", " ", match.group(1)).replace("''", "'"))
    if not isinstance(inputs, list):
        return []
    return [entry for entry in inputs if isinstance(entry, dict)]
