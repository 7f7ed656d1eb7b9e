"""Predict how torch's loaders end: rules with the messages of torch 2.13.

tests/live/torch/test_doctor.py compares them with torch itself. What a file does not record (the
versions of torch, CUDA, cuDNN and the driver) cannot make it fail.
Spec: https://github.com/pytorch/pytorch/blob/cf30153c4c131c8164ee7798e5022d810682e2cb/torch/serialization.py
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TypeAlias

from converter.doctor.findings import Failure, Finding, Prediction
from converter.doctor.host import Host, parse_release
from converter.doctor.loaders.pickle_events import Event

REFERENCE = "2.13"  # whose rules are applied
EXPORT_SCHEMA = 8  # major version of graphs that it reads
OPS = Path(__file__).parents[1] / "data" / "torch_ops.txt"
UNREADABLE = "We ran into an error when deserializing the saved file."  # the cause is a warning
WEIGHTS_ONLY_SINCE = (2, 6)  # weights_only=True is the default of torch.load
UNSAFE = (
    "In PyTorch 2.6, we changed the default value of the `weights_only` argument in `torch.load` "
    "from `False` to `True`. Re-running `torch.load` with `weights_only` set to `False` will "
    "likely succeed, but it can result in arbitrary code execution. Do it only if you got the "
    "file from a trusted source."
)
BLOCKED = ("sys", "os", "posix", "nt")  # modules that no allow-list may name
# The globals that torch.load(weights_only=True) allows: `_get_allowed_globals` of torch 2.13.
_STORED = (
    "BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short",
)  # fmt: skip
_DTYPES = """
    bfloat16 bits16 bits1x8 bits2x4 bits4x2 bits8 bool complex128 complex32 complex64 float16
    float32 float4_e2m1fn_x2 float64 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz
    float8_e8m0fnu int1 int16 int2 int3 int32 int4 int5 int6 int64 int7 int8 per_channel_affine
    per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine per_tensor_symmetric
    qint32 qint8 quint2x4 quint4x2 quint8 uint1 uint16 uint2 uint3 uint32 uint4 uint5 uint6 uint64
    uint7 uint8
