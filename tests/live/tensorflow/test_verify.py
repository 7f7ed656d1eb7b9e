"""TensorFlow itself beside onnxruntime, on graphs written by hand: what differs is always found.

The Python that has TensorFlow is this one, or the one that CONVERT_TENSORFLOW_PYTHON names; one
process of it answers all.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from comparing import comparing
from onnx_by_hand import TYPES, value, written
from onnx_run import write_onnx
from repository import ROOT
from tensorflow_server import stand_in

import converter
from converter.cli.app import run
from converter.cli.help_pages import DEFAULT
from converter.lower import lower
from converter.lower.graph import Graph, Spec, Trace
from converter.verification.graphs import verify_graph
from converter.verification.runners import PYTHON_VARIABLE
from converter.verification.savedmodel_files import verify_savedmodel
from converter.verification.sources import keras as sources
from formats.errors import UsageError

onnx = pytest.importorskip("onnx")
helper = pytest.importorskip("onnx.helper")
numpy_helper = pytest.importorskip("onnx.numpy_helper")

FIXTURES = ROOT / "fixtures" / "verify_tensorflow"
PYTHON = os.environ.get(PYTHON_VARIABLE)
HAS_TENSORFLOW = PYTHON is not None or importlib.util.find_spec("tensorflow") is not None

pytestmark = pytest.mark.skipif(
    not HAS_TENSORFLOW, reason=f"no TensorFlow here, nor by {PYTHON_VARIABLE}"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with stand_in(PYTHON or sys.executable, tmp_path_factory.mktemp("tf")) as path:
        yield path


@pytest.fixture(autouse=True)
def warm(server, monkeypatch):
    monkeypatch.setenv(PYTHON_VARIABLE, str(server))


def weights_of(bundle):
    return {name.rpartition("/")[2]: tensor.numpy() for name, tensor in bundle.weights.items()}


def without_lowering(monkeypatch, graph=None):
    """Take the file for somebody else's, or for one that came of this graph."""
    monkeypatch.setattr(sources, "_lower_source", lambda *_, **__: graph)


# -- signatures ----------------------------------------------------------------------------------


def heads(path, factor=1.0, kernel=None, flipped=False, dtype="float32"):
    bundle = converter.read(FIXTURES / "heads")
    weights = weights_of(bundle) | {"factor": np.float32(factor)}
    if kernel is not None:
        weights["kernel"] = kernel(weights["kernel"].copy())
    near, far = ("far", "near") if flipped else ("near", "far")
    nodes = [
        ("MatMul", "zeta kernel", "a"), ("Add", "a bias", "b"), ("Tanh", "b", "mixed"),
        ("Mul", "mixed factor", "c"), ("Cast", "c", near, {"to": TYPES[dtype]}),
        ("MatMul", "alpha kernel", "d"), ("Sub", "d mixed", far),
    ]  # fmt: skip
    inputs = [value("alpha", "float32", "n", 6), value("zeta", "float32", "n", 6)]
    outputs = [value("far", "float32", "n", 4), value("near", dtype, "n", 4)]
    return FIXTURES / "heads", bundle, written(path, nodes, inputs, outputs, weights)


def test_a_faithful_graph_passes(tmp_path):
    report = verify_graph(*heads(tmp_path / "m.onnx"))
    assert report.status == "passed", report.reason
    assert (report.source.name, report.source.device) == ("tensorflow", "CPU:0")
    assert report.source.version.startswith("2.")
    assert report.source.versions["numpy"]
    assert [c.inputs["zeta"][1] for c in report.cases] == [(1, 6), (3, 6)]
    assert report.notes == ("signature 'serving_default'",)
    assert all(m.elements == 16 and m.max_rel < 1e-5 for m in report.outputs.values())


def one_sign(kernel):
    kernel.flat[np.argmax(np.abs(kernel))] *= -1
    return kernel


