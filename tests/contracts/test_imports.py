"""What running us imports: never a framework, and for a common job nothing heavy at all."""

import json
import pkgutil
import subprocess
import sys

import pytest
from repository import FIXTURES

import converter
import formats

FRAMEWORKS = {"tensorflow", "keras", "tf_keras", "torch", "jax", "onnxruntime"}
# What lowers, writes and checks graphs works on arrays; the rest only where elements must move.
GRAPHS = (
    "converter.capture", "converter.lower.", "converter.passes", "converter.verification.",
    "converter.write.", "converter.devices.",
)  # fmt: skip
# Only the child that has torch imports it: see the contract in pyproject.toml.
CHILDREN = ("converter.write.torch.graph_module.",)
HEAVY = FRAMEWORKS | {"h5py", "onnx", "google.protobuf", "pandas"}


def imported_by(code):
    script = f"import sys, json\n{code}\njson.dump(sorted(sys.modules), sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_importing_every_module_imports_no_framework():
    names = [
        m.name
        for package in (formats, converter)
        for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not m.name.endswith("__main__") and not m.name.startswith(CHILDREN)
    ]
    assert len(names) > 20
    found = imported_by("\n".join(f"import {n}" for n in names))
    assert not found & HEAVY
    light = [n for n in names if not n.startswith(GRAPHS)]
    assert "numpy" not in imported_by("\n".join(f"import {n}" for n in light))


def test_help_imports_next_to_nothing():
    found = imported_by("from converter.cli.app import run; run(['--help'])")
    assert not found & (HEAVY | {"numpy", "formats.catalog", "pydantic", "rich"})


def test_the_package_itself_costs_nothing():
    assert not {m for m in imported_by("import converter") if m.startswith("formats")}


@pytest.mark.parametrize("target", ["portable", "safetensors"])
def test_a_pt_file_converts_without_numpy_or_any_library(tmp_path, target):
    source, out = min(FIXTURES.glob("demo/*.pt")), tmp_path / "out"
    found = imported_by(
        f"from converter.cli.app import run\n"
        f"assert run(['SOURCE', '{source}', '--to', '{target}', '-q', '-o', '{out}']) == 0"
    )
    assert not found & (HEAVY | {"numpy", "ml_dtypes"})
