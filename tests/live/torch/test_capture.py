"""What torch exports, beside torch itself: every model of the zoo in every form, and the odd ones.

One process has torch imported; each export is a fork of it.
"""

import sys

import numpy as np
import pytest
from repository import FIXTURES, SUPPORT

import converter
from converter.capture.capture_graph import Captured, CaptureRequest, capture_graphs
from converter.child.process import TORCH_PYTHON_VARIABLE
from converter.child.trust import parse_trust
from converter.lower import lower
from converter.lower.graph import Weight
from converter.options import Arch, Comparison, Options
from converter.write import graph_files
from formats.core.bundle import TensorSpec
from formats.errors import SafetyError, UnsupportedError, UsageError

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
import torch_programs as programs  # noqa: E402
import torch_zoo as zoo  # noqa: E402
from tensorflow_server import stand_in  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
TRUST = parse_trust([
    f"torch_zoo={SUPPORT / 'torch_zoo.py'}", f"torch_programs={SUPPORT / 'torch_programs.py'}",
])  # fmt: skip
MOVED = FIXTURES / "torch_moved"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with stand_in(sys.executable, tmp_path_factory.mktemp("s"), "exporter") as path:
        yield path


@pytest.fixture(autouse=True)
def warm(server, monkeypatch):
    monkeypatch.setenv(TORCH_PYTHON_VARIABLE, str(server))


@pytest.fixture(scope="module")
def animals():
    return {name: zoo.build(name) for name in zoo.ZOO}


def spec(text):
    name, dtype, shape = text.split(":")
    sizes = tuple(int(n) if n.isdigit() else n for n in shape.split(",") if n)
    return TensorSpec(name, dtype, sizes)


def captured(source, *inputs, **more):
    request = CaptureRequest(inputs=tuple(map(spec, inputs)), trust=TRUST, **more)
    return capture_graphs(source, converter.read(source), request)


def lower_source(source, *inputs):
    """Return what lowering makes of a program, without torch."""
    bundle = converter.read(source)
    return Captured(bundle, (lower(bundle, inputs=tuple(map(spec, inputs))),))


def session(made, folder):
    folder.mkdir(exist_ok=True)
    for _ in graph_files.write_self_contained(made.graphs[0], made.bundle, folder, sync=False):
        pass
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(folder / "model.onnx", options)


def agree(made, module, folder, *cases):
    """Compare with torch on some cases; return the session."""
    runtime = session(made, folder)
    for case in cases:
        feeds = {k: v.numpy() for k, v in case.items()}
        found = runtime.run(None, feeds)
        with torch.no_grad():
            expected = flat(module(**case))
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other.numpy(), rtol=1e-4, atol=1e-5)
            assert one.dtype == other.numpy().dtype
    return runtime


def flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    values = value.values() if isinstance(value, dict) else value
    return [t for v in values if v is not None for t in flat(v)]


def form_path(folder, form):
    return folder / f"m.{'pt2' if form == 'pt2' else 'pt'}"


def of_zoo(name, form, folder, animals, exporter):
    animal = zoo.ZOO[name]
    source = zoo.save(name, form, form_path(folder, form), animals[name])
    arch = Arch(animal.factory) if form == "state_dict" else None
    inputs = [] if form == "pt2" else [animal.option]
    made = captured(source, *inputs, arch=arch, exporter=exporter)
    cases = [{animal.input: animal.draw(n)} for n in (1, 3)]
    runtime = agree(made, animals[name], folder / "out", *cases)
    assert [i.name for i in runtime.get_inputs()] == [animal.input]
    assert [o.name for o in runtime.get_outputs()] == ["output"]
    axis = runtime.get_inputs()[0].shape[0]
    assert isinstance(axis, str)
    assert runtime.get_outputs()[0].shape[0] == axis
    assert form == "pt2" or axis == "batch"
    return source, made


