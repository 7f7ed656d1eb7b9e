"""``--to savedmodel``: what is changed in a SavedModel, what is not, and what is refused."""

import json
import random
import shutil

import pytest
from savedmodel_sources import NAMES, TENSORFLOW, unpack

import converter
from converter.cli.app import run
from converter.devices.names import parse_tensorflow_device
from converter.options import Options
from formats.containers.protobuf.encoder import encode
from formats.containers.protobuf.messages import decode, new
from formats.containers.protobuf.rewriting import field
from formats.core.storage import Buffer, File, Span
from formats.errors import UnsupportedError, UsageError
from formats.limits import DEFAULT
from formats.tensorflow.schemas import SCHEMA

GPU = "/device:GPU:1"


def convert(source, out, *options):
    always = ["--to", "savedmodel", "-o", str(out), "-q", "--verify", "weights"]
    return run(["SOURCE", str(source), *always, *options])


def proto(folder):
    span = Span.whole(File(folder / "saved_model.pb"))
    return decode(span, SCHEMA["SavedModel"], DEFAULT)


def nodes(folder):
    for meta_graph in proto(folder).meta_graphs:
        yield from meta_graph.graph_def.node
        for function in meta_graph.graph_def.library.function:
            yield from function.node_def


def test_the_names_of_devices():
    assert parse_tensorflow_device(None) == parse_tensorflow_device("none") == ""
    assert parse_tensorflow_device("cpu") == parse_tensorflow_device("CPU:0") == "/device:CPU:0"
    assert (
        parse_tensorflow_device("gpu")
        == parse_tensorflow_device("/device:GPU:0")
        == "/device:GPU:0"
    )
    assert parse_tensorflow_device("GPU:1") == GPU
    full = "/job:localhost/replica:0/task:0/device:GPU:1"
    assert parse_tensorflow_device(full) == full
    for wrong in ("", "cuda", "GPU:-1", "GPU:x", "TPU:0", "/job:a/device:GPU:0", "gpu:1 ", "None"):
        with pytest.raises(UsageError):
            parse_tensorflow_device(wrong)


@pytest.mark.parametrize("name", NAMES)
def test_no_device_is_named_any_more(tmp_path, name):
    unpack(tmp_path, name)
    assert convert(tmp_path / name, tmp_path / "out") == 0
    data = (tmp_path / "out" / "saved_model.pb").read_bytes()
    for word in (b"device:GPU", b"device:CPU", b"/gpu:", b"/cpu:", b"/job:"):
        assert word not in data
    before, after = (converter.read(tmp_path / n) for n in (name, "out"))
    assert before.signatures == after.signatures
    assert not after.metadata.devices
    assert not after.metadata.distribution
    assert {n: t.tobytes() for n, t in before.weights.items()} == {
        n: t.tobytes() for n, t in after.weights.items()
    }
    for file in (tmp_path / name / "variables").iterdir():
        assert file.read_bytes() == (tmp_path / "out" / "variables" / file.name).read_bytes()


@pytest.mark.parametrize("name", ["keras3_expanded", "explicit", "ancient", "loop_default"])
def test_what_only_a_cpu_can_run_gets_no_gpu(tmp_path, name):
    unpack(tmp_path, name)
    assert convert(tmp_path / name, tmp_path / "out", "--device", "GPU:1") == 0
    found = {}
    for node in nodes(tmp_path / "out"):
        found.setdefault(node.op, set()).add(node.device)
    for op in ("SaveV2", "RestoreV2", "ShardedFilename", "StringJoin", "StringLower", "HashTableV2",
               "LookupTableFindV2", "Assert", "NoOp", "Placeholder", "StatefulPartitionedCall",
               "ReadVariableOp", "AssignVariableOp", "Assign", "While", "If"):  # fmt: skip
        assert found.get(op, {""}) == {""}, op
    for op in ("MatMul", "Relu", "Softmax", "Tanh"):
        assert found.get(op, {GPU}) == {GPU}, op
    held = found.get("VarHandleOp", set()) | found.get("VariableV2", set())
    # "count" is an integer of 32 bits, which TensorFlow keeps on the CPU.
    assert held == ({"", GPU} if name == "explicit" else {GPU})


