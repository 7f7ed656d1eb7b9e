"""safetensors against the official library, both ways, and against headers that lie."""

import json
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import Encoding
from formats.core.storage import Buffer, File, Span
from formats.core.weights import DTYPES, Tensor, numpy_dtype
from formats.errors import ConvertError, CorruptError, LimitError, SafetyError, SourceError
from formats.safetensors import read_header
from formats.safetensors_writer import create, fill, plan_shards

RNG = np.random.default_rng(5)


def arrays():
    return {
        "odd": RNG.integers(0, 255, (3,), np.uint8),
        "w": RNG.standard_normal((4, 5)).astype("f4"),
        "half": RNG.standard_normal((3, 1)).astype("f2"),
        "brain": RNG.standard_normal((7,)).astype(ml_dtypes.bfloat16),
        "flag": np.array([True, False, True]),
        "scalar": np.array(3.25),
        "empty": np.zeros((0, 4), "f4"),
        "long": RNG.integers(-(2**60), 2**60, (2, 2)),
        "größe/重み": RNG.standard_normal((2,)).astype("f8"),
    }


def tensor(array, origin=""):
    name = "bool" if array.dtype == bool else array.dtype.name
    return Tensor.inline(DTYPES[name], array.shape, array.tobytes(), origin=origin)


def written(tmp_path, weights, encodings=None, **options):
    layout = plan_shards(weights, encodings or {}, **options)
    create(layout, tmp_path)
    index = len(layout.index[1]) if layout.index else 0
    headers = sum(len(s.header) for s in layout.shards)
    assert sum(fill(layout, tmp_path)) + headers + index == layout.nbytes
    return layout


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_the_official_library_reads_what_we_write(tmp_path):
    source = arrays()
    written(tmp_path, {n: tensor(a) for n, a in source.items()})
    found = load_file(tmp_path / "model.safetensors")
    assert set(found) == set(source)
    for name, array in source.items():
        assert same(found[name], array), name
    with safe_open(tmp_path / "model.safetensors", "np") as f:
        assert f.metadata() == {"format": "pt"}


def test_we_read_what_the_official_library_writes(tmp_path):
    source = arrays()
    save_file(source, tmp_path / "x", metadata={"format": "pt", "note": "n"})
    bundle = catalog.read(Artifact(tmp_path / "x"))
    assert set(bundle.weights) == set(source)
    for name, array in source.items():
        assert same(bundle.weights[name].numpy(), array), name
    assert (bundle.metadata.recorded, bundle.metadata.user) == ({"format": "pt"}, {"note": "n"})


def test_every_tensor_is_aligned_to_its_element(tmp_path):
    layout = written(tmp_path, {n: tensor(a) for n, a in arrays().items()})
    header = read_header(
        Span.whole(File(tmp_path / layout.shards[0].name)), Artifact(tmp_path).limits
    )
    for t in header.tensors.values():
        assert t.data.span.offset % t.dtype.itemsize == 0


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_dtype_comes_back_as_itself(tmp_path, dtype):
    elements = 8
    data = RNG.integers(0, 256, dtype.nbytes(elements), np.uint8).tobytes()
    written(tmp_path, {"w": Tensor.inline(dtype, (2, 4), data)})
    found = catalog.read(Artifact(tmp_path / "model.safetensors")).weights["w"]
    assert (found.dtype, found.shape, found.tobytes()) == (dtype, (2, 4), data)


def test_tied_tensors_are_stored_once_and_come_back_tied(tmp_path):
    w = tensor(RNG.standard_normal((30, 40)).astype("f4"))
    layout = written(tmp_path, {"emb.weight": w, "head.weight": w, "bias": tensor(np.ones(3))})
    assert layout.tied == {"head.weight": "emb.weight"}
    assert (tmp_path / "model.safetensors").stat().st_size < 2 * w.nbytes
    with safe_open(tmp_path / "model.safetensors", "np") as f:
        assert f.metadata() == {"format": "pt", "head.weight": "emb.weight"}
    bundle = catalog.read(Artifact(tmp_path / "model.safetensors"))
    assert bundle.weights["head.weight"].identity == bundle.weights["emb.weight"].identity


def test_encodings_come_back(tmp_path):
    encoding = Encoding(
        "sparse_coo", "float32", (9, 9), {"indices": "w.i", "values": "w"}, {"n": 1}
    )
    w = tensor(RNG.standard_normal(3).astype("f4"))
    written(tmp_path, {"w": w, "w.i": tensor(RNG.integers(0, 9, (2, 3)))}, {"w": encoding})
    assert catalog.read(Artifact(tmp_path / "model.safetensors")).encodings == {"w": encoding}


