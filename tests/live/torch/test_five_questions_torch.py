"""The questions of DESIGN.md about torch, in the words that people ask them in: before and after.

Before: the official loader, on a host like the one that people write of, fails with exactly its
message. After: what ``convert`` wrote loads there. The archives are those of torch itself, their
tags as a GPU's (fixtures/torch_devices); torch says what it says before it calls CUDA, so a host of
one GPU is one whose counts say so.
"""

import collections
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

torch = pytest.importorskip("torch")
DEVICES = ROOT / "fixtures" / "torch_devices"
NO_CUDA = "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False"
NO_DEVICE_1 = (
    "Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1. Please "
    "use torch.load with map_location to map your storages to an existing device."
)


@pytest.fixture
def one_gpu(monkeypatch):
    """A host with one GPU, as far as torch.load asks before it moves anything there."""
    moved = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    original = torch.UntypedStorage.to

    def to(storage, *, device, non_blocking=False):
        if device.type == "cuda":
            moved.append(str(device))
            return storage  # what the GPU would hold
        return original(storage, device=device, non_blocking=non_blocking)

    monkeypatch.setattr(torch.UntypedStorage, "to", to)
    return moved


def convert(source: Path, out: Path, device: str | None, *more: str) -> Path:
    """Run the command that is the answer."""
    command = [sys.executable, "-m", "converter", str(source), "-o", str(out), "-q", *more]
    if device is not None:
        command += ["--to", "torch", "--device", device]
    subprocess.run(command, check=True, capture_output=True)
    return out


def equal(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


@pytest.mark.parametrize("source", ["cuda1.pt", "cuda1_legacy.pth"])
@pytest.mark.parametrize("keep", [(), ("--keep-structure",)])
def test_cuda_device_1_but_device_count_is_1(tmp_path, one_gpu, source, keep):
    with pytest.raises(RuntimeError) as failed:
        torch.load(DEVICES / source, weights_only=True)
    assert str(failed.value) == NO_DEVICE_1
    assert one_gpu == []
    out = convert(DEVICES / source, tmp_path / "out.pt", "cuda:0", *keep)
    loaded = torch.load(out, weights_only=True)
    assert one_gpu == ["cuda:0"] * 9
    assert equal(loaded, torch.load(DEVICES / source, map_location="cpu", weights_only=True))


@pytest.mark.parametrize("source", ["cuda1.pt", "cuda1_legacy.pth", "views.pt"])
def test_cuda_is_available_is_false(tmp_path, monkeypatch, source):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError) as failed:
        torch.load(DEVICES / source, weights_only=True)
    assert str(failed.value).startswith(NO_CUDA)
    out = convert(DEVICES / source, tmp_path / "out.pt", "cpu")
    for mmap in (False, True):
        loaded = torch.load(out, weights_only=True, mmap=mmap)
        assert equal(loaded, torch.load(DEVICES / source, map_location="cpu", weights_only=True))


def test_a_state_dict_of_cpu_and_cuda(tmp_path, monkeypatch, one_gpu):
    with pytest.raises(RuntimeError) as failed:
        torch.load(DEVICES / "mixed.pt", weights_only=True)
    assert str(failed.value) == NO_DEVICE_1
    one_gpu.clear()
    expected = torch.load(DEVICES / "mixed.pt", map_location="cpu", weights_only=True)
    for device, moves in (("cuda:0", 9), ("cpu", 0)):
        out = convert(DEVICES / "mixed.pt", tmp_path / f"{moves}.pt", device)
        loaded = torch.load(out, weights_only=True)
        assert one_gpu == ["cuda:0"] * moves
        assert equal(loaded, expected)
        assert loaded._metadata == expected._metadata
        one_gpu.clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError) as failed:
        torch.load(DEVICES / "mixed.pt", weights_only=True)
    assert str(failed.value).startswith(NO_CUDA)
    assert equal(torch.load(tmp_path / "0.pt", weights_only=True), expected)


def test_a_nested_checkpoint_that_weights_only_refuses(tmp_path):
    with pytest.raises(RuntimeError, match=re.escape(NO_CUDA)):
        torch.load(DEVICES / "checkpoint.pt", weights_only=False)
    with pytest.raises(Exception, match="Weights only load failed"):
        torch.load(DEVICES / "checkpoint.pt", map_location="cpu", weights_only=True)
    out = convert(DEVICES / "checkpoint.pt", tmp_path / "out.pt", "cpu", "--keep-structure")
    loaded = torch.load(out, weights_only=True)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Flatten(),
        torch.nn.Linear(12, 4),
    )  # fmt: skip
    net.load_state_dict(loaded["model"])
    torch.optim.Adam(net.parameters()).load_state_dict(loaded["optimizer"])
    torch.set_rng_state(loaded["rng_state"])
    tied = loaded["ema"]["0.weight"], loaded["model"]["0.weight"]
    assert tied[0].data_ptr() == tied[1].data_ptr()
    assert type(loaded["model"]) is collections.OrderedDict
    assert loaded["args"]["device"] == torch.device("cpu")
    assert loaded["size"] == torch.Size([3, 2])
    assert loaded["raw"] == b"\x00\xff"


def test_the_way_back(tmp_path, one_gpu):
    """From a GPU's archive through the portable bundle to another GPU, and as it was."""
    first = tmp_path / "a.portable"
    convert(DEVICES / "cuda1.pt", first, None)
    out = convert(first, tmp_path / "b.pt", "cuda:0")
    shutil.rmtree(first)
    loaded = torch.load(out, weights_only=True)
    assert one_gpu == ["cuda:0"] * 9
    assert equal(loaded, torch.load(DEVICES / "cuda1.pt", map_location="cpu", weights_only=True))
