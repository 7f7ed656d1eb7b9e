"""Find the packages of a Python from their metadata: nothing is imported."""

import ast
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from packaging.utils import canonicalize_name

from converter.doctor.host import ONNXRUNTIME, PACKAGES, TENSORFLOW, Package
from formats.core.bundle import JSON

MAX_TEXT_BYTES = 1 << 20  # of a METADATA or a version.py
CUDA_WHEEL = re.compile(r"nvidia-.+")


def find_packages(folders: Iterable[str]) -> dict[str, tuple[Package, ...]]:
    """Return the records of the packages that the doctor reports on, by normalised name.

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
        for name, version, record in _list_records(real):
            if name in PACKAGES or CUDA_WHEEL.fullmatch(name):
                requires = () if name.startswith("nvidia-") else _read_requirements(record)
                package = Package(name, version, real, _read_build(name, Path(real)), requires)
                found.setdefault(name, []).append(package)
    return {name: tuple(packages) for name, packages in found.items()}


def _list_records(folder: str) -> list[tuple[str, str, Path]]:
    """Return name, version and path of each record in a folder of packages, sorted."""
    found = []
    # sys.path also names archives and folders that do not exist
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            stem, _, suffix = entry.name.rpartition(".")
            if suffix not in ("dist-info", "egg-info") or "-" not in stem:
                continue
            name, version = stem.split("-")[:2]
            found.append((canonicalize_name(name), version, Path(entry.path)))
    return sorted(found)


def _read_requirements(record: Path) -> tuple[str, ...]:
    text = _read_text(record / "METADATA")
    head = text.split("\n\n", 1)[0]
    return tuple(
        line.partition(":")[2].strip()
        for line in head.splitlines()
        if line.startswith("Requires-Dist:")
    )


def _read_build(name: str, folder: Path) -> dict[str, JSON]:
    if name == "torch":
        return parse_torch_build(_read_text(folder / "torch" / "version.py"))
    if name in TENSORFLOW:
        place = folder / "tensorflow" / "python" / "platform" / "build_info.py"
        return parse_tensorflow_build(_read_text(place))
    if name in ONNXRUNTIME:
        return _read_onnxruntime_build(folder / "onnxruntime" / "capi")
    return {}


def read_assignments(text: str) -> dict[str, JSON]:
    """Return the top-level assignments of a module whose values are literals; nothing is run."""
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


def parse_torch_build(text: str) -> dict[str, JSON]:
    """Return how torch was built, from the text of torch/version.py."""
    values = read_assignments(text)
    if not values:
        return {}
    return {
        "version": values.get("__version__"),
        "cuda": values.get("cuda"),
        "hip": values.get("hip"),
        "xpu": values.get("xpu"),
    }


def parse_tensorflow_build(text: str) -> dict[str, JSON]:
    """Return how TensorFlow was built, from the text of its build_info.py."""
    info = read_assignments(text).get("build_info")
    pairs: dict[str, JSON] = {}
    if isinstance(info, list):
        pairs = {str(p[0]): p[1] for p in info if isinstance(p, list | tuple) and len(p) == 2}
    elif isinstance(info, Mapping):
        pairs = dict(info)
    if not pairs:
        return {}
    return {
        "cuda": pairs.get("cuda_version") if pairs.get("is_cuda_build") else None,
        "cudnn": pairs.get("cudnn_version") if pairs.get("is_cuda_build") else None,
        "hip": bool(pairs.get("is_rocm_build")),
        "architectures": pairs.get("cuda_compute_capabilities") or [],
    }


def _read_onnxruntime_build(capi: Path) -> dict[str, JSON]:
    """Return which distribution the module ``onnxruntime`` comes from, and its providers."""
    values = read_assignments(_read_text(capi / "build_and_package_info.py"))
    names: list[JSON] = []
    with suppress(OSError):
        names = sorted(
            found[1]
            for path in capi.iterdir()
            if (found := re.search(r"onnxruntime_providers_(\w+?)\.(?:so|dll|dylib)$", path.name))
            and found[1] != "shared"
        )
    return {
        "module_of": values.get("package_name"),
        "module_version": values.get("__version__"),
        "cuda": values.get("cuda_version"),
        "providers": names,
    }


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as f:
            return f.read(MAX_TEXT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
