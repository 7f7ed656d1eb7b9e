"""What torch's loaders make of an artifact on a host: rules with torch's own messages.

The texts are those of torch 2.13; tests/live/torch/test_doctor.py compares them with the
real loader. What a file does not record (torch, CUDA, cuDNN, driver) cannot make it fail.
Spec: https://github.com/pytorch/pytorch/blob/cf30153c4c131c8164ee7798e5022d810682e2cb/torch/serialization.py
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from converter.doctor.findings import Finding, Prediction
from converter.doctor.host import Host, numbers
from converter.doctor.loaders.torch_stream import Event

REFERENCE = "2.13"  # whose rules are applied
EXPORT_SCHEMA = 8  # major version of graphs that it reads
WEIGHTS_ONLY_SINCE = (2, 6)  # weights_only=True is the default of torch.load
UNSAFE = (
    "In PyTorch 2.6, we changed the default value of the `weights_only` argument in `torch.load` "
    "from `False` to `True`. Re-running `torch.load` with `weights_only` set to `False` will "
    "likely succeed, but it can result in arbitrary code execution. Do it only if you got the "
    "file from a trusted source."
)
BLOCKED = ("sys", "os", "posix", "nt")  # modules that no allow-list lets through
# What torch.load(weights_only=True) lets through; `_get_allowed_globals` of torch 2.13.
_STORED = "BFloat16 Bool Byte Char Double Float Half Int Long Short".split()  # noqa: SIM905
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
    """What of an artifact decides how torch's loaders end.

    Attributes:
        container: ``zip``, ``stream``, ``tar``, ``script``, ``script-json``, ``exported``,
            ``exported-old`` (before torch 2.7), or ``other``, which torch itself opens with no one
            call.
        events: What the pickle makes the loader do, in order.
        code_devices: Devices named in TorchScript code, or in an exported graph → how often.
        sets_state: Whether TorchScript code has a ``__setstate__``, which loading runs.
        schema: Version of an exported program's graph, as recorded.
    """

    container: str
    events: tuple[Event, ...] = ()
    code_devices: Mapping[str, int] = field(default_factory=dict)
    sets_state: bool = False
    schema: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """What torch has here, by its own word or by what is known of the host."""

    version: str
    installed: bool
    cuda_built: bool
    cuda_devices: int
    mps: bool
    xpu: bool


def view(host: Host) -> View:
    """Return what torch has here; where it was not asked, what it must find."""
    package, seen = host.package("torch"), host.seen.get("torch")
    if seen and not seen.problem:
        count = seen.facts.get("cuda_devices")
        return View(
            seen.version,
            installed=True,
            cuda_built=bool(seen.facts.get("cuda") or seen.facts.get("hip")),
            cuda_devices=count if isinstance(count, int) else 0,
            mps=bool(seen.facts.get("mps_available")),
            xpu=bool(seen.facts.get("xpu_available")),
        )
    built = bool(package and (package.build.get("cuda") or package.build.get("hip")))
    usable = built or package is None
    return View(
        package.version if package else REFERENCE,
        package is not None,
        built,
        len(host.visible_gpus) if usable and host.nvidia.libcuda else 0,
        mps=False,
        xpu=False,
    )


@dataclass(frozen=True, slots=True)
class Refusal:
    """One exception that a loader ends with."""

    error: str
    message: str
    cause: str
    why: str


def device_refusal(location: str, here: View) -> Refusal | None:
    """Return what ``torch.load`` says to a storage's device, or None where it takes it."""
    kind, _, index = location.partition(":")
    if kind in ("cpu", "meta") or (kind == "mps" and here.mps):
        return None
    if kind == "mps":
        return Refusal(
            "RuntimeError", "torch.UntypedStorage(): Storage device not recognized: mps",
            "device-absent", "a storage is tagged mps (Apple), which is not here",
        )  # fmt: skip
    count = {"cuda": here.cuda_devices, "xpu": int(here.xpu), "mtia": 0}.get(kind)
    if kind == "hpu":
        return Refusal(
            "RuntimeError", "The HPU device module is not registered. If you are running on a "
            "CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map "
            "your storages to the CPU.", "device-absent", "a storage is tagged hpu (Gaudi)",
        )  # fmt: skip
    if count is None:
        return Refusal(
            "RuntimeError", "don't know how to restore data location of "
            f"torch.storage.UntypedStorage (tagged with {location})",
            "device-unknown", f"a storage is tagged {location}, which torch does not know",
        )  # fmt: skip
    if count == 0:
        return Refusal(
            "RuntimeError",
            f"Attempting to deserialize object on a {kind.upper()} device but "
            f"torch.{kind}.is_available() is False. If you are running on a CPU-only machine, "
            "please use torch.load with map_location=torch.device('cpu') to map your storages to "
            "the CPU.",
            "device-absent", f"a storage is tagged {location}, and torch sees no such device here",
        )  # fmt: skip
    number = int(index) if index.isdecimal() else 0
    if number >= count:
        return Refusal(
            "RuntimeError",
            f"Attempting to deserialize object on {kind.upper()} device {number} but "
            f"torch.{kind}.device_count() is {count}. Please use torch.load with map_location to "
            "map your storages to an existing device.",
            "device-index",
            f"a storage is tagged {location}; torch sees {count} such device(s) here",
        )  # fmt: skip
    return None


