"""The doctor compared with torch: its stored outcomes and tables, and torch's own loaders."""

import json
import subprocess
import sys

import pytest
from repository import FIXTURES, ROOT

torch = pytest.importorskip("torch")
STORED = json.loads((FIXTURES / "doctor" / "torch_outcomes.json").read_text())


def stored_by(torch_version):
    return torch_version.startswith("2.13.") and not torch.cuda.is_available()


@pytest.mark.slow
@pytest.mark.skipif(not stored_by(torch.__version__), reason="stored for torch 2.13 on a CPU")
def test_the_stored_outcomes_are_torchs():
    script = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import make_torch_outcomes as m;"
        "print(json.dumps(m.collect()))"
    )
    command = [sys.executable, "-c", script, str(FIXTURES / "doctor")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=110)
    assert json.loads(done.stdout) == STORED


def doctor(*arguments):
    command = [sys.executable, "-m", "converter", "doctor", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert done.returncode == found["exit_code"]
    return found


def test_torch_reports_what_it_sees():
    seen = doctor(FIXTURES / "torch" / "torch2.13-zip.pth")["host"]["seen"]["torch"]
    assert seen["problem"] == ""
    assert seen["version"] == torch.__version__
    assert seen["facts"]["cuda_devices"] == torch.cuda.device_count()
    assert "cpu" in seen["devices"]


@pytest.mark.parametrize("name", ["torch2.13-script.pt", "torch2.13-legacy.pth.tar"])
def test_predictions_are_confirmed(name):
    found = doctor(FIXTURES / "torch" / name)["predictions"]
    assert found
    for prediction in found:
        assert prediction["check"] == "confirmed", prediction
        assert bool(prediction["measured"]) == (prediction["outcome"] == "fails")


@pytest.mark.slow
@pytest.mark.skipif(not stored_by(torch.__version__), reason="stored for torch 2.13 on a CPU")
def test_the_stored_operators_are_torchs(tmp_path):
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "import make_torch_tables as m; m.main(Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", script, str(FIXTURES / "doctor"), str(tmp_path)]
    subprocess.run(command, check=True, timeout=110)
    stored = ROOT / "converter" / "doctor" / "data" / "torch_ops.txt"
    assert (tmp_path / "torch_ops.txt").read_text() == stored.read_text()
