"""The command ``convert doctor``: its text, its JSON, its exit codes."""

import json
import shlex
import shutil
import subprocess
import sys
import zipfile

import pytest
from hosts import H100, KERAS, TENSORFLOW, TF_KERAS, TORCH, TORCH_CUDA, host, nvidia, torch_seen
from repository import FIXTURES

from converter.cli import app
from converter.doctor import diagnosis

CHECKPOINT = FIXTURES / "torch" / "torch2.13-views.pth"
BARE = host()


@pytest.fixture
def doctor(monkeypatch, capsys):
    """Return a function that runs the command on an invented host: exit code, output, errors."""

    def run(made, *arguments):
        monkeypatch.setattr(diagnosis, "probe_host", lambda *a, **k: made)
        monkeypatch.setattr(diagnosis, "confirm", lambda predictions, *_: predictions)
        code = app.run(["doctor", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_this_very_host():
    command = [sys.executable, "-m", "converter", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    found = json.loads(done.stdout)
    assert done.returncode == found["exit_code"]
    assert found["host"]["packages"]["numpy"][0]["version"]
    assert found["host"]["seen"]["onnxruntime"]["devices"]
    assert done.stderr == ""


def test_a_healthy_host(doctor):
    code, out, err = doctor(host(TORCH))
    assert (code, err) == (0, "")
    for word in ("host", "python", "nvidia", "no GPU, no driver", "torch", "nothing is wrong"):
        assert word in out


def test_an_error_of_the_host_is_exit_7(doctor):
    code, out, _ = doctor(host(TORCH_CUDA, gpus=nvidia(H100, driver="525.60.13", cuda=(12, 0))))
    assert code == 7
    assert "  error    torch 2.13.0 is built for CUDA 13.0" in out
    assert "GPU 0" in out
    assert "sm_90" in out


def test_warnings_alone_are_exit_0(doctor):
    code, out, _ = doctor(host(TORCH, gpus=nvidia(H100)))
    assert code == 0
    assert "  warning  torch 2.13.0+cpu is built without CUDA" in out


KEYS = {
    "": {"schema", "exit_code", "host", "source", "findings", "other_findings", "predictions",
         "differences", "advice"},
    "host": {"python", "executable", "system", "machine", "cpu", "variables", "nvidia", "rocm",
             "libraries", "packages", "seen", "keras_backend", "other_convert"},
    "source": {"path", "format", "variant", "evidence", "framework", "recorded", "devices",
               "distribution", "tensors", "parameters", "not_recorded", "findings"},
    "findings": {"code", "severity", "subject", "what", "why", "fix"},
    "predictions": {"loader", "framework", "version", "installed", "outcome", "error", "message",
                    "cause", "why", "mends", "check", "measured"},
    "differences": {"what", "recorded", "here"},
    "advice": {"device", "why", "commands"},
}  # fmt: skip


def test_the_document_stays_as_it_is(doctor):
    source = FIXTURES / "keras" / "tfkeras24_functional.h5"
    made = host(KERAS, TF_KERAS, TENSORFLOW, variables={"TF_USE_LEGACY_KERAS": "yes"})
    code, out, err = doctor(made, source, "--json")
    found = json.loads(out)
    assert (code, err) == (7, "")
    assert found["schema"] == "convert-doctor/1"
    assert set(found) == KEYS[""]
    for name in ("host", "source", "advice"):
        assert set(found[name]) == KEYS[name], name
    for name in ("findings", "predictions", "differences"):
        assert found[name], name
        for row in found[name]:
            assert set(row) == KEYS[name], name
    assert set(found["advice"]["commands"][0]) == {"command", "why"}
    assert json.loads(doctor(made, "--json")[1])["source"] is None


def test_what_does_not_load_is_exit_7_and_what_loads_is_0(doctor):
    tagged = FIXTURES / "torch" / "torch2.13-ancient.pth"  # on cuda:0
    code, out, _ = doctor(host(TORCH), tagged)
    assert code == 7
    assert "torch.load(path)  fails (predicted; torch 2.13.0+cpu)" in out
    assert "Attempting to deserialize object on a CUDA device" in out
    assert "convert " in out
    assert "--to torch --device cpu" in out
    there = host(TORCH_CUDA, gpus=nvidia(H100), seen=torch_seen(1))
    code, out, _ = doctor(there, tagged)
    assert code == 0
    assert "--to torch --device cuda" in out


def test_what_is_not_installed_is_exit_7(doctor):
    code, out, _ = doctor(BARE, CHECKPOINT)
    assert code == 7
    assert "torch.load(path)  fails: torch is not installed" in out
    assert "with torch 2.13: loads" in out


def test_findings_about_other_frameworks_do_not_concern_a_source(doctor):
    made = host(TORCH, KERAS, TENSORFLOW, variables={"KERAS_BACKEND": "jax"})
    assert doctor(made)[0] == 7
    code, out, _ = doctor(made, CHECKPOINT)
    assert code == 0
    assert "Findings that do not concern this source: 1 " in out


@pytest.mark.parametrize(
    ("content", "code", "word"),
    [
        (b"# a text\n", 3, "a text file"),
        (b"", 3, "an empty file"),
        (b"PK\3\4" + bytes(60), 3, "damaged zip"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), 3, ""),
        (b"\x80\x02}q\x00(X", 3, ""),
    ],
)
def test_what_is_no_model_is_exit_3(doctor, tmp_path, content, code, word):
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    found, out, err = doctor(BARE, path)
    assert (found, out) == (code, "")
    assert err.startswith("convert: error:")
    assert word in err
    assert "Traceback" not in err


def test_a_source_that_is_not_there(doctor):
    code, _, err = doctor(BARE, "/no/such/file")
    assert code == 3
    assert "no such file" in err


def test_every_truncation_ends_with_a_message(doctor, tmp_path):
    data = CHECKPOINT.read_bytes()
    path = tmp_path / "cut.pth"
    for end in range(0, len(data), 97):
        path.write_bytes(data[:end])
        code, _, err = doctor(BARE, path)
        assert code in (3, 4), end
        assert err.startswith("convert: error:")


@pytest.mark.parametrize(
    "source",
    [
        "torch/torch2.13-zip.pth", "torch/torch2.13-script.pt", "torch/torch2.13-export.pt2",
        "torch/torch2.13-package.pt", "torch/torch1.0-script.pt", "torch/torch2.13-legacy.pth.tar",
        "keras/keras315_functional.keras", "keras/keras30_functional.weights.h5",
        "keras/keras2_multi_gpu.h5",
    ],
)  # fmt: skip
def test_every_format_has_a_report(doctor, source):
    for made in (BARE, host(TORCH, KERAS, TF_KERAS, TENSORFLOW)):
        code, out, err = doctor(made, FIXTURES / source)
        assert code in (0, 7)
        assert err == ""
        for title in ("recorded", "not recorded", "here", "official loaders", "what convert does"):
            assert f"\n{title}\n" in out


def test_a_path_with_spaces_and_quotes_is_given_as_a_shell_takes_it(doctor, tmp_path):
    path = shutil.copy(CHECKPOINT, tmp_path / "it's a model.pth")
    out = json.loads(doctor(BARE, path, "--json")[1])
    words = shlex.split(out["advice"]["commands"][0]["command"])
    assert words[:2] == ["convert", str(path)]


def test_of_a_file_with_lambdas_the_command_is_one_that_converts_it(doctor, tmp_path):
    name = "lambda-model-driving.tf_keras.h5"
    zipfile.ZipFile(FIXTURES / "keras_layers" / "models_lambdas.zip").extract(name, tmp_path)
    found = json.loads(doctor(BARE, tmp_path / name, "--json")[1])
    first, *_ = (shlex.split(row["command"])[1:] for row in found["advice"]["commands"])
    out = tmp_path / "out.onnx"
    assert app.run(["SOURCE", *first, "-o", str(out), "-q"]) == 0
    assert out.exists()


@pytest.mark.parametrize(
    "name",
    ["torch/torch2.13-ancient.pth", "torch/torch2.13-script.pt", "torch/torch2.13-export.pt2",
     "keras/keras2_sequential.h5", "keras/keras30_functional.weights.h5"],
)  # fmt: skip
def test_every_command_that_is_advised_is_one_that_convert_takes(
    doctor, name, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for made in (BARE, host(TORCH_CUDA, gpus=nvidia(H100), seen=torch_seen(1))):
        found = json.loads(doctor(made, FIXTURES / name, "--json")[1])
        assert found["advice"]["commands"]
        for row in found["advice"]["commands"]:
            words = shlex.split(row["command"])[1:]
            code = app.run(["SOURCE", *words, "--dry-run", "-q"])
            assert code == 0, (row, code)  # what is not supported is not advised


@pytest.mark.parametrize(
    "name",
    ["torch/torch2.13-zip.pth", "torch/torch2.13-script.pt", "torch/torch2.13-export.pt2",
     "keras/keras2_sequential.h5", "keras/keras315_functional.keras"],
)  # fmt: skip
def test_the_base_install_is_enough(name):
    code = (
        "import sys\n"
        "for m in ('onnx', 'onnxruntime', 'h5py', 'safetensors', 'torch', 'tensorflow', 'keras')"
        ": sys.modules[m] = None\n"
        "from converter.cli.app import run\n"
        f"sys.exit(run(['doctor', {str(FIXTURES / name)!r}, '--fast']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == ""
    assert "what convert does" in done.stdout
    assert done.returncode in (0, 7)  # with torch or Keras beside us, or without


def test_help_imports_nothing_of_the_doctor():
    code = (
        "import sys, contextlib, io\n"
        "from converter.cli.app import run\n"
        "with contextlib.redirect_stdout(io.StringIO()): run(['--help'])\n"
        "print([m for m in sys.modules if m.startswith('converter.doctor') or m == 'numpy'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
