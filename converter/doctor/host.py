"""A host as plain data: probes build it, rules read it, tests invent it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from formats.core.bundle import JSON

Version = tuple[int, ...]


def parse_release(version: str | None) -> Version:
    """Return the release numbers of a version: (2, 13, 0) of ``2.13.0+cpu``; () if there are none.

    Drivers, libraries and damaged records have versions that PEP 440 does not allow, and thresholds
    of behaviour do not depend on pre-releases. Requirements are compared by `packaging`.
    """
    match = re.match(r"[vV]?(\d+(?:\.\d+)*)", version or "")
    return tuple(int(part) for part in match[1].split(".")) if match else ()


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor."""

    model: str = ""
    cores: int = 0
    features: tuple[str, ...] = ()  # instruction sets that wheels are built for: avx2, avx512f, …
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA GPU, as the driver describes it."""

    name: str
    capability: tuple[int, int] | None = None
    memory_bytes: int | None = None
    mig: bool = False


@dataclass(frozen=True, slots=True)
class Nvidia:
    """NVIDIA's part of a host.

    Attributes:
        driver: Version of the driver; "" where there is none.
        cuda: The newest CUDA that the driver reports to support.
        gpus: In the driver's order; CUDA_VISIBLE_DEVICES is not applied.
        via: Where this comes from: ``nvml``, ``nvidia-smi``, ``/proc``; "" for nowhere.
        libcuda: Whether the driver's library, libcuda, opens.
        problem: The error of NVML or nvidia-smi.
        pci_gpus: Number of NVIDIA display devices on the PCI bus; listing them needs no driver.
    """

    driver: str = ""
    cuda: tuple[int, int] | None = None
    gpus: tuple[Gpu, ...] = ()
    via: str = ""
    libcuda: bool = False
    problem: str = ""
    pci_gpus: int = 0


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library of CUDA.

    Attributes:
        name: Without ``lib`` and suffix: ``cudart``, ``cudnn``, ``cublas``.
        version: From the file name or the package; at least the major version.
        origin: ``wheel NAME``, ``system``, or ``LD_LIBRARY_PATH``.
        path: The file.
    """

    name: str
    version: str
    origin: str
    path: str

    @property
    def major(self) -> int:
        """The major version; 0 if unknown."""
        return (parse_release(self.version) or (0,))[0]


@dataclass(frozen=True, slots=True)
class Package:
    """An installed distribution, as recorded in its metadata.

    Attributes:
        name: Normalised: ``tf-keras``, ``onnxruntime-gpu``.
        version: As recorded.
        folder: Where it is installed.
        build: How it was built, read from its files as text: ``cuda``, ``hip``, ``cudnn``,
            ``architectures``, ``module_of`` (the distribution that a shared module comes from).
        requires: Its requirements, as recorded.
    """

    name: str
    version: str
    folder: str = ""
    build: Mapping[str, JSON] = field(default_factory=dict)
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What a framework reports, imported in a child process.

    Attributes:
        version: Its own version.
        devices: Accelerators and processors, as it names them.
        facts: ``cuda_available``, ``cuda_devices``, ``mps_available``, ``architectures``, …
        problem: Why the import failed: a crash, a timeout or an exception.
    """

    version: str = ""
    devices: tuple[str, ...] = ()
    facts: Mapping[str, JSON] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine and one Python on it.

    Attributes:
        packages: Records by normalised name; more than one if a name is recorded repeatedly.
        seen: Framework → result of importing it; absent if it was not imported.
        keras_backend: Backend named in ~/.keras/keras.json; "" if there is none.
        other_convert: Path of another program, such as ImageMagick's, that the command ``convert``
            runs; "" if it runs this one, or nothing.
    """

    python: str = ""
    executable: str = ""
    system: str = ""
    machine: str = ""
    cpu: Cpu = Cpu()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    nvidia: Nvidia = Nvidia()
    rocm: str = ""
    libraries: tuple[Library, ...] = field(default=(), repr=False)
    packages: Mapping[str, tuple[Package, ...]] = field(default_factory=dict, repr=False)
    seen: Mapping[str, ImportResult] = field(default_factory=dict, repr=False)
    keras_backend: str = ""
    other_convert: str = ""

    def package(self, *names: str) -> Package | None:
        """Return the first installed package of these names."""
        return next((self.packages[n][0] for n in names if self.packages.get(n)), None)

    def version(self, *names: str) -> Version:
        """Return the release numbers of the first installed package of these names."""
        package = self.package(*names)
        return parse_release(package.version) if package else ()

    @property
    def tensorflow(self) -> Package | None:
        """TensorFlow, under any of its names."""
        return self.package(*TENSORFLOW)

    @property
    def onnxruntimes(self) -> tuple[Package, ...]:
        """Every distribution that installs the module ``onnxruntime``."""
        installed = (self.package(name) for name in ONNXRUNTIME)
        return tuple(p for p in installed if p)

    @property
    def visible_gpus(self) -> tuple[Gpu, ...]:
        """The NVIDIA GPUs that a program sees under CUDA_VISIBLE_DEVICES.

        Spec: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars
        """
        chosen = self.variables.get("CUDA_VISIBLE_DEVICES")
        gpus = self.nvidia.gpus
        if chosen is None:
            return gpus
        visible: list[Gpu] = []
        for word in chosen.split(","):
            text = word.strip()
            if text.startswith(("GPU-", "MIG-")):
                visible += gpus[:1]  # a UUID: it does not matter which GPU it is
            elif text.isdecimal() and int(text) < len(gpus):
                visible.append(gpus[int(text)])
            else:
                break  # "-1", "", "NoDevFiles", an index out of range: the rest is hidden
        return tuple(visible)


TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel",
              "tensorflow-macos", "tensorflow-rocm", "tf-nightly")  # fmt: skip
ONNXRUNTIME = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino",
               "onnxruntime-rocm", "onnxruntime-migraphx", "onnxruntime-qnn")  # fmt: skip
# Packages that the doctor reports on, by normalised name, in this order.
PACKAGES = (
    "torch", "torchvision", *TENSORFLOW, "keras", "tf-keras", "jax", "jaxlib", *ONNXRUNTIME,
    "onnx", "onnxscript", "safetensors", "numpy", "ml-dtypes", "h5py", "protobuf", "mlflow",
    "mlflow-skinny", "ray", "transformers", "timm",
)  # fmt: skip