def global_refusal(name: str) -> Refusal | None:
    """Return what ``weights_only=True`` says to a global, or None where it is allowed."""
    if name in ALLOWED or (name.startswith("torch.") and name in ALLOWED):
        return None
    module = name.rpartition(".")[0]
    if module in BLOCKED:
        return Refusal(
            "UnpicklingError",
            f"Weights only load failed. {UNSAFE}\n\n\nTrying to load unsupported GLOBAL {name} "
            f"whose module {module} is blocked.",
            "global-blocked", f"the pickle names {name}, which would act outside the file",
        )  # fmt: skip
    shown = name.removeprefix("builtins.")
    return Refusal(
        "UnpicklingError",
        "Weights only load failed. This file can still be loaded, to do so you have two options, "
        "\033[1mdo those steps only if you trust the source of the checkpoint\033[0m. "
        f"\n\t(1) {UNSAFE}\n\t(2) Alternatively, to load with `weights_only=True` please check "
        "the recommended steps in the following error message.\n\tWeightsUnpickler error: "
        f"Unsupported global: GLOBAL {shown} was not an allowed global by default.",
        "global-refused", f"the pickle names {shown}, which weights_only=True does not allow",
    )  # fmt: skip


def first_refusal(
    events: Iterable[Event], here: View, *, weights_only: bool, mapped: bool
) -> Refusal | None:
    """Return the first thing in a pickle that ``torch.load`` refuses.

    Args:
        events: Of the pickle, in order.
        here: What torch has here.
        weights_only: As passed, or by default since 2.6.
        mapped: Whether ``map_location="cpu"`` is passed.
    """
    for event in events:
        refusal = None
        if event.kind == "storage" and not mapped:
            refusal = device_refusal(event.value, here)
        elif event.kind == "global" and weights_only:
            refusal = global_refusal(event.value)
        elif event.kind == "opcode" and event.value == "no-magic":
            refusal = Refusal(
                "RuntimeError", "Invalid magic number; corrupt file?",
                "no-torch-file", "it is a pickle, and not one that torch.save wrote",
            )  # fmt: skip
        elif event.kind == "opcode" and weights_only:
            refusal = Refusal(
                "UnpicklingError",
                f"Weights only load failed. {UNSAFE}\nPlease file an issue with the following so "
                "that we can make `weights_only=True` compatible with your use case: "
                f"WeightsUnpickler error: \n\nUnsupported operand {event.value}",
                "opcode-refused",
                "the pickle is of a protocol that weights_only=True does not read",
            )  # fmt: skip
        if refusal is not None:
            return refusal
    return None


