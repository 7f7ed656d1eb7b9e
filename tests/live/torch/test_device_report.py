"""``convert verify`` of torch's programs, moved for a device that is not here."""

import json

import pytest

from converter.cli.app import run

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("warm_torch"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
torch = pytest.importorskip("torch")
INPUT = ("--input", "input:float32:n,6")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a traced program and the same moved to cuda:0; and another one's, moved there."""
    folder = tmp_path_factory.mktemp("programs")
    for name in ("model", "other"):
        torch.manual_seed(len(name) + (name == "other"))
        layers = torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
        traced = torch.jit.trace(torch.nn.Sequential(*layers).eval(), torch.ones(2, 6))
        traced.save(str(folder / f"{name}.pt"))
        command = ["SOURCE", str(folder / f"{name}.pt"), "-o", str(folder / f"{name}-cuda.pt")]
        moved = ["--to", "torchscript", "--device", "cuda:0", "--verify", "weights", "-q"]
        assert run([*command, *moved]) == 0
    return folder


def verify(capsys, a, b, *arguments):
    capsys.readouterr()
    code = run(["verify", str(a), str(b), "--json", *INPUT, *arguments])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else said.err


def test_what_is_for_another_device_is_verified_on_the_cpu(files, capsys):
    code, found = verify(capsys, files / "model.pt", files / "model-cuda.pt")
    assert (code, found["verified"]) == (0, "cpu")
    assert found["weights"] == {"equal": 4, "different": []}
    assert "was run moved back there" in found["graph"]["notes"][-1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_the_device_it_is_not_run_there(files, capsys):
    asked = ("--device", "mps")
    if torch.backends.mps.is_available():
        asked = ("--device", "cuda:0")
    code, found = verify(capsys, files / "model.pt", files / "model-cuda.pt", *asked)
    assert (code, found["verified"]) == (0, "cpu")
    assert found["graph"]["device"]["status"] == "not run"
    assert "torch" in found["graph"]["device"]["reason"]
    asked = ("--device", "cuda:0", "--require", "device")
    assert verify(capsys, files / "model.pt", files / "model-cuda.pt", *asked)[0] == 7


def test_another_model_is_found_out(files, capsys):
    code, found = verify(capsys, files / "model.pt", files / "other-cuda.pt")
    assert (code, found["verified"]) == (1, None)
    assert len(found["weights"]["different"]) == 4
    assert found["graph"]["status"] == "failed"


def test_a_state_dict_is_verified_on_its_weights(files, tmp_path, capsys):
    state = torch.jit.load(str(files / "model.pt")).state_dict()
    torch.save(dict(state), tmp_path / "w.pt")
    command = ["SOURCE", str(tmp_path / "w.pt"), "-o", str(tmp_path / "o.pt"), "-q"]
    assert run([*command, "--to", "torch", "--device", "cuda:1"]) == 0
    code, found = verify(capsys, tmp_path / "w.pt", tmp_path / "o.pt")
    assert (code, found["verified"]) == (0, "weights")


def test_a_triton_entry_is_its_graph(files, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    out = tmp_path / "entry"
    command = ["SOURCE", str(files / "model.pt"), "-o", str(out), "--to", "triton", *INPUT, "-q"]
    assert run([*command, "--device", "cpu", "--verify", "weights"]) == 0
    code, found = verify(capsys, files / "model.pt", out)
    assert (code, found["verified"]) == (0, "cpu")


def test_a_program_is_compared_with_its_like(files, tmp_path, capsys):
    torch.save({"w": torch.ones(2)}, tmp_path / "w.pt")
    code, found = verify(capsys, tmp_path / "w.pt", files / "model-cuda.pt")
    assert code == 1
    assert "is compared with a source of the same format" in found["graph"]["reason"]
