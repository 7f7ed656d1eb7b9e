"""Keras loads the `.keras` files of fixtures/keras_layers, and computes what the rows store."""

import io
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from keras_rows import FAMILIES, opened, sources, written
from repository import SUPPORT

PYTHON = "CONVERT_TENSORFLOW_PYTHON"
EVERY = int(os.environ.get("CONVERTER_LIVE_EVERY", "8"))  # row of a family is run in Keras; 1: all
CHILD = SUPPORT / "run_keras_files.py"
# What today's Keras computes otherwise: vectors shorter than 1e-6 are scaled in another way, of
# which the conversion warns.
OTHERWISE = {"unit-small.tf_keras.h5"}


def without_gaps(tmp_path, family, name, count):
    """Return which of a row's outputs have none."""
    alone = tmp_path / "alone"
    return [i for i in range(count) if written(alone / str(i), family, name, [i])[0] is not None]


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("warm_tensorflow")
@pytest.mark.parametrize("family", FAMILIES)
def test_keras_loads_what_is_written_and_computes_the_same(tmp_path, family):
    python = os.environ.get(PYTHON)
    if not python:
        pytest.skip(f"{PYTHON} names no Python that has Keras")
    rows = {}
    for name in sources(family)[::EVERY]:
        path, _ = written(tmp_path, family, name)
        stored = opened(family).read(f"{name.rpartition('.')[0]}.npz")
        arrays = dict(np.load(io.BytesIO(stored)))
        keys = [key for key in arrays if key.startswith("out")]
        if path is None and family == "tensorflow_ops" and len(keys) > 1:
            outputs = without_gaps(tmp_path, family, name, len(keys))
            path = written(tmp_path, family, name, outputs)[0] if outputs else None
            for key in (key for i, key in enumerate(keys) if i not in outputs):
                del arrays[key]
        if path is not None:
            data = path.with_name("row.npz")
            np.savez(data, **arrays)
            source = path.with_name(f"source{Path(name).suffix}")
            source.write_bytes(opened(family).read(name))
            rows[name] = (str(path), str(data), str(source))
    question = tmp_path / "question.json"
    question.write_text(json.dumps(rows))
    done = subprocess.run([python, CHILD, question], capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout.splitlines()[-1])
    assert set(answer) == set(rows)
    assert {name for name, text in answer.items() if text} == OTHERWISE & set(answer)
