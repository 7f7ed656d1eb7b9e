"""Findings about NVIDIA's driver, GPUs and libraries: pure functions of a `Host`."""

import re
from collections.abc import Iterable, Iterator

from converter.doctor.data.cuda import minimum_driver, newest_cuda, runs_on
from converter.doctor.findings import Finding
from converter.doctor.host import Gpu, Host, Library, Package, numbers


def cuda_builds(host: Host) -> Iterator[tuple[Package, str]]:
    """Yield each installed framework that is built for CUDA, and that CUDA's version."""
    for package in (host.package("torch"), host.tensorflow, host.package("onnxruntime-gpu")):
        if package is None:
            continue
        cuda = package.build.get("cuda") or ""
        if not cuda and package.name == "onnxruntime-gpu":
            cuda = _onnxruntime_cuda(package)
        if isinstance(cuda, str) and cuda:
            yield package, cuda


def works(package: Package, host: Host) -> bool:
    """Whether a framework itself uses a GPU here, whatever records and versions suggest.

    NVIDIA's compatibility packages, conda's libraries, odd paths: its own word counts.
    """
    if package.name == "torch":
        seen = host.seen.get("torch")
        return bool(seen and seen.facts.get("kernel_ran"))
    if package.name.startswith("onnxruntime"):
        seen = host.seen.get("onnxruntime")
        return bool(seen and "CUDAExecutionProvider" in seen.devices)
    seen = host.seen.get("tensorflow")
    return bool(seen and seen.facts.get("gpus"))


def _onnxruntime_cuda(package: Package) -> str:
    """Return the CUDA that a release of onnxruntime-gpu is built for.

    Spec: https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#requirements
    """
    version = numbers(package.version)
    return "13" if version >= (1, 27) else "12" if version >= (1, 19) else "11"


def driver(host: Host) -> Iterator[Finding]:
    """There is hardware without a driver, a driver without hardware, or one that does not start."""
    nvidia = host.nvidia
    mismatch = "mismatch" in nvidia.problem.lower()
    if mismatch:
        yield Finding(
            "driver-mismatch", "error", "driver", nvidia.problem,
            "The driver's library and its kernel module are of different versions, as after an "
            "update without a restart: no program can use the GPU",
            "restart the machine (or unload and load the nvidia kernel modules)",
        )  # fmt: skip
    elif nvidia.problem and (nvidia.pci_gpus or nvidia.driver):
        yield Finding(
            "driver-broken", "error", "driver", nvidia.problem,
            "No program can use the GPU until the driver answers", "nvidia-smi",
        )  # fmt: skip
    if nvidia.pci_gpus and not nvidia.driver:
        yield Finding(
            "driver-missing", "error", "driver",
            f"{nvidia.pci_gpus} NVIDIA GPU(s) on the bus, and no driver",
            "Every framework runs on the CPU", "install NVIDIA's driver, then: nvidia-smi",
        )  # fmt: skip
    elif nvidia.driver and not nvidia.libcuda and not mismatch:
        yield Finding(
            "libcuda-missing", "error", "driver",
            f"the driver {nvidia.driver} is loaded, and libcuda.so.1 is not found",
            "A container that was started without access to the GPU looks like this: programs "
            "say that no NVIDIA driver is found",
            "docker run --gpus all … (with NVIDIA's container toolkit on the host)",
        )  # fmt: skip


def driver_age(host: Host) -> Iterator[Finding]:
    """A framework is built for a CUDA that the driver is too old for."""
    version = host.nvidia.driver
    if not version:
        return
    for package, cuda in cuda_builds(host):
        needed = minimum_driver(cuda)
        if needed and not works(package, host) and numbers(version) < numbers(needed):
            can = host.nvidia.cuda or newest_cuda(version)
            found = f"{can[0]}.{can[1]}" if can else "an older one"
            yield Finding(
                "driver-too-old", "error", package.name,
                f"{package.name} {package.version} is built for CUDA {cuda}, which needs driver "
                f"{needed} or newer; this one is {version}, for CUDA up to {found}",
                f"{package.name} finds no usable GPU: \"The NVIDIA driver on your system is too "
                'old", or it runs on the CPU without a word',
                f"update the driver to {needed} or newer, or install a {package.name} that is "
                f"built for CUDA {found} or older",
            )  # fmt: skip