FAULTS = {
    "a wrong weight": ({"kernel": one_sign}, "differ"),
    "swapped outputs": ({"flipped": True}, "differ"),
    "another dtype": ({"dtype": "float64"}, "is float64; the source's is float32"),
    "another factor": ({"factor": 1.001}, "1 of 2 outputs differ: 'near'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(tmp_path, fault):
    change, complaint = FAULTS[fault]
    report = verify_graph(*heads(tmp_path / "m.onnx", **change))
    assert report.status == "failed"
    assert complaint in report.reason


def test_an_input_of_another_dtype(tmp_path):
    source, bundle, path = heads(tmp_path / "m.onnx")
    model = onnx.load(path)
    (given,) = (i for i in model.graph.input if i.name == "zeta")
    given.CopyFrom(value("zeta", "float64", "n", 6))
    model.graph.node[0].input[0] = "narrow"
    model.graph.node.insert(0, helper.make_node("Cast", ["zeta"], ["narrow"], to=1))
    onnx.save(model, path)
    report = verify_graph(source, bundle, path)
    assert (report.status, report.reason) == (
        "failed", "input 'zeta' is float64; the source's is float32",
    )  # fmt: skip


def test_the_signature_of_a_file_is_found_by_what_it_computes(tmp_path):
    args = heads(tmp_path / "m.onnx", factor=2.0)
    report = verify_graph(*args)
    assert report.status == "passed", report.reason
    assert report.notes == ("signature 'doubled'",)
    report = verify_graph(*args, signature="serving_default")
    assert report.status == "failed"
    assert verify_graph(*args, signature="doubled").status == "passed"


def test_a_signature_without_inputs(tmp_path):
    bundle = converter.read(FIXTURES / "heads")
    bias = weights_of(bundle)["bias"]
    nodes = [("Identity", "b", "bias")]
    path = written(tmp_path / "m.onnx", nodes, [], [value("bias", "float32", 4)], {"b": bias})
    report = verify_graph(FIXTURES / "heads", bundle, path)
    assert report.status == "passed", report.reason
    assert report.notes == ("signature 'kept'",)
    path = written(tmp_path / "m.onnx", nodes, [], [value("bias", "float32", 4)], {"b": bias * 2})
    assert verify_graph(FIXTURES / "heads", bundle, path).status == "failed"


def test_a_file_whose_outputs_are_renamed(tmp_path):
    source, bundle, path = heads(tmp_path / "m.onnx")
    model = onnx.load(path)
    for node in model.graph.node:
        node.output[:] = [f"{n}:0" if n in ("near", "far") else n for n in node.output]
    for output in model.graph.output:
        output.name += ":0"
    onnx.save(model, path)
    report = verify_graph(source, bundle, path)
    assert report.status == "failed"
    assert report.reason == "the outputs are named 'far:0', 'near:0', the source's 'far', 'near'"
    del model.graph.output[1:]
    onnx.save(model, path)
    report = verify_graph(source, bundle, path)
    assert report.reason == "the graph has 1 outputs, signature 'serving_default' 2"


# -- what a runner must take care of -------------------------------------------------------------


def test_each_case_begins_with_the_state_that_was_saved(tmp_path):
    bundle = converter.read(FIXTURES / "counter")

    def report(by):
        path = written(
            tmp_path / "m.onnx", [("Add", "x by", "y")], [value("x", "float32", "n", 3)],
            [value("y", "float32", "n", 3)], {"by": np.float32(by)},
        )  # fmt: skip
        return verify_graph(FIXTURES / "counter", bundle, path)

    assert report(1).status == "passed", report(1).reason
    assert report(2).status == "failed"


def noisy(path, factor=2.0):
    nodes = [("Mul", "x two", "plain"), ("Identity", "x", "noise")]
    outputs = [value("noise", "float32", "n", 3), value("plain", "float32", "n", 3)]
    weights = {"two": np.float32(factor)}
    return written(path, nodes, [value("x", "float32", "n", 3)], outputs, weights)


def test_random_outputs_are_never_passed(tmp_path):
    bundle = converter.read(FIXTURES / "noisy")
    report = verify_graph(FIXTURES / "noisy", bundle, noisy(tmp_path / "m.onnx"))
    assert (report.status, [*report.outputs]) == ("not run", ["plain"])
    assert report.outputs["plain"].passed
    assert report.reason == (
        "'noise' of the source itself differs from run to run (RandomUniform): not comparable; "
        "all others agree"
    )
    report = verify_graph(FIXTURES / "noisy", bundle, noisy(tmp_path / "m.onnx", 2.1))
    assert report.status == "failed"
    assert "'plain'" in report.reason


def words(path, upper="UPPER"):
    bundle = converter.read(FIXTURES / "words")
    weights = weights_of(bundle)
    known = bundle.assets["animals.txt"].read(0, bundle.assets["animals.txt"].length).split()
    nodes = [
        ("LabelEncoder", "words", "w", {
            "keys_strings": known, "values_int64s": list(range(5)), "default_int64": 5,
        }),
        ("Gather", "rows w", "a"), ("Gather", "table ids", "b"), ("Add", "a b", "c"),
        ("ReduceMean", "c axis", "mean", {"keepdims": 0}),
        ("StringNormalizer", "flat", "u", {"case_change_action": upper, "locale": "C"}),
        ("Reshape", "words all", "flat"), ("Shape", "words", "s"), ("Reshape", "u s", "upper"),
    ]  # fmt: skip
    nodes = [nodes[i] for i in (0, 1, 2, 3, 4, 6, 5, 7, 8)]
    inputs = [value("ids", "int64", "n", "t"), value("words", "string", "n", "t")]
    outputs = [value("mean", "float32", "n", 3), value("upper", "string", "n", "t")]
    weights |= {"axis": np.array([1]), "all": np.array([-1])}
    return FIXTURES / "words", bundle, written(path, nodes, inputs, outputs, weights)


def test_words_and_tables_of_a_file(tmp_path, monkeypatch):
    graph = Graph("g", 18, inputs=["ids", "words"], outputs=["mean", "upper"])
    graph.specs = {
        "ids": Spec("int64", ("n", "t")), "words": Spec("string", ("n", "t")),
        "table": Spec("float32", (9, 3)), "b": Spec("float32", ("n", "t", 3)),
    }  # fmt: skip
    graph.nodes = [sources_node("Gather", ["table", "ids"], ["b"])]
    without_lowering(monkeypatch, graph)
    report = verify_graph(*words(tmp_path / "m.onnx"), options=comparing(samples=4))
    assert report.status == "passed", report.reason
    assert not report.skipped
    assert len(report.cases) == 8
    report = verify_graph(*words(tmp_path / "m.onnx", "LOWER"))
    assert report.status == "failed"
    assert "texts differ" in report.reason


def sources_node(op, inputs, outputs):
    from converter.lower.graph import Node

    return Node(op, inputs, outputs)


def test_every_dtype(tmp_path):
    bundle = converter.read(FIXTURES / "types")
    nodes = [
        ("Cast", "picture", "p", {"to": 6}),
        ("ReduceSum", "p axes", "levels", {"keepdims": 0}),
        ("Add", "wide wide", "wide_out"), ("Add", "half half", "half_out"),
        ("Neg", "whole", "minus"), ("Where", "flags whole minus", "whole_out"),
    ]  # fmt: skip
    inputs = [
        value("flags", "bool", 2), value("half", "float16", 2),
        value("picture", "uint8", "n", 4, 4, 3), value("whole", "int32", 2),
        value("wide", "float64", 2),
    ]  # fmt: skip
    outputs = [
        value("half_out", "float16", 2), value("levels", "int32", "n", 3),
        value("whole_out", "int32", 2), value("wide_out", "float64", 2),
    ]  # fmt: skip
    weights = {"axes": np.array([1, 2])}
    path = written(tmp_path / "m.onnx", nodes, inputs, outputs, weights)
    report = verify_graph(FIXTURES / "types", bundle, path)
    assert report.status == "passed", report.reason
    assert report.outputs["levels"].scale > 500  # pictures, not zeros
    assert report.notes[0] == "signature 'serving_default'"  # its names are without _out
    nodes[2] = ("Mul", "wide wide", "wide_out")
    path = written(tmp_path / "m.onnx", nodes, inputs, outputs, weights)
    report = verify_graph(FIXTURES / "types", bundle, path)
    assert report.reason.startswith("1 of 4 outputs differ: 'wide_out'")


# -- graphs of every age -------------------------------------------------------------------------


def test_a_module_of_the_hub(tmp_path):
    bundle = converter.read(FIXTURES / "hub")
    (term,) = (t.numpy() for t in bundle.weights.values())
    for factor, status in ((1, "passed"), (1.01, "failed")):
        path = written(
            tmp_path / "m.onnx", [("Add", "default w", "default_out")],
            [value("default", "float32", "n", 3)], [value("default_out", "float32", "n", 3)],
            {"w": term * np.float32(factor)},
        )  # fmt: skip
        assert verify_graph(FIXTURES / "hub", bundle, path).status == status


def test_several_meta_graphs(tmp_path):
    source = FIXTURES.parent / "tensorflow" / "multi_tags"
    bundle = converter.read(source)
    assert {s.name for s in bundle.signatures} >= {"serving_default", "serving_default@serve, gpu"}
    weights = weights_of(bundle)
    nodes = [("MatMul", "x w", "y"), ("MatMul", "y part", "z")]
    path = tmp_path / "m.onnx"
    inputs, outputs = [value("x", "float32", "n", 3)], [value("z", "float32", "n", 4)]
    for factor, status in ((1, "passed"), (2, "failed")):
        weights["w"] = weights["w"] * np.float32(factor)
        written(path, nodes, inputs, outputs, weights | {"part": weights["part"][:2]})
        for name in ("serving_default", "serving_default@serve, gpu"):
            report = verify_graph(source, bundle, path, signature=name)
            assert report.status == status, report.reason
            assert report.notes == (f"signature {name!r}",)


def without_field(data, number):
    """Take a field out of the MetaGraphDef of a SavedModel, which is its field 2."""

    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 0x80:
                return value, at

    def fields(at, end):
        while at < end:
            tag, after = varint(at)
            if tag & 7 == 2:
                length, after = varint(after)
                yield tag >> 3, data[at : after + length], after, after + length
                at = after + length
            else:
                _, after = varint(after)
                yield tag >> 3, data[at:after], after, after
                at = after

    made = b""
    for field, raw, start, end in fields(0, len(data)):
        if field == 2:
            kept = b"".join(part for n, part, *_ in fields(start, end) if n != number)
            size, length = b"", len(kept)
            while length >= 0x80:
                size, length = size + bytes([length & 0x7F | 0x80]), length >> 7
            raw = b"\x12" + size + bytes([length]) + kept
        made += raw
    return made


def test_what_only_tensorflow_2_loads(tmp_path):
    folder = tmp_path / "h"
    shutil.copytree(FIXTURES / "heads", folder)
    file = folder / "saved_model.pb"
    file.write_bytes(without_field(file.read_bytes(), 3))  # how a Session restores variables
    _, bundle, path = heads(tmp_path / "m.onnx")
    report = verify_graph(folder, bundle, path)
    assert report.status == "passed", report.reason
    assert "loaded as TensorFlow 2 does it" in report.notes[0]
    _, bundle, path = heads(tmp_path / "m.onnx", kernel=one_sign)
    assert verify_graph(folder, bundle, path).status == "failed"


def meta(folder, bias=None):
    bundle = converter.read(folder / "model.ckpt-7.meta")
    weights = weights_of(converter.read(FIXTURES / "meta" / "model.ckpt-7"))
    if bias is not None:
        weights["bias"] = bias
    nodes = [
        ("MatMul", "x kernel", "m"), ("Add", "m bias", "y"),
        ("ArgMax", "y", "i", {"axis": 1, "keepdims": 0}), ("Cast", "i", "f", {"to": 1}),
        ("Mul", "f two", "g"), ("Add", "g seven", "z"),
    ]  # fmt: skip
    weights |= {"two": np.float32(2), "seven": np.float32(7)}
    outputs = [value("y", "float32", "n", 2), value("z", "float32", "n")]
    path = folder / "m.onnx"
    written(path, nodes, [value("x", "float32", "n", 4)], outputs, weights)
    return folder / "model.ckpt-7.meta", bundle, path


def test_a_meta_graph_with_its_checkpoint_and_the_devices_of_another_machine(tmp_path):
    folder = tmp_path / "meta"
    shutil.copytree(FIXTURES / "meta", folder)
    assert "GPU:1" in "".join(converter.read(folder / "model.ckpt-7.meta").metadata.devices)
    report = verify_graph(*meta(folder))
    assert report.status == "passed", report.reason
    report = verify_graph(*meta(folder, bias=np.zeros(2, "f4")))
    assert report.status == "failed"
    (folder / "model.ckpt-7.index").unlink()
    report = verify_graph(*meta(folder))
    assert (report.status, report.is_failing) == ("not run", True)
    assert "FailedPreconditionError" in report.reason  # of any of its variables


# -- graphs as they are lowered ------------------------------------------------------------------


def converted(source, path, edit=None, signature=None):
    bundle = converter.read(source)
    graph = lower(bundle, signature=signature)
    write_onnx(path, graph, bundle.weights)
    if edit is not None:
        model = onnx.load(path)
        edit(model.graph)
        onnx.save(model, path)
    return source, bundle, path


LOWERED = [
    "tensorflow/simple_save", "tensorflow/keras2_sequential", "tensorflow/keras24_mirrored",
    "tensorflow/mirrored_expanded", "tensorflow/module_tf2",
    "tensorflow/multi_tags", "tensorflow/text_savedmodel", "verify_tensorflow/counter",
    "verify_tensorflow/heads", "verify_tensorflow/hub", "verify_tensorflow/types",
]  # fmt: skip


@pytest.mark.parametrize("name", LOWERED)
def test_what_is_lowered_passes(tmp_path, name):
    report = verify_graph(*converted(FIXTURES.parent / name, tmp_path / "m.onnx"))
    assert report.status == "passed", report.reason
    assert all(m.max_rel < 1e-4 for m in report.outputs.values())


def node(graph, op_type, number=0):
    return [n for n in graph.node if n.op_type == op_type][number]


def flipped(op_type, number=0):
    """Turn the sign of a node's weights."""

    def edit(graph):
        name = node(graph, op_type, number).input[1]
        (found,) = [t for t in graph.initializer if t.name == name]
        found.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(found), name))

    return edit


