"""``--to torch`` of what people save on GPUs (fixtures/torch_devices): tags, views, digests."""

import hashlib
import json
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from repository import FIXTURES
from safetensors.numpy import save_file

import converter
from converter.byte_sizes import readable_size
from converter.options import Options
from converter.write.torch import checkpoint
from converter.write.torch.check import find_tensors
from formats import catalog
from formats.artifact import Artifact
from formats.containers.pickle.values import Map
from formats.core.weights import DTYPES, Tensor
from formats.errors import (
    ConvertError,
    SourceError,
    UnsupportedError,
    UsageError,
    VerificationError,
)
from formats.torch import structure as torch_structure
from formats.torch.tensor_values import TensorValue
from formats.torch.writer import Content

DEVICES = FIXTURES / "torch_devices"
EXPECTED = json.loads((DEVICES / "expected.json").read_text())


def convert(source: Path, out: Path, device: str = "cuda:1", **others: object) -> Path:
    options = Options(to="torch", device=device, **others)
    result = converter.convert(source, to="torch", out=out, options=options)
    assert result.verification.weights is not None
    return out


def held(path: Path) -> list[TensorValue]:
    return list(find_tensors(torch_structure.read(Artifact(path)).value))


def locations(path: Path) -> Counter[str]:
    return Counter(str(t.storage.location) for t in held(path) if t.storage)


def described(path: Path) -> dict[str, dict[str, object]]:
    """Say of a state dict what expected.json says."""
    value = torch_structure.read(Artifact(path)).value
    assert isinstance(value, Map)
    weights = catalog.read(Artifact(path)).weights
    found = {}
    for name, tensor in value.items():
        assert isinstance(tensor, TensorValue)
        found[name] = {
            "dtype": tensor.type.name,
            "shape": list(tensor.shape),
            "strides": list(tensor.strides),
            "offset": tensor.offset,
            "sha256": hashlib.sha256(weights[name].tobytes()).hexdigest(),
        }
    return found


def record(path: Path) -> dict:
    with zipfile.ZipFile(path) as z:
        return json.loads(z.read("archive/convert.json"))


def changes(path: Path) -> dict[str, str]:
    return {n["name"]: n["detail"] for n in record(path)["normalisations"]}


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:0", "mps", "xpu:2", "hpu:0", "npu:3"])
def test_every_storage_is_tagged_for_the_device(tmp_path: Path, device: str, keep: bool) -> None:
    for name in ("cuda1.pt", "cuda1_legacy.pth", "mixed.pt"):
        out = convert(DEVICES / name, tmp_path / name, device, keep_structure=keep)
        assert locations(out) == {device: 9}
        assert described(out) == EXPECTED["state"]
        with zipfile.ZipFile(out) as z:
            assert z.testzip() is None


@pytest.mark.parametrize("keep", [False, True])
def test_views_and_ties_are_as_they_were(tmp_path: Path, keep: bool) -> None:
    out = convert(DEVICES / "views.pt", tmp_path / "o.pt", "cuda:1", keep_structure=keep)
    assert described(out) == EXPECTED["views"]
    by_name = torch_structure.read(Artifact(out)).value
    shared = {by_name[name].storage.key for name in ("whole", "turned", "thin")}
    assert len(shared) == 1
    assert locations(out) == {"cuda:1": len(EXPECTED["views"])}


def test_the_pickle_is_torchs_own_but_for_the_device(tmp_path: Path) -> None:
    for name in ("cuda1.pt", "views.pt"):
        for keep in (False, True):
            out = tmp_path / f"{keep}-{name}"
            convert(DEVICES / name, out, "cuda:0", keep_structure=keep)
            with zipfile.ZipFile(out) as ours, zipfile.ZipFile(DEVICES / name) as theirs:
                stem = name.removesuffix(".pt")
                made, given = ours.read("archive/data.pkl"), theirs.read(f"{stem}/data.pkl")
                assert len(theirs.namelist()) + 1 == len(ours.namelist())
            if name == "views.pt":  # made for cuda:0
                given = given.replace(b"cuda:1", b"cuda:0")
            # torch writes the location anew for every storage; ours is one text.
            assert _unmemoized(made) == _unmemoized(given.replace(b"cuda:1", b"cuda:0"))


