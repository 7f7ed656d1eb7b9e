"""What the command line says, and what of it contradicts itself."""

import pytest

from converter.cli.parameters import parse_arch
from converter.options import Arch, Options, parse_inputs
from converter.write.catalog import check_options
from formats.core.bundle import FixedInput, TensorSpec
from formats.errors import UnsupportedError, UsageError


def test_inputs_have_axes_of_any_size() -> None:
    image, ids = parse_inputs(["image:float32:batch,3,224,224", "ns:ids:int64:batch, time"])
    assert image == TensorSpec("image", "float32", ("batch", 3, 224, 224))
    assert ids == TensorSpec("ns:ids", "int64", ("batch", "time"))  # names may have colons
    assert parse_inputs(["step:float32:"])[0].shape == ()


@pytest.mark.parametrize(
    ("text", "value"),
    [("rate=16000", 16000), ("scale=-1.5e3", -1500.0), ("flag=true", True), ("flag=False", False),
     ("state=none", None), ('mode="a=b:c"', "a=b:c"), ("rate= 8", 8)],
)  # fmt: skip
def test_an_argument_can_be_fixed(text: str, value: object) -> None:
    (spec,) = parse_inputs([text])
    assert isinstance(spec, FixedInput)
    assert (spec.name, spec.shape, spec.value) == (text.partition("=")[0], (), value)
    assert type(spec.value) is type(value)


@pytest.mark.parametrize("text", ["rate=", "rate=abc", "rate=[1]", "rate={}", "mode='a'"])
def test_what_is_no_value_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected NAME=VALUE with a number"):
        parse_inputs([text])


@pytest.mark.parametrize(
    "text",
    ["image", "image:float32", "image:floaty:1,2", "image:float32:1,-2", ":float32:1",
     "image:float32:1,a b", "image:float32:٣", "image:float32:1.5"],
)  # fmt: skip
def test_what_is_no_input_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected NAME:DTYPE:SIZE"):
        parse_inputs([text])


def test_two_inputs_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="expected NAME:DTYPE:SIZE"):
        parse_inputs(["a:float32:1", "a:float32:2"])
    with pytest.raises(UsageError, match="expected each name once"):
        parse_inputs(["a:float32:1", "a=2"])


def test_a_factory_has_arguments() -> None:
    assert parse_arch(None, None) is None
    assert parse_arch("nets.res:Net.make", '{"depth": 18}') == Arch(
        "nets.res:Net.make", {"depth": 18}
    )
    for factory, arguments in (
        ("nets.res", None), ("nets res:x", None), ("a:b", "[1]"), ("a:b", "{"), (None, "{}"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="--arch"):
            parse_arch(factory, arguments)


@pytest.mark.parametrize(
    "options",
    [
        Options(to="tflite"),  # type: ignore[arg-type]
        Options(to="portable", device="cuda:0"),
        Options(to="torch"),
        Options(to="torch", device="cuda:1", arch=Arch("a:b")),
        Options(to="onnx", keep_structure=True),
        Options(to="keras", precision="fp16"),
        Options(to="onnx", precision="fp8"),
        Options(to="torch", device="cpu", keep_structure=True, include=("optimizer",)),
        Options(to="savedmodel", exporter="native"),
        Options(to="onnx", exporter="tracing"),
        Options(to="onnx", require="device"),
        Options(to="onnx", device="cuda:0", verify="cpu", require="device"),
        Options(to="torchscript", device="cpu", strip_prefix="model."),
    ],
    ids=lambda o: o.to,
)
def test_what_contradicts_itself_is_refused(options: Options) -> None:
    with pytest.raises(UsageError):
        check_options(options)


def test_what_goes_together_is_taken() -> None:
    check_options(Options(to="onnx", device="cuda:0", precision="bf16", verify="device"))
    check_options(Options(to="torch", device="cuda:1", include=("optimizer",)))
    check_options(Options(to="portable", arch=Arch("a:b"), exporter="export"))
    with pytest.raises(UnsupportedError):
        check_options(Options(to="onnx", opset=7))


def test_propagating_nan_is_asked_of_a_graph():
    """A bundle without one would not be what was asked for."""
    assert Options(propagate_nan=True).asks_for_graph
    assert not Options().asks_for_graph
