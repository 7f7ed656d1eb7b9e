"""What is not supported, as one message."""

import pytest

from converter.lower.unsupported import Finding, report
from formats.errors import UnsupportedError


def raised(*findings, hint=None):
    with pytest.raises(UnsupportedError) as caught:
        report(findings, hint)
    return caught.value


def test_nothing_is_no_error():
    report([])


def test_one_kind_is_one_line_with_its_count_and_places():
    error = raised(*(Finding("op QDense", place) for place in ("fc1", "fc2", "output")))
    assert error.found == "not supported: op QDense ×3, at fc1, fc2, output"  # noqa: RUF001
    assert error.gaps == (("op QDense", 3),)


def test_kinds_are_a_line_each_and_the_most_frequent_comes_first():
    several = [Finding("op B", f"b{i}", "axis 3") for i in range(7)]
    error = raised(Finding("op A", "a"), *several, hint="Do so")
    assert error.found.splitlines() == [
        "not supported:",
        "  op B: axis 3 ×7, at b0, b1, b2, b3, b4 and 2 more",  # noqa: RUF001
        "  op A, at a",
    ]
    assert error.hint == "Do so"
    assert dict(error.gaps) == {"op A": 1, "op B: axis 3": 7}


def test_details_stand_behind_their_places_unless_they_are_the_same():
    same = raised(Finding("op A", "a", detail="units=3"), Finding("op A", "b", detail="units=3"))
    assert same.found == "not supported: op A ×2, at a, b (units=3)"  # noqa: RUF001
    other = raised(Finding("op A", "a", detail="units=3"), Finding("op A", "b"))
    assert other.found == "not supported: op A ×2, at a (units=3), b"  # noqa: RUF001


def test_a_message_ends():
    error = raised(*(Finding(f"op {i}", "x") for i in range(50)))
    assert error.found.splitlines()[-1] == "  and 30 more kinds"
