"""Pickles with some values changed: as Python's own unpickler reads them; nothing else moves."""

import pickle
import random

import pytest

from formats.containers.pickle.rewriting import Made, Number, Text, Tracer, encode_number, spell
from formats.containers.pickle.unpickler import Budget
from formats.errors import ConvertError, CorruptError, UnsupportedError
from formats.limits import DEFAULT

PROTOCOLS = range(6)


def tracer(data):
    return Tracer(data, DEFAULT, Budget(1_000_000), "pickle")


def texts(value):
    if isinstance(value, dict):
        for k, v in value.items():
            yield from texts(k)
            yield from texts(v)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item)
    elif isinstance(value, Text):
        yield value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_text_becomes_another(protocol):
    value = {"place": "cuda:0", "n": [1, 2.5, None, "cuda:0x", "ü cuda:0"]}
    run = tracer(pickle.dumps(value, protocol))
    for text in texts(run.load()):
        if text == "cuda:0":
            run.say(text, "a-much-longer-name")
    made = run.rewrite()
    assert pickle.loads(made) == value | {"place": "a-much-longer-name"}
    if protocol >= 4:  # the frame's length is right: a reader that trusts it finds the end
        assert int.from_bytes(made[3:11], "little") == len(made) - 11


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_not_asked_for_stays_byte_for_byte(protocol):
    data = pickle.dumps([("cuda:0", 1), {"a": "cuda:0"}, b"cuda:0", 1 << 70], protocol)
    run = tracer(data)
    for text in texts(run.load()):
        run.say(text, str(text))
    assert run.rewrite() == data


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("chosen", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
def test_a_text_of_the_memo_changes_only_where_it_was_meant(protocol, chosen):
    shared = "".join(["cuda", ":0"])
    value = [shared, shared, shared, "end"]
    data = pickle.dumps(value, protocol)
    run = tracer(data)
    found = run.load()
    for i in chosen:
        run.say(found[i], "cpu")
    expected = ["cpu" if i in chosen else text for i, text in enumerate(value)]
    assert pickle.loads(run.rewrite()) == expected


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_frames(protocol):
    """Python frames what is longer than 64 KiB anew."""
    value = ["cuda:0" + str(i) for i in range(9000)]
    run = tracer(pickle.dumps(value, protocol))
    found = run.load()
    for i in (0, 4000, 8999):
        run.say(found[i], "x")
    expected = [*value]
    expected[0] = expected[4000] = expected[8999] = "x"
    assert pickle.loads(run.rewrite()) == expected


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_numbers_and_tuples_know_their_bytes(protocol):
    data = pickle.dumps([("cuda", 7), ("cuda", 300), ("cuda", 70_000)], protocol)
    run = tracer(data)
    for pair, n in zip(run.load(), (7, 300, 70_000), strict=True):
        assert isinstance(pair, Made)
        number = pair[1]
        assert isinstance(number, Number)
        assert number == n
        run.put(number.start, number.end, encode_number(n + 1, data[number.start]))
    assert pickle.loads(run.rewrite()) == [("cuda", 8), ("cuda", 301), ("cuda", 70_001)]


def test_two_wishes_for_one_place_are_refused():
    run = tracer(pickle.dumps(["cuda:0"], 2))
    (text,) = run.load()
    run.say(text, "cpu")
    run.put(text.start, text.end, b"N")
    with pytest.raises(UnsupportedError, match="one value twice"):
        run.rewrite()


def test_python_2_spelled_texts_otherwise():
    for opcode, data in ((b"U", b"U\x03cpu."), (b"S", b"S'cpu'\n."), (b"T", b"T\x03\0\0\0cpu.")):
        run = tracer(data)
        run.say(run.load(), "cuda:1")
        made = run.rewrite()
        assert made[:1] == opcode
        assert pickle.loads(made) == "cuda:1"
    assert spell("cpu", ord("V")) == b"Vcpu\n"


def test_damage_is_an_error():
    data = pickle.dumps({"a": ("storage", "cuda:0"), "b": ["cuda:0"] * 9}, 2)
    rng = random.Random(3)
    for _ in range(3000):
        hurt = bytearray(data)
        for _ in range(rng.randrange(1, 3)):
            hurt[rng.randrange(len(hurt))] = rng.randrange(256)
        run = tracer(bytes(hurt[: rng.randrange(1, len(hurt) + 1)]))
        try:
            for text in texts(run.load()):
                run.say(text, "cpu")
            run.rewrite()
        except ConvertError:
            continue
    with pytest.raises(CorruptError):
        tracer(b"").load()
