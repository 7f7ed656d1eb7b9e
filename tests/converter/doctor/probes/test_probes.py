"""Probes on fake trees: site-packages, /proc, /sys, a toolkit and an nvidia-smi."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

from converter.doctor.host import Gpu, Package
from converter.doctor.probes import machine, nvidia
from converter.doctor.probes.host import probe_framework, probe_host
from converter.doctor.probes.libraries import find_libraries
from converter.doctor.probes.packages import (
    find_packages,
    parse_tensorflow_build,
    parse_torch_build,
)
from formats.errors import DependencyError

DOCTOR = ROOT / "converter" / "doctor"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def record(site, name, version, metadata=""):
    write(
        site / f"{name}-{version}.dist-info" / "METADATA", f"Metadata-Version: 2.1\n{metadata}\n\n"
    )


# -- packages -------------------------------------------------------------------------------------


def test_records_are_read_and_nothing_is_imported(tmp_path):
    record(tmp_path, "torch", "2.13.0+cu130", "Requires-Dist: numpy>=1.26 ; extra == 'x'")
    bomb = "raise SystemExit('imported')\n"
    write(tmp_path / "torch" / "__init__.py", bomb)
    write(tmp_path / "torch" / "version.py",
          "from typing import Optional\n__version__ = '2.13.0+cu130'\n"
          "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n")  # fmt: skip
    record(tmp_path, "tf_keras", "2.21.0")
    record(tmp_path, "some_other", "1.0")
    record(tmp_path, "nvidia_cudnn_cu12", "9.3.0.75")
    found = find_packages([str(tmp_path), str(tmp_path / "gone"), str(tmp_path / ".")])
    assert set(found) == {"torch", "tf-keras", "nvidia-cudnn-cu12"}
    (torch,) = found["torch"]
    assert torch.version == "2.13.0+cu130"
    assert torch.build["cuda"] == "13.0"
    assert torch.build["hip"] is None
    assert torch.requires == ("numpy>=1.26 ; extra == 'x'",)


def test_two_folders_give_two_records_in_order(tmp_path):
    record(tmp_path / "a", "numpy", "2.0.0")
    record(tmp_path / "b", "numpy", "1.26.4")
    found = find_packages([str(tmp_path / "a"), str(tmp_path / "b")])
    assert [p.version for p in found["numpy"]] == ["2.0.0", "1.26.4"]


def test_tensorflows_build_is_parsed():
    text = (
        "import collections\nbuild_info = collections.OrderedDict([('cuda_compute_capabilities', "
        "['sm_60', 'compute_90']), ('cuda_version', '12.5.1'), ('cudnn_version', '9'), "
        "('is_cuda_build', True), ('is_rocm_build', False)])\n"
    )
    found = parse_tensorflow_build(text)
    assert found == {
        "cuda": "12.5.1",
        "cudnn": "9",
        "hip": False,
        "architectures": ["sm_60", "compute_90"],
    }
    assert parse_tensorflow_build(text.replace("True", "False"))["cuda"] is None


@pytest.mark.parametrize("text", ["", "x = (", "x = __import__('os').getpid()", "\0", "(" * 5000])
def test_damaged_build_files_are_ignored(text):
    assert parse_torch_build(text).get("cuda") is None
    assert parse_tensorflow_build(text) == {}


def test_whose_files_onnxruntime_consists_of(tmp_path):
    record(tmp_path, "onnxruntime", "1.31.1")
    record(tmp_path, "onnxruntime_gpu", "1.30.0")
    capi = tmp_path / "onnxruntime" / "capi"
    write(capi / "build_and_package_info.py",
          "package_name = 'onnxruntime-gpu'\n__version__ = '1.30.0'\n"
          "cuda_version = '13.0'\n")  # fmt: skip
    write(capi / "libonnxruntime_providers_cuda.so", "")
    write(capi / "libonnxruntime_providers_shared.so", "")
    found = find_packages([str(tmp_path)])
    for name in ("onnxruntime", "onnxruntime-gpu"):
        build = found[name][0].build
        assert (build["module_of"], build["cuda"]) == ("onnxruntime-gpu", "13.0")
        assert build["providers"] == ["cuda"]


# -- libraries ------------------------------------------------------------------------------------


def test_libraries_of_paths_wheels_and_toolkits(tmp_path):
    old, system = tmp_path / "old", tmp_path / "usr" / "lib" / "x86_64-linux-gnu"
    write(old / "libcudnn.so.8", "")
    write(old / "libcudnn.so.8.9.7", "")
    write(old / "libcudnn_ops.so.8", "")  # a part of it, counted with it
    write(system / "libcudart.so.12", "")
    write(tmp_path / "usr" / "local" / "cuda-13.0" / "lib64" / "libcudart.so.13.0.96", "")
    wheels = {"nvidia-cudnn-cu12": "9.3.0.75", "nvidia-cuda-runtime": "13.0.96"}
    packages = {name: (Package(name, version, "/site"),) for name, version in wheels.items()}
    found = find_libraries(packages, {"LD_LIBRARY_PATH": f"{old}{os.pathsep}/gone"}, tmp_path)
    listed = [(x.name, x.version, x.origin) for x in found]
    assert listed == [
        ("cudnn", "8.9.7", "LD_LIBRARY_PATH"),
        ("cudnn", "9.3.0.75", "wheel nvidia-cudnn-cu12"),
        ("cudart", "13.0.96", "wheel nvidia-cuda-runtime"),
        ("cudart", "12", "system"),
        ("cudart", "13.0.96", "system"),
    ]


def test_libraries_of_conda_and_of_the_loaders_settings(tmp_path):
    write(tmp_path / "conda" / "lib" / "libcudnn.so.9", "")
    write(tmp_path / "opt" / "cuda" / "libcudart.so.12", "")
    write(tmp_path / "etc" / "ld.so.conf.d" / "cuda.conf", "# CUDA\n/opt/cuda\n")
    found = find_libraries({}, {"CONDA_PREFIX": str(tmp_path / "conda")}, tmp_path)
    assert {(x.name, x.version) for x in found} == {("cudnn", "9"), ("cudart", "12")}


# -- the machine ----------------------------------------------------------------------------------


def test_the_processor_and_its_features(tmp_path):
    write(tmp_path / "cpuinfo", "model name\t: A CPU\nflags\t\t: fpu avx avx2\nmodel name\t: B\n")
    write(tmp_path / "meminfo", "MemTotal:       1024 kB\n")
    found = machine.describe_cpu(tmp_path)
    assert (found.model, found.features, found.memory_bytes) == ("A CPU", ("avx", "avx2"), 1 << 20)
    assert machine.describe_cpu(tmp_path / "gone").features == ()


def test_variables_that_matter_and_no_others():
    said = {"CUDA_VISIBLE_DEVICES": "", "AWS_SECRET_ACCESS_KEY": "x", "KERAS_BACKEND": "jax"}
    assert machine.select_variables(said) == {"CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "jax"}


def test_a_command_of_another_program_is_told_apart(tmp_path):
    ours = write(tmp_path / "ours", "#!/usr/bin/python\nfrom converter.cli import main\n")
    other = write(tmp_path / "convert", "\x7fELF ImageMagick")
    assert machine.find_other_convert(str(ours)) == ""
    assert machine.find_other_convert(None) == ""
    assert machine.find_other_convert(str(other)) == str(other)


@pytest.mark.parametrize(
    ("text", "backend"),
    [('{"backend": "torch"}', "torch"), ("[]", ""), ("{", ""), ('{"backend": 3}', "")],
)
def test_keras_settings_file(tmp_path, text, backend):
    write(tmp_path / ".keras" / "keras.json", text)
    assert machine.read_keras_backend({}, tmp_path) == backend
    assert (
        machine.read_keras_backend({"KERAS_HOME": str(tmp_path / ".keras")}, Path("/x")) == backend
    )


def test_rocm(tmp_path):
    assert machine.detect_rocm(tmp_path, tmp_path) == ""
    write(tmp_path / "kfd", "")
    assert machine.detect_rocm(tmp_path, tmp_path) == "driver only"
    write(tmp_path / "rocm" / ".info" / "version", "6.3.1\n")
    assert machine.detect_rocm(tmp_path, tmp_path) == "6.3.1"


# -- NVIDIA ---------------------------------------------------------------------------------------

SMI = """#!/bin/sh
{body}
"""


def smi(tmp_path, monkeypatch, body):
    program = write(tmp_path / "bin" / "nvidia-smi", SMI.format(body=body))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def empty(tmp_path):
    return {"proc": tmp_path / "proc", "sys": tmp_path / "sys"}


no_nvml = pytest.mark.skipif(
    any(Path(p).exists() for p in ("/proc/driver/nvidia", "/dev/nvidiactl")),
    reason="this machine has a driver of its own",
)


@no_nvml
def test_without_a_driver_there_is_nothing_and_no_complaint(empty, monkeypatch):
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    found = nvidia.probe_nvidia(**empty)
    assert (found.driver, found.gpus, found.libcuda, found.problem) == ("", (), False, "")


@no_nvml
def test_nvidia_smi_where_nvml_is_not(tmp_path, monkeypatch, empty):
    smi(tmp_path, monkeypatch,
        "echo 'NVIDIA H100 80GB HBM3, 9.0, 81559, 550.54.14, Enabled'\n"
        "echo 'Tesla K80, [N/A], [N/A], 550.54.14, [N/A]'")  # fmt: skip
    found = nvidia.probe_nvidia(**empty)
    assert (found.driver, found.via) == ("550.54.14", "nvidia-smi")
    assert found.gpus == (
        Gpu("NVIDIA H100 80GB HBM3", (9, 0), 81559 << 20, mig=True),
        Gpu("Tesla K80", None, None, mig=False),
    )


@no_nvml
def test_a_broken_nvidia_smi_is_a_finding(tmp_path, monkeypatch, empty):
    smi(
        tmp_path,
        monkeypatch,
        'echo "NVIDIA-SMI has failed because it couldn\'t communicate"; exit 9',
    )
    assert "couldn't communicate" in nvidia.probe_nvidia(**empty).problem


@no_nvml
def test_an_nvidia_smi_that_hangs_ends(tmp_path, monkeypatch, empty):
    monkeypatch.setattr(nvidia, "SECONDS", 1.0)
    smi(tmp_path, monkeypatch, "sleep 60")
    assert "longer than 1 s" in nvidia.probe_nvidia(**empty).problem


NVML = """
#include <string.h>
int nvmlInit_v2(void) { return STATUS; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "Driver/library version mismatch"; }
static int put(char *to, unsigned n, const char *text) { strncpy(to, text, n); return 0; }
int nvmlSystemGetDriverVersion(char *to, unsigned n) { return put(to, n, "535.104.05"); }
int nvmlSystemGetCudaDriverVersion(int *v) { *v = 12020; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)0x1000000000; return 0; }
int nvmlDeviceGetName(void *d, char *to, unsigned n) { return put(to, n, "Fake A100"); }
int nvmlDeviceGetCudaComputeCapability(void *d, int *a, int *b) { *a = 8; *b = 0; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) { m[0] = 40ULL << 30; return 0; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *next) { *now = 1; return 0; }
"""
CUDA = "int cuDriverGetVersion(int *v) { *v = 12020; return 0; }"


@no_nvml
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("status", [0, 18])
def test_a_library_that_answers_like_nvml(tmp_path, monkeypatch, empty, status):
    for name, text in (("libnvidia-ml.so.1", NVML), ("libcuda.so.1", CUDA)):
        source = write(tmp_path / f"{name}.c", text.replace("STATUS", str(status)))
        command = ["cc", "-shared", "-fPIC", "-o", str(tmp_path / name), str(source)]
        subprocess.run(command, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    found = nvidia.probe_nvidia(**empty)
    assert found.libcuda
    assert found.cuda == (12, 2)
    if status:
        assert found.problem == "NVML does not start: Driver/library version mismatch (18)"
        assert found.gpus == ()
    else:
        assert (found.driver, found.via, found.problem) == ("535.104.05", "nvml", "")
        assert found.gpus == (Gpu("Fake A100", (8, 0), 40 << 30, mig=True),)


def test_a_child_that_crashes_is_a_finding(tmp_path, monkeypatch, empty):
    crash = write(tmp_path / "crash.py", "import os\nos.abort()\n")
    monkeypatch.setattr(nvidia, "SCRIPT", crash)
    assert "SIGABRT" in nvidia.probe_nvidia(**empty).problem


# Vendor and class: a GPU, its sound, somebody else's display.
BUS = [("0x10de", "0x030200"), ("0x10de", "0x040300"), ("0x8086", "0x030000")]


def test_the_kernel_and_the_bus_tell_of_what_nvml_does_not(tmp_path):
    write(tmp_path / "proc" / "driver" / "nvidia" / "version",
          "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n"
          "GCC version: 12\n")  # fmt: skip
    for index, (vendor, kind) in enumerate(BUS):
        device = tmp_path / "sys" / "bus" / "pci" / "devices" / str(index)
        write(device / "vendor", vendor + "\n")
        write(device / "class", kind + "\n")
    module = nvidia.read_kernel_driver(tmp_path / "proc")
    assert module == "535.104.05"
    found = nvidia.assemble({}, module, nvidia.count_pci_gpus(tmp_path / "sys"))
    assert (found.driver, found.via, found.pci_gpus) == ("535.104.05", "/proc", 1)


# -- frameworks, in child processes ---------------------------------------------------------------


def fake_python(tmp_path, monkeypatch, name, text):
    """Put a module where children find it first."""
    write(tmp_path / "modules" / f"{name}.py", text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))


TORCH = """
import os
__version__ = "2.13.0"
class cuda:
    is_available = staticmethod(lambda: False)
    get_arch_list = staticmethod(lambda: ["sm_90"])
