"""TensorFlow graphs beside their source where there is no TensorFlow: a stand-in answers.

What it answers with numbers are those that TensorFlow computed, as they are stored.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from comparing import comparing
from onnx_run import write_onnx
from python_stand_in import write_stand_in
from repository import ROOT

import converter
from converter.extras import describe_install
from converter.lower import lower
from converter.verification import runners
from converter.verification.graphs import verify_graph
from converter.verification.onnx_values import OnnxInterface
from converter.verification.report import GraphReport
from converter.verification.sources.tensorflow import bind_signature, output_names, signatures_of
from formats.core.bundle import SafetyFinding, Signature, TensorSpec
from formats.errors import UsageError

onnx = pytest.importorskip("onnx")
numpy_helper = pytest.importorskip("onnx.numpy_helper")

FIXTURES = ROOT / "fixtures" / "verify_tensorflow"
HEADS = FIXTURES / "heads"
GIVEN = comparing(inputs=FIXTURES / "heads.inputs.npz")


@pytest.fixture
def bundle():
    return converter.read(HEADS)


@pytest.fixture
def model(tmp_path, bundle):
    return write_onnx(tmp_path / "m.onnx", lower(bundle), bundle.weights)


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Make the other Python one that does this with a question."""

    def install(code):
        python = write_stand_in(tmp_path / "python", "tensorflow", code)
        monkeypatch.setenv(runners.PYTHON_VARIABLE, str(python))

    return install


COMPUTES = f"""
import numpy as np
stored = np.load({str(FIXTURES / "heads.outputs.npz")!r})
assert question['form'] == 'SavedModel' and question['signature'] == 'serving_default'
cases = []
for number, *_ in question['cases']:
    for i, key in enumerate(question['fetches']):
        np.save(folder / f'out-{{number}}-{{i}}.npy', stored[key])
    cases.append({{'chosen': number, 'dtypes': ['float32'] * 2, 'refused': {{}}}})
facts = dict(status='done', cases=cases, device='CPU:0', layers=[], unstable=[], random=[],
             inputs=[[f'x{{i}}:0', 'float32', [None, 6]] for i in (0, 1)], notes=[])
"""
ANSWERS = COMPUTES + "answer(**facts)"


def test_what_tensorflow_computed_is_what_the_graph_computes(bundle, model, stand_in):
    stand_in(ANSWERS)
    report = verify_graph(HEADS, bundle, model, options=GIVEN, signature="serving_default")
    assert report.status == "passed", report.reason
    assert str(report.source) == "tensorflow 9.9 on CPU:0"
    assert report.notes == ("signature 'serving_default'",)
    assert max(m.max_rel for m in report.outputs.values()) < 1e-6


def edited(path, edit):
    model = onnx.load(path)
    edit(model.graph)
    onnx.save(model, path)


def flip(graph):
    tensor = graph.initializer[0]
    tensor.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(tensor), tensor.name))


def swap(graph):
    for made in graph.node:
        swapped = {"far": "near", "near": "far"}
        made.output[:] = [swapped.get(n, n) for n in made.output]


def retype(graph):
    for made in graph.node:
        made.output[:] = ["narrow" if n == "far" else n for n in made.output]
    graph.node.append(onnx.helper.make_node("Cast", ["narrow"], ["far"], to=11))
    (far,) = (o for o in graph.output if o.name == "far")
    far.type.tensor_type.elem_type = 11


@pytest.mark.parametrize("edit", [flip, swap, retype])
def test_planted_faults_are_found(bundle, model, stand_in, edit):
    stand_in(ANSWERS)
    edited(model, edit)
    report = verify_graph(HEADS, bundle, model, options=GIVEN, signature="serving_default")
    assert report.status == "failed"
    assert report.reason


def test_an_input_of_another_dtype_than_the_sources(bundle, model, stand_in):
    stand_in(COMPUTES + "facts['inputs'][1][1] = 'float64'; answer(**facts)")
    report = verify_graph(HEADS, bundle, model, options=GIVEN, signature="serving_default")
    assert report.reason == "input 'zeta' is float32; the source's is float64"
    assert report.status == "failed"


def test_outputs_that_are_random_are_never_passed(bundle, model, stand_in):
    text = COMPUTES + "facts |= dict(unstable=[0, 1], random=['RandomUniform']); answer(**facts)"
    stand_in(text)
    report = verify_graph(HEADS, bundle, model, options=GIVEN, signature="serving_default")
    assert (report.status, report.outputs) == ("not run", {})
    assert report.reason == (
        "'far', 'near' of the source itself differs from run to run (RandomUniform): not comparable"
    )


UNABLE = [
    ("answer(status='cannot load', error='NotFoundError: no op X')", "NotFoundError: no op X"),
    (
        "answer(status='refused', error='SaveV2')",
        "running it would touch files or run code (SaveV2)",
    ),
]
REFUSES = COMPUTES + "cases[0].update(chosen=None, refused={'0': 'ValueError: x'}); answer(**facts)"


