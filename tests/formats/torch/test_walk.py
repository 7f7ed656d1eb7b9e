"""Names, groups and plain data that the tree of a pickle gives."""

import pickle
from typing import Any

import pytest
from repository import ROOT

from formats.containers.pickle.values import Map, Odd, Record
from formats.core.bundle import Bundle
from formats.core.storage import Buffer, Span
from formats.errors import LimitError
from formats.limits import DEFAULT, Limits
from formats.torch.bundle import finish
from formats.torch.containers import Session
from formats.torch.tensor_values import TYPES, StorageRef, TensorValue
from formats.torch.walk import MAX_USER_BYTES, Tree


def tensor(elements: int = 2, element: str = "float32") -> TensorValue:
    kind = TYPES[element]
    ref = StorageRef("0", kind, "cpu", elements * kind.itemsize)
    ref.span = Span.whole(Buffer(bytes(ref.nbytes), "test"))
    return TensorValue("strided", kind, (elements,), storage=ref)


def module(cls: str, **state: object) -> Record:
    record = Record(cls)
    record.build({"_parameters": {}, "_buffers": {}, "_modules": {}, **state})
    return record


def bundle(value: object, limits: Limits = DEFAULT, **options: Any) -> Bundle:
    session = Session.begin(limits)
    tree = Tree(limits, **options)
    tree.add(value)
    return finish(tree, session, format="torch", variant="", recorded={})


def test_paths_are_joined_by_dots() -> None:
    found = bundle({"a": [tensor(), {"b": (tensor(),)}], 3: tensor(), "x.y": tensor()})
    assert list(found.weights) == ["a.0", "a.1.b.0", "3", "x.y"]
    assert [t.origin for t in found.weights.values()] == ["a/0", "a/1/b/0", "3", "x.y"]


def test_names_that_collide_take_their_origin() -> None:
    found = bundle({"a": {"b": tensor()}, "a.b": tensor(), 1: tensor(), "1": tensor()})
    assert len(found.weights) == 4
    assert "a/b" in found.weights


def test_a_lone_tensor_has_a_name() -> None:
    assert list(bundle(tensor()).weights) == ["tensor"]


def test_module_dictionaries_leave_no_trace() -> None:
    inner = module("x.Inner", _parameters={"w": tensor(), "bias": None}, extra=tensor())
    outer = module("x.Outer", _modules={"inner": inner}, width=3)
    found = bundle({"model": outer})
    assert list(found.weights) == ["model.inner.w", "model.inner.extra"]
    assert found.metadata.tensor_notes["model.inner.extra"] == {"attribute": True}
    assert found.metadata.opaque == {"model": "x.Outer", "model.inner": "x.Inner"}
    assert found.topology is not None
    assert found.topology.content == {
        "model.inner": {"class": "x.Inner"},
        "model": {"class": "x.Outer", "width": 3},
    }


@pytest.mark.parametrize(
    ("key", "value", "group"),
    [
        ("optimizer", {"m": tensor()}, "optimizer"),
        ("optimizer_states", [{"m": tensor()}], "optimizer"),
        ("g_optim", {"m": tensor()}, "optimizer"),
        ("whatever", {"state": {0: {"m": tensor()}}, "param_groups": []}, "optimizer"),
        ("rng_state", tensor(8, "uint8"), "training"),
        ("random_states", {"cuda": [tensor(8, "uint8")]}, "training"),
        ("cuda_rng_state_all", [tensor(8, "uint8")], "training"),
        ("loss_scaler", {"scale": tensor()}, "training"),
        ("scaler", {"scale": tensor(), "growth_factor": 2.0}, "training"),
        ("lr_scheduler", {"x": tensor()}, "training"),
        ("state_dict", {"optimizer_embedding": tensor()}, None),
        ("ema", {"w": tensor()}, None),
    ],
)
def test_groups(key: str, value: object, group: str | None) -> None:
    found = bundle({key: value})
    assert [len(found.weights), *map(len, found.leftovers.values())] == (
        [1] if group is None else [0, 1]
    )
    assert list(found.leftovers) == ([] if group is None else [group])


