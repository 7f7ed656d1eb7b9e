"""Exported programs as whole: names, dynamic axes, gaps, damage, writes through views."""

import io
import json
import random
import subprocess
import sys
import tarfile
import zipfile
from functools import cache

import numpy as np
import pytest
from onnx_run import run
from repository import ROOT

import converter
from converter.lower import lower as lower_any
from converter.lower.graph import Graph
from converter.lower.torch import calls
from converter.lower.torch.context import Context
from converter.lower.torch.lowering import lower
from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.program_values import Size
from converter.lower.torch.promotion import result_type
from converter.lower.torch.table import OPS, handler_of, resolve
from converter.lower.unsupported import Unsupported
from formats.core.bundle import TensorSpec
from formats.errors import ConvertError, UnsupportedError

FIXTURES = ROOT / "fixtures" / "torch_ops"


@cache
def archive(family):
    with tarfile.open(FIXTURES / f"{family}.tar.xz") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def program(name):
    """Return the JSON of a row's program, and what makes an archive of another one."""
    family, _, row = name.partition(":")
    data = archive(family)[f"{row}.pt2"]
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        members = {info.filename: z.read(info) for info in z.infolist()}
    (path,) = (p for p in members if "/models/" in p)

    def changed(said):
        result = io.BytesIO()
        with zipfile.ZipFile(result, "w") as z:
            for member, content in members.items():
                z.writestr(member, json.dumps(said) if member == path else content)
        return result.getvalue()

    return json.loads(members[path]), changed


@pytest.fixture
def read(tmp_path):
    def read(data):
        path = tmp_path / "model.pt2"
        path.write_bytes(data)
        return converter.read(path)

    return read


def test_names_and_dynamic_axes_are_the_programs(read):
    said, changed = program("states:gru_state.train")
    bundle = read(changed(said))
    graph = lower(bundle, opset=18)
    assert [spec.name for spec in bundle.signatures[0].inputs] == graph.inputs
    assert [spec.name for spec in bundle.signatures[0].outputs] == graph.outputs
    batch, *rest = graph.specs[graph.inputs[0]].shape
    assert isinstance(batch, str)
    assert rest == [4, 3]
    assert graph.specs[graph.outputs[0]].shape == (batch, 4, 5)


def test_words_of_the_users_inputs_name_axes(read):
    said, changed = program("states:embedding.train")
    bundle = read(changed(said))
    name = bundle.signatures[0].inputs[0].name
    wanted = (TensorSpec(name, "int64", ("batch", "steps")),)
    graph = lower(bundle, opset=18, inputs=wanted)
    assert graph.specs[name].shape == ("batch", "steps")
    assert graph.specs[graph.outputs[0]].shape == ("batch", "steps", 4)


def test_all_gaps_are_named_at_once(read):
    said, changed = program("elementwise:addcmul.core")
    nodes = said["graph_module"]["graph"]["nodes"]
    for i, node in enumerate(nodes):
        if node["target"].startswith("torch.ops.aten.mul"):
            node["target"] = f"torch.ops.mine.unheard_of_{i}.default"
    # What reads a gap's output is not looked at: the second product reads the first.
    with pytest.raises(UnsupportedError, match=r"not supported: torch mine.unheard_of_\d, at mul"):
        lower(read(changed(said)), opset=18)


def test_an_argument_that_no_signature_has_is_a_gap(read):
    said, changed = program("elementwise:act_leaky_relu.train")
    (node,) = said["graph_module"]["graph"]["nodes"]
    node["inputs"].append({"name": "swirl", "arg": {"as_float": 2.0}, "kind": 2})
    with pytest.raises(UnsupportedError, match="argument swirl"):
        lower(read(changed(said)), opset=18)


@pytest.mark.parametrize(("key", "value"), [("dtype", 8), ("sizes", [{"as_int": 9}])])
def test_what_torch_records_of_a_value_must_be_what_we_infer(read, key, value):
    said, changed = program("elementwise:abs.train")
    graph = said["graph_module"]["graph"]
    graph["tensor_values"][graph["outputs"][0]["as_tensor"]["name"]][key] = value
    with pytest.raises(UnsupportedError, match="torch records"):
        lower(read(changed(said)), opset=18)


def test_numbers_beyond_what_json_has(read):
    said, changed = program("elementwise:add_scalar.train")
    (node,) = said["graph_module"]["graph"]["nodes"]
    node["inputs"][1]["arg"] = {"as_float": "-Infinity"}
    graph = lower(read(changed(said)), opset=18)
    assert any(
        isinstance(a, np.ndarray) and np.isneginf(a).all() for a in graph.initializers.values()
    )


