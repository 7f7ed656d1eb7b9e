"""torch's programs beside their source where there is no torch: a stand-in answers.

What it answers with numbers are those that torch computed, as they are stored.
"""

import numpy as np
import pytest
from comparing import comparing
from onnx_run import write_onnx
from python_stand_in import write_stand_in
from repository import ROOT

import converter
from converter.child.process import TORCH_PYTHON_VARIABLE, Allowance
from converter.devices.names import parse_device
from converter.extras import describe_install
from converter.lower import lower
from converter.options import Arch
from converter.verification.graphs import verify_graph
from converter.verification.inputs.draw import Case
from converter.verification.placement import DeviceRequest
from converter.verification.runners import RunSkipped, write_inputs
from converter.verification.sources.torch import (
    Torch,
    list_named_devices,
    move_to_device,
    run_torch,
    topology_kind,
)
from formats.core.bundle import TensorSpec

onnx = pytest.importorskip("onnx")
numpy_helper = pytest.importorskip("onnx.numpy_helper")

FIXTURES = ROOT / "fixtures" / "verify_torch"
GIVEN = FIXTURES / "heads.inputs.npz"
SPECS = [TensorSpec(name, "float32", ("n", 6)) for name in ("alpha", "zeta")]
PROGRAMS = {"heads.pt": "torchscript", "heads.pt2": "exported_program"}


def write_lowered(path, name="heads.pt2"):
    bundle = converter.read(FIXTURES / name)
    return write_onnx(path, lower(bundle, inputs=SPECS), bundle.weights)


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Make the other Python one that does this with a question."""

    def install(code):
        python = write_stand_in(tmp_path / "python", "torch", code)
        monkeypatch.setenv(TORCH_PYTHON_VARIABLE, str(python))

    return install


COMPUTES = f"""
import numpy as np
stored = np.load({str(FIXTURES / "heads.outputs.npz")!r})
given = np.load({str(GIVEN)!r})
assert question['dtypes'] == ['float32', 'float32'] and 'device' not in question, question
for i, key in enumerate(question['inputs']):
    assert (np.load(folder / f'in-0-{{i}}.npy') == given[key]).all()
for i, key in enumerate(('far', 'near')):
    np.save(folder / f'out-0-{{i}}.npy', stored[key])
case = {{'chosen': 0, 'dtypes': ['float32'] * 2, 'refused': {{}}}}
facts = dict(status='done', cases=[case], device='cpu', layers=[], unstable=[], random=[],
             inputs=[[n, 'float32', [None, 6]] for n in question['inputs']], notes=[])
