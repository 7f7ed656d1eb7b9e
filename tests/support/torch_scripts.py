"""The archives of fixtures/torch_programs, and what torch computed with them."""

import io
import json
import zipfile

import numpy as np
import pytest
from repository import FIXTURES

from converter.lower import emit

onnxruntime = pytest.importorskip("onnxruntime")

PROGRAMS = json.loads((FIXTURES / "torch_programs" / "programs.json").read_text())


def session(path, graph, bundle):
    with path.open("wb") as f:
        for piece in emit.model(graph, bundle.weights).pieces():
            f.write(piece if isinstance(piece, bytes) else piece.read())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def unpacked(archive, name, folder):
    """Return a program's file, and what torch was given and gave."""
    with zipfile.ZipFile(FIXTURES / "torch_programs" / archive) as held:
        path = folder / f"{name}.pt"
        path.write_bytes(held.read(f"{name}.pt"))
        return path, np.load(io.BytesIO(held.read(f"{name}.npz")))


def check_runs(running, graph, arrays, count):
    """Run a graph as torch ran, and compare names, dtypes, shapes and values."""
    for i in range(count):
        feeds = {n.partition(".")[2]: arrays[n] for n in arrays.files if n.startswith(f"{i}.")}
        wanted = {n.partition(":")[2]: arrays[n] for n in arrays.files if n.startswith(f"{i}:")}
        assert sorted(graph.inputs) == sorted(feeds)
        assert graph.outputs == list(wanted)
        read = {one.name for one in running.get_inputs()}
        made = running.run(None, {n: a for n, a in feeds.items() if n in read})
        for name, got in zip(graph.outputs, made, strict=True):
            assert got.dtype == wanted[name].dtype, name
            assert got.shape == wanted[name].shape, name
            np.testing.assert_allclose(got, wanted[name], atol=2e-5, rtol=2e-5, err_msg=name)
