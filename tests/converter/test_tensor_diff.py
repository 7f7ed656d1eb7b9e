"""diff: equal, renamed, changed with how much, missing; never "nothing to compare, so equal"."""

import math

import numpy as np
import pytest
from repository import ROOT

from converter.reading import read
from converter.tensor_diff import TensorDiff, compute_max_abs, diff
from formats.core.bundle import Bundle, Metadata
from formats.core.weights import DTYPES, Tensor
from formats.errors import VerificationError

RNG = np.random.default_rng(8)


def tensor(array):
    name = "bool" if array.dtype == bool else array.dtype.name
    return Tensor.inline(DTYPES[name], array.shape, array.tobytes())


def bundle(**arrays):
    return Bundle(Metadata("test", "test"), {n: tensor(a) for n, a in arrays.items()})


def test_all_kinds_at_once():
    same, moved, old = (RNG.standard_normal((3, 4)).astype("f4") for _ in range(3))
    new = old.copy()
    new[1, 2] += 0.5
    gone, added, recast = RNG.standard_normal(5), RNG.standard_normal(6), RNG.standard_normal(7)
    a = bundle(same=same, moved=moved, edited=old, gone=gone, recast=recast)
    b = bundle(same=same, elsewhere=moved, edited=new, added=added, recast=recast.astype("f4"))
    found = {d.a or d.b: d for d in diff(a, b)}
    assert found["same"] == TensorDiff("equal", "same", "same", "float32[3, 4]")
    assert found["moved"] == TensorDiff("renamed", "moved", "elsewhere", "float32[3, 4]")
    assert found["edited"].kind == "changed"
    assert found["edited"].max_abs == pytest.approx(0.5, abs=1e-6)
    assert found["gone"].kind == "only in A"
    assert found["added"].kind == "only in B"
    assert found["recast"].types == "float64[7] -> float32[7]"
    assert 0 < found["recast"].max_abs < 1e-6
    assert len(found) == 6


def test_a_swap_is_two_renames():
    x, y = RNG.standard_normal(3), RNG.standard_normal(3)
    kinds = [(d.kind, d.a, d.b) for d in diff(bundle(p=x, q=y), bundle(p=y, q=x))]
    assert kinds == [("renamed", "p", "q"), ("renamed", "q", "p")]


def test_max_abs_of_odd_numbers():
    inf = tensor(np.array([np.inf, np.nan, 1.0], "f4"))
    assert compute_max_abs(inf, inf) == 0
    assert math.isnan(compute_max_abs(inf, tensor(np.array([np.inf, 0.0, 1.0], "f4"))))
    assert compute_max_abs(inf, tensor(np.array([-np.inf, np.nan, 1.0], "f4"))) == math.inf
    assert compute_max_abs(tensor(np.array([1 + 1j])), tensor(np.array([1 - 1j]))) == 2
    assert compute_max_abs(tensor(np.array([True])), tensor(np.array([False]))) == 1
    assert compute_max_abs(tensor(np.ones(2)), tensor(np.ones(3))) is None


def test_two_empty_artifacts_compare_nothing():
    with pytest.raises(VerificationError):
        diff(bundle(), bundle())


def test_paths_are_compared_as_bundles_are():
    path = ROOT / "fixtures" / "torch" / "torch2.13-zip.pth"
    by_path = diff(path, str(path))
    assert by_path == diff(read(path), path)
    assert {d.kind for d in by_path} == {"equal"}
    assert by_path._repr_html_().count("equal") == len(by_path)
