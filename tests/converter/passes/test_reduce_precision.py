"""``--precision``: what becomes narrow, what stays as it is, and what it costs."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_run
import pytest
from repository import FIXTURES

import converter
from converter.lower.graph import Graph, Node, Spec, needed
from converter.options import Comparison, Options
from converter.passes.reduce_precision import Reduced, reduce_precision
from formats.errors import DependencyError, VerificationError

FLOAT, HALF, BFLOAT = 1, 10, 16
MODELS = ["keras/keras30_functional.keras", "keras/keras2_nested.h5", "verify/image.keras"]


def graph_of(
    nodes: list[Node], inputs: dict[str, Spec], outputs: dict[str, Spec], **constants: np.ndarray
) -> Graph:
    graph = Graph("made", 22, nodes, [*inputs], [*outputs], {**inputs, **outputs})
    for name, array in constants.items():
        graph.initializers[name] = array
        graph.specs[name] = Spec(array.dtype.name, array.shape)
    for node in nodes:  # every value here is float32 and as wide as it wants to be
        for name in node.outputs:
            graph.specs.setdefault(name, Spec("float32", ("n", 4)))
    return graph


def model_of(graph: Graph) -> onnx.ModelProto:
    model = onnx.load_model_from_string(onnx_run.onnx_bytes(graph, {}))
    onnx.checker.check_model(model, full_check=True)
    return model


def run(graph: Graph, **arrays: np.ndarray) -> list[np.ndarray]:
    return [*onnx_run.run_named(model_of(graph).SerializeToString(), arrays).values()]


def reduced(graph: Graph, precision: str, *, emulate: bool = False) -> Reduced:
    made = reduce_precision(graph, {}, precision, emulate=emulate)
    made.graph = needed(made.graph)
    return made


RNG = np.random.default_rng(5)
X = Spec("float32", ("n", 4))


def perceptron() -> Graph:
    return graph_of(
        [
            Node("MatMul", ["x", "w"], ["a"]),
            Node("Add", ["a", "b"], ["s"]),
            Node("Relu", ["s"], ["r"]),
            Node("MatMul", ["r", "v"], ["y"]),
        ],
        {"x": X},
        {"y": X, "r": X},
        w=RNG.standard_normal((4, 4)).astype(np.float32),
        b=RNG.standard_normal(4).astype(np.float32),
        v=RNG.standard_normal((4, 4)).astype(np.float32),
    )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_models_keep_their_signature_and_lose_little(
    name: str, precision: str, tmp_path: Path
) -> None:
    source = FIXTURES / name
    full, narrow = tmp_path / "full.onnx", tmp_path / "narrow.onnx"
    converter.convert(source, to="onnx", out=full, options=Options(verify="weights"))
    result = converter.convert(source, to="onnx", out=narrow, options=Options(precision=precision))
    (report,) = result.verification.precision.values()
    assert report is not None
    assert report.status == "passed"
    assert 0 < report.max_rel < {"fp16": 1e-2, "bf16": 5e-2}[precision]
    before, after = onnx.load(full), onnx.load(narrow)
    onnx.checker.check_model(after, full_check=True)
    assert [str(v) for v in before.graph.input] == [str(v) for v in after.graph.input]
    assert [str(v) for v in before.graph.output] == [str(v) for v in after.graph.output]
    kinds = {t.data_type for t in after.graph.initializer if t.name.endswith("float16")}
    assert kinds == {HALF if precision == "fp16" else BFLOAT}


def test_values_that_both_kinds_read_are_cast_once() -> None:
    made = reduced(perceptron(), "fp16")
    casts = [n for n in made.graph.nodes if n.op_type == "Cast"]
    assert [(n.inputs, n.outputs) for n in casts] == [
        (["x"], ["x/float16"]),
        (["y/float16"], ["y"]),
        (["r/float16"], ["r"]),
    ]
    assert made.narrow == {"MatMul": 2, "Add": 1, "Relu": 1}
    assert not {"w", "v"} & made.graph.initializers.keys()


def test_bfloat16_is_what_onnx_itself_computes() -> None:
    graph = perceptron()
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    emulated = run(reduced(graph, "bf16", emulate=True).graph, x=x)
    exact = run(graph, x=x)

    def narrow(a: np.ndarray) -> np.ndarray:
        return a.astype(ml_dtypes.bfloat16).astype(np.float32)

    w, b, v = (narrow(graph.initializers[k]) for k in "wbv")
    s = narrow(narrow(narrow(x) @ w) + b)
    r = np.maximum(s, 0)
    np.testing.assert_array_equal(emulated[1], r)
    np.testing.assert_allclose(emulated[0], narrow(r @ v), rtol=2**-7)
    assert not np.array_equal(emulated[0], exact[0])
    assert {t.data_type for t in model_of(reduced(graph, "bf16").graph).graph.initializer} == {
        BFLOAT
    }


def test_masks_and_epsilons_keep_their_meaning() -> None:
    graph = graph_of(
        [
            Node("MatMul", ["x", "w"], ["scores"]),
            Node("Add", ["scores", "mask"], ["masked"]),
            Node("Softmax", ["masked"], ["p"]),
            Node("Mul", ["scores", "scores"], ["square"]),
            Node("Add", ["square", "epsilon"], ["positive"]),
            Node("Sqrt", ["positive"], ["root"]),
            Node("Div", ["p", "root"], ["y"]),
        ],
        {"x": X},
        {"y": X},
        w=np.zeros((4, 4), np.float32) + np.eye(4, dtype=np.float32) * 1e-4,
        mask=np.array([0, -1e9, 0, -1e9], np.float32),
        epsilon=np.array(1e-12, np.float32),
    )
    x = RNG.standard_normal((3, 4)).astype(np.float32) * 1e-3
    made = reduced(graph, "fp16")
    assert made.narrow == {"MatMul": 1, "Mul": 1}
    assert made.wide == {"Add": 2, "Softmax": 1}
    assert np.isfinite(run(made.graph, x=x)[0]).all()


def test_weights_too_large_for_float16_stay() -> None:
    graph = perceptron()
    graph.initializers["w"] = np.asarray(graph.initializers["w"]) * np.float32(1e6)
    assert reduced(graph, "fp16").narrow == {"MatMul": 1}
    assert reduced(graph, "bf16").narrow == {"MatMul": 2, "Add": 1, "Relu": 1}


def test_bodies_read_narrow_values_of_those_around_them() -> None:
    inner = {"inside": X, "a": X, "w": Spec("float32", (4, 4)), "other": X}
    then = Graph("then", 22, [Node("MatMul", ["a", "w"], ["inside"])], [], ["inside"], inner)
    other = Graph("else", 22, [Node("Exp", ["a"], ["other"])], [], ["other"], inner)
    graph = graph_of(
        [
            Node("MatMul", ["x", "w"], ["a"]),
            Node("If", ["which"], ["y"], {"then_branch": then, "else_branch": other}),
        ],
        {"x": X, "which": Spec("bool", ())},
        {"y": X},
        w=RNG.standard_normal((4, 4)).astype(np.float32),
    )
    made = reduced(graph, "fp16")
    assert made.narrow == {"MatMul": 2}
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    for which in (True, False):
        given = {"x": x, "which": np.array(which)}
        np.testing.assert_allclose(
            run(made.graph, **given)[0], run(graph, **given)[0], rtol=2e-2, atol=1e-2
        )


def test_opsets_without_narrow_convolutions_keep_them() -> None:
    graph = graph_of(
        [Node("Conv", ["x", "k"], ["y"])],
        {"x": Spec("float32", ("n", 2, 5, 5))},
        {"y": Spec("float32", ("n", 3, 3, 3))},
        k=RNG.standard_normal((3, 2, 3, 3)).astype(np.float32),
    )
    assert reduced(graph, "bf16").narrow == {"Conv": 1}
    graph.opset = 18
    assert not reduced(graph, "bf16").narrow
    assert reduced(graph, "fp16").narrow == {"Conv": 1}


def test_without_the_device_that_is_said_and_demanded(tmp_path: Path) -> None:
    source, out = FIXTURES / "verify/image.keras", tmp_path / "narrow.onnx"
    options = Options(precision="bf16", device="cuda:0")
    (report,) = converter.convert(
        source, to="onnx", out=out, options=options
    ).verification.precision.values()
    assert report is not None
    assert report.device is not None
    assert (report.status, report.device.status) == ("passed", "not run")
    assert "CUDAExecutionProvider" in report.device.reason
    options = Options(precision="bf16", device="cuda:0", require="device")
    with pytest.raises(DependencyError):
        converter.convert(source, to="onnx", out=tmp_path / "again.onnx", options=options)
    assert not (tmp_path / "again.onnx").exists()


def test_what_costs_too_much_is_refused(tmp_path: Path) -> None:
    # The values between two products of smaller values are beyond float16.
    graph = graph_of(
        [Node("MatMul", ["x", "up"], ["a"]), Node("MatMul", ["a", "down"], ["y"])],
        {"x": X}, {"y": X},
        up=RNG.uniform(1e4, 2e4, (4, 4)).astype(np.float32),
        down=RNG.uniform(1e-2, 2e-2, (4, 4)).astype(np.float32),
    )  # fmt: skip
    source, inputs = tmp_path / "full.onnx", tmp_path / "inputs.npz"
    onnx.save(model_of(graph), source)
    np.savez(inputs, x=RNG.uniform(10, 20, (3, 4)).astype(np.float32))
    out = tmp_path / "narrow.onnx"
    options = Options(precision="fp16", comparison=Comparison(inputs=inputs))
    with pytest.raises(VerificationError, match="float16 is too far"):
        converter.convert(source, to="onnx", out=out, options=options)
    assert not out.exists()