@pytest.mark.parametrize(("text", "reason"), UNABLE)
def test_a_source_that_does_not_run_is_not_verified(bundle, model, stand_in, text, reason):
    stand_in(text)
    report = verify_graph(HEADS, bundle, model, options=GIVEN, signature="serving_default")
    assert (report.status, report.lacking) == ("not run", None)
    assert report.reason == (
        f"no TensorFlow here runs the source: verified on weights only (tensorflow 9.9: {reason})"
    )


def test_a_source_that_fails_on_the_inputs_given(bundle, model, stand_in):
    stand_in(REFUSES)
    said = "fails on every input given: tensorflow 9.9: heads.inputs.npz: ValueError: x"
    with pytest.raises(UsageError, match=said):
        verify_graph(HEADS, bundle, model, options=GIVEN, signature="serving_default")


def test_without_tensorflow_it_says_what_to_install(bundle, model, stand_in, monkeypatch):
    stand_in("answer(status='absent', error='ModuleNotFoundError: tensorflow', versions={})")
    report = verify_graph(HEADS, bundle, model)
    assert report.status == "not run"
    assert report.reason == (
        "no TensorFlow is installed that could run the source "
        "(tensorflow: ModuleNotFoundError: tensorflow)"
    )
    assert report.lacking == describe_install("tensorflow")
    monkeypatch.delenv(runners.PYTHON_VARIABLE)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name != "tensorflow" or None)
    assert verify_graph(HEADS, bundle, model).lacking is not None


def test_a_graph_that_reaches_for_files_is_not_run(bundle, model, stand_in):
    stand_in("sys.exit('it was run')")
    finding = SafetyFinding("file-op", "ReadFile", "read")
    armed = replace(bundle, metadata=replace(bundle.metadata, findings=(finding,)))
    report = verify_graph(HEADS, armed, model)
    assert report.status == "not run"
    assert "code of its own (file-op: ReadFile)" in report.reason


# -- which signature -----------------------------------------------------------------------------


def spec(name):
    return TensorSpec(name, "float32", ("n", 6))


def file(inputs, outputs):
    return OnnxInterface(tuple(map(spec, inputs)), tuple(map(spec, outputs)), frozenset(), ())


def test_outputs_that_are_called_like_inputs_get_other_names():
    def names(inputs, outputs):
        return output_names(Signature("s", tuple(map(spec, inputs)), tuple(map(spec, outputs))))

    assert names("ab", "cd") == ["c", "d"]
    assert names("a", "ab") == ["a_out", "b"]
    assert names(["a", "a_out"], ["a"]) == ["a_out_1"]
    assert names(["a"], ["a", "a_out"]) == ["a_out", "a_out_out"]


def test_the_signatures_that_a_file_may_be_of(bundle):
    both = file(["alpha", "zeta"], ["far", "near"])
    assert signatures_of(bundle, both, None) == ["serving_default", "doubled"]
    assert signatures_of(bundle, both, "doubled") == ["doubled"]
    assert signatures_of(bundle, file([], ["bias"]), None) == ["kept"]
    assert signatures_of(bundle, file(["x"], ["y"]), None) == ["serving_default"]
    with pytest.raises(UsageError, match="expected serving_default, "):
        signatures_of(bundle, both, "trippled")


def test_tensors_are_found_by_the_signatures_keys(bundle):
    found = bind_signature(bundle, file(["zeta", "alpha"], ["near", "far"]), None, "doubled")
    assert (found.feeds, found.fetches) == (("zeta", "alpha"), ("near", "far"))
    found = bind_signature(bundle, file(["a", "b"], ["c", "d"]), None, "doubled")
    assert (found.feeds, found.fetches) == (("alpha", "zeta"), ("far", "near"))
    assert len(found.notes) == 3
    found = bind_signature(bundle, file(["alpha"], ["far", "near"]), None, "doubled")
    assert found == GraphReport("failed", "the graph has 1 inputs, signature 'doubled' 2")


def test_a_graph_without_signatures_is_asked_for_what_lowering_took(tmp_path):
    bundle = converter.read(FIXTURES / "frozen.pb")
    assert signatures_of(bundle, file(["ids"], ["scores"]), None) == []
    found = bind_signature(bundle, file(["ids"], ["scores"]), None, "")
    assert found.status == "not run"
    assert "declares no signature" in found.reason


def test_stored_outputs_are_of_stored_inputs():
    """The numbers of the stand-in are worth what the source's own weights make of the inputs."""
    weights = {n: t.numpy() for n, t in converter.read(HEADS).weights.items()}
    given, stored = (np.load(FIXTURES / f"heads.{n}.npz") for n in ("inputs", "outputs"))
    near = np.tanh(given["zeta"] @ weights["kernel"] + weights["bias"])
    np.testing.assert_allclose(stored["near"], near, rtol=1e-5)
    np.testing.assert_allclose(stored["far"], given["alpha"] @ weights["kernel"] - near, rtol=1e-4)
    assert json.dumps(sorted(stored.files)) == '["far", "near"]'