def _unmemoized(pickle: bytes) -> list[object]:
    import pickletools

    texts: dict[int, object] = {}
    found: list[object] = []
    memo = 0
    for op, arg, _ in pickletools.genops(pickle):
        if op.name in ("BINPUT", "LONG_BINPUT"):
            texts[memo] = found[-1]
            memo += 1
        elif op.name in ("BINGET", "LONG_BINGET"):
            found.append(texts[arg])
        else:
            found.append((op.name, arg))
    return found


def test_where_tensors_were_is_counted(tmp_path: Path) -> None:
    mixed = convert(DEVICES / "mixed.pt", tmp_path / "a.pt", "cuda:1")
    assert changes(mixed)["device tags"] == "from cuda:0 (6), cpu (1) to cuda:1"
    assert record(mixed)["normalisations"][0]["count"] == 7
    same = convert(DEVICES / "cuda1.pt", tmp_path / "b.pt", "cuda:1")
    assert changes(same) == {}


def test_a_checkpoint_keeps_its_structure(tmp_path: Path) -> None:
    out = convert(DEVICES / "checkpoint.pt", tmp_path / "o.pt", "cuda:0", keep_structure=True)
    before = torch_structure.read(Artifact(DEVICES / "checkpoint.pt")).value
    after = torch_structure.read(Artifact(out)).value
    assert list(after) == list(before)
    assert after["epoch"] == 3
    assert after["scheduler"] == {"last_epoch": 3, "base_lrs": [0.01], "verbose": False}
    assert after["raw"] == b"\x00\xff"
    assert after["names"] == ("a", "é")
    assert (type(after["size"]), tuple(after["size"])) == (torch_structure.Size, (3, 2))
    assert after["best"] == 0.875
    assert after["args"]["layers"] == [3, 4]
    assert after["args"]["device"].args == ("cuda", 0)
    assert isinstance(after["model"], Map)
    assert after["model"].state.keys() == {"_metadata"}
    assert after["model"].state["_metadata"] == before["model"].state["_metadata"]
    tied = (after["model"]["0.weight"], after["ema"]["0.weight"])
    assert tied[0].storage is tied[1].storage
    assert after["optimizer"]["param_groups"] == before["optimizer"]["param_groups"]
    state = after["optimizer"]["state"]
    assert list(state) == list(before["optimizer"]["state"])
    # Everything is on the device, but for what torch only takes from the CPU, and numpy's.
    assert locations(out) == {"cuda:0": 28, "cpu": 2}
    assert after["rng_state"].storage.location == after["history"].storage.location == "cpu"
    assert state[0]["step"].storage.location == "cuda:0"
    said = changes(out)
    assert said["device tags"] == "from cuda:1 (22), cpu (7) to cuda:0"
    assert said["tensors kept on the CPU"].endswith(": rng_state")
    assert said.keys() >= {
        "argparse.Namespace made a dict", "numpy scalar made a number",
        "numpy array made a tensor", "device object set to the target",
    }  # fmt: skip
    assert record(out)["left_out"] == []
    found = catalog.read(Artifact(out))
    every = {**found.weights, **found.leftovers["optimizer"], **found.leftovers["training"]}
    for name, expected in EXPECTED["checkpoint"].items():
        assert hashlib.sha256(every[name].tobytes()).hexdigest() == expected["sha256"], name


