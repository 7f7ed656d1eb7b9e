"""Layers that a trusted module lowers: in a child, of which only data comes back."""

import json
import os
import sys
from pathlib import Path

import h5py
import jsonschema
import numpy as np
import onnx_run
import pytest
from keras_bundles import bundle, entry
from repository import SUPPORT

import converter
from converter.child import process as child
from converter.child.trust import Trusted, digest, parse_trust
from converter.cli.app import run
from converter.lower.keras import trusted
from converter.lower.keras.lowering import lower
from converter.options import Options
from formats import portable
from formats.errors import DependencyError, UnsupportedError, UsageError

LOWERINGS = SUPPORT / "trust" / "lowerings.py"
TRUST = (Trusted("lowerings", LOWERINGS),)


def computed(source, x, trust=TRUST, **more):
    graph = lower(source, trust=trust, **more)
    return onnx_run.run(graph, x, weights=source.weights), graph


X = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
SCALE = np.array([2.0, -3.0, 0.5], "float32")


def test_a_layer_is_lowered_with_its_weights_and_arguments():
    layer = entry("Scaled", "s", alpha=0.5, activation="tanh", trainable=True)
    (y,), graph = computed(bundle(layer, weights={"s/scale": SCALE}), X)
    np.testing.assert_allclose(y, np.tanh(X * SCALE * 0.5 + 1), rtol=1e-6)
    assert graph.trusted == {"lowerings": digest(LOWERINGS)}
    assert [t.class_name for t in graph.traces] == ["Scaled"]


def test_defaults_are_those_of_the_signature():
    (y,), _ = computed(bundle(entry("Scaled", "s"), weights={"s/scale": SCALE}), X)
    np.testing.assert_allclose(y, X * SCALE * 0.1 + 1, rtol=1e-6)


def test_a_lowering_works_in_the_layers_dtype():
    layer = entry("Scaled", "s", alpha=0.5, dtype="float64")
    (y,), _ = computed(bundle(layer, weights={"s/scale": SCALE}), X)
    assert y.dtype == np.float64


