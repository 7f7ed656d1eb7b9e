"""ONNX files become graphs and files again, and onnxruntime computes the same with both."""

import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper
from onnx_models import MODELS, _info, _model, _parsed, _weight, functions, plain

import converter
from converter.lower.element_types import ELEMENT_TYPES
from converter.lower.graph import Folded, Weight
from converter.lower.onnx.lowering import lower
from converter.options import Options
from formats.errors import CorruptError, LimitError, UnsupportedError
from formats.limits import Limits

QUIET = Options(verify="none")
NUMPY = {"tensor(float)": "f4", "tensor(bool)": "?", "tensor(int64)": "i8"}


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def draws(made, n):
    rng = np.random.default_rng(n)
    feeds = {}
    for value in made.get_inputs():
        shape = [s if isinstance(s, int) else n for s in value.shape]
        kind = NUMPY[value.type]
        feeds[value.name] = {
            "f4": lambda shape=shape: rng.standard_normal(shape).astype("f4"),
            "?": lambda: np.array(n == 2),
            "i8": lambda shape=shape: rng.integers(0, 3, shape),
        }[kind]()
    return feeds


def equal(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


def agree(source, written):
    one, other = session(source), session(written)
    for side in ("get_inputs", "get_outputs"):
        declared = [[(v.name, v.type) for v in getattr(s, side)()] for s in (one, other)]
        assert declared[0] == declared[1]
    for n in (2, 3):
        feeds = draws(one, n)
        assert all(map(equal, one.run(None, feeds), other.run(None, feeds)))


def saved(folder, model, name="m.onnx"):
    path = folder / name
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("name", MODELS)
def test_models_are_the_same(name, tmp_path):
    source = saved(tmp_path, MODELS[name]())
    alone = converter.convert(source, to="onnx", out=tmp_path / "out.onnx", options=QUIET)
    agree(source, alone.path)
    onnx.checker.check_model(str(alone.path))
    before, after = onnx.load(source), onnx.load(alone.path)
    versions = [{o.domain: o.version for o in m.opset_import} for m in (before, after)]
    assert {d: v for d, v in versions[0].items() if d != "own"} == versions[1]
    assert list(before.metadata_props) == list(after.metadata_props)


@pytest.mark.parametrize("name", MODELS)
def test_bundles_are_the_same(name, tmp_path):
    source = saved(tmp_path, MODELS[name]())
    bundle = converter.convert(source, to="portable", out=tmp_path / "out", options=QUIET)
    agree(source, bundle.path / "model.onnx")


def test_weights_stay_where_they_are(tmp_path):
    """What is read for shapes is in the graph; everything else in the safetensors file."""
    source = saved(tmp_path, plain())
    graph = lower(converter.read(source))
    assert {n: v.tensor for n, v in graph.initializers.items() if isinstance(v, Weight)} == {
        n: n for n in ("w", "b", "scale", "bias", "mean", "spread")
    }
    resized = lower(converter.read(saved(tmp_path, MODELS["resize"](), "r.onnx")))
    assert all(isinstance(v, np.ndarray) for v in resized.initializers.values())
    typed = lower(converter.read(saved(tmp_path, MODELS["typed"](), "t.onnx")))
    kinds = {n: type(v) for n, v in typed.initializers.items()}
    assert kinds["big"] is Weight  # of varints, which have no place of their own
    assert kinds["i"] is np.ndarray
    assert Folded not in kinds.values()


def test_inner_weights_are_the_bundles(tmp_path):
    graph = lower(converter.read(saved(tmp_path, MODELS["branches"]())))
    (node,) = (n for n in graph.nodes if n.op_type == "If")
    inner = node.attributes["then_branch"].initializers
    assert inner["k"] == Weight("k")


def test_external_data(tmp_path):
    model = plain()
    external_data_helper.convert_model_to_external_data(
        model, location="w.bin", size_threshold=0, convert_attribute=True
    )
    source = saved(tmp_path, model)
    assert (tmp_path / "w.bin").exists()
    graph = lower(converter.read(source))
    assert sum(isinstance(v, Weight) for v in graph.initializers.values()) == 6
    made = converter.convert(source, to="onnx", out=tmp_path / "o.onnx", options=QUIET)
    (tmp_path / "elsewhere").mkdir()
    moved = made.path.rename(tmp_path / "elsewhere" / "o.onnx")
    agree(source, moved)


def test_text(tmp_path):
    source = saved(tmp_path, plain())
    from google.protobuf import text_format

    (tmp_path / "m.pbtxt").write_text(text_format.MessageToString(onnx.load(source)))
    made = converter.convert(
        tmp_path / "m.pbtxt", to="onnx", out=tmp_path / "o.onnx", options=QUIET
    )
    agree(source, made.path)


def test_notes(tmp_path):
    graph = lower(converter.read(saved(tmp_path, MODELS["words_and_devices"]())))
    assert graph.notes == ["annotations of quantisation: 1", "doc strings of nodes: 1"]
    graph = lower(converter.read(saved(tmp_path, MODELS["default_value"]())))
    assert graph.notes == ["inputs with a default value, which is a constant now: 1"]


def test_who_made_it(tmp_path):
    model = plain()
    model.producer_name, model.producer_version = "pytorch", "1.7"
    source = saved(tmp_path, model)
    assert lower(converter.read(source)).exporter == "pytorch 1.7"
    made = converter.convert(source, to="portable", out=tmp_path / "o", options=QUIET)
    manifest = json.loads((made.path / "manifest.json").read_text())
    assert manifest["graph"]["opset"] == 18


def test_verified_by_onnxruntime(tmp_path):
    source = saved(tmp_path, MODELS["branches"]())
    made = converter.convert(source, to="onnx", out=tmp_path / "o.onnx")
    assert made.verification.graph.status == "passed"
    assert made.verification.graph.outputs.keys() == {"y", "total"}


def test_a_list_is_no_tensor_to_compare(tmp_path):
    source = saved(tmp_path, MODELS["forest"]())
    made = converter.convert(source, to="onnx", out=tmp_path / "o.onnx")
    assert made.verification.graph.status in ("passed", "not run")


def test_random_outputs_are_not_comparable(tmp_path):
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["y"]),
        helper.make_node("Neg", ["x"], ["z"]),
    ]
    model = _model(nodes, [_info("x", ["n", 3])], [_info("y", ["n", 3]), _info("z", ["n", 3])])
    made = converter.convert(saved(tmp_path, model), to="onnx", out=tmp_path / "o.onnx")
    assert made.verification.graph.status == "not run"
    assert "'y' of the source itself differs" in made.verification.graph.reason


