"""Which gaps to fix first: against every order there is."""

from itertools import permutations
from random import Random

from converter.jobs.record import Unsupported
from converter.reports.unsupported import Gaps


def of(*models):
    found = Gaps()
    for model in models:
        found.add([Unsupported(what, 2) for what in model])
    return found


def test_what_frees_most_comes_first():
    found = of("ab", "ab", "ac", "c", "d", "d", "", "a")
    assert found.blocked == 7
    assert [(g.what, g.models, g.count, g.unblocked) for g in found.rank_features()] == [
        ("d", 2, 4, 2), ("a", 4, 8, 3), ("b", 2, 4, 5), ("c", 2, 4, 7),
    ]  # fmt: skip


def test_without_gaps_there_is_nothing():
    assert of("", "").rank_features() == []
    assert of().blocked == 0


def test_a_gap_that_one_model_has_twice_blocks_one_model():
    found = Gaps()
    found.add([Unsupported("a", 2), Unsupported("a", 3)])
    (gap,) = found.rank_features()
    assert (gap.models, gap.count, gap.unblocked) == (1, 5, 1)


def test_the_figures_are_those_of_the_definition():
    draw = Random(1)
    for _ in range(30):
        models = [draw.sample("abcde", draw.randint(1, 3)) for _ in range(12)]
        ranked = of(*models).rank_features()
        order = [g.what for g in ranked]
        assert sorted(order) == sorted({what for model in models for what in model})
        for i, gap in enumerate(ranked):
            gone = set(order[: i + 1])
            assert gap.unblocked == sum(set(model) <= gone for model in models)
            assert gap.models == sum(gap.what in model for model in models)
        # Greedy: no other gap would free more at its place.
        for i, gap in enumerate(ranked):
            frees = {what: sum(set(m) <= {*order[:i], what} for m in models) for what in order[i:]}
            assert frees[gap.what] == max(frees.values())
            assert gap.unblocked == frees[gap.what]


def test_it_is_not_far_from_the_best_order():
    models = ["ab", "ab", "bc", "d", "d", "abc", "e"]
    ranked = [g.unblocked for g in of(*models).rank_features()]
    best = max(
        sum(sum(set(m) <= set(order[: i + 1]) for m in models) for i in range(5))
        for order in permutations("abcde")
    )
    assert sum(ranked) >= 0.8 * best


def test_twenty_thousand_gaps_take_no_time():
    draw = Random(2)
    found = of(*([f"gap {draw.randrange(20_000)}" for _ in range(3)] for _ in range(20_000)))
    ranked = found.rank_features()
    assert ranked[-1].unblocked == found.blocked == 20_000
