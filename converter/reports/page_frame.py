"""The frame of HTML pages: one file that needs no network, no server and no other file.

A page has a template, a style and scripts in the order in which they run. Values from artifacts are
data, never markup: the page holds them as JSON without any ``<``, and the scripts insert them as
text. The page's content security policy forbids it to load or send anything, and to run any other
script.
"""

import gzip
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import IO, Any

from converter.reports.file import replacing
from converter.reports.json_lines import strict

# These escapes have the same meaning in JSON, and no meaning to an HTML parser.
HARMLESS = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


@dataclass(frozen=True, slots=True)
class PageParts:
    """Files of a page, as ``package:name``; each is in the folder ``page`` of its package.

    Attributes:
        body: Content of the body, up to the scripts.
        styles: Style sheets.
        scripts: Scripts, in the order in which they run.
    """

    body: str
    styles: Sequence[str]
    scripts: Sequence[str]


def write_page(
    path: Path, parts: PageParts, title: str, write_data: Callable[[IO[str]], None]
) -> None:
    """Write a page.

    Args:
        path: The file.
        parts: The page's files.
        title: Title of the window.
        write_data: Writes the data, as made by `json_script` and `packed_script`.

    Raises:
        StorageError: It cannot be written; the old file is unchanged.
    """
    style, script = ("\n".join(map(_part, names)) for names in (parts.styles, parts.scripts))
    begin, _, end = _part("converter.reports:frame.html").partition("<!-- data -->")
    frame = {
        "title": escape(_plain(title)),
        "style": style,
        "script": script,
        "style_hash": _hash(style),
        "script_hash": _hash(script),
        "body": _part(parts.body),
    }
    with replacing(path) as file:
        file.write(Template(begin).substitute(frame))
        write_data(file)
        file.write(Template(end).substitute(frame))


def json_script(name: str, value: object) -> str:
    """Return an element of class ``name`` that holds a value as JSON."""
    text = strict(value).translate(HARMLESS)
    return f'<script type="application/json" class="{name}">{text}</script>\n'


def packed_script(name: str, value: Any) -> str:
    """Return an element of class ``name`` that holds a value as gzipped JSON in base64."""
    packed = b64encode(gzip.compress(strict(value).encode(), 6, mtime=0)).decode()
    return f'<script type="text/plain" class="{name}">{packed}</script>\n'


def _plain(text: str) -> str:
    """Return a string with lone surrogates escaped, so that it can be encoded as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _part(name: str) -> str:
    package, _, file = name.partition(":")
    return files(package).joinpath("page", file).read_text("utf-8")


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()
