"""Random numbers of every front end: the distribution, the dtype, other numbers in each run."""

import numpy as np
import onnx_run
import pytest
import spellings as s

COUNT = 40_000


def tf(name, constants=(), dtype="float32"):
    """Return the spelling of an op whose first operand is a shape."""
    kind = f'attr {{ key: "dtype" value {{ type: {s.TENSORFLOW_TYPES[dtype]} }} }} '

    def spelled(folder, size):
        del size
        return s.tensorflow(
            folder, name, [("int32", (1,))], constants, attributes=kind, result=dtype
        )

    return spelled, True


def torch(call):
    """Return the spelling of a function of a tensor that gives the shape."""
    return lambda folder, size: s.torch_script(folder, f"torch.{call}", [("float32", (size,))])


UNIFORM = {
    "tf": tf("RandomUniform"), "torch": (torch("rand_like(x0)"), False),
}  # fmt: skip
NORMAL = {
    "tf": tf("RandomStandardNormal"), "torch": (torch("randn_like(x0)"), False),
}  # fmt: skip


def drawn(spelling, folder, size=None):
    build, takes_shape = spelling
    graph, weights = build(folder, size)
    assert graph.random
    x = np.array([COUNT], "int32") if takes_shape else np.zeros(COUNT, "float32")
    session = onnx_run.session(graph, weights)
    first, second = (session.run(None, {session.get_inputs()[0].name: x})[0] for _ in range(2))
    assert first.shape == (COUNT,)
    assert not np.array_equal(first, second)
    return first


@pytest.mark.parametrize("way", UNIFORM)
def test_uniform_numbers(way, tmp_path):
    found = drawn(UNIFORM[way], tmp_path)
    assert found.dtype == "float32"
    assert found.min() >= 0
    assert found.max() < 1
    assert abs(found.mean() - 0.5) < 0.01


@pytest.mark.parametrize("way", NORMAL)
def test_normal_numbers(way, tmp_path):
    found = drawn(NORMAL[way], tmp_path)
    assert abs(found.mean()) < 0.03
    assert abs(found.std() - 1) < 0.03


def test_a_static_shape_has_no_shape_node(tmp_path):
    graph, _ = torch("rand_like(x0)")(tmp_path, 7)
    assert {node.op_type for node in graph.nodes} >= {"RandomUniform"}
    graph, _ = torch("rand_like(x0)")(tmp_path, None)
    assert {node.op_type for node in graph.nodes} >= {"RandomUniformLike"}


@pytest.mark.parametrize("way", ["tf", "torch"])
def test_integers_between_bounds(way, tmp_path):
    if way == "tf":
        bounds = [np.array(n, "int64") for n in (-2, 5)]
        build, _ = tf("RandomUniformInt", bounds, "int64")
        found = drawn((build, True), tmp_path)
    else:
        found = drawn((torch("randint_like(x0, -2, 5)"), False), tmp_path)
    assert sorted(set(found.tolist())) == list(range(-2, 5))


@pytest.mark.parametrize("way", ["tf", "torch"])
def test_classes_by_their_shares(way, tmp_path):
    shares = np.array([[0.1, 0.6, 0.3]], "float32")
    if way == "tf":
        graph, weights = s.tensorflow(
            tmp_path, "Multinomial", [("float32", (None, 3))], [np.array(COUNT, "int32")],
            result="int64",
        )  # fmt: skip
        (found,) = onnx_run.run(graph, np.log(shares), weights=weights)
    else:
        call = f"torch.multinomial(x0, {COUNT}, True)"
        graph, weights = s.torch_script(tmp_path, call, [("float32", (None, 3))])
        (found,) = onnx_run.run(graph, shares, weights=weights)
    counts = np.bincount(found[0], minlength=3) / COUNT
    np.testing.assert_allclose(counts, shares[0], atol=0.02)
