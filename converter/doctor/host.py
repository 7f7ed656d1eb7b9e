"""What a host is, as plain data: probes build it, rules read it, tests make it up."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from formats.core.bundle import JSON

Version = tuple[int, ...]


def numbers(version: str | None) -> Version:
    """Return the numbers a version begins with: (2, 13, 0) of ``2.13.0+cpu``, () of nothing."""
    match = re.match(r"[vV]?(\d+(?:\.\d+)*)", version or "")
    return tuple(int(part) for part in match[1].split(".")) if match else ()


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor."""

    model: str = ""
    cores: int = 0
    features: tuple[str, ...] = ()  # those that frameworks are built for: avx, avx2, avx512f, …
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
        cuda: The newest CUDA that the driver can run, by its own word.
        gpus: In the driver's order, whatever CUDA_VISIBLE_DEVICES says.
        via: What told: ``nvml``, ``nvidia-smi``, ``/proc``; "" where nothing did.
        libcuda: Whether the driver's own library, libcuda, opens.
        problem: What NVML or libcuda complained of.
        pci_gpus: NVIDIA display devices on the PCI bus, which need no driver to be seen.
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
    """One shared library of CUDA's.

    Attributes:
        name: Without ``lib`` and suffix: ``cudart``, ``cudnn``, ``cublas``.
        version: As its file or its package says; at least the major version.
        origin: ``wheel NAME``, ``system``, or ``LD_LIBRARY_PATH``.
        path: The file.
    """

    name: str
    version: str
    origin: str
    path: str

    @property
    def major(self) -> int:
        """The major version; 0 where none is known."""
        return (numbers(self.version) or (0,))[0]


@dataclass(frozen=True, slots=True)
class Package:
    """One installed distribution, by its own record.

    Attributes:
        name: Normalised: ``tf-keras``, ``onnxruntime-gpu``.
        version: As recorded.
        folder: Where it is installed.
        build: What its files say of its build, read as text: ``cuda``, ``hip``, ``cudnn``,
            ``architectures``, ``module_of`` (whose files a shared module's are).
        requires: Its requirements, as recorded.
    """

    name: str
    version: str
    folder: str = ""
    build: Mapping[str, JSON] = field(default_factory=dict)
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What a framework itself said, imported in a child.

    Attributes:
        version: Its own version.
        devices: Accelerators and processors, in its own words.
        facts: ``cuda_available``, ``cuda_devices``, ``mps_available``, ``architectures``, …
        problem: Why there is no answer: it crashed, hung, or raised.
    """

    version: str = ""
    devices: tuple[str, ...] = ()
    facts: Mapping[str, JSON] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine and one Python on it.

    Attributes:
        packages: Records by normalised name; more than one where a name was found repeatedly.
        seen: Framework → what it said; absent where it was not asked.
        keras_backend: What ~/.keras/keras.json names; "" where there is none.
    """

    python: str = ""
    executable: str = ""
    system: str = ""
    machine: str = ""
    cpu: Cpu = Cpu()
    variables: Mapping[str, str] = field(default_factory=dict)
    nvidia: Nvidia = Nvidia()
    rocm: str = ""
    libraries: tuple[Library, ...] = ()
    packages: Mapping[str, tuple[Package, ...]] = field(default_factory=dict)
    seen: Mapping[str, Seen] = field(default_factory=dict)
    keras_backend: str = ""

    def package(self, *names: str) -> Package | None:
        """Return the first installed package of these names."""
        return next((self.packages[n][0] for n in names if self.packages.get(n)), None)

    def version(self, *names: str) -> Version:
        """Return the numbers of the version of the first installed package of these names."""
        package = self.package(*names)
        return numbers(package.version) if package else ()

    @property
    def tensorflow(self) -> Package | None:
        """TensorFlow, under whichever of its names."""
        return self.package(*TENSORFLOW)

    @property
    def onnxruntimes(self) -> tuple[Package, ...]:
        """Every distribution that installs the module ``onnxruntime``."""
        found = (self.package(name) for name in ONNXRUNTIME)
        return tuple(p for p in found if p)

    @property
    def visible_gpus(self) -> tuple[Gpu, ...]:
        """NVIDIA GPUs that CUDA_VISIBLE_DEVICES leaves to a program.

        Spec: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars
        """
        chosen = self.variables.get("CUDA_VISIBLE_DEVICES")
        gpus = self.nvidia.gpus
        if chosen is None:
            return gpus
        found = []
        for word in chosen.split(","):
            text = word.strip()
            if text.startswith(("GPU-", "MIG-")):
                found.append(gpus[0] if gpus else None)  # by UUID: which one does not matter here
            elif text.isdecimal() and int(text) < len(gpus):
                found.append(gpus[int(text)])
            else:
                break  # "-1", "", "NoDevFiles", an index too far: it and what follows are hidden
        return tuple(g for g in found if g)


TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel",
              "tensorflow-macos", "tensorflow-rocm", "tf-nightly")  # fmt: skip
ONNXRUNTIME = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino",
               "onnxruntime-rocm", "onnxruntime-migraphx", "onnxruntime-qnn")  # fmt: skip
# What the doctor reports on, by normalised name, in this order.
PACKAGES = (
    "torch", "torchvision", *TENSORFLOW, "keras", "tf-keras", "jax", "jaxlib", *ONNXRUNTIME,
    "onnx", "onnxscript", "safetensors", "numpy", "ml-dtypes", "h5py", "protobuf", "mlflow",
    "mlflow-skinny", "ray", "transformers", "timm",
)  # fmt: skip
