"""Keras itself beside onnxruntime: what is right passes, what is planted is found and named.

The Python that has Keras is this one, or the one that CONVERT_TENSORFLOW_PYTHON names.
"""

import json
import zipfile

import h5py
import numpy as np
import pytest
from comparing import comparing
from html_pages import read_page
from keras_python import NEEDS_KERAS
from onnx_run import write_onnx
from repository import ROOT

import converter
from converter import passes
from converter.cli.app import run
from converter.lower import lower
from converter.options import Comparison, Options
from converter.verification.coverage import MAX_CASES
from converter.verification.graphs import verify_graph
from formats.errors import UsageError

onnx = pytest.importorskip("onnx")

numpy_helper = pytest.importorskip("onnx.numpy_helper")

FIXTURES = ROOT / "fixtures" / "verify"

pytestmark = NEEDS_KERAS


def converted(name, folder, edit=None):
    """Convert a fixture, plant a fault in it, and return what `verify_graph` takes."""
    source = FIXTURES / name
    bundle = converter.read(source)
    graph = passes.run(lower(bundle), bundle.weights)
    path = write_onnx(folder / "model.onnx", graph, bundle.weights)
    if edit is not None:
        model = onnx.load(path)
        edit(model.graph)
        onnx.save(model, path)
    return source, bundle, path


MODELS = [
    f"{name}{suffix}"
    for name in ("image", "pairs", "text", "sequence", "half")
    for suffix in (".keras", ".h5")
]


@pytest.mark.parametrize("name", MODELS)
def test_a_faithful_conversion_passes(tmp_path, name):
    report = verify_graph(*converted(name, tmp_path))
    assert report.status == "passed", report.reason
    assert report.source.name == ("keras" if name.endswith(".keras") else "tf_keras")
    assert report.source.device == "CPU:0"
    assert report.source.versions["backend"] == "tensorflow"
    assert (report.converted.name, report.converted.device) == (
        "onnxruntime",
        "CPUExecutionProvider",
    )
    assert 2 <= len(report.cases) <= 2 + MAX_CASES  # some reach more of the graph
    assert len({shape[0] for c in report.cases for _, shape in c.inputs.values()}) == 2
    assert not report.skipped
    assert not report.notes
    for measure in report.outputs.values():
        assert measure.elements
        assert measure.max_rel < (1e-2 if name.startswith("half") else 1e-5)
        assert measure.cosine > 0.999


@pytest.mark.parametrize("row", ["hashing-masked.keras.keras", "crossing-mixed.tf_keras.h5"])
def test_keras_is_fed_the_strings_of_which_the_file_takes_fingerprints(tmp_path, row):
    source = tmp_path / row
    with zipfile.ZipFile(ROOT / "fixtures" / "keras_layers" / "hashed_strings.zip") as archive:
        source.write_bytes(archive.read(row))
    bundle = converter.read(source)
    path = write_onnx(tmp_path / "model.onnx", lower(bundle), bundle.weights)
    report = verify_graph(source, bundle, path)
    assert report.status == "passed", report.reason
    assert all(measure.max_rel == 0 for measure in report.outputs.values())


def test_kernels_of_theano_are_turned_around_in_the_reference(tmp_path):
    source = tmp_path / "theano.h5"
    source.write_bytes((FIXTURES / "half.h5").read_bytes())
    with h5py.File(source, "r+") as file:
        for group in (file, file["model_weights"]):
            group.attrs["backend"] = b"theano"
    bundle = converter.read(source)
    graph = passes.run(lower(bundle), bundle.weights)
    path = write_onnx(tmp_path / "model.onnx", graph, bundle.weights)
    report = verify_graph(source, bundle, path)
    assert report.status == "passed", report.reason
    assert any("Theano's kernels of" in note for note in report.notes)


# -- faults --------------------------------------------------------------------------------------


def changed(graph, name, change):
    """Change an initializer of an ONNX graph."""
    (found,) = [t for t in graph.initializer if t.name == name]
    array = np.array(numpy_helper.to_array(found))
    found.CopyFrom(numpy_helper.from_array(change(array).astype(array.dtype), name))


def node(graph, op_type, layer):
    (found,) = [n for n in graph.node if n.op_type == op_type and n.name.startswith(layer)]
    return found


def kernel_of(op_type, layer, change, number=1):
    return lambda graph: changed(graph, node(graph, op_type, layer).input[number], change)


def one_sign(kernel):
    """Flip the sign of the largest element."""
    kernel.flat[np.argmax(np.abs(kernel))] *= -1
    return kernel


