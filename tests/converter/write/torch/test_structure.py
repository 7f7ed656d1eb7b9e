"""What --keep-structure makes of values, one by one, and of values made to harm."""

import pickle
import time
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
from repository import ROOT

from converter.devices.names import TorchDevice
from converter.options import Options
from converter.write.torch import checkpoint, structure
from converter.write.torch.storages import Storages
from converter.write.torch.structure import keep_structure
from formats import catalog
from formats.artifact import Artifact
from formats.containers.pickle.encoder import Call, Key, dumps
from formats.containers.pickle.values import Global, Map, Odd, Record, SetOf
from formats.core.storage import Buffer, Span
from formats.errors import ConvertError, CorruptError, LimitError, UnsupportedError
from formats.limits import DEFAULT
from formats.torch.numpy_globals import NumpyArray, NumpyScalar, NumpyType
from formats.torch.structure import Size
from formats.torch.tensor_values import TYPES, StorageRef, TensorValue

CUDA = TorchDevice("cuda", 1)


def kept(value: object, device: TorchDevice = CUDA) -> SimpleNamespace:
    """Return what became of a value, and its pickle."""
    storages = Storages(device, {})
    made = keep_structure(value, storages, DEFAULT)
    storages.settle()
    facts = {field.name: getattr(made, field.name) for field in fields(made)}
    return SimpleNamespace(**facts, pickle=dumps(made.value))


def tensor(data: bytes = b"\0" * 16, location: str = "cpu", kind: str = "float32") -> TensorValue:
    ref = StorageRef("0", TYPES[kind], location, len(data))
    ref.span = Span.whole(Buffer(data, "storage"))
    shape = (len(data) // TYPES[kind].itemsize,)
    return TensorValue("strided", TYPES[kind], shape, storage=ref, strides=(1,))


def record(cls: str, *args: object, state: object = None, **pairs: object) -> Record:
    made = Record(cls, args)
    if state is not None:
        made.build(state)
    if pairs:
        made.update(list(pairs.items()))
    return made


def module(**slots: object) -> Record:
    state = {"_parameters": {}, "_buffers": {}, "_modules": {}, "training": True} | slots
    return record("torch.nn.Linear", state=state)


@pytest.mark.parametrize(
    "value",
    [None, True, -7, 1 << 2000, 1.5, "é", b"\xff", 1 + 2j, [1, [2]], (1, (2,)), {"a": {1: 2}}],
)
def test_plain_data_stays(value: object) -> None:
    assert pickle.loads(kept(value).pickle) == value


@pytest.mark.parametrize(
    ("value", "what", "expected"),
    [
        (record("argparse.Namespace", state={"lr": 1}), "argparse.Namespace made a dict",
         {"lr": 1}),
        (record("types.SimpleNamespace", state={"a": 2}), "types.SimpleNamespace made a dict",
         {"a": 2}),
        (record("lib.AttributeDict", a=1, b=[2]), "lib.AttributeDict made a dict",
         {"a": 1, "b": [2]}),
        (record("builtins.frozenset", SetOf([1, 2])), "frozenset made a set", {1, 2}),
        (record("collections.deque", [1, 2]), "deque made a list", [1, 2]),
        (record("pathlib.Path", "/a"), "path made text", "/a"),
        (NumpyScalar(1.5, "float32"), "numpy scalar made a number", 1.5),
        (NumpyScalar(True, "bool"), "numpy scalar made a number", True),
    ],
)  # fmt: skip
def test_what_is_made_plain_is_counted(value: object, what: str, expected: object) -> None:
    made = kept({"x": value})
    assert pickle.loads(made.pickle) == {"x": expected}
    assert made.simplified == {what: 1}
    assert made.left_out == []


def test_dicts_keep_their_classes_as_far_as_torch_has_them() -> None:
    ordered, default = Map("collections.OrderedDict"), Map("collections.defaultdict")
    ordered["b"], ordered["a"], default["x"] = 1, 2, [3]
    ordered.state = {"_metadata": {"": 1}}
    made = kept([ordered, default])
    back = pickle.loads(made.pickle)
    assert [type(x).__name__ for x in back] == ["OrderedDict", "dict"]
    assert list(back[0].items()) == [("b", 1), ("a", 2)]
    assert back[0]._metadata == {"": 1}
    assert made.simplified == {"defaultdict made a dict": 1}


def test_keys_of_any_kind() -> None:
    value: dict[object, object] = {Odd((1, "x")): 1, b"k": 2, 1 << 70: 3, None: 4, 2.5: 5}
    value[Odd(record("lib.Enum", 1))] = 6
    value[Odd([1])] = value[Odd((Map("collections.OrderedDict"),))] = 7
    value[Odd(Size((2,)))] = 8
    made = kept(value)
    keys = [k.value if isinstance(k, Key) else k for k in made.value]
    assert keys[:-1] == [(1, "x"), b"k", 1 << 70, None, 2.5]
    assert keys[-1].args == ((2,),)
    assert [x.reason for x in made.left_out] == [
        "a lib.Enum, which torch.load(weights_only=True) refuses", "a key that has no hash",
        "a key that has no hash",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (record("lib.Thing", 1), "a lib.Thing, which torch.load(weights_only=True) refuses"),
        (Global("lib.function"), "lib.function, which torch.load(weights_only=True) refuses"),
        (1 << 3000, "an integer of more than 255 bytes"),
        (NumpyType("f4"), "a numpy.f4, which torch.load refuses"),
        (NumpyScalar(b"xx", "U2"), "a numpy scalar of U2"),
        (NumpyArray("numpy.ndarray", ""), "a numpy array of unknown[]"),
        (Span(Buffer(b"", "b"), 0, 1 << 30), "1073741824 bytes of opaque data"),
    ],
)
def test_what_is_refused_is_named_and_leaves_its_place(value: object, reason: str) -> None:
    made = kept({"a": value, "l": [value, 1], "t": (value,)})
    assert pickle.loads(made.pickle) == {"l": [None, 1], "t": (None,)}
    assert {x.name: x.reason for x in made.left_out} == dict.fromkeys(("a", "l.0", "t.0"), reason)