def test_without_it_the_model_is_a_flat_state_dict(tmp_path: Path) -> None:
    source = DEVICES / "checkpoint.pt"
    out = convert(source, tmp_path / "o.pt", "cuda:0", strip_prefix="none")
    names = list(torch_structure.read(Artifact(out)).value)
    assert names[:2] == ["model.0.weight", "model.0.bias"]
    assert "ema.0.weight" in names
    assert {x["reason"] for x in record(out)["left_out"]} >= {
        "optimizer state; --include optimizer keeps it"
    }
    assert record(out)["user"]["epoch"] == 3
    more = convert(source, tmp_path / "p.pt", "cuda:0", include=("optimizer", "training"))
    assert locations(more) == {"cuda:0": 29, "cpu": 1}
    assert changes(more)["tensors kept on the CPU"].endswith(": rng_state")


def test_prefixes_come_off_names_and_versions_alike(tmp_path: Path) -> None:
    from formats.containers.pickle.encoder import Call, Name, dumps

    ordered = Name("collections", "OrderedDict")
    inner = Call(ordered, (), {"version": 2})
    versions = Call(ordered, (), {"": {"version": 1}, "module": {"version": 1}, "module.a": inner})
    source = _file(
        tmp_path / "in.pt",
        {"module.a.w": (2,), "module.a.b": (3,)},
        state={"_metadata": versions},
        dumps=dumps,
    )
    out = convert(source, tmp_path / "out.pt", "cuda:1")
    value = torch_structure.read(Artifact(out)).value
    assert list(value) == ["a.w", "a.b"]
    assert value.state["_metadata"] == {"": {"version": 1}, "a": {"version": 2}}


def _file(path: Path, shapes: dict[str, tuple[int, ...]], *, state: object, dumps: object) -> Path:
    """Write a file of torch by hand."""
    from converter.devices.names import TorchDevice
    from converter.write.torch.storages import Storages, View, hooks
    from formats.core.output import Output
    from formats.core.storage import Blocks
    from formats.torch.tensor_values import TYPES
    from formats.torch.writer import Archive

    storages = Storages(TorchDevice("cuda", 0), {})
    pairs = {}
    for name, shape in shapes.items():
        data = np.arange(1, 1 + np.prod(shape), dtype="f4").tobytes()
        tensor = Tensor.inline(DTYPES["float32"], shape, data)
        slot = storages.add_computed_slot(tensor, TYPES["float32"], name, stays=False)
        view = View(hooks(), slot, TYPES["float32"], 0, shape, (1,), requires_grad=False)
        pairs[name] = storages.tensor(view)
    storages.settle()
    root = hooks()
    root.pairs, root.state = pairs, state
    with Output(path) as out:
        pickle = dumps(root)
        list(Archive(pickle, storages.contents()).write(out, Blocks()))
    return path


@pytest.mark.parametrize("device", ["xla:1", "mtia", "maia:0"])
def test_devices_without_storages_get_tensors_of_the_cpu(tmp_path: Path, device: str) -> None:
    options = Options(to="torch", device=device)
    artifact = Artifact(DEVICES / "views.pt")
    made = checkpoint.plan(catalog.read(artifact), (), artifact, options)
    assert any("tied no more" in warning for warning in made.warnings)
    out = convert(DEVICES / "views.pt", tmp_path / "o.pt", device)
    assert locations(out) == {"cpu": len(EXPECTED["views"])}
    assert {t.device for t in held(out)} == {device}
    assert b"_rebuild_device_tensor_from_cpu_tensor" in out.read_bytes()


# -- round trips -----------------------------------------------------------------------------------


def digests_of(path: Path) -> tuple[str, dict[str, str]]:
    manifest = json.loads((path / "manifest.json").read_text())
    return (
        manifest["weights_digest"]["value"],
        {t["name"]: t["digest"] for t in manifest["tensors"]},
    )


def portable(source: Path, out: Path) -> Path:
    converter.convert(source, to="portable", out=out)
    return out


