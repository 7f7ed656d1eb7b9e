"""torch itself beside onnxruntime, on graphs written by hand: what differs is always found.

One process of torch answers all.
"""

import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from comparing import comparing
from onnx_by_hand import TYPES, value, written
from tensorflow_server import stand_in

import converter
from converter.child.process import TORCH_PYTHON_VARIABLE, Allowance
from converter.child.trust import parse_trust
from converter.cli.app import run
from converter.devices.names import parse_device
from converter.lower.graph import Graph, Spec, Trace
from converter.options import Arch
from converter.verification.graphs import verify_graph
from converter.verification.inputs.draw import Case
from converter.verification.placement import DeviceRequest
from converter.verification.runners import RunSkipped, write_inputs
from converter.verification.sources import keras as sources
from converter.verification.sources.torch import Torch, run_torch
from formats.core.bundle import TensorSpec

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
helper = pytest.importorskip("onnx.helper")
numpy_helper = pytest.importorskip("onnx.numpy_helper")
nn = torch.nn
torch_models = pytest.importorskip("torch_models")
from torch_models import Chain, Counter, Dropped, Heads, Many, Noisy, Scalars, Tokens  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with stand_in(sys.executable, tmp_path_factory.mktemp("torch"), "torch") as path:
        yield path


@pytest.fixture(autouse=True)
def warm(server, monkeypatch):
    monkeypatch.setenv(TORCH_PYTHON_VARIABLE, str(server))


# -- one model in every form, and its faults -----------------------------------------------------


def heads():
    torch.manual_seed(3)
    return Heads().eval()


def given(n=2):
    generator = torch.Generator().manual_seed(n)
    return torch.randn(n, 6, generator=generator), torch.randn(n, 6, generator=generator)


FORMS = ("script", "trace", "pt2", "module", "state_dict")


def saved(form, path):
    model = heads()
    if form == "script":
        torch.jit.script(model).save(str(path))
    elif form == "trace":
        torch.jit.trace(model, given(), check_trace=False).save(str(path))
    elif form == "pt2":
        n = torch.export.Dim("n", min=1, max=64)
        shapes = {"alpha": {0: n}, "zeta": {0: n}}
        torch.export.save(torch.export.export(model, given(), dynamic_shapes=shapes), path)
    elif form == "module":
        torch.save(model, path)
    else:
        torch.save(
            {"epoch": 3, "model": {f"module.{k}": v for k, v in model.state_dict().items()}}, path
        )
    return path


MODELS = parse_trust([f"torch_models={torch_models.__file__}"])


def options_of(form, **more):
    arch = Arch("torch_models:Heads") if form == "state_dict" else None
    return comparing(arch=arch, trust=MODELS, **more)


def converted(path, flipped=False, dtype="float32", change=None, nan=False):
    weights = {k: v.numpy().copy() for k, v in heads().state_dict().items()}
    if change:
        weights[change[0]] = change[1](weights[change[0]])
    far, near = ("near", "far") if flipped else ("far", "near")
    nodes = [
        ("Gemm", "zeta first.weight first.bias", "a", {"transB": 1}), ("Tanh", "a", "b"),
        ("Mul", "b factor", "mixed"), ("Gemm", "alpha second.weight", "c", {"transB": 1}),
        ("Sub", "c mixed", far),
        *([("Add", "mixed lane", "m")] if nan else [("Identity", "mixed", "m")]),
        ("Cast", "m", near, {"to": TYPES[dtype]}),
    ]  # fmt: skip
    if nan:
        weights["lane"] = np.array([0, 0, np.nan, 0], np.float32)
    outputs = [value("far", dtype if flipped else "float32", "n", 4),
               value("near", "float32" if flipped else dtype, "n", 4)]  # fmt: skip
    inputs = [value("alpha", "float32", "n", 6), value("zeta", "float32", "n", 6)]
    return written(path, nodes, inputs, outputs, weights)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    return {f: saved(f, folder / f"{f}.{'pt2' if f == 'pt2' else 'pt'}") for f in FORMS}