def hidden(host: Host) -> Iterator[Finding]:
    """A variable hides devices."""
    chosen = host.variables.get("CUDA_VISIBLE_DEVICES")
    gpus, visible = host.nvidia.gpus, host.visible_gpus
    if chosen is not None and len(visible) < len(gpus):
        yield Finding(
            "devices-hidden", "warning" if visible else "error", "CUDA_VISIBLE_DEVICES",
            f"CUDA_VISIBLE_DEVICES={chosen!r} leaves {len(visible)} of {len(gpus)} GPUs",
            "Programs see those alone, and count them from 0: cuda:0 is the first that is left",
            "unset CUDA_VISIBLE_DEVICES",
        )  # fmt: skip
    inside = host.variables.get("NVIDIA_VISIBLE_DEVICES")
    if inside in ("none", "void", "") and not gpus:
        yield Finding(
            "devices-hidden", "warning", "NVIDIA_VISIBLE_DEVICES",
            f"NVIDIA_VISIBLE_DEVICES={inside!r}: this container was given no GPU",
            "Whatever the machine has, programs in here see none", "docker run --gpus all …",
        )  # fmt: skip
    if host.variables.get("JAX_PLATFORMS") == "cpu" and host.package("jax") and gpus:
        yield Finding(
            "devices-hidden", "warning", "JAX_PLATFORMS", "JAX_PLATFORMS=cpu",
            "JAX does not look for GPUs", "unset JAX_PLATFORMS",
        )  # fmt: skip


def architectures(host: Host) -> Iterator[Finding]:
    """A framework has no code for a GPU that is here."""
    torch = host.seen.get("torch")
    built = {"torch": torch.facts.get("architectures") if torch else None}
    if torch and torch.facts.get("kernel_ran") and len(host.visible_gpus) == 1:
        built["torch"] = None  # it has run on the one that there is
    if host.tensorflow:
        built["tensorflow"] = host.tensorflow.build.get("architectures")
    for name, known in built.items():
        listed = [str(a) for a in known] if isinstance(known, list) else []
        if not any(a.startswith(("sm_", "compute_")) for a in listed):
            continue
        for gpu in _distinct(host.visible_gpus):
            if gpu.capability is not None and not runs_on(gpu.capability, listed):
                sm = f"sm_{gpu.capability[0]}{gpu.capability[1]}"
                yield Finding(
                    "no-kernel-image", "error", name,
                    f"{name} is built for {' '.join(listed)}; {gpu.name} is {sm}",
                    "The GPU is seen, and the first operation on it fails: \"CUDA error: no "
                    'kernel image is available for execution on the device"',
                    f"install a {name} whose CUDA build lists {sm}, or use the CPU",
                )  # fmt: skip


def cpu_builds(host: Host) -> Iterator[Finding]:
    """There is a GPU, and a framework that is built without CUDA."""
    if not host.visible_gpus:
        return
    torch = host.package("torch")
    if torch and torch.build and not (torch.build.get("cuda") or torch.build.get("hip")):
        yield Finding(
            "cpu-build", "warning", "torch", f"torch {torch.version} is built without CUDA",
            "torch.cuda.is_available() is False whatever the driver is; a model tagged for a GPU "
            "does not load without map_location",
            "pip install --force-reinstall torch  (the build for your CUDA)",
        )  # fmt: skip
    flow = host.tensorflow
    if flow and flow.build and not (flow.build.get("cuda") or flow.build.get("hip")):
        yield Finding(
            "cpu-build", "warning", flow.name, f"{flow.name} {flow.version} is built without CUDA",
            "Weights and operations stay on the CPU without a word",
            "pip uninstall tensorflow-cpu; pip install 'tensorflow[and-cuda]'",
        )  # fmt: skip
    if host.onnxruntimes and not host.package("onnxruntime-gpu"):
        first = host.onnxruntimes[0]
        if first.name == "onnxruntime":
            yield Finding(
                "cpu-build", "note", first.name, f"onnxruntime {first.version} is the CPU build",
                "Sessions that ask for CUDAExecutionProvider run on the CPU, with a warning",
                "pip uninstall onnxruntime; pip install onnxruntime-gpu",
            )  # fmt: skip


def missing_libraries(host: Host) -> Iterator[Finding]:
    """A framework opens CUDA's libraries at run time, and those of its major version lack."""
    if not host.visible_gpus or not host.system.startswith("Linux"):
        return
    for package, cuda in cuda_builds(host):
        if package.name == "torch" or works(package, host):  # the former carries or requires them
            continue
        wanted = {
            "cudart": numbers(cuda)[:1],
            "cudnn": numbers(str(package.build.get("cudnn") or 9))[:1],
        }
        lacking = [
            f"lib{name}.so.{major[0]}"
            for name, major in wanted.items()
            if major and not any(x.name == name and _serves(x, major[0]) for x in host.libraries)
        ]
        if lacking:
            extra = (
                "onnxruntime-gpu[cuda,cudnn]" if "onnx" in package.name else "tensorflow[and-cuda]"
            )
            yield Finding(
                "libraries-missing", "error", package.name,
                f"{package.name} {package.version} needs {', '.join(lacking)}, and none is found",
                "It prints that it cannot open them, and runs on the CPU",
                f"pip install '{extra}'",
            )  # fmt: skip


