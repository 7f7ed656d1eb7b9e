"""The page of an artifact in a real browser: what it shows, and that it can be used.

Chromium's profile and pages are in the test's own folder; it talks to nobody.
"""

import json

import numpy as np
import pytest
from chromium import colours
from repository import FIXTURES
from safetensors_files import write_safetensors

import converter
from converter.verification.report import GraphReport, LayerError

BUILT = "document.documentElement?.dataset.built"
NAMES = "[...document.querySelectorAll('.graph .name')].map((e) => e.textContent)"
ROWS = "[...document.querySelectorAll('#tree .label')].map((e) => e.textContent)"
HOSTILE = [
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>.w", "a\u202eb\x1b[31m/c",
    "x" * 3000, "слой.вес", "__proto__", "constructor/toString",
]  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    converter.inspect(FIXTURES / "verify" / "image.h5", html=path)
    return path


def look(browser, path, **about):
    browser.show("about:blank")
    browser.show(path.as_uri(), **about)
    browser.until(BUILT)


def open_member(browser, label):
    """Click a block or node of the graph by its label."""
    place = f"{NAMES}.indexOf({json.dumps(label)})"
    browser.value(
        f"document.querySelectorAll('.graph .name')[{place}].closest('.handles')"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )


def weights(folder, held):
    return write_safetensors(folder / "m.safetensors", held)


def test_all_of_it_at_a_glance(browser, page):
    look(browser, page)
    text = browser.value("document.body.innerText")
    for part in ("image.h5", "1,085", "4.2 KiB", "Weights", "Graph", "Facts", "keras_version",
                 "float32 batch\u00d75", "HDF5 signature"):  # fmt: skip
        assert part in text
    assert "H4sI" not in text  # packed data is not shown
    assert browser.value("document.title") == "image.h5 · convert"
    assert browser.value("performance.getEntriesByType('resource').length") == 0
    assert "+ stem · Conv2D" in browser.value(NAMES)
    shapes = "[...document.querySelectorAll('.graph .shape')].map((e) => e.textContent)"
    assert {"batch\u00d78", "batch\u00d712", "batch\u00d75"} <= set(browser.value(shapes))


def test_a_block_of_the_graph_opens_and_closes(browser, page):
    look(browser, page)
    before = browser.value(NAMES)
    assert "+ body · Sequential" in before
    open_member(browser, "+ body · Sequential")
    opened = browser.value(NAMES)
    assert {"\u2212 body · Sequential", "+ deep · Conv2D"} <= set(opened)
    open_member(browser, "\u2212 body · Sequential")
    assert browser.value(NAMES) == before
    browser.click(".expand")
    everything = browser.value(NAMES)
    assert everything.count("Conv") == 3
    assert not [name for name in everything if name.startswith("+")]
    browser.click(".collapse")
    assert browser.value(NAMES) == before


def test_members_of_a_drawing_do_not_overlap_and_edges_go_down(browser, page):
    look(browser, page)
    browser.click(".expand")
    boxes = browser.value(
        "[...document.querySelectorAll('.graph .node > .handles > rect')].map((e) => {"
        " const b = e.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })"
    )
    assert len(boxes) > 15
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    assert browser.value("document.querySelectorAll('.edge.back').length") == 0


def test_a_node_shows_its_values(browser, page):
    look(browser, page)
    open_member(browser, "Add")
    shown = browser.value("document.querySelector('.node-panel').innerText")
    for part in ("Add", "Inputs", "Outputs", "float32 batch\u00d78\u00d7?\u00d7?"):
        assert part in shown


def test_the_tree_of_tensors_opens_to_a_histogram(browser, page):
    look(browser, page)
    assert browser.value(ROWS)[:2] == ["stem", "stem_norm"]
    browser.click(".row.block")
    assert browser.value(ROWS)[:3] == ["stem", "kernel", "stem_norm"]
    browser.click(".row.leaf")
    shown = browser.value("document.querySelector('.tensor-panel').innerText")
    for part in ("stem/kernel", "3 \u00d7 3 \u00d7 3 \u00d7 8", "216", "smallest", "deviation"):
        assert part in shown
    counted = browser.value(
        "[...document.querySelectorAll('.tensor-panel title')]"
        ".reduce((n, e) => n + Number(e.textContent.split(' ')[0]), 0)"
    )
    assert counted == 216


def test_a_tile_is_a_way_into_the_tree(browser, page):
    look(browser, page)
    browser.value(
        "[...document.querySelectorAll('.tile')].find((e) => e.textContent.startsWith('stem_norm'))"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    assert browser.value(ROWS) == ["gamma", "beta", "moving_mean", "moving_variance"]
    assert "stem_norm" in browser.value("document.getElementById('path').textContent")
    browser.click("#path .link")
    assert "stem" in browser.value(ROWS)


def test_tensors_are_searched_with_a_keyboard(browser, page):
    look(browser, page)
    browser.press("/", "/")
    browser.write("BIAS")
    browser.until("document.querySelectorAll('.row.leaf').length === 4")
    assert browser.value(ROWS) == ["deep/bias", "wide/bias", "hidden/bias", "scores/bias"]


def test_what_means_harm_is_text(browser, tmp_path):
    held = {name: np.arange(6, dtype=np.float32) for name in HOSTILE}
    held["broken"] = np.array([np.nan, np.inf], np.float32)
    held["none"] = np.empty((0, 3), np.int64)
    out = tmp_path / "page.html"
    converter.inspect(weights(tmp_path, held), html=out)
    look(browser, out)
    browser.value("[...document.querySelectorAll('.row')].forEach((e) => e.click?.())")
    browser.value("[...document.querySelectorAll('.row.leaf')].forEach((e) => e.click())")
    assert browser.value("document.images.length") == 0
    assert browser.value("[...document.scripts].filter((s) => !s.type).length") == 1
    text = browser.value("document.body.innerText")
    assert not set("\x1b\u202e") & set(text)
    for part in ("слой", "__proto__", "NaN", "The file records no computation"):
        assert part in text
    for width in (1400, 400):
        look(browser, out, size=(width, 900))
        assert browser.value("document.documentElement.scrollWidth") <= width


def test_thousands_of_tensors_open_at_once(browser, tmp_path):
    held = {f"layers.{i // 10}.t{i}": np.full(4, i, np.float32) for i in range(30_000)}
    out = tmp_path / "page.html"
    converter.inspect(weights(tmp_path, held), html=out)
    look(browser, out)
    built = int(browser.value(BUILT))
    print(f"30,000 tensors: {out.stat().st_size / 1e6:.2f} MB, {built} ms until all is shown")
    assert built < 3000 * 3  # of a machine that does nothing else
    assert "not listed" in browser.value("document.body.innerText")


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (1400, True), (400, False)])
def test_a_picture_of_it_is_not_blank(browser, page, width, dark):
    look(browser, page, dark=dark, size=(width, 900))
    assert browser.value("document.documentElement.scrollWidth") <= width  # nothing sticks out
    found = colours(browser.picture())
    ground, pixels = max(found.items(), key=lambda one: one[1])
    assert (sum(ground) < 3 * 40) == dark
    assert pixels < 0.9 * sum(found.values())
    assert found[bytes.fromhex("4878b0" if dark else "4f83c4")] > 100 or len(found) > 200


