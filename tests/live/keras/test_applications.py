"""A few models of keras.applications beside Keras; all of them: tools/corpus/applications.py.

The Python that has Keras is this one, or the one that CONVERT_TENSORFLOW_PYTHON names.
"""

import os
import subprocess
import sys

import pytest
from keras_python import HAS_KERAS
from repository import ROOT

from converter.verification.runners import PYTHON_VARIABLE

pytest.importorskip("onnxruntime")

SCRIPT = ROOT / "tools/corpus/applications.py"
FILES, SAVED = ["MobileNetV3Small"], ["MobileNet"]

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not HAS_KERAS, reason=f"no Keras here, nor by {PYTHON_VARIABLE}"),
]


@pytest.mark.parametrize(
    ("keras", "form", "files"),
    [("keras", "files", (".h5", ".keras")), ("tf_keras", "files", (".h5",)),
     ("keras", "savedmodel", ("SavedModel",)), ("tf_keras", "savedmodel", ("SavedModel",))],
)  # fmt: skip
def test_they_compute_what_keras_computes(keras, form, files):
    names = FILES if form == "files" else SAVED
    python = os.environ.get(PYTHON_VARIABLE, sys.executable)
    done = subprocess.run(
        [sys.executable, SCRIPT, "--tensorflow-python", python, "--keras", keras,
         "--form", form, *names],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    rows = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = [[name, "smallest", keras, suffix] for name in names for suffix in files]
    assert [[*row[:3], row[4]] for row in rows if row[0] in names] == wanted  # row[3]: a version