@pytest.mark.parametrize("form", FORMS)
def test_a_faithful_graph_passes(artifacts, form, tmp_path):
    source = artifacts[form]
    report = verify_graph(
        source, converter.read(source), converted(tmp_path / "m.onnx"), options=options_of(form)
    )
    assert report.status == "passed", report.reason
    assert (report.source.name, report.source.device) == ("torch", "cpu")
    assert report.source.version == torch.__version__
    assert [c.inputs["zeta"][1] for c in report.cases][:2] == [(1, 6), (3, 6)]
    assert all(m.elements >= 16 and m.max_rel < 1e-5 for m in report.outputs.values())


def one_percent(weight):
    weight.flat[np.argmax(np.abs(weight))] *= 1.01
    return weight


FAULTS = {
    "a weight off by one percent": ({"change": ("first.weight", one_percent)}, "2 of 2 outputs"),
    "swapped outputs": ({"flipped": True}, "differ"),
    "another dtype": ({"dtype": "float64"}, "is float64, not float32"),
    "NaN in one lane": ({"nan": True}, "not finite on one side only"),
    "drift of TF32's size": ({"change": ("factor", lambda f: f * np.float32(1 + 1e-3))}, "differ"),
}


@pytest.mark.parametrize(
    ("form", "fault"),
    [*(("script", f) for f in FAULTS), *zip(FORMS[1:], list(FAULTS), strict=False)],
)
def test_a_planted_fault_is_found(artifacts, form, fault, tmp_path):
    change, complaint = FAULTS[fault]
    source = artifacts[form]
    path = converted(tmp_path / "m.onnx", **change)
    report = verify_graph(source, converter.read(source), path, options=options_of(form))
    assert report.status == "failed"
    assert complaint in report.reason


def test_the_command_says_where_and_exits_with_one(artifacts, tmp_path, capsys):
    good, bad = converted(tmp_path / "good.onnx"), converted(tmp_path / "bad.onnx", nan=True)
    assert run(["verify", str(artifacts["pt2"]), str(good)]) == 0
    capsys.readouterr()
    assert run(["verify", str(artifacts["pt2"]), str(bad)]) == 1
    said = capsys.readouterr().out
    assert "DIFFERS     near" in said
    assert "2]: nan, not" in said


def test_names_of_inputs_go_before_their_order(artifacts, tmp_path):
    path = converted(tmp_path / "m.onnx")
    model = onnx.load(path)
    model.graph.input.reverse()
    onnx.save(model, path)
    for form in ("script", "module", "pt2"):
        source = artifacts[form]
        report = verify_graph(source, converter.read(source), path, options=options_of(form))
        assert report.status == "passed", report.reason


def test_an_input_of_another_dtype_than_the_programs(artifacts, tmp_path):
    path = converted(tmp_path / "m.onnx")
    model = onnx.load(path)
    (zeta,) = (i for i in model.graph.input if i.name == "zeta")
    zeta.CopyFrom(value("zeta", "float64", "n", 6))
    model.graph.node[0].input[0] = "narrow"
    model.graph.node.insert(0, helper.make_node("Cast", ["zeta"], ["narrow"], to=1))
    onnx.save(model, path)
    report = verify_graph(artifacts["pt2"], converter.read(artifacts["pt2"]), path)
    assert (report.status, report.reason) == (
        "failed", "input 'zeta' is float64; the source's is float32",
    )  # fmt: skip


def test_a_graph_of_fewer_inputs(artifacts, tmp_path):
    path = written(
        tmp_path / "m.onnx", [("Identity", "alpha", "y")], [value("alpha", "float32", "n", 6)],
        [value("y", "float32", "n", 6)],
    )  # fmt: skip
    for form in ("pt2", "script", "module"):
        source = artifacts[form]
        report = verify_graph(source, converter.read(source), path, options=options_of(form))
        assert report.status == "not run"
        assert report.is_failing
        assert "the source itself fails on every input that was drawn: torch 2" in report.reason


