"""What the child that runs Keras knows of it; nothing here needs Keras."""

import numpy as np
import pytest

from converter.verification.children.run_keras import first_that_runs, is_mistaken, shape_of

TERMS = [
    # x, term, and whether Keras's TensorFlow backend adds it along another axis
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


class Framework:
    """Takes inputs as wide as their numbers, and makes less of them."""

    np = np

    def __init__(self, crop):
        self.crop = crop

    def set_states(self, model, folder, number, own):
        pass

    def values(self, model):
        return []

    def reset(self, model):
        pass

    def inputs(self, model, folder, number, names):
        return np.arange(number, dtype="f4")

    def flat(self, outputs):
        return outputs

    def array(self, output):
        return output, "float32"


@pytest.mark.parametrize(
    ("crop", "alternatives", "chosen"),
    [
        (2, [1, 2, 5, 9], 5),
        (20, [1, 2, 5, 9], 1),
        (0, [3, 4], 3),
        (None, [4, 6], 6),
        (-1, [2], None),
    ],
)
def test_inputs_of_which_something_is_made_go_before_those_of_which_nothing_is(
    tmp_path, crop, alternatives, chosen
):
    def model(x, training):
        if crop == -1 or (crop is None and len(x) < 5):
            raise ValueError("too small")
        return [x[crop:], x[:0]]

    found = first_that_runs(Framework(crop), tmp_path, model, [], alternatives)
    assert found["chosen"] == chosen
    made = {p.name for p in tmp_path.iterdir()}
    assert made == (set() if chosen is None else {f"out-{chosen}-{i}.npy" for i in (0, 1)})