def all_signs(kernel):
    return -kernel


def gates(*order):
    """Put the gates of a recurrent layer in another order; ONNX keeps them along axis 1."""
    return lambda kernel: np.concatenate(
        [np.split(kernel, len(order), axis=1)[i] for i in order], axis=1
    )


def without(op_type, layer):
    """Let a node hand on its input."""

    def edit(graph):
        gone = node(graph, op_type, layer)
        gone.op_type = "Identity"
        del gone.attribute[:]

    return edit


def swapped(layer, other):
    """Give two layers each other's kernels."""

    def edit(graph):
        one, two = (node(graph, "Gemm", name) for name in (layer, other))
        one.input[1], two.input[1] = two.input[1], one.input[1]

    return edit


FAULTS = {
    # name: (model, what is planted, the layer that must be named, those folded into it)
    "one sign of a kernel": ("image.keras", kernel_of("Gemm", "hidden", one_sign), "hidden", ()),
    "the sign of a kernel": ("image.h5", kernel_of("Gemm", "scores", all_signs), "scores", ()),
    "a sign in a nested model": (
        "image.keras", kernel_of("Conv", "body/wide", one_sign), "body/wide", (),
    ),
    "a sign before a folded norm": (
        "image.h5", kernel_of("Conv", "stem", one_sign), "stem_norm", ("stem",),
    ),
    "a sign in a shared layer": ("pairs.keras", kernel_of("Gemm", "near", one_sign), "near", ()),
    "gates in another order": (
        "sequence.keras", kernel_of("LSTM", "second", gates(1, 0, 2, 3)), "second", (),
    ),
    "recurrent gates in another order": (
        "sequence.h5", kernel_of("LSTM", "first", gates(0, 1, 3, 2), 2), "first", (),
    ),
    "a dropped relu": ("image.keras", without("Relu", "hidden"), "hidden", ()),
    "a dropped tanh": ("image.h5", without("Tanh", "body/deep"), "body/deep", ()),
    "a dropped elu": ("text.keras", without("Elu", "mixed"), "mixed", ()),
    "a dropped softmax": ("text.h5", without("Softmax", "label"), "label", ()),
    "half precision": ("half.keras", kernel_of("Conv", "conv", one_sign), "conv", ()),
}  # fmt: skip


def test_errors_of_all_layers_are_reported_where_asked_for(tmp_path):
    given = converted("image.h5", tmp_path, kernel_of("Conv", "stem", one_sign))
    report = verify_graph(*given, options=Options(comparison=Comparison(layers=True)))
    errors = {one.layer: one for one in report.layer_errors}
    assert not errors["stem_norm"].passed
    assert errors["stem_norm"].error > 100 * errors["stem_norm"].noise
    assert [*errors][-1] == "scores"  # those after the difference, too
    assert report.first_difference.layer == "stem_norm"
    # The graph in float64 is the reference: a graph that is wrong is near it, its source is not.
    wrong = errors["stem_norm"]
    assert wrong.verdict == "unexplained"
    assert wrong.converted_error < wrong.bound < wrong.source_error


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_its_layer_named(tmp_path, fault):
    name, edit, layer, merged = FAULTS[fault]
    report = verify_graph(*converted(name, tmp_path, edit))
    assert report.status == "failed"
    assert report.first_difference.layer == layer
    assert report.first_difference.merged == merged
    assert not report.first_difference.measure.passed
    assert repr(layer) in report.reason


def test_layers_are_compared_where_the_output_says_little(tmp_path):
    report = verify_graph(*converted("saturated.keras", tmp_path))
    assert report.status == "passed", report.reason
    assert report.outputs["huge"].says_little
    assert report.layers == 2
    assert report.notes == ("'huge' hardly depends on the inputs: 2 layers were compared as well",)

    def edit(graph):  # a hundredth of the kernel: the softmax stays as it is
        changed(graph, node(graph, "Gemm", "inner").input[1], lambda kernel: kernel * 1.01)

    report = verify_graph(*converted("saturated.keras", tmp_path, edit))
    assert report.outputs["huge"].passed
    assert report.status == "failed"
    assert report.first_difference.layer == "inner"
    assert "which 'huge' does not show" in report.reason


def test_one_call_of_a_shared_layer(tmp_path):
    def edit(graph):  # the second call's activation only
        _, second = [n for n in graph.node if n.op_type == "Tanh"]
        second.op_type = "Sigmoid"

    report = verify_graph(*converted("pairs.keras", tmp_path, edit))
    assert report.first_difference.layer == "shared"


