"""Exported programs that are moved, held against torch: its own pass, its writer, its results."""

import json
import zipfile
from unittest import mock

import pytest
from moved_programs import move_export as move
from moved_programs import records
from repository import ROOT

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("warm_torch"),
]

MOVED = ROOT / "fixtures/torch_moved"
EXPECTED = json.loads((MOVED / "expected.json").read_text())["exported"]
OWN = ("version", ".data/version", "byteorder", ".data/serialization_id")


class Model(torch.nn.Module):
    """Its graph names devices in arguments, in values, in branches and in regions."""

    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(3, 4)
        self.conv = torch.nn.Conv1d(1, 2, 3, padding=1)
        self.register_buffer("steps", torch.arange(4, dtype=torch.float64).flip(0))
        self.register_buffer("scratch", torch.ones(4), persistent=False)
        self.table = torch.tensor([1.5, -2.0, 3.25, 0.125])

    def forward(self, x, extra):
        y = self.dense(x) + torch.ones(x.shape[0], 4, device="cpu")
        with torch.no_grad():
            z = torch.zeros([4], device="cpu").to("cpu", torch.float64) + self.steps
        with torch.autocast("cpu", dtype=torch.bfloat16):
            w = self.dense(x)
        y = torch.cond(x.sum() > 0, lambda v: v + torch.ones(4), lambda v: v * 2, (y,))
        c = self.conv(y.unsqueeze(1)).mean(1)
        return {"a": c + z + self.table, "b": (w.float() * extra["s"] + self.scratch,)}


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(9)
    model = Model().eval()
    args = (torch.randn(2, 3), {"s": torch.randn(4)})
    batch = torch.export.Dim("batch")
    shapes = {"x": {0: batch}, "extra": {"s": None}}
    return torch.export.export(model, args, dynamic_shapes=shapes)


@pytest.fixture(scope="module")
def source(program, tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "model.pt2"
    torch.export.save(program, path)
    return path


def flat(value):
    return torch.utils._pytree.tree_leaves(value)


def test_there_and_back_computes_the_same(program, source, tmp_path):
    there = move(source, "cuda:1", tmp_path, "there.pt2")
    with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|cuda"):
        torch.export.load(there)
    back = torch.export.load(move(there, "cpu", tmp_path, "back.pt2"))
    for batch in (1, 5):
        args = (torch.randn(batch, 3), {"s": torch.randn(4)})
        expected, found = program.module()(*args), back.module()(*args)
        assert len(flat(expected)) == 2
        for theirs, ours in zip(flat(expected), flat(found), strict=True):
            assert torch.equal(theirs, ours)
            assert theirs.std() > 0
    assert (tmp_path / "back.pt2").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_the_graph_is_the_one_that_torch_s_own_pass_makes(program, device, source, tmp_path):
    """`move_to_device_pass` moves fake values anywhere; weights cannot follow it here, and stay."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.export.passes import move_to_device_pass

    def fake_alone(self, place, **options):
        if isinstance(self, FakeTensor):
            self.fake_device = torch.device(place)
        return self

    ours = json.loads(records(move(source, device, tmp_path))["models/model.json"])
    with mock.patch.object(torch.Tensor, "to", fake_alone):
        theirs = move_to_device_pass(torch.export.load(source), device)
    torch.export.save(theirs, tmp_path / "torch.pt2")
    made = json.loads(records(tmp_path / "torch.pt2")["models/model.json"])
    graphs = [d["graph_module"]["graph"] for d in (ours, made)]
    assert graphs[0]["tensor_values"] == graphs[1]["tensor_values"]
    arguments = [list(arguments_of(graph)) for graph in graphs]
    assert len(arguments[0]) > 1
    assert arguments[0] == arguments[1]
    # What that pass writes, texts for devices, is moved as well.
    back = records(move(tmp_path / "torch.pt2", "cpu", tmp_path))["models/model.json"]
    assert device in made_of(made)
    assert "cuda" not in made_of(json.loads(back))


def arguments_of(graph):
    """Yield the devices among the arguments of the main graph, which torch's pass moves."""
    for node in graph["nodes"]:
        for given in node["inputs"]:
            if given["name"] == "device":
                (said,) = given["arg"].values()
                place = said if isinstance(said, str) else f"{said['type']}:{said['index']}"
                yield node["target"], place


def made_of(document):
    """Return a document as text, without what it says about the author's source."""
    nodes = document["graph_module"]["graph"]["nodes"]
    return json.dumps([node["inputs"] for node in nodes])


def test_no_device_is_left_anywhere(source, tmp_path):
    made = records(move(source, "cuda:1", tmp_path))
    for name, data in made.items():
        if name.endswith(".json"):
            assert b'"type": "cpu"' not in data, name
            assert b'"as_string": "cpu"' not in data, name


def test_the_archive_is_the_one_that_torch_s_writer_writes(source, tmp_path):
    """Places, padding, headers and the hash of the archive: the whole file, byte for byte."""
    for path in (source, MOVED / "exported-cuda0.pt2"):
        for device in ("cpu", "cuda:12"):
            made = move(path, device, tmp_path, path.name)
            written = records(made)
            folder = tmp_path / f"torch-{device}"
            folder.mkdir(exist_ok=True)
            writer = torch._C.PyTorchFileWriter(str(folder / path.name))
            writer.set_min_version(int(written[".data/version"]))
            for record, data in written.items():
                if record not in OWN:
                    writer.write_record(record, data, len(data))
            writer.write_end_of_file()
            assert (folder / path.name).read_bytes() == made.read_bytes()


def test_before_and_after(tmp_path):
    x, y = (torch.tensor(EXPECTED[k]) for k in "xy")
    path = MOVED / "exported-cuda0.pt2"
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        torch.export.load(path)
    made = torch.export.load(move(path, "cpu", tmp_path))
    torch.testing.assert_close(made.module()(x), y)  # another processor rounds otherwise
    (example,), _ = made.example_inputs
    assert example.device.type == "cpu"
    assert torch.equal(example, x)


def locations(path):
    """Return what torch finds storages tagged with."""
    tags = set()
    torch.load(path, map_location=lambda storage, tag: tags.add(tag) or storage)
    return tags


def test_the_layout_of_torch_2_4(tmp_path):
    """Its own loader is gone from torch; the torch files inside of it are read as ever."""
    path = MOVED.parent / "torch/torch2.4-export.pt2"
    made = move(path, "cuda:1", tmp_path)
    for device, archive in (("cpu", path), ("cuda:1", made)):
        with zipfile.ZipFile(archive) as inside:
            (tmp_path / "state.pt").write_bytes(inside.read("serialized_state_dict.pt"))
        assert locations(tmp_path / "state.pt") == {device}
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on a CUDA device"):
        torch.load(tmp_path / "state.pt")
