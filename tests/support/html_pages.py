"""HTML pages as files: their elements, the data in them, and that they load nothing."""

import gzip
import json
import re
from base64 import b64decode, b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


class Page(HTMLParser):
    """The elements of a page, as a browser sees them.

    Attributes:
        elements: Tag and attributes of each.
        texts: Text of each.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._is_open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add an element."""
        self.elements.append((tag, dict(attrs)))
        self.texts.append("")
        self._is_open = True

    def handle_data(self, data: str) -> None:
        """Add text to the last element."""
        if self._is_open:
            self.texts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        """End the last element."""
        self._is_open = False

    def data(self, name: str) -> list[Any]:
        """Return what the scripts of a class hold as JSON, plain or packed."""
        found = []
        for (tag, attributes), text in zip(self.elements, self.texts, strict=True):
            if tag == "script" and attributes.get("class") == name:
                is_packed = attributes["type"] == "text/plain"
                found.append(json.loads(gzip.decompress(b64decode(text)) if is_packed else text))
        return found


def read_page(path: Path) -> Page:
    """Return a page."""
    return Page(path.read_text("utf-8"))


def check_page(page: Page) -> None:
    """Assert that a page runs one script, which its policy names, and that it loads nothing."""
    for tag, attributes in page.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form", "audio")
        assert not attributes.keys() & {"src", "href", "srcset", "style", "data", "action"}
        assert not any(name.startswith("on") for name in attributes)
    pairs = [*zip(page.elements, page.texts, strict=True)]
    (style,) = (text for (tag, _), text in pairs if tag == "style")
    assert "url(" not in style
    assert "@import" not in style
    (policy,) = (a["content"] or "" for _, a in page.elements if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    (script,) = (text for (tag, a), text in pairs if tag == "script" and "type" not in a)
    for kind, content in (("style", style), ("script", script)):
        digest = b64encode(sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert not re.search(
        r"\b(fetch|XMLHttpRequest|WebSocket|innerHTML|outerHTML|eval|insertAdjacentHTML)\b",
        page.text,
    )
