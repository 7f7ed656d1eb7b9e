"""What ``--device`` may say for files of torch."""

import pytest

from converter.devices.names import TORCH_KINDS, parse_torch_device
from formats.errors import UsageError


@pytest.mark.parametrize(
    ("text", "printed", "location"),
    [
        (None, "cpu", "cpu"),
        ("cpu", "cpu", "cpu"),
        ("cpu:0", "cpu", "cpu"),  # torch.load knows no location "cpu:0"
        ("cuda", "cuda", "cuda"),
        ("cuda:1", "cuda:1", "cuda:1"),
        ("cuda:127", "cuda:127", "cuda:127"),
        ("mps", "mps", "mps"),
        ("mps:0", "mps", "mps"),
        ("xpu:3", "xpu:3", "xpu:3"),
        ("hpu", "hpu", "hpu"),
        ("npu:0", "npu:0", "npu:0"),
        ("privateuseone:1", "privateuseone:1", "privateuseone:1"),
        ("xla:0", "xla:0", "cpu"),  # saved as a tensor of the CPU, and where it shall go
        ("mtia", "mtia", "cpu"),
        ("maia:2", "maia:2", "cpu"),
    ],
)
def test_devices_as_torch_parses_them(text: str | None, printed: str, location: str) -> None:
    device = parse_torch_device(text)
    assert (str(device), device.location) == (printed, location)
    assert device.has_storages == (device.kind not in ("xla", "mtia", "maia"))


@pytest.mark.parametrize(
    "text",
    [
        "", "gpu", "CUDA:0", "cuda:", "cuda:01", "cuda:-1", "cuda:1:2", ":0", "cuda 1", "cuda:1 ",
        "cuda:128", "cuda:99999999999999999999", "cpu:1", "mps:1", "meta", "meta:0", "vulkan",
        "/device:GPU:0", "none", "cuda:1٣", "cuda:1\n",
    ],
)  # fmt: skip
def test_other_words_are_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_torch_device(text)
    assert caught.value.exit_code == 2
    assert f"device={text!r}" in str(caught.value)


def test_the_message_names_what_there_is() -> None:
    with pytest.raises(UsageError) as caught:
        parse_torch_device("CUDA:1")
    assert all(kind in str(caught.value) for kind in TORCH_KINDS)
    assert str(caught.value).endswith("Did you mean 'cuda:1'?")
    with pytest.raises(UsageError, match=r"Did you mean .cuda:0.\?$"):
        parse_torch_device("gpu:0")
    with pytest.raises(UsageError, match="no elements"):
        parse_torch_device("meta")
    with pytest.raises(UsageError, match="expected an index up to 127"):
        parse_torch_device("cuda:128")
    with pytest.raises(UsageError, match="expected cpu"):
        parse_torch_device("cpu:1")
