"""Every fixture reads as the torch that wrote it said: names, dtypes, shapes, bytes."""

import hashlib
import json
import re
import zipfile
from pathlib import Path

import pytest
from repository import ROOT

from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import Bundle

FIXTURES = ROOT / "fixtures" / "torch"
EXPECTED = sorted(FIXTURES.glob("*.expected.json"))


def described(bundle: Bundle) -> dict[str, list[object]]:
    groups = [bundle.weights, *bundle.leftovers.values()]
    return {
        name: [t.dtype.name, list(t.shape), hashlib.sha256(t.tobytes()).hexdigest()]
        for group in groups
        for name, t in group.items()
    }


def read(path: Path) -> Bundle:
    return catalog.read(Artifact(path))


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda p: p.name.removesuffix(".expected.json"))
def test_reads_as_torch_said(expected: Path) -> None:
    facts = json.loads(expected.read_text())
    bundle = read(expected.with_name(expected.name.removesuffix(".expected.json")))
    found, wanted = described(bundle), facts["tensors"]
    if facts.get("loose"):
        if "weight" in wanted:  # names of quantised layers differ between versions: compare values
            assert sorted(map(str, wanted.values())) == sorted(
                str(found[n]) for n in found if list(found[n]) in list(wanted.values())
            )
        else:
            assert {n: found.get(n) for n in wanted} == wanted
    else:
        assert found == wanted
    metadata = bundle.metadata
    for group in ("optimizer", "training"):
        prefix = facts.get("groups", {}).get(group, "(none)")
        named = [*facts.get(group, []), *(n for n in wanted if n.startswith(prefix))]
        assert sorted(bundle.leftovers.get(group, {})) == sorted(named)
    for first, *others in facts.get("tied", []):
        for other in others:
            assert bundle.weights[first].identity == bundle.weights[other].identity
    for name, note in facts.get("notes", {}).items():
        assert metadata.tensor_notes[name].items() >= note.items()
    for key in ("user", "recorded", "devices"):
        said = getattr(metadata, key)
        for name, value in facts.get(key, {}).items():
            if isinstance(value, dict):
                assert said[name].items() >= value.items()
            else:
                assert said[name] == value
    assert set(facts.get("opaque", [])) <= set(metadata.opaque)
    assert set(facts.get("assets", [])) <= set(bundle.assets)
    assert set(facts.get("left_out", [])) <= {x.name for x in metadata.left_out}
    assert {f.subject for f in metadata.findings} >= set(facts.get("findings", []))
    if "count" in facts:
        assert len(bundle.weights) == facts["count"]


def test_quint4x2_elements() -> None:
    facts = json.loads((FIXTURES / "torch2.13-odd.pth.expected.json").read_text())
    tensor = read(FIXTURES / "torch2.13-odd.pth").weights["four"]
    assert tensor.dtype.name == "uint4"
    assert tensor.shape == (3, 5)
    assert list(tensor.tobytes()) == facts["four"]  # torch's int_repr() gives the packed bytes


def test_encodings() -> None:
    bundle = read(FIXTURES / "torch2.13-layouts.pth")
    encodings = bundle.encodings
    assert encodings["per_channel"].kind == "quantized"
    assert encodings["per_channel"].parameters == {"scheme": "per_channel_affine", "axis": 0}
    assert encodings["coo"].kind == "sparse_coo"
    assert encodings["coo"].shape == (6, 4)
    for encoding in encodings.values():
        assert set(encoding.parts.values()) <= set(bundle.weights)


def test_signature_of_exported_program() -> None:
    (signature,) = read(FIXTURES / "torch2.13-export.pt2").signatures
    assert [(s.name, s.dtype) for s in signature.inputs] == [("x", "float32")]
    assert signature.inputs[0].shape is not None
    assert isinstance(signature.inputs[0].shape[0], str)
    assert signature.inputs[0].shape[1] == 3


def test_script_says_methods_and_devices() -> None:
    bundle = read(FIXTURES / "torch2.13-script.pt")
    assert bundle.topology is not None
    assert bundle.topology.kind == "torchscript"
    assert bundle.topology.summary["methods"] == ["forward", "describe"]
    assert bundle.topology.summary["devices_in_code"] == {"cuda:0": 1}
    assert [s.name for s in bundle.signatures[0].inputs] == ["x", "scale"]


def test_module_tree_is_topology() -> None:
    bundle = read(FIXTURES / "torch2.13-module.pth")
    assert bundle.topology is not None
    content = bundle.topology.content
    assert isinstance(content, dict)
    assert content["module"]["class"] == "__main__.Net"
    assert content["module"]["width"] == 4
    assert content["module.inner.fc"]["in_features"] == 4
    wrapper = bundle.metadata.distribution["wrappers"]
    assert isinstance(wrapper, dict)
    assert "DataParallel" in str(wrapper["(root)"])


def test_old_modules_keep_their_source() -> None:
    bundle = read(FIXTURES / "torch1.4-module.pth")
    assert bundle.topology is not None
    content = bundle.topology.content
    assert isinstance(content, dict)
    assert "class Net" in content["sources"]["__main__.Net"]


def test_quantized_tensors_of_torch_1_3(tmp_path: Path) -> None:
    """TorchScript of torch 1.3 has a scale and a zero point in place of a scheme with both."""
    source, path = FIXTURES / "torch1.4-quantized-script.pt", tmp_path / "older.pt"
    scheme = re.compile(rb"\(ctorch\nper_tensor_affine\nq.(G.{8}K.)t", re.DOTALL)
    with zipfile.ZipFile(source) as newer, zipfile.ZipFile(path, "w") as older:
        for name in newer.namelist():
            data, count = scheme.subn(rb"\1", newer.read(name))
            assert count == name.endswith("/data.pkl")
            older.writestr(name, data)
    assert described(read(path)) == described(read(source))
    assert read(path).encodings.keys() == read(source).encodings.keys()
    assert read(path).metadata.tensor_notes == read(source).metadata.tensor_notes