@pytest.mark.parametrize("name", MODELS)
def test_types_are_those_that_onnx_infers(name, tmp_path):
    """As far as we know any: never another."""
    model = MODELS[name]()
    source = saved(tmp_path, model)
    made = converter.convert(source, to="onnx", out=tmp_path / "o.onnx", options=QUIET)
    known = {v.name: v.type.tensor_type.elem_type
             for v in onnx.shape_inference.infer_shapes(onnx.load(made.path)).graph.value_info
             if v.type.HasField("tensor_type")}  # fmt: skip
    graph = lower(converter.read(source))
    mine = {n: ELEMENT_TYPES[s.dtype] for n, s in graph.specs.items() if not s.type}
    assert {n: t for n, t in mine.items() if n in known} == {
        n: t for n, t in known.items() if n in mine
    }
    if name in ("plain", "opset_7", "branches", "functions"):
        assert known.keys() <= mine.keys()


def test_precision(tmp_path):
    """Values that the file says nothing of are narrow, too."""
    options = Options(precision="fp16")
    source = saved(tmp_path, plain())
    made = converter.convert(source, to="onnx", out=tmp_path / "o.onnx", options=options)
    assert made.verification.graph.status == "passed"
    kinds = {t.data_type for t in onnx.load(made.path).graph.initializer if t.name != "y"}
    assert TensorProto.FLOAT16 in kinds


# -- what is refused -----------------------------------------------------------------------------


def broken(change):
    model = plain()
    change(model)
    return model


