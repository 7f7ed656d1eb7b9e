"""What an output's name says: its target, its folder, and what contradicts it."""

from pathlib import Path

import pytest
from repository import FIXTURES

from converter.options import Options
from converter.write.catalog import TARGETS, find_target
from converter.write.output_path import choose_target, folder_of_outputs, locate_output
from formats.errors import UsageError

STATE_DICT = FIXTURES / "demo" / "checkpoint.pt"
SCRIPTS = FIXTURES / "torch"


@pytest.mark.parametrize(
    ("out", "target"),
    [
        ("x.onnx", "onnx"), ("x.ONNX", "onnx"), ("a/x.safetensors", "safetensors"),
        ("s3://b/x.keras", "keras"), ("x.pt2", "pt2"), ("x.pth", "torch"), ("x.hf", "hf"),
        ("x.triton", "triton"), ("x.savedmodel", "savedmodel"), ("x.portable", "portable"),
        ("x", "portable"), ("x.v2", "portable"), ("x.onnx/", "portable"), (None, "portable"),
    ],
)  # fmt: skip
def test_the_target_follows_the_suffix(out, target):
    assert choose_target(Options(), STATE_DICT, out).to == target


def test_a_program_stays_a_program():
    program = next(p for p in sorted(SCRIPTS.glob("*script*.pt")))
    assert choose_target(Options(), program, "x.pt").to == "torchscript"
    assert choose_target(Options(), STATE_DICT, "x.pt").to == "torch"


@pytest.mark.parametrize(
    ("to", "out"), [("keras", "x.onnx"), ("onnx", "x.h5"), ("portable", "x.pt"), ("auto", "x.h5")]
)
def test_a_contradiction_is_refused(to, out):
    with pytest.raises(UsageError) as caught:
        choose_target(Options(to=to), STATE_DICT, out)
    assert Path(out).suffix in str(caught.value)
    assert caught.value.expected


def test_names_of_targets_may_be_in_upper_case():
    assert choose_target(Options(to="ONNX")).to == "onnx"
    with pytest.raises(UsageError, match="Did you mean 'onnx'"):
        choose_target(Options(to="onx"))


def test_every_target_writes_its_own_default_suffix():
    for row in TARGETS:
        assert Path(f"x{row.suffix.format(device='cpu')}").suffix in row.suffixes


def test_a_slash_or_a_folder_is_where_the_output_goes(tmp_path):
    onnx, portable = find_target("onnx"), find_target("portable")
    there, source = tmp_path / "there", Path("a/m.h5")
    there.mkdir()
    assert locate_output(source, None, onnx) == (Path("m.onnx"), False)
    assert locate_output(source, f"{tmp_path}/new/", onnx) == (tmp_path / "new/m.onnx", False)
    assert locate_output(source, f"{tmp_path}/n/", portable) == (tmp_path / "n/m.portable", False)
    assert locate_output(source, there, onnx) == (there / "m.onnx", False)
    assert locate_output(source, there, portable) == (there, True)  # an output that exists
    assert locate_output(source, tmp_path / "new", onnx) == (tmp_path / "new", True)


def test_several_outputs_need_a_folder_and_names_of_their_own(tmp_path):
    assert folder_of_outputs(["a.h5", "b.pt"], None, Options()) is None
    assert folder_of_outputs(["a.h5", "b.pt"], "out", Options()) == "out/"
    assert folder_of_outputs(["a.h5", "b.pt"], str(tmp_path), Options()) == f"{tmp_path}/"
    with pytest.raises(UsageError, match="one output for 2 sources"):
        folder_of_outputs(["a.h5", "b.pt"], "x.onnx", Options())
    with pytest.raises(UsageError, match=r"would both be written to m\.portable"):
        folder_of_outputs(["a/m.h5", "b/m.pt"], "out/", Options())
