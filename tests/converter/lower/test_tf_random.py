"""Random numbers that ONNX draws: others than TensorFlow's, of the same distributions."""

import numpy as np
import onnx_run
import pytest

import converter
from converter.graphs import lower_signature as lower
from formats.errors import UnsupportedError

TYPES = {"float16": "DT_HALF", "float32": "DT_FLOAT", "float64": "DT_DOUBLE", "int32": "DT_INT32",
         "int64": "DT_INT64"}  # fmt: skip


def constant(name, values, dtype="int32"):
    array = np.asarray(values)
    field = {"int32": "int_val", "int64": "int64_val", "float32": "float_val"}[dtype]
    dims = "".join(f"dim {{ size: {n} }}" for n in array.shape)
    numbers = " ".join(f"{field}: {n}" for n in array.reshape(-1))
    return f"""node {{ name: "{name}" op: "Const"
        attr {{ key: "dtype" value {{ type: {TYPES[dtype]} }} }}
        attr {{ key: "value" value {{ tensor {{ dtype: {TYPES[dtype]}
            tensor_shape {{ {dims} }} {numbers} }} }} }} }}"""


def placeholder(name, dtype, shape):
    dims = "".join(f"dim {{ size: {n} }}" for n in shape)
    return f"""node {{ name: "{name}" op: "Placeholder"
        attr {{ key: "dtype" value {{ type: {TYPES[dtype]} }} }}
        attr {{ key: "shape" value {{ shape {{ {dims} }} }} }} }}"""


def node(name, op, inputs, **attributes):
    lines = "".join(f'input: "{i}" ' for i in inputs)
    texts = {k: f"type: {TYPES[v]}" if v in TYPES else f"i: {v}" for k, v in attributes.items()}
    pairs = "".join(f'attr {{ key: "{k}" value {{ {v} }} }}' for k, v in texts.items())
    return f'node {{ name: "{name}" op: "{op}" {lines} {pairs} }}'


@pytest.fixture
def graph_of(tmp_path):
    """Return what lowers nodes, with the bundle."""

    def build(*nodes):
        path = tmp_path / "model.pbtxt"
        path.write_text("\n".join([*nodes, "versions { producer: 1800 }"]))
        bundle = converter.read(path)
        return lower(bundle), bundle

    return build


@pytest.fixture
def run(graph_of):
    """Return what lowers nodes and runs the graph."""

    def compute(*nodes, times=1, **fed):
        graph, bundle = graph_of(*nodes)
        session = onnx_run.session(graph, bundle.weights)
        found = [session.run(None, fed) for _ in range(times)]
        return graph, found if times > 1 else found[0]

    return compute


def drawn(op, dtype, shape=(40, 500), **more):
    return [constant("shape", shape), node("out", op, ["shape"], T="int32", dtype=dtype, **more)]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_uniform_numbers(run, dtype):
    graph, (found,) = run(*drawn("RandomUniform", dtype))
    assert found.shape == (40, 500)
    assert found.dtype == dtype
    assert 0 <= found.min() < 0.01
    assert 0.99 < found.max() <= 1
    assert abs(found.astype("f8").mean() - 0.5) < 0.02
    assert abs(found.astype("f8").std() - 12**-0.5) < 0.02
    assert graph.random == {"out": "RandomUniform"}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_normal_numbers(run, dtype):
    graph, (found,) = run(*drawn("RandomStandardNormal", dtype))
    assert found.shape == (40, 500)
    assert found.dtype == dtype
    assert abs(found.astype("f8").mean()) < 0.05
    assert abs(found.astype("f8").std() - 1) < 0.05
    assert abs(found).max() > 3
    assert graph.random == {"out": "RandomStandardNormal"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_truncated_normal_numbers(run, dtype):
    _, (found,) = run(*drawn("TruncatedNormal", dtype))
    assert found.dtype == dtype
    assert 1.9 < abs(found).max() <= 2
    assert abs(found.mean()) < 0.05
    # That of a normal distribution cut off at 2.
    assert abs(found.std() - 0.8796) < 0.03


def test_seeded_numbers_are_the_same_in_each_session(run):
    seeded = drawn("RandomUniform", "float32", seed=3, seed2=9)
    _, (first,) = run(*seeded)
    _, (second,) = run(*seeded)
    assert np.array_equal(first, second)
    _, (other,) = run(*drawn("RandomUniform", "float32", seed=4, seed2=9))
    assert not np.array_equal(first, other)


def test_each_run_draws_anew(run):
    _, ((first,), (second,)) = run(*drawn("RandomStandardNormal", "float32"), times=2)
    assert not np.array_equal(first, second)


def test_a_computed_shape(run):
    nodes = [
        placeholder("shape", "int32", [2]),
        node("out", "RandomUniform", ["shape"], T="int32", dtype="float32"),
    ]
    _, (found,) = run(*nodes, shape=np.array([7, 900], "i4"))
    assert found.shape == (7, 900)
    assert abs(found.mean() - 0.5) < 0.03


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers(run, dtype):
    nodes = [
        constant("shape", [30, 300]), constant("low", -3, dtype), constant("high", 4, dtype),
        node("out", "RandomUniformInt", ["shape", "low", "high"], T="int32", Tout=dtype),
    ]  # fmt: skip
    _, (found,) = run(*nodes)
    assert found.dtype == dtype
    numbers, counts = np.unique(found, return_counts=True)
    assert numbers.tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert counts.min() > 0.8 * 9000 / 7


def test_shuffled_rows(run):
    nodes = [
        placeholder("x", "float32", [-1, 2]),
        node("out", "RandomShuffle", ["x"], T="float32"),
    ]
    x = np.arange(200, dtype="f4").reshape(100, 2)
    graph, ((first,), (second,)) = run(*nodes, x=x, times=2)
    assert sorted(first[:, 0]) == x[:, 0].tolist()
    assert np.array_equal(first[:, 1], first[:, 0] + 1)
    assert not np.array_equal(first, x)
    assert not np.array_equal(first, second)
    assert graph.random == {"out": "RandomShuffle"}


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_classes_by_their_shares(run, dtype):
    nodes = [
        placeholder("logits", "float32", [-1, 3]), constant("count", 4000),
        node("out", "Multinomial", ["logits", "count"], T="float32", output_dtype=dtype),
    ]  # fmt: skip
    shares = np.array([[0.2, 0.5, 0.3], [0.7, 0.1, 0.2]], "f4")
    _, (found,) = run(*nodes, logits=np.log(shares))
    assert found.shape == (2, 4000)
    assert found.dtype == dtype
    counted = [np.bincount(row, minlength=3) / 4000 for row in found]
    assert np.abs(counted - shares).max() < 0.05


def test_what_is_not_drawn_is_a_gap(graph_of):
    nodes = [
        constant("shape", [3]), constant("rate", [1.0, 2.0], "float32"),
        node("out", "RandomGamma", ["shape", "rate"], S="int32", T="float32"),
    ]  # fmt: skip
    with pytest.raises(UnsupportedError, match="RandomGamma"):
        graph_of(*nodes)
