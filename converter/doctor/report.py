"""The doctor's report: everything that was found, as plain data."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from converter.doctor.advice import Advice, advise
from converter.doctor.differences import Difference, compare
from converter.doctor.findings import SEVERITIES, Finding, Prediction
from converter.doctor.host import ONNXRUNTIME, TENSORFLOW, Host
from converter.doctor.loaders import predictions
from converter.doctor.rules import nvidia, packages
from converter.doctor.source import Source

SCHEMA = "convert-doctor/1"
AT_FAULT = 7  # DESIGN.md: the environment is at fault

# Frameworks that a format's loaders belong to: findings about others do not concern it.
_FAMILIES = {
    "torch": ("torch", "torchvision"),
    "tensorflow": (*TENSORFLOW, "keras", "tf-keras", "tf_keras", "TF_USE_LEGACY_KERAS",
                   "google.protobuf", "protobuf", "h5py"),
    "onnx": (*ONNXRUNTIME,),
    "jax": ("jax", "jaxlib", "JAX_PLATFORMS"),
    "others": ("mlflow", "mlflow-skinny", "ray", "transformers", "timm", "onnxscript"),
}  # fmt: skip
_NEEDS = {
    "torch": "torch", "torchscript": "torch", "torch-export": "torch", "torch-package": "torch",
    "torch-members": "torch", "torch-sharded": "torch", "torch-dcp": "torch",
    "keras-h5": "tensorflow", "keras": "tensorflow", "savedmodel": "tensorflow",
    "graphdef": "tensorflow", "tf-checkpoint": "tensorflow", "onnx": "onnx", "portable": "onnx",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """What the doctor found.

    Attributes:
        host: This machine and one Python on it.
        source: The artifact, where one was given.
        findings: The gravest first; with a source, those that concern it and it alone.
        others: With a source: findings about the host that do not concern it.
        predictions: What official loaders make of it here, the usual one first.
        advice: What to do with it.
        differences: What it records otherwise than it is here.
    """

    host: Host
    source: Source | None
    findings: tuple[Finding, ...]
    others: tuple[Finding, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    advice: Advice | None = None
    differences: tuple[Difference, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 where nothing is wrong, 7 where the environment is at fault.

        Without a source: an error-level finding. With one: the usual loader (the first
        prediction) is not here, or does not open it as it is, or an error-level finding concerns
        it.
        """
        if any(f.severity == "error" for f in self.findings):
            return AT_FAULT
        usual = self.predictions[0] if self.predictions else None
        if usual is not None and (usual.outcome == "fails" or not usual.installed):
            return AT_FAULT
        return 0

    def document(self) -> dict[str, Any]:
        """Return the report as JSON, in a form that stays.

        Returns:
            ``schema`` (``convert-doctor/1``); ``exit_code``; ``host``: ``python``, ``executable``,
            ``system``, ``machine``, ``cpu``, ``variables``, ``nvidia`` (``driver``, ``cuda``,
            ``gpus``, …), ``rocm``, ``libraries``, ``packages`` (name → records), ``seen``
            (framework → what it said); ``source``: null, or ``path``, ``format``, ``variant``,
            ``evidence``, ``framework``, ``recorded``, ``devices``, ``distribution``, ``tensors``,
            ``parameters``, ``not_recorded``, ``findings``; ``findings`` and ``other_findings``:
            objects of ``code``, ``severity`` (``error``, ``warning``, ``note``), ``subject``,
            ``what``, ``why``, ``fix``; ``predictions``: objects of ``loader``, ``framework``,
            ``version``, ``installed``, ``outcome`` (``loads``, ``fails``, ``unknown``), ``error``,
            ``message``, ``cause``, ``why``, ``mends``, ``check``, ``measured``; ``differences``:
            objects of ``what``, ``recorded``, ``here``; ``advice``: null, or ``device``, ``why``,
            ``commands`` (objects of ``command`` and ``why``).
        """
        return {
            "schema": SCHEMA,
            "exit_code": self.exit_code,
            "host": asdict(self.host),
            "source": _source(self.source) if self.source else None,
            "findings": [asdict(f) for f in self.findings],
            "other_findings": [asdict(f) for f in self.others],
            "predictions": [asdict(p) for p in self.predictions],
            "differences": [asdict(d) for d in self.differences],
            "advice": asdict(self.advice) if self.advice else None,
        }


def _source(source: Source) -> dict[str, Any]:
    kept = ("path", "format", "variant", "evidence", "framework", "tensors", "parameters")
    return {name: getattr(source, name) for name in kept} | {
        "recorded": dict(source.recorded),
        "devices": dict(source.devices),
        "distribution": dict(source.distribution),
        "not_recorded": list(source.not_recorded),
        "findings": [asdict(f) for f in source.findings],
    }


def host_findings(host: Host) -> list[Finding]:
    """Return what is wrong with a host, the gravest first."""
    rules = (*nvidia.RULES, *packages.RULES)
    return _sorted(finding for rule in rules for finding in rule(host))


def examine(host: Host, source: Source | None = None) -> Report:
    """Return what is wrong with a host, or with a host for an artifact. Looks at nothing else."""
    found = host_findings(host)
    if source is None:
        return Report(host, None, tuple(found))
    mine = [f for f in found if concerns(f, source)]
    advice = advise(source, host)
    own = [
        replace(f, fix=f.fix.replace("SOURCE", advice_path(source)))
        for f in predictions.findings(source, host)
    ]
    return Report(
        host, source, tuple(_sorted([*own, *mine])),
        tuple(f for f in found if f not in mine),
        tuple(predictions.predict(source, host)), advice, compare(source, host),
    )  # fmt: skip


def advice_path(source: Source) -> str:
    """Return the artifact's path as a shell takes it."""
    import shlex

    return shlex.quote(source.path)


def concerns(finding: Finding, source: Source) -> bool:
    """Whether a finding about the host has to do with an artifact.

    A GPU's troubles concern an artifact that names one; a framework's those of its formats.
    """
    family = _NEEDS.get(source.format, "")
    for name, subjects in _FAMILIES.items():
        if finding.subject in subjects:
            return name == family and (finding.code not in GPU_CODES or names_gpu(source))
    return finding.code not in GPU_CODES or names_gpu(source)


GPU_CODES = frozenset((
    "driver-mismatch", "driver-broken", "driver-missing", "libcuda-missing", "driver-too-old",
    "devices-hidden", "no-kernel-image", "cpu-build", "libraries-missing", "cudnn-majors",
    "cuda-wheels-mixed", "library-shadowed", "device-unseen", "kernel-failed",
))  # fmt: skip


def names_gpu(source: Source) -> bool:
    """Whether an artifact names an accelerator, or is a graph whose placement is the runtime's."""
    named = [*source.devices, *(source.torch.code_devices if source.torch else ())]
    words = ("cuda", "gpu", "hip", "rocm")
    return source.format == "savedmodel" or any(w in d.lower() for d in named for w in words)


def _sorted(found: Iterable[Finding]) -> list[Finding]:
    return sorted(found, key=lambda f: SEVERITIES.index(f.severity))