""".split()  # noqa: SIM905 - names to be compared with torch's
ALLOWED = frozenset(
    (
        "_codecs.encode", "builtins.bytearray", "builtins.complex", "builtins.set",
        "collections.Counter", "collections.OrderedDict", "torch.Size", "torch.Tensor",
        "torch._tensor._rebuild_from_type_v2", "torch.device", "torch.nn.parameter.Parameter",
        "torch.serialization._get_layout", "torch.storage.TypedStorage",
        "torch.storage.UntypedStorage",
        *(f"torch._utils._rebuild_{x}" for x in (
            "device_tensor_from_cpu_tensor", "device_tensor_from_numpy", "meta_tensor_no_storage",
            "nested_tensor", "parameter", "parameter_with_state", "qtensor", "sparse_tensor",
            "tensor", "tensor_v2", "tensor_v3", "wrapper_subclass",
        )),
        *(f"torch.{x}" for x in _DTYPES),
        *(f"torch.{x}Storage" for x in (
            *_STORED, "ComplexDouble", "ComplexFloat", "QInt32", "QInt8", "QUInt2x4", "QUInt4x2",
            "QUInt8",
        )),
        *(f"torch.cuda.{x}Storage" for x in (*_STORED, "ComplexDouble", "ComplexFloat")),
        *(f"torch.{place}{x}Tensor" for place in ("", "cuda.") for x in _STORED),
        *(f"torch.{place}{x}Tensor" for place in ("sparse.", "cuda.sparse.")
          for x in _STORED if x != "Bool"),
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """What decides how torch's loaders end.

    Attributes:
        container: ``zip``, ``stream``, ``tar``, ``script``, ``script-json``, ``exported``,
            ``exported-old`` (before torch 2.7), or ``other``, which no single call of torch opens.
        events: What the loader meets in the pickle, in order.
        code_devices: Devices named in TorchScript code or in an exported graph → how often.
        sets_state: Whether TorchScript code has a ``__setstate__``, which loading runs.
        schema: Recorded schema version of an exported program.
        ops: Operators that TorchScript code or an exported graph calls: ``aten::relu``.
    """

    container: str
    events: tuple[Event, ...] = ()
    code_devices: Mapping[str, int] = field(default_factory=dict)
    sets_state: bool = False
    schema: str = ""
    ops: frozenset[str] = frozenset()

    @property
    def unknown_ops(self) -> tuple[str, ...]:
        """Operators that torch itself does not register."""
        return tuple(sorted(self.ops - read_registered_ops()))


@cache
def read_registered_ops() -> frozenset[str]:
    """Return every operator that torch registers, read from OPS."""
    return frozenset(OPS.read_text().split())


@dataclass(frozen=True, slots=True)
class TorchInstallation:
    """The torch of a host, and the devices it sees."""

    version: str
    installed: bool
    cuda_built: bool
    cuda_devices: int
    mps: bool = False
    xpu: bool = False


def find_torch(host: Host) -> TorchInstallation:
    """Return the torch of a host, as torch reports it, or as its build and the driver imply."""
    package, seen = host.package("torch"), host.seen.get("torch")
    if seen and not seen.problem:
        count = seen.facts.get("cuda_devices")
        return TorchInstallation(
            seen.version,
            installed=True,
            cuda_built=bool(seen.facts.get("cuda") or seen.facts.get("hip")),
            cuda_devices=count if isinstance(count, int) else 0,
            mps=bool(seen.facts.get("mps_available")),
            xpu=bool(seen.facts.get("xpu_available")),
        )
    built = bool(package and (package.build.get("cuda") or package.build.get("hip")))
    usable = (built or package is None) and host.nvidia.libcuda
    return TorchInstallation(
        package.version if package else REFERENCE,
        installed=package is not None,
        cuda_built=built,
        cuda_devices=len(host.visible_gpus) if usable else 0,
    )


# -- torch.load -----------------------------------------------------------------------------------


def check_device(location: str, torch: TorchInstallation) -> Failure | None:
    """Return how ``torch.load`` fails on a storage's device; None if it accepts it."""
    kind, _, index = location.partition(":")
    if kind in ("cpu", "meta") or (kind == "mps" and torch.mps):
        return None
    if kind == "mps":
        return Failure(
            "RuntimeError", "torch.UntypedStorage(): Storage device not recognized: mps",
            "device-absent", "a storage is tagged mps (Apple), which is not here",
        )  # fmt: skip
    if kind == "hpu":
        return Failure(
            "RuntimeError", "The HPU device module is not registered. If you are running on a "
            "CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map "
            "your storages to the CPU.", "device-absent", "a storage is tagged hpu (Gaudi)",
        )  # fmt: skip
    count = {"cuda": torch.cuda_devices, "xpu": int(torch.xpu), "mtia": 0}.get(kind)
    if count is None:
        return Failure(
            "RuntimeError", "don't know how to restore data location of "
            f"torch.storage.UntypedStorage (tagged with {location})",
            "device-unknown", f"a storage is tagged {location}, which torch does not know",
        )  # fmt: skip
    if count == 0:
        return Failure(
            "RuntimeError",
            f"Attempting to deserialize object on a {kind.upper()} device but "
            f"torch.{kind}.is_available() is False. If you are running on a CPU-only machine, "
            "please use torch.load with map_location=torch.device('cpu') to map your storages to "
            "the CPU.",
            "device-absent", f"a storage is tagged {location}, and torch sees no such device here",
        )  # fmt: skip
    number = int(index) if index.isdecimal() else 0
    if number < count:
        return None
    return Failure(
        "RuntimeError",
        f"Attempting to deserialize object on {kind.upper()} device {number} but "
        f"torch.{kind}.device_count() is {count}. Please use torch.load with map_location to "
        "map your storages to an existing device.",
        "device-index", f"a storage is tagged {location}; torch sees {count} such device(s) here",
    )  # fmt: skip