def without(op_type):
    def edit(graph):
        gone = node(graph, op_type)
        gone.op_type = "Identity"
        del gone.attribute[:], gone.input[1:]

    return edit


def test_a_branch_that_is_taken_or_not(tmp_path):
    source, bundle, path = converted(FIXTURES / "branches.pb", tmp_path / "m.onnx")
    assert [o.name for o in onnx.load(path).graph.output] == ["y"]
    report = verify_graph(source, bundle, path)
    assert report.status == "passed", report.reason
    for flag in (True, False):
        np.savez(tmp_path / "i.npz", x=np.ones((2, 3), "f4"), is_training=np.array(flag))
        report = verify_graph(source, bundle, path, options=comparing(inputs=tmp_path / "i.npz"))
        assert report.status == "passed", report.reason


PLANTED = {
    # name: (source, what is planted, the node that must be named)
    "a kernel in a function": (
        "verify_tensorflow/heads", flipped("MatMul"),
        "StatefulPartitionedCall_2/StatefulPartitionedCall/MatMul",
    ),
    "a dropped tanh": (
        "verify_tensorflow/heads", without("Tanh"),
        "StatefulPartitionedCall_2/StatefulPartitionedCall/Tanh",
    ),
    "a kernel of TensorFlow 1": ("tensorflow/simple_save", flipped("MatMul"), "y/MatMul"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_the_node_that_differs_is_named(tmp_path, name):
    source, edit, node = PLANTED[name]
    report = verify_graph(*converted(FIXTURES.parent / source, tmp_path / "m.onnx", edit))
    assert report.status == "failed"
    assert report.first_difference.layer == node
    assert report.first_difference.class_name == node.rpartition("/")[2]


JOINED = FIXTURES.parent / "tensorflow" / "joined"
PLACES = [("graph.pb", "named"), ("graph.pbtxt", "objects"), ("parts.meta", "parts"), ("parts", "")]


@pytest.mark.parametrize(("name", "checkpoint"), PLACES)
def test_a_graph_with_the_checkpoint_that_was_joined(tmp_path, name, checkpoint):
    source = JOINED / name
    bundle = converter.read(source, checkpoint=JOINED / checkpoint if checkpoint else None)
    graph = lower(bundle)
    path = tmp_path / "m.onnx"
    write_onnx(path, graph, bundle.weights)
    report = verify_graph(source, bundle, path)
    assert report.status == "passed", report.reason
    model = onnx.load(path)
    (kernel,) = (t for t in model.graph.initializer if list(t.dims) == [4, 3])
    kernel.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(kernel), kernel.name))
    onnx.save(model, path)
    report = verify_graph(source, bundle, path)
    assert report.status == "failed"
    assert report.first_difference.class_name == "MatMul"


