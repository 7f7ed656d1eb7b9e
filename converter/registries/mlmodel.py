"""`MLmodel` files: flavor, signature, and input example of an MLflow model.

Pure functions of the document and of what lies beside it, so that a folder on this disk and one on
a tracking server are understood alike. Nothing is loaded, and neither MLflow nor pandas is needed:
its own reader of these files wants both.

Spec: https://mlflow.org/docs/latest/ml/model/#mlmodel-file-format
"""

import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from converter.registries.entry import Staged
from formats.containers import jsontext
from formats.core.bundle import JSON, TensorSpec
from formats.core.storage import File, Span, resolve_member
from formats.core.weights import DTYPES
from formats.errors import (
    ConvertError,
    CorruptError,
    LimitError,
    SafetyError,
    SourceError,
    UnsupportedError,
)
from formats.other_libraries import find_tool

if TYPE_CHECKING:
    import numpy as np

FILE = "MLmodel"
LARGEST = 1 << 20  # bytes of an MLmodel; those of MLflow are a few thousand
LARGEST_EXAMPLE = 16 << 20  # bytes of JSON, at ten times that in memory

Document: TypeAlias = "Mapping[str, Any]"

# fmt: off
# Where a flavor keeps what we convert, best first: paths in the folder, with values of the flavor's
# own block. What a block says of its format is not asked: `save_format: tf` is beside files
# of both kinds. ECOSYSTEM.md 1.2 has what each version of MLflow writes.
FLAVORS: Mapping[str, tuple[str, ...]] = {
    "onnx":       ("{data:model.onnx}",),
    "tensorflow": ("{saved_model_dir:}",
                   "{data:data}/model.keras", "{data:data}/model", "{data:data}/model.h5"),
    "keras":      ("{data:data}/model.keras", "{data:data}/model", "{data:data}/model.h5"),
    "pytorch":    ("{model_data:data}/model.pt2", "{model_data:data}/model.pth"),
    "transformers":          ("{model_binary:model}",),
    "sentence_transformers": ("{data:model.sentence_transformer}",),
}
# fmt: on
_VALUE = re.compile(r"\{(\w+):([\w.]*)\}")

# Blocks that say how to call a model, beside the one that says what it is.
_WRAPPERS = ("python_function",)
# What others want to know again of the model's origin, as the document has it.
_ORIGIN = ("mlflow_version", "run_id", "model_id", "model_uuid", "artifact_path")


class Payload(NamedTuple):
    """The model inside an MLflow folder.

    Attributes:
        flavor: Whose block says so.
        path: In the folder, with ``/``.
    """

    flavor: str
    path: str


def parse(text: bytes, where: object) -> Document:
    """Return a parsed `MLmodel` file.

    Raises:
        CorruptError: It is not an MLmodel file.
        LimitError: It is too long.
    """
    import yaml

    if len(text) > LARGEST:
        raise LimitError(f"an {FILE} of {len(text)} bytes", where=where)
    try:
        # The loader of C would be faster, and is taken down by ten thousand brackets.
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        reason = "nests too deeply" if isinstance(e, RecursionError) else str(e).split("\n")[0]
        raise CorruptError(f"is no YAML: {reason}", where=where) from e
    if not isinstance(document, dict) or not isinstance(document.get("flavors"), dict):
        raise CorruptError("names no flavors", expected=f"MLflow's {FILE}", where=where)
    return {str(key): value for key, value in document.items()}


def flavors(document: Document) -> tuple[str, ...]:
    """Return the flavors that the document lists."""
    return tuple(str(name) for name in document["flavors"] if name not in _WRAPPERS)


def describe_foreign(document: Document) -> str:
    """Return what a model is whose flavors are not read, and the tool that serves it."""
    known = flavors(document)
    found = f"an MLflow model of flavor {', '.join(known) or 'python_function'}"
    tool = find_tool(known)
    return f"{found}. {tool}" if tool else found


def candidates(document: Document) -> list[Payload]:
    """Return where the model may be, best first."""
    found: dict[Payload, None] = {}
    for flavor, places in FLAVORS.items():
        if flavor not in document["flavors"]:
            continue
        block = document["flavors"][flavor]
        values = block if isinstance(block, dict) else {}
        for place in places:
            path = _fill(place, values)
            if path:
                found[Payload(flavor, path)] = None
    return list(found)