def test_outputs_in_another_order(tmp_path):
    def edit(graph):
        first, second = list(graph.output)
        del graph.output[:]
        graph.output.extend([second, first])

    report = verify_graph(*converted("pairs.keras", tmp_path, edit))
    assert report.status == "failed"
    assert report.reason.startswith("the outputs are in the order")


def test_outputs_whose_names_are_swapped(tmp_path):
    def edit(graph):
        first, second = (output.name for output in graph.output)
        new = {first: second, second: first}
        for each in graph.node:
            each.output[:] = [new.get(name, name) for name in each.output]
            each.input[:] = [new.get(name, name) for name in each.input]
        for output in graph.output:
            output.name = new[output.name]

    report = verify_graph(*converted("pairs.keras", tmp_path, edit))
    assert report.status == "failed"
    assert report.reason.startswith("the outputs are in the order")


def test_an_output_that_is_missing(tmp_path):
    report = verify_graph(*converted("pairs.keras", tmp_path, lambda g: g.output.pop()))
    assert report.status == "failed"
    assert report.reason.startswith("the outputs are named ")


def test_inputs_in_another_order_go_by_their_names(tmp_path):
    def edit(graph):
        first, second = list(graph.input)
        del graph.input[:]
        graph.input.extend([second, first])

    assert verify_graph(*converted("pairs.keras", tmp_path, edit)).status == "passed"


def test_nan_on_one_side(tmp_path):
    edit = kernel_of("Gemm", "hidden", lambda k: k * np.nan)
    report = verify_graph(*converted("image.keras", tmp_path, edit))
    assert "not finite on one side only" in report.reason
    assert report.first_difference.layer == "hidden"


def test_a_graph_that_onnxruntime_refuses(tmp_path):
    def edit(graph):
        node(graph, "Relu", "hidden").op_type = "Rellu"

    report = verify_graph(*converted("image.keras", tmp_path, edit))
    assert report.status == "failed"
    assert report.reason.startswith("onnxruntime does not run the output")


def test_a_fixed_axis_is_noted(tmp_path):
    def edit(graph):
        graph.input[0].type.tensor_type.shape.dim[1].dim_value = 40

    report = verify_graph(*converted("image.keras", tmp_path, edit))
    assert report.status == "passed", report.reason
    assert report.notes == ("input 'image' fixes axis 1, which the source leaves free",)


def test_less_than_noise_is_allowed_and_no_layer_is_to_blame(tmp_path):
    source, bundle, path = converted("image.keras", tmp_path)
    report = verify_graph(source, bundle, path, options=comparing(atol={"scores": 1e-12}))
    assert report.status == "failed"
    assert report.first_difference is None
    assert "no layer" in report.reason


def test_a_source_that_is_damaged_is_not_verified(tmp_path):
    source, bundle, path = converted("image.keras", tmp_path)
    bad = tmp_path / "bad.keras"
    bad.write_bytes(source.read_bytes()[:-3000])
    report = verify_graph(bad, bundle, path)
    assert report.status == "not run"
    assert "verified on weights only (keras 3" in report.reason
    assert "tf_keras" in report.reason


def test_a_source_under_another_name(tmp_path):
    source, bundle, path = converted("text.h5", tmp_path)
    renamed = tmp_path / "checkpoint"
    renamed.write_bytes(source.read_bytes())
    assert verify_graph(renamed, bundle, path).status == "passed"


def test_the_users_inputs(tmp_path):
    source, bundle, path = converted("text.keras", tmp_path)
    np.savez(tmp_path / "mine.npz", tokens=np.array([[1, 5, 0], [9, 10, 3]]))
    report = verify_graph(source, bundle, path, options=comparing(inputs=tmp_path / "mine.npz"))
    assert report.status == "passed"
    assert report.seed is None
    assert [c.inputs["tokens"] for c in report.cases] == [("int32", (2, 3))]
    np.savez(tmp_path / "mine.npz", tokens=np.array([[1, 99]]))  # the embedding has 11
    with pytest.raises(UsageError, match="the source itself fails on every input given: keras 3"):
        verify_graph(source, bundle, path, options=comparing(inputs=tmp_path / "mine.npz"))


# -- the command ---------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["portable", "onnx"])
def test_the_command_passes_what_convert_wrote(tmp_path, capsys, target):
    source, out = FIXTURES / "image.h5", tmp_path / f"m.{target}"
    converter.convert(source, to=target, out=out)
    assert run(["verify", str(source), str(out), "--require", "cpu", "--seed", "5"]) == 0
    shown = capsys.readouterr().out
    assert "source      tf_keras 2" in shown
    assert "seed 5" in shown
    assert "same        scores  max abs" in shown
    assert shown.endswith("verified    cpu\n")
    assert ("13 equal, 0 different" in shown) == (target == "portable")


