"""What an exporter wrote is found again among the source's tensors: without torch."""

from pathlib import Path

import numpy as np

from converter.capture.examples import find_examples
from converter.capture.matching import TemporaryFolder, match_weights
from converter.lower.graph import Folded, Graph, Node, Spec, Weight
from formats.core.bundle import Bundle, Metadata, TensorSpec
from formats.core.weights import DTYPES, Tensor

RNG = np.random.default_rng(0)
BIG, OTHER = (RNG.standard_normal((40, 20)).astype("f4") for _ in range(2))


def tensor(array, origin=""):
    array = np.ascontiguousarray(array)
    return Tensor.inline(DTYPES[array.dtype.name], array.shape, array.tobytes(), origin=origin)


def match(exported, source):
    graph = Graph("g", 18, [Node("Relu", [n], [f"y{n}"]) for n in exported])
    graph.initializers = {name: Weight(name) for name in exported}
    graph.specs = {n: Spec("float32", a.shape) for n, a in exported.items()}
    tensors = {n: tensor(a, n) for n, a in exported.items()}
    bundle = Bundle(Metadata("torch", ""), {n: tensor(a, n) for n, a in source.items()})
    return graph, match_weights(graph, tensors, bundle, TemporaryFolder())


def test_renamed():
    graph, bundle = match({"onnx::Conv_3": BIG}, {"other": OTHER, "weight": BIG})
    assert graph.initializers == {"onnx::Conv_3": Weight("weight")}
    assert [*bundle.weights] == ["other", "weight"]
    assert not graph.notes


def test_the_same_name_comes_first():
    graph, _ = match({"b": BIG}, {"a": BIG, "b": BIG})
    assert graph.initializers["b"] == Weight("b")


def test_a_name_alone_is_nothing():
    graph, bundle = match({"w": BIG}, {"w": OTHER})
    assert graph.initializers["w"] == Weight("graph.w")
    assert np.array_equal(bundle.weights["graph.w"].numpy(), BIG)
    assert np.array_equal(bundle.weights["w"].numpy(), OTHER)
    assert graph.notes == [f"1 tensor ({BIG.nbytes} bytes) of the exporter's own"]


def test_turned():
    graph, bundle = match({"w": BIG.T}, {"fc.weight": BIG})
    assert [*bundle.weights] == ["fc.weight"]
    (stored,) = graph.initializers
    assert graph.initializers[stored] == Weight("fc.weight")
    first = graph.nodes[0]
    assert (first.op_type, first.inputs, first.outputs) == ("Transpose", [stored], ["w"])
    assert graph.specs[stored].shape == (40, 20)


def test_small_ones_stand_in_the_graph():
    graph, bundle = match({"s": BIG[0]}, {"w": BIG})
    assert np.array_equal(graph.initializers["s"], BIG[0])
    assert [*bundle.weights] == ["w"]


def test_names_that_are_taken():
    _, bundle = match({"w": BIG}, {"graph.w": OTHER, "graph.w_1": OTHER})
    assert [*bundle.weights] == ["graph.w", "graph.w_1", "graph.w_2"]


def test_inner_graphs():
    inner = Graph("i", 18, [Node("Relu", ["w"], ["t"])], outputs=["t"])
    inner.initializers = {"w": Weight("w")}
    graph = Graph("g", 18, [Node("If", ["c"], ["y"], {"then_branch": inner})])
    bundle = Bundle(Metadata("torch", ""), {"fc.weight": tensor(BIG)})
    match_weights(graph, {"w": tensor(BIG)}, bundle, TemporaryFolder())
    assert inner.initializers == {"w": Weight("fc.weight")}


# -- examples ------------------------------------------------------------------------------------


def example(folder, text, name="input_example.json", mlmodel=None):
    (folder / "data").mkdir(exist_ok=True)
    (folder / name).write_text(text)
    if mlmodel:
        (folder / "MLmodel").write_text(mlmodel)
    return find_examples(folder / "data" / "model.pth")


MLMODEL = """flavors:
  pytorch:
    model_data: data
signature:
  inputs: '[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1,
    3, -1]}}]'
  outputs: '[]'
"""


def test_rows(tmp_path):
    (found,) = example(tmp_path, "[[1, 2.5], [3, 4]]")
    assert found.spec == TensorSpec("", "float32", ("batch", 2))
    assert found.array.tolist() == [[1, 2.5], [3, 4]]


def test_names(tmp_path):
    text = '{"inputs": {"ids": [[1, 2, 3]], "mask": [[true, false, true]]}}'
    ids, mask = example(tmp_path, text, "serving_input_example.json")
    assert ids.spec == TensorSpec("ids", "int64", ("batch", 3))
    assert mask.spec == TensorSpec("mask", "bool", ("batch", 3))


def test_a_table(tmp_path):
    text = '{"dataframe_split": {"columns": ["a", "b"], "data": [[1.5, 2.0]]}}'
    (found,) = example(tmp_path, text)
    assert found.spec == TensorSpec("", "float32", ("batch", 2))


def test_a_signature_says_what_is_dynamic(tmp_path):
    (found,) = example(tmp_path, "[[[1, 2], [3, 4], [5, 6]]]", mlmodel=MLMODEL)
    assert found.spec == TensorSpec("", "float32", ("batch", 3, "input_2"))


def test_nothing_there(tmp_path):
    assert find_examples(Path(tmp_path / "model.pt")) == []


def test_the_folder_is_kept_as_long_as_a_tensor_is():
    folder = TemporaryFolder()
    path = folder.path
    graph = Graph("g", 18, [Node("Relu", ["w"], ["y"])], initializers={"w": Weight("w")})
    graph.specs["w"] = Spec("float32", BIG.shape)
    made = match_weights(graph, {"w": tensor(BIG)}, Bundle(Metadata("torch", ""), {}), folder)
    del folder
    assert path.is_dir()
    del made
    assert not path.exists()


def test_what_is_computed_out_of_the_file_keeps_it():
    folder = TemporaryFolder()
    path = folder.path / "a.npy"
    np.save(path, BIG)
    graph = Graph("g", 18, [Node("Relu", ["w"], ["y"])])
    graph.initializers["w"] = Folded("float32", BIG.shape, lambda: np.load(path))
    match_weights(graph, {}, Bundle(Metadata("torch", ""), {}), folder)
    del folder
    assert np.array_equal(graph.initializers["w"].make(), BIG)
    graph.initializers.clear()
    assert not path.exists()