def _fill(place: str, values: Mapping[str, object]) -> str:
    """Fill a path template with the values of a block; "" where one is missing."""
    path = place
    for key, default in _VALUE.findall(place):
        value = values.get(key)
        value = value if isinstance(value, str) and value else default
        if not value:
            return ""
        path = path.replace(f"{{{key}:{default}}}", value)
    return PurePosixPath(path).as_posix()


def payload(document: Document, has: Callable[[str], bool], where: object) -> Payload:
    """Return the model inside the folder.

    Args:
        document: What its `MLmodel` says.
        has: Whether a file or a folder of this path is in the folder (`among` makes one).
        where: What messages call the folder.

    Raises:
        SafetyError: The document names something outside the folder.
        SourceError: What it names is not there.
        UnsupportedError: It has no flavor that is read.
    """
    places = candidates(document)
    if not places:
        raise UnsupportedError(
            f"not supported: {describe_foreign(document)}", expected=", ".join(FLAVORS), where=where
        )
    for place in places:
        if place.path.startswith("/") or ".." in place.path.split("/"):
            raise SafetyError(f"{FILE} names {place.path!r:.100}, outside its folder", where=where)
        if has(place.path):
            return place
    raise SourceError(
        "the model is not where its MLmodel says",
        expected=" or ".join(p.path for p in places),
        where=where,
    )


def among(files: Iterable[str]) -> Callable[[str], bool]:
    """Return whether a path is one of these files or contains one."""
    known: set[str] = set()
    for file in files:
        known.add(file)
        known.update(str(parent) for parent in PurePosixPath(file).parents)
    return known.__contains__


def inputs(document: Document) -> tuple[TensorSpec, ...]:
    """Return the tensor inputs of the signature; none where it declares table columns.

    An input that has no name is called "": a model of one input needs none. The first axis of
    unknown size is ``batch``, the others are each their own.
    """
    specs = _list(document, "inputs")
    found = []
    free = iter(range(1 << 30))
    for entry in specs:
        spec = entry.get("tensor-spec")
        dtype = _dtype(spec.get("dtype")) if isinstance(spec, dict) else None
        if not isinstance(spec, dict) or dtype is None or not isinstance(spec.get("shape"), list):
            return ()
        sizes: list[int | str] = []
        for axis, size in enumerate(spec["shape"]):
            is_known = type(size) is int and size >= 0
            sizes.append(size if is_known else f"unk__{next(free)}" if axis else "batch")
        found.append(TensorSpec(_name(entry), dtype, tuple(sizes)))
    return tuple(found)


def _list(document: Document, which: str) -> list[dict[str, Any]]:
    """Return a side of the signature, which is JSON inside of YAML."""
    signature = document.get("signature")
    text = signature.get(which) if isinstance(signature, dict) else None
    if not isinstance(text, str):
        return []
    try:
        specs = jsontext.parse(text, where=f"{FILE} signature", limit=LARGEST)
    except ConvertError:
        return []
    return [s for s in specs if isinstance(s, dict)] if isinstance(specs, list) else []


def _name(entry: Mapping[str, Any]) -> str:
    name = entry.get("name")
    return "" if name is None else str(name)


def _dtype(name: object) -> str | None:
    if name in ("str", "object"):
        return "string"
    return name if isinstance(name, str) and name in DTYPES else None


# -- the example ----------------------------------------------------------------------------------


def example_file(document: Document) -> str | None:
    """Return the path of the input example in the folder, or None."""
    info = document.get("saved_input_example_info")
    path = info.get("artifact_path") if isinstance(info, dict) else None
    return path if isinstance(path, str) else None