def test_images_keep_the_sources_order_of_axes():
    x = np.random.default_rng(1).normal(size=(2, 4, 5, 3)).astype("float32")
    (y,), _ = computed(bundle(entry("Image", "i"), shape=(None, 4, 5, 3)), x)
    e = np.exp(x.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_a_loop_keeps_what_it_sees_outside():
    x = np.random.default_rng(1).normal(size=(2, 5, 3)).astype("float32")
    layers = [entry("Summed", "a"), entry("Scaled", "s")]
    source = bundle(*layers, shape=(None, 5, 3), weights={"a/scale": SCALE, "s/scale": SCALE})
    (y,), _ = computed(source, x)
    state = np.zeros((2, 3), "float32")
    for t in range(5):
        state = state * SCALE + x[:, t]
    np.testing.assert_allclose(y, state * SCALE * 0.1 + 1, rtol=1e-4)


def test_several_outputs_and_a_mask():
    source = bundle(
        entry("InputLayer", "x", batch_input_shape=[None, 3], dtype="float32"),
        entry("Doubled", "d", factor=3.0),
    )
    config = source.topology.content["config"]
    layers = config["layers"][1:]
    layers[0]["name"], layers[0]["inbound_nodes"] = "x", []
    layers[1]["name"], layers[1]["inbound_nodes"] = "d", [[["x", 0, 0, {}]]]
    config |= {
        "layers": layers,
        "input_layers": [["x", 0, 0]],
        "output_layers": [["d", 0, 0], ["d", 0, 1]],
    }
    source.topology.content["class_name"] = "Functional"
    (a, b), _ = computed(source, X)
    np.testing.assert_array_equal(a, X)
    np.testing.assert_allclose(b, X * 3)


def test_a_lambda_is_lowered_by_the_layers_name_and_its_code_is_not_looked_at():
    code = ["4wEAAAABAAAA", None, None]
    layer = entry("Lambda", "halve", function=code, function_type="lambda", arguments={"by": 4.0})
    (y,), _ = computed(bundle(layer), X)
    np.testing.assert_allclose(y, X / 4)
    other = entry("Lambda", "other", function=code, function_type="lambda", arguments={"by": 4.0})
    with pytest.raises(UnsupportedError) as caught:
        lower(bundle(other), trust=TRUST)
    assert "layer class Lambda, at other" in str(caught.value)
    assert "arguments={'by': 4.0}" in str(caught.value)
    assert "4wEA" not in str(caught.value)


def test_what_nobody_supplies_is_named_with_place_and_arguments():
    layer = entry("Mine", "own", units=3, note="n" * 200)
    with pytest.raises(UnsupportedError) as caught:
        lower(bundle(layer, entry("Scaled", "s")))
    assert "Keras layer class Mine, at own (units=3, note='nnn" in str(caught.value)
    assert len(str(caught.value)) < 500
    assert "trust=['MODULE=PATH']" in caught.value.hint


def test_an_authors_class_named_as_one_of_keras_is_not_taken_for_it():
    layer = entry("Dense", "d", units=2) | {"module": "my.layers", "registered_name": "my>Dense"}
    with pytest.raises(UnsupportedError, match=r"layer class Dense of my\.layers, at d"):
        lower(bundle(layer))
    with pytest.raises(UnsupportedError, match=r"layer class Dense of Mine, at d"):
        lower(bundle(entry("Mine>Dense", "d", units=2)))


def test_gaps_of_a_lowering_are_gaps():
    with pytest.raises(UnsupportedError, match=r"Scaled: argument beta, at s"):
        lower(bundle(entry("Scaled", "s", beta=1)), trust=TRUST)
    with pytest.raises(UnsupportedError, match=r"Scaled: alpha -1.0, at s"):
        lower(bundle(entry("Scaled", "s", alpha=-1.0)), trust=TRUST)
    with pytest.raises(UnsupportedError, match=r"has no weight 'scale' \(it has other\)"):
        lower(bundle(entry("Scaled", "s"), weights={"s/other": SCALE}), trust=TRUST)


# -- what may go wrong in somebody's code --------------------------------------------------------

HEAD = "from converter.lower.keras.api import *\nfrom converter.lower.graph import Node, Spec\n"


@pytest.fixture
def trusting(tmp_path, monkeypatch):
    def write(text, seconds=30):
        monkeypatch.setattr(trusted, "ALLOWANCE", child.Allowance(seconds))
        path = tmp_path / "theirs.py"
        path.write_text(HEAD + text)
        return (Trusted("theirs", path),)

    return write


def body(*lines):
    return "@keras_layer('Scaled')\ndef f(op, w, x, alpha=0.1):\n" + "".join(
        f"    {line}\n" for line in lines
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("raise ImportError('no')", "cannot be imported: ImportError: no"),
        ("import sys\nsys.exit(0)", "cannot be imported: SystemExit"),
        ("def (", "cannot be imported: SyntaxError"),
        ("", "neither a lowering nor a layer"),
        ("@keras_layer('A', mask='no')\ndef f(op, w, x): return x", "cannot be imported: Value"),
        ("@keras_layer('A', 'A')\ndef f(op, w, x): return x", "two handlers for A"),
        (body("1 / 0"), "the lowering of Scaled in theirs failed: ZeroDivisionError"),
        (body("raise SystemExit(0)"), "failed: SystemExit"),
        (body("pass"), "returned None, no Value"),
        (body("return [x, 3]"), "returned 3, no Value"),
        (body("return op.emit('Nonsense', x, dtype='float32', shape=x.shape)"), "Nonsense"),
        (body("return op.emit('Relu', x, dtype='float99', shape=x.shape)"), "float99"),
        (body("return op.emit('Relu', x, dtype='float64', shape=x.shape)"), "elem type"),
        (body("return op.emit('Relu', x, dtype='float32', shape=(None, 7))"), "shape"),
        (body("return op.emit('Relu', x, dtype='float32', shape=(None, -7))"), "size -7"),
        (body("return op.emit('Relu', x, x, dtype='float32', shape=x.shape)"), "Relu"),
        (body("return op.emit('Elu', x, dtype='float32', shape=x.shape, alpah=1.0)"), "alpah"),
        (body("return op.node('Relu', [x], [('float32', x.shape)], domain='evil')[0]"), "evil"),
        (
            body(
                "y = op.unary('Relu', x)",
                "op.graph.nodes[-1].inputs = [y.name]",
                "return y",
            ),
            "which is undefined",
        ),
        (
            body(
                "y = op.unary('Relu', x)",
                "op.graph.nodes[-1].inputs = ['elsewhere']",
                "return y",
            ),
            "which is undefined",
        ),
        (
            body("op.unary('Relu', x)", "return op.weight('weight/nobody')"),
            "KeyError",
        ),
    ],
)
def test_code_that_is_wrong_is_wrong_usage(trusting, text, complaint):
    with pytest.raises(UsageError, match=complaint) as caught:
        lower(bundle(entry("Scaled", "s")), trust=trusting(text))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import os\nos._exit(0)", "theirs gave no answer"),
        ("import os\nos.abort()", "theirs died of SIGABRT"),
        ("import nothing_like_it", "No module named 'nothing_like_it'"),
        (body("import os", "os._exit(3)"), "theirs ended with 3"),
        (body("while True: pass"), "theirs took longer than"),
        (body("import os, pathlib", "pathlib.Path('answer.json').write_text('[]')",
              "os._exit(0)"), "answered"),
    ],
)  # fmt: skip
def test_code_that_takes_the_child_with_it_is_the_environments_fault(trusting, text, complaint):
    theirs = trusting(text, seconds=2 if "while" in text else 30)
    with pytest.raises(DependencyError, match=complaint) as caught:
        lower(bundle(entry("Scaled", "s")), trust=theirs)
    assert caught.value.exit_code == 7


