"""The page in a real browser: what it shows, that it can be used, that nothing in it runs.

Chromium's profile and pages are in the test's own folder; it talks to nobody.
"""

from pathlib import Path
from urllib.parse import urlencode

import pytest
from chromium import colours
from report_records import HOSTILE, gaps, good, hostile, many, report_of, some

from converter.reports import catalog

READY = "document.documentElement?.dataset.ready === (location.hash || '#')"
NAMES = "[...document.querySelectorAll('#rows .open')].map((e) => e.textContent)"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    catalog.write(report_of(some(), ended="interrupted"), path)
    return path


def look(browser, path: Path, **state) -> list[str]:
    """Show a view of a page, and return the names in its table."""
    dark, size = state.pop("dark", False), state.pop("size", (1280, 900))
    browser.show(f"{path.as_uri()}#{urlencode(state)}", dark=dark, size=size)
    browser.until(READY)
    return browser.value(NAMES)


def test_all_of_it_at_a_glance(browser, page):
    names = look(browser, page)
    assert names == [record["name"] for record in some()]
    text = browser.value("document.body.innerText")
    shown = (
        "4 of 14 converted", "Interrupted", "all 14", "7 failed", "1 partial",
        "3 unsupported features keep 3 artifacts", "TensorFlow op ParseExample", "no model",
    )  # fmt: skip
    for part in shown:
        assert part in text
    assert browser.value("document.title") == "/registry · convert"
    assert browser.value("document.querySelectorAll('#facets .facet').length") == 6


@pytest.mark.parametrize(
    ("state", "names"),
    [
        ({"q": "PARSE blocked"}, ["blocked.pb", "blocked2.pb"]),
        ({"failure": "not supported"}, ["blocked.pb", "blocked2.pb"]),
        ({"gap": "TensorFlow op ParseExample"}, ["blocked.pb", "blocked2.pb", "heads"]),
        ({"gap": "TensorFlow op ParseExample", "outcome": "partial"}, ["heads"]),
        ({"format": "keras-h5", "sort": "-name"}, ["graph.h5", "differs.h5", "damaged.h5"]),
        ({"device": "none", "failure": "environment"}, ["crash.pt", "lost.h5"]),
        ({"verified": "outputs, CPU"}, ["graph.h5"]),
        ({"outcome": "pending"}, ["waiting.pt"]),
        ({"q": "differs", "sort": "-error"}, ["differs.h5"]),
        ({"q": "nobody"}, []),
    ],
)
def test_a_view_is_a_link(browser, page, state, names):
    assert look(browser, page, **state) == [f"{name}.portable" for name in names]


def test_by_the_largest_error_first_and_what_has_none_last(browser, page):
    names = look(browser, page, sort="-error")
    assert names[:2] == ["differs.h5.portable", "graph.h5.portable"]
    assert look(browser, page, sort="-seconds")[0] == "lost.h5.portable"


def test_an_artifact_opens_with_its_evidence(browser, page):
    look(browser, page, open="differs.h5.portable")
    shown = browser.value("document.querySelector('.opened').innerText")
    for part in ("Exit 1: verification failed", "onnxruntime 1.31.1", "output_1", "max rel",
                 "elements differ by more than is allowed", "What was done"):  # fmt: skip
        assert part in shown
    plots = (
        "[...document.querySelectorAll('.plot')].map((e) => ({said: e.getAttribute('aria-label'),"
    )
    plots += (
        " wrong: e.querySelectorAll('.wrong').length, limit: !!e.querySelector('line.limit')}))"
    )
    good, bad = browser.value(plots)
    assert good["limit"]
    assert bad["limit"]
    assert (good["wrong"], bad["wrong"] > 0) == (0, True)
    assert "50% of 1,000 elements are equal" in bad["said"]


def test_it_is_used_with_a_keyboard(browser, page):
    look(browser, page)
    browser.press("/", "/")
    browser.write("damaged")
    browser.until("location.hash.includes('q=damaged')")
    browser.until(READY)
    assert browser.value(NAMES) == ["damaged.h5.portable"]
    browser.press("Escape")
    browser.value("document.querySelector('#rows .open').focus()")
    browser.press("Enter")
    browser.until("!!document.querySelector('.opened pre')")
    assert "superblock" in browser.value("document.querySelector('.opened pre').textContent")
    browser.press("Escape")
    browser.until("!document.querySelector('.opened')")


