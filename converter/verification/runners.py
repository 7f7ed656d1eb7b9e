"""The source in its own framework and the graph in onnxruntime, each in a child of its own.

The Python that has the framework is ours, or the one that ``CONVERT_TENSORFLOW_PYTHON`` names:
TensorFlow may so live in an environment of its own, and onnxruntime, whose build for GPUs excludes
the one for CPUs, in that of ``CONVERT_ONNXRUNTIME_PYTHON``. Of the Kerases that are there, the one
of the source's age is tried first: Keras 2 and 3 compute some layers differently.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np

from converter.child import process as child
from converter.child.process import PYTHON_VARIABLE, Allowance
from converter.child.trust import ROOT, Trusted, plain
from converter.verification.compare import Array
from converter.verification.inputs.draw import Case
from converter.verification.onnx_values import WIDENED, expose_values
from converter.verification.placement import CPU, DeviceRequest, Placement, parse_placement
from converter.verification.report import Runtime
from formats.core.bundle import TensorSpec
from formats.errors import DependencyError

CHILDREN = Path(__file__).parent / "children"
KERAS, ONNX = CHILDREN / "run_keras.py", CHILDREN / "run_onnxruntime.py"
FRAMEWORK_EXTRA = 'pip install "model-convert[tensorflow]"'
ONNX_PYTHON_VARIABLE = "CONVERT_ONNXRUNTIME_PYTHON"  # another Python, which has onnxruntime
TORCH_EXTRA = 'pip install "model-convert[torch]"'
ONNX_EXTRA = 'pip install "model-convert[cpu]"'
SUFFIXES = {"keras-h5": ".h5", "keras": ".keras"}  # Keras goes by these
BACKENDS = ("tensorflow", "jax", "torch")
KERASES = ("keras", "tf_keras")
LEGACY = {"tf_keras": {"TF_USE_LEGACY_KERAS": "1"}}
NOTHING: Mapping[str, str] = {}
TOGETHER = 64  # layers whose values one session returns: more at once is memory


@dataclass(frozen=True, slots=True)
class PreparedInputs:
    """Inputs as files that every child can read, numbered through all alternatives."""

    folder: Path
    names: tuple[str, ...]
    cases: tuple[Case, ...]
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class SourceRun:
    """What the source's framework made of the cases.

    Attributes:
        runtime: Who it was.
        chosen: Number of the alternative that it ran, for each case that it did run.
        dtypes: For each of those, its outputs' dtypes.
        refused: Cases of which it took no alternative, and why not.
        inputs: Name, dtype and shape of the inputs that it wants.
        layers: Path → outputs of each call: (file, output, dtype).
        notes: What was done otherwise than the framework does it.
        unstable: Numbers of outputs that are not the same when they are computed again.
        random: Operations of the source's that draw random numbers.
        placement: Where its parts were, where it was run on a device.
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
    """No framework that is here runs the source.

    Attributes:
        reason: What each said.
        is_missing: Whether there is none at all.
        lacks_device: Whether what it lacks is the device that it should run on.
        placement: Where it ran in place of that, where it did.
    """

    reason: str
    is_missing: bool
    lacks_device: bool = False
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class OnnxRun:
    """What onnxruntime made of the cases.

    Attributes:
        runtime: Who it was.
        refused: Why it does not take the graph, or empty.
        errors: Case → why it could not be computed.
        no_device: Why it has no such device as it should run on, or empty.
        placement: Where its nodes were, where it was run on a device.
    """

    runtime: Runtime
    refused: str
    errors: Mapping[int, str]
    no_device: str = ""
    placement: Placement | None = None


def write_inputs(
    folder: Path, specs: Sequence[TensorSpec], plan: Sequence[Sequence[Case]]
) -> PreparedInputs:
    """Write inputs down."""
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
    """Return an output that a side, ``out`` or ``onnx``, has written down."""
    path = prepared.folder / f"{side}-{case}-{number}.npy"
    return Array(np.asarray(np.load(path, allow_pickle=False)), dtype)


def has_onnxruntime() -> bool:
    """Return whether onnxruntime is installed, or another Python that may have it is named."""
    named = os.environ.get(ONNX_PYTHON_VARIABLE)
    return bool(named) or importlib.util.find_spec("onnxruntime") is not None


