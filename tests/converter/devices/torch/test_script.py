"""TorchScript archives that are moved: tags, devices, code, source maps; without torch."""

import importlib.util
import io
import json
import os
import pickle
import random
import subprocess
import sys
import zipfile

import pytest
from damage import damage
from moved_programs import move_script as move
from moved_programs import records
from repository import FIXTURES

from converter import convert
from converter.child.process import TORCH_PYTHON_VARIABLE
from converter.devices.names import parse_torch_device
from converter.devices.torch.programs import check_device
from converter.devices.torch.tags import retag_pickle
from converter.extras import describe_install
from converter.options import Options
from formats.artifact import Artifact
from formats.containers.pickle.rewriting import Tracer
from formats.containers.pickle.unpickler import Budget
from formats.containers.zip.rewriting import Content, Rewriter
from formats.core.output import Output
from formats.core.storage import File, Span
from formats.errors import (
    ConvertError,
    CorruptError,
    DependencyError,
    UnsupportedError,
    UsageError,
    VerificationError,
)
from formats.limits import DEFAULT
from formats.torch import script as torch_script

MOVED = FIXTURES / "torch_moved"
OLD = [p for p in sorted(FIXTURES.glob("torch/*script*.pt")) if "quantized" not in p.name]
QUIET = Options(verify="weights")


def of_records(path, changed, source):
    """Write a copy of an archive with some records changed, added or, where None, left out."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(path, "w") as out:
        folder = archive.namelist()[0].partition("/")[0]
        for name in archive.namelist():
            short = name.partition("/")[2]
            data = changed.pop(short, archive.read(name))
            if data is not None:
                out.writestr(name, data)
        for short, data in changed.items():
            out.writestr(f"{folder}/{short}", data)
    return path


def positions(data):
    """Return where in its text each record of a source map begins."""
    value = Tracer(data, DEFAULT, Budget(100_000), "map").load()
    rows = value[2] if value[0] == "FORMAT_WITH_STRING_TABLE" else value
    return [int(row[0]) for row in rows]


# -- against torch's own archives --------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "device"),
    [("cuda0", "cpu"), ("cuda1", "cpu"), ("cpu", "cuda:0"), ("cuda0", "cuda:1")],
)
def test_a_moved_program_is_the_one_that_torch_writes_there(source, device, tmp_path):
    """torch wrote both, from one class; a constant of the class is a text, and stays."""
    made = records(move(MOVED / f"scripted-{source}.pt", device, tmp_path))
    torch_s = records(MOVED / f"scripted-{device.replace(':', '')}.pt")
    assert made["data.pkl"] == torch_s["data.pkl"]
    assert made["constants.pkl"] == torch_s["constants.pkl"]
    code, theirs = made["code/__torch__.py"].decode(), torch_s["code/__torch__.py"].decode()
    first, second = code.split("  def forward"), theirs.split("  def forward")
    assert first[1] == second[1]
    assert first[0] != second[0]
    assert len(made) == len(torch_s)


@pytest.mark.parametrize(("source", "device"), [("cuda0", "cpu"), ("cpu", "cuda:1")])
def test_source_maps_follow_the_code(source, device, tmp_path):
    """The author's line behind each place of the text is the one that torch's own map has."""
    made = records(move(MOVED / f"scripted-{source}.pt", device, tmp_path))
    torch_s = records(MOVED / f"scripted-{device.replace(':', '')}.pt")
    name = "code/__torch__.py"
    ours, theirs = positions(made[f"{name}.debug_pkl"]), positions(torch_s[f"{name}.debug_pkl"])
    # The class's constant, which stays, is as much longer in our text.
    shift = made[name].index(b"  def forward") - torch_s[name].index(b"  def forward")
    begin = torch_s[name].index(b"  def forward")
    assert [at - shift if at > begin else at for at in ours] == theirs
    lines = made[name].split(b"\n")
    starts = {sum(len(line) + 1 for line in lines[:n]) for n in range(len(lines))}
    assert len(starts & set(ours)) > 3


def test_all_storages_views_and_ties_are_there(tmp_path):
    before = torch_script.read(Artifact(MOVED / "traced-cuda0.pt"))
    after = torch_script.read(Artifact(move(MOVED / "traced-cuda0.pt", "cpu", tmp_path)))
    assert before.metadata.devices == {"cuda:0": 5}
    assert after.metadata.devices == {"cpu": 5}
    assert [*after.weights] == [*before.weights]
    for name, tensor in before.weights.items():
        assert after.weights[name].tobytes() == tensor.tobytes()
        assert after.weights[name].data.strides == tensor.data.strides
    assert after.weights["alike"].data.span == after.weights["dense.weight"].data.span


def test_the_cuda_program_becomes_the_cpu_program_byte_for_byte(tmp_path):
    """Pickles and texts; source maps of the CUDA fixture are the CPU's, and so not its own."""
    made = records(move(MOVED / "traced-cuda0.pt", "cpu", tmp_path))
    theirs = records(MOVED / "traced-cpu.pt")
    for name, data in theirs.items():
        if not name.endswith((".debug_pkl", "serialization_id")):
            assert made[name] == data, name


