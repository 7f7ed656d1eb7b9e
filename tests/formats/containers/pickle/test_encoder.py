"""Pickles that are written: Python reads them back, and would have written the same bytes."""

import pickle
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.containers.pickle.encoder import Call, Key, Name, Outside, dumps
from formats.errors import InternalError

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 300), 1 << 300),
    st.floats(allow_nan=False),
    st.text(max_size=8),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=4),
    ),
    max_leaves=25,
)


@given(VALUES)
def test_python_reads_back_what_was_written(value: object) -> None:
    assert repr(pickle.loads(dumps(value))) == repr(value)


@pytest.mark.parametrize(
    "value",
    [
        0, 255, 256, 65535, 65536, -1, (1 << 31) - 1, 1 << 31, -(1 << 31), -(1 << 31) - 1,
        -2, -127, 127, 128, -128, -129, 1 << 63, -(1 << 63), 1 << 2030, 1.5, float("inf"), -0.0, "",
        "é\ud800", b"a\xff", (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1], [1, 2], {},
        {"a": 1},
        {"a": 1, "b": [None, True, False]}, list(range(999)), {i: i for i in range(999)},
        OrderedDict(),
    ],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_the_bytes_are_pythons_own(value: object) -> None:
    ours = Call(Name("collections", "OrderedDict")) if type(value) is OrderedDict else value
    assert dumps(ours) == pickle.dumps(value, 2)


def test_one_object_stays_one() -> None:
    shared = [1]
    looped: list[object] = [shared, shared, {"x": shared}]
    looped.append(looped)
    assert dumps(looped) == pickle.dumps(looped, 2)
    back = pickle.loads(dumps(looped))
    assert back[0] is back[1] is back[2]["x"]
    assert back[3] is back


def test_large_containers_come_in_batches() -> None:
    rows, pairs = list(range(2501)), {str(i): [i] for i in range(2001)}
    assert pickle.loads(dumps([rows, pairs])) == [rows, pairs]
    assert dumps(rows).count(b"e") >= 2


def test_calls_keys_and_what_stands_outside() -> None:
    made = Call(Name("collections", "OrderedDict"), (), {"a": 1, Key((1, "x")): 2}, {"note": "n"})
    back = pickle.loads(dumps([made, made, 1 + 2j, b""]))
    assert back[0] is back[1]
    assert back == [OrderedDict([("a", 1), ((1, "x"), 2)])] * 2 + [1 + 2j, b""]
    assert back[0].note == "n"

    class Reader(pickle.Unpickler):
        def persistent_load(self, pid: object) -> object:
            return ("found", pid)

    import io

    data = dumps([Outside(lambda: ("storage", "0")), Outside(lambda: ("storage", "0"))])
    assert Reader(io.BytesIO(data)).load() == [("found", ("storage", "0"))] * 2


@pytest.mark.parametrize("value", [object(), {1}, 1 << 2040, [1 << 2040]])
def test_what_has_no_opcode_is_our_bug(value: object) -> None:
    with pytest.raises(InternalError):
        dumps(value)