@pytest.mark.parametrize(
    "row", ["states:lstm_two.train", "elementwise:inplace_slice.train", "states:fold.core"]
)
def test_damaged_programs_are_refused(read, row):
    said, changed = program(row)
    rng = random.Random(row)
    for _ in range(150):
        damaged = json.loads(json.dumps(said))
        for _ in range(rng.randint(1, 3)):
            damage(damaged, rng)
        try:
            lower_any(read(changed(damaged)))
        except ConvertError as e:
            assert e.exit_code in (3, 4), e


def damage(value, rng):
    """Change, drop or swap something at a random place."""
    for _ in range(rng.randint(1, 12)):
        parts = value.values() if isinstance(value, dict) else value
        inner = [v for v in parts if isinstance(v, dict | list) and v]
        if not inner:
            break
        value = rng.choice(inner)
    key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
    kind = rng.randint(0, 3)
    if kind == 0 and isinstance(value, dict):
        del value[key]
    else:
        value[key] = rng.choice([None, -1, 1 << 40, "nothing", [], {}, 2.5, [None], {"as_int": 7}])


def test_inputs_and_outputs_of_other_kinds_are_refused_by_name(read):
    said, changed = program("elementwise:abs.train")
    graph = said["graph_module"]["graph"]
    node = graph["nodes"][0]
    (output,) = node["outputs"]
    node["outputs"] = [{"as_optional_tensors": [output]}]
    with pytest.raises(UnsupportedError, match="an output optional tensors"):
        lower(read(changed(said)), opset=18)
    node["outputs"] = [output]
    (given,) = said["graph_module"]["signature"]["input_specs"]
    name = given["user_input"]["arg"]["as_tensor"]["name"]
    given["user_input"]["arg"] = {"as_custom_obj": {"name": name, "class_fqn": "a.B"}}
    with pytest.raises(UnsupportedError, match="custom obj"):
        lower(read(changed(said)), opset=18)


def write_to_first_input(graph):
    """Begin a graph with a write to the first of its inputs, be it a weight or the user's."""
    arguments = [
        {"name": "self", "arg": graph["inputs"][0], "kind": 1},
        {"name": "other", "arg": {"as_int": 1}, "kind": 1},
    ]
    write = {"target": "torch.ops.aten.add_.Tensor", "inputs": arguments, "outputs": []}
    graph["nodes"].insert(0, write)


def test_a_write_to_a_weight_is_noted(read):
    said, changed = program("states:embedding.train")
    write_to_first_input(said["graph_module"]["graph"])
    assert lower(read(changed(said)), opset=18).unkept == ["weight"]


def test_a_write_to_an_input_is_noted(read):
    said, changed = program("elementwise:abs.train")
    write_to_first_input(said["graph_module"]["graph"])
    graph = lower(read(changed(said)), opset=18)
    assert graph.overwritten == graph.inputs


