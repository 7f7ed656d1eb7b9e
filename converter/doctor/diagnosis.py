"""`diagnose`: what is wrong with this host, or why an artifact does not load on it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from converter.doctor.advice import Advice, advise, quote_path, try_commands
from converter.doctor.confirm import confirm
from converter.doctor.differences import Difference, find_differences
from converter.doctor.findings import SEVERITIES, Finding, Prediction
from converter.doctor.host import ONNXRUNTIME, TENSORFLOW, Host
from converter.doctor.predictions import check_source, predict
from converter.doctor.probes.host import FRAMEWORKS, probe_host
from converter.doctor.rules import nvidia, packages
from converter.doctor.source import Source, read_source
from converter.notebook import render_table
from formats.limits import DEFAULT, Limits

SCHEMA = "convert-doctor/1"
AT_FAULT = 7  # DESIGN.md: the environment is at fault

# Format → the framework whose loaders open it.
_LOADED_BY = {
    **dict.fromkeys(
        ("torch", "torchscript", "torch-export", "torch-members", "torch-sharded", "torch-dcp",
         "torch-deepspeed", "torch-megatron", "torch-zarr", "torch-ranks", "torch-package"),
        "torch"),
    **dict.fromkeys(("keras-h5", "keras"), "keras"),
    **dict.fromkeys(("savedmodel", "graphdef", "tf-checkpoint"), "tensorflow"),
    **dict.fromkeys(("onnx", "portable"), "onnxruntime"),
}  # fmt: skip
# Framework → subjects of findings that concern its loaders, and those of no other framework.
_TENSORFLOW = (*TENSORFLOW, "keras", "tf-keras", "tf_keras", "TF_USE_LEGACY_KERAS",
               "google.protobuf", "protobuf", "h5py")  # fmt: skip
_SUBJECTS = {
    "torch": ("torch", "torchvision"),
    "tensorflow": _TENSORFLOW,
    "keras": _TENSORFLOW,
    "onnxruntime": ONNXRUNTIME,
    "jax": ("jax", "jaxlib", "JAX_PLATFORMS"),
    "": ("mlflow", "mlflow-skinny", "ray", "transformers", "timm", "onnxscript"),
}
_GPU_CODES = frozenset((
    "driver-mismatch", "driver-broken", "driver-missing", "libcuda-missing", "driver-too-old",
    "devices-hidden", "no-kernel-image", "cpu-build", "libraries-missing", "cudnn-majors",
    "cuda-wheels-mixed", "library-shadowed", "device-unseen", "kernel-failed",
))  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis:
    """What is wrong with a host, or with a host for one artifact.

    Attributes:
        host: The machine and one Python on it.
        source: The artifact, if any.
        findings: Most severe first; with a source, only those that concern it.
        others: With a source: the findings about the host that do not concern it.
        predictions: Outcome of each official loader of the source, the usual loader first.
        advice: Commands that convert the source.
        differences: Recorded facts that differ from this host.
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
        """0, or 7 where the environment is at fault.

        That is an error among the findings, or, with a source, a usual loader that is not
        installed or fails.
        """
        usual = self.predictions[0] if self.predictions else None
        fails = usual is not None and (usual.outcome == "fails" or not usual.installed)
        return AT_FAULT if fails or any(f.severity == "error" for f in self.findings) else 0

    def plain(self) -> dict[str, Any]:
        """Return the diagnosis as a JSON-like dict whose schema is stable.

        Returns:
            ``schema`` (``convert-doctor/1``); ``exit_code``; ``host``: ``python``, ``executable``,
            ``system``, ``machine``, ``cpu``, ``variables``, ``nvidia`` (``driver``, ``cuda``,
            ``gpus``, …), ``rocm``, ``libraries``, ``packages`` (name → records), ``seen``
            (framework → result of importing it); ``source``: null, or ``path``, ``format``,
            ``variant``, ``evidence``, ``framework``, ``recorded``, ``devices``, ``distribution``,
            ``tensors``, ``parameters``, ``not_recorded``, ``findings``; ``findings`` and
            ``other_findings``: objects of ``code``, ``severity`` (``error``, ``warning``,
            ``note``), ``subject``, ``what``, ``why``, ``fix``; ``predictions``: objects of
            ``loader``, ``framework``, ``version``, ``installed``, ``outcome`` (``loads``,
            ``fails``, ``unknown``), ``error``, ``message``, ``cause``, ``why``, ``mends``,
            ``check``, ``measured``; ``differences``: objects of ``what``, ``recorded``, ``here``;
            ``advice``: null, or ``device``, ``why``, ``commands`` (objects of ``command`` and
            ``why``).
        """
        return {
            "schema": SCHEMA,
            "exit_code": self.exit_code,
            "host": asdict(self.host),
            "source": self.source.plain() if self.source else None,
            "findings": [asdict(f) for f in self.findings],
            "other_findings": [asdict(f) for f in self.others],
            "predictions": [asdict(p) for p in self.predictions],
            "differences": [asdict(d) for d in self.differences],
            "advice": self.advice.plain() if self.advice else None,
        }

    def __repr__(self) -> str:
        counts = Counter(f.severity for f in self.findings)
        words = [
            f"{p.loader} {p.outcome}" if p.installed else f"{p.framework} is not installed"
            for p in self.predictions[:1]
        ]
        words += [f"{counts[s]} {s}{'s' * (counts[s] > 1)}" for s in SEVERITIES if counts[s]]
        subject = self.source.path if self.source else "this host"
        return f"<Diagnosis of {subject}: {', '.join(words) or 'no findings'}>"

    def _repr_html_(self) -> str:
        loaders = [(p.loader, p.outcome, p.message or p.why, p.mends) for p in self.predictions]
        findings = [(f.severity, f.what, f.why, f.fix) for f in self.findings]
        commands = [(c.command, c.why) for c in self.advice.commands] if self.advice else []
        tables = (
            ("official loaders", loaders, ("loader", "outcome", "message", "works")),
            ("findings", findings, ("", "found", "why", "fix")),
            ("what convert does", commands, ("command", "result")),
        )
        html = "".join(render_table(*table) for table in tables if table[1])
        return html or render_table(repr(self), ())


