"""Programs that torch exports from the graphs of other sources: their results and tensors."""

import numpy as np
import pytest
from repository import ROOT

from converter import Options, convert, read
from converter.options import parse_inputs
from converter.verification.verify import verify
from formats.errors import UnsupportedError

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("warm_torch")]
IMAGE = parse_inputs(["x:float32:batch,3,height,width"])


class Net(torch.nn.Module):
    """A residual network with two outputs, whose second depends on the size of the image."""

    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
        )
        self.down = torch.nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=4)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        y = self.stem(x)
        y = torch.nn.functional.interpolate(self.down(y), scale_factor=2.0) + y[:, :, :, :]
        return self.head(y.mean((2, 3))).softmax(-1), y.flatten(2).amax(-1)


class Tagger(torch.nn.Module):
    """Its graph branches, and has an LSTM."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(11, 6)
        self.rnn = torch.nn.LSTM(6, 4, batch_first=True, bidirectional=True)

    def forward(self, tokens):
        found, _ = self.rnn(self.table(tokens))
        return found.cumsum(1) if bool((tokens.sum() > 50).item()) else found * 2


def archived(module, path, *examples):
    torch.manual_seed(4)
    module = module.eval()
    for tensor in module.state_dict().values():
        if tensor.is_floating_point() and tensor.ndim < 2:
            tensor.uniform_(0.5, 1.5)
    made = torch.jit.trace(module, examples) if examples else torch.jit.script(module)
    made.save(path)
    return made


def test_a_traced_archive_becomes_a_program(tmp_path):
    source, out = tmp_path / "net.pt", tmp_path / "net.pt2"
    script = archived(Net(), source, torch.rand(2, 3, 8, 8))
    result = convert(source, to="pt2", out=out, options=Options(device="cpu", inputs=IMAGE))
    assert (result.verification.level, result.verification.weights.tensors) == ("cpu", 10)
    program = torch.export.load(out)
    assert set(program.state_dict) >= {"stem.0.weight", "down.weight", "head.bias"}
    for shape in ((1, 3, 8, 8), (4, 3, 12, 10)):
        x = torch.randn(shape)
        found, wanted = program.module()(x), script(x)
        assert isinstance(found, tuple)
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    again = verify(source, out, options=Options(device="cpu", inputs=IMAGE))
    (report,) = again.graphs.values()
    assert report.status == "passed"


def test_a_script_with_a_branch(tmp_path):
    source, out = tmp_path / "tagger.pt", tmp_path / "tagger.pt2"
    script = archived(Tagger(), source)
    options = Options(device="cpu", inputs=parse_inputs(["tokens:int64:batch,length"]))
    result = convert(source, to="pt2", out=out, options=options)
    assert result.verification.level == "cpu"
    program = torch.export.load(out)
    for high in (2, 11):
        tokens = torch.randint(high - 1, high, (3, 7))
        torch.testing.assert_close(program.module()(tokens), script(tokens), rtol=1e-4, atol=1e-5)


def test_a_program_for_a_gpu_names_it_everywhere(tmp_path):
    source, out = tmp_path / "net.pt", tmp_path / "net.pt2"
    archived(Net(), source, torch.rand(2, 3, 8, 8))
    options = Options(inputs=IMAGE, device="cuda:0", verify="weights")
    assert convert(source, to="pt2", out=out, options=options).verification.weights.tensors == 10
    with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|cuda"):
        torch.export.load(out)
    back = tmp_path / "back.pt2"
    convert(out, to="pt2", out=back, options=Options(device="cpu", verify="weights"))
    assert torch.export.load(back).module()(torch.rand(2, 3, 8, 8))[0].shape == (2, 5)


LOOPS = {
    "counted": """g (float[n, 3] x, float[3] w) => (float[3] last, float[n, 3] rows) {
        count = Shape <start = 0, end = 1> (x)
        turns = Squeeze(count)
        last, rows = Loop <body = step (int64 i, bool go, float[3] s)
                                => (bool going, float[3] next, float[3] row) {
            going = Identity(go)
            at = Gather(x, i)
            product = Mul(s, w)
            next = Add(product, at)
            weights = Constant <value = float[3] {0.5, 2.0, 1.5}> ()
            row = Sub(next, weights)
        }> (turns, , w)
    }""",
    "until": """g (float[n, 3] x, float[3] w) => (float[3] last) {
        limit = ReduceMax <keepdims = 0> (x)
        yes = Constant <value = bool {1}> ()
        last = Loop <body = step (int64 i, bool go, float[3] s) => (bool going, float[3] next) {
            step = Exp(w)
            next = Add(s, step)
            total = ReduceSum <keepdims = 0> (next)
            going = Less(total, limit)
        }> ("", yes, w)
    }""",
    "scanned": """g (float[n, 3] x, float[3] w) => (float[3] last, float[n, 3] rows) {
        last, rows = Scan <num_scan_inputs = 1, scan_input_directions = [1],
                           scan_output_directions = [1],
                           body = step (float[3] s, float[3] at) => (float[3] next, float[3] row) {
            product = Mul(s, w)
            next = Add(product, at)
            row = Identity(next)
        }> (w, x)
    }""",
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_any_length(tmp_path, name):
    import onnx
    import onnxruntime

    source, out = tmp_path / "loop.onnx", tmp_path / "loop.pt2"
    onnx.save(
        onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 20]> {LOOPS[name]}'), source
    )
    result = convert(source, to="pt2", out=out, options=Options(device="cpu"))
    assert result.verification.level == "cpu"
    program = torch.export.load(out)
    session = onnxruntime.InferenceSession(source)
    w = np.array([0.5, 0.25, 1.5], np.float32)
    for n in (1, 7, 90):
        x = np.random.default_rng(n).uniform(-2, 40, (n, 3)).astype(np.float32)
        found = program.module()(torch.from_numpy(x), torch.from_numpy(w))
        found = found.values() if isinstance(found, dict) else (found,)
        for ours, theirs in zip(found, session.run(None, {"x": x, "w": w}), strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-4)


@pytest.mark.parametrize("name", ["image", "sequence", "pairs"])
def test_a_keras_file_becomes_a_program(tmp_path, name):
    source, out, graph = ROOT / f"fixtures/verify/{name}.keras", tmp_path / "m.pt2", tmp_path / "g"
    convert(source, to="pt2", out=out, options=Options(device="cpu", verify="weights"))
    result = convert(source, to="portable", out=graph, options=Options(verify="weights"))
    assert torch.export.load(out).state_dict
    import onnxruntime

    session = onnxruntime.InferenceSession(graph / "model.onnx")
    rng = np.random.default_rng(3)
    given = {
        i.name: rng.uniform(0, 1, [n if isinstance(n, int) else 4 for n in i.shape]).astype(
            {"tensor(float)": "f4", "tensor(int32)": "i4", "tensor(int64)": "i8"}[i.type]
        )
        for i in session.get_inputs()
    }
    found = torch.export.load(out).module()(*map(torch.from_numpy, given.values()))
    found = found.values() if isinstance(found, dict) else (found,)
    for ours, theirs in zip(found, session.run(None, given), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-3, atol=1e-5)
    assert result.bundle.topology is not None


def test_what_torch_has_no_words_for_is_refused(tmp_path):
    import onnx

    source, out = tmp_path / "strings.onnx", tmp_path / "out.pt2"
    text = """<ir_version: 9, opset_import: ["": 20]>
        g (string[n] x) => (string[n] y) { y = StringConcat(x, x) }"""
    onnx.save(onnx.parser.parse_model(text), source)
    with pytest.raises(UnsupportedError, match="input 'x' of dtype"):
        convert(source, to="pt2", out=out, options=Options(device="cpu"))
    text = """<ir_version: 9, opset_import: ["": 20]>
        g (float[n] x) => (float[m] y) { y = Bernoulli(x) z = MaxRoiPool(x, x) }"""
    onnx.save(onnx.parser.parse_model(text), source)
    with pytest.raises(UnsupportedError, match="not supported as an exported program"):
        convert(source, to="pt2", out=out, options=Options(device="cpu"))
    assert not out.exists()
    assert [p.name for p in tmp_path.iterdir()] == [source.name]


def test_the_topology_of_the_program_is_read_back(tmp_path):
    source, out = tmp_path / "net.pt", tmp_path / "net.pt2"
    archived(Net(), source, torch.rand(2, 3, 8, 8))
    convert(
        source, to="pt2", out=out, options=Options(device="cpu", inputs=IMAGE, verify="weights")
    )
    again = read(out)
    assert again.topology.kind == "exported_program"
    assert "/" not in "".join(again.weights)
