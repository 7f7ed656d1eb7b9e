"""What is known of a graph itself: its noise, its exact result, what inputs reach, its weights."""

import numpy as np
import pytest
from onnx_by_hand import value, written
from repository import ROOT

import converter
from converter.child.process import Allowance
from converter.options import Options
from converter.verification.coverage import MAX_CASES, extend_plan
from converter.verification.exact_weights import find_exact_weights
from converter.verification.first_difference import find_random_values
from converter.verification.initializers import compare_initializers
from converter.verification.inputs.draw import Case, Hint
from converter.verification.noise import measure_noise
from converter.verification.onnx_values import read_interface
from converter.verification.runners import load_output, run_onnx, write_inputs
from converter.verification.smoke import run_alone

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
numpy_helper = pytest.importorskip("onnx.numpy_helper")

pytestmark = pytest.mark.thorough

RNG = np.random.default_rng(5)
ALLOWANCE = Allowance()
WEIGHT = RNG.standard_normal((6, 4)).astype("f4")


def dense(path, *more, weight=WEIGHT, outputs=("y",)):
    """Write a matrix product, and what follows it."""
    nodes = [("MatMul", "x w", "h"), *more]
    inputs = [value("x", "float32", "n", 6)]
    return written(
        path, nodes, inputs, [value(n, "float32", "n", 4) for n in outputs], {"w": weight}
    )


def prepared(folder, file, *arrays):
    return write_inputs(folder, file.inputs, [[Case("a case", arrays)]])


def test_noise_is_of_the_size_of_rounding(tmp_path):
    path = dense(tmp_path / "m.onnx", ("Tanh", "h", "y"))
    file = read_interface(path)
    x = RNG.standard_normal((50, 6)).astype("f4")
    inputs = prepared(tmp_path, file, x)
    noise = measure_noise(path, file, inputs, [0], {"y": "float32"}, ALLOWANCE)
    known = noise.evidence(0, 0)
    assert 1e-9 < np.sqrt(known.mean_square.mean()) < 1e-6
    exact = np.tanh(x.astype("f8") @ WEIGHT.astype("f8"))
    np.testing.assert_allclose(known.exact, exact, rtol=1e-13)
    larger = measure_noise(path, file, inputs, [0], {"y": "float32"}, ALLOWANCE, scale=2.0**13)
    assert larger.evidence(0, 0).mean_square.mean() > 1e6 * known.mean_square.mean()


def test_the_exact_result_of_a_value_inside(tmp_path):
    path = dense(tmp_path / "m.onnx", ("Tanh", "h", "y"))
    file = read_interface(path)
    x = RNG.standard_normal((20, 6)).astype("f4")
    values = {"y": "float32", "h": "float32"}
    noise = measure_noise(path, file, prepared(tmp_path, file, x), [0], values, ALLOWANCE)
    exact = x.astype("f8") @ WEIGHT.astype("f8")
    np.testing.assert_allclose(noise.evidence(0, 1).exact, exact, rtol=1e-13)
    turned = noise.evidence(0, 1).transpose((1, 0))
    np.testing.assert_array_equal(turned.exact, noise.evidence(0, 1).exact.T)


def test_noise_of_a_value_inside_and_of_a_decision(tmp_path):
    path = dense(
        tmp_path / "m.onnx", ("ArgMax", "h", "a", {"axis": 1, "keepdims": 1}),
        ("Cast", "a", "f", {"to": 1}), ("Add", "h f", "y"),
    )  # fmt: skip
    file = read_interface(path)
    x = RNG.standard_normal((20, 6)).astype("f4")
    x[0] = 0  # all products are equal: the choice is arbitrary, and zero is not moved
    noise = measure_noise(path, file, prepared(tmp_path, file, x), [0], {"a": "int64"}, ALLOWANCE)
    assert not noise.evidence(0, 0).largest.any()


def test_arguments_of_operators_have_no_noise(tmp_path):
    """A scale of 2 that is moved in the last place would take other pixels."""
    nodes = [("Resize", "x r s", "y", {
        "mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric",
    })]  # fmt: skip
    arguments = {"r": np.zeros(0, "f4"), "s": np.array([1, 1, 2, 2], "f4")}
    path = written(
        tmp_path / "m.onnx", nodes, [value("x", "float32", 1, 2, 5, 5)],
        [value("y", "float32", 1, 2, 10, 10)], arguments,
    )  # fmt: skip
    file, x = read_interface(path), RNG.standard_normal((1, 2, 5, 5)).astype("f4")
    inputs = prepared(tmp_path, file, x)
    noise = measure_noise(path, file, inputs, [0], {"y": "float32"}, ALLOWANCE)
    assert 0 < noise.evidence(0, 0).level < 1e-6


