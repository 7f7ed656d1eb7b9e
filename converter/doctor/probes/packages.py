"""What is installed in a Python, by records and text files: nothing of it is imported."""

import ast
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from converter.doctor.host import ONNXRUNTIME, PACKAGES, TENSORFLOW, Package
from formats.core.bundle import JSON

MAX_TEXT_BYTES = 1 << 20  # of a METADATA or a version.py
CUDA_WHEEL = re.compile(r"nvidia-.+")


def look(folders: Iterable[str]) -> dict[str, tuple[Package, ...]]:
    """Return the records of packages that matter here, by normalised name.

    Args:
        folders: A Python's ``sys.path``, in order.

    Spec: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
    """
    found: dict[str, list[Package]] = {}
    seen: set[str] = set()
    for folder in folders:
        real = os.path.realpath(folder or ".")
        if real in seen:
            continue
        seen.add(real)
        for name, version, record in _records(real):
            if name in PACKAGES or CUDA_WHEEL.fullmatch(name):
                requires = () if name.startswith("nvidia-") else _requires(record)
                package = Package(name, version, real, _build(name, Path(real)), requires)
                found.setdefault(name, []).append(package)
    return {name: tuple(packages) for name, packages in found.items()}


def normalise(name: str) -> str:
    """Return a package's name as every spelling of it: ``tf-keras`` for ``tf_keras``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _records(folder: str) -> list[tuple[str, str, Path]]:
    """Return name, version and place of each record in a folder of packages, by name."""
    found = []
    # sys.path names archives and folders that are not there, too
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            stem, _, suffix = entry.name.rpartition(".")
            if suffix not in ("dist-info", "egg-info") or "-" not in stem:
                continue
            name, version = stem.split("-")[:2]
            found.append((normalise(name), version, Path(entry.path)))
    return sorted(found)


def _requires(record: Path) -> tuple[str, ...]:
    text = _text(record / "METADATA")
    head = text.split("\n\n", 1)[0]
    return tuple(
        line.partition(":")[2].strip()
        for line in head.splitlines()
        if line.startswith("Requires-Dist:")
    )


def _build(name: str, folder: Path) -> dict[str, JSON]:
    if name == "torch":
        return torch_build(_text(folder / "torch" / "version.py"))
    if name in TENSORFLOW:
        place = folder / "tensorflow" / "python" / "platform" / "build_info.py"
        return tensorflow_build(_text(place))
    if name in ONNXRUNTIME:
        return _onnxruntime_build(folder / "onnxruntime" / "capi")
    return {}


def assignments(text: str) -> dict[str, JSON]:
    """Return a module's plain top-level assignments, read as literals; nothing is run."""
    values: dict[str, JSON] = {}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return values
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is not None:
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        if isinstance(value, ast.Call) and len(value.args) == 1:
            value = value.args[0]  # OrderedDict([…]), which is how build_info.py is written
        with suppress(ValueError, TypeError, RecursionError, MemoryError):
            values[name] = ast.literal_eval(value)
    return values


def torch_build(text: str) -> dict[str, JSON]:
    """Return what torch/version.py says of its build."""
    said = assignments(text)
    if not said:
        return {}
    return {
        "version": said.get("__version__"),
        "cuda": said.get("cuda"),
        "hip": said.get("hip"),
        "xpu": said.get("xpu"),
    }


def tensorflow_build(text: str) -> dict[str, JSON]:
    """Return what TensorFlow's build_info.py says of its build."""
    said = assignments(text).get("build_info")
    pairs: dict[str, JSON] = {}
    if isinstance(said, list):
        pairs = {str(p[0]): p[1] for p in said if isinstance(p, list | tuple) and len(p) == 2}
    elif isinstance(said, Mapping):
        pairs = dict(said)
    if not pairs:
        return {}
    return {
        "cuda": pairs.get("cuda_version") if pairs.get("is_cuda_build") else None,
        "cudnn": pairs.get("cudnn_version") if pairs.get("is_cuda_build") else None,
        "hip": bool(pairs.get("is_rocm_build")),
        "architectures": pairs.get("cuda_compute_capabilities") or [],
    }


def _onnxruntime_build(capi: Path) -> dict[str, JSON]:
    """Return whose files the module ``onnxruntime`` consists of, and what they can run on."""
    said = assignments(_text(capi / "build_and_package_info.py"))
    names: list[JSON] = []
    with suppress(OSError):
        names = sorted(
            found[1]
            for path in capi.iterdir()
            if (found := re.search(r"onnxruntime_providers_(\w+?)\.(?:so|dll|dylib)$", path.name))
            and found[1] != "shared"
        )
    return {
        "module_of": said.get("package_name"),
        "module_version": said.get("__version__"),
        "cuda": said.get("cuda_version"),
        "providers": names,
    }


def _text(path: Path) -> str:
    try:
        with path.open("rb") as f:
            return f.read(MAX_TEXT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
