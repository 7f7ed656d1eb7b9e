"""Signatures that take bytes become graphs of what those decode to, and compute the same."""

import json
import zipfile
from functools import cache

import numpy as np
import pytest
from onnx_run import agree, run_named
from repository import ROOT

import converter
from converter import passes
from converter.graphs import lower_signature as lower
from converter.inspection import inspect
from converter.lower.encoded import AS_INPUT, describe_inputs, roots
from converter.options import Options
from converter.verification.inputs.encoding import encode
from formats.errors import UnsupportedError, UsageError

MODELS = ROOT / "fixtures" / "tf_parsing" / "models.zip"
CLOSE = 2e-5  # of the largest output
HASHED = ("hashed", "taxi")
PLACEHOLDERS = {
    "asked": ["encoded_image_string_tensor", "moving"], "former": ["record", "records"],
    "held": ["DecodeJpeg/contents"], "sounds": ["wav_data"],
}  # fmt: skip


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tf_parsing")
    with zipfile.ZipFile(MODELS) as archive:
        archive.extractall(folder)
    return folder


def rows():
    """Return model, number and signature of each set of inputs that is stored."""
    found = []
    with zipfile.ZipFile(MODELS) as archive:
        for name in sorted(n for n in archive.namelist() if n.endswith(".npz")):
            with archive.open(name) as f, np.load(f) as stored:
                keys = {tuple(key.split("|")[:2]) for key in stored.files}
            found += [(name.removesuffix(".npz"), *key) for key in sorted(keys)]
    return found


def stored_of(folder, model, number, signature):
    """Return what is stored of a signature: inputs of the graph, and outputs."""
    sides = []
    with np.load(folder / f"{model}.npz") as stored:
        for side in ("in", "out"):
            start = f"{number}|{signature}|{side}|"
            sides.append(
                {k.removeprefix(start): stored[k] for k in stored.files if k.startswith(start)}
            )
    return sides


@cache
def lower_stored(folder, model, signature):
    path = folder / model
    bundle = converter.read(path if path.exists() else path.with_suffix(".pb"))
    return bundle, lower(bundle, signature=signature or None)


@pytest.mark.parametrize(("model", "number", "signature"), rows())
def test_features_give_what_tensorflow_makes_of_the_bytes(
    tmp_path, unpacked, model, number, signature
):
    given, wanted = stored_of(unpacked, model, number, signature)
    bundle, graph = lower_stored(unpacked, model, signature)
    assert sorted(graph.inputs) == sorted(given)
    graph = passes.run(graph, bundle.weights)
    found = run_named(graph, given, bundle.weights)
    # What loops leave unread counts as outputs, too.
    assert found.keys() == wanted.keys() or not (signature or wanted.keys() - found.keys())
    for key, expected in wanted.items():
        agree(found[key], expected, CLOSE, key)


@pytest.mark.parametrize(("model", "number", "signature"), rows())
def test_what_is_fed_to_tensorflow_has_the_source_s_inputs(unpacked, model, number, signature):
    given, _ = stored_of(unpacked, model, number, signature)
    bundle, graph = lower_stored(unpacked, model, signature)
    if model in HASHED:
        with pytest.raises(UsageError, match="is the fingerprint of no known string"):
            encode(graph.encoded, given)
        return
    texts = encode(graph.encoded, given)
    declared = {s.name: s for s in bundle.signatures if s.outputs}
    names = PLACEHOLDERS.get(model) or [s.name for s in declared[signature].inputs]
    assert sorted(texts) == sorted(one.input for one in roots(graph.encoded)) == names
    assert all(isinstance(text, bytes) for array in texts.values() for text in array.flat)


def test_texts_say_what_replaces_an_input(unpacked):
    _, graph = lower_stored(unpacked, "features", "serving_default")
    (text,) = describe_inputs(graph.encoded)
    assert text.startswith("input 'examples' is replaced by ids/values int64[ids/count] (of all r")
    assert "dense float32[unk__2,3] (missing: 0.5, -1.5, 2)" in text
    assert "steps_2 float32[unk__2,steps/steps,2] (filled up with -3)" in text
    _, graph = lower_stored(unpacked, "pictures", "first_of")
    (text,) = describe_inputs(graph.encoded)
    assert text.endswith("text/decoded/channels] (picture in text/decoded)")
    _, graph = lower_stored(unpacked, "estimator", "predict")
    (text,) = describe_inputs(graph.encoded)
    assert text.endswith("; nothing reads unused")