def test_variables_of_the_object_graph_are_placed(tmp_path):
    unpack(tmp_path, "loop_expanded")
    assert convert(tmp_path / "loop_expanded", tmp_path / "out", "--device", "GPU:1") == 0
    (meta_graph,) = proto(tmp_path / "out").meta_graphs
    variables = [n.variable for n in meta_graph.object_graph_def.nodes if n.has("variable")]
    assert [(v.name, v.device) for v in variables] == [("w", GPU), ("total", GPU)]
    assert not any(v.experimental_distributed_variable_components for v in variables)


def test_copies_of_variables_become_one(tmp_path):
    unpack(tmp_path, "loop_expanded")
    source = tmp_path / "loop_expanded"
    result = converter.convert(source, to="savedmodel", out=tmp_path / "out")
    counts = {n.name: n.count for n in result.bundle.metadata.normalisations}
    assert counts["copies of variables made one"] == 2
    assert counts["reads of copies of sums made zeros"] == 1  # by "serve"
    assert counts["updates of copies stopped"] == 1  # of "w", by "train"; sums add up
    (meta_graph,) = proto(tmp_path / "out").meta_graphs
    names = [n.name for n in meta_graph.graph_def.node if n.op == "VarHandleOp"]
    assert names == ["total", "w"]
    assert not any("replica_1" in i for n in meta_graph.graph_def.node for i in n.input)
    functions = {f.signature.name: f for f in meta_graph.graph_def.library.function}
    (train,) = (f for n, f in functions.items() if n.startswith("__inference_train"))
    updates = [n.op for n in train.node_def if "AssignSub" in n.name or "AssignAdd" in n.name]
    assert sorted(updates) == ["AssignAddVariableOp"] * 2 + ["AssignSubVariableOp", "NoOp"]


def test_without_a_device_not_a_byte_is_changed(tmp_path):
    assert convert(TENSORFLOW / "simple_save", tmp_path / "out") == 0
    ours, theirs = (p / "saved_model.pb" for p in (tmp_path / "out", TENSORFLOW / "simple_save"))
    assert ours.read_bytes() == theirs.read_bytes()


def test_what_we_do_not_know_is_kept(tmp_path):
    source = unpack(tmp_path, "explicit") / "explicit"
    file = source / "saved_model.pb"
    unknown = b"".join(field(777, [b"of a TensorFlow to come"]))
    file.write_bytes(file.read_bytes() + unknown)
    assert convert(source, tmp_path / "out") == 0
    assert (tmp_path / "out" / "saved_model.pb").read_bytes().endswith(unknown)


def test_everything_else_of_the_folder_is_copied(tmp_path):
    for name, kept, gone in (
        ("keras2_sequential", "keras_metadata.pb", "fingerprint.pb"),
        ("vocabulary", "assets/vocab.txt", "fingerprint.pb"),
    ):
        source = tmp_path / name
        shutil.copytree(TENSORFLOW / name, source)
        (source / "assets.extra").mkdir()
        (source / "assets.extra" / "warmup").write_bytes(b"requests")
        (source / "fingerprint.pb").write_bytes(b"\x08\x01")
        result = converter.convert(source, to="savedmodel", out=tmp_path / f"{name}.out")
        assert (result.path / kept).read_bytes() == (source / kept).read_bytes()
        assert (result.path / "assets.extra" / "warmup").read_bytes() == b"requests"
        assert not (result.path / gone).exists()
        assert [x.name for x in result.bundle.metadata.left_out] == [gone]
        record = json.loads((result.path / "convert.json").read_text())
        assert record["device"] == "none"
        assert record["left_out"][0]["name"] == gone


def test_a_graph_given_by_its_file_takes_what_belongs_to_it(tmp_path):
    source = tmp_path / "m"
    shutil.copytree(TENSORFLOW / "vocabulary", source)
    (source / "diary.txt").write_text("not of the model")
    assert convert(source / "saved_model.pb", tmp_path / "out") == 0
    assert (tmp_path / "out" / "assets" / "vocab.txt").exists()
    assert not (tmp_path / "out" / "diary.txt").exists()