class version: cuda, hip = "13.0", None
class backends:
    class cudnn: is_available = staticmethod(lambda: False)
    class mps: is_available = staticmethod(lambda: True)
assert os.environ.get("CUDA_VISIBLE_DEVICES") == {visible!r}, os.environ.get("CUDA_VISIBLE_DEVICES")
"""


@pytest.mark.parametrize("visible", [None, "", "1"])
def test_a_framework_is_imported_with_the_users_variables(tmp_path, monkeypatch, visible):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    fake_python(tmp_path, monkeypatch, "torch", TORCH.format(visible=visible))
    found = probe_framework("torch", sys.executable)
    assert found.problem == ""
    assert (found.version, found.devices) == ("2.13.0", ("mps", "cpu"))
    assert found.facts["architectures"] == ["sm_90"]
    assert found.facts["cuda_available"] is False
    assert "kernel_ran" not in found.facts


# Frameworks as they answer where there is a GPU: module -> its text, its devices, some facts.
WITH_GPU = {
    "torch": (
        """
__version__ = "2.13.0"
class Tensor:
    def __mul__(self, other): return self
    def sum(self): return self
    def item(self): raise RuntimeError("CUDA error: no kernel image is available")
def ones(size, device): return Tensor()
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 2)
    get_arch_list = staticmethod(lambda: ["sm_90"])
    get_device_name = staticmethod(lambda i: "RTX 5090")
    get_device_capability = staticmethod(lambda i: (12, 0))
