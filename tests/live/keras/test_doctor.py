"""Stored outcomes and tables, compared with Keras and TensorFlow; both loaders, called."""

import json
import re
import subprocess
import sys

import pytest
from repository import FIXTURES, ROOT

pytest.importorskip("tf_keras", exc_type=ImportError)
DATA = ROOT / "converter" / "doctor" / "data"

SCRIPT = """
import json, sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import make_keras_configs as m
m.PATH, m.FILES = (Path(tempfile.mkdtemp()) / n for n in ("configs.json", "files.json"))
m.main()
made = [json.loads(path.read_text()) for path in (m.PATH, m.FILES)]
print(json.dumps([m.keras.__version__, *made]))
"""


@pytest.mark.slow
def test_the_stored_outcomes_are_keras_own():
    command = [sys.executable, "-c", SCRIPT, str(FIXTURES / "doctor")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=110)
    version, configs, files = json.loads(done.stdout.splitlines()[-1])
    if not version.startswith("3.15."):
        pytest.skip(f"stored for keras 3.15, not {version}")
    for made, name in ((configs, "keras_configs.json"), (files, "keras_files.json")):
        stored = (FIXTURES / "doctor" / name).read_text()
        assert addressless(json.dumps(made)) == addressless(json.dumps(json.loads(stored)))


TRAININGS = """
import json, sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import make_keras_trainings as m
m.PATH = Path(tempfile.mkdtemp()) / "trainings.json"
m.main()
print(json.dumps([m.keras.__version__, json.loads(m.PATH.read_text())]))
"""


@pytest.mark.slow
def test_the_stored_trainings_are_keras_own():
    command = [sys.executable, "-c", TRAININGS, str(FIXTURES / "doctor")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=110)
    version, made = json.loads(done.stdout.splitlines()[-1])
    if not version.startswith("3.15."):
        pytest.skip(f"stored for keras 3.15, not {version}")
    stored = json.loads((FIXTURES / "doctor" / "keras_trainings.json").read_text())
    assert [*map(outcomes, made)] == [*map(outcomes, stored)]


def outcomes(row):
    """Return what both loaders said, without sets, whose order is not fixed."""
    said = [(row[m]["outcome"], row[m].get("message", "")) for m in ("keras", "tf_keras")]
    return row["name"], [(outcome, message.partition("{")[0]) for outcome, message in said]


@pytest.mark.slow
def test_the_stored_tables_are_the_frameworks_own(tmp_path):
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "import make_tables as m; m.main(Path(sys.argv[2])); print(m.keras.__version__)"
    )
    command = [sys.executable, "-c", script, str(FIXTURES / "doctor"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=110)
    if not done.stdout.splitlines()[-1].startswith("3.15."):
        pytest.skip("stored for keras 3.15")
    for name in ("keras_arguments.json", "tensorflow_ops.txt"):
        assert (tmp_path / name).read_text() == (DATA / name).read_text()


def addressless(text):
    """Return messages without addresses in memory."""
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def test_predictions_are_confirmed():
    source = FIXTURES / "keras" / "tfkeras24_functional.h5"
    command = [sys.executable, "-m", "converter", "doctor", str(source), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    found = json.loads(done.stdout)
    assert done.returncode == found["exit_code"] == 7
    assert [(p["outcome"], p["check"]) for p in found["predictions"]] == [
        ("fails", "confirmed"),
        ("loads", "confirmed"),
    ]