def check_global(name: str) -> Failure | None:
    """Return how ``weights_only=True`` fails on a global; None if it is allowed."""
    if name in ALLOWED:
        return None
    module = name.rpartition(".")[0]
    if module in BLOCKED:
        return Failure(
            "UnpicklingError",
            f"Weights only load failed. {UNSAFE}\n\n\nTrying to load unsupported GLOBAL {name} "
            f"whose module {module} is blocked.",
            "global-blocked", f"the pickle names {name}, which would act outside the file",
        )  # fmt: skip
    shown = name.removeprefix("builtins.")
    return Failure(
        "UnpicklingError",
        "Weights only load failed. This file can still be loaded, to do so you have two options, "
        "\033[1mdo those steps only if you trust the source of the checkpoint\033[0m. "
        f"\n\t(1) {UNSAFE}\n\t(2) Alternatively, to load with `weights_only=True` please check "
        "the recommended steps in the following error message.\n\tWeightsUnpickler error: "
        f"Unsupported global: GLOBAL {shown} was not an allowed global by default.",
        "global-refused", f"the pickle names {shown}, which weights_only=True does not allow",
    )  # fmt: skip


def check_events(
    events: Iterable[Event], torch: TorchInstallation, *, weights_only: bool, mapped: bool
) -> Failure | None:
    """Return how ``torch.load`` fails on the first event that it does not accept.

    Args:
        events: Of the pickle, in order.
        torch: The installation.
        weights_only: The argument of ``torch.load``; True by default since torch 2.6.
        mapped: Whether ``map_location="cpu"`` is passed.
    """
    for event in events:
        failure = None
        if event.kind == "storage" and not mapped:
            failure = check_device(event.value, torch)
        elif event.kind == "global" and weights_only:
            failure = check_global(event.value)
        elif event.kind == "opcode" and event.value == "no-magic":
            failure = Failure(
                "RuntimeError", "Invalid magic number; corrupt file?",
                "no-torch-file", "it is a pickle that torch.save did not write",
            )  # fmt: skip
        elif event.kind == "opcode" and weights_only:
            failure = Failure(
                "UnpicklingError",
                f"Weights only load failed. {UNSAFE}\nPlease file an issue with the following so "
                "that we can make `weights_only=True` compatible with your use case: "
                f"WeightsUnpickler error: \n\nUnsupported operand {event.value}",
                "opcode-refused",
                "the pickle is of a protocol that weights_only=True does not read",
            )  # fmt: skip
        if failure is not None:
            return failure
    return None


def _check_load(facts: TorchFacts, torch: TorchInstallation, mapped: bool) -> Failure | None:
    """Return how ``torch.load`` fails."""
    weights_only = parse_release(torch.version) >= WEIGHTS_ONLY_SINCE
    if facts.container == "tar" and weights_only:
        return Failure(
            "RuntimeError",
            "Cannot use ``weights_only=True`` with files saved in the legacy .tar format. "
            + UNSAFE,
            "tar-layout", "it is a tar archive, as torch wrote before 0.1.10",
        )  # fmt: skip
    if facts.container == "script" and weights_only:
        return Failure(
            "RuntimeError",
            "Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``. "
            + UNSAFE,
            "torchscript", "it is a TorchScript archive: torch.jit.load opens those",
        )  # fmt: skip
    if facts.container == "script-json":
        return Failure(
            "RuntimeError",
            "PytorchStreamReader failed locating file data.pkl: file not found",
            "torchscript", "it is a TorchScript archive of torch 1.0 to 1.2",
        )  # fmt: skip
    failure = check_events(facts.events, torch, weights_only=weights_only, mapped=mapped)
    globals_ = (event.value for event in facts.events if event.kind == "global")
    if failure is None and not weights_only and any(map(check_global, globals_)):
        why = f"torch {torch.version} imports and calls what the pickle names"
        return Failure("", "", "runs-code", f"{why}; only that shows how it ends", unknown=True)
    return failure


