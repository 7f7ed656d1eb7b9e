"""The page of a verification in a real browser: what it shows, and that it can be used."""

import pytest
from chromium import colours
from verifications import failed, layers, passed

from converter.options import Options
from converter.verification.report import GraphReport
from converter.verification.result import Verification, Weights
from converter.verification_page.page import Compared, write_verification

BUILT = "document.documentElement?.dataset.built"
TEXT = "document.body.innerText"
ROWS = "[...document.querySelectorAll('.layer-table tbody b')].map((e) => e.textContent)"


def look(browser, folder, found, names=("/models/model.h5", "model.onnx"), **about):
    path = folder / "page.html"
    write_verification(path, Compared(*names), found, Options())
    browser.show("about:blank")
    browser.show(path.as_uri(), **about)
    browser.until(BUILT)
    return browser.value(TEXT)


def test_a_model_that_is_the_same(browser, tmp_path):
    text = look(browser, tmp_path, Verification(Weights(11), {"model.onnx": passed()}))
    shown = (
        "model.onnx", "compared with /models/model.h5", "Both compute the same, and 11 tensors are",
        "2 of 2", "9 of 9", "5 of 6", "keras 3.15.0", "explained", "source against float64",
        "Not reached, and so not verified: relu (Relu): below zero", "x float32 3\u00d720",
    )  # fmt: skip
    for part in shown:
        assert part in text
    marks = "document.querySelectorAll('.wide-plot .{}').length"
    assert browser.value(marks.format("dot")) == 9
    assert browser.value(marks.format("noise")) == browser.value(marks.format("bound")) == 9
    # The first layer is equal: there is no error to be drawn on a logarithmic scale.
    assert browser.value(marks.format("of-source")) == browser.value(marks.format("of-graph")) == 8


def test_a_model_that_differs(browser, tmp_path):
    text = look(browser, tmp_path, Verification(Weights(11), {"model.onnx": failed()}))
    for part in ("It is not the same model", "not verified", "7 of 9", "2 differ", "layer 7"):
        assert part in text
    assert browser.value("document.querySelectorAll('.wide-plot .dot.wrong').length") == 2
    heights = browser.value(
        "[...document.querySelectorAll('.wide-plot .dot')].map((e) => Number(e.getAttribute('cy')))"
    )
    assert heights[0] > heights[1] > heights[7] > heights[8]  # equal, noise, 0.5, not finite


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Verification(Weights(3)), "3 tensors are equal bit for bit. The converted artifact has"),
        (Verification(Weights(3, different=("w (changed)",))), "1 tensor of the source is changed"),
        (Verification(None), "Nothing was compared."),
        (Verification(Weights(3), {"m": GraphReport("not run", "no torch is installed")}),
         "the graph was not compared: no torch is installed"),
    ],
)  # fmt: skip
def test_what_was_not_compared_is_said(browser, tmp_path, found, said):
    text = look(browser, tmp_path, found)
    assert said in text
    assert "Error by layer" not in text


def test_layers_are_sorted_by_a_column(browser, tmp_path):
    look(browser, tmp_path, Verification(None, {"m": failed()}))
    browser.click(".layer-errors summary")
    assert browser.value(ROWS)[:2] == ["layer 0", "layer 1"]
    browser.click(".layer-table th.number button")
    assert browser.value(ROWS)[:2] == ["layer 8", "layer 7"]
    browser.click(".layer-table th.number button")
    assert browser.value(ROWS)[:2] == ["layer 0", "layer 1"]


def test_a_layer_that_is_pointed_at_is_described(browser, tmp_path):
    look(browser, tmp_path, Verification(None, {"m": failed()}))
    browser.value(
        "(() => { const plot = document.querySelector('.wide-plot svg');"
        " const r = plot.getBoundingClientRect(); plot.dispatchEvent(new PointerEvent("
        "'pointermove', {clientX: r.right - 1, clientY: r.y, bubbles: true})); })()"
    )
    said = browser.value("document.querySelector('.readout').textContent")
    assert said.startswith("layer 8 (Dense) · unexplained · largest difference not finite")


def test_thousands_of_layers_open_at_once(browser, tmp_path):
    report = passed().with_layer_errors(layers(count=5000))
    look(browser, tmp_path, Verification(None, {"m": report}))
    built = int(browser.value(BUILT))
    size = (tmp_path / "page.html").stat().st_size
    print(f"5,000 layers: {size / 1e6:.2f} MB, {built} ms until all is shown")
    assert built < 3000 * 3  # of a machine that does nothing else
    assert browser.value(f"{ROWS}.length") == 200
    browser.click(".layer-errors summary")
    browser.click(".layer-table > button")
    assert browser.value(f"{ROWS}.length") == 5000


def test_what_means_harm_is_text(browser, tmp_path):
    name = "</script><img src=x onerror=alert(2)>\u202e\x1b[31m"
    report = GraphReport("failed", name).with_layer_errors(layers(name))
    found = Verification(Weights(0, different=(name,)), {name: report, "b": passed()})
    text = look(browser, tmp_path, found, names=(name, name))
    assert not set("\x1b\u202e") & set(text)
    assert browser.value("document.images.length") == 0


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (1400, True), (400, False)])
def test_a_picture_of_it_is_not_blank(browser, tmp_path, width, dark):
    found = Verification(Weights(11), {"a.onnx": passed(), "b.onnx": failed()})
    look(browser, tmp_path, found, dark=dark, size=(width, 900))
    assert browser.value("document.documentElement.scrollWidth") <= width  # nothing sticks out
    pixels = colours(browser.picture())
    ground, most = max(pixels.items(), key=lambda one: one[1])
    assert (sum(ground) < 3 * 40) == dark
    assert most < 0.9 * sum(pixels.values())


def test_it_can_be_printed(browser, tmp_path):
    look(browser, tmp_path, Verification(Weights(11), {"m": passed()}))
    assert browser.printed().startswith(b"%PDF-")
