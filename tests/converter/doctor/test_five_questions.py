"""The five questions of DESIGN.md: what the official loader raises, why, and what fixes it.

Each has a file as its author would have it, on a host as its asker has it. What the loaders say is
compared with the real ones in the other tests of this folder; the tests of the targets show that
the commands which are advised do what is promised.
"""

import json
import zipfile

import pytest
from hosts import (
    CUDA_12,
    H100,
    KERAS,
    TENSORFLOW,
    TF_KERAS,
    TORCH,
    TORCH_CUDA,
    host,
    nvidia,
    torch_seen,
)
from repository import FIXTURES

from converter.cli import app
from converter.doctor import diagnosis
from converter.doctor.host import ImportResult


@pytest.fixture
def doctor(monkeypatch, capsys):
    """Return a function that runs the command on a made-up host: its document."""

    def run(made, source):
        monkeypatch.setattr(diagnosis, "probe_host", lambda *a, **k: made)
        monkeypatch.setattr(diagnosis, "confirm", lambda found, *_: found)
        app.run(["doctor", str(source), "--json"])
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def savedmodel(tmp_path):
    """Return a function that gives a SavedModel of the archive."""

    def unpack(name):
        with zipfile.ZipFile(FIXTURES / "tensorflow" / "multi_gpu.zip") as archive:
            archive.extractall(tmp_path)
        return tmp_path / name

    return unpack


def commands(found):
    return " ".join(row["command"] for row in found["advice"]["commands"])


def test_why_does_keras_load_model_fail_when_using_a_gpu(doctor):
    """Versions differ between saving and loading; CUDA and cuDNN are not in the file at all."""
    source = FIXTURES / "keras" / "tfkeras24_functional.h5"
    made = host(KERAS, TF_KERAS, TENSORFLOW, gpus=nvidia(H100), libraries=CUDA_12)
    found = doctor(made, source)
    first, second = found["predictions"]
    assert (first["outcome"], first["error"]) == ("fails", "ValueError")
    assert first["message"].startswith("Unrecognized keyword arguments passed to LSTM")
    assert second["outcome"] == "loads"
    assert {"what": "keras", "recorded": "2.4.0", "here": "3.15.1"} in found["differences"]
    (said,) = found["source"]["not_recorded"]
    for word in ("device", "CUDA", "cuDNN", "driver", "TensorFlow build"):
        assert word in said
    assert "--to keras" in commands(found)
    assert "--to portable" in commands(found)
    assert found["exit_code"] == 7


def test_why_does_a_multi_gpu_savedmodel_fail_to_load(doctor, savedmodel):
    """Replicas, check_placement and collectives are in the graph; they are taken out again."""
    source = savedmodel("loop_expanded")
    found = doctor(host(TENSORFLOW, KERAS, TF_KERAS), source)
    assert found["source"]["distribution"]["replicas"] == 2
    codes = {f["code"]: f for f in found["findings"]}
    assert "Cannot assign a device for operation" in codes["placement-absent"]["why"]
    (device,) = [d for d in found["differences"] if d["what"] == "device"]
    assert "GPU:1" in device["recorded"]
    assert device["here"] == "only the CPU"
    by_loader = {p["loader"]: p for p in found["predictions"]}
    assert by_loader["keras.models.load_model(path)"]["message"].startswith("File format not supp")
    assert "--to savedmodel --device none" in commands(found)


def test_why_is_tensorflow_loading_weights_on_the_cpu(doctor, savedmodel):
    """A GPU is there, and TensorFlow does not see it; then one where the runtime decides."""
    source = savedmodel("tf_keras_default")
    blind = host(
        TENSORFLOW,
        gpus=nvidia(H100),
        seen={"tensorflow": ImportResult("2.21.0", ("CPU:0",), {"gpus": 0})},
    )
    found = doctor(blind, source)
    codes = {f["code"]: f for f in found["findings"]}
    assert {"libraries-missing", "device-unseen"} <= set(codes)
    assert "libcudnn.so.9" in codes["libraries-missing"]["what"]
    assert "tensorflow[and-cuda]" in codes["libraries-missing"]["fix"]
    assert found["exit_code"] == 7

    well = host(
        TENSORFLOW, gpus=nvidia(H100), libraries=CUDA_12,
        seen={"tensorflow": ImportResult("2.21.0", ("GPU:0", "CPU:0"), {"gpus": 1})},
    )  # fmt: skip
    found = doctor(well, source)
    assert found["exit_code"] == 0
    assert [f["code"] for f in found["findings"]] == ["placement-free"]
    assert "--to savedmodel --device GPU:0" in commands(found)
    assert "--device GPU:0 --require device" in commands(found)