# -- torch.jit.load -------------------------------------------------------------------------------


def _check_jit(facts: TorchFacts, torch: TorchInstallation, mapped: bool) -> Failure | None:
    """Return how ``torch.jit.load`` fails."""
    if facts.container == "script-json":
        return Failure(
            "RuntimeError", "Legacy model format is not supported on mobile.",
            "torchscript-age", "torch no longer reads archives of torch 1.0 to 1.2",
        )  # fmt: skip
    if facts.unknown_ops:
        return _fail_on_ops(facts, f"\nUnknown builtin op: {facts.unknown_ops[0]}.")
    locations = [e.value for e in facts.events if e.kind == "storage" and not mapped]
    return next(filter(None, (check_jit_device(x, torch) for x in locations)), None)


def _fail_on_ops(facts: TorchFacts, message: str) -> Failure:
    why = (
        f"it calls {', '.join(facts.unknown_ops[:5])}, which another library registers "
        "(torchvision, an extension) or another torch has"
    )
    return Failure("RuntimeError", message, "op-unknown", why)


def check_jit_device(location: str, torch: TorchInstallation) -> Failure | None:
    """Return how ``torch.jit.load`` fails on a storage's device; None if it accepts it."""
    failure = check_device(location, torch)
    if failure is None:
        return None
    kind, _, index = location.partition(":")
    error, message = "RuntimeError", "Expected one of cpu, cuda, "
    if kind == "cuda" and torch.cuda_built:
        message = _CUDA_ERRORS[torch.cuda_devices > 0]
    elif kind in ("cuda", "mps", "xpu", "hpu", "mtia") and index:
        # With an index a storage is allocated there; without one, the device itself is looked up.
        error = "NotImplementedError"
        message = (
            f"Could not run 'aten::empty_strided' with arguments from the '{kind.upper()}' backend."
        )
    elif kind in ("cuda", "mps", "xpu", "hpu", "mtia"):
        message = f"PyTorch is not linked with support for {kind} devices"
    return replace(failure, error=error, message=message)


# What a CUDA build raises where it sees no device, and where it sees fewer than the file names.
_CUDA_ERRORS = ("Found no NVIDIA driver on your system.", "CUDA error: invalid device ordinal")


# -- torch.export.load ----------------------------------------------------------------------------


def _check_export(facts: TorchFacts, torch: TorchInstallation) -> Failure | None:
    """Return how ``torch.export.load`` fails, which takes no map_location.

    It puts weights and constants where they are recorded. Devices that nodes name only matter when
    the program runs.
    """
    recorded = facts.schema.split(".")
    if facts.schema and recorded[0] != str(EXPORT_SCHEMA):
        old = facts.container == "exported-old"
        return Failure(
            "RuntimeError",
            f"Serialized version {recorded} does not match our current schema version"
            if old else "Serialized schema version ", "schema-age",
            f"its graph has schema {facts.schema}; torch {REFERENCE} reads only {EXPORT_SCHEMA}.x",
        )  # fmt: skip
    if facts.unknown_ops:
        return _fail_on_ops(facts, UNREADABLE)
    for event in facts.events:
        failure = _check_export_device(event.value, torch) if event.kind == "storage" else None
        if failure is not None:
            return failure
    if any(device.startswith("hpu") for device in facts.code_devices):
        return Failure(
            "AttributeError", "module 'torch' has no attribute 'hpu'", "device-absent",
            "nodes of the program name hpu (Gaudi), which is not here",
        )  # fmt: skip
    return None


