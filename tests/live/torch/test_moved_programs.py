"""Programs that are moved, beside what torch itself writes and computes on the device.

That a program for ``cuda:0`` is written right is known here from torch alone: it traces the same
module on the GPU, and what it writes must be what moving the CPU's trace gives, record by record.
"""

import importlib.util
import json
import sys

import pytest
from moved_programs import records
from repository import ROOT

from converter.devices.torch.programs import move_program
from formats.artifact import Artifact

pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]

MOVED = ROOT / "fixtures" / "torch_moved"
EXPECTED = json.loads((MOVED / "expected.json").read_text())


@pytest.fixture
def made(torch):
    """Return the script that made the fixtures, and its models."""
    spec = importlib.util.spec_from_file_location("make_moved", MOVED / "make.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_moved"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["make_moved"]


def near(torch, found, expected):
    return torch.allclose(found.cpu(), expected.cpu(), rtol=0, atol=1e-5)


def test_a_moved_trace_is_the_one_that_torch_makes_there(torch, made, device, tmp_path):
    torch.manual_seed(3)
    model, x = made.Traced().eval(), torch.randn(2, 3)
    torch.jit.trace(model, x).save(tmp_path / "cpu.pt")
    move_program(Artifact(tmp_path / "cpu.pt"), "torchscript", device, tmp_path / "moved.pt")

    class There(made.Traced):
        """The same module, whose literals are the device's."""

        def forward(self, x):
            y = self.dense(x) + torch.ones(4, device=device)
            z = torch.zeros([4], device=device).to(device)
            table = torch.tensor([1.5, -2.0, 3.25, 0.125], device=device)
            y = torch.tanh(y).to(torch.device(device)) + self.shift
            return y + z + table + x @ self.alike

    there = There().eval()
    there.load_state_dict(model.state_dict())
    there.alike = there.dense.weight.detach().t()
    there = there.to(device)
    expected = torch.jit.trace(there, x.to(device))(x.to(device))
    loaded = torch.jit.load(tmp_path / "moved.pt")
    found = loaded(x.to(device))
    assert str(found.device) == device
    assert {str(t.device) for t in (*loaded.parameters(), *loaded.buffers())} == {device}
    assert near(torch, found, expected)
    assert near(torch, found, model(x))


def test_the_tags_are_those_that_torch_writes(torch, made, device, tmp_path):
    """A module of weights alone is traced on the CPU and there: the same records, but for tags."""
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).eval()
    x = torch.randn(2, 3)
    made.fresh()
    torch.jit.trace(model, x).save(tmp_path / "cpu.pt")
    made.fresh()
    torch.jit.trace(model.to(device), x.to(device)).save(tmp_path / "there.pt")
    move_program(Artifact(tmp_path / "cpu.pt"), "torchscript", device, tmp_path / "moved.pt")
    ours, torch_s = records(tmp_path / "moved.pt"), records(tmp_path / "there.pt")
    for name in ("data.pkl", "constants.pkl"):
        assert ours[name] == torch_s[name], name


@pytest.mark.parametrize("source", ["traced-cpu.pt", "traced-cuda0.pt"])
def test_fixtures_run_there(torch, device, source, tmp_path):
    x, y = (torch.tensor(EXPECTED["traced"][key]) for key in "xy")
    move_program(Artifact(MOVED / source), "torchscript", device, tmp_path / "moved.pt")
    found = torch.jit.load(tmp_path / "moved.pt")(x.to(device))
    assert str(found.device) == device
    assert near(torch, found, y)


@pytest.mark.parametrize("source", ["exported-cpu.pt2", "exported-cuda0.pt2"])
def test_exported_fixtures_run_there(torch, device, source, tmp_path):
    x, y = (torch.tensor(EXPECTED["exported"][key]) for key in "xy")
    move_program(Artifact(MOVED / source), "exported_program", device, tmp_path / "moved.pt2")
    program = torch.export.load(tmp_path / "moved.pt2")
    found = program.module()(x.to(device))
    assert str(found.device) == device
    assert near(torch, found, y)


def test_an_exported_program_is_the_one_that_torch_makes_there(torch, made, device, tmp_path):
    """Weights, tables and values; arguments that the author wrote are the author's."""
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    x = torch.randn(2, 3)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "cpu.pt2")
    there = torch.export.export(model.to(device), (x.to(device),))
    torch.export.save(there, tmp_path / "there.pt2")
    move_program(Artifact(tmp_path / "cpu.pt2"), "exported_program", device, tmp_path / "moved.pt2")
    ours, torch_s = records(tmp_path / "moved.pt2"), records(tmp_path / "there.pt2")
    assert (
        ours["data/weights/model_weights_config.json"]
        == (torch_s["data/weights/model_weights_config.json"])
    )
    graphs = [json.loads(r["models/model.json"])["graph_module"]["graph"] for r in (ours, torch_s)]
    assert graphs[0]["tensor_values"] == graphs[1]["tensor_values"]


def test_what_was_made_there_runs_on_the_cpu(torch, made, device, tmp_path):
    torch.manual_seed(6)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
    x = torch.randn(2, 3)
    expected = model(x)
    made.fresh()
    torch.jit.trace(model.to(device), x.to(device)).save(tmp_path / "there.pt")
    move_program(Artifact(tmp_path / "there.pt"), "torchscript", "cpu", tmp_path / "moved.pt")
    found = torch.jit.load(tmp_path / "moved.pt")(x)
    assert found.device.type == "cpu"
    assert near(torch, found, expected)