class version: cuda, hip = "12.6", None
class backends:
    class cudnn:
        is_available = staticmethod(lambda: True)
        version = staticmethod(lambda: 91002)
class xpu: is_available = staticmethod(lambda: False)
""",
        ("cuda:0 RTX 5090 (sm_120)", "cuda:1 RTX 5090 (sm_120)", "cpu"),
        {"cuda_devices": 2, "cudnn": 91002, "mps_available": False,
         "kernel_problem": "RuntimeError: CUDA error: no kernel image is available"},
    ),
    "tensorflow": (
        """
__version__ = "2.21.0"
class Device:
    def __init__(self, kind): self.device_type, self.name = kind, f"/physical_device:{kind}:0"
class sysconfig:
    get_build_info = staticmethod(lambda: {"is_cuda_build": True, "cuda_version": "12.5.1"})
class config:
    list_physical_devices = staticmethod(lambda: [Device("CPU"), Device("GPU")])
    class experimental:
        get_device_details = staticmethod(lambda d: {"device_name": "H100"})
""",
        ("CPU:0", "GPU:0 H100"),
        {"gpus": 1, "cuda": "12.5.1"},
    ),
    "jax": (
        """
__version__ = "0.7.0"
class Device: platform, id, device_kind = "gpu", 0, "NVIDIA H100"
devices = lambda: [Device]
default_backend = lambda: "gpu"
""",
        ("gpu:0 NVIDIA H100",),
        {"backend": "gpu"},
    ),
    "onnxruntime": (
        """