# -- what a state dict and its factory must share ------------------------------------------------


def test_keys_that_do_not_match_are_listed_both_ways(artifacts, tmp_path):
    source = artifacts["state_dict"]
    options = comparing(arch=Arch("torch_models:Other"), trust=MODELS)
    report = verify_graph(
        source, converter.read(source), converted(tmp_path / "m.onnx"), options=options
    )
    assert report.status == "not run"
    assert "the file lacks tensors in 'model' (2): third.weight, third.bias" in report.reason
    assert "the module has no 2 of the file's: factor, second.weight" in report.reason


@pytest.mark.parametrize(
    ("factory", "arguments", "said"),
    [
        ("nowhere.at_all:Net", {}, "ModuleNotFoundError"),
        ("torch.nn:Nothing", {}, "AttributeError"),
        ("torch.nn:Linear", {"in_features": 3}, "TypeError"),
        ("torch:tensor", {"data": 3}, "makes a Tensor, no torch.nn.Module"),
        ("torch.nn:Linear", {"in_features": 6, "out_features": 4}, "lacks tensors in"),
    ],
)
def test_a_factory_that_does_not_do(artifacts, tmp_path, factory, arguments, said):
    source = artifacts["state_dict"]
    options = comparing(arch=Arch(factory, arguments))
    report = verify_graph(
        source, converter.read(source), converted(tmp_path / "m.onnx"), options=options
    )
    assert report.status == "not run"
    assert said in report.reason


def test_tensors_of_other_shapes_are_named(tmp_path):
    source = tmp_path / "s.pt"
    torch.save(nn.Linear(3, 4).state_dict(), source)
    path = written(tmp_path / "m.onnx", [("Identity", "x", "y")], [value("x", "float32", "n", 3)],
                   [value("y", "float32", "n", 3)])  # fmt: skip
    options = comparing(arch=Arch("torch.nn:Linear", {"in_features": 4, "out_features": 4}))
    report = verify_graph(source, converter.read(source), path, options=options)
    assert "tensors of other shapes (1): weight is [4, 3], not [4, 4]" in report.reason


def test_a_state_dict_in_safetensors(tmp_path):
    torch.manual_seed(0)
    model = nn.Linear(6, 4)
    source, out = tmp_path / "s.pt", tmp_path / "s.safetensors"
    torch.save(model.state_dict(), source)
    converter.convert(source, to="safetensors", out=out)
    weights = {k: v.numpy() for k, v in model.state_dict().items()}
    path = written(
        tmp_path / "m.onnx", [("Gemm", "x weight bias", "y", {"transB": 1})],
        [value("x", "float32", "n", 6)], [value("y", "float32", "n", 4)], weights,
    )  # fmt: skip
    options = comparing(arch=Arch("torch.nn:Linear", {"in_features": 6, "out_features": 4}))
    report = verify_graph(out, converter.read(out), path, options=options)
    assert report.status == "passed", report.reason


def test_a_state_dict_without_a_factory_is_not_run(artifacts, tmp_path):
    source = artifacts["state_dict"]
    report = verify_graph(source, converter.read(source), converted(tmp_path / "m.onnx"))
    assert report.reason == "the source holds no graph"


# -- what a runner must take care of -------------------------------------------------------------


def of_script(tmp_path, model, nodes, inputs, outputs, weights=(), **options):
    source = tmp_path / "s.pt"
    torch.jit.script(model.eval()).save(str(source))
    path = written(tmp_path / "m.onnx", nodes, inputs, outputs, weights)
    return verify_graph(source, converter.read(source), path, options=comparing(**options))


def test_each_case_begins_with_the_state_that_was_saved(tmp_path):
    def report(by):
        return of_script(
            tmp_path, Counter(), [("Add", "x by", "y")], [value("x", "float32", "n", 3)],
            [value("y", "float32", "n", 3)], {"by": np.float32(by)},
        )  # fmt: skip

    assert (found := report(1)).status == "passed", found.reason
    assert "keeps state between runs" in " ".join(found.notes)
    assert report(2).status == "failed"