NODE = ["Relu", ["in/0"], ["y"], {}, ""]
PLAIN = {
    "inputs": ["in/0"],
    "outputs": ["y"],
    "specs": {"y": ["float32", ["batch", 3]], "in/0": ["float32", ["batch", 3]]},
    "initializers": {},
    "nodes": [NODE],
}
DONE = {"status": "done", "decides": False, "outputs": 1, "masks": []}


@pytest.mark.parametrize(
    "change",
    [
        {"graph": None},
        {"graph": []},
        {"graph": PLAIN | {"nodes": [NODE, NODE]}},
        {"graph": PLAIN | {"nodes": [["Relu", ["y"], ["y"], {}, ""]]}},
        {"graph": PLAIN | {"nodes": [["Relu\n", ["in/0"], ["y"], {}, ""]]}},
        {"graph": PLAIN | {"nodes": [["Relu", ["in/0"], ["y"], {"a": {"value": 1 << 70}}, ""]]}},
        {"graph": PLAIN | {"nodes": [["Elu", ["in/0"], ["y"], {"alpha": {"float": "1e99"}}, ""]]}},
        {"graph": PLAIN | {"nodes": [["Relu", ["in/0"], ["y"], {"a": {"graph": PLAIN}}, ""]]}},
        {"graph": PLAIN | {"inputs": ["in/0", "in/1"]}},
        {"graph": PLAIN | {"inputs": []}},
        {"graph": PLAIN | {"outputs": ["z"]}},
        {"graph": PLAIN | {"specs": {}}},
        {"graph": PLAIN | {"specs": {"y": ["float32", "abc"]}}},
        {"graph": PLAIN | {"specs": {"y": [["float32"], [3]]}}},
        {"graph": PLAIN | {"initializers": {"w": {"weight": "../secret"}}}},
        {"graph": PLAIN | {"initializers": {"w": {"dtype": "float32", "shape": [1 << 40]}}}},
        {"graph": PLAIN | {"initializers": {"w": {"dtype": "float32", "shape": [2], "data": "A"}}}},
        {"graph": PLAIN | {"initializers": {"w": {"value": 3}}}},
        {"outputs": 0},
        {"outputs": 2},
        {"outputs": None},
        {"masks": [True], "decides": True},
    ],
)
def test_an_answer_that_is_no_graph_is_refused(trusting, monkeypatch, change):
    (theirs,) = trusting(body("return x"))
    ask = trusted._ask

    def answered(question, what, python):
        if question["task"] == "list":
            return ask(question, what, python)
        return json.loads(json.dumps(DONE | {"graph": PLAIN} | change))

    monkeypatch.setattr(trusted, "_ask", answered)
    with pytest.raises(UsageError, match="builds no graph"):
        lower(bundle(entry("Scaled", "s")), trust=(theirs,))


