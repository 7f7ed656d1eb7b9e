"""Run the commands of the documents, and compare what they print with what the documents say.

    python tools/docs/sessions.py [PAGE...]             # say where they differ
    python tools/docs/sessions.py --update [PAGE...]    # and write down what is printed now
    python tools/docs/sessions.py --walk PAGE...        # in a fresh environment each, as a reader would

A line ``…`` stands for any lines, and ``…`` in a line for any characters. Times, sizes of rounding errors and the
order in which a batch finishes are not compared. What a command prints depends on the installed frameworks, so
blocks "With TensorFlow" or "With torch" are compared where that is installed, all others where
neither is; elsewhere only the exit code counts.
"""

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from pages import ROOT, Block, Page, read_pages

TIMES = re.compile(r"\b\d+(\.\d+)?(e-\d+)? (s\b|[KMG]iB/s)")
ERRORS = re.compile(r"\b(max abs|max rel) [\d.e+-]+")  # differ with the instructions of a CPU
HOME = "/home/you"  # what the documents call the folder in which their commands run
HAS_FRAMEWORKS = any(find_spec(name) for name in ("torch", "tensorflow", "keras"))
UNORDERED = re.compile(r"^(done|failed|passed|FAILED) {2}")
# Runs the examples of a page's pycon block; a failure is printed and is exit 1.
DOCTEST = """
import doctest, sys
test = doctest.DocTestParser().get_doctest(sys.stdin.read(), globals(), "page", None, 0)
runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
runner.run(test, clear_globs=False)
sys.exit(runner.failures > 0)
"""


class Ran(NamedTuple):
    """What a command did.

    Attributes:
        block: Where it is.
        command: The command.
        shown: What the document says that it prints; None where nothing is said.
        printed: What it printed.
        code: Its exit code.
        asked: Whether the next command is ``echo $?``: then the code may be any.
    """

    block: Block
    command: str
    shown: str | None
    printed: str
    code: int
    asked: bool = False

    @property
    def is_compared(self) -> bool:
        """Whether this Python is the right one to compare what is printed."""
        return self.shown is not None and bool(self.block.framework) == HAS_FRAMEWORKS

    @property
    def agrees(self) -> bool:
        """Whether it printed what the document shows, where that can be compared."""
        return not self.is_compared or bool(
            re.fullmatch(_pattern(self.shown or ""), _plain(self.printed))
        )

    @property
    def problem(self) -> str:
        """What is wrong, or ""."""
        place = f"{self.block.page}: $ {self.command}"
        if not self.agrees:
            return f"{place}\n--- shown\n{self.shown}--- printed\n{self.printed}"
        if self.code and not self.asked and not self.command.startswith("convert doctor"):
            return f"{place}\n--- exit {self.code}, not 0\n{self.printed}"
        return ""


def _plain(text: str) -> str:
    """Return an output without what differs from run to run."""
    text = ERRORS.sub(r"\1 X", TIMES.sub("T s", text))
    lines = [line.rstrip() for line in text.strip().splitlines()]
    groups = itertools.groupby(lines, lambda line: bool(UNORDERED.match(line)))
    return "\n".join(line for is_any, some in groups for line in (sorted(some) if is_any else some))


def _pattern(shown: str) -> str:
    """Return a regular expression for an output with ``…`` in it."""
    parts = []
    for line in _plain(shown).splitlines():
        if line.strip() == "…":
            parts.append(r"(?s:.*?)")  # nested repetitions would take exponential time
        else:
            parts.append(r"[^\n]*".join(map(re.escape, line.split("…"))) + r"\n?")
    return "".join(parts)


def prepare(page: Page, folder: Path) -> None:
    """Put the files that a page uses into a folder.

    A fixture is a file, a folder, or ``archive.zip!member``.
    """
    if page.name == "README.md":
        (folder / "fixtures").symlink_to(ROOT / "fixtures")
    for name, source in page.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        archive, _, member = source.partition("!")
        if member:
            with zipfile.ZipFile(ROOT / archive) as held:
                target.write_bytes(held.read(member))
        elif (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target)
        else:
            shutil.copy(ROOT / source, target)