def test_sets_hold_what_is_kept_and_has_a_hash() -> None:
    made = kept({"s": SetOf([1, record("lib.Thing"), (2, "x"), [3]])})
    assert pickle.loads(made.pickle) == {"s": {1, (2, "x")}}
    assert {x.name: x.reason for x in made.left_out} == {
        "s.1": "a lib.Thing, which torch.load(weights_only=True) refuses",
        "s": "2 of its members",
    }


def test_a_size_a_dtype_a_layout_and_a_device() -> None:
    value = [
        Size((2, 3)), Global("torch.float16"), Global("torch.half"), Global("torch.sparse_csr"),
        record("torch.device", "cuda", 3), record("torch.device", "meta"),
    ]  # fmt: skip
    made = kept(value)
    size, one, other, layout, device, meta = made.value
    assert size.args == ((2, 3),)
    assert (one.name, other.name) == ("float16", "float16")
    assert layout.args == ("torch.sparse_csr",)
    assert (device.args, meta.args) == (("cuda", 1), ("meta",))
    assert made.simplified == {"device object set to the target": 1}


def test_devices_are_counted_and_generators_stay() -> None:
    value = {
        "w": tensor(location="cuda:0"), "step": tensor(location="cpu"),
        "rng_state": tensor(location="cpu", kind="uint8"), "m": tensor(location="cuda:1"),
        "cuda_rng": [tensor(location="cpu", kind="uint8")],
        "rng_table": tensor(location="cuda:0", kind="uint8"),  # no generator's: it was on a GPU
    }  # fmt: skip
    made = kept(value)
    assert made.devices == {"cuda:0": 2, "cpu": 3, "cuda:1": 1}
    assert made.stayed == ["rng_state", "cuda_rng.0"]
    assert made.pickle.count(b"cuda:1") == made.pickle.count(b"X\x03\x00\x00\x00cpu") == 1


def test_a_module_becomes_its_state_dict() -> None:
    weight, table = tensor(), tensor(kind="uint8")
    weight.is_parameter, weight.requires_grad = True, True
    inner = module(
        _parameters={"weight": weight, "bias": None},
        _buffers={"table": table, "passing": tensor()},
        _non_persistent_buffers_set=SetOf(["passing"]),
        cache=[tensor()],
    )
    made = kept({"net": module(_modules={"0": inner, "1": None, "again": inner})})
    (net,) = made.value.values()
    assert isinstance(net, Call)
    assert list(net.pairs or ()) == ["0.weight", "0.table", "again.weight", "again.table"]
    assert {x.name for x in made.left_out} == {
        f"net.{at}.{name}" for at in ("0", "again") for name in ("passing", "cache")
    }
    assert b"_rebuild_parameter" not in made.pickle  # state_dict() has plain tensors
    assert made.simplified == {"module made a state dict": 1}


def test_the_root_may_be_a_module_or_a_tensor() -> None:
    assert isinstance(kept(module(_parameters={"w": tensor()})).value, Call)
    assert isinstance(kept(tensor()).value, Call)
    assert kept(record("lib.Thing")).value is None


# -- made to harm ------------------------------------------------------------------------------


def test_what_holds_itself() -> None:
    looped: list[object] = [1]
    looped.append(looped)
    keyed: dict[object, object] = {}
    keyed["self"] = keyed
    back = pickle.loads(kept([looped, keyed]).pickle)
    assert back[0][1] is back[0]
    assert back[1]["self"] is back[1]
    inside: list[object] = []
    tied = (inside,)
    inside.append(tied)
    made = kept(tied)
    assert [x.reason for x in made.left_out] == ["holds itself"]
    one = module()
    one.state[0]["_modules"]["me"] = one
    assert [x.reason for x in kept({"m": one}).left_out] == ["a module that holds itself"]


@pytest.mark.parametrize("kind", ["list", "tuple", "dict", "module"])
def test_deep_nesting_is_cut_off_and_named(kind: str) -> None:
    value: object = tensor()
    for _ in range(3000):
        if kind == "list":
            value = [value]
        elif kind == "tuple":
            value = (value, 1)
        elif kind == "dict":
            value = {"k": value}
        else:
            value = module(_modules={"m": value if isinstance(value, Record) else None})
    made = kept(value)
    (left,) = made.left_out
    assert "nests deeper" in left.reason or "holds itself" in left.reason