def test_outputs_that_are_random_are_never_passed(tmp_path):
    spec = value("x", "float32", "n", 3)
    outputs = [value("a", "float32", "n", 3), value("b", "float32", "n", 3)]

    def report(factor):
        nodes = [("Identity", "x", "a"), ("Mul", "x by", "b")]
        return of_script(tmp_path, Noisy(), nodes, [spec], outputs, {"by": np.float32(factor)})

    found = report(2)
    assert (found.status, list(found.outputs)) == ("not run", ["b"])
    assert "'a' of the source itself differs from run to run (aten::rand_like)" in found.reason
    assert report(3).status == "failed"


def test_nothing_is_dropped_by_what_was_saved_in_training(tmp_path):
    source = tmp_path / "s.pt"
    torch.jit.script(Dropped().train()).save(str(source))
    path = written(tmp_path / "m.onnx", [("Add", "x x", "y")], [value("x", "float32", "n", 64)],
                   [value("y", "float32", "n", 64)])  # fmt: skip
    assert verify_graph(source, converter.read(source), path).status == "passed"


def test_what_is_nested_is_flattened_in_its_order(tmp_path):
    torch.jit.script(Many()).save(str(tmp_path / "s.pt"))
    nodes = [
        ("Mul", "x two", "z"), ("Add", "p q", "a"), ("ReduceSum", "x", "s", {"keepdims": 0}),
        ("Sub", "x one", "l"), ("Shape", "x", "n1", {"start": 1}), ("Squeeze", "n1", "n"),
    ]  # fmt: skip
    inputs = [value(n, "float32", "n", 3) for n in ("x", "p", "q")]
    outputs = [value("z", "float32", "n", 3), value("a", "float32", "n", 3), value("s", "float32"),
               value("l", "float32", "n", 3), value("n", "int64")]  # fmt: skip
    weights = {"two": np.float32(2), "one": np.float32(1)}
    path = written(tmp_path / "m.onnx", nodes, inputs, outputs, weights)
    report = verify_graph(tmp_path / "s.pt", converter.read(tmp_path / "s.pt"), path)
    assert report.status == "passed", report.reason
    path = written(
        tmp_path / "m.onnx", nodes, inputs, [outputs[1], outputs[0], *outputs[2:]], weights
    )
    assert (
        verify_graph(tmp_path / "s.pt", converter.read(tmp_path / "s.pt"), path).status == "failed"
    )


def test_numbers_and_options_of_a_script(tmp_path):
    inputs = [value("x", "float32", "b", 3), value("n", "int64"), value("scale", "float64")]
    nodes = [("Cast", "scale", "s", {"to": 1}), ("Cast", "n", "m", {"to": 1}),
             ("Mul", "x s", "a"), ("Add", "a m", "y")]  # fmt: skip
    report = of_script(tmp_path, Scalars(), nodes, inputs, [value("y", "float32", "b", 3)])
    assert report.status == "passed", report.reason


def test_tokens_are_of_the_table(tmp_path):
    torch.manual_seed(0)
    model = Tokens()
    weights = {"table": model.table.weight.detach().numpy()}
    report = of_script(
        tmp_path, model, [("Gather", "table ids", "y")], [value("ids", "int64", "n", "t")],
        [value("y", "float32", "n", "t", 3)], weights,
    )  # fmt: skip
    assert report.status == "passed", report.reason
    assert not report.skipped
    assert all(name.find(",") < 0 for name in (c.name for c in report.cases))  # no other numbers


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floating_point_numbers(tmp_path, dtype):
    torch.manual_seed(0)
    model = nn.Linear(6, 4).to(getattr(torch, dtype))
    source = tmp_path / "s.pt"
    torch.jit.script(model).save(str(source))
    as_stored = {k: v.float().numpy() for k, v in model.state_dict().items()}
    kind = TYPES[dtype]
    made = [helper.make_tensor(k, kind, v.shape, v.flatten()) for k, v in as_stored.items()]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "bias"], ["y"]),
    ]
    nodes.insert(0, helper.make_node("Transpose", ["weight"], ["w"]))
    if dtype == "bfloat16":
        nodes = [
            *(helper.make_node("Cast", [n], [f"{n}32"], to=1) for n in ("x", "weight", "bias")),
            helper.make_node("Gemm", ["x32", "weight32", "bias32"], ["y32"], transB=1),
            helper.make_node("Cast", ["y32"], ["y"], to=16),
        ]
    graph = helper.make_graph(
        nodes, "g", [value("x", dtype, "n", 6)], [value("y", dtype, "n", 4)], made
    )
    path = tmp_path / "m.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path
    )
    report = verify_graph(source, converter.read(source), path)
    assert report.status == "passed", report.reason
    assert report.outputs["y"].dtype == dtype


