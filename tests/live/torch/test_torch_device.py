"""torch's programs and checkpoints on a device: moved there, loaded unmapped, and compared.

What was written for a device is loaded as it is, with no ``map_location``: torch says itself where
things are.
"""

import json

import pytest

from converter.cli.app import run

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def model(torch):
    torch.manual_seed(20)
    layers = torch.nn
    return layers.Sequential(
        layers.Conv2d(3, 8, 3, padding=1),
        layers.BatchNorm2d(8),
        layers.ReLU(),
        layers.AdaptiveAvgPool2d(2),
        layers.Flatten(),
        layers.Linear(32, 16),
        layers.Tanh(),
        layers.Linear(16, 5),
    ).eval()


@pytest.fixture
def example(torch):
    return torch.randn(2, 3, 12, 10, generator=torch.Generator().manual_seed(1))


def convert(source, out, *arguments):
    command = ["SOURCE", str(source), "-o", str(out), "--force", "-q"]
    assert run([*command, *map(str, arguments)]) == 0
    return out


def places(tensors):
    return {str(t.device) for t in tensors}


def near(torch, found, expected):
    """Tell whether two results differ by noise alone; TF32 is off."""
    return bool(torch.allclose(found.cpu(), expected.cpu(), rtol=0, atol=1e-5))


@pytest.fixture(autouse=True)
def exact(torch):
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    with torch.no_grad():
        yield


def test_a_checkpoint_loads_on_the_device_unmapped(torch, model, device, tmp_path):
    torch.save({"model": model.state_dict(), "epoch": 3}, tmp_path / "m.pt")
    out = convert(tmp_path / "m.pt", tmp_path / "o.pt", "--to", "torch", "--device", device)
    state = torch.load(out, weights_only=True)
    assert places(state.values()) == {device}
    model.load_state_dict({k.removeprefix("model."): v.cpu() for k, v in state.items()})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_traced_program_runs_on_the_device_unmapped(torch, model, example, device, tmp_path):
    torch.jit.trace(model, example).save(str(tmp_path / "m.pt"))
    out = convert(tmp_path / "m.pt", tmp_path / "o.pt", "--to", "torchscript", "--device", device)
    moved = torch.jit.load(str(out))
    assert places([*moved.parameters(), *moved.buffers()]) == {device}
    found = moved(example.to(device))
    assert str(found.device) == device
    assert near(torch, found, model(example))


def test_an_exported_program_runs_on_the_device_unmapped(torch, model, example, device, tmp_path):
    torch.export.save(torch.export.export(model, (example,)), tmp_path / "m.pt2")
    out = convert(tmp_path / "m.pt2", tmp_path / "o.pt2", "--to", "pt2", "--device", device)
    program = torch.export.load(out)
    assert places(program.state_dict.values()) == {device}
    found = program.module()(example.to(device))
    assert str(found.device) == device
    assert near(torch, found, model(example))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_was_saved_on_the_device_needs_none(torch, model, example, device, tmp_path):
    there = model.to(device)
    torch.jit.trace(there, example.to(device)).save(str(tmp_path / "m.pt"))
    torch.save(there.state_dict(), tmp_path / "w.pt")
    for name in ("m", "w"):
        convert(tmp_path / f"{name}.pt", tmp_path / name, "--to", "safetensors")
    out = convert(tmp_path / "m.pt", tmp_path / "o.pt", "--to", "torchscript", "--device", "cpu")
    back = torch.jit.load(str(out))
    assert places(back.parameters()) == {"cpu"}
    assert near(torch, back(example), model.to("cpu")(example))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("form", ["trace", "pt2"])
def test_the_graph_computes_what_the_source_does(
    torch, onnxruntime, model, example, device, tmp_path, capsys, form
):
    if form == "trace":
        source = tmp_path / "m.pt"
        torch.jit.trace(model, example).save(str(source))
    else:
        source = tmp_path / "m.pt2"
        torch.export.save(torch.export.export(model, (example,)), source)
    out = tmp_path / "m.onnx"
    inputs = ["--input", "input:float32:2,3,12,10"] if form == "trace" else []
    convert(source, out, "--to", "onnx", "--verify", "weights", *inputs)
    asked = ["--require", "cpu"] if device == "cpu" else ["--device", device, "--require", "device"]
    capsys.readouterr()
    code = run(["verify", str(source), str(out), "--json", *asked, *inputs])
    found = json.loads(capsys.readouterr().out)
    assert code == 0, found["graph"]["reason"]
    assert found["verified"] == ("cpu" if device == "cpu" else "device")
    if device == "cpu":
        return
    both = found["graph"]["device"]
    assert both["source"]["status"] == both["converted"]["status"] == "passed"
    assert len(both["pairs"]) == 4
    for side in (both["source"], both["converted"]):
        assert side["placement"]["elsewhere"] == []
        assert side["placement"]["switches"]["tf32"] is False
    print(json.dumps(both["converted"]["placement"]["facts"]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tf32_is_seen_where_the_gpu_has_it(
    torch, onnxruntime, device, tmp_path, capsys
):  # fmt: skip
    """Allowed, the difference is larger; unasked, it is noise."""
    if device == "cpu" or torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("TF32 is of GPUs with compute capability 8.0 or more")
    torch.manual_seed(3)
    model = torch.nn.Linear(1024, 256).eval()
    source, out = tmp_path / "m.pt", tmp_path / "m.onnx"
    torch.jit.trace(model, torch.randn(64, 1024)).save(str(source))
    inputs = ["--input", "input:float32:64,1024"]
    convert(source, out, "--to", "onnx", "--verify", "weights", *inputs)
    lost = {}
    for more in ((), ("--allow-tf32",)):
        capsys.readouterr()
        asked = ["--json", "--device", device, "--require", "device", *inputs, *more]
        assert run(["verify", str(source), str(out), *asked]) == 0
        pairs = json.loads(capsys.readouterr().out)["graph"]["device"]["pairs"]
        lost[more] = pairs["converted on the device ~ source on the CPU"][0]["max_rel"]
    assert lost[()] < 2e-5 < lost["--allow-tf32",]
