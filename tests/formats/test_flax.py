"""Flax's MessagePack: trees of arrays, chunks, shards, and damaged files."""

import json
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest
from pretrained_folders import STORED, unpack_folders

import converter
from converter.options import Options
from formats import catalog, flax
from formats.artifact import Artifact
from formats.containers.msgpack import Extension, parse
from formats.core.storage import Buffer, Span
from formats.errors import CorruptError, LimitError, SourceError, UnsupportedError
from formats.limits import DEFAULT, Limits


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees")
    with zipfile.ZipFile(STORED / "trees.zip") as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def weights():
    return np.load(STORED / "trees.npz")["weights"]


def test_the_arrays_of_a_train_state_are_where_they_lie_in_the_file(trees, weights):
    bundle = converter.read(trees / "state.msgpack")
    assert bundle.metadata.format == "flax"
    held = {name: tensor.numpy() for name, tensor in bundle.weights.items()}
    assert {*held} == {f"params/dense/{n}" for n in ("kernel", "bias", "scale", "empty", "größe")}
    np.testing.assert_array_equal(held["params/dense/kernel"], weights)
    assert bundle.weights["params/dense/kernel"].extent() is not None
    bias = held["params/dense/bias"]
    assert bias.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(bias, weights[0].astype(ml_dtypes.bfloat16))
    assert (held["params/dense/scale"].shape, held["params/dense/scale"].dtype) == ((), "f2")
    assert held["params/dense/empty"].shape == (0, 3)
    assert held["params/dense/größe"].tolist() == [0, 1, 2]
    (moment,) = bundle.leftovers["optimizer"].values()
    np.testing.assert_array_equal(moment.numpy(), weights * 2)
    assert bundle.metadata.user == {"step": 12, "note": "a state"}


def test_a_chunked_array_is_one_tensor(trees, weights, tmp_path):
    source = trees / "chunks.msgpack"
    (tensor,) = converter.read(source).weights.values()
    np.testing.assert_array_equal(tensor.numpy(), weights)
    made = converter.convert(source, to="safetensors", out=tmp_path / "out.safetensors")
    assert made.verification.level == "weights"
    written = converter.read(tmp_path / "out.safetensors").weights
    np.testing.assert_array_equal(written["w/k"].numpy(), weights)


def test_what_is_no_array_is_said(tmp_path):
    path = tmp_path / "x.msgpack"
    array = b"\x93\x91\x02\xa5uint8\xc4\x02ab"
    body = (
        b"\x84\xa1a\xc7" + bytes([len(array), 1]) + array
        + b"\xa1b\xc4\x01z\xa1c\xd4\x09q\xa1d\x92\x01\xcb" + struct.pack(">d", 0.5)
    )  # fmt: skip
    path.write_bytes(body)
    bundle = converter.read(path)
    assert bundle.weights["a"].numpy().tolist() == [97, 98]
    assert [x.name for x in bundle.metadata.left_out] == ["b", "c"]
    assert bundle.metadata.user == {"d": [1, 0.5]}


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (b"\x81\xa1a", CorruptError, "ends too early"),
        (b"\x81\xa1a\xc7\x20\x01\x93", CorruptError, "ends too early"),
        (b"\x82\xa1a\x01\xa1a\x02", CorruptError, "key 'a' occurs twice"),
        (b"\x81\x01\x02", CorruptError, "a key is a int"),
        (b"\x81\xa1a\xc1", CorruptError, "0xc1"),
        (b"\x81\xa1\xff\x01", CorruptError, "no UTF-8"),
        (b"\x81\xa1a\x01\x00", CorruptError, "1 bytes follow"),
        (b"\x93\x01\x02\x03", CorruptError, "no tree of arrays"),
        (b"\x81\xa1a\xc7\x0d\x01\x93\x91\x03\xa5uint8\xc4\x02ab", CorruptError, "takes 3 bytes"),
        (b"\x81\xa1a\xc7\x0d\x01\x93\x91\xff\xa5uint8\xc4\x02ab", CorruptError, "list of sizes"),
        (b"\x81\xa1a\xc7\x0d\x01\x93\x91\x02\xa5fluff\xc4\x02ab", UnsupportedError, "'fluff'"),
        (b"\x81\xa1a" * 300 + b"\x01", LimitError, "nested deeper"),
    ],
)
def test_damaged_trees_are_refused(body, error, message, tmp_path):
    path = tmp_path / "x.msgpack"
    path.write_bytes(body)
    with pytest.raises(error, match=message):
        catalog.read(Artifact(path), "flax")


@pytest.mark.parametrize("length", range(0, 900, 7))
def test_a_file_that_is_cut_off_is_damaged(length, trees, tmp_path):
    path = tmp_path / "x.msgpack"
    content = (trees / "state.msgpack").read_bytes()
    path.write_bytes(content[: min(length, len(content) - 1)])
    with pytest.raises(SourceError):
        catalog.read(Artifact(path), "flax")


def test_every_type_of_messagepack_is_read():
    body = bytes([0x9D, 0xC0, 0xC2, 0xC3, 0x7F, 0xE0, 0xCC, 200]) + b"".join((
        b"\xcd\x01\x00", b"\xd1\xff\x00", b"\xca" + struct.pack(">f", 1.5), b"\xd9\x01a",
        b"\xdc\x00\x01\x05", b"\xde\x00\x01\xa1k\x06", b"\xd4\x05\x07",
    ))  # fmt: skip
    found = parse(Span.whole(Buffer(body, "x")), DEFAULT)
    *values, extension = found
    assert values == [None, False, True, 127, -32, 200, 256, -256, 1.5, "a", [5], {"k": 6}]
    assert isinstance(extension, Extension)
    assert (extension.code, extension.data.read()) == (5, b"\x07")
    with pytest.raises(LimitError, match="more than 5 values"):
        parse(Span.whole(Buffer(body, "x")), Limits(max_values=5))


def test_an_index_and_its_shards_must_fit(tmp_path):
    unpack_folders(tmp_path)
    folder = tmp_path / "flax-t5"
    index = json.loads((folder / "flax_model.msgpack.index.json").read_text())
    bundle = converter.read(folder)
    assert {*bundle.weights} == {*index["weight_map"]}
    assert "shards with an index" in bundle.metadata.variant
    index["weight_map"]["ghost/kernel"] = next(iter(index["weight_map"].values()))
    (folder / "flax_model.msgpack.index.json").write_text(json.dumps(index))
    with pytest.raises(CorruptError, match="1 tensor that no shard holds: 'ghost/kernel'"):
        converter.read(folder)


def test_other_formats_are_not_taken_for_flax(tmp_path):
    for head in (b"\x80\x02}q\x00.", b"\x89HDF\r\n\x1a\n", b'{"a": 1}', b"\x85abcde", b""):
        path = tmp_path / "x"
        path.write_bytes(head + bytes(64))
        assert flax.sniff(Artifact(path)) is None


def test_a_folder_alone_keeps_names_only_as_a_file(tmp_path):
    unpack_folders(tmp_path)
    source = tmp_path / "flax-bert" / "flax_model.msgpack"
    options = Options(verify="weights")
    converter.convert(source, to="safetensors", out=tmp_path / "a.safetensors", options=options)
    names = converter.read(tmp_path / "a.safetensors").weights
    assert "bert/embeddings/word_embeddings/embedding" in names