def test_mobile_byte_code_is_moved_too(tmp_path):
    path = move(MOVED / "lite-cpu.ptl", "cuda:1", tmp_path)
    assert b"cuda:1" in records(path)["bytecode.pkl"]
    assert b"cpu" not in records(path)["bytecode.pkl"]
    again = records(move(path, "cpu", tmp_path, "again.pt"))
    assert again == records(MOVED / "lite-cpu.ptl")


def test_mobile_byte_code_that_compares_what_stays_is_refused(tmp_path):
    """Its constants are shared: there is no telling which is compared and which is used."""
    code = records(MOVED / "lite-cpu.ptl")["code/__torch__.py"]
    code += b'  _9 = torch.eq(ops.prim.device(x), torch.device("cuda:3"))\n'
    byte_code = b"\x80\x02ctorch\ndevice\nX\x06\0\0\0cuda:3\x85R."
    changed = {"code/__torch__.py": code, "bytecode.pkl": byte_code}
    source = of_records(tmp_path / "lite.ptl", changed, MOVED / "lite-cpu.ptl")
    with pytest.raises(UnsupportedError, match=r"bytecode.*cuda:3"):
        move(source, "cpu", tmp_path)


# -- round trips -------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cuda:1", "cuda", "mps", "xpu:0"])
@pytest.mark.parametrize("path", OLD, ids=lambda p: p.name)
def test_there_and_back_is_the_same_file(path, device, tmp_path):
    """Where no code names a device; deflated code is inflated the same, and packed by another."""
    there = move(path, device, tmp_path)
    home = "cpu"
    assert there.read_bytes() != path.read_bytes()
    back = move(there, home, tmp_path, "back.pt")
    if b'torch.device("' not in b"".join(records(path).values()):
        assert back.read_bytes() == path.read_bytes()
    else:
        assert torch_script.read(Artifact(back)).metadata.devices == {"cpu": 6}


@pytest.mark.parametrize("name", ["traced-cpu.pt", "scripted-cpu.pt", "lite-cpu.ptl"])
def test_there_and_back_has_the_same_content(name, tmp_path):
    there = move(MOVED / name, "cuda:1", tmp_path)
    back = move(there, "cpu", tmp_path, "back.pt")
    assert records(back) == records(MOVED / name)  # torch's own hash over them as well
    once_more = move(move(back, "cuda:1", tmp_path, "x.pt"), "cpu", tmp_path, "y.pt")
    assert once_more.read_bytes() == back.read_bytes()


def test_what_is_there_already_is_copied_byte_for_byte(tmp_path):
    for path in (*OLD, MOVED / "traced-cpu.pt"):
        if b"cuda" not in b"".join(records(path).values()):
            assert move(path, "cpu", tmp_path).read_bytes() == path.read_bytes()


# -- the archives of torch 1.0 to 1.2 ----------------------------------------------------------


def test_the_table_of_an_old_archive(tmp_path):
    source = FIXTURES / "torch/torch1.2-script.pt"
    there = move(source, "cuda:1", tmp_path)
    table = json.loads(records(there)["model.json"])
    assert {row["device"] for row in table["tensors"]} == {"cuda:1"}
    assert torch_script.read(Artifact(there)).metadata.devices == {"cuda:1": 4}


