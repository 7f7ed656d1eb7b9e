"""The pickle decoder against Python's own pickler, and against pickles no pickler writes."""

import codecs
import collections
import contextlib
import decimal
import pickle
import random
import struct
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.containers.pickle import decoder
from formats.containers.pickle.constructors import CORE
from formats.containers.pickle.unpickler import BLOB, Budget, Unpickler
from formats.containers.pickle.values import Global, Map, Odd, Record, SetOf
from formats.core.storage import Span
from formats.errors import ConvertError, CorruptError, LimitError, UnsupportedError
from formats.limits import DEFAULT, Limits


def machine(data: bytes, limits: Limits = DEFAULT) -> Unpickler:
    return Unpickler(data, limits, Budget(limits.max_pickle_opcodes), constructors=CORE)


def load(data: bytes) -> object:
    return decoder.load(machine(data))


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**100), max_value=2**100)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(plain, st.integers(min_value=0, max_value=5))
@settings(max_examples=300, deadline=None)
def test_plain_values_of_every_protocol(value: object, protocol: int) -> None:
    assert load(pickle.dumps(value, protocol=protocol)) == value


@pytest.mark.parametrize("protocol", range(6))
def test_long_text_and_shared_lists(protocol: int) -> None:
    shared = ["x" * 100_000]
    value = load(pickle.dumps([shared, shared, "é" * 300], protocol=protocol))
    assert value == [shared, shared, "é" * 300]
    assert isinstance(value, list)
    assert value[0] is value[1]


def test_long_bytes_stay_where_they_are() -> None:
    data = pickle.dumps([b"y" * (BLOB + 1), 7], protocol=4)
    value = load(data)
    assert isinstance(value, list)
    assert isinstance(value[0], Span)
    assert value[0].read() == b"y" * (BLOB + 1)
    assert value[1] == 7


@pytest.mark.parametrize("protocol", range(6))
def test_standard_classes_are_plain_data(protocol: int) -> None:
    source = {
        "ordered": collections.OrderedDict(a=1),
        "default": collections.defaultdict(list, b=[2]),
        "deque": collections.deque([1, 2]),
        "set": {3},
        "frozen": frozenset([4]),
        "bytes": bytearray(b"z"),
        "complex": 1 + 2j,
    }
    value = load(pickle.dumps(source, protocol=protocol))
    assert isinstance(value, dict)
    assert isinstance(value["ordered"], Map)
    assert value["ordered"] == {"a": 1}
    assert value["default"] == {"b": [2]}
    assert value["deque"] == [1, 2]
    assert isinstance(value["set"], SetOf)
    assert value["set"].items == [3]
    assert value["frozen"].items == [4]
    assert value["bytes"] == b"z"
    assert value["complex"] == 1 + 2j


class Thing:
    def __init__(self) -> None:
        self.x = 1


@pytest.mark.parametrize("protocol", range(6))
def test_unknown_objects_are_records(protocol: int) -> None:
    vm = machine(pickle.dumps(Thing(), protocol=protocol))
    value = decoder.load(vm)
    assert isinstance(value, Record)
    assert value.cls.endswith(".Thing")
    assert value.state == ({"x": 1},)
    assert not vm.calls  # making an object runs nothing but its class's __new__


def test_decimal_is_a_record_and_no_finding() -> None:
    vm = machine(pickle.dumps(decimal.Decimal("1.5")))
    value = decoder.load(vm)
    assert isinstance(value, Record)
    assert (value.cls, value.args) == ("decimal.Decimal", ("1.5",))
    assert not vm.calls


def test_python_2_strings() -> None:
    assert load(b"U\x03abc.") == "abc"
    assert load(b"U\x02\xc3\xa9.") == b"\xc3\xa9"
    assert load(b"S'a\\x00b'\n.") == "a\0b"


def test_python_2_modules_have_their_new_names() -> None:
    assert load(b"c__builtin__\nset\n].").__class__ is list
    value = load(b"ccopy_reg\n_reconstructor\n(cfoo\nBar\nc__builtin__\nobject\nNtR}U\x01aK\x01sb.")
    assert isinstance(value, Record)
    assert value.cls == "foo.Bar"
    assert value.state == ({"a": 1},)


def test_persistent_ids() -> None:
    vm = machine(b"\x80\x02(U\x07storageK\x05tQ.")
    vm.persistent = lambda _, pid: ("found", pid)
    assert decoder.load(vm) == ("found", ("storage", 5))


def test_attribute_of_a_global_is_a_global() -> None:
    value = load(b"cbuiltins\ngetattr\n(ctorch\nTensor\nX\x05\0\0\0_maketR.")
    assert isinstance(value, Global)
    assert value.name == "torch.Tensor._make"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"cos\nsystem\n(U\x02lstR.", "os.system"),
        (b"(U\x02lsiposix\nsystem\n.", "posix.system"),
        (b"(cposix\nsystem\nU\x02lso.", "posix.system"),
        (b"csubprocess\nPopen\n(U\x02lst\x81.", "subprocess.Popen"),
        (b"cmodule\nfunction\n)R.", "module.function"),
        (b"cbuiltins\neval\n(U\x011tR.", "builtins.eval"),
        (b"cfoo\nBar\n)R)R.", "foo.Bar()"),
    ],
)
def test_calls_are_reported_and_nothing_runs(data: bytes, name: str) -> None:
    vm = machine(data)
    value = decoder.load(vm)
    assert isinstance(value, Record)
    assert name in vm.calls


