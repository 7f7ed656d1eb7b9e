"""`inspect`: plain, frozen data with a short repr, of a path or of a bundle."""

import json
from dataclasses import FrozenInstanceError

import pytest
from repository import FIXTURES

from converter import inspection, notebook
from converter.inspection import inspect
from converter.reading import read

KERAS = FIXTURES / "keras" / "keras315_functional.keras"
CHECKPOINT = FIXTURES / "torch" / "torch2.13-zip.pth"
NAMES = [
    "source", "format", "evidence", "variant", "framework", "recorded", "devices", "distribution",
    "files", "weights", "tensors", "leftovers", "encodings", "topology", "signatures", "assets",
    "user", "opaque", "left_out", "normalisations", "findings",
]  # fmt: skip


@pytest.mark.parametrize("path", [KERAS, CHECKPOINT])
def test_an_inspection_is_plain_frozen_data(path):
    found = inspect(path)
    document = json.loads(json.dumps(found.plain()))
    assert list(document) == NAMES
    assert document["weights"]["tensors"] == len(document["tensors"]) == found.weights.tensors
    assert document["tensors"][0]["shape"] == list(found.tensors[0].shape)
    with pytest.raises(FrozenInstanceError):
        found.format = "onnx"


@pytest.mark.parametrize("path", [KERAS, CHECKPOINT])
def test_a_bundle_is_inspected_as_its_file_is(path):
    found, read_already = inspect(path), inspect(read(path))
    assert read_already.format == found.format
    assert (read_already.weights, read_already.tensors) == (found.weights, found.tensors)
    assert read_already.source == ""


def test_the_repr_is_short_and_holds_no_configuration():
    found = inspect(KERAS)
    assert len(repr(found)) < 200
    assert f"{KERAS}: keras, {found.weights}" in repr(found)
    assert "tensors, " in str(found.weights)
    assert "<Inspection of a bundle: " in repr(inspect(read(KERAS)))


def test_a_notebook_shows_tables_of_escaped_text():
    html = inspect(KERAS)._repr_html_()
    assert html.count("<table>") == html.count("</table>") == 2
    table = notebook.render_table("<a>", [("&", "<b>")] * 60, ("x", "y"))
    assert "<a>" not in table
    assert "&lt;b&gt;" in table
    assert "… and 10 more" in table


def test_values_nested_deeper_than_python_recurses_are_kept():
    deep = []
    for _ in range(5000):
        deep = [deep]
    assert inspection._plain({"user": deep})["user"] is deep