def diagnose(
    source: str | Path | None = None,
    *,
    format: str | None = None,
    python: str | Path = "",
    fast: bool = False,
    name: str = "",
    limits: Limits = DEFAULT,
) -> Diagnosis:
    """Say why an artifact does not load here, or what is wrong with this host.

    Installed loaders are called, in their safe mode and in child processes, unless opening the
    artifact could run its author's code. Commands that are advised are tried, all but writing.

    Args:
        source: File, folder or checkpoint prefix; None to examine the host alone.
        format: Row id of `formats.catalog`; by default detected from the content.
        python: The Python whose packages are examined; by default the running one.
        fast: Import no framework, not even in a child process: loaders' outcomes are predicted.
        name: What commands call the source; by default its path.
        limits: Limits of reading.

    Raises:
        SourceError: The source is unknown, damaged or over a limit.
        UnsupportedError: The source is valid and not supported yet.
        DependencyError: ``python`` cannot be run.
    """
    described = None
    wanted: Iterable[str] = FRAMEWORKS
    if source is not None:
        described = read_source(str(source), format=format, name=name, limits=limits)
        wanted = [_LOADED_BY[described.format]] if described.format in _LOADED_BY else []
    host = probe_host(str(python), frameworks=() if fast else wanted)
    found = examine(host, described)
    if described is not None and found.advice is not None:
        found = replace(found, advice=try_commands(found.advice, described, limits))
    if described is not None and not fast:
        found = replace(found, predictions=tuple(confirm(found.predictions, described, host)))
    return found


def examine(host: Host, source: Source | None = None) -> Diagnosis:
    """Apply every rule to a host, and to an artifact if there is one; nothing else is read."""
    findings = check_host(host)
    if source is None:
        return Diagnosis(host, None, tuple(findings))
    path = quote_path(source.path)
    own = [replace(f, fix=f.fix.replace("SOURCE", path)) for f in check_source(source, host)]
    mine = [f for f in findings if concerns(f, source)]
    return Diagnosis(
        host, source, _sort([*own, *mine]), tuple(f for f in findings if f not in mine),
        tuple(predict(source, host)), advise(source, host), find_differences(source, host),
    )  # fmt: skip


def check_host(host: Host) -> tuple[Finding, ...]:
    """Return what is wrong with a host, most severe first."""
    return _sort(finding for rule in (*nvidia.RULES, *packages.RULES) for finding in rule(host))


def concerns(finding: Finding, source: Source) -> bool:
    """Return whether a finding about the host matters for an artifact.

    A finding about GPUs matters where the artifact names one, a finding about a framework where
    that framework loads the artifact.
    """
    own = _SUBJECTS.get(_LOADED_BY.get(source.format, "none"), ())
    if finding.subject not in own and any(finding.subject in s for s in _SUBJECTS.values()):
        return False
    return finding.code not in _GPU_CODES or _uses_gpu(source)


def _uses_gpu(source: Source) -> bool:
    """Return whether an artifact names an accelerator, or leaves placement to the runtime."""
    words = ("cuda", "gpu", "hip", "rocm")
    named = (device.lower() for device in source.named_devices)
    return source.format == "savedmodel" or any(word in d for d in named for word in words)


def _sort(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda f: SEVERITIES.index(f.severity)))