__version__ = "1.31.1"
set_default_logger_severity = lambda n: None
get_available_providers = lambda: ["TensorrtExecutionProvider", "CUDAExecutionProvider",
                                   "CPUExecutionProvider"]
class InferenceSession:
    def __init__(self, model, providers):
        assert isinstance(model, bytes)
        self.got = [p for p in providers if p.startswith("CUDA")] + ["CPUExecutionProvider"]
    def get_providers(self): return self.got
""",
        ("CUDAExecutionProvider", "CPUExecutionProvider"),
        {},
    ),
    "keras": (
        """
__version__ = "3.15.1"
class backend: backend = staticmethod(lambda: "jax")
""",
        (),
        {"backend": "jax"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_GPU)
def test_what_frameworks_say_of_a_gpu(tmp_path, monkeypatch, name):
    text, devices, facts = WITH_GPU[name]
    fake_python(tmp_path, monkeypatch, name, text)
    found = probe_framework(name, sys.executable)
    assert found.problem == ""
    assert found.devices == devices
    assert {k: found.facts[k] for k in facts} == facts


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("import os; os.abort()", "SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("raise ImportError('libcudart.so.13: cannot open shared object file')", "libcudart.so.13"),
        ("raise SystemExit(3)", "SystemExit"),
        ("import time; time.sleep(60)", "longer than 2 s"),
    ],
)
def test_a_framework_that_crashes_hangs_or_raises_is_a_finding(tmp_path, monkeypatch, text, word):
    fake_python(tmp_path, monkeypatch, "torch", text)
    assert word in probe_framework("torch", sys.executable, seconds=2.0).problem


def test_a_host_is_probed_without_frameworks():
    found = probe_host(frameworks=())
    assert found.seen == {}
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.package("numpy") is not None


def test_another_python_is_probed(tmp_path):
    site = tmp_path / "venv" / "site"
    record(site, "torch", "9.9.9")
    other = write(tmp_path / "python", f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    found = probe_host(str(other), frameworks=())
    assert found.executable == str(other)
    assert found.package("torch").version == "9.9.9"


def test_a_python_is_found_in_the_working_directory_and_on_the_path(tmp_path, monkeypatch):
    write(tmp_path / "bin" / "mine", f'#!/bin/sh\nexec {sys.executable} "$@"\n').chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert probe_host("bin/mine", frameworks=()).executable == str(tmp_path / "bin" / "mine")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert probe_host("mine", frameworks=()).executable == str(tmp_path / "bin" / "mine")


def test_a_python_that_cannot_be_run_is_an_error(tmp_path):
    with pytest.raises(DependencyError, match="cannot be run"):
        probe_host(str(tmp_path / "no" / "python"))


def test_the_scripts_of_children_import_nothing_of_the_project():
    scripts = [*DOCTOR.glob("probes/describe_*.py"), *DOCTOR.glob("loaders/call_*.py")]
    assert len(scripts) == 4
    for script in scripts:
        text = script.read_text()
        assert "from converter" not in text
        assert "from formats" not in text


def test_probing_imports_no_framework_and_no_numpy():
    code = (
        "import sys, json; from converter.doctor.diagnosis import diagnose; "
        "diagnose(fast=True).plain();"
        "heavy = ('numpy', 'torch', 'tensorflow', 'keras', 'onnx', 'h5py');"
        "print(json.dumps([m for m in heavy if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
