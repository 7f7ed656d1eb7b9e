"""The page of an artifact as a file: one, its data whole. How it looks: in a browser."""

from pathlib import Path

import numpy as np
import pytest
from html_pages import check_page, read_page
from repository import FIXTURES
from safetensors_files import write_safetensors

import converter
from converter.cli.app import run
from converter.inspection_page import weights
from formats.errors import StorageError, UsageError

HOSTILE = "</script><script>alert(1)</script>\u202e${x}"


def parsed(path):
    """Return the page's facts, its weights and its graphs."""
    page = read_page(path)
    check_page(page)
    (facts,), (found,) = page.data("inspection"), page.data("packed-weights")
    return facts, found, page.data("packed-graph")


def tensors(block):
    for member in block["members"]:
        if "members" in member:
            yield from tensors(member)
        else:
            yield member


def f32(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def test_a_keras_file(tmp_path):
    out = tmp_path / "page.html"
    found = converter.inspect(FIXTURES / "verify" / "image.h5", html=out)
    facts, data, (graph,) = parsed(out)
    assert facts["facts"]["format"] == found.format == "keras-h5"
    assert facts["facts"]["tensors"] == []
    (section,) = data["sections"]
    assert section["tree"]["elements"] == found.weights.parameters
    assert section["tree"]["bytes"] == found.weights.bytes
    listed = [*tensors(section["tree"])]
    assert [one["name"] for one in listed] == [one.name for one in found.tensors]
    assert all(one["statistics"]["elements"] == one["elements"] for one in listed)
    assert (data["sampled"], data["unlisted"]) == (0, 0)
    assert [item["op"] for item in graph["items"]].count("Conv") == 3
    assert graph["inputs"] == [["image", "float32 batch\u00d7image_1\u00d7image_2\u00d73"]]
    labels = {
        label: kind for label, kind, _ in (x for x in graph["tree"][2] if isinstance(x, list))
    }
    assert labels["stem"] == "Conv2D"
    written = {(graph["items"][a]["op"], graph["items"][b]["op"]) for a, b, _ in graph["edges"]}
    assert {("input", "Transpose"), ("Conv", "BatchNormalization"), ("Gemm", "output")} <= written


def test_weights_without_a_graph_say_so(tmp_path):
    out = tmp_path / "page.html"
    path = write_safetensors(tmp_path / "m.safetensors", {"a.w": f32(3, 4), "a.b": f32(0)})
    converter.inspect(path, html=out)
    facts, data, graphs = parsed(out)
    assert (graphs, facts["reason"]) == ([], "The file records no computation, only weights.")
    assert [one["shape"] for one in tensors(data["sections"][0]["tree"])] == [[3, 4], [0]]


def test_a_graph_that_is_not_supported_is_named(tmp_path):
    out = tmp_path / "page.html"
    converter.inspect(FIXTURES / "keras" / "keras315_subclassed.keras", html=out)
    facts, _, graphs = parsed(out)
    assert graphs == []
    assert "Subclassed" in facts["reason"]


def test_training_state_is_a_section(tmp_path):
    out = tmp_path / "page.html"
    converter.inspect(FIXTURES / "demo" / "checkpoint.pt", html=out)
    _, data, _ = parsed(out)
    assert [section["group"] for section in data["sections"]][:2] == ["model", "optimizer"]


def test_each_tensor_has_the_device_that_is_recorded(tmp_path):
    out = tmp_path / "page.html"
    converter.inspect(FIXTURES / "torch_devices" / "mixed.pt", html=out)
    _, data, _ = parsed(out)
    found = {one["name"]: one["devices"] for one in tensors(data["sections"][0]["tree"])}
    assert found["0.weight"] == ["cuda:1"]
    assert found["0.bias"] == ["cuda:0"]
    assert ["cpu"] in found.values()
    converter.inspect(FIXTURES / "keras" / "keras2_recurrent.h5", html=out)
    _, data, _ = parsed(out)
    assert not any(one["devices"] for one in tensors(data["sections"][0]["tree"]))


def test_names_are_data(tmp_path):
    out = tmp_path / "page.html"
    names = [HOSTILE, "x" * 5000, "слой/вес", "<!--"]
    path = write_safetensors(tmp_path / "m.safetensors", {name: f32(2) for name in names})
    converter.inspect(path, html=out)
    text = out.read_text("utf-8")
    assert "alert(1)" not in text
    _, data, _ = parsed(out)
    got = [one["name"] for one in tensors(data["sections"][0]["tree"])]
    assert got == [name[: weights.LONGEST] for name in names]


def test_only_the_largest_tensors_are_listed_and_sums_have_all(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "LISTED", 3)
    held = {f"layer.{i}.w": f32(i + 1) for i in range(8)}
    out = tmp_path / "page.html"
    converter.inspect(write_safetensors(tmp_path / "m.safetensors", held), html=out)
    _, data, _ = parsed(out)
    tree = data["sections"][0]["tree"]
    assert sorted(one["elements"] for one in tensors(tree)) == [6, 7, 8]
    assert (tree["elements"], tree["tensors"], tree["unlisted"], data["unlisted"]) == (36, 8, 5, 5)


def test_a_hundred_thousand_tensors_are_a_small_page(tmp_path):
    raw = np.random.default_rng(0).normal(size=(100_000, 4)).astype(np.float32)
    held = {f"blocks.{i // 50}.t{i}": array for i, array in enumerate(raw)}
    path = write_safetensors(tmp_path / "m.safetensors", held)
    out = tmp_path / "page.html"
    converter.inspect(path, html=out)
    assert out.stat().st_size < 6 << 20
    _, data, _ = parsed(out)
    assert data["sections"][0]["tree"]["tensors"] == 100_000
    assert data["unlisted"] == 80_000


def test_strings_have_no_figures(tmp_path):
    out = tmp_path / "page.html"
    found = converter.inspect(FIXTURES / "verify" / "text.keras", html=out)
    parts = {part for one in found.encodings.values() for part in one.parts.values()}
    _, data, _ = parsed(out)
    for section in data["sections"]:
        for one in tensors(section["tree"]):
            assert (one["statistics"] is None) == (one["name"] in parts)


def test_the_command(tmp_path, capsys):
    out = tmp_path / "page.html"
    source = str(FIXTURES / "verify" / "image.h5")
    assert run(["inspect", source, "--html", str(out)]) == 0
    assert "keras-h5" in capsys.readouterr().out
    assert out.read_text("utf-8").startswith("<!doctype html>")
    assert run(["inspect", source, source, "--html", str(out)]) == 2
    assert "--html" in capsys.readouterr().err


def test_a_page_that_cannot_be_written(tmp_path):
    source = FIXTURES / "verify" / "image.h5"
    with pytest.raises(UsageError, match="html="):
        converter.inspect(source, html=tmp_path)
    with pytest.raises(StorageError, match="html="):
        converter.inspect(source, html=tmp_path / "no" / "page.html")
    with pytest.raises(UsageError, match="html="):
        converter.inspect(converter.read(source), html=tmp_path / "page.html")


def test_a_damaged_weight_leaves_no_page(tmp_path):
    source = Path(FIXTURES / "verify" / "image.keras").read_bytes()
    path = tmp_path / "image.keras"
    path.write_bytes(source[:-200])
    with pytest.raises(converter.ConvertError):
        converter.inspect(path, html=tmp_path / "page.html")
    assert [one.name for one in tmp_path.iterdir()] == ["image.keras"]
