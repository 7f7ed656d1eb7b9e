"""The questions of DESIGN.md about torch, for programs: TorchScript and torch.export.

Before: the official loader, on a host without CUDA, fails with its message, or loads what then
fails when it is run. After: what ``convert`` wrote loads, computes what the program computed before
it was on a GPU, and ``convert`` has run it beside its source. The archives are what torch writes on
a GPU (fixtures/torch_moved/make.py says how that is known).
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("warm_torch"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="the questions are of hosts without CUDA"),
]

MOVED = ROOT / "fixtures" / "torch_moved"
EXPECTED = json.loads((MOVED / "expected.json").read_text())


def convert(source: Path, out: Path, *options: str) -> dict[str, Any]:
    """Run the command that is the answer, and return what it says."""
    command = [sys.executable, "-m", "converter", str(source), "-o", str(out), "--json", *options]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert not ran.returncode, ran.stderr
    return json.loads(ran.stdout)


def recorded(name: str) -> list[torch.Tensor]:
    return [torch.tensor(EXPECTED[name][key]) for key in "xy"]


def test_torchscript_traced_on_cuda(tmp_path):
    """Two failures, one behind the other: the tags, and the literals that a trace keeps."""
    source, (x, y) = MOVED / "traced-cuda0.pt", recorded("traced")
    with pytest.raises(NotImplementedError) as failed:
        torch.jit.load(source)
    assert "Could not run 'aten::empty_strided' with arguments from the 'CUDA' backend" in str(
        failed.value
    )
    loaded = torch.jit.load(source, map_location="cpu")
    with pytest.raises(NotImplementedError) as failed:
        loaded(x)
    assert 'device=torch.device("cuda:0")' in str(failed.value)
    assert "from the 'CUDA' backend" in str(failed.value)

    out = tmp_path / "out.pt"
    convert(source, out, "--to", "torchscript", "--device", "cpu", "--require", "cpu")
    torch.testing.assert_close(torch.jit.load(out)(x), y)  # another processor rounds otherwise


def test_torchscript_scripted_for_cuda(tmp_path):
    source, (x, y) = MOVED / "scripted-cuda1.pt", recorded("scripted")
    loaded = torch.jit.load(source)  # it has no tensors: what fails is what the code says
    with pytest.raises(NotImplementedError) as failed:
        loaded(x)
    assert 'torch.device("cuda:1")' in str(failed.value)
    out = tmp_path / "out.pt"
    options = ("--to", "torchscript", "--device", "cpu", "--input", "x:float32:4")
    assert convert(source, out, *options)["graph"]["status"] == "passed"
    torch.testing.assert_close(torch.jit.load(out)(x), y)  # another processor rounds otherwise


def test_an_exported_program_with_cuda_constants(tmp_path):
    source, (x, y) = MOVED / "exported-cuda0.pt2", recorded("exported")
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        torch.export.load(source)
    out = tmp_path / "out.pt2"
    convert(source, out, "--to", "pt2", "--device", "cpu", "--require", "cpu")
    program = torch.export.load(out)
    torch.testing.assert_close(program.module()(x), y)  # another processor rounds otherwise
    assert {str(t.device) for t in program.state_dict.values()} == {"cpu"}


@pytest.mark.parametrize(("name", "target"), [("traced-cpu.pt", "torchscript"),
                                              ("exported-cpu.pt2", "pt2")])  # fmt: skip
def test_a_program_for_a_device_that_is_not_here(name, target, tmp_path):
    """Written for cuda:0 without torch knowing one; moved back, it is what it was."""
    there, back = tmp_path / f"there-{name}", tmp_path / f"back-{name}"
    said = convert(MOVED / name, there, "--to", target, "--device", "cuda:0")
    assert "comparison on cuda:0" in json.dumps(said)  # was not run, and that is said
    load = torch.jit.load if target == "torchscript" else torch.export.load
    with pytest.raises((AssertionError, NotImplementedError)):
        load(there)
    convert(there, back, "--to", target, "--device", "cpu", "--require", "cpu")
    x, y = recorded("traced" if target == "torchscript" else "exported")
    loaded = load(back)
    run = loaded if target == "torchscript" else loaded.module()
    torch.testing.assert_close(run(x), y)  # another processor rounds otherwise


def test_a_fault_in_a_moved_program_is_caught(tmp_path, monkeypatch):
    """A program that moving has changed computes something else, and convert fails."""
    import converter
    from converter.devices.torch import script as script
    from converter.options import Options
    from formats.containers.zip.rewriting import Content
    from formats.errors import VerificationError

    changes = script.Program.changes
    calls = []

    def faulty(program):
        found = changes(program)
        name = next(n for n in program.archive.members if n.endswith("code/__torch__.py"))
        if not calls and name in found.replaced:
            calls.append(name)
            code = found.replaced[name].bytes()
            assert b"torch.tanh(y)" in code
            found.replaced[name] = Content.of(code.replace(b"torch.tanh(y)", b"torch.sin(y)"))
        return found

    monkeypatch.setattr(script.Program, "changes", faulty)
    out = tmp_path / "out.pt"
    with pytest.raises(VerificationError, match="does not compute what the source does"):
        converter.convert(
            MOVED / "traced-cuda0.pt", to="torchscript", out=out, options=Options(device="cpu")
        )
    assert calls
    assert not [*tmp_path.iterdir()]
