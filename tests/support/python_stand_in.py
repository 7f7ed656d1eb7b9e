"""A program in place of the other Python that runs a framework: it answers by a test's own code."""

import sys
from pathlib import Path

FRAME = f"""#!{sys.executable}
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[-1])
question = json.loads((folder / 'question.json').read_text())
def answer(**facts):
    facts = {{'python': '3', 'versions': {{FRAMEWORK: '9.9'}}}} | facts
    (folder / 'answer.json').write_text(json.dumps(facts))
"""


def write_stand_in(path: Path, framework: str, code: str) -> Path:
    """Write a program that runs ``code``, which may use ``folder``, ``question`` and ``answer``."""
    path.write_text(FRAME.replace("FRAMEWORK", repr(framework)) + code + "\n")
    path.chmod(0o755)
    return path
