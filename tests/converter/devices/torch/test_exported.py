"""Archives of torch.export that are moved: graph, tables, torch files inside; without torch."""

import json
import random
import sys
import zipfile
from importlib.util import find_spec

import pytest
from damage import damage
from moved_programs import move_export as move
from moved_programs import records
from repository import FIXTURES

from converter import convert
from converter.devices.names import parse_torch_device
from converter.devices.torch import exported
from converter.devices.torch.programs import check_device
from converter.extras import describe_install
from converter.options import Options
from formats.artifact import Artifact
from formats.errors import ConvertError, DependencyError, UnsupportedError, VerificationError
from formats.torch import export as torch_export

MOVED = FIXTURES / "torch_moved"
CPU = [MOVED / "exported-cpu.pt2", *sorted(FIXTURES.glob("torch/*.pt2"))]


def of_records(path, source, **changed):
    """Write a copy of an archive with some records changed or added, named without their folder."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(path, "w") as out:
        folder = archive.namelist()[0].partition("/")[0]
        for name in archive.namelist():
            out.writestr(name, changed.pop(name.partition("/")[2], archive.read(name)))
        for short, data in changed.items():
            out.writestr(f"{folder}/{short}", data)
    return path


def test_the_cuda_program_becomes_the_cpu_program_byte_for_byte(tmp_path):
    made = records(move(MOVED / "exported-cuda0.pt2", "cpu", tmp_path).read_bytes())
    theirs = records((MOVED / "exported-cpu.pt2").read_bytes())
    for name, data in theirs.items():
        if name == "data/sample_inputs/model.pt":
            ours = records(made[name])
            assert ours["data.pkl"] == records(data)["data.pkl"]
            assert ours["data/0"] == records(data)["data/0"]
        elif name != ".data/serialization_id":
            assert made[name] == data, name


@pytest.mark.parametrize("device", ["cuda:1", "cuda", "mps", "hpu:2"])
@pytest.mark.parametrize("path", CPU, ids=lambda p: p.name)
def test_there_and_back_is_the_same_file(path, device, tmp_path):
    there = move(path, device, tmp_path)
    bundle = torch_export.read(Artifact(there))
    assert set(bundle.metadata.devices) == {device}
    assert b'"cpu"' not in there.read_bytes()
    assert move(there, "cpu", tmp_path, "back.pt2").read_bytes() == path.read_bytes()


def test_weights_stay_as_they_are(tmp_path):
    for path in CPU:
        before = torch_export.read(Artifact(path))
        after = torch_export.read(Artifact(move(path, "cuda:3", tmp_path)))
        assert before.weights
        assert [*after.weights] == [*before.weights]
        for name, tensor in before.weights.items():
            assert after.weights[name].tobytes() == tensor.tobytes()
            assert after.weights[name].data.strides == tensor.data.strides


def test_the_target(tmp_path):
    out = tmp_path / "out.pt2"
    options = Options(device="cpu", verify="weights")
    result = convert(MOVED / "exported-cuda0.pt2", to="pt2", out=out, options=options)
    assert {n.name: n.detail for n in result.bundle.metadata.normalisations} == {
        "storages moved": "from cuda:0 to cpu",
        "devices of values and weights moved": "from cuda:0 to cpu",
        "devices of nodes' arguments moved": "from cuda:0 to cpu",
    }
    assert result.verification.weights is not None
    assert result.verification.weights.tensors == 5
    assert out.read_bytes() == move(MOVED / "exported-cuda0.pt2", "cpu", tmp_path).read_bytes()


def test_an_output_that_names_another_device_is_found():
    with pytest.raises(VerificationError, match="names another device"):
        check_device(
            Artifact(MOVED / "exported-cuda0.pt2"), "exported_program", parse_torch_device("cpu")
        )


def test_what_cannot_be_moved_is_refused(tmp_path):
    out = tmp_path / "out.pt2"
    with pytest.raises(UnsupportedError, match="programs for maia"):
        convert(MOVED / "exported-cpu.pt2", to="pt2", out=out, options=Options(device="maia"))
    compiled = {"data/aotinductor/model/model.so": b"\x7fELF"}
    source = of_records(tmp_path / "aot.pt2", MOVED / "exported-cpu.pt2", **compiled)
    with pytest.raises(UnsupportedError, match="AOTInductor"):
        move(source, "cuda:0", tmp_path)
    old = {"data/sample_inputs/model.pt": b"\x80\x02]."}
    source = of_records(tmp_path / "old.pt2", MOVED / "exported-cpu.pt2", **old)
    with pytest.raises(UnsupportedError, match=r"before 1\.6"):
        move(source, "cuda:0", tmp_path)
    assert not out.exists()


def test_a_program_of_another_format_is_exported_by_torch(tmp_path, monkeypatch):
    """Without onnx the error says what to install, before anything is written."""
    monkeypatch.setenv("CONVERT_TORCH_PYTHON", sys.executable)
    if find_spec("torch") is not None:
        pytest.skip("torch is here: see tests/live/torch/test_rebuilt_programs.py")
    out = tmp_path / "out.pt2"
    with pytest.raises(DependencyError, match=r"to='pt2' needs torch") as caught:
        convert(MOVED / "traced-cpu.pt", to="pt2", out=out, options=Options(device="cpu"))
    assert caught.value.exit_code == 7
    assert describe_install("torch") in str(caught.value)
    assert not [*tmp_path.iterdir()]


def test_objects_that_are_no_tensors_are_said(tmp_path):
    source = of_records(
        tmp_path / "a.pt2", MOVED / "exported-cpu.pt2", **{"data/constants/custom_obj_0": b"x"}
    )
    changes = exported.Program(Artifact(source), parse_torch_device("cuda:0")).changes()
    assert changes.warnings == ["objects that are no tensors (1): left as they are"]


def test_rows_that_are_torch_files_of_their_own(tmp_path):
    """``use_pickle`` says so, whatever the file is called."""
    name = "data/constants/model_constants_config.json"
    inner = records((MOVED / "exported-cpu.pt2").read_bytes())
    config = json.loads(inner[name])
    row = next(iter(config["config"].values()))
    row |= {"path_name": "tensor_9", "use_pickle": True}
    nested = inner["data/sample_inputs/model.pt"]
    changed = {name: json.dumps(config).encode(), "data/constants/tensor_9": nested}
    source = of_records(tmp_path / "a.pt2", MOVED / "exported-cpu.pt2", **changed)
    made = records(move(source, "cuda:1", tmp_path).read_bytes())
    assert b"cuda:1" in records(made["data/constants/tensor_9"])["data.pkl"]


@pytest.mark.parametrize("path", [MOVED / "exported-cuda0.pt2", CPU[-1]], ids=lambda p: p.name)
def test_damage_is_an_error_and_leaves_nothing(path, tmp_path):
    data = path.read_bytes()
    rng = random.Random(len(data))
    source, out = tmp_path / "source.pt2", tmp_path / "out"
    out.mkdir()
    refused = 0
    for _ in range(100):
        source.write_bytes(damage(data, rng))
        options = Options(device="cuda:1", verify="weights", overwrite=True)
        try:
            convert(source, to="pt2", out=out / "moved.pt2", options=options)
        except ConvertError as e:
            refused += 1
            assert e.exit_code in (3, 4), e
            assert not [p for p in out.iterdir() if p.name != "moved.pt2"]
    assert refused > 20