def test_why_does_torch_load_fail_for_device_1(doctor, tmp_path):
    """The tag says cuda:1, and there is one device; other tensors are on the CPU."""
    source = FIXTURES / "torch" / "torch2.13-legacy.pth.tar"
    made = host(TORCH_CUDA, gpus=nvidia(H100), seen=torch_seen(1))
    found = doctor(made, mixed(tmp_path))
    first, second = found["predictions"]
    assert first["message"] == (
        "Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1. "
        "Please use torch.load with map_location to map your storages to an existing device."
    )
    assert second["outcome"] == "loads"
    assert found["source"]["devices"] == {"cpu": 1, "cuda:1": 1}
    assert "devices-mixed" in {f["code"] for f in found["findings"]}
    assert found["differences"] == [{"what": "device", "recorded": "cuda:1", "here": "1 cuda"}]
    assert "--to torch --device cuda" in commands(found)
    # the oldest layout of all names its devices, too, and is refused for its layout
    assert doctor(made, source)["predictions"][0]["cause"] == "tar-layout"


def test_how_to_resolve_a_cuda_deserialization_error(doctor, tmp_path):
    """PyTorch detects no GPU: because there is none, or for a reason that the host shows."""
    source = mixed(tmp_path)
    found = doctor(host(TORCH), source)
    assert found["predictions"][0]["message"].startswith(
        "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False."
    )
    assert found["predictions"][0]["mends"] == 'map_location="cpu"'
    assert found["advice"]["device"] == "cpu"
    assert "no NVIDIA GPU and no driver, so the CPU is used" in found["advice"]["why"]
    assert "--to torch --device cpu" in commands(found)
    (said,) = found["source"]["not_recorded"]
    assert said.startswith("the versions of torch, CUDA, cuDNN and the driver")

    blind, hidden = torch_seen(0), {"CUDA_VISIBLE_DEVICES": ""}
    old = nvidia(H100, driver="525.60.13")
    for made, code in (
        (host(TORCH, gpus=nvidia(H100)), "cpu-build"),
        (host(TORCH_CUDA, gpus=old, seen=blind), "driver-too-old"),
        (host(TORCH_CUDA, gpus=nvidia(H100), seen=blind, variables=hidden), "devices-hidden"),
        (host(TORCH_CUDA, gpus=nvidia(H100, libcuda=False), seen=blind), "libcuda-missing"),
    ):
        found = doctor(made, source)
        assert code in {f["code"] for f in found["findings"]}, code
        assert found["advice"]["device"] == "cpu"
        assert found["exit_code"] == 7


def mixed(folder):
    """Write a state dict with one tensor on the CPU and one on cuda:1, as torch.save does."""
    path = folder / "mixed.pth"
    state = b"\x80\x02}q\x00("
    for name, key, device in (("bias", "0", "cpu"), ("weight", "1", "cuda:1")):
        state += b"".join((
            text(name), b"ctorch._utils\n_rebuild_tensor_v2\n((", text("storage"),
            b"ctorch\nFloatStorage\n", text(key), text(device),
            b"K\x02tQK\x00K\x02\x85K\x01\x85\x89",
            b"ccollections\nOrderedDict\n)RtR",
        ))  # fmt: skip
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", state + b"u.")
        archive.writestr("m/version", "3\n")
        for key in "01":
            archive.writestr(f"m/data/{key}", bytes(8))
    return path


def text(word):
    return b"X" + len(word).to_bytes(4, "little") + word.encode()
