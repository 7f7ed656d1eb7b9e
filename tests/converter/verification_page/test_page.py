"""The page of a verification as a file: one, its data whole. How it looks: in a browser."""

import pytest
from html_pages import check_page, read_page
from repository import FIXTURES
from verifications import failed, layers, passed

import converter
from converter.cli.app import run
from converter.options import Comparison, Options
from converter.verification.report import GraphReport
from converter.verification.result import Verification, Weights
from converter.verification_page import page as pages
from converter.verification_page.page import Compared, write_verification
from formats.errors import StorageError, UsageError

HOSTILE = "</script><script>alert(1)</script>\u202e${x}"


def written(folder, found, options=None, names=("model.h5", "model.onnx")):
    path = folder / "page.html"
    write_verification(path, Compared(*names), found, options or Options())
    read = read_page(path)
    check_page(read)
    (facts,) = read.data("verification")
    return facts, read.data("packed-graph")


def test_all_that_was_measured_is_in_it(tmp_path):
    report = passed()
    found = Verification(Weights(11, 4096), {"model.onnx": report})
    facts, (graph,) = written(tmp_path, found)
    assert (facts["level"], facts["failed"]) == ("cpu", False)
    assert facts["weights"] == {"equal": 11, "different": [], "unlisted": 0}
    assert graph == {"name": "model.onnx", "report": report.plain()}
    one = graph["report"]["layer_errors"][1]
    keys = {"noise", "bound", "source_error", "converted_error", "verdict", "dtype", "shape"}
    assert keys <= one.keys()


def test_each_graph_of_several_is_in_it(tmp_path):
    found = Verification(Weights(2), {"a.onnx": passed(), "b.onnx": failed()})
    facts, graphs = written(tmp_path, found)
    assert [graph["name"] for graph in graphs] == ["a.onnx", "b.onnx"]
    assert (facts["level"], facts["failed"]) == ("none", True)
    assert graphs[1]["report"]["first_difference"]["layer"] == "layer 7"


def test_how_it_was_compared_is_in_it(tmp_path):
    how = Comparison(seed=3, atol={"": 1e-3, "scores": 0.5})
    options = Options(comparison=how, require="cpu", device="cuda:0")
    facts, _ = written(tmp_path, Verification(None, {"m.onnx": passed()}), options)
    assert facts["weights"] is None
    assert facts["required"] == "cpu"
    assert facts["options"]["atol"] == {"": 1e-3, "scores": 0.5}
    assert (facts["options"]["seed"], facts["options"]["device"]) == (3, "cuda:0")


def test_names_are_data(tmp_path):
    report = GraphReport("not run", HOSTILE).with_layer_errors(layers(HOSTILE))
    found = Verification(Weights(0, different=(HOSTILE,)), {HOSTILE: report})
    facts, (graph,) = written(tmp_path, found, names=(HOSTILE, HOSTILE))
    assert facts["source"] == facts["converted"] == facts["weights"]["different"][0] == HOSTILE
    assert graph["name"] == HOSTILE
    assert "<script>alert" not in (tmp_path / "page.html").read_text("utf-8")


def test_long_lists_are_cut_and_say_so(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "LISTED", 3)
    monkeypatch.setattr(pages, "LISTED_LAYERS", 4)
    wrong = tuple(f"w{i} (changed)" for i in range(5))
    found = Verification(Weights(1, different=wrong), {"m": passed()})
    facts, (graph,) = written(tmp_path, found)
    assert (len(facts["weights"]["different"]), facts["weights"]["unlisted"]) == (3, 2)
    listed = graph["report"]["layer_errors"]
    assert len(listed) == 5
    assert listed[-1] == {"more": len(passed().layer_errors) - 4}


def test_weights_alone_have_a_page_too(tmp_path, capsys):
    source = FIXTURES / "demo" / "checkpoint.pt"
    output, page = tmp_path / "m.portable", tmp_path / "page.html"
    converter.convert(source, out=output)
    assert run(["verify", str(source), str(output), "--html", str(page)]) == 0
    assert "verified    weights" in capsys.readouterr().out
    facts = read_page(page).data("verification")[0]
    assert (facts["source"], facts["converted"]) == (str(source), str(output))
    assert (facts["level"], facts["weights"]["equal"]) == ("weights", 11)


@pytest.mark.parametrize("more", [[], ["m.onnx", "--reproduce"]])
def test_a_page_is_about_one_comparison(tmp_path, more, capsys):
    command = ["verify", str(FIXTURES / "verify"), *more, "--html", str(tmp_path / "page.html")]
    assert run(command) == 2
    assert "--html with" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_refused_before_anything_runs(tmp_path):
    source = FIXTURES / "verify" / "image.h5"
    with pytest.raises(UsageError, match="html="):
        converter.verify(source, tmp_path / "missing.onnx", html=tmp_path)
    with pytest.raises(StorageError, match="html="):
        converter.verify(source, tmp_path / "missing.onnx", html=tmp_path / "no" / "page.html")
