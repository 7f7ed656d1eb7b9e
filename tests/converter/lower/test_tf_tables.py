"""SavedModels whose tables are filled while they load, or whose variables a call changes."""

import numpy as np
import pytest
from onnx_run import run_named
from repository import ROOT

import converter
from converter.graphs import lower_signature as lower
from formats.errors import UnsupportedError

FIXTURES = ROOT / "fixtures" / "tf_tables"
CASES = sorted(p.stem for p in FIXTURES.glob("*.npz"))


@pytest.mark.parametrize("case", CASES)
def test_what_is_read_is_what_tensorflow_reads(tmp_path, case):
    stored = np.load(FIXTURES / f"{case}.npz")
    bundle = converter.read(FIXTURES / case)
    given = {k.removeprefix("in."): stored[k] for k in stored.files if k.startswith("in.")}
    expected = {k.removeprefix("out."): stored[k] for k in stored.files if k.startswith("out.")}
    found = run_named(lower(bundle), given, bundle.weights)
    assert sorted(found) == sorted(expected)
    for name, theirs in expected.items():
        if theirs.dtype.kind == "U":
            assert (found[name].shape, found[name].tolist()) == (theirs.shape, theirs.tolist())
        else:
            assert found[name].dtype == theirs.dtype
            np.testing.assert_allclose(found[name], theirs, rtol=1e-6, strict=True)


def test_all_kinds_of_models_are_there():
    tables = {"columns", "embedded", "file", "file_legacy", "mutable", "static"}
    assert set(CASES) == {*tables, "references", "scattered"}


def test_a_table_that_needs_a_file_that_is_gone_is_a_gap(tmp_path):
    import shutil

    shutil.copytree(FIXTURES / "file", tmp_path / "model")
    (tmp_path / "model" / "assets" / "words.txt").unlink()
    with pytest.raises(UnsupportedError, match=r"table .* is filled by nothing"):
        lower(converter.read(tmp_path / "model"))