def _check_export_device(location: str, torch: TorchInstallation) -> Failure | None:
    """Return how ``torch.export.load`` fails on a weight's device; None if it accepts it."""
    failure = check_device(location, torch)
    if failure is None:
        return None
    kind = location.partition(":")[0]
    error, message = "RuntimeError", UNREADABLE
    if kind == "cuda" and torch.cuda_built:
        message = _CUDA_ERRORS[torch.cuda_devices > 0]
    elif kind in ("cuda", "xpu"):
        error, message = "AssertionError", f"Torch not compiled with {kind.upper()} enabled"
    elif kind == "hpu":
        error, message = "ModuleNotFoundError", "No module named 'torch.hpu'"
    why = f"weights or constants of the program are on {location}, which is not here"
    return Failure(error, message, failure.cause, why)


# -- all loaders ----------------------------------------------------------------------------------

# Cause of a failure → what makes the call work.
_FIXES = {
    **dict.fromkeys(("device-absent", "device-index", "device-unknown"), 'map_location="cpu"'),
    "torchscript": "torch.jit.load(path)",
    "op-unknown": "import the library that registers the operator, first",
}
_Check: TypeAlias = Callable[[TorchFacts, TorchInstallation, bool], Failure | None]


def predict(facts: TorchFacts, host: Host) -> list[Prediction]:
    """Return the outcome of torch's loaders, the usual loader first."""
    torch = find_torch(host)
    if facts.container == "other":
        return []
    if facts.container.startswith("exported"):
        failure = _check_export(facts, torch)
        loader = "torch.export.load(path)"
        installed = torch.installed
        fix = _FIXES["op-unknown"] if failure and failure.cause == "op-unknown" else ""
        return [
            Prediction.of(loader, "torch", torch.version, failure, installed=installed, mends=fix)
        ]
    load = _predict_both("torch.load", _check_load, facts, torch)
    if not facts.container.startswith("script"):
        return load
    jit = _predict_both("torch.jit.load", _check_jit, facts, torch)
    return [*jit[:1], *(p for p in jit[1:] if p.outcome == "loads"), load[0]]


def _predict_both(
    loader: str, check: _Check, facts: TorchFacts, torch: TorchInstallation
) -> list[Prediction]:
    """Return the outcome of a loader and, if it fails, its outcome with ``map_location="cpu"``."""
    predictions: list[Prediction] = []
    for call, mapped in ((f"{loader}(path)", False), (f'{loader}(path, map_location="cpu")', True)):
        failure = check(facts, torch, mapped)
        fix = _FIXES.get(failure.cause, "") if failure else ""
        predictions.append(
            Prediction.of(
                call, "torch", torch.version, failure, installed=torch.installed, mends=fix
            )
        )
        if predictions[-1].outcome != "fails":
            break
    return predictions


def check_placement(facts: TorchFacts, devices: Mapping[str, int], host: Host) -> list[Finding]:
    """Return why an artifact that loads here, perhaps with ``map_location``, does not run here."""
    findings = []
    torch = find_torch(host)
    absent = {d: n for d, n in facts.code_devices.items() if check_device(d, torch)}
    if absent and facts.container.startswith(("script", "exported")):
        script = facts.container.startswith("script")
        backend = next(iter(absent)).partition(":")[0].upper()
        findings.append(
            Finding(
                "device-in-code", "error", "source",
                "its code names " + ", ".join(f"{d} ({n} times)" for d, n in absent.items()),
                ("map_location moves tensors and not the code: it loads, and fails"
                 if script else "Even where its weights load, it fails")
                + " when it runs (\"Could not run 'aten::empty.memory_format' with arguments from "
                f"the '{backend}' backend\", or no such device)",
                f"convert SOURCE --to {'torchscript' if script else 'pt2'} --device cpu",
            )
        )  # fmt: skip
    if len(devices) > 1 and not all(d.startswith(("cpu", "meta")) for d in devices):
        listed = ", ".join(f"{n} on {d}" for d, n in devices.items())
        findings.append(
            Finding(
                "devices-mixed", "note", "source", f"its tensors are on several devices: {listed}",
                "Loaded as they are, operations between them fail: \"Expected all tensors to be "
                'on the same device"',
                "convert SOURCE --to torch --device DEV puts all of them on one",
            )
        )  # fmt: skip
    return findings
