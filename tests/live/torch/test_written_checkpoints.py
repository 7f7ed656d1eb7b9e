"""Files of ``--to torch`` under real torch: its restricted unpickler, mmap, its places of data."""

import argparse
import collections
import enum
import math
import pathlib
import pickletools
import random
import types
import warnings
import zipfile

import numpy as np
import pytest
from repository import ROOT

import converter
from converter.options import Options
from formats.errors import UnsupportedError

torch = pytest.importorskip("torch")


def convert(source, out, device="cuda:1", **others):
    options = Options(to="torch", device=device, **others)
    return converter.convert(source, to="torch", out=out, options=options)


def load(path, **others):
    return torch.load(path, map_location="cpu", weights_only=True, **others)


def bits(tensor):
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def same(one, other):
    """Compare tensors of any layout, and where they are in their storages."""
    assert (one.layout, one.dtype, one.is_nested) == (other.layout, other.dtype, other.is_nested)
    if one.is_nested:
        for a, b in zip(one.unbind(), other.unbind(), strict=True):
            assert bits(a) == bits(b)
        return
    assert one.shape == other.shape
    if one.layout == torch.sparse_coo:
        assert one.is_coalesced() == other.is_coalesced()
        same(one._indices(), other._indices())
        same(one._values(), other._values())
    elif one.layout in (torch.sparse_csr, torch.sparse_bsr):
        same(one.crow_indices(), other.crow_indices())
        same(one.col_indices(), other.col_indices())
        same(one.values(), other.values())
    elif one.layout in (torch.sparse_csc, torch.sparse_bsc):
        same(one.ccol_indices(), other.ccol_indices())
        same(one.values(), other.values())
    elif one.is_quantized:
        assert one.qscheme() == other.qscheme()
        assert torch.equal(one.int_repr(), other.int_repr())
        assert torch.equal(one.dequantize(), other.dequantize())
    else:
        assert (one.stride(), one.storage_offset()) == (other.stride(), other.storage_offset())
        assert bits(one) == bits(other)


@pytest.fixture(scope="module")
def state():
    warnings.simplefilter("ignore")
    torch.manual_seed(4)
    t = torch.arange(24.0).reshape(4, 6)
    scales, zeros = torch.tensor([0.5, 0.25], dtype=torch.double), torch.tensor([1, 2])
    special = torch.tensor([math.nan, math.inf, -0.0, 1e-45])
    special.view(torch.int32)[0] = 0x7FC12345  # a payload
    found = collections.OrderedDict(
        w=t, turned=t.t(), thin=t[1:3, ::2], expanded=torch.ones(1).expand(5), special=special,
        empty=torch.empty(0, 3), scalar=torch.tensor(3), grad=torch.ones(2, requires_grad=True),
        channels_last=torch.randn(1, 3, 4, 4).to(memory_format=torch.channels_last),
        quantized=torch.quantize_per_tensor(torch.randn(3, 2), 0.5, 1, torch.qint8),
        by_channel=torch.quantize_per_channel(torch.randn(2, 2), scales, zeros, 0, torch.quint8),
        qint32=torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.qint32),
        coo=torch.eye(3).to_sparse(), coo_loose=torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,)),
        csr=torch.eye(3).to_sparse_csr(), csc=torch.eye(3).to_sparse_csc(),
        bsr=torch.eye(4).to_sparse_bsr((2, 2)), bsc=torch.eye(4).to_sparse_bsc((2, 2)),
        nested=torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    )  # fmt: skip
    for dtype in (
        "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
        "uint16", "uint32", "uint64", "complex32", "complex64", "complex128", "float8_e4m3fn",
        "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2",
    ):  # fmt: skip
        kind = getattr(torch, dtype)
        raw = torch.randint(0, 2, (6 * kind.itemsize,), dtype=torch.uint8)
        found[dtype] = raw.view(kind).reshape(2, 3)
    return found


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("legacy", [False, True])
def test_every_dtype_and_layout(tmp_path, state, keep, legacy, monkeypatch):
    value = state
    if legacy:  # which knows fewer types
        value = {k: v for k, v in state.items() if "uint" not in k and not k.startswith("float4")}
    torch.save(value, tmp_path / "in.pt", _use_new_zipfile_serialization=not legacy)
    out = tmp_path / "out.pt"
    result = convert(tmp_path / "in.pt", out, keep_structure=keep)
    assert result.bundle.metadata.left_out == ()
    monkeypatch.setenv("TORCH_SERIALIZATION_DEBUG", "1")  # compares places with those computed
    from torch.utils.serialization import config

    for mmap, computed in ((False, False), (True, False), (True, True)):
        with config.patch({"load.calculate_storage_offsets": computed}):
            found = load(out, mmap=mmap)
        assert list(found) == list(value)
        for name, tensor in value.items():
            same(found[name], tensor)
        shared = [found[n].untyped_storage().data_ptr() for n in ("w", "turned", "thin")]
        assert len(set(shared)) == 1
        assert found["grad"].requires_grad
    with pytest.raises(RuntimeError, match=r"torch\.cuda\.is_available"):
        torch.load(out, weights_only=True)
    with zipfile.ZipFile(out) as z:
        assert z.testzip() is None


