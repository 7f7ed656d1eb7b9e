"""What the child that runs Keras knows of it; nothing here needs Keras."""

import pytest

from converter.verify.runner_keras import is_mistaken, shape_of

TERMS = [
    # x, term, and whether Keras's TensorFlow back end adds it along another axis
    ([2, 5, 6, 4], [4], False),
    ([2, 5, 6, 4], [1, 1, 1, 4], False),
    ([2, 4, 5, 6], [1, 4, 1, 1], False),
    ([2, 4, 5, 4], [1, 4, 1, 1], True),  # as many filters as columns
    ([2, 4, 4], [1, 4, 1], True),
    ([4, 3, 4], [4, 1, 1], True),  # as many samples
    ([4, 4], [4, 1], True),
    ([1, 4], [4, 1], True),  # which is [4, 4]
    ([2, 4, 5, 6], [4, 1, 1], False),
    ([2, 4, 5], [4], False),  # no shapes for numpy, and added all the same
    ([2, 3, 5, 6], [1, 1, 5, 1], False),
    ([2, 5, 5, 6], [1, 1, 5, 1], True),
    ([2, 4, 4], [1, 1, 4, 1], True),
    ([2, 4, 5, 4], [2, 4, 1, 1], False),
    ([None, 4, 5, 4], [None, 1, 1, 1], False),
    ([4], [4], False),
    ([2, 4], [], False),
]


@pytest.mark.parametrize(("x", "term", "expected"), TERMS)
def test_terms_that_keras_takes_for_a_bias_of_another_axis(x, term, expected):
    assert is_mistaken(x, term) is expected


def test_a_number_has_no_shape():
    assert shape_of(1.5) is None