def test_an_old_table_that_names_devices_elsewhere_is_refused(tmp_path):
    source = FIXTURES / "torch/torch1.2-script.pt"
    model = json.loads(records(source)["model.json"])
    model["mainModule"]["device"] = "cpu"
    changed = {"model.json": json.dumps(model).encode()}
    with pytest.raises(UnsupportedError, match="in another place"):
        move(of_records(tmp_path / "odd.pt", changed, source), "cuda:1", tmp_path)


def test_source_maps_of_torch_1_2_follow_their_own_text(tmp_path):
    source = FIXTURES / "torch/torch1.2-script.pt"
    before = records(source)
    name = next(n for n in before if n.startswith("code/") and n.endswith("_fc.py"))
    code = before[name].replace(b"op_version_set = 1\n",
                                b'op_version_set = 1\na = torch.device("cuda:0")\n')  # fmt: skip
    made = records(move(of_records(tmp_path / "a.pt", {name: code}, source), "cpu", tmp_path))
    maps = [n for n in before if n.startswith("debug/")]
    assert len(maps) == 2
    for one in maps:
        is_its = one[len("debug/") : -len(".pkl")] == name[len("code/") : -len(".py")]
        shift = -3 if is_its else 0  # len("cpu") - len("cuda:0"), behind the first line
        expected = [at + shift if at > 40 else at for at in positions(before[one])]
        assert positions(made[one]) == expected


# -- pickles -----------------------------------------------------------------------------------


def retag(data, device):
    return retag_pickle(data, parse_torch_device(device), DEFAULT, Budget(100_000), "pickle")


class Device:
    """Pickles as torch.device does."""

    def __init__(self, *args):
        self.args = args

    def __reduce__(self):
        return _device, self.args


def _device(*args):
    return ("device", *args)


def devices(*args, protocol=2):
    data = pickle.dumps([Device(*a) for a in args] + ["cuda:0"], protocol)
    where = f"c{__name__}\n_device\n".encode()
    return data.replace(where, b"ctorch\ndevice\n")


@pytest.mark.parametrize(
    ("args", "device", "expected"),
    [
        (("cuda", 0), "cpu", ("cpu",)),
        (("cpu",), "cuda:1", ("cuda", 1)),
        (("cuda", 0), "cuda:1", ("cuda", 1)),
        (("cuda", 3), "cuda", ("cuda",)),
        (("cuda",), "cuda:1", ("cuda", 1)),
        (("mps", 0), "cuda:1", ("cuda", 1)),
    ],
)
def test_devices_as_python_writes_them(args, device, expected):
    made, found = retag(devices(args), device)
    assert made == devices(expected)
    assert found.devices.total() == 1
    assert found.texts == {"cuda:0": 1}
    back, _ = retag(made, ":".join(map(str, args)) if args[0] != "mps" else "mps")
    assert back == devices(args if args[0] != "mps" else ("mps",))


def test_a_text_of_the_users_that_a_location_shares_stays():
    """TorchScript memoises texts by content: a name 'cuda:0' and a location are one text."""
    shared = b"X\x06\0\0\0cuda:0q\x01"
    pid = (b"(X\x07\0\0\0storageq\x02ctorch\nFloatStorage\nq\x03X\x01\0\0\0" + b"0q\x04%bK\x04t"
           b"q\x05Q.")  # fmt: skip
    first = b"\x80\x02" + b"(" + shared + pid[:-1] % b"h\x01" + b"t."
    made, found = retag(first, "cpu")
    assert (found.storages, found.texts) == ({"cuda:0": 1}, {"cuda:0": 1})
    seen = []

    class Reader(pickle.Unpickler):
        def persistent_load(self, pid):
            seen.append(pid)
            return "storage"

        def find_class(self, module, name):
            return f"{module}.{name}"

    assert Reader(io.BytesIO(made)).load() == ("cuda:0", "storage")
    assert seen == [("storage", "torch.FloatStorage", "0", "cpu", 4)]
    # the other way round: the location is the one that made the text
    second = b"\x80\x02" + b"(" + pid[:-1] % shared + b"h\x01t."
    seen.clear()
    assert Reader(io.BytesIO(retag(second, "mps")[0])).load() == ("storage", "cuda:0")
    assert seen[0][3] == "mps"