def test_the_command_takes_a_folder_of_signatures_and_a_checkpoint(tmp_path, capsys):
    out = tmp_path / "heads-onnx"
    converter.convert(FIXTURES / "heads", to="onnx", out=out)
    assert {p.name for p in out.iterdir()} == {
        "model.onnx", "model.doubled.onnx", "model.kept.onnx",
    }  # fmt: skip
    assert run(["verify", str(FIXTURES / "heads"), str(out), "--require", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("graph       passed") == 3
    assert "note        signature 'doubled'" in shown
    joined = ["--from-checkpoint", str(JOINED / "named")]
    made = ["-o", str(tmp_path / "g.onnx"), "--to", "onnx", "--verify", "cpu"]
    assert run([DEFAULT, str(JOINED / "graph.pb"), *made, *joined]) == 0
    assert "beside tensorflow 2" in capsys.readouterr().err
    arguments = ["verify", str(JOINED / "graph.pb"), str(tmp_path / "g.onnx")]
    assert run([*arguments, *joined]) == 0
    capsys.readouterr()
    assert run(arguments) == 1  # nothing is compared
    assert "graph       not run" in capsys.readouterr().out


FROZEN = Graph(
    "g", 18,
    inputs=["ids", "keep_prob"], outputs=["scores", "loop/Exit_1"],
    sources={
        "ids": "ids:0", "keep_prob": "keep_prob:0", "scores": "scores:0",
        "loop/Exit_1": "loop/Exit_1:0",
    },
    specs={
        "ids": Spec("int32", ("n", "t")), "keep_prob": Spec("float32", ()),
        "table": Spec("float32", (11, 4)), "rows": Spec("float32", ("n", "t", 4)),
        "mean": Spec("float32", ("n", 4)), "logits": Spec("float32", ("n", 3)),
    },
    nodes=[],
    traces=[
        Trace("mean", "Mean", 0, "mean", (0, 1)),
        Trace("loop/Merge_1", "Merge", 0, "mean", (0, 1)),  # in a loop: cannot be fetched
        Trace("logits", "MatMul", 0, "logits", (0, 1)),
    ],
)  # fmt: skip


def frozen(path, name="frozen.pb", table=None):
    FROZEN.nodes = [sources_node("Gather", ["table", "ids"], ["rows"])]
    bundle = converter.read(FIXTURES / name)
    weights = weights_of(bundle)
    weights = {n: weights[n] for n in ("table", "kernel")}
    if table is not None:
        weights["table"] = table(weights["table"].copy())
    nodes = [
        ("Gather", "table ids", "rows"), ("ReduceMean", "rows axis", "mean", {"keepdims": 0}),
        ("MatMul", "mean kernel", "logits"), ("Softmax", "logits", "scores", {"axis": -1}),
        ("Mul", "mean a", "b"), ("Add", "b c", "loop/Exit_1"),
    ]  # fmt: skip
    # three times: x * 1.5 + 1
    weights |= {"axis": np.array([1]), "a": np.float32(1.5**3), "c": np.float32(4.75)}
    inputs = [value("ids", "int32", "n", "t"), value("keep_prob", "float32")]
    outputs = [value("scores", "float32", "n", 3), value("loop/Exit_1", "float32", "n", 4)]
    return FIXTURES / name, bundle, written(path, nodes, inputs, outputs, weights)


@pytest.mark.parametrize("name", ["frozen.pb", "frozen.pbtxt"])
def test_a_frozen_graph_with_a_loop_and_dropout_that_is_switched_off(tmp_path, monkeypatch, name):
    without_lowering(monkeypatch, FROZEN)
    report = verify_graph(*frozen(tmp_path / "m.onnx", name))
    assert report.status == "passed", report.reason
    assert not report.skipped


def test_layers_that_are_drawn_at_random_are_not_compared(tmp_path):
    """An output that says little has layers compared; what is drawn differs, and says nothing."""
    made = converter.convert(FIXTURES / "frozen.pb", to="onnx", out=tmp_path / "m.onnx")
    (report,) = made.verification.graphs.values()
    assert (report.status, report.reason) == ("passed", "")
    assert report.layers


def test_dropout_that_is_not_switched_off_is_not_comparable(tmp_path, monkeypatch):
    without_lowering(monkeypatch, FROZEN)
    np.savez(tmp_path / "i.npz", ids=np.array([[1, 2], [3, 4]]), keep_prob=np.float32(0.5))
    options = comparing(inputs=tmp_path / "i.npz")
    report = verify_graph(*frozen(tmp_path / "m.onnx"), options=options)
    assert report.status == "not run"
    assert "(RandomUniform): not comparable" in report.reason


def test_the_first_tensor_that_differs_is_named(tmp_path, monkeypatch):
    without_lowering(monkeypatch, FROZEN)

    def table(array):
        return array * np.float32(1.5)

    report = verify_graph(*frozen(tmp_path / "m.onnx", table=table))
    assert report.status == "failed"
    assert report.first_difference.layer == "mean"
    assert report.first_difference.class_name == "Mean"


def test_a_graph_that_says_nowhere_what_its_outputs_are(tmp_path, monkeypatch):
    without_lowering(monkeypatch)
    report = verify_graph(*frozen(tmp_path / "m.onnx"))
    assert report.status == "not run"
    assert "declares no signature" in report.reason


# -- what is not run -----------------------------------------------------------------------------


def adding(path):
    return written(
        path, [("Add", "x one", "y")], [value("x", "float32", "n", 3)],
        [value("y", "float32", "n", 3)], {"one": np.float32(1)},
    )  # fmt: skip


def test_a_graph_that_would_write_a_file_is_not_run(tmp_path):
    bundle = converter.read(FIXTURES / "writing")
    report = verify_graph(FIXTURES / "writing", bundle, adding(tmp_path / "m.onnx"))
    assert report.status == "not run"
    assert "running it would touch files or run code (SaveV2)" in report.reason
    assert not Path("/tmp/convert-was-here.index").exists()


def test_a_saved_model_without_its_variables_is_verified_on_weights_only(tmp_path):
    shutil.copytree(FIXTURES / "counter", tmp_path / "c")
    shutil.rmtree(tmp_path / "c" / "variables")
    bundle = converter.read(tmp_path / "c")
    report = verify_graph(tmp_path / "c", bundle, adding(tmp_path / "m.onnx"))
    assert report.status == "not run"
    assert report.reason.startswith(
        "no TensorFlow here runs the source: verified on weights only (tensorflow 2"
    )


def test_an_operation_that_this_tensorflow_has_not(tmp_path):
    shutil.copytree(FIXTURES / "hub", tmp_path / "h")
    file = tmp_path / "h" / "saved_model.pb"
    file.write_bytes(file.read_bytes().replace(b"AddV2", b"AddV9"))
    bundle = converter.read(tmp_path / "h")
    path = written(
        tmp_path / "m.onnx", [("Identity", "default", "default_out")],
        [value("default", "float32", "n", 3)], [value("default_out", "float32", "n", 3)],
    )  # fmt: skip
    report = verify_graph(tmp_path / "h", bundle, path)
    assert report.status == "not run"
    assert "AddV9" in report.reason


def test_a_process_of_its_own_is_what_a_user_has(tmp_path, monkeypatch):
    if PYTHON:
        monkeypatch.setenv(PYTHON_VARIABLE, PYTHON)
    else:
        monkeypatch.delenv(PYTHON_VARIABLE)
    source, bundle, path = heads(tmp_path / "m.onnx")
    report = verify_graph(source / "saved_model.pb", bundle, path)
    assert report.status == "passed", report.reason
    renamed = tmp_path / "other.pb"
    renamed.write_bytes((FIXTURES / "hub" / "saved_model.pb").read_bytes())
    path = written(
        tmp_path / "m.onnx", [("Identity", "default", "default_out")],
        [value("default", "float32", "n", 3)], [value("default_out", "float32", "n", 3)],
    )  # fmt: skip
    report = verify_graph(renamed, converter.read(renamed), path)
    assert report.status == "failed"  # it was run


# -- inputs of bytes, which the graph is given decoded -------------------------------------------


@pytest.fixture(scope="module")
def parsing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parsing")
    shutil.unpack_archive(FIXTURES.parent / "tf_parsing" / "models.zip", folder)
    return folder


def decoded(parsing, path, name, signature, change=None):
    """Return source, bundle and file of a signature, of which something may be wrong."""
    source = parsing / name
    bundle = converter.read(source)
    graph = lower(bundle, signature=signature)
    if change is not None:
        change(graph)
    return source, bundle, write_onnx(path, graph, bundle.weights)


@pytest.mark.parametrize(
    ("name", "signature", "kind"),
    [
        ("features", "serving_default", "serialized tf.Example"),
        ("pictures", "one", "picture"),
        ("pictures", "first_of", "base64 text"),
        ("sounds.pb", None, "WAV file"),
    ],
)
def test_what_bytes_decode_to_is_fed_as_bytes(tmp_path, parsing, name, signature, kind):
    args = decoded(parsing, tmp_path / "m.onnx", name, signature)
    report = verify_graph(*args, signature=signature)
    assert report.status == "passed", report.reason
    assert any(note.endswith(f"is fed as {kind}") for note in report.notes)


def test_a_signature_is_found_by_its_outputs_where_inputs_are_decoded(tmp_path, parsing):
    report = verify_graph(*decoded(parsing, tmp_path / "m.onnx", "estimator", "regression"))
    assert report.status == "passed", report.reason
    assert "signature 'regression'" in report.notes
    assert not report.skipped


def test_a_wrong_place_of_a_sparse_value_shows(tmp_path, parsing):
    def mistaken(graph):
        for node in graph.nodes:
            node.inputs[:] = ["few/lengths" if n == "ids/lengths" else n for n in node.inputs]

    args = decoded(parsing, tmp_path / "m.onnx", "features", "serving_default", mistaken)
    assert verify_graph(*args, signature="serving_default").status == "failed"


def test_lengths_that_contradict_values_are_refused(tmp_path, parsing):
    args = decoded(parsing, tmp_path / "m.onnx", "features", "twice")
    given = {"dense": np.ones((2, 3), "f4"), "ids/values": np.arange(4), "ids/lengths": [1, 2]}
    np.savez(tmp_path / "x.npz", **given)
    options = comparing(inputs=tmp_path / "x.npz")
    with pytest.raises(UsageError, match="4 values in 'ids/values'; expected 3"):
        verify_graph(*args, options=options, signature="twice")
    np.savez(tmp_path / "x.npz", **given | {"ids/lengths": np.array([1, 3])})
    report = verify_graph(*args, options=options, signature="twice")
    assert report.status == "passed", report.reason


def test_a_savedmodel_issued_again_is_fed_as_its_source(parsing):
    source = parsing / "features"
    bundle = converter.read(source)
    reports = verify_savedmodel(source, bundle, source, signature="twice")
    assert reports["twice"].status == "passed", reports["twice"].reason