def test_what_becomes_an_index_has_no_noise(tmp_path):
    """A half that is moved would take other rows; one that inputs are multiplied by may move."""
    nodes = [
        ("Shape", "x", "sizes"), ("Gather", "sizes zero", "n"), ("Mul", "n two", "double"),
        ("Range", "zero double one", "all"), ("Cast", "all", "places", {"to": 1}),
        ("Mul", "places half", "halves"), ("Floor", "halves", "whole"),
        ("Cast", "whole", "rows", {"to": 7}), ("Mul", "x half", "scaled"),
        ("Gather", "scaled rows", "g"), ("Mul", "g third", "f"), ("Cast", "f", "i", {"to": 7}),
        ("Cast", "i", "j", {"to": 1}), ("Mul", "g quarter", "q"), ("Add", "q j", "y"),
    ]  # fmt: skip
    weights = {
        "zero": np.array(0), "one": np.array(1), "two": np.array(2), "half": np.float32(0.5),
        "third": np.float32(1 / 3), "quarter": np.float32(0.25),
    }  # fmt: skip
    path = written(
        tmp_path / "m.onnx", nodes, [value("x", "float32", "n", 6)],
        [value("y", "float32", "m", 6)], weights,
    )  # fmt: skip
    file, x = read_interface(path), RNG.standard_normal((7, 6)).astype("f4")
    assert find_exact_weights(file) == {"zero", "one", "two", "half"}
    inputs = prepared(tmp_path, file, x)
    noise = measure_noise(path, file, inputs, [0], {"y": "float32"}, ALLOWANCE)
    assert 0 < noise.evidence(0, 0).level < 1e-6


def test_values_that_depend_on_chance(tmp_path):
    nodes = [
        ("RandomUniformLike", "x", "noise"), ("MatMul", "x w", "h"), ("Relu", "h", "kept"),
        ("Add", "noise x", "a"), ("MatMul", "a w", "b"), ("Add", "b kept", "y"),
    ]  # fmt: skip
    path = written(
        tmp_path / "m.onnx", nodes, [value("x", "float32", "n", 6)],
        [value("y", "float32", "n", 4)], {"w": WEIGHT},
    )  # fmt: skip
    assert find_random_values(read_interface(path)) == {"noise", "a", "b", "y"}


def test_the_exact_result_has_the_weights_that_are_computed_and_rounded(tmp_path):
    """A weight of small integers is rounded to its dtype; a branch reads it, too."""
    values, scale = RNG.integers(-128, 128, (4, 6)).astype("i1"), RNG.random(4).astype("f2")
    weight = (values * scale.astype("f4")[:, None]).astype("f2").T
    branch = onnx.helper.make_graph(
        [onnx.helper.make_node("Cast", ["w"], ["b"], to=1)], "b", [], [value("b", "float32", 6, 4)]
    )
    nodes = [
        ("DequantizeLinear", "q s", "v", {"axis": 0}), ("Transpose", "v", "w", {"perm": [1, 0]}),
        ("If", "c", "f", {"then_branch": branch, "else_branch": branch}), ("MatMul", "x f", "y"),
    ]  # fmt: skip
    path = written(
        tmp_path / "m.onnx", nodes, [value("x", "float32", "n", 6)],
        [value("y", "float32", "n", 4)], {"q": values, "s": scale, "c": np.array(True)},
    )  # fmt: skip
    model = onnx.load(path)
    model.opset_import[0].version = 21
    onnx.save(model, path)
    file, x = read_interface(path), RNG.standard_normal((50, 6)).astype("f4")
    inputs = prepared(tmp_path, file, x)
    noise = measure_noise(path, file, inputs, [0], {"y": "float32"}, ALLOWANCE)
    exact = x.astype("f8") @ weight.astype("f8")
    np.testing.assert_allclose(noise.evidence(0, 0).exact, exact, rtol=1e-12)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_operators_in_float64(tmp_path, kind, direction):
    """The evaluator's own operators read neither lengths nor directions nor activations."""
    gates, count = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 1 + (direction == "bidirectional")
    shapes = {"w": (count, gates * 5, 3), "r": (count, gates * 5, 5), "b": (count, 2 * gates * 5)}
    weights = {n: RNG.standard_normal(s).astype("f4") for n, s in shapes.items()}
    weights["lengths"] = np.array([7, 4, 1], "i4")
    names = {
        "LSTM": ["HardSigmoid", "Tanh", "Softsign"],
        "GRU": ["Sigmoid", "Elu"],
        "RNN": ["Relu"],
    }
    settings = {
        "hidden_size": 5, "direction": direction, "activations": names[kind] * count,
        **({"linear_before_reset": 1} if kind == "GRU" else {}),
    }  # fmt: skip
    path = written(
        tmp_path / "m.onnx", [(kind, "x w r b lengths", "y", settings)],
        [value("x", "float32", 7, 3, 3)], [value("y", "float32", 7, count, 3, 5)], weights,
    )  # fmt: skip
    file = read_interface(path)
    inputs = prepared(tmp_path, file, RNG.standard_normal((7, 3, 3)).astype("f4"))
    noise = measure_noise(path, file, inputs, [0], {"y": "float32"}, ALLOWANCE)
    run_onnx(path, inputs, [0], {"y": "float32"}, ALLOWANCE, prefix="out")
    found = load_output(inputs, "out", 0, 0, "float32").data
    np.testing.assert_allclose(noise.evidence(0, 0).exact, found, rtol=2e-6, atol=2e-6)