# What is lowered without torch in every form (test_torch_zoo_live), torch exports in all for two.
@pytest.mark.parametrize(
    ("name", "form"),
    [
        (name, form)
        for name in zoo.ZOO
        for form in zoo.FORMS
        if name in ("resnet", "tagger") or form in ("module", "state_dict")
    ],
)
def test_zoo(name, form, tmp_path, animals):
    source, made = of_zoo(name, form, tmp_path, animals, "auto")
    assert made.graphs[0].exporter in (f"torch.{e} {torch.__version__}" for e in ("export", "jit"))
    before = converter.read(source).weights
    for called, tensor in before.items():
        assert made.bundle.weights[called].tobytes() == tensor.tobytes()
    named = {w.tensor for w in made.graphs[0].initializers.values() if isinstance(w, Weight)}
    large = {n for n, t in before.items() if n in named and t.nbytes > 1024}
    assert large  # the source's own are what the graph names
    mine = [n for n in made.bundle.weights if n not in before]
    assert all(n.startswith("graph.") for n in mine)
    if name not in ("tagger", "swin"):  # LSTM's are put in another order, masks are folded
        assert not mine
        assert "exporter's own" not in " ".join(made.graphs[0].notes)


@pytest.mark.parametrize("form", ["trace", "module"])
@pytest.mark.parametrize("name", ["mobilenet", "vit", "tagger"])
def test_zoo_through_torchscript(name, form, tmp_path, animals):
    if (name, form) == ("vit", "trace"):
        pytest.skip("a trace of nn.MultiheadAttention: torch.jit knows no ranks in it")
    _, made = of_zoo(name, form, tmp_path, animals, "torchscript")
    assert made.graphs[0].exporter == f"torch.jit {torch.__version__}"


@pytest.mark.parametrize("name", ["resnet", "tagger"])
def test_converted_and_verified(name, tmp_path, animals, monkeypatch):
    """The whole road, torch being asked to verify what torch has exported."""
    monkeypatch.delenv(TORCH_PYTHON_VARIABLE)
    source = zoo.save(name, "trace", tmp_path / "m.pt", animals[name])
    options = Options(
        exporter="torchscript", inputs=(spec(zoo.ZOO[name].option),), verify="cpu",
        comparison=Comparison(seed=3),
    )  # fmt: skip
    made = converter.convert(source, to="portable", out=tmp_path / "out", options=options)
    assert made.verification.graph.status == "passed"
    assert (tmp_path / "out" / "model.onnx").stat().st_size < source.stat().st_size


# -- what programs take and yield ------------------------------------------------------------------


def many(n, length=7):
    generator = torch.Generator().manual_seed(n)
    return {
        "ids": torch.randint(0, 11, (n, length), generator=generator),
        "scale": torch.rand(n, 1, 1, generator=generator),
        "mask": torch.rand(n, length, generator=generator) > 0.4,
    }


MANY = ("mask:bool:batch,words", "ids:int64:batch,words", "scale:float32:batch,1,1")


@pytest.mark.parametrize("exporter", ["export", "torchscript"])
def test_dicts_tuples_and_two_dynamic_axes(exporter, tmp_path):
    torch.manual_seed(1)
    model = programs.Many().eval()
    torch.save(model, tmp_path / "m.pt")
    made = captured(tmp_path / "m.pt", *MANY, exporter=exporter)
    runtime = agree(made, model, tmp_path / "out", many(1, 5), many(3, 8))
    assert [i.name for i in runtime.get_inputs()] == ["ids", "scale", "mask"]
    assert [o.name for o in runtime.get_outputs()] == ["hidden", "pooled.0", "pooled.1"]
    assert runtime.get_inputs()[0].shape == ["batch", "words"]
    assert runtime.get_outputs()[0].shape == ["batch", "words", 6]


@pytest.mark.parametrize("exporter", ["native", "export", "torchscript"])
@pytest.mark.parametrize("form", ["module", "script"])
def test_an_input_is_left_away(exporter, form, tmp_path):
    torch.manual_seed(2)
    model = programs.Optional().eval()
    if form == "module":
        torch.save(model, tmp_path / "m.pt")
    else:
        torch.jit.script(model).save(tmp_path / "m.pt")
    inputs = ("x:float32:n,4", "shift:float32:4")
    if exporter == "native" and form == "module":
        pytest.skip("lowering takes no module whose class is the author's own")
    if exporter != "native" and form == "script":
        why = {"export": "takes no TorchScript", "torchscript": r"torch\.jit"}  # inputs by place
        with pytest.raises(UnsupportedError, match=why[exporter]):
            captured(tmp_path / "m.pt", *inputs, exporter=exporter)
        return
    if exporter == "native":
        made = lower_source(tmp_path / "m.pt", *inputs)
    else:
        made = captured(tmp_path / "m.pt", *inputs, exporter=exporter)
    cases = [{"x": torch.randn(n, 4), "shift": torch.randn(4)} for n in (1, 3)]
    agree(made, model, tmp_path / "out", *cases)


