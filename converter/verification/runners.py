"""Run a source in Keras and a graph in onnxruntime, each in a child process.

The child runs in this Python, or in the one that ``CONVERT_TENSORFLOW_PYTHON`` names: TensorFlow
may have an environment of its own. So may onnxruntime, whose builds for GPUs and CPUs exclude each
other (``CONVERT_ONNXRUNTIME_PYTHON``). Of the installed Keras versions, that of the source is tried
first: Keras 2 and 3 compute some layers differently.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copyfile
from typing import Any, Protocol, runtime_checkable

import numpy as np

from converter.child import process as child
from converter.child.process import PYTHON_VARIABLE, Allowance
from converter.child.trust import ROOT, Trusted, plain
from converter.verification.compare import Array
from converter.verification.inputs.draw import Case
from converter.verification.measure import Runtime
from converter.verification.onnx_values import WIDENED, expose_values
from converter.verification.placement import CPU, DeviceRequest, Placement, parse_placement
from formats.core.bundle import TensorSpec
from formats.errors import DependencyError

CHILDREN = Path(__file__).parent / "children"
KERAS, ONNX = CHILDREN / "run_keras.py", CHILDREN / "run_onnxruntime.py"
ONNX_PYTHON_VARIABLE = "CONVERT_ONNXRUNTIME_PYTHON"  # another Python, which has onnxruntime
SUFFIXES = {"keras-h5": ".h5", "keras": ".keras"}  # by which Keras chooses its loader
BACKENDS = ("tensorflow", "jax", "torch")
KERAS_PACKAGES = ("keras", "tf_keras")
LEGACY = {"tf_keras": {"TF_USE_LEGACY_KERAS": "1"}}
NOTHING: Mapping[str, str] = {}
VALUES_PER_SESSION = 64  # values that one session returns; it bounds memory


@dataclass(frozen=True, slots=True)
class PreparedInputs:
    """Inputs as files that child processes read; cases are all alternatives, in groups.

    Attributes:
        prefix: Prefix of the files.
    """

    folder: Path
    names: tuple[str, ...]
    cases: tuple[Case, ...]
    groups: tuple[tuple[int, ...], ...]
    prefix: str = "in"


@dataclass(frozen=True, slots=True)
class SourceRun:
    """A run of a model in its framework.

    Attributes:
        runtime: The framework.
        chosen: Index of the alternative that ran, for each case that ran.
        dtypes: Dtypes of the outputs, by index of the case.
        refused: Cases without an accepted alternative, and why.
        inputs: Name, dtype and shape of the model's inputs.
        layers: Path → outputs of each call: (file, index of the output, dtype).
        notes: Deviations from the framework's own behaviour.
        unstable: Indices of outputs that differ when they are computed again.
        random: Operations that draw random numbers.
        placement: Placement of its nodes, if it ran on a device.
    """

    runtime: Runtime
    chosen: tuple[int, ...]
    dtypes: Mapping[int, Sequence[str]]
    refused: tuple[str, ...]
    inputs: Sequence[tuple[str, str, Sequence[int | None] | None]]
    layers: Mapping[str, Sequence[tuple[Path, int, str]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unstable: frozenset[int] = frozenset()
    random: tuple[str, ...] = ()
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class RunSkipped:
    """A run that was skipped, since no installed framework runs the model.

    Attributes:
        reason: Message of each framework.
        is_missing: Whether no framework is installed.
        lacks_device: Whether only the requested device is missing.
        placement: Placement of its nodes, if it ran elsewhere instead.
        failure: What the framework says of the first input, if it loaded the model and failed on
            every input; or empty.
    """

    reason: str
    is_missing: bool
    lacks_device: bool = False
    placement: Placement | None = None
    failure: str = ""


class Model(Protocol):
    """A model that a runtime runs."""

    def run(
        self, prepared: PreparedInputs, layers: Sequence[str] = (), on: DeviceRequest = CPU
    ) -> SourceRun | RunSkipped:
        """Run it on cases; return the outputs, and those of layers."""
        ...


@runtime_checkable
class PreciseModel(Protocol):
    """A model whose runtime computes in float64 what the model computes in float32."""

    def run_in_float64(self, prepared: PreparedInputs) -> SourceRun | RunSkipped:
        """Run it on cases; return the outputs."""
        ...


@dataclass(frozen=True, slots=True)
class OnnxRun:
    """A run of a graph in onnxruntime.

    Attributes:
        runtime: Version and device of onnxruntime.
        refused: Why it rejects the graph, or empty.
        errors: Index of a case → why it failed.
        no_device: Why the requested device is not available, or empty.
        placement: Placement of its nodes, if it ran on a device.
    """

    runtime: Runtime
    refused: str
    errors: Mapping[int, str]
    no_device: str = ""
    placement: Placement | None = None


def write_inputs(
    folder: Path, specs: Sequence[TensorSpec], plan: Sequence[Sequence[Case]]
) -> PreparedInputs:
    """Write inputs to files."""
    cases: list[Case] = []
    groups = []
    for alternatives in plan:
        groups.append(tuple(range(len(cases), len(cases) + len(alternatives))))
        cases += alternatives
    for number, case in enumerate(cases):
        for i, array in enumerate(case.arrays):
            np.save(folder / f"in-{number}-{i}.npy", array)
    return PreparedInputs(folder, tuple(s.name for s in specs), tuple(cases), tuple(groups))


def load_output(prepared: PreparedInputs, side: str, case: int, number: int, dtype: str) -> Array:
    """Load an output that a child process has written; ``side`` is the prefix of its file."""
    path = prepared.folder / f"{side}-{case}-{number}.npy"
    return Array(np.asarray(np.load(path, allow_pickle=False)), dtype)


def has_onnxruntime() -> bool:
    """Return whether onnxruntime is installed, or another Python that may have it is named."""
    named = os.environ.get(ONNX_PYTHON_VARIABLE)
    return bool(named) or importlib.util.find_spec("onnxruntime") is not None


def onnx_python() -> str:
    """Return the Python that has onnxruntime."""
    return os.environ.get(ONNX_PYTHON_VARIABLE) or sys.executable


def may_have_keras() -> bool:
    """Return whether a Keras may be installed, without importing it."""
    named = os.environ.get(PYTHON_VARIABLE)
    return bool(named) or any(importlib.util.find_spec(name) for name in KERAS_PACKAGES)


# -- the source ----------------------------------------------------------------------------------


def run_keras(
    source: Path,
    form: str,
    version: str,
    prepared: PreparedInputs,
    allowance: Allowance,
    *,
    layers: Sequence[str] = (),
    trust: Sequence[Trusted] = (),
    only: str | None = None,
    flipped: Sequence[str] = (),
    states: Sequence[str] = (),
    on: DeviceRequest = CPU,
) -> SourceRun | RunSkipped:
    """Run the source on every case, in the first Keras that loads it.

    Args:
        source: The artifact.
        form: Id of its format.
        version: Keras version that wrote it, as recorded.
        prepared: The inputs.
        allowance: Limits of each child process.
        layers: Paths of layers whose outputs are returned too.
        trust: Trusted modules with the custom classes of the source.
        only: The only framework to try.
        flipped: Paths of layers whose kernels Theano stored turned around.
        states: States that are the last inputs and outputs: paths of layers, and numbers.
        on: Device to run on.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
    """
    if on.device is not None and not on.device.tensorflow:
        text = f"Keras has no device {on.device}"
        return RunSkipped(text, is_missing=False, lacks_device=True)
    python = os.environ.get(PYTHON_VARIABLE) or sys.executable
    candidates = _rank_frameworks(_find_packages(python, prepared.folder, allowance), version)
    linked = _link_with_suffix(source, form, prepared.folder)
    said: list[str] = []
    is_missing, lacks_device, failure = True, False, ""
    for framework, backend in candidates:
        if only not in (None, framework):
            continue
        question = {
            "framework": framework,
            "source": str(linked),
            "inputs": prepared.names[: len(prepared.names) - len(states)],
            "prefix": prepared.prefix,
            "states": list(states),
            "first": [number for number, case in enumerate(prepared.cases) if case.is_first],
            "cases": prepared.groups,
            "layers": list(layers),
            "flipped": list(flipped),
            "trusted": plain(trust),
            "root": str(ROOT),
            **on.question(on.device.tensorflow if on.device is not None else ""),
        }
        answer = child.ask(
            KERAS,
            prepared.folder,
            question,
            what=framework,
            allowance=allowance,
            python=python,
            # The module that user code imports as tf.keras.
            environment={
                "KERAS_BACKEND": backend,
                **LEGACY.get(framework, {}),
                **on.environment(),
            },
        )
        status = answer.get("status")
        versions = dict(answer.get("versions", {}))
        name = f"{framework} {versions.get(framework, '')}".strip()
        if status != "absent":
            is_missing = False
        lacks_device |= status == "no device"
        if status != "done":
            said.append(f"{name}: {answer.get('error')}")
            continue
        run = parse_run(framework, versions, answer, prepared)
        if run.chosen:
            return run
        failure = failure or f"{name}: {run.refused[0]}"
        said.append(f"{name}: {run.refused[0]}")
    reason = "; ".join(dict.fromkeys(said))
    return RunSkipped(reason, is_missing, lacks_device, failure=failure)


def _find_packages(python: str, folder: Path, allowance: Allowance) -> set[str]:
    """Return the installed packages that may run a source."""
    if python == sys.executable:
        return {p for p in (*BACKENDS, *KERAS_PACKAGES) if importlib.util.find_spec(p) is not None}
    child.run([python, str(KERAS), "--probe"], folder, python, allowance, {})
    lines = (folder / child.LOG).read_text("utf-8", "replace").splitlines()
    try:
        return set(json.loads(lines[-1]))
    except (IndexError, ValueError) as e:
        raise DependencyError("does not behave like Python", where=python) from e


def _rank_frameworks(packages: set[str], version: str) -> list[tuple[str, str]]:
    """Return frameworks and their backends, in the order to try them."""
    backends = [b for b in BACKENDS if b in packages]
    chosen = os.environ.get("KERAS_BACKEND")
    backends.sort(key=lambda b: b != chosen)
    today = [("keras", b) for b in backends if "keras" in packages]
    before = [("tf_keras", "tensorflow")] if {"tf_keras", "tensorflow"} <= packages else []
    return before + today if version.startswith(("1.", "2.")) else today + before


def _link_with_suffix(source: Path, form: str, folder: Path) -> Path:
    """Return a path to the source with the suffix that Keras expects."""
    source = source.absolute()
    suffix = SUFFIXES.get(form, "")
    if source.is_dir() or source.suffix == suffix:
        return source
    linked = folder / f"source{suffix}"
    if not linked.exists():
        try:
            linked.symlink_to(source)
        except OSError:  # a system without links
            copyfile(source, linked)
    return linked


def parse_run(
    framework: str, versions: Mapping[str, str], answer: Mapping[str, Any], prepared: PreparedInputs
) -> SourceRun:
    """Parse the answer of a child process that has run a source."""
    chosen, refused = [], []
    dtypes: dict[int, Sequence[str]] = {}
    for case, group in zip(answer["cases"], prepared.groups, strict=True):
        if case["chosen"] is None:
            words = next(iter(case["refused"].values()), "")
            refused.append(f"{prepared.cases[group[0]].name}: {words}")
        else:
            chosen.append(case["chosen"])
            dtypes[case["chosen"]] = case["dtypes"]
    layers: dict[str, list[tuple[Path, int, str]]] = {}
    for i, (path, number, dtype) in enumerate(answer["layers"]):
        layers.setdefault(path, []).append((prepared.folder / f"layer-{i}.npy", number, dtype))
    others = {k: v for k, v in versions.items() if k != framework} | {"python": answer["python"]}
    return SourceRun(
        Runtime(framework, versions.get(framework, ""), answer["device"], others),
        tuple(chosen),
        dtypes,
        tuple(refused),
        [(name, dtype, shape) for name, dtype, shape in answer["inputs"]],
        layers,
        tuple(answer.get("notes", ())),
        placement=parse_placement(answer),
    )


# -- the graph -----------------------------------------------------------------------------------


def run_onnx(
    model: Path,
    prepared: PreparedInputs,
    cases: Sequence[int],
    outputs: Mapping[str, str],
    allowance: Allowance,
    *,
    more: Mapping[str, str] = NOTHING,
    prefix: str = "onnx",
    on: DeviceRequest = CPU,
) -> OnnxRun:
    """Run a graph on cases.

    Args:
        model: The ONNX file.
        prepared: The inputs.
        cases: Indices of the cases to run.
        outputs: Name → dtype of the outputs to return, in the order of their files.
        allowance: Limits of the child process.
        more: Name → dtype of other values to return, after the outputs.
        prefix: Prefix of the outputs' files.
        on: Device to run on.

    Raises:
        DependencyError: The child died, hung, or took too much memory.
    """
    question = describe_sessions(model, prepared, cases, outputs, more, prefix)
    if on.device is not None:
        options = on.device.provider_options(allow_tf32=on.allow_tf32)
        question |= {**on.question(on.device.provider), "options": options}
    answer = child.ask(
        ONNX,
        prepared.folder,
        question,
        what="onnxruntime",
        allowance=allowance,
        python=onnx_python(),
        environment=on.environment(),
    )
    runtime = Runtime(
        "onnxruntime",
        answer["version"],
        answer.get("device", ""),
        {"numpy": answer["numpy"], "python": answer["python"]},
    )
    errors = {int(case): text for case, text in answer["errors"].items()}
    no_device = answer["error"] if answer.get("status") == "no device" else ""
    return OnnxRun(runtime, answer.get("refused", ""), errors, no_device, parse_placement(answer))


def describe_sessions(
    model: Path,
    prepared: PreparedInputs,
    cases: Sequence[int],
    outputs: Mapping[str, str],
    more: Mapping[str, str],
    prefix: str,
) -> dict[str, Any]:
    """Return the fields of a question that say what to run and what to return.

    Args:
        model: The ONNX file.
        prepared: The inputs; files that expose more values are written to its folder.
        cases: Indices of the cases to run.
        outputs: Name → dtype of the outputs to return, in the order of their files.
        more: Name → dtype of other values to return, after the outputs.
        prefix: Prefix of the outputs' files.
    """
    widened = [name for name, dtype in outputs.items() if dtype in WIDENED]
    extras: list[str | None] = []
    wanted: list[list[str]] = []
    if outputs:
        data, shown = expose_values([], widened)
        extras.append(_write_extra(prepared.folder, f"{prefix}-outputs", data) if widened else None)
        wanted.append([shown.get(name, name) for name in outputs])
    for start in range(0, len(more), VALUES_PER_SESSION):
        part = [*more][start : start + VALUES_PER_SESSION]
        data, shown = expose_values(part, [name for name in part if more[name] in WIDENED])
        extras.append(_write_extra(prepared.folder, f"{prefix}-{start}", data))
        wanted.append([shown[name] for name in part])
    return {
        "model": str(model.absolute()),
        "extras": extras,
        "outputs": wanted,
        "inputs": prepared.names,
        "cases": list(cases),
        "prefix": prefix,
    }


def _write_extra(folder: Path, name: str, data: bytes) -> str:
    (folder / f"{name}.extra").write_bytes(data)
    return f"{name}.extra"
