"""Findings about NVIDIA's driver, GPUs and libraries: pure functions of a `Host`."""

import re
from collections.abc import Iterator

from converter.doctor.findings import Finding
from converter.doctor.host import Host, Package, parse_release
from converter.doctor.rules.cuda import find_minimum_driver, find_newest_cuda, runs_on


def find_cuda_builds(host: Host) -> Iterator[tuple[Package, str]]:
    """Yield each installed framework that is built for CUDA, and the version of CUDA."""
    for package in (host.package("torch"), host.tensorflow, host.package("onnxruntime-gpu")):
        if package is None:
            continue
        cuda = package.build.get("cuda") or ""
        if not cuda and package.name == "onnxruntime-gpu":
            cuda = _find_onnxruntime_cuda(package)
        if isinstance(cuda, str) and cuda:
            yield package, cuda


def uses_gpu(package: Package, host: Host) -> bool:
    """Return whether a framework reports that it uses a GPU here.

    Its report outweighs records and versions, which miss NVIDIA's compatibility packages, conda's
    libraries and unusual paths.
    """
    if package.name == "torch":
        seen = host.seen.get("torch")
        return bool(seen and seen.facts.get("kernel_ran"))
    if package.name.startswith("onnxruntime"):
        seen = host.seen.get("onnxruntime")
        return bool(seen and "CUDAExecutionProvider" in seen.devices)
    seen = host.seen.get("tensorflow")
    return bool(seen and seen.facts.get("gpus"))


def _find_onnxruntime_cuda(package: Package) -> str:
    """Return the CUDA that a release of onnxruntime-gpu is built for.

    Spec: https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#requirements
    """
    version = parse_release(package.version)
    return "13" if version >= (1, 27) else "12" if version >= (1, 19) else "11"


def check_driver(host: Host) -> Iterator[Finding]:
    """Report a driver that is missing, does not start or is not accessible."""
    nvidia = host.nvidia
    mismatch = "mismatch" in nvidia.problem.lower()
    if mismatch:
        yield Finding(
            "driver-mismatch", "error", "driver", nvidia.problem,
            "The driver's library and its kernel module have different versions, as after an "
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
            "A container that is started without access to the GPU looks like this: programs "
            "report that no NVIDIA driver is found",
            "docker run --gpus all … (with NVIDIA's container toolkit on the host)",
        )  # fmt: skip


def check_driver_version(host: Host) -> Iterator[Finding]:
    """Report a framework that is built for a newer CUDA than the driver supports."""
    version = host.nvidia.driver
    if not version:
        return
    for package, cuda in find_cuda_builds(host):
        needed = find_minimum_driver(cuda)
        old = parse_release(version) < parse_release(needed)
        if needed and old and not uses_gpu(package, host):
            newest = host.nvidia.cuda or find_newest_cuda(version)
            supported = f"{newest[0]}.{newest[1]}" if newest else "an older one"
            yield Finding(
                "driver-too-old", "error", package.name,
                f"{package.name} {package.version} is built for CUDA {cuda}, which needs driver "
                f"{needed} or newer; this one is {version}, for CUDA up to {supported}",
                f"{package.name} finds no usable GPU: \"The NVIDIA driver on your system is too "
                'old", or it runs on the CPU without a message',
                f"update the driver to {needed} or newer, or install a {package.name} that is "
                f"built for CUDA {supported} or older",
            )  # fmt: skip


def check_visibility(host: Host) -> Iterator[Finding]:
    """Report a variable that hides devices."""
    chosen = host.variables.get("CUDA_VISIBLE_DEVICES")
    gpus, visible = host.nvidia.gpus, host.visible_gpus
    if chosen is not None and len(visible) < len(gpus):
        yield Finding(
            "devices-hidden", "warning" if visible else "error", "CUDA_VISIBLE_DEVICES",
            f"CUDA_VISIBLE_DEVICES={chosen!r} leaves {len(visible)} of {len(gpus)} GPUs",
            "Programs see only those, and count them from 0: cuda:0 is the first of them",
            "unset CUDA_VISIBLE_DEVICES",
        )  # fmt: skip
    inside = host.variables.get("NVIDIA_VISIBLE_DEVICES")
    if inside in ("none", "void", "") and not gpus:
        yield Finding(
            "devices-hidden", "warning", "NVIDIA_VISIBLE_DEVICES",
            f"NVIDIA_VISIBLE_DEVICES={inside!r}: this container has no GPU",
            "Programs in the container see none, whatever the machine has",
            "docker run --gpus all …",
        )  # fmt: skip
    if host.variables.get("JAX_PLATFORMS") == "cpu" and host.package("jax") and gpus:
        yield Finding(
            "devices-hidden", "warning", "JAX_PLATFORMS", "JAX_PLATFORMS=cpu",
            "JAX does not look for GPUs", "unset JAX_PLATFORMS",
        )  # fmt: skip