def predict(facts: TorchFacts, host: Host) -> list[Prediction]:
    """Return what torch's loaders make of an artifact here."""
    here = view(host)
    found = []
    if facts.container in ("zip", "stream", "tar", "script", "script-json"):
        found.append(_load(facts, here, mapped=False))
        if found[0].outcome == "fails":
            found.append(_load(facts, here, mapped=True))
    if facts.container in ("script", "script-json"):
        found = [_jit(facts, here, mapped=False), _jit(facts, here, mapped=True), *found[:1]]
        if found[0].outcome == "loads" or found[1].outcome == "fails":
            del found[1]
    if facts.container.startswith("exported"):
        found.append(_export(facts, here))
    return found


def _load(facts: TorchFacts, here: View, *, mapped: bool) -> Prediction:
    """Predict ``torch.load``."""
    weights_only = numbers(here.version) >= WEIGHTS_ONLY_SINCE
    refusal: Refusal | None
    if facts.container == "tar" and weights_only:
        refusal = Refusal(
            "RuntimeError",
            "Cannot use ``weights_only=True`` with files saved in the legacy .tar format. "
            + UNSAFE,
            "tar-layout", "it is a tar archive, as torch wrote before 0.1.10",
        )  # fmt: skip
    elif facts.container == "script" and weights_only:
        refusal = Refusal(
            "RuntimeError",
            "Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``. "
            + UNSAFE,
            "torchscript", "it is a TorchScript archive: torch.jit.load opens those",
        )  # fmt: skip
    elif facts.container == "script-json":
        refusal = Refusal(
            "RuntimeError",
            "PytorchStreamReader failed locating file data.pkl: file not found",
            "torchscript", "it is a TorchScript archive of torch 1.0 to 1.2",
        )  # fmt: skip
    else:
        refusal = first_refusal(facts.events, here, weights_only=weights_only, mapped=mapped)
    loader = 'torch.load(path, map_location="cpu")' if mapped else "torch.load(path)"
    if (
        refusal is None
        and not weights_only
        and any(global_refusal(e.value) for e in facts.events if e.kind == "global")
    ):
        return Prediction(
            loader, "torch", here.version, here.installed, "unknown", cause="runs-code",
            why=f"torch {here.version} imports and calls what the pickle names; only that would "
            "tell",
        )  # fmt: skip
    return _predicted(loader, here, refusal, _mends(refusal))


def _mends(refusal: Refusal | None) -> str:
    match refusal.cause if refusal else "":
        case "device-absent" | "device-index" | "device-unknown":
            return 'map_location="cpu"'
        case "torchscript":
            return "torch.jit.load(path)"
        case _:
            return ""


def _jit(facts: TorchFacts, here: View, *, mapped: bool) -> Prediction:
    """Predict ``torch.jit.load``."""
    refusal = None
    if facts.container == "script-json":
        refusal = Refusal(
            "RuntimeError", "Legacy model format is not supported on mobile.",
            "torchscript-age", "torch reads no archives of torch 1.0 to 1.2 any more",
        )  # fmt: skip
    for event in facts.events:
        if refusal is None and event.kind == "storage" and not mapped:
            refusal = _jit_device(event.value, here)
    loader = 'torch.jit.load(path, map_location="cpu")' if mapped else "torch.jit.load(path)"
    return _predicted(loader, here, refusal, 'map_location="cpu"' if refusal else "")


def _jit_device(location: str, here: View) -> Refusal | None:
    """Return what ``torch.jit.load`` says to a storage's device."""
    taken = device_refusal(location, here)
    if taken is None:
        return None
    kind, _, index = location.partition(":")
    why = taken.why
    if kind == "cuda" and here.cuda_built:
        if here.cuda_devices == 0:
            message = "Found no NVIDIA driver on your system."
        else:
            message = "CUDA error: invalid device ordinal"
        return Refusal("RuntimeError", message, taken.cause, why)
    if kind in ("cuda", "mps", "xpu", "hpu", "mtia"):
        if index:  # asked for storage there; without a number, for the device itself
            message = (
                "Could not run 'aten::empty_strided' with arguments from the "
                f"'{kind.upper()}' backend."
            )
            return Refusal("NotImplementedError", message, taken.cause, why)
        message = f"PyTorch is not linked with support for {kind} devices"
        return Refusal("RuntimeError", message, taken.cause, why)
    return Refusal("RuntimeError", "Expected one of cpu, cuda, ", taken.cause, why)


