"""Every row of fixtures/keras_layers becomes a `.keras` file of equal weights, or a named gap."""

import io
import json
import os
import re
import subprocess
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from repository import ROOT, SUPPORT

import converter
from converter.write.keras import archive
from formats.errors import UnsupportedError

FIXTURES = ROOT / "fixtures" / "keras_layers"
PYTHON = "CONVERT_TENSORFLOW_PYTHON"
EVERY = int(os.environ.get("CONVERTER_LIVE_EVERY", "8"))  # row of a family is run in Keras; 1: all
CHILD = SUPPORT / "run_keras_files.py"
# What today's Keras computes otherwise: vectors shorter than 1e-6 are scaled in another way, of
# which the conversion warns.
OTHERWISE = {"unit-small.tf_keras.h5"}
FAMILIES = sorted(path.stem for path in FIXTURES.glob("*.zip"))
# A gap says what it is, and where.
GAP = re.compile(r"^\d+ gaps: .+ \(.+\)", re.DOTALL)


@cache
def opened(family):
    return zipfile.ZipFile(FIXTURES / f"{family}.zip")


def sources(family):
    return [name for name in opened(family).namelist() if not name.endswith(".npz")]


def weights(path):
    """Return the variables of a written file by their paths, as its own reader finds them."""
    found = archive.read_again(path)
    return {place: tensor.tobytes() for place, tensor in found.items()}


def written(tmp_path, family, name, outputs=None):
    """Return the file that a row becomes, or its gap; of some of its outputs, where given."""
    folder = tmp_path / name
    folder.mkdir(parents=True, exist_ok=True)
    source = tmp_path / f"source{Path(name).suffix}"
    source.write_bytes(opened(family).read(name))
    bundle = converter.read(source)
    try:
        plan = archive.plan_file(bundle if outputs is None else cut(bundle, outputs))
    except UnsupportedError as e:
        return None, str(e)
    for _ in archive.write_file(plan, folder, verify=True, sync=False):
        pass
    return folder / archive.NAME, ""


def cut(bundle, outputs):
    """Return a functional model of some of its outputs."""
    content = bundle.topology.content
    ends = [content["config"]["output_layers"][i] for i in outputs]
    config = {**content["config"], "output_layers": ends}
    return replace(bundle, topology=replace(bundle.topology, content={**content, "config": config}))


def without_gaps(tmp_path, family, name, count):
    """Return which of a row's outputs have none."""
    alone = tmp_path / "alone"
    return [i for i in range(count) if written(alone / str(i), family, name, [i])[0] is not None]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_is_written_and_read_again_or_its_gap_is_named(tmp_path, family):
    for name in sources(family):
        path, gap = written(tmp_path, family, name)
        if path is None:
            assert GAP.match(gap), gap
            continue
        config = json.loads(zipfile.ZipFile(path).read("config.json"))
        assert config["class_name"] in ("Sequential", "Functional")
        # What was written is read as Keras's own, and is written again alike.
        again = archive.plan_file(converter.read(path)).variables
        assert {p: t.tobytes() for p, t in again.items()} == weights(path)


@pytest.mark.keras
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
