"""README of fixtures names every folder, and one command knows every script."""

import re
import runpy

from repository import FIXTURES


def test_every_folder_is_described():
    text = (FIXTURES / "README.md").read_text()
    named = set(re.findall(r"`(\w+)`", text))
    folders = {p.name for p in FIXTURES.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders <= named


def test_every_script_is_known_and_says_what_it_takes():
    scripts = runpy.run_path(str(FIXTURES / "make.py"))["SCRIPTS"]  # leaves no bytecode there
    found = {p.relative_to(FIXTURES).as_posix() for p in FIXTURES.glob("*/make*.py")}
    assert {script.path for script in scripts} == found
    assert all(bool(script.needs) != bool(script.by_hand) for script in scripts)