def may_have_keras() -> bool:
    """Return whether a Keras may be installed, without importing it."""
    named = os.environ.get(PYTHON_VARIABLE)
    return bool(named) or any(importlib.util.find_spec(name) for name in KERASES)


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
    on: DeviceRequest = CPU,
) -> SourceRun | RunSkipped:
    """Run the source on every case, in whichever Keras loads it.

    Args:
        source: The artifact.
        form: Row id of its format.
        version: Of the Keras that wrote it, as recorded.
        prepared: The inputs.
        allowance: For each child.
        layers: Paths of layers whose outputs are wanted too.
        trust: Modules of the user's that the source's own classes may be taken from.
        only: The one framework that shall run it.
        on: Where.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
    """
    if on.device is not None and not on.device.tensorflow:
        text = f"Keras has no device {on.device}"
        return RunSkipped(text, is_missing=False, lacks_device=True)
    python = os.environ.get(PYTHON_VARIABLE) or sys.executable
    candidates = _candidates(_packages(python, prepared.folder, allowance), version)
    linked = _with_suffix(source, form, prepared.folder)
    said: list[str] = []
    is_missing, lacks_device = True, False
    for framework, backend in candidates:
        if only not in (None, framework):
            continue
        question = {
            "framework": framework,
            "source": str(linked),
            "inputs": prepared.names,
            "cases": prepared.groups,
            "layers": list(layers),
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
            # What tf.keras is to modules of the user's.
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
        said += [f"{name}: {text}" for text in run.refused[:1]]
    return RunSkipped("; ".join(dict.fromkeys(said)), is_missing, lacks_device)


def _packages(python: str, folder: Path, allowance: Allowance) -> set[str]:
    """Return which of the packages that could run a source are there."""
    if python == sys.executable:
        return {p for p in (*BACKENDS, *KERASES) if importlib.util.find_spec(p) is not None}
    child.run([python, str(KERAS), "--probe"], folder, python, allowance, {})
    lines = (folder / child.LOG).read_text("utf-8", "replace").splitlines()
    try:
        return set(json.loads(lines[-1]))
    except (IndexError, ValueError) as e:
        raise DependencyError("does not behave like Python", where=python) from e


def _candidates(packages: set[str], version: str) -> list[tuple[str, str]]:
    """Return frameworks and their back ends, in the order to try them."""
    backends = [b for b in BACKENDS if b in packages]
    chosen = os.environ.get("KERAS_BACKEND")
    backends.sort(key=lambda b: b != chosen)
    today = [("keras", b) for b in backends if "keras" in packages]
    before = [("tf_keras", "tensorflow")] if {"tf_keras", "tensorflow"} <= packages else []
    return before + today if version.startswith(("1.", "2.")) else today + before


def _with_suffix(source: Path, form: str, folder: Path) -> Path:
    """Return a path to the source with the suffix by which Keras knows its format."""
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
    """Return what a child that has run a source answers."""
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
        cases: Numbers of those to run.
        outputs: Name → dtype of the graph's outputs that are wanted, in the order of their files.
        allowance: For the child.
        more: Values that are no outputs, likewise with their dtypes: wanted too, after those.
        prefix: Of the outputs' files.
        on: Where to run it.

    Raises:
        DependencyError: The child died, hung, or took too much memory.
    """
    widened = [name for name, dtype in outputs.items() if dtype in WIDENED]
    extras: list[str | None] = []
    wanted: list[list[str]] = []
    if outputs:
        data, shown = expose_values([], widened)
        extras.append(_kept(prepared.folder, f"{prefix}-outputs", data) if widened else None)
        wanted.append([shown.get(name, name) for name in outputs])
    for start in range(0, len(more), TOGETHER):
        part = [*more][start : start + TOGETHER]
        data, shown = expose_values(part, [name for name in part if more[name] in WIDENED])
        extras.append(_kept(prepared.folder, f"{prefix}-{start}", data))
        wanted.append([shown[name] for name in part])
    question: dict[str, Any] = {
        "model": str(model.absolute()),
        "extras": extras,
        "outputs": wanted,
        "inputs": prepared.names,
        "cases": list(cases),
        "prefix": prefix,
    }
    if on.device is not None:
        options = on.device.provider_options(allow_tf32=on.allow_tf32)
        question |= {**on.question(on.device.provider), "options": options}
    answer = child.ask(
        ONNX,
        prepared.folder,
        question,
        what="onnxruntime",
        allowance=allowance,
        python=os.environ.get(ONNX_PYTHON_VARIABLE) or sys.executable,
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


def _kept(folder: Path, name: str, data: bytes) -> str:
    (folder / f"{name}.extra").write_bytes(data)
    return f"{name}.extra"