def example(document: Document, text: bytes) -> "dict[str, np.ndarray]":
    """Return the input example as arrays by input name; ``arr_0`` for an unnamed one.

    A table of numbers is one array of all its columns, which is what MLflow hands to a model of one
    input.

    Args:
        document: What the `MLmodel` says.
        text: Content of its `example_file`.

    Raises:
        CorruptError: It is not what it says.
        LimitError: It is too long.
        UnsupportedError: It is of a kind that makes no arrays.
    """
    info: dict[str, Any] = document["saved_input_example_info"]
    kind, where = str(info.get("type")), str(info.get("artifact_path"))
    if kind not in ("ndarray", "json_object", "dataframe"):
        raise UnsupportedError(f"not supported: an input example of type {kind}", where=where)
    data: Any = jsontext.parse(text, where=where, limit=LARGEST_EXAMPLE)
    if info.get("params") and isinstance(data, dict):
        data = data.get("inputs")
    if info.get("format") == "tf-serving" and isinstance(data, dict):  # before MLflow 2.12
        data = data.get("inputs", data.get("instances"))
    if kind == "dataframe" and isinstance(data, dict):
        data = data.get("data")
    dtypes = {spec.name: spec.dtype for spec in inputs(document)}
    named = data if isinstance(data, dict) else {"": data}
    arrays = {str(k): _array(v, dtypes.get(str(k)), where) for k, v in named.items()}
    if list(arrays) == [""]:
        names = [name for name in dtypes if name and kind != "dataframe"]
        arrays = {names[0] if len(names) == 1 else "arr_0": arrays[""]}
    return arrays


def _array(value: object, dtype: str | None, where: str) -> "np.ndarray":
    import numpy as np

    try:
        wanted = np.dtype("U" if dtype == "string" else dtype) if dtype else None
    except TypeError:  # bfloat16 and others that numpy has not
        wanted = None
    try:
        array = np.array(value, dtype=wanted)
        if array.dtype.kind == "O":  # MLflow writes NaN as null
            array = np.array(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as e:
        raise CorruptError(f"is no array: {e}", where=where) from e
    if array.dtype.kind not in "biufU" or not array.size:
        raise UnsupportedError(f"not supported: an input example of {array.dtype}", where=where)
    return array


def save_example(arrays: "Mapping[str, np.ndarray]", path: Path) -> Path:
    """Write arrays as the .npz that ``inputs`` takes, and return its path."""
    from numpy.lib import format as npy

    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                npy.write_array(member, array, allow_pickle=False)
    return path


# -- a folder on this disk ------------------------------------------------------------------------


def facts(document: Document, place: Payload) -> dict[str, JSON]:
    """Return what a destination copies: origin, flavors, the signature."""
    found: dict[str, JSON] = {"flavor": place.flavor, "payload": place.path}
    found["flavors"] = [str(name) for name in document["flavors"]]
    found |= {k: str(document[k]) for k in _ORIGIN if document.get(k) is not None}
    signature = document.get("signature")
    if isinstance(signature, dict):
        kept: dict[str, JSON] = {
            str(k): v for k, v in signature.items() if v is None or isinstance(v, str)
        }
        found["signature"] = kept
    return found


def read(folder: Path) -> Document:
    """Return the parsed `MLmodel` of a folder.

    Raises:
        SourceError: None of them can be read.
    """
    return parse(_content(folder, FILE, LARGEST), folder / FILE)


def stage_model(folder: Path, scratch: Path) -> Staged:
    """Return the model in an MLflow folder, with its declared inputs, and its example as an .npz.

    Raises:
        SafetyError: It names something outside the folder.
        SourceError: It is damaged, or not whole.
        UnsupportedError: It has no flavor that is read.
    """
    document = read(folder)
    place = payload(document, lambda path: (folder / path).exists(), folder)
    known = facts(document, place)
    name = example_file(document)
    kept: Path | None = None
    if name is not None:
        try:
            arrays = example(document, _content(folder, name, LARGEST_EXAMPLE))
            kept = save_example(arrays, scratch / "example.npz")
        except ConvertError as e:  # one that cannot be used is no reason not to convert
            known["example"] = str(e)
    return Staged(resolve_member(folder, place.path), inputs(document), kept, known)


def _content(folder: Path, name: str, most: int) -> bytes:
    file = File(resolve_member(folder, name))
    try:
        if file.size > most:
            raise LimitError(f"{file.size} bytes", expected=f"at most {most}", where=file.name)
        return Span.whole(file).read()
    finally:
        file.close()