def _serves(library: Library, major: int) -> bool:
    """Whether a library is of a major version; wheels of CUDA's parts count as CUDA does not."""
    if library.name == "cudart" or library.name == "cudnn":
        return library.major == major
    return True


def cudnn_majors(host: Host) -> Iterator[Finding]:
    """Two cuDNNs of different major versions are here."""
    found = {x.major: x for x in host.libraries if x.name == "cudnn" and x.major}
    if len(found) > 1:
        listed = "; ".join(f"{x.version} ({x.origin}, {x.path})" for x in found.values())
        yield Finding(
            "cudnn-majors", "warning", "cudnn", f"cuDNN of {len(found)} major versions: {listed}",
            "Which one a framework opens depends on LD_LIBRARY_PATH and on who is imported first: "
            "\"Could not load library libcudnn_ops\", \"Loaded runtime CuDNN library … but source "
            'was compiled with …"',
            "remove the one that no installed framework is built for",
        )  # fmt: skip


def wheels_beside(host: Host) -> Iterator[Finding]:
    """Wheels of one CUDA lie beside a torch that is built for another."""
    torch = host.package("torch")
    built = numbers(str(torch.build.get("cuda") or ""))[:1] if torch else ()
    if torch is None or not built:
        return
    others = sorted(
        name
        for name in host.packages
        if (match := re.fullmatch(r"nvidia-.+-cu(\d+)", name)) and int(match[1]) != built[0]
    )
    needed = {word.split("-cu")[0] for word in others}
    if others:
        sample = ", ".join(others[:4]) + (f" and {len(others) - 4} more" if len(others) > 4 else "")
        yield Finding(
            "cuda-wheels-mixed", "warning", "torch",
            f"torch {torch.version} is built for CUDA {torch.build.get('cuda')}, and {sample} "
            "are for another",
            f"They fill {len(needed)} of the same folders under nvidia/, and whoever is imported "
            "first decides which libraries the process has",
            "give each framework its own environment, or: pip uninstall " + " ".join(others),
        )  # fmt: skip


def shadowed(host: Host) -> Iterator[Finding]:
    """LD_LIBRARY_PATH holds another version of a library that a wheel brings."""
    wheels = {x.name: x for x in host.libraries if x.origin.startswith("wheel")}
    for library in host.libraries:
        wheel = wheels.get(library.name)
        if library.origin != "LD_LIBRARY_PATH" or wheel is None:
            continue
        size = min(len(numbers(library.version)), len(numbers(wheel.version)), 2)
        if numbers(library.version)[:size] != numbers(wheel.version)[:size]:
            yield Finding(
                "library-shadowed", "warning", "LD_LIBRARY_PATH",
                f"{library.path} ({library.version}) comes before {wheel.origin.split()[1]} "
                f"{wheel.version}",
                "The loader looks into LD_LIBRARY_PATH before a wheel's own folder: the framework "
                "gets a library that it was not built with",
                "unset LD_LIBRARY_PATH",
            )  # fmt: skip


def seen_less(host: Host) -> Iterator[Finding]:
    """A framework that is built for CUDA sees no GPU, though one is here."""
    if not host.visible_gpus:
        return
    torch, flow = host.seen.get("torch"), host.seen.get("tensorflow")
    package = host.package("torch")
    if (
        torch
        and package
        and package.build.get("cuda")
        and torch.facts.get("cuda_available") is False
    ):
        yield Finding(
            "device-unseen", "error", "torch",
            f"torch {package.version} is built for CUDA {package.build['cuda']} and sees no GPU",
            "torch.cuda.is_available() is False", "python -c 'import torch; torch.cuda.init()'",
        )  # fmt: skip
    if torch and torch.facts.get("kernel_problem"):
        yield Finding(
            "kernel-failed", "error", "torch",
            f"an operation on cuda:0 failed: {torch.facts['kernel_problem']}",
            "The GPU is seen, and cannot be used by this build", "",
        )  # fmt: skip
    if (
        flow
        and host.tensorflow
        and host.tensorflow.build.get("cuda")
        and flow.facts.get("gpus") == 0
    ):
        yield Finding(
            "device-unseen", "error", "tensorflow",
            f"tensorflow {host.tensorflow.version} is built for CUDA and sees no GPU",
            "Weights and operations stay on the CPU without a word",
            "pip install 'tensorflow[and-cuda]'",
        )  # fmt: skip


def _distinct(gpus: Iterable[Gpu]) -> list[Gpu]:
    return list({(g.name, g.capability): g for g in gpus}.values())


RULES = (
    driver, driver_age, hidden, architectures, cpu_builds, missing_libraries, cudnn_majors,
    wheels_beside, shadowed, seen_less,
)  # fmt: skip
