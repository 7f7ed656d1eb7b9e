"""The archives of fixtures/torch_programs, and what torch computed with them."""

import io
import json
import zipfile

import numpy as np
import onnx_run
from repository import FIXTURES

PROGRAMS = json.loads((FIXTURES / "torch_programs" / "programs.json").read_text())


def unpacked(archive, name, folder):
    """Return a program's file, and what torch was given and gave."""
    with zipfile.ZipFile(FIXTURES / "torch_programs" / archive) as held:
        path = folder / f"{name}.pt"
        path.write_bytes(held.read(f"{name}.pt"))
        return path, np.load(io.BytesIO(held.read(f"{name}.npz")))


def check_runs(graph, bundle, arrays, count):
    """Run a graph as torch ran, and compare names, dtypes, shapes and values."""
    model = onnx_run.session(graph, bundle.weights)
    for i in range(count):
        feeds = {n.partition(".")[2]: arrays[n] for n in arrays.files if n.startswith(f"{i}.")}
        wanted = {n.partition(":")[2]: arrays[n] for n in arrays.files if n.startswith(f"{i}:")}
        assert sorted(graph.inputs) == sorted(feeds)
        assert graph.outputs == list(wanted)
        for name, got in onnx_run.run_named(model, feeds).items():
            assert got.dtype == wanted[name].dtype, name
            assert got.shape == wanted[name].shape, name
            np.testing.assert_allclose(got, wanted[name], atol=2e-5, rtol=2e-5, err_msg=name)
