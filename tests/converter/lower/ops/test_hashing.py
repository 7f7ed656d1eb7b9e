"""Hashes of integers beside those of their digits as strings."""

import numpy as np
import onnx_run
import pytest
import spellings as s

from converter.lower.fingerprints import fingerprint

LENGTHS = [[sign * (10**n + 7 * n) for n in range(19)] for sign in (1, -1)]
NUMBERS = np.array([*LENGTHS, [0, 9, -9, 2**63 - 1, -(2**63), *range(14)]], "int64")


@pytest.mark.parametrize("shape", [NUMBERS.shape, (None, None)])
def test_integers_are_hashed_as_their_digits(tmp_path, shape):
    graph, weights = s.keras_layer(tmp_path, "Hashing", [("int64", shape)], {"num_bins": 1 << 30})
    (found,) = onnx_run.run(graph, NUMBERS, weights=weights)
    expected = [[fingerprint(str(n).encode()) % (1 << 30) for n in row] for row in NUMBERS.tolist()]
    np.testing.assert_array_equal(found, expected)