def test_the_same_device_gives_torchs_own_pickle(tmp_path, state):
    torch.save(state, tmp_path / "archive.pt")
    for keep in (False, True):
        convert(tmp_path / "archive.pt", tmp_path / f"{keep}.pt", "cpu", keep_structure=keep)
        ours = zipfile.ZipFile(tmp_path / f"{keep}.pt")
        theirs = zipfile.ZipFile(tmp_path / "archive.pt")
        assert ours.namelist()[:-1] == theirs.namelist()
        for one, other in zip(ours.infolist(), theirs.infolist(), strict=False):
            assert (one.header_offset, one.flag_bits) == (other.header_offset, other.flag_bits)
            if not one.filename.endswith("serialization_id"):
                assert ours.read(one) == theirs.read(other), one.filename


def test_conjugate_and_negative_views(tmp_path):
    z = torch.randn(3, dtype=torch.complex64)
    value = {"conj": z.conj(), "neg": torch._neg_view(torch.ones(3)), "plain": z}
    torch.save(value, tmp_path / "in.pt")
    for keep in (False, True):
        convert(tmp_path / "in.pt", tmp_path / f"{keep}.pt", keep_structure=keep)
        found = load(tmp_path / f"{keep}.pt")
        assert all(torch.equal(found[k], value[k]) for k in value)
        assert found["conj"].is_conj() == keep  # a flat state dict has them worked out


class Colour(enum.Enum):
    RED = 1


class Own:
    def __init__(self):
        self.x = torch.ones(1)


def checkpoint():
    """Return a checkpoint of all that people put into one, and what it must become."""
    torch.manual_seed(6)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    net.register_buffer("passing", torch.ones(2), persistent=False)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    net(torch.randn(2, 3)).sum().backward()
    optimizer.step()
    shared, looped = [1, 2], [1]
    looped.append(looped)
    noted = torch.ones(2)
    noted.note = {"bar": (1, torch.zeros(1))}
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.tag, parameter.bad = "x", Own()
    kept = {
        "epoch": 3, "none": None, "flags": [True, False], "inf": math.inf, "huge": 2**200,
        "negative": -(2**70), "text": "é\U0001f600", "raw": b"\x00\xff", "loose": bytearray(b"xyz"),
        "z": 1 + 2j, "tuple": (1, (2,), ()), "set": {1, 2}, "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16, "layout": torch.sparse_coo, "counter": collections.Counter("aab"),
        "ordered": collections.OrderedDict([(1, 2)]), (1, 2): "key", b"bytes": 1, 2.5: 3, None: 4,
        "s1": shared, "s2": shared, "model": net.state_dict(), "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(), "python_rng": random.getstate(),
    }  # fmt: skip
    made = {
        "args": (argparse.Namespace(lr=0.1, device=torch.device("cuda", 3)),
                 {"lr": 0.1, "device": torch.device("cuda", 1)}),
        "simple": (types.SimpleNamespace(a=1), {"a": 1}),
        "big_endian": (np.arange(6, dtype=">f4").reshape(2, 3),
                       torch.arange(6, dtype=torch.float32).reshape(2, 3)),
        "fortran": (np.asfortranarray(np.arange(6.0).reshape(2, 3)),
                    torch.arange(6, dtype=torch.float64).reshape(2, 3)),
        "unsigned": (np.arange(3, dtype=np.uint32), torch.arange(3).to(torch.uint32)),
        "np32": (np.float32(1.1), 1.100000023841858), "np_bool": (np.bool_(True), True),
        "np_int": (np.int64(2**40), 2**40), "np_complex": (np.complex64(1 + 2j), 1 + 2j),
        "frozen": (frozenset([3]), {3}), "deque": (collections.deque([1, 2]), [1, 2]),
        "default": (collections.defaultdict(list, {"a": [1]}), {"a": [1]}),
        "path": (pathlib.PurePosixPath("/a/b"), "/a/b"),
        "device": (torch.device("cuda:0"), torch.device("cuda:1")),
        "module": (net, net.state_dict()), "list": ([1, Own(), 2], [1, None, 2]),
    }  # fmt: skip
    refused = {
        "colour": Colour.RED, "own": Own(), "class": Own, "function": torch.relu,
        "objects": np.array([1, "a"], dtype=object), "words": np.array(["ab", "c"]),
        "numpy_dtype": np.dtype("f4"),
    }  # fmt: skip
    value = {**kept, **{k: v for k, (v, _) in made.items()}, **refused,
             "loop": looped, "noted": noted, "parameter": parameter,
             "ema": {"alias": net.state_dict()["0.weight"]},
             "meta": torch.empty(2, 3, device="meta").t()}  # fmt: skip
    return value, {**kept, **{k: v for k, (_, v) in made.items()}}, refused


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple) and not isinstance(one, torch.Size):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_checkpoint_keeps_all_that_torch_takes(tmp_path, legacy):
    value, expected, refused = checkpoint()
    torch.save(value, tmp_path / "in.pt", _use_new_zipfile_serialization=not legacy)
    out = tmp_path / "out.pt"
    result = convert(tmp_path / "in.pt", out, keep_structure=True)
    found = load(out)
    assert [k for k in value if k not in refused] == list(found)
    for key, wanted in expected.items():
        assert equal(found[key], wanted), key
    named = {x.name: x.reason for x in result.bundle.metadata.left_out}
    assert named.keys() == {*refused, "list.1", "parameter.bad", "module.passing"}
    assert found["s1"] is found["s2"]
    assert found["loop"][1] is found["loop"]
    assert equal(found["noted"].note, {"bar": (1, torch.zeros(1))})
    assert (found["parameter"].tag, type(found["parameter"])) == ("x", torch.nn.Parameter)
    assert found["model"]._metadata == value["model"]._metadata
    tied = found["model"]["0.weight"], found["ema"]["alias"], found["module"]["0.weight"]
    assert len({t.data_ptr() for t in tied}) == 1
    assert (found["meta"].device.type, found["meta"].stride()) == ("meta", (1, 3))
    torch.set_rng_state(found["rng"])
    random.setstate(found["python_rng"])


