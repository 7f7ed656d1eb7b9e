"""Look at this host: every probe, put together as one `Host`."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from converter.child.process import ENVIRONMENT, Allowance, ask
from converter.doctor.host import TENSORFLOW, Host, Package, Seen
from converter.doctor.probes import libraries, machine
from converter.doctor.probes import nvidia as probe_nvidia
from converter.doctor.probes import packages as probe_packages
from formats.errors import EnvironmentFault

FRAMEWORK_SCRIPT = Path(__file__).with_name("ask_framework.py")
PYTHON_SCRIPT = Path(__file__).with_name("ask_python.py")
SECONDS = 90.0  # to import a framework on a slow disk
PYTHON_SECONDS = 30.0
AT_ONCE = 2  # children; each takes a core and half a gigabyte
# Frameworks that are asked, by module -> distributions that install it.
ASKED = {
    "torch": ("torch",),
    "tensorflow": TENSORFLOW,
    "keras": ("keras",),
    "jax": ("jax",),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml",
                    "onnxruntime-openvino", "onnxruntime-rocm", "onnxruntime-migraphx",
                    "onnxruntime-qnn"),
    "numpy": ("numpy",),
    "h5py": ("h5py",),
    "google.protobuf": ("protobuf",),
}  # fmt: skip


def look(python: str = "", *, frameworks: Iterable[str] = tuple(ASKED)) -> Host:
    """Describe this host and one Python on it.

    Args:
        python: Its interpreter, a path or the name of a command; by default the one that runs us.
        frameworks: Modules to ask, in children, where they are installed; none asks none.

    Raises:
        EnvironmentFault: ``python`` cannot be run.
    """
    environment = os.environ
    version, folders = platform.python_version(), list(sys.path)
    if python:
        python = interpreter(python)
        version, folders = _other_python(python)
    packages = probe_packages.look(folders)
    variables = machine.variables(environment)
    wanted = set(frameworks)
    asked = [name for name in ASKED if name in wanted and _installed(packages, ASKED[name])]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        nvidia = pool.submit(probe_nvidia.look)
        answers = pool.map(lambda name: ask_framework(name, python or sys.executable), asked)
        seen = dict(zip(asked, answers, strict=True))
    return Host(
        version,
        python or sys.executable,
        machine.system(),
        platform.machine(),
        machine.cpu(),
        variables,
        nvidia.result(),
        machine.rocm(),
        libraries.look(packages, variables),
        packages,
        seen,
        machine.keras_backend(environment, Path.home()),
    )


def ask_framework(name: str, python: str, *, seconds: float = SECONDS) -> Seen:
    """Import a framework in a child and return what it sees. Never raises, never hangs."""
    with tempfile.TemporaryDirectory(prefix="convert-") as folder:
        question = {"framework": name, "environment": users_environment(os.environ)}
        try:
            answer = ask(
                FRAMEWORK_SCRIPT, Path(folder), question, what=name,
                allowance=Allowance(seconds), python=python,
            )  # fmt: skip
        except EnvironmentFault as e:
            return Seen(problem=str(e))
    return Seen(
        str(answer.get("version", "")),
        tuple(map(str, answer.get("devices", ()))),
        dict(answer.get("facts", {})),
        str(answer.get("problem", "")),
    )


def users_environment(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return what a child must set again to see what the user's programs see.

    Children of ours are shown no device (see `converter.child.process.ENVIRONMENT`); here that is
    the question.
    """
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "JAX_PLATFORMS")
    return {name: environment.get(name) for name in names if name in ENVIRONMENT}


def interpreter(python: str) -> str:
    """Return where an interpreter is, for children that run in another folder.

    Links are not followed: a virtual environment is one.
    """
    found = shutil.which(python)
    return str(Path(found or python).absolute())


def _installed(packages: Mapping[str, tuple[Package, ...]], names: Iterable[str]) -> bool:
    return any(name in packages for name in names)


def _other_python(python: str) -> tuple[str, list[str]]:
    """Return another Python's version and where it finds packages.

    Raises:
        EnvironmentFault: It cannot be run.
    """
    with tempfile.TemporaryDirectory(prefix="convert-") as folder:
        answer: dict[str, Any] = ask(
            PYTHON_SCRIPT, Path(folder), {}, what=python,
            allowance=Allowance(PYTHON_SECONDS), python=python,
        )  # fmt: skip
    return str(answer.get("version", "")), [str(p) for p in answer.get("path", ())]
