"""State as inputs and outputs, verified by torch: from any state, and from the stored one."""

import io
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from repository import FIXTURES
from tensorflow_server import stand_in

import converter
from converter.child.process import TORCH_PYTHON_VARIABLE
from converter.cli.app import run
from converter.lower.states import PROPERTY
from converter.options import Comparison, Options, parse_inputs
from formats.errors import UnsupportedError, UsageError, VerificationError

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

FOLDER = FIXTURES / "torch_state"
PROGRAMS = json.loads((FOLDER / "programs.json").read_text())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with stand_in(sys.executable, tmp_path_factory.mktemp("torch"), "torch") as path:
        yield path


@pytest.fixture
def warm(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TORCH_PYTHON_VARIABLE, str(server))


def unpack(name: str, folder: Path) -> Path:
    file = PROGRAMS[name]["file"]
    with zipfile.ZipFile(FOLDER / "programs.zip") as held:
        (folder / file).write_bytes(held.read(file))
    return folder / file


def converted(name: str, folder: Path, **options: object) -> tuple[Path, converter.Conversion]:
    """Return a source, and its conversion to a file."""
    source = unpack(name, folder)
    given = {"to": "onnx", "state": "io", **options}
    given["inputs"] = parse_inputs(PROGRAMS[name]["inputs"])
    return source, converter.convert(source, out=folder / "out.onnx", options=Options(**given))


def flags(name: str) -> list[str]:
    return [text for one in PROGRAMS[name]["inputs"] for text in ("--input", one)]


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    "name",
    [
        "inplace-script", "inplace-export", "training-decomposed", "absent-script", "cache-script",
        "numbers-script", "first-script", "tied-script", "ring-script", "voice16-script",
    ],
)  # fmt: skip
def test_torch_agrees_from_any_state_and_from_the_first(name: str, tmp_path: Path) -> None:
    _, conversion = converted(name, tmp_path, require="cpu")
    (report,) = conversion.verification.reports
    assert {f"present.{path}" for path in PROGRAMS[name]["states"]} < report.outputs.keys()
    names = [case.name for case in report.cases]
    assert any("first run" in name for name in names)
    assert not all("first run" in name for name in names)


@pytest.mark.usefixtures("warm")
def test_a_first_value_that_is_not_the_sources_is_found(tmp_path: Path) -> None:
    source, _ = converted("voice16-script", tmp_path, verify="none")
    model = onnx.load(tmp_path / "out.onnx")
    (entry,) = [p for p in model.metadata_props if p.key == PROPERTY]
    entry.value = entry.value.replace('"initial": 0', '"initial": 1')
    onnx.save(model, tmp_path / "out.onnx")
    command = ["verify", str(source), str(tmp_path / "out.onnx"), *flags("voice16-script")]
    assert run(command) == 1


@pytest.mark.usefixtures("warm")
def test_a_state_after_the_run_that_is_wrong_is_found(tmp_path: Path) -> None:
    source, _ = converted("nested-script", tmp_path, verify="none")
    model = onnx.load(tmp_path / "out.onnx")
    for node in model.graph.node:  # the state before the run is given as the one after it
        if "present.a.mean" in node.output:
            node.input[0] = "past.a.mean"
    onnx.save(model, tmp_path / "out.onnx")
    command = ["verify", str(source), str(tmp_path / "out.onnx"), *flags("nested-script")]
    assert run(command) == 1


@pytest.mark.usefixtures("warm")
def test_a_first_run_that_differs_is_never_written(tmp_path: Path) -> None:
    class First(torch.nn.Module):  # type: ignore[misc, name-defined]
        """A flag that can be no input: the outputs of its branches have other numbers of axes."""

        def __init__(self) -> None:
            super().__init__()
            self.first = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
            y = x if self.first else x.sum(dim=0)
            self.first = False
            return y

    torch.jit.script(First().eval()).save(str(tmp_path / "first.pt"))
    with pytest.raises(VerificationError):
        converter.convert(
            tmp_path / "first.pt", out=tmp_path / "out.onnx", inputs=["x:float32:3,4"],
            options=Options(to="onnx", state="io"),
        )  # fmt: skip
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.usefixtures("warm")
def test_a_file_without_state_fails_where_state_is_asked_for(tmp_path: Path) -> None:
    source, _ = converted("inplace-script", tmp_path, verify="none", state="drop")
    command = ["verify", str(source), str(tmp_path / "out.onnx"), *flags("inplace-script")]
    assert run(command) == 0
    assert run([*command, "--state", "io"]) == 1


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("names", [["x"], ["x", "past.h"]])
def test_a_users_inputs_may_leave_the_state_out(names: list[str], tmp_path: Path) -> None:
    source = unpack("branch-script", tmp_path)
    draw = np.random.default_rng(3)
    arrays = {name: draw.normal(size=(3, 5)).astype(np.float32) for name in names}
    np.savez(tmp_path / "given.npz", **arrays)
    conversion = converter.convert(
        source, out=tmp_path / "out.onnx",
        options=Options(
            to="onnx", state="io", require="cpu",
            comparison=Comparison(inputs=tmp_path / "given.npz"),
        ),
    )  # fmt: skip
    (report,) = conversion.verification.reports
    assert len(report.cases) == len(names)


def test_a_program_made_of_the_graph_keeps_the_pairs(tmp_path: Path) -> None:
    source, name = unpack("tied-script", tmp_path), "tied-script"
    command = ["SOURCE", str(source), "--to", "pt2", "--device", "cpu", "--state", "io"]
    out = tmp_path / "out.pt2"
    assert run([*command, *flags(name), "-o", str(out), "--require", "cpu"]) == 0
    with zipfile.ZipFile(out) as archive:
        (extra,) = [n for n in archive.namelist() if n.endswith(f"extra/{PROPERTY}")]
        (state,) = json.loads(archive.read(extra))
    assert (state["tensor"], state["input"], state["output"]) == ("a", "past.a", "present.a")
    program = torch.export.load(io.BytesIO(out.read_bytes())).module()
    kept = torch.jit.load(str(source))
    value = torch.tensor(state["initial"])
    for _ in range(2):
        x = torch.randn(3, 5)
        got, value = program(x, value)
        torch.testing.assert_close(got, kept(x))


def test_where_state_is_of_no_use_is_said(tmp_path: Path) -> None:
    source, out = unpack("inplace-export", tmp_path), tmp_path / "out"
    with pytest.raises(UsageError, match="state='io' with to='pt2'"):
        converter.convert(source, out=out, options=Options(to="pt2", device="cpu", state="io"))
    with pytest.raises(UsageError, match="to='safetensors' does not take state="):
        converter.convert(source, out=out, options=Options(to="safetensors", state="io"))
    with pytest.raises(UsageError, match="state='keep' is unknown"):
        converter.convert(source, out=out, options=Options(to="onnx", state="keep"))
    with pytest.raises(UnsupportedError, match="torch exports"):
        converter.convert(
            source, out=out, options=Options(to="onnx", state="io", exporter="export")
        )