@pytest.mark.parametrize("name", ["cuda1.pt", "cuda1_legacy.pth", "mixed.pt", "views.pt"])
@pytest.mark.parametrize("way", ["portable", "safetensors", "torch"])
def test_round_trips_keep_every_digest(tmp_path: Path, name: str, way: str) -> None:
    first = portable(DEVICES / name, tmp_path / "first.portable")
    between = tmp_path / ("between.safetensors" if way == "safetensors" else f"between.{way}")
    options = Options(to=way, device="cuda:1" if way == "torch" else None)
    converter.convert(DEVICES / name, to=way, out=between, options=options)
    again = convert(between, tmp_path / "again.pt", "cuda:0")
    assert set(locations(again)) == {"cuda:0"}
    assert digests_of(portable(again, tmp_path / "last.portable")) == digests_of(first)


@pytest.mark.parametrize("name", ["dtypes.pth", "layouts.pth", "quantized-state.pth"])
def test_every_dtype_and_layout_survives_the_portable_bundle(tmp_path: Path, name: str) -> None:
    source = FIXTURES / "torch" / f"torch2.13-{name}"
    first = portable(source, tmp_path / "first.portable")
    again = convert(first, tmp_path / "again.pt", "cuda:1")
    last = portable(again, tmp_path / "last.portable")
    assert digests_of(last)[1] == digests_of(first)[1]
    kinds = [
        {n: (e["kind"], e["dtype"]) for n, e in json.loads(text)["encodings"].items()}
        for text in ((p / "manifest.json").read_text() for p in (first, last))
    ]
    assert kinds[1].items() <= kinds[0].items()


@pytest.mark.parametrize(
    "path",
    sorted(p for p in (FIXTURES / "torch").iterdir() if p.suffix in (".pth", ".pt", ".ckpt")),
    ids=lambda p: p.name,
)
def test_every_torch_fixture_keeps_its_bits(tmp_path: Path, path: Path) -> None:
    source = catalog.read(Artifact(path))
    for keep in (False, True):
        if keep and source.metadata.format != "torch":
            continue
        out = tmp_path / f"{keep}.pt"
        try:
            convert(path, out, "cuda:1", keep_structure=keep)
        except UnsupportedError as e:
            assert "holds no tensors" in str(e)
            continue
        found = catalog.read(Artifact(out))
        ours = {**found.weights, **found.leftovers.get("training", {}),
                **found.leftovers.get("optimizer", {})}  # fmt: skip
        for name, tensor in source.weights.items():
            if name in ours:
                assert ours[name].tobytes() == tensor.tobytes(), name


# -- what is refused -------------------------------------------------------------------------------


def test_types_that_torch_has_not_are_named(tmp_path: Path) -> None:
    source = FIXTURES / "onnx" / "dtypes.onnx"
    with pytest.raises(UnsupportedError, match=r"not supported: \d+ tensors of types .*raw_int4"):
        convert(source, tmp_path / "o.pt")
    assert list(tmp_path.iterdir()) == []


def test_sparse_tensors_of_others_stay_parts(tmp_path: Path) -> None:
    out = convert(FIXTURES / "onnx" / "structures.onnx", tmp_path / "o.pt")
    assert any(n["name"] == "tensors kept apart" for n in record(out)["normalisations"])


def test_structure_is_kept_of_torch_files_only(tmp_path: Path) -> None:
    save_file({"a": np.ones(3, "f4")}, tmp_path / "a.safetensors")
    for source in (tmp_path / "a.safetensors", FIXTURES / "torch" / "torch2.13-dcp"):
        with pytest.raises(UnsupportedError, match="keep_structure=True does not take") as caught:
            convert(source, tmp_path / "o.pt", keep_structure=True)
        assert caught.value.exit_code == 4


def test_an_impossible_device_is_wrong_usage(tmp_path: Path) -> None:
    for device in ("gpu:0", "cuda:01", "meta", "cpu:1"):
        with pytest.raises(UsageError):
            convert(DEVICES / "cuda1.pt", tmp_path / "o.pt", device)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["verify", "require"])