def _export(facts: TorchFacts, here: View) -> Prediction:
    """Predict ``torch.export.load``, which takes no map_location.

    What nodes name is only looked at when the program runs; weights and constants are put where
    they are recorded.
    """
    loader = "torch.export.load(path)"
    recorded = facts.schema.split(".")
    if facts.schema and recorded[0] != str(EXPORT_SCHEMA):
        old = facts.container == "exported-old"
        return _predicted(
            loader, here,
            Refusal(
                "RuntimeError",
                f"Serialized version {recorded} does not match our current schema version"
                if old else "Serialized schema version ", "schema-age",
                f"its graph is of schema {facts.schema}; torch {REFERENCE} reads {EXPORT_SCHEMA}.x "
                "alone",
            ), "",
        )  # fmt: skip
    for event in facts.events:
        refusal = _export_device(event.value, here) if event.kind == "storage" else None
        if refusal is not None:
            return _predicted(loader, here, refusal, "")
    if any(device.startswith("hpu") for device in facts.code_devices):
        absent = Refusal(
            "AttributeError", "module 'torch' has no attribute 'hpu'", "device-absent",
            "nodes of the program name hpu (Gaudi), which is not here",
        )  # fmt: skip
        return _predicted(loader, here, absent, "")
    return _predicted(loader, here, None, "")


def _export_device(location: str, here: View) -> Refusal | None:
    """Return what ``torch.export.load`` says to a weight's or constant's device."""
    taken = device_refusal(location, here)
    if taken is None:
        return None
    kind = location.partition(":")[0]
    why = f"weights or constants of the program sit on {location}, which is not here"
    if kind == "cuda" and here.cuda_built:
        error = "RuntimeError"
        message = (
            "CUDA error: invalid device ordinal" if here.cuda_devices
            else "Found no NVIDIA driver on your system."
        )  # fmt: skip
    elif kind in ("cuda", "xpu"):
        error, message = "AssertionError", f"Torch not compiled with {kind.upper()} enabled"
    elif kind == "hpu":
        error, message = "ModuleNotFoundError", "No module named 'torch.hpu'"
    else:
        error = "RuntimeError"
        message = "We ran into an error when deserializing the saved file."
    return Refusal(error, message, taken.cause, why)


def _predicted(loader: str, here: View, refusal: Refusal | None, mends: str) -> Prediction:
    if refusal is None:
        return Prediction(loader, "torch", here.version, here.installed, "loads")
    return Prediction(
        loader, "torch", here.version, here.installed, "fails",
        refusal.error, refusal.message, refusal.cause, refusal.why, mends,
    )  # fmt: skip


def placements(facts: TorchFacts, devices: Mapping[str, int], host: Host) -> list[Finding]:
    """Return what loads here, with ``map_location`` or without, and does not run here."""
    found = []
    here = view(host)
    absent = {d: n for d, n in facts.code_devices.items() if device_refusal(d, here)}
    if absent and facts.container.startswith(("script", "exported")):
        target = "torchscript" if facts.container.startswith("script") else "pt2"
        first = next(iter(absent))
        kind = first.partition(":")[0].upper()
        found.append(
            Finding(
                "device-in-code", "error", "source",
                "its code names " + ", ".join(f"{d} ({n} times)" for d, n in absent.items()),
                ("map_location moves tensors and not the code: it loads, and fails"
                 if target == "torchscript" else "Even where its weights load, it fails")
                + f" when it runs (\"Could not run 'aten::empty.memory_format' with arguments from "
                f"the '{kind}' backend\", or no such device)",
                f"convert SOURCE --to {target} --device cpu",
            )
        )  # fmt: skip
    elsewhere = {d for d in devices if not d.startswith(("cpu", "meta"))}
    if elsewhere and len(devices) > 1:
        listed = ", ".join(f"{n} on {d}" for d, n in devices.items())
        found.append(
            Finding(
                "devices-mixed", "note", "source", f"its tensors are on several devices: {listed}",
                "Loaded as they are, operations between them fail: \"Expected all tensors to be "
                'on the same device"',
                "convert SOURCE --to torch --device DEV puts all of them on one",
            )
        )  # fmt: skip
    return found