"""
ANSWERS = COMPUTES + "answer(**facts)"


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_torch_computed_is_what_the_graph_computes(stand_in, tmp_path, name):
    stand_in(f"assert question['form'] == {PROGRAMS[name]!r}\n{ANSWERS}")
    bundle, model = converter.read(FIXTURES / name), write_lowered(tmp_path / "m.onnx", name)
    report = verify_graph(FIXTURES / name, bundle, model, options=comparing(inputs=GIVEN))
    assert report.status == "passed", report.reason
    assert str(report.source) == "torch 9.9 on cpu"
    assert max(m.max_rel for m in report.outputs.values()) < 1e-6


def edited(path, edit):
    model = onnx.load(path)
    edit(model.graph)
    onnx.save(model, path)


def one_percent(graph):
    tensor = next(i for i in graph.initializer if len(i.dims) == 2)
    array = numpy_helper.to_array(tensor).copy()
    array.flat[np.argmax(np.abs(array))] *= 1.01
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def nan_in_one_lane(graph):
    tensor = next(i for i in graph.initializer if list(i.dims) == [4])
    array = numpy_helper.to_array(tensor).copy()
    array[2] = np.nan
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def swap(graph):
    a, b = (output.name for output in graph.output)
    for made in graph.node:
        swapped = {a: b, b: a}
        made.output[:] = [swapped.get(n, n) for n in made.output]
        made.input[:] = [swapped.get(n, n) for n in made.input]


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (one_percent, "times the rounding noise"),
        (nan_in_one_lane, "not finite on one side only"),
        (swap, "2 of 2 outputs differ"),
    ],
)
def test_planted_faults_are_found(stand_in, tmp_path, edit, complaint):
    stand_in(ANSWERS)
    source, model = FIXTURES / "heads.pt2", write_lowered(tmp_path / "m.onnx")
    edited(model, edit)
    report = verify_graph(source, converter.read(source), model, options=comparing(inputs=GIVEN))
    assert report.status == "failed"
    assert complaint in report.reason


def test_a_state_dict_goes_with_its_factory(stand_in, tmp_path):
    stand_in(
        "assert question['form'] == 'state_dict'\n"
        "assert question['arch'] == {'factory': 'nets:Heads', 'arguments': {'width': 3}}\n"
        f"{ANSWERS}"
    )
    source, model = FIXTURES / "heads.ckpt", write_lowered(tmp_path / "m.onnx")
    bundle = converter.read(source)
    options = comparing(inputs=GIVEN, arch=Arch("nets:Heads", {"width": 3}))
    report = verify_graph(source, bundle, model, options=options)
    assert report.status == "passed", report.reason
    report = verify_graph(source, bundle, model)
    assert (report.status, report.reason) == ("not run", "the source holds no graph")


@pytest.mark.parametrize(
    ("facts", "said", "lacking"),
    [
        ("status='absent', error='no module'", "no torch is installed", True),
        ("status='refused', error='needs os.system'", "would run code or touch files", False),
        ("status='mismatch', error='lacks 2'", "torch 9.9: lacks 2", False),
        ("status='cannot load', error='broken'", "torch 9.9: broken", False),
    ],
)
def test_what_is_not_run_says_why(stand_in, tmp_path, facts, said, lacking):
    stand_in(f"answer({facts})")
    source, model = FIXTURES / "heads.pt", write_lowered(tmp_path / "m.onnx")
    report = verify_graph(source, converter.read(source), model, options=comparing(inputs=GIVEN))
    assert report.status == "not run"
    assert said in report.reason
    assert (report.lacking == describe_install("torch")) == lacking


def test_without_torch_nothing_is_started(monkeypatch, tmp_path):
    monkeypatch.delenv(TORCH_PYTHON_VARIABLE, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "torch" else name)
    source, model = FIXTURES / "heads.pt", write_lowered(tmp_path / "m.onnx")
    report = verify_graph(source, converter.read(source), model)
    assert (report.status, report.lacking) == ("not run", describe_install("torch"))


def test_what_a_source_is_to_torch():
    forms = {name: topology_kind(converter.read(FIXTURES / name), None) for name in PROGRAMS}
    assert forms == PROGRAMS
    checkpoint = converter.read(FIXTURES / "heads.ckpt")
    assert topology_kind(checkpoint, None) == ""
    assert topology_kind(checkpoint, Arch("nets:Heads")) == "state_dict"


def test_values_are_known_by_the_names_that_torch_has_for_them():
    graph = lower(converter.read(FIXTURES / "heads.pt2"))
    traces = {trace.layer: trace for trace in graph.traces}
    assert [*traces] == ["linear", "tanh", "mul", "linear_1", "sub"]
    assert traces["linear"].class_name == "aten.linear in first"
    assert traces["linear_1"].class_name == "aten.linear in second"
    assert traces["tanh"].class_name == "aten.tanh"
    assert all(trace.value in graph.specs for trace in graph.traces)


# -- devices -------------------------------------------------------------------------------------


def source_of(name, form):
    devices = list_named_devices(converter.read(FIXTURES / name))
    return Torch(FIXTURES / name, form, ("float32", "float32"), devices=devices)


def test_a_program_that_names_a_device_is_moved_first(tmp_path):
    assert list_named_devices(converter.read(FIXTURES / "placed.pt")) == {"cuda:1"}
    found, notes = move_to_device(source_of("placed.pt", "torchscript"), "cpu", tmp_path)
    assert notes == ("the source names cuda:1: it was run moved to cpu",)
    assert list_named_devices(converter.read(found.path)) == {"cpu"}
    same, notes = move_to_device(source_of("placed.pt", "torchscript"), "cuda:1", tmp_path)
    assert (same.path, notes) == (FIXTURES / "placed.pt", ())
    there, _ = move_to_device(source_of("heads.pt2", "exported_program"), "cuda:0", tmp_path)
    assert list_named_devices(converter.read(there.path)) == {"cuda:0"}
    here, notes = move_to_device(source_of("heads.pt2", "exported_program"), "cpu", tmp_path)
    assert (here.path, notes) == (FIXTURES / "heads.pt2", ())


def run_on(tmp_path, device):
    array = np.ones((1, 6), np.float32)
    prepared = write_inputs(tmp_path, SPECS, [[Case("one", (array, array))]])
    return run_torch(
        source_of("heads.pt", "torchscript"), prepared, Allowance(), on=DeviceRequest(device)
    )


def test_a_device_that_torch_has_not(tmp_path, stand_in):
    stand_in("raise SystemExit('never asked')")
    found = run_on(tmp_path, parse_device("dml:0"))
    assert found == RunSkipped("torch has no device dml:0", is_missing=False, lacks_device=True)


def test_a_device_that_is_not_here(tmp_path, stand_in):
    stand_in("assert question['device'] == 'cuda:1' and question['allow_tf32'] is False\n"
             "answer(status='no device', error='no CUDA')")  # fmt: skip
    found = run_on(tmp_path, parse_device("cuda:1"))
    assert found == RunSkipped("torch 9.9: no CUDA", is_missing=False, lacks_device=True)


def test_stored_outputs_are_of_stored_inputs():
    """The numbers of the stand-in are worth what the source's own weights make of the inputs."""
    bundle = converter.read(FIXTURES / "heads.ckpt")
    weights = {name.removeprefix("model.module."): t.numpy() for name, t in bundle.weights.items()}
    given, stored = (np.load(FIXTURES / f"heads.{n}.npz") for n in ("inputs", "outputs"))
    near = np.tanh(given["zeta"] @ weights["first.weight"].T + weights["first.bias"])
    near = near * weights["factor"]
    np.testing.assert_allclose(stored["near"], near, rtol=1e-5)
    far = given["alpha"] @ weights["second.weight"].T - near
    np.testing.assert_allclose(stored["far"], far, rtol=1e-4, atol=1e-6)