def test_inputs_are_drawn_that_reach_both_sides_of_a_bound(tmp_path):
    nodes = [("Clip", "h low high", "y")]
    path = written(
        tmp_path / "m.onnx", [("MatMul", "x w", "h"), *nodes], [value("x", "float32", "n", 6)],
        [value("y", "float32", "n", 4)],
        {"w": WEIGHT, "low": np.float32(-40), "high": np.float32(40)},
    )  # fmt: skip
    file = read_interface(path)
    plan = [[Case("usual", (RNG.standard_normal((3, 6)).astype("f4"),))]]
    longer, coverage = extend_plan(path, file, file.inputs, [Hint()], plan, tmp_path, ALLOWANCE)
    assert 1 < len(longer) <= 1 + MAX_CASES
    assert longer[0] == plan[0]
    assert (coverage.ranges, coverage.reached, coverage.missing) == (3, 3, ())


def test_what_is_not_reached_is_named(tmp_path):
    path = dense(tmp_path / "m.onnx", ("Abs", "h", "a"), ("Relu", "a", "y"))
    file = read_interface(path)
    plan = [[Case("usual", (RNG.standard_normal((3, 6)).astype("f4"),))]]
    _, coverage = extend_plan(path, file, file.inputs, [Hint()], plan, tmp_path, ALLOWANCE)
    (missing,) = coverage.missing
    assert missing.endswith("(Relu): negative")
    longer, _ = extend_plan(
        path, file, file.inputs, [Hint()], plan, tmp_path, ALLOWANCE, may_draw=False
    )
    assert longer == plan


@pytest.fixture
def source_and_file(tmp_path):
    """A source and its ONNX file."""
    source = ROOT / "fixtures/verify/image.keras"
    path = tmp_path / "m.onnx"
    converter.convert(source, to="onnx", out=path, verify="none")
    return converter.read(source), path


def test_weights_inside_a_graph_are_equal(source_and_file):
    bundle, path = source_and_file
    found = compare_initializers(bundle, read_interface(path), None)
    assert found.tensors > 0
    assert found.nbytes > 0
    assert not found.different


def test_a_weight_that_was_changed_is_named(source_and_file):
    bundle, path = source_and_file
    model = onnx.load(path)
    tensor = next(t for t in model.graph.initializer if t.data_type == 1 and len(t.dims) > 1)
    array = numpy_helper.to_array(tensor).copy()
    array.flat[-1] = np.nextafter(array.flat[-1], np.float32(9))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    onnx.save(model, path)
    found = compare_initializers(bundle, read_interface(path), None)
    assert found.different == (f"{tensor.name} (changed)",)


def test_weights_of_another_exporter_are_found_by_their_content(source_and_file, tmp_path):
    bundle, _ = source_and_file
    kernel = next(t.numpy() for t in bundle.weights.values() if len(t.shape) == 2)
    inputs = [value("x", "float32", "n", kernel.shape[0])]
    outputs = [value("y", "float32", "n", kernel.shape[1])]
    path = tmp_path / "other.onnx"
    written(path, [("Gemm", "x k", "y", {"transB": 1})], inputs, outputs, {"k": kernel.T.copy()})
    assert compare_initializers(bundle, read_interface(path), None).tensors == 1
    written(path, [("MatMul", "x k", "y")], inputs, outputs, {"k": kernel + 1})
    assert compare_initializers(bundle, read_interface(path), None) is None


def test_a_graph_runs_alone(tmp_path):
    path = dense(tmp_path / "m.onnx", ("Tanh", "h", "y"))
    report = run_alone(path, read_interface(path), None, Options())
    assert (report.status, report.reason) == ("passed", "")
    assert len(report.cases) == 2


@pytest.mark.parametrize(
    ("node", "status", "said"),
    [
        (("Log", "h", "y"), "not run", "'y' is not finite"),
        (("RandomNormalLike", "h", "y"), "not run", "'y' differs from run to run"),
    ],
)
def test_what_a_run_alone_does_not_show(tmp_path, node, status, said):
    path = dense(tmp_path / "m.onnx", node)
    report = run_alone(path, read_interface(path), None, Options())
    assert report.status == status
    assert said in report.reason


def test_smoke_is_a_level_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("CONVERT_TENSORFLOW_PYTHON", "")
    source = ROOT / "fixtures/verify/image.keras"
    found = converter.convert(source, to="onnx", out=tmp_path / "m.onnx", verify="smoke")
    (report,) = found.verification.graphs.values()
    assert (report.status, report.smoke.status) == ("not run", "passed")
    assert report.reached == "smoke"
    assert found.verification.level == "weights"  # the weights inside are equal, too