def test_what_torch_cannot_do_is_not_run(tmp_path):
    class Fails(nn.Module):
        def forward(self, x):
            assert x.shape[1] == 99, "an odd size"
            return x

    report = of_script(tmp_path, Fails(), [("Identity", "x", "y")], [value("x", "float32", "n", 3)],
                       [value("y", "float32", "n", 3)])  # fmt: skip
    assert report.status == "not run"
    assert "an odd size" in report.reason


# -- where it differs ----------------------------------------------------------------------------


def traced(*rows):
    """Return a graph that knows which layer's output each value is."""
    specs = {value: Spec("float32", ("n", 4)) for _, value in rows} | {
        "x": Spec("float32", ("n", 4))
    }
    graph = Graph(name="g", opset=18)
    graph.specs.update(specs)
    graph.inputs.append("x")
    graph.traces.extend(Trace(layer, "Linear", 0, value, (0, 1)) for layer, value in rows)
    return graph


@pytest.mark.parametrize("form", ["module", "pt2"])
@pytest.mark.parametrize("wrong", ["one", "two"])
def test_the_first_difference_is_named(tmp_path, monkeypatch, form, wrong):
    torch.manual_seed(1)
    model = Chain().eval()
    if form == "module":
        source = tmp_path / "m.pt"
        torch.save(model, source)
        layers = {"one": "one", "two": "two"}
    else:
        source = tmp_path / "m.pt2"
        program = torch.export.export(
            model, (torch.randn(2, 4),), dynamic_shapes={"x": {0: torch.export.Dim.AUTO}}
        )
        torch.export.save(program, source)
        names = [n.name for n in program.graph.nodes if "linear" in str(n.target)]
        layers = dict(zip(("one", "two"), names, strict=True))
    weights = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    weights[f"{wrong}.weight"][0, 0] += 1
    nodes = [
        ("Gemm", "x one.weight one.bias", "a", {"transB": 1}), ("Relu", "a", "b"),
        ("Gemm", "b two.weight two.bias", "c", {"transB": 1}), ("Identity", "c", "y"),
    ]  # fmt: skip
    path = written(tmp_path / "m.onnx", nodes, [value("x", "float32", "n", 4)],
                   [value("y", "float32", "n", 4)], weights)  # fmt: skip
    graph = traced((layers["one"], "a"), (layers["two"], "c"))
    monkeypatch.setattr(sources, "_lower_source", lambda *_, **__: graph)
    options = comparing(trust=MODELS)
    report = verify_graph(source, converter.read(source), path, options=options)
    assert report.status == "failed"
    assert report.first_difference.layer == layers[wrong]


def test_the_first_difference_of_what_we_lower_is_named(artifacts, tmp_path):
    source, path = artifacts["pt2"], tmp_path / "m.onnx"
    bundle = converter.read(source)
    converter.convert(source, to="onnx", out=path)
    assert verify_graph(source, bundle, path).status == "passed"
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.shape in ((4, 6), (6, 4)):  # the last of them is that of the second layer
            wrong = tensor
    changed = one_percent(numpy_helper.to_array(wrong).copy())
    wrong.CopyFrom(numpy_helper.from_array(changed, wrong.name))
    onnx.save(model, path)
    report = verify_graph(source, bundle, path)
    assert report.status == "failed"
    assert str(report.first_difference).startswith("'linear_1' (aten.linear in second)")
    assert report.first_difference.last_equal == "mul"