@pytest.mark.parametrize("target", ["onnx", "keras"])
def test_a_page_has_the_errors_of_all_layers(tmp_path, capsys, target):
    source, out, page = FIXTURES / "image.h5", tmp_path / f"m.{target}", tmp_path / "page.html"
    converter.convert(source, to=target, out=out, verify="weights")
    assert run(["verify", str(source), str(out), "--html", str(page)]) == 0
    assert "layer same" not in capsys.readouterr().out  # they are on the page
    (graph,) = read_page(page).data("packed-graph")
    errors = {one["layer"]: one for one in graph["report"]["layer_errors"]}
    assert {"stem_norm", "body/deep", "pooled"} <= errors.keys()
    measured = [one for one in errors.values() if one["verdict"] == "explained"]
    assert all(0 < one["source_error"] < one["bound"] for one in measured)
    assert measured


def test_the_command_names_the_layer(tmp_path, capsys):
    source, _, path = converted("image.keras", tmp_path, FAULTS["one sign of a kernel"][1])
    assert run(["verify", str(source), str(path)]) == 1
    shown = capsys.readouterr().out
    assert "DIFFERS     scores" in shown
    assert "layer       'hidden' (Dense)" in shown
    assert "'pooled' before it is the same" in shown
    assert "verified    nothing" in shown


def test_a_fault_in_a_portable_graph_is_named_too(tmp_path, capsys):
    source, out = FIXTURES / "image.keras", tmp_path / "m.portable"
    converter.convert(source, to="portable", out=out)
    model = onnx.load(out / "model.onnx", load_external_data=False)
    without("Tanh", "body/deep")(model.graph)
    onnx.save(model, out / "model.onnx")
    assert run(["verify", str(source), str(out)]) == 3  # the manifest knows better
    capsys.readouterr()
    assert run(["verify", str(source), str(out / "model.onnx")]) == 1
    shown = capsys.readouterr().out
    assert "layer       'body/deep' (Conv2D)" in shown
    assert "'stem_swish' before it is the same" in shown


def cropping(path, *layers, size=None):
    """Write a Keras 2 model of volumes that has no weights, by hand."""
    config = [
        {"class_name": "InputLayer", "config": {
            "batch_input_shape": [None, size, size, size, 2], "dtype": "float32", "name": "x"}},
        *({"class_name": kind, "config": {"name": f"l{i}", **more}}
          for i, (kind, more) in enumerate(layers)),
    ]  # fmt: skip
    for i, layer in enumerate(config):
        layer["name"] = layer["config"]["name"]
        layer["inbound_nodes"] = [[[config[i - 1]["name"], 0, 0, {}]]] if i else []
    ends = {"input_layers": [["x", 0, 0]], "output_layers": [[config[-1]["name"], 0, 0]]}
    model = {"class_name": "Model", "config": {"name": "m", "layers": config, **ends}}
    with h5py.File(path, "w") as f:
        f.attrs["keras_version"], f.attrs["backend"] = "2.4.0", "tensorflow"
        f.attrs["model_config"] = json.dumps(model)
        names = [layer["name"] for layer in config]
        weights = f.create_group("model_weights")
        weights.attrs["layer_names"] = np.array([name.encode() for name in names])
        for name in names:
            weights.create_group(name).attrs["weight_names"] = np.array([], "S1")
    return path


@pytest.mark.parametrize("is_free", [True, False])
def test_where_a_size_leaves_nothing_to_compare_another_one_is_taken(tmp_path, is_free):
    crop = ("Cropping3D", {"cropping": [[5, 5], [1, 0], [0, 2]]})
    grow = ("ZeroPadding3D", {"padding": [[0, 1], [1, 1], [0, 0]]})
    path = cropping(tmp_path / "m.h5", grow, crop, size=None if is_free else 7)
    bundle = converter.read(path)
    graph = passes.run(lower(bundle), bundle.weights)
    write_onnx(tmp_path / "m.onnx", graph, bundle.weights)
    report = verify_graph(path, bundle, tmp_path / "m.onnx")
    assert report.status == "passed", report.reason
    (measure,) = report.outputs.values()
    assert bool(measure.elements) == is_free
    assert bool(report.layers) != is_free
    assert not is_free or report.cases[0].name.startswith("1x16x16x16")
