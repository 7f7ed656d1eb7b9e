"""Hooks of mkdocs: generated parts, and the pages that stand outside of ``docs/``."""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from generate import fill
from pages import ROOT

OUTSIDE = re.compile(r"^<!-- included: ([\w.]+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in what is generated, and what stands in a file of the repository's root."""
    return fill(OUTSIDE.sub(lambda match: _read(match[1]), markdown))


def _read(name: str) -> str:
    """Return a file of the root; its links are from there."""
    text = (ROOT / name).read_text()
    text = re.sub(r"\]\(docs/", "](", text)
    return re.sub(r"\]\((?:LICENSE|CHANGELOG|CONTRIBUTING|SECURITY)(?:\.md)?\)", lambda m: m[0].lower(), text)
