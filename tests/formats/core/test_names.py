"""Names are unique whatever comes in, and do not depend on the order of reading."""

from hypothesis import given
from hypothesis import strategies as st

from formats.core.names import printable, unique_names

words = st.text(alphabet="ab/.~2_", max_size=4)


@given(st.lists(st.lists(words, min_size=1, max_size=3), max_size=12))
def test_names_are_always_unique_and_never_empty(candidates):
    names = unique_names(candidates)
    assert len(set(names)) == len(names) == len(candidates)
    assert all(names)


@given(
    st.lists(st.lists(words, min_size=1, max_size=3), max_size=8, unique_by=lambda c: c[-1]),
    st.randoms(use_true_random=False),
)
def test_order_does_not_decide_where_last_candidates_differ(candidates, random):
    shuffled = random.sample(candidates, len(candidates))
    one = {c[-1]: n for c, n in zip(candidates, unique_names(candidates), strict=True)}
    two = {c[-1]: n for c, n in zip(shuffled, unique_names(shuffled), strict=True)}
    clean = [n for c, n in one.items() if "~" not in n]
    if len(clean) == len(one):  # numbering alone follows the source's order
        assert one == two


def test_both_of_two_equal_short_names_take_the_long_one():
    candidates = [["kernel", "dense/kernel"], ["kernel", "conv/kernel"], ["bias", "dense/bias"]]
    assert unique_names(candidates) == ["dense/kernel", "conv/kernel", "bias"]
    assert unique_names([["w"], ["w"], ["w~2"]]) == ["w", "w~3", "w~2"]


def test_printable():
    assert printable("a\ud800b") == "a\\ud800b"
    assert printable("\0") == "\\x00"
    assert printable("") == "_"
    assert printable("__metadata__") == "__metadata___"
    assert printable("größe/重み") == "größe/重み"