def test_meta_storages_stay():
    data = (b"\x80\x02(X\x07\0\0\0storageq\x02ctorch\nFloatStorage\nq\x03X\x01\0\0\0"
            b"0q\x04X\x04\0\0\0metaq\x05K\x04tQ.")  # fmt: skip
    assert retag(data, "cuda:0")[0] == data


def test_tensors_of_devices_without_storages():
    """xla, maia: an array, and beside it the device that it goes to."""
    data = (b"\x80\x02ctorch._utils\n_rebuild_device_tensor_from_numpy\n("
            b"NX\x07\0\0\0float32X\x05\0\0\0xla:1\x89tR.")  # fmt: skip
    made, found = retag(data, "cpu")
    assert made == data.replace(b"\x05\0\0\0xla:1", b"\x03\0\0\0cpu")
    assert found.devices == {"xla:1": 1}


def test_a_storage_that_was_pickled_by_itself_is_a_named_gap():
    data = b"\x80\x02ctorch.storage\n_load_from_bytes\nC\x01x\x85R."
    with pytest.raises(UnsupportedError, match="pickled by itself"):
        retag(data, "cpu")


# -- as a target -------------------------------------------------------------------------------


def test_the_target(tmp_path):
    out = tmp_path / "out.pt"
    result = convert(
        MOVED / "traced-cuda0.pt",
        to="torchscript",
        out=out,
        options=Options(device="cpu", verify="weights"),
    )
    assert {n.name: (n.count, n.detail) for n in result.bundle.metadata.normalisations} == {
        "storages moved": (5, "from cuda:0 to cpu"),
        "devices in code moved": (5, "from cuda:0 to cpu"),
    }
    assert result.bundle.metadata.devices == {"cpu": 5}
    assert result.verification.weights is not None
    assert result.verification.weights.tensors == 5
    assert out.stat().st_mode & 0o777 == 0o666 & ~_umask()
    assert out.read_bytes() == move(MOVED / "traced-cuda0.pt", "cpu", tmp_path).read_bytes()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is here")
def test_without_torch_nothing_is_run_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv(TORCH_PYTHON_VARIABLE, raising=False)
    source, out = MOVED / "traced-cuda0.pt", tmp_path / "out.pt"
    result = convert(source, to="torchscript", out=out, options=Options(device="cpu"))
    assert result.verification.graph is not None
    assert result.verification.graph.status == "not run"
    assert result.verification.graph.lacking == describe_install("torch")
    options = Options(device="cpu", require="cpu", overwrite=True)
    with pytest.raises(DependencyError, match="not compared, which is required"):
        convert(source, to="torchscript", out=out, options=options)


def test_what_stays_is_said(tmp_path):
    options = Options(device="cpu", verify="weights")
    result = convert(
        MOVED / "scripted-cuda0.pt", to="torchscript", out=tmp_path / "o.pt", options=options
    )
    warnings = [s.text for s in result.steps if s.name == "warning"]
    assert any('has the text "cuda:0"' in text for text in warnings)


def test_an_output_that_names_another_device_is_found(tmp_path):
    with pytest.raises(VerificationError, match="names another device"):
        check_device(Artifact(MOVED / "traced-cuda0.pt"), "torchscript", parse_torch_device("cpu"))


def test_other_sources_and_devices_are_refused(tmp_path):
    out = tmp_path / "out.pt"
    with pytest.raises(UnsupportedError, match="the source is torch-export"):
        convert(
            MOVED / "exported-cpu.pt2", to="torchscript", out=out, options=Options(device="cpu")
        )
    with pytest.raises(UnsupportedError, match="programs for xla"):
        convert(MOVED / "traced-cpu.pt", to="torchscript", out=out, options=Options(device="xla:0"))
    with pytest.raises(UsageError):
        convert(MOVED / "traced-cpu.pt", to="torchscript", out=out, options=Options(device="gpu"))
    assert not out.exists()
    mobile = tmp_path / "mobile.ptl"
    mobile.write_bytes(b"\x20\0\0\0PTMF" + bytes(100))
    with pytest.raises(UnsupportedError, match="flatbuffer"):
        move(mobile, "cpu", tmp_path)