@pytest.mark.parametrize("device", ["xla:0", "mtia", "maia:1"])
def test_devices_without_storages(tmp_path, state, device, monkeypatch):
    torch.save({"w": state["w"], "p": torch.nn.Parameter(torch.ones(2))}, tmp_path / "in.pt")
    asked = []

    def to(self, *args, **others):
        asked.append((others["dtype"], others["device"]))
        return self

    monkeypatch.setattr(torch.Tensor, "to", to)
    for keep in (False, True):
        convert(tmp_path / "in.pt", tmp_path / f"{keep}.pt", device, keep_structure=keep)
        found = torch.load(tmp_path / f"{keep}.pt", weights_only=True)
        assert torch.equal(found["w"], state["w"])
        assert asked == [(torch.float32, device)] * 2
        asked.clear()


# torch warns of its own code, of each kind once in a process.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_older_torch_files_and_other_sources(tmp_path):
    """Everything under fixtures/torch that becomes a file, torch loads without any class."""
    folder = ROOT / "fixtures" / "torch"
    count = 0
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".py"):
            continue
        for keep in (False, True):
            out = tmp_path / f"{keep}-{path.name}.pt"
            try:
                convert(path, out, keep_structure=keep)
            except UnsupportedError:
                continue
            load(out)
            out.unlink()
            count += 1
    assert count > 80


def scrambled(rng, depth=0):
    """Return random nested data with tensors that share storages."""
    kind = rng.randrange(9 if depth < 5 else 5)
    if kind < 2:
        base = torch.randn(rng.randrange(1, 40), dtype=rng.choice([torch.float32, torch.float64]))
        return rng.choice([base, base[:: rng.randrange(1, 4)], base.reshape(1, -1).t()])
    if kind < 5:
        return rng.choice([None, True, -3, 2**33, 1.5, "x" * rng.randrange(300), b"\xfe", ()])
    count = rng.randrange(4)
    if kind == 5:
        return [scrambled(rng, depth + 1) for _ in range(count)]
    if kind == 6:
        return tuple(scrambled(rng, depth + 1) for _ in range(count))
    pairs = {rng.choice(["a", "b", 3, (1, "t")]): scrambled(rng, depth + 1) for _ in range(count)}
    return collections.OrderedDict(pairs) if kind == 7 else pairs


def test_random_checkpoints(tmp_path):
    for seed in range(60):
        rng = random.Random(seed)
        torch.manual_seed(seed)
        value = {"first": torch.ones(1), "rest": scrambled(rng), "more": scrambled(rng)}
        value["again"] = value["rest"]
        torch.save(value, tmp_path / "in.pt")
        convert(tmp_path / "in.pt", tmp_path / "out.pt", keep_structure=True, overwrite=True)
        found = load(tmp_path / "out.pt")
        assert equal(found, value), seed
        ours, theirs = counted(tmp_path / "out.pt"), counted(tmp_path / "in.pt")
        assert ours == theirs, seed


def counted(path):
    """Count a pickle's opcodes; of texts, which Python writes once or twice, only that they are."""
    with zipfile.ZipFile(path) as z:
        (name,) = (n for n in z.namelist() if n.endswith("data.pkl"))
        ops = [op.name for op, _, _ in pickletools.genops(z.read(name))]
    skipped = ("BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "BINUNICODE")
    return collections.Counter(op for op in ops if op not in skipped)