def test_running_what_does_not_run_is_no_success(tmp_path: Path, option: str) -> None:
    with pytest.raises(VerificationError, match="no graph to compare"):
        convert(DEVICES / "cuda1.pt", tmp_path / "o.pt", **{option: "cpu"})
    convert(DEVICES / "cuda1.pt", tmp_path / "o.pt", require="weights")


def planned(device: str = "cuda:0", **others: object) -> checkpoint.Checkpoint:
    artifact = Artifact(DEVICES / "cuda1.pt")
    options = Options(to="torch", device=device, **others)
    return checkpoint.plan(catalog.read(artifact), (), artifact, options)


def test_a_planted_fault_in_a_storage_is_found(tmp_path: Path) -> None:
    made = planned()
    good = made.archive.contents[0].tensor
    flips = iter(range(256))

    def never_twice() -> list[bytes]:
        data = bytearray(good.tobytes())
        data[77] ^= next(flips)
        return [bytes(data)]

    wrong = Content(Tensor.computed(DTYPES["uint8"], good.shape, never_twice))
    made.archive.contents = (wrong, *made.archive.contents[1:])
    with pytest.raises(VerificationError, match="storage 0: differs from its source at byte 77"):
        list(made.write(tmp_path, verify=True, sync=False))


@pytest.mark.parametrize(
    ("there", "planted", "message"),
    [
        (b"cuda:0", b"cuda:1", "lacks 9 tensors and has 9 others"),
        (b"0.weight", b"0.wieght", "other names than were written"),
        (b"_rebuild_tensor_v2", b"_rebuild_tensor_v9", "lacks"),
    ],
)
def test_a_planted_fault_in_the_pickle_is_found(
    tmp_path: Path, there: bytes, planted: bytes, message: str
) -> None:
    made = planned()
    small = made.archive._small
    assert there in small["data.pkl"]
    small["data.pkl"] = small["data.pkl"].replace(there, planted)
    with pytest.raises(VerificationError, match=message):
        list(made.write(tmp_path, verify=True, sync=False))


def test_a_source_that_changes_meanwhile_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "in.pt"
    source.write_bytes((DEVICES / "cuda1.pt").read_bytes())
    artifact = Artifact(source)
    made = checkpoint.plan(catalog.read(artifact), (), artifact, Options(to="torch", device="cpu"))
    with source.open("r+b") as f:
        f.truncate(2000)
    (tmp_path / "out").mkdir()
    with pytest.raises(SourceError):
        list(made.write(tmp_path / "out", verify=True, sync=False))


def test_a_dry_run_says_what_there_is_to_write(tmp_path: Path) -> None:
    made = planned("xla")
    said = made.summary()
    list(made.write(tmp_path, verify=False, sync=True))
    size = (tmp_path / checkpoint.NAME).stat().st_size
    assert said == f"9 tensors for xla, {readable_size(size)}"


def test_the_same_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.pt", "b.pt"):
        convert(DEVICES / "checkpoint.pt", tmp_path / name, keep_structure=True)
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.pt").read_bytes()


@pytest.mark.parametrize("name", ["cuda1.pt", "checkpoint.pt", "cuda1_legacy.pth"])
def test_a_damaged_source_is_an_error_or_converts(tmp_path: Path, name: str) -> None:
    """Cut short and with bytes turned around: an error of ours, and nothing half-written."""
    data = (DEVICES / name).read_bytes()
    rng = np.random.default_rng(3)
    for i in range(60):
        bad = bytearray(data[: rng.integers(1, len(data))] if i % 3 == 0 else data)
        for at in rng.integers(0, len(bad), rng.integers(1, 4)):
            bad[at] ^= int(rng.integers(1, 256))
        source, out = tmp_path / f"in{i}.pt", tmp_path / f"out{i}.pt"
        source.write_bytes(bad)
        try:
            convert(source, out, keep_structure=bool(i % 2))
        except ConvertError as e:
            assert e.exit_code in (3, 4)
            assert not out.exists()
    assert not [p for p in tmp_path.iterdir() if ".convert-" in p.name]
