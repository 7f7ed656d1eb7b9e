"""The words of code and documents are the field's words: those on this list never are.

A row has a pattern, and what to write in its place. Words that also have a good meaning are not
here: they need a reader.
"""

import re
import subprocess

import pytest
from repository import ROOT

ODD = [
    (r"\b(is|are|was|were|be|been) told\b", "gets, is given, is reported"),
    (r"\btold (of|so|apart)\b", "is named, is reported, is distinguished"),
    (r"\b(told|Told) *[=:(]", "the name of what it holds"),
    (r"\bwhat is none\b", "is not one"),
    (r"\b[Ww]hoever\b", "the user, the caller, a program that"),
    (r"\b(stands?|stood) (beside|before|behind|in|where|there|twice|between)\b(?! for)", "is"),
    (r"\bhands? on what\b", "returns, passes on"),
    (r"\bbyte-code\b", "bytecode"),
    (r"\bback ends?\b", "backend"),
    (r"\bKerases\b", "versions of Keras"),
    (r"\btelephones\b", "mobile devices"),
    (r"\b(Told|Learned|Met|Spent|Lack|Pinned)\b(?=[(\[]| as )", "a name that says of what"),
]
# Nouns and verbs of what a function returns or does are names of functions, participles are not.
PARTICIPLES = ("asked", "heard", "lowered", "spoken", "told")
SUFFIXES = (".py", ".js", ".html", ".css", ".md")
ROOTS = ("converter", "formats", "docs", "tools", "benchmarks", "tests")
HERE = "tests/contracts/test_"
# Names of stored fixtures, and the list itself.
EXEMPT = {
    f"{HERE}vocabulary.py", f"{HERE}documents.py", "tests/converter/doctor/loaders/test_keras.py",
}  # fmt: skip


def files():
    """Return the files that git knows, those that are not committed yet included."""
    command = ["git", "ls-files", "-co", "--exclude-standard", *ROOTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this is no checkout")
    names = sorted({*done.stdout.split()} - EXEMPT)
    return [name for name in names if name.endswith(SUFFIXES) and (ROOT / name).is_file()]


def test_no_words_that_only_we_use():
    found = []
    for name in files():
        text = (ROOT / name).read_text("utf-8")
        for pattern, better in ODD:
            for match in re.finditer(pattern, text):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{name}:{line}: {match[0]!r}: write: {better}")
    assert not found, "\n".join(found)


def test_functions_are_not_called_by_participles():
    pattern = re.compile(rf"^ *def _*({'|'.join(PARTICIPLES)})\(", re.MULTILINE)
    found = [
        f"{name}: {match[0].strip()}"
        for name in files()
        for match in pattern.finditer((ROOT / name).read_text("utf-8"))
    ]
    assert not found, "\n".join(found)
