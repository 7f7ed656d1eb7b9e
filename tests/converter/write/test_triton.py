"""``--to triton``: an entry of a model repository, read as Triton's own definition reads it."""

from pathlib import Path

import onnx_run
import pytest
import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from repository import FIXTURES

import converter
from converter.lower.graph import Graph, Spec
from converter.options import Options
from converter.write import graph_files
from converter.write.triton.batching import decide_batching
from converter.write.triton.configuration import configure
from converter.write.triton.kserve import describe_service
from converter.write.triton.settings import Settings, parse_settings
from formats.errors import UnknownFormatError, UnsupportedError, UsageError

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
    "Parameter": ["key 1 string", "value 2 string"],
    "Accelerator": ["name 1 string", "parameters 2 Parameter*"],
    "ExecutionAccelerators": ["gpu_execution_accelerator 1 Accelerator*",
                              "cpu_execution_accelerator 2 Accelerator*"],
    "ModelOptimizationPolicy": ["execution_accelerators 5 ExecutionAccelerators"],
    "ModelInstanceGroup": ["name 1 string", "kind 4 Kind", "count 2 int32", "gpus 3 int32*"],
    "ModelDynamicBatching": ["preferred_batch_size 1 int32*",
                             "max_queue_delay_microseconds 2 uint64"],
    "ModelConfig": ["name 1 string", "platform 2 string", "backend 17 string",
                    "max_batch_size 4 int32", "input 5 ModelInput*", "output 6 ModelOutput*",
                    "instance_group 7 ModelInstanceGroup*", "default_model_filename 8 string",
                    "dynamic_batching 11 ModelDynamicBatching",
                    "optimization 12 ModelOptimizationPolicy"],
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


def configured(graph: Graph, device: str = "cpu", **settings: str):
    return parsed(configure(graph, device, parse_settings(settings)).text())


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
        config = parsed(configure(graph_of(inputs, outputs), "cpu", Settings()).text())
        assert config.max_batch_size == 0
        assert not config.HasField("dynamic_batching")
        assert [*config.input[0].dims] == [
            n if isinstance(n, int) else -1 for n in inputs["x"].shape
        ]


def test_numbers_without_axes_are_handed_over_as_one_element() -> None:
    inputs = {"x": Spec("float32", ("n",)), 'a "name"\n': Spec("bool", ("n", "m"))}
    config = configured(graph_of(inputs, {"y": Spec("string", ("n",))}), "cuda")
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
        configure(graph_of(inputs, {"y": Spec("float32", ("n",))}), "cpu", Settings())
    assert "'x'" in str(caught.value)
    assert "'z'" in str(caught.value)


@pytest.mark.parametrize("device", ["mps", "dml:0", "tpu"])
def test_triton_is_on_cpus_and_gpus(device: str) -> None:
    spec = {"x": Spec("float32", ("n",))}
    with pytest.raises(UsageError, match="device="):
        configure(graph_of(spec, {"y": Spec("float32", ("n",))}), device, Settings())


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


# -- settings --------------------------------------------------------------------------------------

BATCHED = graph_of({"x": Spec("float32", ("n", 3))}, {"y": Spec("float32", ("n",))})
HEADS = FIXTURES / "verify_tensorflow/heads"