@pytest.mark.parametrize("wrap", [lambda m: m, nn.DataParallel, lambda m: {"net": m, "epoch": 1}])
def test_the_first_difference_of_a_pickle_is_named(tmp_path, wrap):
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(6, 5), nn.ReLU())
    model = nn.Sequential(inner, nn.Linear(5, 7), nn.ReLU(inplace=True), nn.Linear(7, 3)).eval()
    source, path = tmp_path / "m.pt", tmp_path / "m.onnx"
    torch.save(wrap(model), source)
    options = converter.Options(inputs=(TensorSpec("input", "float32", ("n", 6)),))
    converter.convert(source, to="onnx", out=path, options=options)
    bundle = converter.read(source)
    assert verify_graph(source, bundle, path).status == "passed"
    file = onnx.load(path)
    (wrong,) = (t for t in file.graph.initializer if sorted(t.dims) == [5, 7])
    changed = one_percent(numpy_helper.to_array(wrong).copy())
    wrong.CopyFrom(numpy_helper.from_array(changed, wrong.name))
    onnx.save(file, path)
    report = verify_graph(source, bundle, path)
    assert str(report.first_difference) == "'1' (Linear)"
    assert report.first_difference.last_equal == "0.1"


# -- programs that name a device -----------------------------------------------------------------


class Placed(nn.Module):
    def forward(self, x):
        return x + torch.ones(3, device=torch.device("cpu"))


def baked(tmp_path, kind):
    """Return a program that names cuda:1, in its code or its graph."""
    if kind == "pt2":
        source, member = tmp_path / "m.pt2", "models/model.json"
        torch.export.save(torch.export.export(Placed(), (torch.ones(2, 3),)), source)
        before, after = b'"type": "cpu", "index": null', b'"type": "cuda", "index": 1'
    else:
        source, member = tmp_path / "m.pt", Path(__file__).name
        torch.jit.trace(Placed(), torch.ones(2, 3)).save(str(source))
        before, after = b'torch.device("cpu")', b'torch.device("cuda:1")'
    path = source.with_name(f"baked{source.suffix}")
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            new.writestr(
                info.filename,
                data.replace(before, after) if info.filename.endswith(member) else data,
            )
    return path


@pytest.mark.parametrize("kind", ["script", "pt2"])
def test_a_program_that_names_a_device_is_run_moved(tmp_path, kind):
    source = baked(tmp_path, kind)
    path = written(
        tmp_path / "m.onnx", [("Add", "x one", "y")], [value("x", "float32", 2, 3)],
        [value("y", "float32", 2, 3)], {"one": np.float32(1)},
    )  # fmt: skip
    report = verify_graph(source, converter.read(source), path)
    assert report.status == "passed", report.reason
    assert "the source names cuda:1: it was run moved to cpu" in report.notes
    as_it_is = torch.export.load(source).module() if kind == "pt2" else torch.jit.load(source)
    with pytest.raises(Exception, match=r"CUDA|cuda"):
        as_it_is(torch.ones(2, 3))


# -- where it ran --------------------------------------------------------------------------------


def ran_on(source, form, tmp_path, device):
    specs = [TensorSpec("alpha", "float32", (1, 6)), TensorSpec("zeta", "float32", (1, 6))]
    arrays = tuple(np.ones((1, 6), np.float32) for _ in specs)
    prepared = write_inputs(tmp_path, specs, [[Case("one", arrays)]])
    asked = Torch(source, form, ("float32", "float32"))
    return run_torch(asked, prepared, Allowance(), on=DeviceRequest(device))


