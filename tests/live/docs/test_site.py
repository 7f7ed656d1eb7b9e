"""The built site: no warning, no dead link, nothing that is loaded from elsewhere."""

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from chromium import CHROMIUM, Browser
from repository import ROOT

pytest.importorskip("mkdocs")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


class Links(HTMLParser):
    """What a page refers to, what it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.to: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        held = dict(attrs)
        self.anchors |= {held[key] for key in ("id", "name") if held.get(key)}
        if tag == "a" and held.get("href"):
            self.to.append(held["href"])
        elif tag in ("script", "img", "iframe") and held.get("src"):
            self.loads.append(held["src"])
        elif tag == "link" and held.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(held["href"])


@pytest.fixture(scope="module")
def pages(site):
    return {path: Links(path.read_text()) for path in site.rglob("*.html")}


def test_links_and_anchors_lead_somewhere(site, pages):
    assert len(pages) > 30
    for path, page in pages.items():
        for link in page.to:
            parts = urlsplit(link)
            if parts.scheme or path.name == "404.html":
                assert parts.scheme in ("", "https")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), (path.relative_to(site), link)
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, (path.name, link)


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for path, page in pages.items():
        for address in page.loads:
            assert not urlsplit(address).netloc, (path.name, address)
            if path.name != "404.html":
                assert (path.parent / urlsplit(address).path).exists(), (path.name, address)
    assert not [p.name for p in site.rglob("*.css") if "url(http" in p.read_text()]


def test_generated_parts_are_in_the_pages(site):
    for name, words in {
        "formats.html": "torch-deepspeed",
        "reference/cli.html": "--merge-adapter",
        "reference/ops-torch.html": "scaled_dot_product_attention",
        "reference/ops-keras.html": "MultiHeadAttention",
        "reference/ops-tensorflow.html": "FusedBatchNorm",
        "reference/python.html": "convert_many",
        "reference/bundle.html": "weights_digest",
        "security.html": "max_pickle_opcodes",
        "contributing.html": "constraints.txt",
        "license.html": "TERMS AND CONDITIONS",
    }.items():
        text = (site / name).read_text()
        assert words in text, name
        assert "generated:" not in text
        assert "included:" not in text


def test_error_messages_are_sections_of_the_search(site):
    index = json.loads((site / "search/search_index.json").read_text())
    titles = [entry["title"] for entry in index["docs"] if "doctor" in entry["location"]]
    assert any("Attempting to deserialize object on CUDA device 1" in title for title in titles)
    assert any("bad marshal data" in title for title in titles)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")
@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_fit_their_window_in_both_schemes(site, tmp_path_factory, width, dark):
    with Browser(tmp_path_factory.mktemp("b")) as browser:
        for name in ("index", "doctor", "reference/cli", "quickstart/mlops", "benchmarks"):
            browser.show((site / f"{name}.html").as_uri(), size=(width, 900), dark=dark)
            browser.until("document.readyState === 'complete'")
            assert browser.value("document.documentElement.scrollWidth") <= width, name
            scheme = "slate" if dark else "default"
            browser.until(f"document.body.dataset.mdColorScheme === '{scheme}'")
        assert browser.complaints == []


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")
def test_search_finds_a_message_without_a_server(site, tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("b")) as browser:
        browser.show((site / "index.html").as_uri())
        browser.until("document.readyState === 'complete'")
        browser.click(".md-search__input")
        browser.write("bad marshal data")
        # It looks for what is typed when a key is let go.
        field = "document.querySelector('.md-search__input')"
        browser.value(f"{field}.dispatchEvent(new KeyboardEvent('keyup', {{key: 'a'}}))")
        browser.until("document.querySelector('.md-search-result__item') !== null")
        found = browser.value("document.querySelector('.md-search-result__list').innerText")
        assert "bad marshal data" in found
        assert browser.complaints == []