def _twice(model):
    model.graph.node[1].output[0] = "a"


def _dangling(model):
    model.graph.node[2].input[0] = "nobody"


def _no_version(model):
    model.graph.node[2].domain = "com.acme"


def _untyped(model):
    model.graph.output[0].ClearField("type")


def _graphs(model):
    inner = helper.make_graph([], "i", [], [])
    model.graph.node[0].attribute.append(helper.make_attribute("many", [inner]))


def _reference(model):
    model.graph.node[1].attribute[0].ref_attr_name = "epsilon"


def _silent(model):
    del model.graph.output[:]


def _deep(model):
    model.graph.input[0].type.tensor_type.shape.dim.extend(
        [onnx.TensorShapeProto.Dimension(dim_value=1)] * 100
    )


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (_twice, CorruptError, "'a' is defined twice"),
        (_dangling, CorruptError, "Relu reads 'nobody', which is undefined"),
        (_no_version, CorruptError, "operators of domain 'com.acme', and no version of it"),
        (_untyped, UnsupportedError, "'y' is an input or output without a type"),
        (_reference, CorruptError, "BatchNormalization has a function's attribute"),
        (_silent, UnsupportedError, "the graph has no outputs"),
        (_deep, CorruptError, "a value of 104 axes"),
        (_graphs, UnsupportedError, "an attribute that is a list of graphs"),
    ],
)
def test_refused(change, error, words, tmp_path):
    source = saved(tmp_path, broken(change))
    with pytest.raises(error, match=words):
        converter.convert(source, to="onnx", out=tmp_path / "o.onnx", options=QUIET)
    assert not (tmp_path / "o.onnx").exists()


def test_names_of_weights_that_are_stripped(tmp_path):
    """``module.`` goes from names of tensors, and the graph still finds them; typed ones, too."""
    model = plain()
    for t in model.graph.initializer:
        for node in model.graph.node:
            for i, name in enumerate(node.input):
                node.input[i] = f"module.{t.name}" if name == t.name else name
        t.name = f"module.{t.name}"
    big = numpy_helper.to_array(model.graph.initializer[0])
    model.graph.initializer[0].CopyFrom(
        helper.make_tensor("module.w", TensorProto.FLOAT, big.shape, big.reshape(-1))
    )
    source = saved(tmp_path, model)
    options = replace(QUIET, strip_prefix="module.")
    made = converter.convert(source, to="portable", out=tmp_path / "o", options=options)
    assert {*made.bundle.weights} == {"w", "b", "scale", "bias", "mean", "spread"}
    agree(source, made.path / "model.onnx")
    assert not any(t.HasField("raw_data")
                   for t in onnx.load(made.path / "model.onnx", load_external_data=False)
                   .graph.initializer)  # fmt: skip


def test_an_initializer_that_is_an_output(tmp_path):
    model = plain()
    model.graph.output.append(_info("w", [4, 3, 3, 3]))
    model.graph.output.append(_info("image", ["batch", 3, 8, 8]))
    source = saved(tmp_path, model)
    made = converter.convert(source, to="portable", out=tmp_path / "o", options=QUIET)
    agree(source, made.path / "model.onnx")


def test_opsets_stay(tmp_path):
    source = saved(tmp_path, plain())
    with pytest.raises(UnsupportedError, match="is written for opset 18, not 21"):
        converter.convert(
            source, to="onnx", out=tmp_path / "o.onnx", options=replace(QUIET, opset=21)
        )
    converter.convert(source, to="onnx", out=tmp_path / "o.onnx", options=replace(QUIET, opset=18))


def test_a_function_that_calls_itself(tmp_path):
    model = functions()
    again = helper.make_node("block", ["u", "w", "flag"], ["l"], domain="own")
    model.functions[0].node[3].CopyFrom(again)
    source = saved(tmp_path, model)
    with pytest.raises(CorruptError, match="the function 'block' calls itself"):
        lower(converter.read(source))


