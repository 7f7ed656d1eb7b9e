"""``--settings FILE``: options of single artifacts of a batch."""

import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from repository import ROOT

from converter.cli.app import run
from converter.cli.artifact_settings import read_overrides
from converter.options import Options
from formats.errors import UsageError


def read(tmp_path: Path, text: str) -> Options:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    options = Options()
    for override in read_overrides(path):
        options = override.apply(options)
    return options


def test_options_are_spelled_as_flags(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
        [[artifact]]
        name = "a/*"
        to = "onnx"
        input = ["x:float32:batch,3", "rate=16000"]
        atol = 1e-3
        rtol = ["out:0.5", 1e-4]
        seed = 7
        allow-tf32 = true
        signature = "predict"
        trust = "json"
        arch = "nets:make"
        arch-args = '{"depth": 2}'
        [[artifact]]
        name = ["a/b.pt"]
        training-state = ["optimizer", "training"]
        """,
    )
    assert (found.to, found.comparison.seed, found.comparison.allow_tf32) == ("onnx", 7, True)
    assert found.comparison.atol == {"": 1e-3}
    assert found.comparison.rtol == {"out": 0.5, "": 1e-4}
    assert [spec.name for spec in found.inputs] == ["x", "rate"]
    assert found.signatures == ("predict",)
    assert found.trust[0].module == "json"
    assert found.arch is not None
    assert found.arch.arguments == {"depth": 2}
    assert found.include == ("optimizer", "training")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("to = 'onnx'", "tables"),
        ("[[artifact]]\nto = 'onnx'", "a glob over names"),
        ("[[artifact]]\nname = 5", "a glob over names"),
        ("[[artifact]]\nname = 'a'\natolx = 1", "Did you mean 'atol'"),
        ("[[artifact]]\nname = 'a'\nseed = 'x'", "seed='x'"),
        ("[[artifact]]\nname = 'a'\nseed = true", "seed=True"),
        ("[[artifact]]\nname = 'a'\ninput = 'x'", "NAME:DTYPE"),
        ("[[artifact]]\nname = 'a'\ndequantize = 'yes'", "dequantize='yes'"),
        ("[artifact]\nname = 'a'", "tables"),
        ("[[artifact", "cannot be read"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(tmp_path, text)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "registry" / "keras"
    folder.mkdir(parents=True)
    for name in ("one", "two"):
        shutil.copy(ROOT / "fixtures/verify/pairs.h5", folder / f"{name}.h5")
    shutil.copy(ROOT / "fixtures/demo/checkpoint.pt", tmp_path / "registry")
    return tmp_path


def batch(*arguments: str) -> int:
    usual = ["--engine", "inline", "--verify", "weights", "--settings", "settings.toml"]
    return run(["batch", "registry", "-o", "out", *usual, *arguments])


def test_targets_differ_within_a_batch_and_a_second_run_does_what_changed(
    registry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = registry / "settings.toml"
    settings.write_text("""
        [[artifact]]
        name = "keras"
        to = "onnx"
        [[artifact]]
        name = "keras/two.h5"
        to = "triton"
        device = "cpu"
        triton-option = ["max_batch_size=4"]
        [[artifact]]
        name = "nothing/*"
        seed = 2
        """)
    assert batch("--report", "r.xml", "--report", "r.jsonl", "--report", "r.md") == 0
    assert "no artifact is named nothing/*" in capsys.readouterr().err
    assert (registry / "out/keras/one.onnx").is_file()
    assert "max_batch_size: 4" in (registry / "out/keras-two/config.pbtxt").read_text()
    assert (registry / "out/checkpoint.portable/manifest.json").is_file()
    tree = ElementTree.parse(registry / "r.xml").getroot()
    names = {case.get("name") for case in tree.iter("testcase")}
    assert names == {"keras/one.h5", "keras/two.h5", "checkpoint.pt"}
    assert "## 3 of 3 artifacts converted" in (registry / "r.md").read_text()
    records = [json.loads(line) for line in (registry / "r.jsonl").read_text().splitlines()]
    assert {r["entry"]: r["to"] for r in records} == {
        "keras/one.h5": "onnx", "keras/two.h5": "triton", "checkpoint.pt": "portable",
    }  # fmt: skip

    assert batch() == 0
    assert "3 done before" in capsys.readouterr().err
    settings.write_text(settings.read_text().replace("max_batch_size=4", "max_batch_size=2"))
    assert batch() == 0
    assert "1 done; 2 done before" in capsys.readouterr().err
    assert "max_batch_size: 2" in (registry / "out/keras-two/config.pbtxt").read_text()


def test_contradictions_are_found_before_anything_runs(
    registry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (registry / "settings.toml").write_text('[[artifact]]\nname = "keras"\nto = "torch"\n')
    assert batch() == 2
    said = capsys.readouterr().err
    assert "--device" in said
    assert "the options of keras/one.h5" in said
    assert not list((registry / "out").glob("*"))