def check_architectures(host: Host) -> Iterator[Finding]:
    """Report a framework that has no machine code for a GPU of this host."""
    torch = host.seen.get("torch")
    built = {"torch": torch.facts.get("architectures") if torch else None}
    if torch and torch.facts.get("kernel_ran") and len(host.visible_gpus) == 1:
        built["torch"] = None  # it has run on the only GPU
    if host.tensorflow:
        built["tensorflow"] = host.tensorflow.build.get("architectures")
    for name, known in built.items():
        listed = [str(a) for a in known] if isinstance(known, list) else []
        if not any(a.startswith(("sm_", "compute_")) for a in listed):
            continue
        for gpu in {(g.name, g.capability): g for g in host.visible_gpus}.values():
            if gpu.capability is not None and not runs_on(gpu.capability, listed):
                sm = f"sm_{gpu.capability[0]}{gpu.capability[1]}"
                yield Finding(
                    "no-kernel-image", "error", name,
                    f"{name} is built for {' '.join(listed)}; {gpu.name} is {sm}",
                    "The GPU is seen, and the first operation on it fails: \"CUDA error: no "
                    'kernel image is available for execution on the device"',
                    f"install a {name} whose CUDA build lists {sm}, or use the CPU",
                )  # fmt: skip


def check_cpu_builds(host: Host) -> Iterator[Finding]:
    """Report a framework that is built without CUDA, where there is a GPU."""
    if not host.visible_gpus:
        return
    torch = host.package("torch")
    if torch and torch.build and not (torch.build.get("cuda") or torch.build.get("hip")):
        yield Finding(
            "cpu-build", "warning", "torch", f"torch {torch.version} is built without CUDA",
            "torch.cuda.is_available() is False with every driver; a model tagged for a GPU "
            "does not load without map_location",
            "pip install --force-reinstall torch  (the build for your CUDA)",
        )  # fmt: skip
    tf = host.tensorflow
    if tf and tf.build and not (tf.build.get("cuda") or tf.build.get("hip")):
        yield Finding(
            "cpu-build", "warning", tf.name, f"{tf.name} {tf.version} is built without CUDA",
            "Weights and operations stay on the CPU, without a message",
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


def check_libraries(host: Host) -> Iterator[Finding]:
    """Report CUDA libraries that a framework opens at run time and that are missing."""
    if not host.visible_gpus or not host.system.startswith("Linux"):
        return
    for package, cuda in find_cuda_builds(host):
        if package.name == "torch" or uses_gpu(package, host):  # torch's wheels bring them
            continue
        needed = {
            "cudart": parse_release(cuda)[:1],
            "cudnn": parse_release(str(package.build.get("cudnn") or 9))[:1],
        }
        missing = [
            f"lib{name}.so.{major[0]}"
            for name, major in needed.items()
            if major and not any((x.name, x.major) == (name, major[0]) for x in host.libraries)
        ]
        if missing:
            onnxruntime = "onnx" in package.name
            extra = "onnxruntime-gpu[cuda,cudnn]" if onnxruntime else "tensorflow[and-cuda]"
            yield Finding(
                "libraries-missing", "error", package.name,
                f"{package.name} {package.version} needs {', '.join(missing)}, and none is found",
                "It prints that it cannot open them, and runs on the CPU",
                f"pip install '{extra}'",
            )  # fmt: skip


def check_cudnn_versions(host: Host) -> Iterator[Finding]:
    """Report cuDNN in two major versions."""
    versions = {x.major: x for x in host.libraries if x.name == "cudnn" and x.major}
    if len(versions) > 1:
        listed = "; ".join(f"{x.version} ({x.origin}, {x.path})" for x in versions.values())
        yield Finding(
            "cudnn-majors", "warning", "cudnn",
            f"cuDNN in {len(versions)} major versions: {listed}",
            "Which one a framework opens depends on LD_LIBRARY_PATH and on the order of imports: "
            "\"Could not load library libcudnn_ops\", \"Loaded runtime CuDNN library … but source "
            'was compiled with …"',
            "remove the one that no installed framework is built for",
        )  # fmt: skip


def check_cuda_wheels(host: Host) -> Iterator[Finding]:
    """Report CUDA wheels next to a torch that is built for another CUDA."""
    torch = host.package("torch")
    built = parse_release(str(torch.build.get("cuda") or ""))[:1] if torch else ()
    if torch is None or not built:
        return
    others = sorted(
        name
        for name in host.packages
        if (match := re.fullmatch(r"nvidia-.+-cu(\d+)", name)) and int(match[1]) != built[0]
    )
    folders = {name.split("-cu")[0] for name in others}
    if others:
        sample = ", ".join(others[:4]) + (f" and {len(others) - 4} more" if len(others) > 4 else "")
        yield Finding(
            "cuda-wheels-mixed", "warning", "torch",
            f"torch {torch.version} is built for CUDA {torch.build.get('cuda')}, and {sample} "
            "are for another",
            f"They are installed in {len(folders)} of the same folders under nvidia/, and the "
            "framework that is imported first decides which libraries the process loads",
            "give each framework its own environment, or: pip uninstall " + " ".join(others),
        )  # fmt: skip


def check_library_path(host: Host) -> Iterator[Finding]:
    """Report a library in LD_LIBRARY_PATH that is of another version than its wheel."""
    wheels = {x.name: x for x in host.libraries if x.origin.startswith("wheel")}
    for library in host.libraries:
        wheel = wheels.get(library.name)
        if library.origin != "LD_LIBRARY_PATH" or wheel is None:
            continue
        size = min(len(parse_release(library.version)), len(parse_release(wheel.version)), 2)
        if parse_release(library.version)[:size] != parse_release(wheel.version)[:size]:
            yield Finding(
                "library-shadowed", "warning", "LD_LIBRARY_PATH",
                f"{library.path} ({library.version}) comes before {wheel.origin.split()[1]} "
                f"{wheel.version}",
                "The loader searches LD_LIBRARY_PATH before the folder of a wheel: the framework "
                "gets a library that it is not built with",
                "unset LD_LIBRARY_PATH",
            )  # fmt: skip


def check_seen_gpus(host: Host) -> Iterator[Finding]:
    """Report a framework built for CUDA that does not see or cannot use the GPU."""
    if not host.visible_gpus:
        return
    package, torch = host.package("torch"), host.seen.get("torch")
    cuda = package.build.get("cuda") if package else None
    if package and cuda and torch and torch.facts.get("cuda_available") is False:
        yield Finding(
            "device-unseen", "error", "torch",
            f"torch {package.version} is built for CUDA {cuda} and sees no GPU",
            "torch.cuda.is_available() is False", "python -c 'import torch; torch.cuda.init()'",
        )  # fmt: skip
    if torch and torch.facts.get("kernel_problem"):
        yield Finding(
            "kernel-failed", "error", "torch",
            f"an operation on cuda:0 failed: {torch.facts['kernel_problem']}",
            "The GPU is seen, and this build cannot use it",
        )  # fmt: skip
    package, tensorflow = host.tensorflow, host.seen.get("tensorflow")
    built = package is not None and package.build.get("cuda")
    if package and built and tensorflow and tensorflow.facts.get("gpus") == 0:
        yield Finding(
            "device-unseen", "error", "tensorflow",
            f"tensorflow {package.version} is built for CUDA and sees no GPU",
            "Weights and operations stay on the CPU, without a message",
            "pip install 'tensorflow[and-cuda]'",
        )  # fmt: skip


RULES = (
    check_driver, check_driver_version, check_visibility, check_architectures, check_cpu_builds,
    check_libraries, check_cudnn_versions, check_cuda_wheels, check_library_path, check_seen_gpus,
)  # fmt: skip