def test_text_becomes_binary(tmp_path):
    assert convert(TENSORFLOW / "text_savedmodel", tmp_path / "out", "--device", "gpu") == 0
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"saved_model.pb", "convert.json"}
    before, after = (converter.read(p) for p in (TENSORFLOW / "text_savedmodel", tmp_path / "out"))
    assert before.signatures == after.signatures
    assert dict(after.metadata.devices) == {"/device:GPU:0": 4}
    assert {n: t.tobytes() for n, t in before.weights.items()} == {
        n: t.tobytes() for n, t in after.weights.items()
    }


def test_a_text_with_unknown_fields_is_a_gap(tmp_path):
    text = (TENSORFLOW / "text_savedmodel" / "saved_model.pbtxt").read_text()
    (tmp_path / "saved_model.pbtxt").write_text(text + "\nfuture_field { a: 1 }\n")
    with pytest.raises(UnsupportedError, match="future_field"):
        converter.convert(tmp_path, to="savedmodel", out=tmp_path.parent / "out")


@pytest.mark.parametrize("name", ["loop_expanded", "explicit"])
def test_messages_are_encoded_as_they_were(tmp_path, name):
    message = proto(unpack(tmp_path, name) / name)
    again = decode(Span.whole(Buffer(encode(message), "again")), SCHEMA["SavedModel"], DEFAULT)
    assert plain(message) == plain(again)