def test_the_theme_is_chosen(browser, page):
    look(browser, page)
    browser.click("#theme")
    assert browser.value("document.documentElement.dataset.theme") == "dark"


def test_it_can_be_printed(browser, page):
    look(browser, page)
    assert browser.printed().startswith(b"%PDF-")


def test_errors_of_layers_are_plotted(browser, tmp_path):
    bundle = tmp_path / "image.portable"
    converter.convert(FIXTURES / "verify" / "image.h5", out=bundle, verify="weights")
    manifest = json.loads((bundle / "manifest.json").read_text())
    errors = tuple(
        LayerError(f"layer {i}", "Dense", i != 7, error, 2e-7)
        for i, error in enumerate([0.0, *[1e-7] * 6, 0.5, float("inf")])
    )
    report = GraphReport("failed", "it differs").with_layer_errors(errors)
    manifest["verification"]["graph"] = report.plain()
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    out = tmp_path / "page.html"
    converter.inspect(bundle, html=out)
    look(browser, out)
    assert browser.value("document.querySelectorAll('.wide-plot .dot').length") == 9
    wrong = "document.querySelector('.wide-plot .dot.wrong title').textContent"
    said = ("layer 7 (Dense)", "tolerated", "largest difference 0.5", "noise of rounding 2.0e-7")
    assert browser.value(wrong) == " · ".join(said)
    dots = "[...document.querySelectorAll('.wide-plot .dot')]"
    heights = browser.value(f"{dots}.map((e) => Number(e.getAttribute('cy')))")
    assert heights[0] > heights[1] == heights[6] > heights[7] > heights[8]
    assert "layer 8" in browser.value("document.querySelector('.layer-table').textContent")


def test_tensors_and_blocks_are_marked_with_their_devices(browser, tmp_path):
    out = tmp_path / "page.html"
    converter.inspect(FIXTURES / "torch_devices" / "mixed.pt", html=out)
    look(browser, out)
    tags = "[...document.querySelectorAll('#tree .row')].map((row) => row.innerText)"
    first = next(row for row in browser.value(tags) if row.strip().startswith("0"))
    assert "cuda:0" in first
    assert "cuda:1" in first
    browser.click(".row.block")
    browser.click(".row.leaf")
    assert "device" in browser.value("document.querySelector('.tensor-panel').innerText")
