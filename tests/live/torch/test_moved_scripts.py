"""TorchScript archives that are moved, held against torch: its writer, its loader, its results."""

import json

import pytest
from moved_programs import move_script as move
from moved_programs import records
from repository import ROOT

from converter import convert
from converter.options import Options
from formats.core.bundle import TensorSpec

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("warm_torch"),
]

MOVED = ROOT / "fixtures/torch_moved"
EXPECTED = json.loads((MOVED / "expected.json").read_text())


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(3)
        self.conv = torch.nn.Conv2d(3, 5, 3, padding=1)

    def forward(self, x):
        noise = torch.zeros(1, device=x.device)
        return torch.relu(self.conv(self.norm(x))) + noise.to("cpu")


class Model(torch.nn.Module):
    """A trace of it names devices in calls of every kind; so does its script."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block()])
        self.lstm = torch.nn.LSTM(5, 4, batch_first=True)
        self.tied = torch.nn.Linear(4, 4)
        self.again = self.tied
        self.place = torch.device("cpu")
        self.register_buffer("steps", torch.arange(6).reshape(2, 3).t())

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        y, _ = self.lstm(x.flatten(2).transpose(1, 2))
        ones = torch.ones(y.shape, device=self.place) * 3
        steps = self.steps.to(torch.device("cpu"), torch.float32).sum()
        like = torch.full_like(y, 0.5) + torch.tensor([1.0, 2.0, 3.0, 4.0])
        return self.again(torch.tanh(y.cpu() + ones)) + steps + like


class Scripted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = torch.jit.trace(Block().eval(), torch.randn(1, 3, 4, 4))
        self.place = torch.device("cpu")

    def forward(self, x):
        y = self.model(x).cpu()
        if y.device == torch.device("cpu"):
            y = y * 2
        print('torch.device("cuda:0") is only text')
        z = torch.zeros(5, 1, 1, device=torch.device("cpu")).to(self.place)
        return y + z


def programs():
    torch.manual_seed(4)
    model = Model().eval()
    for p in [*model.parameters(), model.blocks[0].norm.running_mean]:
        p.data.normal_()
    x = torch.randn(2, 3, 4, 5)
    yield "traced", torch.jit.trace(model, x), x
    yield "scripted", torch.jit.script(Scripted().eval()), x


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1", "cuda", "xpu:0"])
def test_there_and_back_computes_the_same(device, tmp_path):
    for name, program, x in programs():
        source = tmp_path / f"{name}.pt"
        program.save(source)
        there = move(source, device, tmp_path, "there.pt")
        named = b"".join(records(there).values())
        assert device.encode() in named
        with pytest.raises((RuntimeError, NotImplementedError)):
            torch.jit.load(there)(x)
        back = move(there, "cpu", tmp_path, "back.pt")
        expected = program(x)
        assert torch.isfinite(expected).all()
        assert expected.std() > 0
        assert torch.equal(torch.jit.load(back)(x), expected), name
        assert records(back) == records(source) or name == "scripted"  # x.cpu() becomes x.to("cpu")


def test_the_archive_is_the_one_that_torch_s_writer_writes(tmp_path):
    """Places, padding, headers and the hash of the archive: the whole file, byte for byte."""
    for name, device in (("traced-cuda0.pt", "cpu"), ("traced-cuda0.pt", "cuda:1")):
        made = move(MOVED / name, device, tmp_path, name)
        before = made.read_bytes()
        written = records(made)
        (tmp_path / "torch").mkdir(exist_ok=True)
        writer = torch._C.PyTorchFileWriter(str(tmp_path / "torch" / name))
        for record, data in written.items():
            if record not in ("version", "byteorder", ".data/serialization_id"):
                writer.write_record(record, data, len(data))
        writer.write_end_of_file()
        assert (tmp_path / "torch" / name).read_bytes() == before


def test_before_and_after(tmp_path):
    x, y = (torch.tensor(EXPECTED["traced"][k]) for k in "xy")
    source = MOVED / "traced-cuda0.pt"
    with pytest.raises(NotImplementedError, match=r"with arguments from the 'CUDA' backend"):
        torch.jit.load(source)
    half = torch.jit.load(source, map_location="cpu")  # weights come over, literals do not
    with pytest.raises(NotImplementedError, match=r'device=torch\.device\("cuda:0"\)'):
        half(x)
    assert torch.equal(torch.jit.load(move(source, "cpu", tmp_path))(x), y)


def test_error_messages_point_at_the_right_places(tmp_path):
    """The source map is used: the message shows the call in the text, and the author's line."""
    source = MOVED / "scripted-cuda0.pt"
    moved = torch.jit.load(move(source, "cpu", tmp_path))
    with pytest.raises(RuntimeError) as caught:
        moved(torch.randn(3))
    text = str(caught.value)
    shown = text.splitlines()
    at = next(i for i, line in enumerate(shown) if "<--- HERE" in line)
    first, end = shown[at].index("~"), shown[at].rindex("~") + 1
    assert shown[at - 1][first:end] == "torch.add"
    assert "torch.arange(4, device=self.device).to(x.dtype) + x" in text


def test_scripted(tmp_path):
    x, y = (torch.tensor(EXPECTED["scripted"][k]) for k in "xy")
    for name in ("scripted-cuda0.pt", "scripted-cuda1.pt", "scripted-cpu.pt"):
        program = torch.jit.load(move(MOVED / name, "cpu", tmp_path))
        assert torch.equal(program(x), y)  # the branch of "where it is" is taken
        assert program.place == torch.device("cpu")


def test_mobile(tmp_path):
    from torch.jit.mobile import _load_for_lite_interpreter as load

    x = torch.tensor(EXPECTED["traced"]["x"])
    y = torch.tensor(EXPECTED["traced"]["y"])
    there = move(MOVED / "lite-cpu.ptl", "cuda:0", tmp_path, "there.ptl")
    with pytest.raises((RuntimeError, NotImplementedError)):
        load(str(there))(x)
    back = move(there, "cpu", tmp_path, "back.ptl")
    assert torch.equal(load(str(back))(x), y)


def test_files_that_were_added_stay(tmp_path):
    source = tmp_path / "source.pt"
    extra = {"words.txt": b"cuda:0\n", "b.json": b'{"device": "cuda:0"}'}
    program = torch.jit.load(MOVED / "traced-cpu.pt")
    torch.jit.save(program, source, _extra_files=dict(extra))
    made = dict.fromkeys(extra, "")
    torch.jit.load(move(move(source, "cuda:0", tmp_path), "cpu", tmp_path, "b.pt"),
                   _extra_files=made)  # fmt: skip
    assert made == extra


def test_inputs_that_are_not_recorded_are_asked_for(tmp_path):
    out = tmp_path / "out.pt"
    source = MOVED / "scripted-cuda0.pt"
    result = convert(source, to="torchscript", out=out, options=Options(device="cpu"))
    assert result.verification.graph.status == "not run"
    assert (
        "does not record its inputs (x): inputs=['NAME:DTYPE:SIZES']"
        in result.verification.graph.reason
    )


def test_a_program_that_nobody_runs_says_why(tmp_path):
    """Inputs that it does not take: the comparison is not run, and nothing is claimed."""
    wrong = (TensorSpec("x", "float32", (7, 7)),)
    source, out = MOVED / "traced-cuda0.pt", tmp_path / "out.pt"
    options = Options(device="cpu", inputs=wrong)
    result = convert(source, to="torchscript", out=out, options=options)
    assert result.verification.graph.status == "not run"
    assert "7x7: RuntimeError" in result.verification.graph.reason