def test_quantised_programs_stay_on_the_cpu(tmp_path):
    for path in FIXTURES.glob("torch/*quantized-script.pt"):
        with pytest.raises(UnsupportedError, match="does not run"):
            move(path, "cuda:0", tmp_path)
        assert move(path, "cpu", tmp_path).read_bytes() == path.read_bytes()


# -- attacks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["traced-cuda0.pt", "scripted-cuda0.pt", "lite-cpu.ptl"])
def test_damage_is_an_error_and_leaves_nothing(name, tmp_path):
    data = (MOVED / name).read_bytes()
    rng = random.Random(len(data))
    source, out = tmp_path / "source.pt", tmp_path / "out"
    out.mkdir()
    refused = 0
    for _ in range(150):
        source.write_bytes(damage(data, rng))
        try:
            convert(
                source,
                to="torchscript",
                out=out / "moved.pt",
                options=Options(device="mps", verify="weights", overwrite=True),
            )
        except ConvertError as e:
            refused += 1
            assert e.exit_code in (3, 4), e
            assert not [p for p in out.iterdir() if p.name != "moved.pt"]
    assert refused > 20


def test_pickles_that_are_none(tmp_path):
    for record in ("data.pkl", "constants.pkl"):
        for data in (b"", b"\x80\x02", b"nonsense", b"\x80\x02h\x05."):
            changed = {record: data}
            source = of_records(tmp_path / "a.pt", changed, MOVED / "traced-cpu.pt")
            with pytest.raises(CorruptError):
                move(source, "cuda:0", tmp_path)
            assert not (tmp_path / "moved.pt").exists()


def test_code_that_is_no_text(tmp_path):
    code = b'a = torch.device("cuda:0")\n' + bytes(range(256)) + b'b = torch.device("cuda:0")\n'
    source = of_records(tmp_path / "a.pt", {"code/__torch__.py": code}, MOVED / "scripted-cuda0.pt")
    made = records(move(source, "cpu", tmp_path))["code/__torch__.py"]
    assert made.startswith(b'a = torch.device("cpu")\n' + bytes(range(33)))


def test_a_source_map_that_is_none_is_an_error(tmp_path):
    source = of_records(
        tmp_path / "a.pt",
        {"code/__torch__.py.debug_pkl": b"\x80\x02K"},
        MOVED / "scripted-cuda0.pt",
    )
    with pytest.raises(CorruptError):
        move(source, "cpu", tmp_path)


MEASURE = """
import sys
from pathlib import Path
from converter.devices.torch.programs import move_program
from formats.artifact import Artifact
move_program(Artifact(sys.argv[1]), "torchscript", "cuda:1", Path(sys.argv[2]))
status = Path("/proc/self/status").read_text()  # getrusage counts what we were forked from
print(int(status.split("VmHWM:")[1].split()[0]) // 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_weights(tmp_path):
    """A storage of 600 MB, most of it a hole in its file: none of it passes through us."""
    source = MOVED / "traced-cpu.pt"
    artifact = Artifact(source)
    name = next(n for n in artifact.zip.members if n.endswith("data/1"))
    size, whole = 600 * 10**6, artifact.zip.read(name)
    hole = tmp_path / "hole"
    with hole.open("wb") as file:
        file.write(whole)
        file.truncate(size)
    content = Content([Span.whole(File(hole))], size, 0)
    long = tmp_path / "long.pt"
    with Output(long) as out:
        for _ in out.append(Rewriter(artifact.zip, artifact.span).rewrite({name: content})):
            pass
    command = [sys.executable, "-c", MEASURE, str(long), str(tmp_path / "moved.pt")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 100  # MB, of which the interpreter takes a good part
    moved = torch_script.read(Artifact(tmp_path / "moved.pt"))
    assert moved.metadata.devices == {"cuda:1": 5}


def test_traced_inputs():
    assert torch_script.list_traced_inputs(Artifact(MOVED / "traced-cuda0.pt")) == (
        ("float32", (2, 3)),
    )
    assert torch_script.list_traced_inputs(Artifact(MOVED / "scripted-cpu.pt")) == ()
