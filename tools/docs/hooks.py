"""Hooks of mkdocs: generated parts, and the pages that are outside of ``docs/``."""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from generate import fill
from mkdocs.utils import get_relative_url
from pages import ROOT

SHIM = "https://unpkg.com/iframe-worker/shim"  # what the plugin `offline` adds to each page
OUTSIDE = re.compile(r"^<!-- included: ([\w.]+)( below)? -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in what is generated, and what is in a file of the repository's root."""
    return fill(OUTSIDE.sub(lambda match: _read(match[1], bool(match[2])), markdown))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Take the search's shim from the site itself: nothing is loaded from elsewhere."""
    return output.replace(SHIM, get_relative_url("javascripts/iframe-worker.js", page.url))


def on_post_template(output_content: str, **_: Any) -> str:
    """Do so in the templates that are no pages, such as 404.html."""
    return output_content.replace(SHIM, "/javascripts/iframe-worker.js")


def _read(name: str, below: bool) -> str:
    """Return a file of the root, its links as from ``docs/``; its headings a level lower."""
    text = (ROOT / name).read_text()
    if name == "LICENSE":
        return f"```text\n{text}```"
    text = re.sub(r"\]\(docs/", "](", text)
    text = re.sub(r"\]\(LICENSE\)", "](license.md)", text)
    text = re.sub(r"\]\([A-Z]+\.md\)", lambda match: match[0].lower(), text)
    text = re.sub(r"^```sh (tests|set-up)$", "```sh", text, flags=re.MULTILINE)
    return re.sub(r"^#", "##", text, flags=re.MULTILINE) if below else text
