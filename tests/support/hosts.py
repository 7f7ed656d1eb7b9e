"""Invented hosts, and parts to build them from."""

from converter.doctor.host import Cpu, Gpu, Host, ImportResult, Library, Nvidia, Package

H100 = Gpu("NVIDIA H100 80GB HBM3", (9, 0), 80 << 30)
BLACKWELL = Gpu("NVIDIA GeForce RTX 5090", (12, 0), 32 << 30)
PASCAL = Gpu("Tesla P100", (6, 0), 16 << 30)


def package(name, version, requires=(), **build):
    return {name: (Package(name, version, "/site-packages", build, tuple(requires)),)}


def nvidia(*gpus, driver="580.82.07", cuda=(13, 0), **more):
    return Nvidia(driver, cuda, gpus, "nvml", **{"libcuda": True, "pci_gpus": len(gpus), **more})


def host(*packages, gpus=None, **more):
    installed = {}
    for one in packages:
        installed |= one
    facts = {
        "python": "3.11.7",
        "executable": "/venv/bin/python",
        "system": "Linux (Debian)",
        "machine": "x86_64",
        "cpu": Cpu("a CPU", 8),
        "packages": installed,
    }
    if gpus is not None:
        facts["nvidia"] = gpus
    return Host(**(facts | more))


TORCH = package("torch", "2.13.0+cpu", cuda=None, hip=None)
TORCH_CUDA = package("torch", "2.13.0", cuda="13.0", hip=None)
TENSORFLOW = package(
    "tensorflow", "2.21.0", cuda="12.5.1", cudnn="9", hip=False,
    architectures=["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"],
)  # fmt: skip
KERAS = package("keras", "3.15.1")
TF_KERAS = package("tf-keras", "2.21.0")
CUDA_12 = (
    Library("cudart", "12.5.82", "wheel nvidia-cuda-runtime-cu12", "/site-packages"),
    Library("cudnn", "9.3.0.75", "wheel nvidia-cudnn-cu12", "/site-packages"),
)


def torch_seen(devices, architectures=("sm_80", "sm_90", "compute_90"), **facts):
    """Return what torch says where it sees so many CUDA devices."""
    return {
        "torch": ImportResult(
            "2.13.0",
            tuple(f"cuda:{i}" for i in range(devices)),
            {
                "cuda": "13.0",
                "cuda_available": devices > 0,
                "cuda_devices": devices,
                "architectures": list(architectures),
                **facts,
            },
        )
    }