def test_functions_that_double_themselves(tmp_path):
    """2**40 nodes out of forty functions."""
    model = _parsed(
        """<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
        g (float[n] x) => (float[n] y) { y = own.f0 (x) }"""
    )
    for i in range(40):
        last = i == 39
        calls = [
            helper.make_node("Neg" if last else f"f{i + 1}", [a], [b], domain="" if last else "own")
            for a, b in (("x", "a"), ("a", "y"))
        ]
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
        model.functions.append(helper.make_function("own", f"f{i}", ["x"], ["y"], calls, opsets))
    with pytest.raises(LimitError, match="functions inlined"):
        lower(converter.read(saved(tmp_path, model)), limits=Limits(max_nodes=20_000))


def test_functions_of_another_version(tmp_path):
    model = functions()
    model.functions[1].opset_import[0].version = 17
    with pytest.raises(UnsupportedError, match=r"has version 17 of ai\.onnx, the model 18"):
        lower(converter.read(saved(tmp_path, model)))


def test_a_sparse_giant(tmp_path):
    values = numpy_helper.from_array(np.ones(1, "f4"), "s")
    at = numpy_helper.from_array(np.zeros(1, "i8"), "i")
    model = _model([helper.make_node("Neg", ["s"], ["y"])], [], [_info("y", [1 << 20, 1 << 20])])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, at, [1 << 20, 1 << 20]))
    with pytest.raises(LimitError, match="were it dense"):
        lower(converter.read(saved(tmp_path, model)))


def test_names_of_functions_do_not_collide(tmp_path):
    """What a function's value would be called outside is somebody's name already."""
    model = functions()
    for node in model.graph.node[:1]:
        node.name = "call"
    model.graph.node.append(helper.make_node("Neg", ["x"], ["call/m"]))
    model.graph.output.append(_info("call/m", ["n", 4], TensorProto.FLOAT))
    source = saved(tmp_path, model)
    made = converter.convert(source, to="onnx", out=tmp_path / "o.onnx", options=QUIET)
    agree(source, made.path)


def test_a_function_that_hands_its_input_on(tmp_path):
    """Which onnxruntime refuses, and the specification does not."""
    model = _parsed(
        """<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
        g (float[n] x) => (float[n] y, float[n] z) { y, z = own.both (x) }
        <domain: "own", opset_import: ["" : 18]>
        both (a) => (a, c) { c = Neg (a) }"""
    )
    source = saved(tmp_path, model)
    made = converter.convert(source, to="onnx", out=tmp_path / "o.onnx", options=QUIET)
    x = np.arange(3, dtype="f4")
    y, z = session(made.path).run(None, {"x": x})
    assert np.array_equal(y, x)
    assert np.array_equal(z, -x)


def test_tied_weights_are_one(tmp_path):
    """The same bytes of one file under two names are stored once."""
    model = _parsed(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, 40] x) => (float[n, 40] y) {
            h = MatMul (x, a)
            y = MatMul (h, b)
        }""",
        _weight("a", 40, 40), _weight("b", 40, 40),
    )  # fmt: skip
    external_data_helper.convert_model_to_external_data(model, location="w.bin", size_threshold=0)
    source = saved(tmp_path, model)
    proto = onnx.load(source, load_external_data=False)
    del proto.graph.initializer[1].external_data[:]
    for entry in proto.graph.initializer[0].external_data:
        proto.graph.initializer[1].external_data.add(key=entry.key, value=entry.value)
    source.write_bytes(proto.SerializeToString())
    made = converter.convert(source, to="portable", out=tmp_path / "o", options=QUIET)
    agree(source, made.path / "model.onnx")
    assert (made.path / "model.safetensors").stat().st_size < 2 * 40 * 40 * 4


@pytest.mark.parametrize("at", [[0, 12], [-1, 2]])
def test_sparse_places_outside(at, tmp_path):
    model = MODELS["sparse"]()
    model.graph.sparse_initializer[0].indices.CopyFrom(
        numpy_helper.from_array(np.array([*at, 3], "i8"), "i")
    )
    source = saved(tmp_path, model)
    with pytest.raises(CorruptError, match="indices"):
        converter.convert(source, to="onnx", out=tmp_path / "o.onnx", options=QUIET)
    assert not (tmp_path / "o.onnx").exists()
