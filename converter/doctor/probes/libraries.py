"""Find CUDA's shared libraries: those of LD_LIBRARY_PATH, of wheels, and of the system."""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from converter.doctor.host import Library, Package

# Libraries that frameworks load by name, with the major version that they were built for: https://docs.nvidia.com/cuda/cuda-installation-guide-linux/
NAMES = ("cudart", "cudnn", "cublas", "cublasLt", "cufft", "curand", "cusolver", "cusparse",
         "nccl", "nvrtc", "nvJitLink", "nvinfer")  # fmt: skip
_FILE = re.compile(r"lib(" + "|".join(NAMES) + r")\.so\.(\d+(?:\.\d+)*)$")
_SYSTEM = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib",
           "usr/local/lib", "usr/local/lib64")  # fmt: skip
# Wheel of a part of CUDA → the library in it.
_WHEELS = {"cuda-runtime": "cudart", "cudnn": "cudnn", "cublas": "cublas", "cufft": "cufft",
           "curand": "curand", "cusolver": "cusolver", "cusparse": "cusparse", "nccl": "nccl",
           "cuda-nvrtc": "nvrtc", "nvjitlink": "nvJitLink"}  # fmt: skip
MAX_ENTRIES = 20_000  # of one folder


def find_libraries(
    packages: Mapping[str, tuple[Package, ...]],
    variables: Mapping[str, str],
    root: Path = Path("/"),
) -> tuple[Library, ...]:
    """Return the libraries that a framework may load, in the order of the dynamic loader."""
    found: dict[str, Library] = {}
    for entry in filter(None, variables.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
        _collect(found, Path(entry), "LD_LIBRARY_PATH")
    for library in _list_wheels(packages):
        found.setdefault(f"{library.origin} {library.name}", library)
    for folder in _list_system_folders(root, variables):
        _collect(found, folder, "system")
    return tuple(found.values())


def _list_wheels(packages: Mapping[str, tuple[Package, ...]]) -> Iterable[Library]:
    """Yield the libraries in installed wheels of NVIDIA."""
    for name, records in packages.items():
        match = re.fullmatch(r"nvidia-(.+?)(?:-cu(\d+))?", name)
        library = _WHEELS.get(match[1]) if match else None
        if library is not None:
            for package in records:
                yield Library(library, package.version, f"wheel {name}", package.folder)


def _list_system_folders(root: Path, variables: Mapping[str, str]) -> list[Path]:
    """Return the default folders of the loader, conda's, its configured ones, and toolkits."""
    folders = [root / folder for folder in _SYSTEM]
    if variables.get("CONDA_PREFIX"):
        folders.append(Path(variables["CONDA_PREFIX"]) / "lib")
    with suppress(OSError, UnicodeDecodeError):
        for settings in sorted((root / "etc" / "ld.so.conf.d").glob("*.conf")):
            lines = [line.strip() for line in settings.read_text().splitlines()]
            folders += [root / line.lstrip("/") for line in lines if line.startswith("/")]
    with suppress(OSError):
        toolkits = sorted((root / "usr" / "local").glob("cuda*"))
        folders += [t / lib for t in toolkits for lib in ("lib64", "targets/x86_64-linux/lib")]
    return folders


def _collect(found: dict[str, Library], folder: Path, origin: str) -> None:
    """Add the libraries of one folder; of several names of a file, the longest version."""
    best: dict[tuple[str, str], Library] = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for index, entry in enumerate(entries):
            match = _FILE.fullmatch(entry.name)
            if index > MAX_ENTRIES:
                break
            if match is None:
                continue
            key = (match[1], match[2].split(".")[0])
            library = Library(match[1], match[2], origin, entry.path)
            if key not in best or len(match[2]) > len(best[key].version):
                best[key] = library
    for key, library in sorted(best.items()):
        real = os.path.realpath(library.path)
        found.setdefault(f"{origin} {key[0]} {real}", library)
