"""The documents as data: their blocks of code, their files, and the commands that they show.

How a block is treated follows from its language and its title:

- ``console`` is a session: each ``$ command`` runs, and what it prints is below it.
- ``sh`` is commands alone, without their output. ``python`` is a script, and runs; ``pycon`` is a
  doctest.
- The title "Install" sets up an environment: ``.ci/run walks`` follows it in a fresh one.
- A title that is a file's name (``title="my_layers.py"``) writes the block to that file instead.
- A title that begins with "Needs" (``title="Needs an MLflow server"``) says why a block cannot run
  everywhere; its ``convert`` commands are parsed. "With TensorFlow" runs where that is installed.

A page names the files that its commands use in its front matter: ``files: {model.h5: fixtures/…}``.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]*)(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
FRONT_MATTER = re.compile(r"\A---\n(.*?)^---\n", re.MULTILINE | re.DOTALL)
# What a block with this title needs: a module that must be importable.
FRAMEWORKS = {"With TensorFlow": "tensorflow", "With torch": "torch"}
COMMAND = re.compile(
    r"^\$ (?P<command>(?:[^\n]*\\\n)*[^\n]*)\n(?P<output>(?:(?!\$ )[^\n]*\n)*)", re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """A fenced block of code.

    Attributes:
        page: Path of the page, relative to the repository.
        language: First word of the fence.
        info: The rest of the fence's line.
        text: Content, without the fence's indentation.
        span: Where the content is in the page's text.
    """

    page: str
    language: str
    info: str
    text: str
    span: tuple[int, int]

    @property
    def title(self) -> str:
        found = re.search(r'title="([^"]*)"', self.info)
        return found[1] if found else ""

    @property
    def file(self) -> str:
        """Name of the file that the block is the content of, or ""."""
        return self.title if re.fullmatch(r"[\w./-]+\.\w+", self.title) else ""

    @property
    def framework(self) -> str:
        """Module that the block needs, or ""."""
        return FRAMEWORKS.get(self.title, "")

    @property
    def is_run(self) -> bool:
        runs = self.language in ("console", "sh", "python", "pycon") and not self.file
        return runs and not self.is_marked and not self.is_install

    @property
    def is_marked(self) -> bool:
        """Whether its title says why it cannot run everywhere."""
        return self.title.startswith("Needs ")

    @property
    def is_install(self) -> bool:
        """Whether it sets up an environment: a stage of CI runs it in a fresh one."""
        return self.title == "Install" or self.info.strip() in ("set-up", "tests")

    def commands(self) -> Iterator[tuple[str, str]]:
        """Yield each command and the output that is below it."""
        if self.language == "console":
            for match in COMMAND.finditer(self.text):
                yield match["command"], match["output"]
        else:
            for line in self.text.replace("\\\n", " ").splitlines():
                if line.strip() and not line.startswith("#"):
                    yield line, ""


@dataclass(frozen=True)
class Page:
    """A Markdown page."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def files(self) -> dict[str, str]:
        """Name in the page's folder → the fixture that it is."""
        found = FRONT_MATTER.match(self.text)
        meta: dict[str, Any] = yaml.safe_load(found[1]) if found else {}
        return meta.get("files") or {}

    @cached_property
    def blocks(self) -> list[Block]:
        return [
            Block(self.name, m["language"], m["info"], m["text"], m.span("text"))
            for m in FENCE.finditer(self.text)
        ]

    def converts(self) -> Iterator[tuple[list[str], bool]]:
        """Yield the arguments of every ``convert`` command, and whether it is a complete one.

        In running text a command may be named without its arguments.
        """
        shells = [block for block in self.blocks if block.language in ("console", "sh")]
        lines = [(line, True) for block in shells for line, _ in block.commands()]
        named = re.findall(r"`(convert [^`\n]+)`", FENCE.sub("", self.text))
        for line, is_complete in (*lines, *((line, False) for line in named)):
            for part in re.split(r"&&|\|\||[|;]", line.replace("\\\n", " ")):
                words = shlex.split(part, comments=True) if "convert " in part else []
                if words and words[0] == "convert":
                    yield words[1:], is_complete


def read_pages() -> list[Page]:
    """Return README, the other documents of the root that have commands, and all of ``docs/``."""
    named = [
        ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
    ]
    return [Page(path) for path in (*named, *sorted((ROOT / "docs").rglob("*.md")))]
