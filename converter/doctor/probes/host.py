"""Probe this host: run every probe and combine the results as one `Host`."""

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
from converter.doctor.host import ONNXRUNTIME, TENSORFLOW, Host, ImportResult
from converter.doctor.probes import machine
from converter.doctor.probes.libraries import find_libraries
from converter.doctor.probes.nvidia import probe_nvidia
from converter.doctor.probes.packages import find_packages
from formats.errors import DependencyError

FRAMEWORK_SCRIPT = Path(__file__).with_name("describe_framework.py")
PYTHON_SCRIPT = Path(__file__).with_name("describe_python.py")
SECONDS = 90.0  # to import a framework on a slow disk
PYTHON_SECONDS = 30.0
CHILDREN = 2  # at a time; each takes a core and half a gigabyte
# Module that is imported → distributions that install it.
FRAMEWORKS = {
    "torch": ("torch",),
    "tensorflow": TENSORFLOW,
    "keras": ("keras",),
    "jax": ("jax",),
    "onnxruntime": ONNXRUNTIME,
    "numpy": ("numpy",),
    "h5py": ("h5py",),
    "google.protobuf": ("protobuf",),
}


def probe_host(python: str = "", *, frameworks: Iterable[str] = tuple(FRAMEWORKS)) -> Host:
    """Describe this host and one Python on it.

    Args:
        python: Its interpreter, as a path or a command name; by default the running one.
        frameworks: Modules to import in child processes, where they are installed.

    Raises:
        DependencyError: ``python`` cannot be run.
    """
    environment = os.environ
    version, folders = platform.python_version(), list(sys.path)
    if python:
        python = find_interpreter(python)
        version, folders = _probe_python(python)
    packages = find_packages(folders)
    variables = machine.select_variables(environment)
    wanted = set(frameworks)
    modules = [m for m, names in FRAMEWORKS.items() if m in wanted and packages.keys() & {*names}]
    with ThreadPoolExecutor(CHILDREN) as pool:
        nvidia = pool.submit(probe_nvidia)
        answers = pool.map(lambda name: probe_framework(name, python or sys.executable), modules)
        seen = dict(zip(modules, answers, strict=True))
    return Host(
        python=version,
        executable=python or sys.executable,
        system=machine.describe_system(),
        machine=platform.machine(),
        cpu=machine.describe_cpu(),
        variables=variables,
        nvidia=nvidia.result(),
        rocm=machine.detect_rocm(),
        libraries=find_libraries(packages, variables),
        packages=packages,
        seen=seen,
        keras_backend=machine.read_keras_backend(environment, Path.home()),
        other_convert=machine.find_other_convert(shutil.which("convert")),
    )


def probe_framework(name: str, python: str, *, seconds: float = SECONDS) -> ImportResult:
    """Import a framework in a child process and return what it sees; it never raises or hangs."""
    with tempfile.TemporaryDirectory(prefix="convert-") as folder:
        question = {"framework": name, "environment": select_environment(os.environ)}
        try:
            answer = ask(
                FRAMEWORK_SCRIPT, Path(folder), question, what=name,
                allowance=Allowance(seconds), python=python,
            )  # fmt: skip
        except DependencyError as e:
            return ImportResult(problem=str(e))
    return ImportResult(
        str(answer.get("version", "")),
        tuple(map(str, answer.get("devices", ()))),
        dict(answer.get("facts", {})),
        str(answer.get("problem", "")),
    )


def select_environment(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that a child restores, to see the devices that the user's programs see.

    Child processes of this project see no device (`converter.child.process.ENVIRONMENT`).
    """
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "JAX_PLATFORMS")
    return {name: environment.get(name) for name in names if name in ENVIRONMENT}


def find_interpreter(python: str) -> str:
    """Return the absolute path of an interpreter.

    Links are not followed: the Python of a virtual environment is one.
    """
    return str(Path(shutil.which(python) or python).absolute())


def _probe_python(python: str) -> tuple[str, list[str]]:
    """Return the version and the ``sys.path`` of a Python.

    Raises:
        DependencyError: It cannot be run.
    """
    with tempfile.TemporaryDirectory(prefix="convert-") as folder:
        answer: dict[str, Any] = ask(
            PYTHON_SCRIPT, Path(folder), {}, what=python,
            allowance=Allowance(PYTHON_SECONDS), python=python,
        )  # fmt: skip
    return str(answer.get("version", "")), [str(p) for p in answer.get("path", ())]