def test_that_answer_unchanged_is_one(trusting, monkeypatch):
    (theirs,) = trusting(body("return x"))
    lowerings = {"Scaled": {"arguments": [], "mask": "drop", "states": []}}
    nothing = frozenset()
    supply = trusted.Supply(theirs, None, "python", False, lowerings, nothing, nothing, nothing)
    monkeypatch.setattr(trusted, "_supply", lambda given, legacy: supply)
    monkeypatch.setattr(trusted, "_ask", lambda *a: DONE | {"graph": PLAIN})
    (y,), _ = computed(bundle(entry("Scaled", "s")), X, trust=(theirs,))
    np.testing.assert_array_equal(y, np.maximum(X, 0))


# -- the command -----------------------------------------------------------------------------


@pytest.fixture
def h5(tmp_path):
    config = bundle(entry("Scaled", "s", alpha=0.5)).topology.content
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"], file.attrs["backend"] = "2.9.0", "tensorflow"
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = [b"s"]
        group.create_dataset("s/s/scale:0", data=SCALE)
        group["s"].attrs["weight_names"] = [b"s/scale:0"]
    return path


def test_the_command(h5, tmp_path, capsys):
    out = tmp_path / "m.portable"
    trust = ["--trust", f"lowerings={LOWERINGS}"]
    assert run(["SOURCE", str(h5), "-o", str(out), "--verify", "weights", *trust]) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    jsonschema.validate(manifest, portable.schema())
    assert manifest["graph"]["trusted"] == [{"module": "lowerings", "sha256": digest(LOWERINGS)}]
    session = onnx_run.session(out / "model.onnx")
    (y,) = session.run(None, {session.get_inputs()[0].name: X})
    np.testing.assert_allclose(y, X * SCALE * 0.5 + 1, rtol=1e-6)
    assert "what a module prints" not in "".join(capsys.readouterr())


def test_without_trust_the_weights_are_converted_and_the_gap_is_named(h5, tmp_path, capsys):
    out = tmp_path / "m.portable"
    assert run(["SOURCE", str(h5), "-o", str(out), "--verify", "weights"]) == 0
    (left_out,) = json.loads((out / "manifest.json").read_text())["left_out"]
    assert "layer class Scaled, at s" in left_out["reason"]
    assert "trust=" in left_out["reason"]
    assert run(["SOURCE", str(h5), "--to", "onnx", "-o", str(tmp_path / "m.onnx")]) == 4
    assert "--trust MODULE=PATH" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["", "=x.py", "a b", "m=", "m=/nowhere.py", "m=.", "1x"])
def test_modules_that_are_none(given, h5, tmp_path):
    assert run(["SOURCE", str(h5), "-o", str(tmp_path / "o"), "--trust", given]) == 2
    assert not (tmp_path / "o").exists()