def run(
    page: Page,
    folder: Path,
    python: Path | None = None,
    *,
    title: str = "",
    environment: Mapping[str, str] | None = None,
) -> Iterator[Ran]:
    """Run the blocks of a page in a folder, in their order.

    Args:
        page: The page.
        folder: Empty folder, in which the page's files are put and its commands run.
        python: Interpreter whose programs are used; default: this one.
        title: Only blocks with this title, which says what they need: "Needs an S3 bucket".
        environment: Further variables, which say where that is.
    """
    prepare(page, folder)
    python = python or Path(sys.executable)
    env = {
        **os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}", "NO_COLOR": "1",
        "COLUMNS": "100", "PYTHONPATH": "", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3", **(environment or {}),
    }  # fmt: skip
    code = 0
    doctests = [block for block in page.blocks if block.language == "pycon"]
    for block in page.blocks:
        if block.file:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text)
        elif not (block.title == title if title else _is_run_here(block)):
            continue
        elif block.language == "pycon":  # all of a page are one doctest
            if block == doctests[0]:
                given = "\n".join(one.text for one in doctests)
                done = _call([str(python), "-c", DOCTEST], folder, env, given)
                yield Ran(block, block.language, None, done.stdout, done.returncode)
        elif block.language == "python":
            done = _call([str(python), "-c", block.text], folder, env)
            yield Ran(block, block.language, None, done.stdout, done.returncode)
        else:
            commands = list(block.commands())
            for i, (command, shown) in enumerate(commands):
                asks = command.strip() == "echo $?"
                script = f"(exit {code}); {command}" if asks else command
                done = _call(["bash", "-c", script], folder, env)
                code = done.returncode
                asked = any(following == "echo $?" for following, _ in commands[i + 1 : i + 2])
                is_session = block.language == "console"
                yield Ran(block, command, shown if is_session else None, done.stdout, code, asked)


def _is_run_here(block: Block) -> bool:
    return block.is_run and (not block.framework or find_spec(block.framework) is not None)


def install(page: Page, folder: Path) -> Path:
    """Follow a page's "Install" block in a new environment; return its Python.

    Args:
        page: The page.
        folder: Empty folder; the environment and a copy of the repository are put in it.
    """
    source, environment = folder / "source", folder / "environment"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, listed)):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    venv.create(environment, with_pip=True)
    env = {
        **os.environ, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "PIP_QUIET": "1",
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }  # fmt: skip
    for block in page.blocks:
        if block.is_install:
            subprocess.run(["bash", "-euxc", block.text], cwd=source, env=env, check=True)
    return environment / "bin" / "python"


def _call(
    command: list[str], folder: Path, env: dict[str, str], given: str = ""
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd=folder, env=env, text=True, timeout=300, input=given,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    done.stdout = done.stdout.replace(str(folder), HOME)
    return done


def update(page: Page, ran: list[Ran]) -> bool:
    """Write what was printed into the page where it differs; return whether anything changed."""
    text = page.text
    for one in reversed(ran):
        if one.agrees:
            continue
        begin, end = one.block.span
        old, new = f"$ {one.command}\n{one.shown}", f"$ {one.command}\n"
        if one.printed.strip():
            new += one.printed.rstrip() + "\n"
        block = text[begin:end]
        place = block.rindex(old)
        text = text[:begin] + block[:place] + new + block[place + len(old) :] + text[end:]
    if text != page.text:
        page.path.write_text(text)
    return text != page.text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pages", nargs="*", help="README.md, docs/keras.md, …; default: all")
    parser.add_argument("--update", action="store_true", help="write down what is printed")
    parser.add_argument("--walk", action="store_true", help="follow the page's Install block first")
    given = parser.parse_args()
    bad = 0
    for page in read_pages():
        if given.pages and page.name not in given.pages:
            continue
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as fresh:
            python = install(page, Path(fresh)) if given.walk else None
            ran = list(run(page, Path(folder), python))
        if given.update and update(page, ran):
            print(f"{page.name}: updated")
        for one in ran:
            if one.problem and not (given.update and not one.agrees):
                bad += 1
                print(one.problem)
        print(f"{page.name}: {len(ran)} commands", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