def test_a_decision_on_numbers_becomes_a_branch(tmp_path):
    torch.manual_seed(3)
    model = torch.jit.script(programs.Decides().eval())
    model.save(tmp_path / "m.pt")
    made = captured(tmp_path / "m.pt", "x:float32:n,4")
    assert made.graphs[0].exporter.startswith("torch.jit")
    assert made.graphs[0].notes[0].startswith("not exported by torch.export: ")
    assert [n.op_type for n in made.graphs[0].nodes].count("If") == 1
    agree(made, model, tmp_path / "out", {"x": torch.ones(2, 4)}, {"x": -torch.ones(3, 4)})


def test_a_loop_over_a_size_is_unrolled(tmp_path):
    torch.manual_seed(4)
    model = torch.jit.script(programs.Rolls().eval())
    model.save(tmp_path / "m.pt")
    made = lower_source(tmp_path / "m.pt", "x:float32:batch,5,4")
    cases = [{"x": torch.randn(n, 5, 4)} for n in (1, 3)]
    runtime = agree(made, model, tmp_path / "out", *cases)
    assert [o.name for o in runtime.get_outputs()] == ["output_0", "output_1"]


def test_halves_and_integers(tmp_path):
    torch.manual_seed(5)
    model = programs.Buffers().eval()
    torch.jit.trace(model, torch.randn(2, 4)).save(tmp_path / "m.pt")
    made = lower_source(tmp_path / "m.pt", "x:float32:n,4")
    agree(made, model, tmp_path / "out", {"x": torch.randn(3, 4)})
    named = {w.tensor for w in made.graphs[0].initializers.values() if isinstance(w, Weight)}
    assert "weight" in named


def test_fused_attention(tmp_path):
    """Traced where no gradients are wanted: no exporter of torch's knows what is in it then."""
    torch.manual_seed(8)
    model = programs.Encoder().eval()
    with torch.no_grad():
        traced = torch.jit.trace(model, torch.randn(2, 5, 8))
    kinds = {node.kind() for node in traced.inlined_graph.nodes()}
    assert "aten::_transformer_encoder_layer_fwd" in kinds
    assert "aten::_native_multi_head_attention" in kinds
    traced.save(tmp_path / "m.pt")
    made = lower_source(tmp_path / "m.pt", "x:float32:batch,5,8")
    agree(made, model, tmp_path / "out", *({"x": torch.randn(n, 5, 8)} for n in (1, 3)))


def test_a_factory_with_arguments(tmp_path):
    torch.manual_seed(6)
    model = programs.make(4, tall=True).eval()
    state = {f"module.{name}": tensor for name, tensor in model.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "m.pt")
    arch = Arch("torch_programs:make", {"dim": 4, "tall": True})
    made = captured(tmp_path / "m.pt", "input:float32:n,4", arch=arch)
    agree(
        made, lambda **given: model(given["input"]), tmp_path / "out", {"input": torch.randn(3, 4)}
    )
    assert made.graphs[0].trusted.keys() == {"torch_zoo", "torch_programs"}
    with pytest.raises(UsageError, match="of other shapes"):
        captured(tmp_path / "m.pt", "input:float32:n,4", arch=Arch("torch_programs:make"))
    with pytest.raises(UsageError, match=r"the file lacks tensors.*the module has no"):
        captured(tmp_path / "m.pt", "input:float32:n,4", arch=Arch("torch_programs:Many"))