def test_modules_that_are_not_installed_or_named_twice():
    with pytest.raises(UsageError, match="there is no such module"):
        lower(bundle(entry("Scaled", "s")), trust=parse_trust(["no_such_module"]))
    with pytest.raises(UsageError, match="json is given twice"):
        parse_trust(["json", "json"])


def test_a_module_that_only_the_python_with_keras_has(tmp_path, monkeypatch):
    folder = tmp_path / "installed"
    folder.mkdir()
    (folder / "only_there.py").write_text(LOWERINGS.read_text())
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    trust = parse_trust(["only_there"])
    monkeypatch.delenv(child.PYTHON_VARIABLE, raising=False)
    with pytest.raises(UsageError, match="there is no such module"):
        trusted.Modules(trust)
    monkeypatch.setenv(child.PYTHON_VARIABLE, str(python))
    assert trusted.Modules(parse_trust(["only_there"])).lowering("Scaled") is not None


def test_nothing_is_left_of_a_conversion_whose_trusted_code_fails(h5, tmp_path, trusting):
    (theirs,) = trusting(body("1 / 0"))
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(UsageError):
        converter.convert(h5, out=out / "m", options=Options(trust=(theirs,)))
    assert list(out.iterdir()) == []


def test_a_module_lying_where_the_user_stands_is_not_imported(h5, tmp_path, monkeypatch):
    (tmp_path / "lowerings.py").write_text("raise SystemExit('imported')")
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    assert run(["SOURCE", str(h5), "--verify", "weights", "--trust", f"lowerings={LOWERINGS}"]) == 0
    assert run(["SOURCE", str(h5), "--force", "--trust", "lowerings"]) == 2


def test_what_a_module_does_beside_stays_in_the_child(trusting, tmp_path, monkeypatch):
    beside = "import os, pathlib, sys\npathlib.Path('beside.txt').write_text('x')\nprint('noise')\n"
    beside += "os.chdir('/')\nsys.stdout.close()\nsys.modules.pop('json', None)\n"
    beside += "os.environ['CONVERT_X'] = '1'\n"
    (theirs,) = trusting(beside + body("return op.mul(x, alpha)"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (y,), _ = computed(bundle(entry("Scaled", "s", alpha=2.0)), X, (theirs,))
    np.testing.assert_allclose(y, X * 2)
    assert list(here.iterdir()) == []
    assert Path.cwd() == here
    assert "CONVERT_X" not in os.environ


def test_a_module_is_asked_once(trusting, monkeypatch):
    (theirs,) = trusting(body("return op.mul(x, alpha)"))
    ask, asked = trusted._ask, []
    monkeypatch.setattr(trusted, "_ask", lambda *a: asked.append(a[0]["task"]) or ask(*a))
    source = bundle(entry("Scaled", "s", alpha=2.0))
    assert computed(source, X, (theirs,))[0][0] is not None
    assert asked == ["list", "lower"]
    lower(source, trust=(theirs,))
    assert asked == ["list", "lower"]


def test_a_package_is_trusted_by_its_folder(tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "__init__.py").write_text("from theirs.inner import scaled")
    (folder / "inner.py").write_text(LOWERINGS.read_text())
    given = parse_trust([f"theirs={folder}"])
    (y,), graph = computed(bundle(entry("Scaled", "s"), weights={"s/scale": SCALE}), X, given)
    np.testing.assert_allclose(y, X * SCALE * 0.1 + 1, rtol=1e-6)
    before = graph.trusted["theirs"]
    (folder / "inner.py").write_text("")
    assert digest(folder / "__init__.py") != before


def test_a_configuration_file_may_not_trust(h5, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text(f"[tool.convert]\ntrust = ['lowerings={LOWERINGS}']\n")
    monkeypatch.chdir(tmp_path)
    assert run(["SOURCE", str(h5)]) == 2