def test_diamonds_do_not_multiply() -> None:
    value: object = [1]
    for _ in range(60):
        value = [value, value, (value,)]
    begin = time.process_time()
    assert len(kept(value).pickle) < 5000
    assert time.process_time() - begin < 5


def test_diamonds_of_modules_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "MAX_VALUES", 20_000)
    value = module(_parameters={"w": tensor()})
    for _ in range(40):
        value = module(_modules={"a": value, "b": value})
    with pytest.raises(LimitError):
        kept(value)


def test_a_tensor_that_reaches_out_of_its_storage_is_corrupt() -> None:
    value = tensor()
    value.shape = (5,)
    with pytest.raises(CorruptError, match="reaches byte 20 of a storage of 16"):
        kept({"w": value})


def test_tensors_refused_half_way_leave_nothing_behind() -> None:
    broken = TensorValue("sparse_coo", TYPES["float32"], (2, 2))
    unknown = tensor()
    unknown.type = None
    broken.parts = {"indices": tensor(kind="int64"), "values": unknown}
    storages = Storages(CUDA, {})
    made = keep_structure({"bad": broken, "good": tensor()}, storages, DEFAULT)
    storages.settle()
    dumps(made.value)
    assert len(storages.views) == len(storages.contents()) == 1
    assert [x.name for x in made.left_out] == ["bad"]


def test_views_of_views_share_one_storage() -> None:
    """As torch before 0.4 declared them: storages within a storage."""
    whole = Span.whole(Buffer(bytes(range(64)), "root"))
    values = []
    for start, length in ((8, 16), (0, 64), (20, 8)):
        ref = StorageRef(str(start), TYPES["float32"], "cuda:0", length)
        ref.span = whole.sub(start, length)
        shape = (length // 4,)
        values.append(TensorValue("strided", TYPES["float32"], shape, storage=ref, strides=(1,)))
    storages = Storages(CUDA, {})
    made = keep_structure(values, storages, DEFAULT)
    storages.settle()
    dumps(made.value)
    (content,) = storages.contents()
    assert content.tensor.tobytes() == bytes(range(64))
    assert [call.args[1] for call in made.value] == [2, 0, 5]


def test_overlaps_that_no_storage_can_give_are_a_gap() -> None:
    whole = Span.whole(Buffer(bytes(64), "root"))
    values = []
    for start, length in ((0, 32), (6, 16)):
        ref = StorageRef(str(start), TYPES["float32"], "cpu", length)
        ref.span = whole.sub(start, length)
        values.append(TensorValue("strided", TYPES["float32"], (2,), storage=ref, strides=(1,)))
    storages = Storages(CUDA, {})
    keep_structure(values, storages, DEFAULT)
    with pytest.raises(UnsupportedError, match="share bytes"):
        storages.settle()


def test_one_storage_under_two_types_is_untyped() -> None:
    span = Span.whole(Buffer(bytes(range(12)), "storage"))
    values = []
    for kind in ("float32", "float64", "int16"):
        ref = StorageRef("0", TYPES[kind], "cpu", 12)
        ref.span = span
        shape = (12 // ref.type.itemsize,)
        values.append(TensorValue("strided", ref.type, shape, storage=ref, strides=(1,)))
    storages = Storages(CUDA, {})
    made = keep_structure(values, storages, DEFAULT)
    storages.settle()
    assert b"UntypedStorage" in dumps(made.value)
    assert {call.function.name for call in made.value} == {"_rebuild_tensor_v3"}
    (content,) = storages.contents()
    assert content.tensor.tobytes() == bytes(range(12))  # all of it, whatever divides it


def test_pickles_made_to_run_code_run_nothing(tmp_path: Path) -> None:
    """The corpus of hostile pickles: an error of ours, or a file that names nothing of them."""
    flag = tmp_path / "flag"
    folder = ROOT / "fixtures" / "torch"
    artifact = Artifact(folder / "torch2.13-hostile.pth")
    made = checkpoint.plan(
        catalog.read(artifact), (), artifact, Options(to="torch", device="cpu", keep_structure=True)
    )
    data = made.archive._small["data.pkl"]
    for word in (b"posix", b"system", b"eval", b"exec", b"subprocess", b"runpy"):
        assert word + b"\n" not in data
    evil = (
        b"\x80\x02}X\x01\x00\x00\x00acposix\nsystem\n"
        + (b"X%c\x00\x00\x00touch %s" % (6 + len(str(flag)), str(flag).encode()))
        + b"\x85Rs."
    )
    (tmp_path / "evil.pkl").write_bytes(evil)
    artifact = Artifact(tmp_path / "evil.pkl")
    with pytest.raises(ConvertError):
        checkpoint.plan(
            catalog.read(artifact),
            (),
            artifact,
            Options(to="torch", device="cpu", keep_structure=True),
        )
    assert not flag.exists()
