"""Training groups: named where they are left out, kept where they are included."""

import pytest

from converter.normalise.groups import select_groups
from formats.core.bundle import Bundle, Metadata
from formats.core.weights import DTYPES, Tensor
from formats.errors import UsageError


def tensor(origin):
    return Tensor.inline(DTYPES["uint8"], (1,), origin.encode(), origin=origin)


def test_groups_are_named_when_left_out_and_kept_when_included():
    source = Bundle(
        Metadata("torch", "test", framework="torch"),
        {"w": tensor("w")},
        leftovers={"optimizer": {"state.0.exp_avg": tensor("m"), "w": tensor("v")}},
    )
    out = select_groups(source, [])
    assert list(out.weights) == ["w"]
    assert [x.name for x in out.metadata.left_out] == ["state.0.exp_avg", "w"]
    kept = select_groups(source, ["optimizer"])
    assert list(kept.weights) == ["w", "state.0.exp_avg", "optimizer.w"]
    assert not kept.metadata.left_out
    with pytest.raises(UsageError, match=r"include='everything'.*optimizer"):
        select_groups(source, ["everything"])