@pytest.mark.parametrize(("name", "form"), [("pt2", "exported_program"), ("script", "torchscript")])
def test_a_device_that_is_not_here(artifacts, tmp_path, name, form):
    found = ran_on(artifacts[name], form, tmp_path, parse_device("mps"))
    assert isinstance(found, RunSkipped)
    assert found.lacks_device
    assert not found.is_missing


@pytest.mark.parametrize(("name", "form"), [("pt2", "exported_program"), ("script", "torchscript")])
def test_where_everything_was(artifacts, tmp_path, name, form):
    found = ran_on(artifacts[name], form, tmp_path, parse_device("cpu"))
    places = found.placement
    assert places.device == "cpu"
    assert places.elsewhere == ()
    assert places.counts["parameter"] == {"cpu": 3}
    assert places.counts["buffer"] == {"cpu": 1}
    assert places.counts["output"] == {"cpu": 2}
    assert places.counts["node"]["cpu"] >= 4  # what each operation returned
    assert places.switches == {"tf32": False, "deterministic": True, "cudnn_benchmark": False}
    assert places.problem(0) == ""


class Rated(nn.Module):
    """A program that a sample rate decides about."""

    def forward(self, x: torch.Tensor, rate: int, mode: str = "mean") -> torch.Tensor:
        y = x[:, :6] if rate == 16000 else x[:, :3]
        return y.mean(-1) if mode == "mean" else y.sum(-1) * rate


@pytest.mark.parametrize("fixed", [("rate=16000",), ("rate=8000", 'mode="sum"')])
def test_a_program_is_compared_with_its_fixed_arguments(fixed, tmp_path):
    path, written = tmp_path / "rated.pt", tmp_path / "rated.onnx"
    torch.jit.script(Rated()).save(path)
    inputs = ("x:float32:batch,9", *fixed)
    done = converter.convert(path, to="onnx", out=written, inputs=inputs, require="cpu")
    assert done.verification.graph.status == "passed"
    assert [i.name for i in onnx.load(written).graph.input] == ["x"]


class Normalised(torch.nn.Module):
    """A normalization whose kernel for channels that come last rounds more than others."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first = torch.nn.Conv2d(2, 8, 1)
        self.norm = torch.nn.GroupNorm(2, 8)
        torch.nn.init.normal_(self.first.weight, 0, 0.3)
        torch.nn.init.constant_(self.first.bias, 2)

    def forward(self, x):
        return self.norm(self.first(x).to(memory_format=torch.channels_last))


@pytest.mark.parametrize("kind", ["pt2", "script"])
@pytest.mark.parametrize("fault", [0.0, 2e-4])
def test_the_rounding_of_torch_itself_explains_no_more_than_it_is(tmp_path, kind, fault):
    model, x = Normalised().eval(), torch.randn(2, 2, 48, 48)
    path = tmp_path / f"m.{kind}"
    if kind == "pt2":
        batch = {0: torch.export.Dim("batch")}
        torch.export.save(torch.export.export(model, (x,), dynamic_shapes=(batch,)), path)
    else:
        torch.jit.script(model).save(path)
    inputs = [] if kind == "pt2" else ["x:float32:batch,2,48,48"]
    out = tmp_path / "m.onnx"
    graph = converter.convert(path, to="onnx", out=out, verify="none", inputs=inputs).path
    if fault:
        proto = onnx.load(graph)
        for tensor in proto.graph.initializer:
            if list(tensor.dims)[:2] == [8, 2]:
                weight = onnx.numpy_helper.to_array(tensor).copy()
                weight[0] *= 1 + fault  # of one channel: the scale of all is normalised away
                tensor.CopyFrom(onnx.numpy_helper.from_array(weight, tensor.name))
        onnx.save(proto, graph)
    report = verify_graph(path, converter.read(path), graph)
    (measure,) = report.outputs.values()
    expected = ("failed", "unexplained") if fault else ("passed", "explained")
    assert (report.status, measure.verdict) == expected, report.reason
    assert any("the rounding noise of the source" in n for n in report.notes) is not bool(fault)
