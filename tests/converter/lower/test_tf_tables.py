"""SavedModels whose tables are filled while they load, or whose variables a call changes."""

import numpy as np
import pytest
from repository import ROOT

import converter
from converter.lower import emit, lower
from formats.errors import UnsupportedError

onnxruntime = pytest.importorskip("onnxruntime")

FIXTURES = ROOT / "fixtures" / "tf_tables"
CASES = sorted(p.stem for p in FIXTURES.glob("*.npz"))


def session(folder, path):
    bundle = converter.read(folder)
    graph = lower(bundle)
    with path.open("wb") as f:
        for piece in emit.model(graph, bundle.weights).pieces():
            f.write(piece if isinstance(piece, bytes) else piece.read())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("case", CASES)
def test_what_is_read_is_what_tensorflow_reads(tmp_path, case):
    stored = np.load(FIXTURES / f"{case}.npz")
    model = session(FIXTURES / case, tmp_path / "model.onnx")
    fed = {
        spec.name: stored[f"in.{spec.name}"].astype(object)
        if spec.type == "tensor(string)"
        else stored[f"in.{spec.name}"]
        for spec in model.get_inputs()
    }
    expected = {k.removeprefix("out."): stored[k] for k in stored.files if k.startswith("out.")}
    names = [o.name for o in model.get_outputs()]
    assert sorted(names) == sorted(expected)
    for name, found in zip(names, model.run(None, fed), strict=True):
        theirs = expected[name]
        assert found.shape == theirs.shape, name
        if theirs.dtype.kind == "U":
            assert found.tolist() == theirs.tolist()
        else:
            assert found.dtype == theirs.dtype
            np.testing.assert_allclose(found, theirs, rtol=1e-6)


def test_all_kinds_of_models_are_there():
    tables = {"columns", "embedded", "file", "file_legacy", "mutable", "static"}
    assert set(CASES) == {*tables, "references", "scattered"}


def test_a_table_that_needs_a_file_that_is_gone_is_a_gap(tmp_path):
    import shutil

    shutil.copytree(FIXTURES / "file", tmp_path / "model")
    (tmp_path / "model" / "assets" / "words.txt").unlink()
    with pytest.raises(UnsupportedError, match=r"table .* is filled by nothing"):
        lower(converter.read(tmp_path / "model"))