def test_lowering_imports_no_torch(tmp_path):
    source = tmp_path / "model.pt2"
    source.write_bytes(archive("elementwise")["abs.train.pt2"])
    code = (
        "import sys, converter\n"
        "from converter.lower import lower\n"
        f"lower(converter.read({str(source)!r}))\n"
        "assert 'torch' not in sys.modules\n"
        "assert 'onnx' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# -- the table and the calls -----------------------------------------------------------------------


@pytest.fixture
def op():
    return Context(Graph("g", 18), {})


def test_names_in_any_spelling(op):
    for name in ("aten.add.Tensor", "aten::add.Tensor", "torch.ops.aten.add.Tensor"):
        assert handler_of(name) is OPS["add.Tensor"]
    assert handler_of("aten::add", "Tensor") is OPS["add.Tensor"]
    assert handler_of("aten.relu.default") is OPS["relu"]
    assert handler_of("torchvision::nms") is OPS["torchvision.nms"]


def test_sizes_of_long_expressions(op):
    """Names of sizes have an end: what is longer has a short one, and is computed all the same."""
    x = op.input("x", "float32", ("n",))
    n = op.define("n", lambda: op.measured(x, 0))
    size, expected = n, 7
    for _ in range(20):
        thrice = calls.call(op, "_operator.mul", [size, 3])
        quarter = calls.call(op, "_operator.floordiv", [thrice, 4])
        size = calls.call(op, "_operator.add", [quarter, n])
        expected = expected * 3 // 4 + 7
    negative = calls.call(op, "_operator.neg", [size])
    squared = calls.call(op, "_operator.pow", [negative, 2])
    values = [op.scalar(one, "int64") for one in (size, negative, squared)]
    for name, value in zip("abc", values, strict=True):
        op.output(value, name)
    found = run(op.graph, np.zeros(7, "float32"))
    assert [int(one) for one in found] == [expected, -expected, expected**2]


def test_arguments_tell_overloads_apart(op):
    x = op.input("x", "float32", (2, 3))
    assert resolve("aten::max", [x], {}).name == "max"
    assert resolve("aten::max", [x, 1], {}).name == "max.dim"
    assert resolve("aten::max", [x, x], {}).name == "max.other"
    assert resolve("aten::split", [x, [1, 2], 1], {}).name == "split.sizes"
    assert resolve("aten::split", [x, 2], {}).name == "split.Tensor"
    assert resolve("aten::arange", [Size("n")], {}).name == "arange"


def test_sizes_cost_no_nodes_until_they_are_wanted(op):
    x = Reference.to(op.input("x", "float32", ("batch", 6)))
    batch = calls.call(op, "aten.sym_size.int", [x, 0])
    twice = calls.call(op, "_operator.mul", [batch, 2])
    assert twice == "2*batch"
    assert calls.call(op, "_operator.floordiv", [twice, 2]) == "batch"
    assert calls.call(op, "_operator.gt", [calls.call(op, "_operator.add", [batch, 1]), batch])
    assert not op.graph.nodes


def test_a_write_through_a_view_is_seen_in_its_base_and_in_other_views(op):
    x = Reference.to(op.input("x", "float32", (2, 3)))
    y = calls.call(op, "aten.clone", [x])
    row = calls.call(op, "aten.select.int", [y, 0, 1])
    flat = calls.call(op, "aten.view", [y, [6]])
    before = y.read(), flat.read()
    calls.call(op, "aten.add_.Tensor", [row, 1])
    assert y.read() is not before[0]
    assert flat.read() is not before[1]
    assert x.read().name == "x"


def test_a_cast_to_the_same_dtype_is_the_tensor_itself_unless_a_copy_is_asked_for(op):
    x = Reference.to(op.input("x", "float32", (2, 3)))
    same = calls.call(op, "aten.to.dtype", [x, "float32"])
    copy = calls.call(op, "aten.to.dtype", [x, "float32"], {"copy": True})
    calls.call(op, "aten.relu_", [same])
    assert x.read().name != "x"
    assert copy.read().name == "x"


def test_what_is_computed_of_elements_in_another_order_may_lie_so(op):
    x = Reference.to(op.input("x", "float32", (2, 3)))
    turned = calls.call(op, "aten.relu", [calls.call(op, "aten.t", [x])])
    flat = calls.call(op, "aten.reshape", [turned, [6]])
    calls.call(op, "aten.relu_", [flat])  # of a copy, or of the tensor itself
    assert flat.read().shape == (6,)
    assert x.read().name == "x"
    with pytest.raises(Unsupported, match="may share memory"):
        turned.read()


def test_a_shape_that_is_changed_in_place(op):
    x = Reference.to(op.input("x", "float32", (2, 3)))
    y = calls.call(op, "aten.clone", [x])
    z = calls.call(op, "aten.view", [y, [6]])
    assert calls.call(op, "aten.unsqueeze_", [y, 0]) is y
    assert y.read().shape == (1, 2, 3)
    before = z.read()
    calls.call(op, "aten.add_.Tensor", [y, 1])
    assert z.read() is not before
    assert y.read().shape == (1, 2, 3)


def test_a_write_that_torch_might_not_show_elsewhere_is_a_gap(op):
    x = Reference.to(op.input("x", "float32", (2, 3)))
    turned = calls.call(op, "aten.transpose.int", [x, 0, 1])
    flat = calls.call(op, "aten.reshape", [turned, [6]])
    calls.call(op, "aten.relu_", [x])
    with pytest.raises(Unsupported, match="may share memory"):
        flat.read()


def test_a_write_to_what_may_be_a_copy_in_a_branch_is_a_gap(op):
    x = Reference.to(op.input("x", "float32", (2, 3)))
    turned = calls.call(op, "aten.transpose.int", [x, 0, 1])
    flat = calls.call(op, "aten.reshape", [turned, [6]])
    with op.body("branch"), pytest.raises(Unsupported, match="in place"):
        calls.call(op, "aten.relu_", [flat])


def test_numbers_take_no_part_in_the_dtype_but_by_kind(op):
    half, whole = op.input("h", "float16", (2,)), op.input("i", "int8", (2,))
    single, empty = op.input("s", "float32", ()), op.input("b", "bool", (2,))
    assert result_type(half, 2.5) == "float16"
    assert result_type(whole, 2.5) == "float32"
    assert result_type(whole, 300) == "int8"
    assert result_type(half, single) == "float16"
    assert result_type(whole, single) == "float32"
    assert result_type(empty, 3) == "int64"
    assert result_type(empty, Size("n")) == "int64"