@pytest.mark.parametrize("data", [b"\x82\x01.", b"\x84\x01\0\0\0.", b"\x97.", b"\x80\x06."])
def test_what_lives_elsewhere_is_refused(data: bytes) -> None:
    with pytest.raises(UnsupportedError):
        load(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"a.",
        b"K",
        b"(",
        b"t.",
        b"h\x00.",
        b"\xff.",
        b"]K\x01s.",
        b"K\x01K\x02K\x03s.",
        b"K\x01K\x02a.",
        b"}(K\x01u.",
        b"\x85.",
        b"N\x86.",
        b"R.",
        b"NNR.",
        b"cfoo\n",
        b"I12x\n.",
        b"Fabc\n.",
        b"S'abc\n.",
        b"Vabc",
        b"X\xff\xff\xff\x7fa.",
        b"B\xff\xff\xff\x7fa.",
        b"\x8e" + b"\xff" * 8 + b".",
        b"\x95" + b"\xff" * 3,
        b"\x93.",
        b"K\x01K\x02\x93.",
        b"0.",
        b"1.",
        b"2.",
    ],
)
def test_broken_pickles(data: bytes) -> None:
    with pytest.raises(CorruptError):
        load(data)


def test_every_truncation_is_our_error() -> None:
    data = pickle.dumps({"a": [1, 2.5, "x" * 300], "b": Thing(), "c": {1, 2}, "d": 1 << 90}, 2)
    for end in range(len(data)):
        with pytest.raises(ConvertError):
            load(data[:end])


@given(st.binary(max_size=60))
@settings(max_examples=2000, deadline=None)
def test_any_bytes(data: bytes) -> None:
    with contextlib.suppress(ConvertError):
        load(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x8b\xff\xff\xff\x7f.",
        b"L" + b"9" * 5000 + b"L\n.",
        b"](" + b"K\x01" * 100 + b"e" + b"2" * 2000 + b".",
        b"X" + struct.pack("<I", 1_000_000) + b"x" * 1_000_000 + b".",
        b"S'" + b"x" * (1 << 26),
        b"X" + struct.pack("<I", 1 << 26) + "é".encode() * ((1 << 25) - 2) + "😀".encode() + b".",
    ],
)
def test_limits(data: bytes) -> None:
    small = Limits(max_pickle_opcodes=1000, max_integer_bytes=1024)
    with pytest.raises(LimitError):
        decoder.load(machine(data, small))


def test_copying_costs() -> None:
    data = b"](" + b"K\x01" * 500 + b"eq\x000c__builtin__\nlist\nq\x010"
    data += b"](" + b"h\x01h\x00\x85R" * 50 + b"e."
    with pytest.raises(LimitError):
        decoder.load(machine(data, Limits(max_pickle_opcodes=5000)))


def test_keys_that_would_be_slow_to_hash_are_wrapped() -> None:
    deep = b")" + b"\x85" * 100_000
    value = load(b"}" + deep + b"K\x01s.")
    assert isinstance(value, dict)
    assert isinstance(next(iter(value)), Odd)
    modulus = (1 << 61) - 1
    numbers = (n * modulus for n in range(20_000))  # all of one hash
    entries = b"".join(b"\x8a\x0a" + n.to_bytes(10, "little") + b"N" for n in numbers)
    value = load(b"}(" + entries + b"u.")
    assert isinstance(value, dict)
    assert len(value) == 20_000


def test_frames_and_memo_of_protocol_5() -> None:
    value = ["a", "a", b"b" * 10, bytearray(b"c"), {"k": ("v", 1)}]
    assert load(pickle.dumps(value, protocol=5)) == ["a", "a", b"b" * 10, b"c", {"k": ("v", 1)}]


def test_pickles_may_follow_each_other() -> None:
    first = pickle.dumps([1], 2)
    vm = machine(first + pickle.dumps([2], 2))
    assert decoder.load(vm) == [1]
    assert vm.position == len(first)


def test_windows_move_over_long_pickles() -> None:
    value = [f"text {i}" * 10 for i in range(40_000)]
    data = pickle.dumps(value, protocol=2)
    assert len(data) > 1 << 21
    assert load(data) == value


def test_binary_numbers() -> None:
    numbers = [0, 255, 256, 65535, 65536, -1, -(2**31), 2**31 - 1, 2**31, 2**63, -(2**63), 1 << 200]
    for protocol in range(6):
        assert load(pickle.dumps(numbers, protocol=protocol)) == numbers
    assert load(b"G" + struct.pack(">d", 1.5) + b".") == 1.5


def test_escapes_of_python_2_strings() -> None:
    rng = random.Random(5)
    alphabet = b"\\\\\\x01a7nfF'\"\xe9 8t"
    for _ in range(20_000):
        text = bytes(rng.choice(alphabet) for _ in range(rng.randrange(9)))
        try:
            with warnings.catch_warnings(action="ignore"):
                expected = codecs.escape_decode(text)[0]
        except ValueError:
            with pytest.raises(CorruptError):
                load(b"S'" + text + b"'\n.")
        else:
            found = load(b"S'" + text + b"'\n.")
            assert (found if isinstance(found, bytes) else str(found).encode()) == expected