def test_lightning_keeps_callbacks_apart() -> None:
    saved = {
        "pytorch-lightning_version": "2.0",
        "state_dict": {"w": tensor()},
        "callbacks": {"c": tensor()},
    }
    found = bundle(saved)
    assert list(found.weights) == ["state_dict.w"]
    assert list(found.leftovers["training"]) == ["callbacks.c"]
    assert found.metadata.recorded["pytorch-lightning_version"] == "2.0"


def test_plain_data() -> None:
    found = bundle(
        {
            "epoch": 3,
            "nan": float("nan"),
            "bytes": b"\xff",
            "tuple": (1, "a", None),
            "big": 1 << 100,
            "list": [tensor(), 5],
            "w": tensor(),
            "empty": {},
            "tensors": {"x": tensor()},
        }
    )
    assert found.metadata.user == {
        "epoch": 3,
        "nan": "nan",
        "bytes": {"base64": "/w=="},
        "tuple": [1, "a", None],
        "big": hex(1 << 100),
        "list": ["(tensor)", 5],
        "empty": {},
    }


def test_attributes_of_dicts_are_kept() -> None:
    state = Map("collections.OrderedDict")
    state["w"] = tensor()
    state.state = {"_metadata": {"": {"version": 1}}}
    assert bundle({"state_dict": state}).metadata.user == {
        "state_dict": {"_metadata": {"": {"version": 1}}}
    }


def test_too_much_plain_data_is_named() -> None:
    found = bundle({"history": list(range(1_000_000)), "text": "x" * MAX_USER_BYTES, "epoch": 3})
    assert found.metadata.user == {"epoch": 3}
    assert [x.name for x in found.metadata.left_out] == ["history", "text"]


def test_cycles_end() -> None:
    loop: dict[object, object] = {"w": tensor()}
    loop["self"] = loop
    loop["list"] = [loop]
    assert list(bundle(loop).weights) == ["w"]


def test_shared_modules_have_all_their_names() -> None:
    shared = module("x.Y", _parameters={"w": tensor()})
    found = bundle(module("x.Z", _modules={"a": shared, "b": shared}))
    assert list(found.weights) == ["a.w", "b.w"]
    first, second = found.weights.values()
    assert first.identity == second.identity


def test_graphs_of_exponential_paths_end() -> None:
    value: object = [tensor()]
    for _ in range(60):
        value = [value, value]
    found = bundle(value)
    assert found.weights
    assert any("stored elsewhere" in x.reason for x in found.metadata.left_out)


def test_deep_nesting_is_named() -> None:
    value: object = [tensor()]
    for _ in range(5000):
        value = [value]
    assert any("deeper" in x.reason for x in bundle(value).metadata.left_out)


def test_odd_keys_are_readable() -> None:
    found = bundle(
        {Odd(("a", 1)): tensor(), Odd(Record("x.Color", (2,))): tensor(), b"caf\xc3\xa9": tensor()}
    )
    assert list(found.weights) == ["(a, 1)", "x.Color(2)", "café"]


def test_tensors_are_limited() -> None:
    with pytest.raises(LimitError):
        bundle([tensor() for _ in range(20)], Limits(max_tensors=10))


def test_a_torch_file_inside_bytes_is_read() -> None:
    session = Session.begin(DEFAULT)
    tree = session.tree()
    tree.add({"blob": pickle.dumps({"a": 1})})
    assert not tree.tensors
    assert "blob" in tree.user


def test_long_bytes_that_are_the_state_of_an_object_are_looked_into() -> None:
    """They stay in their file, as a run of it, and may be a torch file of their own."""
    data = ROOT / "fixtures/torch/torch1.0-state.pth"
    span = Span.whole(Buffer(data.read_bytes(), "test"))
    for build in ({"bytes": span}, span, (span,)):
        record = Record("a.B")
        record.build(build)
        session = Session.begin(DEFAULT)
        tree = session.tree()
        tree.add({"object": record})
        found = finish(tree, session, format="torch", variant="", recorded={})
        assert found.weights, build
    record = Record("a.B")
    record.build(Span.whole(Buffer(bytes(100), "test")))
    left = bundle({"object": record}).metadata.left_out
    assert [x.reason for x in left] == ["100 bytes of opaque data"]