def test_it_is_used_with_a_mouse(browser, page):
    look(browser, page)
    browser.click(".gap-name")
    browser.until("location.hash.includes('gap=')")
    browser.until(READY)
    assert len(browser.value(NAMES)) == 3
    assert (
        browser.value("document.querySelector('.gap-name').getAttribute('aria-pressed')") == "true"
    )
    browser.value("history.back()")
    browser.until(f"{NAMES}.length === 14")
    browser.click(".facet .value")
    browser.until(f"{NAMES}.length === 7")
    browser.click(".chip")
    browser.until(f"{NAMES}.length === 14")
    browser.click("#theme")
    browser.until("document.documentElement.dataset.theme === 'dark'")


def test_what_means_harm_is_text(browser, tmp_path):
    path = tmp_path / "report.html"
    catalog.write(report_of(hostile(), title=HOSTILE[0]), path)
    assert len(look(browser, path)) == len(HOSTILE)
    for i in range(len(HOSTILE)):
        browser.value(f"document.querySelectorAll('#rows .open')[{i}].click()")
        browser.until("document.querySelectorAll('.opened .panel .plot').length === 1")
        browser.until(READY)
    assert browser.value("document.title").startswith("</script>")
    assert browser.value("document.images.length") == 0
    assert browser.value("[...document.scripts].filter((s) => !s.type).length") == 1
    assert "\\u001b[31mred" in browser.value("document.body.innerText")
    assert not set("\x1b\u202e\x9b") & set(browser.value("document.body.innerText"))


def test_ten_thousand_artifacts_open_at_once(browser, tmp_path):
    path = tmp_path / "report.html"
    catalog.write(report_of(lambda: many(10_000)), path)
    assert path.stat().st_size < 3 << 20
    names = look(browser, path)
    built = int(browser.until("document.documentElement.dataset.built"))
    print(f"10,000 artifacts: {path.stat().st_size / 1e6:.2f} MB, {built} ms until all is shown")
    assert built < 2000 * 3  # of a machine that does nothing else: a third of a second
    assert len(names) == 100
    browser.value("document.getElementById('more').scrollIntoView()")
    browser.until(f"{NAMES}.length > 100")
    last = "team-16/project-249/model-09998.pt.portable"
    look(browser, path, open=last)
    assert last in browser.value("document.querySelector('.open[aria-expanded=true]').textContent")
    assert browser.value("document.querySelectorAll('.opened .panel').length") == 1
    assert len(browser.value(NAMES)) == 12
    browser.click("#earlier button")
    assert len(browser.value(NAMES)) == 112


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (420, False)])
def test_a_picture_of_it_is_not_blank(browser, page, width, dark):
    look(browser, page, dark=dark, size=(width, 500))
    assert browser.value("document.documentElement.scrollWidth") <= width  # nothing sticks out
    found = colours(browser.picture())
    ground, pixels = max(found.items(), key=lambda one: one[1])
    assert (sum(ground) < 3 * 40) == dark
    assert len(found) > 50
    assert pixels < 0.97 * sum(found.values())
    good = bytes.fromhex("46c08a" if dark else "1d7a4c")
    assert found[good] > 100  # the share that is converted


@pytest.mark.parametrize("width", [1280, 800, 380])
def test_nothing_sticks_out_of_a_narrow_window(browser, tmp_path, width):
    path = tmp_path / "report.html"
    folders = good("a-folder-of-a-long-name/" * 12 + "model", 1, gaps=gaps(**{"G" * 150: 1}))
    catalog.write(report_of([*hostile(), folders]), path)
    names = look(browser, path, size=(width, 900))
    for i in range(len(names)):
        browser.value(f"document.querySelectorAll('#rows .open')[{i}].click()")
        browser.until("document.querySelectorAll('.opened .panel').length === 1")
        browser.until(READY)
        assert browser.value("document.documentElement.scrollWidth") <= width, names[i][:60]


def test_it_can_be_printed(browser, page):
    look(browser, page)
    assert browser.printed().startswith(b"%PDF-")