def plain(value):
    if hasattr(value, "present"):
        return {k: plain(v) for k, v in value.present().items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value.read() if isinstance(value, Span) else value


def test_options_that_make_no_sense(tmp_path):
    source, out = TENSORFLOW / "module_tf2", tmp_path / "out"
    assert convert(source, out, "--device", "cuda:0") == 2
    assert convert(source, out, "--include", "optimizer") == 2
    assert convert(source, out, "--strip-prefix", "net.") == 2
    assert run(["SOURCE", str(source), "--device", "cpu", "-o", str(out)]) == 2
    assert run(["SOURCE", str(TENSORFLOW / "frozen.pb"), "--to", "savedmodel", "-o", str(out)]) == 4
    assert not out.exists()


def test_an_output_of_ours_is_replaced_and_nothing_else(tmp_path):
    source, out = TENSORFLOW / "module_tf2", tmp_path / "out"
    assert convert(source, out, "--dry-run") == 0
    assert not out.exists()
    assert convert(source, out) == 0
    assert convert(source, out) == 2
    assert convert(source, out, "--force", "--device", "cpu") == 0
    assert "/device:CPU:0" in {n.device for n in nodes(out)}
    (out / "convert.json").unlink()
    assert convert(source, out, "--force") == 2


def with_op(source, target, old, new):
    """Copy a SavedModel with one op called otherwise."""
    shutil.copytree(source, target)
    message = proto(source)
    for meta_graph in message.meta_graphs:
        for function in meta_graph.graph_def.library.function:
            for node in function.node_def:
                if node.op == old:
                    node.present()["op"] = new
    (target / "saved_model.pb").write_bytes(encode(message))


@pytest.mark.parametrize("op", ["CollectiveReduceV2", "NcclAllReduce", "TPUReplicate", "_Recv"])
def test_what_needs_partners_is_a_gap_where_it_is_served(tmp_path, op):
    with_op(TENSORFLOW / "module_tf2", tmp_path / "served", "MatMul", op)
    with pytest.raises(UnsupportedError, match=rf"{op} \(1, first __inference___call__"):
        converter.convert(tmp_path / "served", to="savedmodel", out=tmp_path / "out")
    # In saving, no signature needs it.
    with_op(TENSORFLOW / "module_tf2", tmp_path / "elsewhere", "MergeV2Checkpoints", op)
    result = converter.convert(tmp_path / "elsewhere", to="savedmodel", out=tmp_path / "out")
    (warning,) = [s.text for s in result.steps if s.name == "warning" and "devices" in s.text]
    assert f"{op} (1, first " in warning


def test_what_only_a_gpu_runs_is_a_gap_for_a_cpu(tmp_path):
    with_op(TENSORFLOW / "module_tf2", tmp_path / "m", "MatMul", "CudnnRNNV3")
    for device in ("none", "gpu"):
        options = Options(device=device, overwrite=True)
        converter.convert(tmp_path / "m", to="savedmodel", out=tmp_path / "out", options=options)
    options = Options(device="cpu", overwrite=True)
    with pytest.raises(UnsupportedError, match=r"a GPU: CudnnRNNV3 \(1,"):
        converter.convert(tmp_path / "m", to="savedmodel", out=tmp_path / "out", options=options)


def with_attribute(source, target, op, name, value):
    """Copy a SavedModel with one op called otherwise, and with one attribute more."""
    with_op(source, target, "MatMul", op)
    message = proto(target)
    for meta_graph in message.meta_graphs:
        for function in meta_graph.graph_def.library.function:
            for node in function.node_def:
                if node.op == op:
                    text = new(SCHEMA["AttrValue"])
                    text.present()["s"] = value
                    node.attr[name] = text
    (target / "saved_model.pb").write_bytes(encode(message))


def test_reductions_over_devices_are_computed_on_one(tmp_path):
    unpack(tmp_path, "collective")
    out = tmp_path / "out"
    result = converter.convert(tmp_path / "collective", to="savedmodel", out=out)
    counts = {n.name: n.count for n in result.bundle.metadata.normalisations}
    assert counts["reductions over devices"] == 13
    found = {n.op for n in nodes(out)}
    assert not any("Nccl" in op or "Collective" in op for op in found)
    assert {"Sum", "Mean", "Max", "Prod", "Min", "Pack"} <= found


@pytest.mark.parametrize("what", [b"group_size", b"num_devices"])
def test_partners_that_are_elsewhere_stay_a_gap(tmp_path, what):
    source = unpack(tmp_path, "collective") / "collective"
    message = proto(source)
    for function in message.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            if node.op == "Const" and node.name.endswith(what.decode()):
                size = new(SCHEMA["TensorProto"])
                size.present().update(dtype=3, tensor_content=Span.whole(Buffer(b"\4\0\0\0", "n")))
                node.attr["value"].present()["tensor"] = size
            if node.op == "NcclAllReduce" and what == b"num_devices":
                node.attr["num_devices"].present()["i"] = 4
    (source / "saved_model.pb").write_bytes(encode(message))
    name = r"CollectiveReduceV2 \(8," if what == b"group_size" else r"NcclAllReduce \(4,"
    with pytest.raises(UnsupportedError, match=f"devices that work together: {name}"):
        converter.convert(source, to="savedmodel", out=tmp_path / "out")


def test_channels_first(tmp_path):
    with_attribute(TENSORFLOW / "module_tf2", tmp_path / "a", "Conv2D", "data_format", b"NCHW")
    with_attribute(TENSORFLOW / "module_tf2", tmp_path / "b", "MaxPoolV2", "data_format", b"NCHW")
    for device, warns in (("none", True), ("cpu", True), ("gpu", False)):
        options = Options(device=device, overwrite=True)
        out = tmp_path / "out"
        steps = converter.convert(tmp_path / "a", to="savedmodel", out=out, options=options).steps
        said = [s for s in steps if s.name == "warning" and "oneDNN: Conv2D (1," in s.text]
        assert bool(said) == warns
    options = Options(device="cpu", overwrite=True)
    with pytest.raises(UnsupportedError, match=r"a GPU: MaxPoolV2 \(1,"):
        converter.convert(tmp_path / "b", to="savedmodel", out=tmp_path / "out", options=options)


def test_copies_that_cannot_be_told_apart_are_a_gap(tmp_path):
    source = unpack(tmp_path, "loop_expanded") / "loop_expanded"
    file = source / "saved_model.pb"
    file.write_bytes(file.read_bytes().replace(b"w/replica_1", b"w/replica_7"))
    with pytest.raises(UnsupportedError, match="2 copies of variables, and the graph 1"):
        converter.convert(source, to="savedmodel", out=tmp_path / "out")


@pytest.mark.slow
def test_damage_is_never_a_bug_of_ours(tmp_path):
    source = unpack(tmp_path, "loop_expanded") / "loop_expanded"
    file = source / "saved_model.pb"
    good = file.read_bytes()
    rng = random.Random(5)
    for n in range(150):
        data = bytearray(good)
        for _ in range(rng.choice((1, 1, 3))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        file.write_bytes(data if n % 5 else data[: rng.randrange(len(data))])
        code = convert(source, tmp_path / "out", "--force", "--device", rng.choice(("none", "gpu")))
        assert code in (0, 1, 3, 4, 5), n
