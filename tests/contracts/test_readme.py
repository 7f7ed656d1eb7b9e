"""README is short, CI follows its set-up; CONTRIBUTING names every set of tests."""

import re
import shlex
import tomllib

from repository import ROOT

README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def blocks(text, language):
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_it_is_short():
    assert len(README.splitlines()) <= 150


def test_set_up_is_two_commands():
    first, second = blocks(README, "sh set-up")
    assert re.fullmatch(
        r"pip install \"\.\[cpu\]\" && convert (fixtures/\S+) --to portable\n", first
    )
    assert (ROOT / first.split("convert ")[1].split()[0]).exists()
    assert '".[test]"' in second
    assert second.endswith('-m "not slow and not thorough"\n')


def test_each_set_of_tests_has_a_command():
    (shown,) = blocks(CONTRIBUTING, "sh tests")
    commands = [line.partition("  #")[0].rstrip() for line in shown.splitlines()]
    assert commands[-1] == "bash .ci/run"
    marks = {m.partition(":")[0] for m in PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]}
    for command in commands[:-1]:
        words = shlex.split(command)
        assert words[:6] == ["python", "-m", "pytest", "-q", "-n", "auto"]
        assert all((ROOT / word).is_dir() for word in words[6:] if word.startswith("tests/"))
        if "-m" in words[6:]:
            named = re.findall(r"\w+", words[-1])
            assert {*named} - {"not", "and"} <= marks


def test_the_default_set_is_the_quick_one_and_what_is_thorough():
    """`.ci/run` runs the second after the first: together they are the default set."""
    script = (ROOT / ".ci/run").read_text()
    assert 'tests test default -m "thorough and not slow or browser"' in script


def test_the_licence_is_the_one_that_the_package_names():
    assert PYPROJECT["project"]["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
