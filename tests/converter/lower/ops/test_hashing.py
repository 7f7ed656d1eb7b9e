"""Hashes of integers beside those of their digits as strings."""

import numpy as np
import onnx_run
import pytest
import spellings as s

from converter.lower.fingerprints import fingerprint
from formats.errors import UnsupportedError

LENGTHS = [[sign * (10**n + 7 * n) for n in range(19)] for sign in (1, -1)]
NUMBERS = np.array([*LENGTHS, [0, 9, -9, 2**63 - 1, -(2**63), *range(14)]], "int64")


@pytest.mark.parametrize("shape", [NUMBERS.shape, (None, None)])
def test_integers_are_hashed_as_their_digits(tmp_path, shape):
    graph, weights = s.keras_layer(tmp_path, "Hashing", [("int64", shape)], {"num_bins": 1 << 30})
    (found,) = onnx_run.run(graph, NUMBERS, weights=weights)
    expected = [[fingerprint(str(n).encode()) % (1 << 30) for n in row] for row in NUMBERS.tolist()]
    np.testing.assert_array_equal(found, expected)


def test_salted_hashes_of_strings_are_not_supported(tmp_path):
    with pytest.raises(UnsupportedError, match="a salt for strings: their SipHash cannot be"):
        s.keras_layer(tmp_path, "Hashing", [("string", (2, 3))], {"num_bins": 5, "salt": 7})


def test_a_masked_string_too_long_for_a_fingerprint_is_not_supported(tmp_path):
    config = {"num_bins": 5, "mask_value": "x" * 33}
    with pytest.raises(UnsupportedError, match="hashes of strings: a string of 33 bytes"):
        s.keras_layer(tmp_path, "Hashing", [("string", (2, 3))], config)


@pytest.mark.parametrize("shape", [(2, 3), (None, None)])
def test_hashed_strings_become_an_input_of_fingerprints(tmp_path, shape):
    graph, _ = s.keras_layer(tmp_path, "Hashing", [("string", shape)], {"num_bins": 5})
    assert graph.inputs == ["x0/fingerprint"]
    (one,) = graph.encoded
    assert (one.input, one.parts[0].dtype) == ("x0", "uint64")