def test_settings_reach_the_configuration() -> None:
    config = configured(
        BATCHED, "gpu:0", max_batch_size="16", instances="2", queue_delay_us="100",
        preferred_batch_sizes="4, 8", accelerator="tensorrt-fp16",
    )  # fmt: skip
    assert config.max_batch_size == 16
    assert config.instance_group[0].count == 2
    queue = config.dynamic_batching
    assert (queue.max_queue_delay_microseconds, [*queue.preferred_batch_size]) == (100, [4, 8])
    (accelerator,) = config.optimization.execution_accelerators.gpu_execution_accelerator
    assert accelerator.name == "tensorrt"
    assert [(p.key, p.value) for p in accelerator.parameters] == [("precision_mode", "FP16")]
    config = configured(BATCHED, accelerator="openvino")
    (accelerator,) = config.optimization.execution_accelerators.cpu_execution_accelerator
    assert accelerator.name == "openvino"
    assert not configured(BATCHED).HasField("optimization")
    assert not configured(BATCHED, max_batch_size="0").HasField("dynamic_batching")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_batch": "2"}, "Did you mean 'max_batch_size'"),
        ({"instances": "0"}, "from 1 on"),
        ({"max_batch_size": "-1"}, "from 0 on"),
        ({"preferred_batch_sizes": "4,,8"}, "from 1 on"),
        ({"max_batch_size": "4", "preferred_batch_sizes": "8"}, "at most max_batch_size=4"),
        ({"max_batch_size": "0", "queue_delay_us": "1"}, "forms no batches"),
        ({"accelerator": "tensorrt"}, "device=gpu"),
        ({"preferred_batch_sizes": "9"}, "above 8"),
        ({"kserve": "bucket/models"}, "a URI"),
        ({"kserve": "s3://b/m", "layout": "model"}, "layout=repository"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        configured(BATCHED, **settings)


def test_every_reason_against_batches_is_named() -> None:
    inputs = {
        "x": Spec("float32", ("n", 3)), "rate": Spec("int64", ()), "m": Spec("float32", ("m",)),
    }  # fmt: skip
    graph = graph_of(inputs, {"y": Spec("float32", (2, 3))})
    assert decide_batching(graph, None).reasons == (
        "input 'rate' has no axes", "the first axis of output 'y' has the fixed size 2",
    )  # fmt: skip
    with pytest.raises(UsageError, match="input 'rate' has no axes"):
        decide_batching(graph, 4)
    graph = graph_of({"x": inputs["x"], "m": inputs["m"]}, {"y": Spec("float32", (None, 3))})
    found = decide_batching(graph, None)
    assert found.max_batch_size == 0
    assert found.reasons == (
        "the first axis of input 'm' is 'm', not 'n' as that of input 'x'",
        "the first axis of output 'y' is of any size, not 'n' as that of input 'x'",
    )
    assert decide_batching(graph, 4).max_batch_size == 4  # the user knows that these are one axis
    with pytest.raises(UsageError, match="no inputs"):
        decide_batching(graph_of({}, {"y": Spec("float32", ("n",))}), 4)
    with pytest.raises(UsageError, match="neither"):
        configured(graph, queue_delay_us="5")


def test_every_signature_is_a_model_of_a_repository(tmp_path: Path) -> None:
    out = tmp_path / "repository"
    options = Options(
        device="cpu", verify="weights",
        triton={"layout": "repository", "version": "3", "kserve": "gs://b/it's"},
    )  # fmt: skip
    done = converter.convert(HEADS, to="triton", out=out, options=options)
    models = sorted(p.name for p in out.iterdir() if p.is_dir())
    assert models[0] == "heads"
    assert all(name.startswith("heads_") for name in models[1:])
    assert len(models) == len([s for s in done.steps if s.name == "batching"]) > 1
    for name in models:
        session = onnx_run.session(out / name / "3/model.onnx")
        config = parsed((out / name / "config.pbtxt").read_text())
        assert [t.name for t in config.input] == [t.name for t in session.get_inputs()]
    checked = converter.verify(HEADS, out)
    assert list(checked.graphs) == [f"{name}/3/model.onnx" for name in models]
    assert checked.weights is not None
    assert (checked.weights.tensors, checked.weights.different) == (6, ())
    service = yaml.safe_load((out / "inferenceservice.yaml").read_text())
    assert service["metadata"]["name"] == "heads"
    assert service["spec"]["predictor"]["model"]["storageUri"] == "gs://b/it's"
    default = converter.convert(
        HEADS, to="triton", out=tmp_path / "m", options=Options(device="cpu", verify="weights")
    )
    assert (tmp_path / "m/config.pbtxt").is_file()
    assert any("signatures=" in left.reason for left in default.bundle.metadata.left_out)


@pytest.mark.parametrize(
    ("name", "expected"), [("A b_c.9", "a-b-c-9"), ("9", "model-9"), ("é" * 9, "model")]
)
def test_names_of_services_are_those_of_kubernetes(name: str, expected: str) -> None:
    service = yaml.safe_load(describe_service(name, "pvc://x/y", needs_gpu=True))
    assert service["metadata"]["name"] == expected
    limits = service["spec"]["predictor"]["model"]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "1"}


def test_an_entry_is_a_source(tmp_path: Path) -> None:
    out = tmp_path / "pictures"
    options = Options(device="gpu:1", triton={"version": "12", "instances": "2"})
    converter.convert(FIXTURES / "verify/image.keras", to="triton", out=out, options=options)
    (out / "2").mkdir()
    found = converter.inspect(out)
    assert found.format == "onnx"
    recorded = found.recorded
    assert recorded["triton_versions"] == "2, 12"
    assert recorded["triton_instance_group"] == "2 on GPU, gpu 1"
    assert recorded["triton_max_batch_size"] == "8"
    again = converter.convert(out, to="onnx", out=tmp_path / "again.onnx")
    assert [s.name for s in again.bundle.signatures] == ["main"]
    checked = converter.verify(FIXTURES / "verify/image.keras", out)
    assert checked.weights is not None
    assert not checked.weights.different


@pytest.mark.parametrize("text", ["{", 'backend: "python"', "max_batch_size: x", "backend: 5"])
def test_other_configurations_are_no_entry(tmp_path: Path, text: str) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1/model.onnx").write_bytes(b"x")
    (tmp_path / "config.pbtxt").write_text(text)
    with pytest.raises(UnknownFormatError):
        converter.inspect(tmp_path)


def test_weights_beside_a_graph_are_read_from_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_files, "PROTOBUF_LIMIT", 1000)
    out, source = tmp_path / "pictures", FIXTURES / "verify/image.keras"
    converter.convert(source, to="triton", out=out, options=Options(device="cpu"))
    assert (out / "1/model.onnx/model.onnx.data").is_file()
    again = converter.convert(out, to="portable", out=tmp_path / "again.portable")
    assert again.verification.weights is not None
    checked = converter.verify(source, out)
    assert checked.weights is not None
    assert not checked.weights.different