def test_an_example_lies_beside(tmp_path):
    torch.manual_seed(7)
    model = programs.make().eval()
    (tmp_path / "data").mkdir()
    torch.jit.trace(model, torch.randn(2, 4)).save(tmp_path / "data" / "model.pth")
    (tmp_path / "input_example.json").write_text('{"inputs": [[1.5, 2, 3, 4]]}')
    made = captured(tmp_path / "data" / "model.pth")
    agree(
        made, lambda **given: model(given["input"]), tmp_path / "out", {"input": torch.randn(3, 4)}
    )


# -- devices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["traced-cuda0.pt", "exported-cuda0.pt2"])
def test_programs_of_a_gpu(name, tmp_path):
    on_cpu = MOVED / name.replace("cuda0", "cpu")
    load = torch.jit.load if name.endswith(".pt") else (lambda p: torch.export.load(p).module())
    inputs = ["x:float32:n,3"] if name.endswith(".pt") else []
    made = captured(MOVED / name, *inputs)
    agree(made, lambda x: load(str(on_cpu))(x), tmp_path / "out", {"x": torch.randn(3, 3)})


# -- what is asked for, and what is refused --------------------------------------------------------


def refusal(error, source, *inputs, **more):
    with pytest.raises(error) as caught:
        captured(source, *inputs, **more)
    return caught.value


def test_inputs_are_asked_for(tmp_path):
    torch.jit.script(programs.Many()).save(tmp_path / "m.pt")
    found = refusal(UnsupportedError, tmp_path / "m.pt")
    assert "it does not record its inputs" in found.found
    for name in ("ids", "scale", "mask"):
        assert f"'{name}:float32:batch,6'" in found.hint
    torch.jit.script(zoo.Tagger()).save(tmp_path / "t.pt")
    found = refusal(UnsupportedError, tmp_path / "t.pt")
    assert found.hint == "Say them: inputs=['tokens:int64:batch,sequence']"


def test_other_inputs(tmp_path):
    torch.save(programs.make(), tmp_path / "m.pt")
    found = refusal(UsageError, tmp_path / "m.pt", "x:float32:n,4")
    assert (found.found, found.hint) == (
        "it has no input 'x'", "Say them: inputs=['input:float32:batch,4']",
    )  # fmt: skip
    found = refusal(UsageError, tmp_path / "m.pt", "input:float32:batch,7")
    assert "it does not run on them" in found.found


class Box:
    def __init__(self, x: torch.Tensor):
        self.x = x


class Boxed(torch.nn.Module):
    """A program whose result no runtime can return."""

    def forward(self, x: torch.Tensor):
        return Box(x)


def test_what_is_not_lowered_here_is_the_obstacle_though_torch_blames_the_inputs(tmp_path):
    torch.jit.script(Boxed()).save(tmp_path / "m.pt")
    out = tmp_path / "m.onnx"
    with pytest.raises(UnsupportedError, match=r"an output that is an object of class .*Box"):
        converter.convert(tmp_path / "m.pt", to="onnx", out=out, inputs=["x:float32:batch,5"])
    assert not out.exists()


def test_an_unknown_class(tmp_path):
    torch.save(programs.make(), tmp_path / "good.pt")
    torch.save(programs.Many(), tmp_path / "m.pt")
    source = tmp_path / "m.pt"
    with pytest.raises(SafetyError, match=r"torch_programs\.Many.*trust=\['torch_programs"):
        capture_graphs(source, converter.read(source), CaptureRequest())


def test_no_factory(tmp_path):
    torch.save(programs.make().state_dict(), tmp_path / "m.pt")
    found = refusal(UnsupportedError, tmp_path / "m.pt")
    assert "arch=" in found.hint
    found = refusal(UnsupportedError, tmp_path / "m.pt", "x:float32:1,4", arch=Arch("nowhere:make"))
    assert "nowhere" in found.found


def test_what_no_exporter_knows(tmp_path):
    class Fft(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.svd(x)[1]

    torch.jit.trace(Fft(), torch.randn(3, 3)).save(tmp_path / "m.pt")
    found = refusal(UnsupportedError, tmp_path / "m.pt", "x:float32:3,3")
    assert "torch.export: " in found.found
    assert "torch.jit: " in found.found
