"""``--to triton``: an entry of a model repository, read as Triton's own definition reads it."""

from pathlib import Path

import onnx_run
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from repository import FIXTURES

import converter
from converter.lower.graph import Graph, Spec
from converter.options import Options
from converter.write import graph_files
from converter.write.triton.configuration import configure
from formats.errors import UnsupportedError, UsageError

# What we write of it, with the numbers and types of
# https://github.com/triton-inference-server/common/blob/main/protobuf/model_config.proto
# fmt: off
ENUMS = {
    "DataType": [
        "TYPE_INVALID", "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64",
        "TYPE_INT8", "TYPE_INT16", "TYPE_INT32", "TYPE_INT64", "TYPE_FP16", "TYPE_FP32",
        "TYPE_FP64", "TYPE_STRING", "TYPE_BF16",
    ],
    "Kind": ["KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"],
}
MESSAGES = {
    "ModelTensorReshape": ["shape 1 int64*"],
    "ModelInput": ["name 1 string", "data_type 2 DataType", "dims 4 int64*",
                   "reshape 5 ModelTensorReshape"],
    "ModelOutput": ["name 1 string", "data_type 2 DataType", "dims 3 int64*",
                    "reshape 5 ModelTensorReshape"],
    "ModelInstanceGroup": ["name 1 string", "kind 4 Kind", "count 2 int32", "gpus 3 int32*"],
    "ModelDynamicBatching": ["preferred_batch_size 1 int32*"],
    "ModelConfig": ["name 1 string", "platform 2 string", "backend 17 string",
                    "max_batch_size 4 int32", "input 5 ModelInput*", "output 6 ModelOutput*",
                    "instance_group 7 ModelInstanceGroup*", "default_model_filename 8 string",
                    "dynamic_batching 11 ModelDynamicBatching"],
}
# fmt: on


def definition() -> type:
    file = descriptor_pb2.FileDescriptorProto(
        name="triton.proto", package="inference", syntax="proto3"
    )
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            label, number, kind = field.split()
            made = message.field.add(name=label, number=int(number))
            made.label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            kind = kind.rstrip("*")
            if kind in ENUMS:
                made.type, made.type_name = kinds.TYPE_ENUM, f".inference.{kind}"
            elif kind in MESSAGES:
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".inference.{kind}"
            else:
                made.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("inference.ModelConfig"))


CONFIG = definition()


def parsed(text: str):
    return text_format.Parse(text, CONFIG())


def graph_of(inputs: dict[str, Spec], outputs: dict[str, Spec]) -> Graph:
    return Graph("made", 18, [], [*inputs], [*outputs], {**inputs, **outputs})


def test_an_entry_is_what_triton_reads(tmp_path: Path) -> None:
    out = tmp_path / "pictures"
    options = Options(device="gpu:1")
    converter.convert(FIXTURES / "verify/image.keras", to="triton", out=out, options=options)
    assert sorted(p.relative_to(out).as_posix() for p in out.rglob("*")) == [
        "1", "1/model.onnx", "config.pbtxt",
    ]  # fmt: skip
    config = parsed((out / "config.pbtxt").read_text())
    session = onnx_run.session(out / "1/model.onnx")
    assert config.backend == "onnxruntime"
    assert config.max_batch_size > 0
    assert config.HasField("dynamic_batching")
    for said, real in (
        (config.input, session.get_inputs()),
        (config.output, session.get_outputs()),
    ):
        assert [t.name for t in said] == [t.name for t in real]
        for ours, theirs in zip(said, real, strict=True):
            assert ours.data_type == ENUMS["DataType"].index("TYPE_FP32")
            assert [-1 if isinstance(n, str) else n for n in theirs.shape[1:]] == [*ours.dims]
    (group,) = config.instance_group
    assert (ENUMS["Kind"][group.kind], [*group.gpus], group.count) == ("KIND_GPU", [1], 1)


def test_without_one_axis_for_all_there_is_no_batching() -> None:
    for inputs, outputs in (
        ({"x": Spec("float32", ("n", 3))}, {"y": Spec("float32", (3,))}),
        ({"x": Spec("int64", ("n", 3)), "z": Spec("int64", ("m",))}, {"y": Spec("bool", ("n",))}),
        ({"x": Spec("float32", (2, 3))}, {"y": Spec("float32", (2, 3))}),
        ({"x": Spec("float32", ("n", 3))}, {"y": Spec("float32", (None, 3))}),
    ):  # fmt: skip
        config = parsed(configure(graph_of(inputs, outputs), "cpu").text())
        assert config.max_batch_size == 0
        assert not config.HasField("dynamic_batching")
        assert [*config.input[0].dims] == [
            n if isinstance(n, int) else -1 for n in inputs["x"].shape
        ]


def test_numbers_without_axes_are_handed_over_as_one_element() -> None:
    inputs = {"x": Spec("float32", ("n",)), 'a "name"\n': Spec("bool", ("n", "m"))}
    config = parsed(configure(graph_of(inputs, {"y": Spec("string", ("n",))}), "cuda").text())
    first, second = config.input
    assert ([*first.dims], first.HasField("reshape"), [*first.reshape.shape]) == ([1], True, [])
    assert (second.name, [*second.dims]) == ('a "name"\n', [-1])
    assert config.output[0].data_type == ENUMS["DataType"].index("TYPE_STRING")
    assert [*config.instance_group[0].gpus] == []  # every one that there is
    assert ENUMS["Kind"][config.instance_group[0].kind] == "KIND_GPU"


def test_the_numbers_of_types_are_those_of_the_definition() -> None:
    from converter.write.triton.configuration import DATA_TYPES

    assert set(DATA_TYPES.values()) == set(ENUMS["DataType"]) - {"TYPE_INVALID"}


def test_what_triton_cannot_hand_over_is_named() -> None:
    inputs = {"x": Spec("complex64", ("n",)), "z": Spec("float32", (), unranked=True)}
    with pytest.raises(UnsupportedError) as caught:
        configure(graph_of(inputs, {"y": Spec("float32", ("n",))}), "cpu")
    assert "'x'" in str(caught.value)
    assert "'z'" in str(caught.value)


@pytest.mark.parametrize("device", ["mps", "dml:0", "tpu"])
def test_triton_is_on_cpus_and_gpus(device: str) -> None:
    spec = {"x": Spec("float32", ("n",))}
    with pytest.raises(UsageError, match="device="):
        configure(graph_of(spec, {"y": Spec("float32", ("n",))}), device)


def test_weights_beside_a_graph_share_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_files, "PROTOBUF_LIMIT", 1000)
    out = tmp_path / "pictures"
    options = Options(device="cpu", precision="fp16")
    converter.convert(FIXTURES / "verify/image.keras", to="triton", out=out, options=options)
    assert sorted(p.relative_to(out).as_posix() for p in out.rglob("*")) == [
        "1", "1/model.onnx", "1/model.onnx/model.onnx", "1/model.onnx/model.onnx.data",
        "config.pbtxt",
    ]  # fmt: skip
    onnx_run.session(out / "1/model.onnx/model.onnx")


def test_a_device_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="to='triton'"):
        converter.convert(FIXTURES / "verify/image.keras", to="triton", out=tmp_path / "x")