def test_a_hash_of_what_is_computed_is_a_gap(tmp_path):
    number = 'attr { key: "num_buckets" value { i: 5 } }'
    upper = 'node { name: "upper" op: "StringUpper" input: "text" }'
    bucket = f'node {{ name: "bucket" op: "StringToHashBucketFast" input: "upper" {number} }}'
    assert "hashes of strings that the graph computes" in refused(
        tmp_path, graph_of("AsString", {"T": "type: DT_STRING"}, [upper, bucket])
    )


def graph_of(op, attributes=None, more=()):
    """Return a GraphDef in text: a placeholder ``text``, read by an op ``made`` and by others."""
    said = "".join(f' attr {{ key: "{k}" value {{ {v} }} }}' for k, v in (attributes or {}).items())
    kind = 'attr { key: "dtype" value { type: DT_STRING } }'
    scalar = 'attr { key: "shape" value { shape {} } }'
    nodes = [
        f'node {{ name: "text" op: "Placeholder" {kind} {scalar} }}',
        f'node {{ name: "made" op: "{op}" input: "text"{said} }}',
        *more,
    ]
    return "\n".join(nodes)


def refused(tmp_path, text):
    path = tmp_path / "graph.pbtxt"
    path.write_text(text)
    with pytest.raises(UnsupportedError) as caught:
        lower(converter.read(path))
    return str(caught.value)


STRING = 'attr { key: "T" value { type: DT_STRING } }'


def test_an_input_that_is_read_as_a_text_too_is_a_gap(tmp_path):
    also = f'node {{ name: "also" op: "Identity" input: "text" {STRING} }}'
    assert "input 'text' is decoded, and read" in refused(
        tmp_path, graph_of("DecodePng", {}, [also])
    )


def test_what_is_computed_of_texts_cannot_be_decoded(tmp_path):
    two = 'attr { key: "N" value { i: 2 } }'
    joined = f'node {{ name: "both" op: "StringJoin" input: "text" input: "text" {two} }}'
    last = 'node { name: "end" op: "DecodeBmp" input: "both" }'
    said = refused(tmp_path, graph_of("StringLength", {}, [joined, last]))
    assert "ONNX cannot express it" in said or "takes opset=" in said


def test_one_input_decoded_in_two_ways_is_a_gap(tmp_path):
    other = 'node { name: "sound" op: "DecodeWav" input: "text" }'
    said = refused(tmp_path, graph_of("DecodePng", {}, [other]))
    assert "an input that is decoded in two ways: picture, WAV file" in said


def test_a_damaged_parser_is_no_crash(tmp_path):
    for attributes in ({}, {"num_sparse": "i: 7"}, {"dense_keys": 'list { s: "a" }'}):
        assert "made" in refused(tmp_path, graph_of("ParseSingleExample", attributes))


def test_the_manifest_and_inspect_say_what_stands_for_an_input(tmp_path, unpacked):
    out = tmp_path / "m.portable"
    options = Options(verify="weights", signatures=("single",))
    converter.convert(unpacked / "features", to="portable", out=out, options=options)
    manifest = json.loads((out / "manifest.json").read_text())
    schema = json.loads((ROOT / "formats" / "manifest.schema.json").read_text())
    pytest.importorskip("jsonschema").validate(manifest, schema)
    (decoded,) = manifest["graph"]["decoded_inputs"]
    assert (decoded["input"], decoded["kind"]) == ("example", "serialized tf.Example")
    assert (decoded["shape"], decoded["several"]) == ([], False)
    assert [(p["key"], p["role"], p["name"]) for p in decoded["parts"]] == [
        ("ids", "values", "ids"), ("dense", "dense", "dense_2"), ("few", "values", "few_2"),
    ]  # fmt: skip
    assert [i["name"] for i in manifest["graph"]["inputs"]] == ["ids", "dense_2", "few_2"]
    (change,) = (n for n in inspect(out).normalisations if n.name.endswith(AS_INPUT))
    assert change.detail.startswith("input 'example' is replaced by ids int64[ids/count], de")