def test_shards_follow_hugging_faces_rules(tmp_path):
    source = {f"layer.{i}": RNG.standard_normal(100).astype("f4") for i in range(7)}
    weights = {n: tensor(a) for n, a in source.items()}
    weights["twin"] = weights["layer.6"]
    layout = written(tmp_path, weights, max_shard_bytes=1000)
    assert [s.name for s in layout.shards] == [
        f"model-{i:05d}-of-00004.safetensors" for i in range(1, 5)
    ]
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 7 * 400
    assert index["metadata"]["total_parameters"] == 700
    assert index["metadata"]["twin"] == "layer.6"
    assert set(index["weight_map"]) == set(source)
    for name, file in index["weight_map"].items():
        assert same(load_file(tmp_path / file)[name], source[name])
    for path in (tmp_path, tmp_path / "model.safetensors.index.json"):
        bundle = catalog.read(Artifact(path))
        assert set(bundle.weights) == {*source, "twin"}
        assert bundle.weights["layer.3"].numpy().tobytes() == source["layer.3"].tobytes()


def test_a_hugging_face_folder_brings_its_config(tmp_path):
    save_file({"w": np.ones(3, "f4") * 2}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden": 3}')
    (tmp_path / "vocab.txt").write_text("a")
    (tmp_path / "modeling.py").write_text("raise SystemExit")
    bundle = catalog.read(Artifact(tmp_path))
    assert bundle.topology.kind == "hf_config"
    assert bundle.topology.summary == {"model_type": "bert"}
    assert set(bundle.assets) == {"config.json", "vocab.txt"}
    assert [x.name for x in bundle.metadata.left_out] == ["modeling.py"]


@pytest.mark.parametrize(
    ("weight_map", "error"),
    [
        ({"w": "../secret.safetensors"}, SafetyError),
        ({"w": "/etc/passwd"}, SafetyError),
        ({"w": "link.safetensors"}, SafetyError),
        ({"w": "absent.safetensors"}, SourceError),
        ({"other": "m.safetensors"}, CorruptError),
        ({"w": 3}, CorruptError),
        (["w"], CorruptError),
    ],
)
def test_an_index_cannot_lead_outside_or_lie(tmp_path, weight_map, error):
    save_file({"w": np.ones(3, "f4")}, tmp_path / "secret.safetensors")
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"w": np.ones(3, "f4")}, folder / "m.safetensors")
    (folder / "link.safetensors").symlink_to("../secret.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    with pytest.raises(error):
        catalog.read(Artifact(index))


def blob(header, body=b"\0" * 8, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    "data",
    [
        blob({"w": entry(offsets=(0, 9))}),
        blob({"w": entry(offsets=(8, 0))}),
        blob({"w": entry(offsets=(0, 8), shape=(3,))}),
        blob({"w": entry(offsets=(4, 12))}),
        blob({"w": entry(offsets=(0, 4), shape=(1,))}),
        blob({"w": entry(), "v": entry()}),
        blob({"w": entry(shape=(-2,))}),
        blob({"w": entry(shape=(1 << 64,))}),
        blob({"w": entry(shape=(2.0,))}),
        blob({"w": entry(shape=(True, 2))}),
        blob({"w": entry(dtype="F33")}),
        blob({"w": entry(dtype=None)}),
        blob({"w": {**entry(), "extra": 1}}),
        blob({"w": 3}),
        blob({"__metadata__": {"a": 1}, "w": entry()}),
        blob(b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{}}'),
        blob(b"[" * 100_000 + b"]" * 100_000),
        blob(b"\xff\xfe"),
        blob({"w": entry()}, length=1 << 62),
        blob({"w": entry()}, length=1000),
        b"",
        b"\0" * 7,
    ],
)
def test_lying_headers_are_our_errors_and_the_official_librarys(tmp_path, data):
    with pytest.raises((CorruptError, LimitError)):
        read_header(Span.whole(Buffer(data, "x")), Artifact(tmp_path).limits)
    (tmp_path / "x").write_bytes(data)
    if b"extra" not in data:  # which serde ignores
        with pytest.raises(SafetensorError):
            load_file(tmp_path / "x")


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    path = tmp_path_factory.mktemp("sample") / "s.safetensors"
    save_file(arrays(), path)
    return path.read_bytes()


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_our_error_or_other_valid_weights(tmp_path, sample, data):
    damaged = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(sample) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(len(sample) // 2, len(sample))) :]
    (tmp_path / "x").write_bytes(damaged)
    try:
        bundle = catalog.read(Artifact(tmp_path / "x", Artifact(tmp_path).limits), "safetensors")
        for t in bundle.weights.values():
            t.tobytes()
    except ConvertError as e:
        assert e.exit_code in (3, 4)


def test_numpy_dtype_names_cover_the_table():
    for dtype in DTYPES.values():
        if dtype.name != "complex32":
            assert numpy_dtype(dtype).name == dtype.name
