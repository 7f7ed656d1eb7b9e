"""What is said to be installed is what pyproject.toml has in its extras."""

import shlex
import tomllib

from repository import ROOT

from converter.extras import EXTRAS, describe_install

DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_extras_are_those_of_the_project():
    assert {name: DECLARED[name] for name in EXTRAS} == {n: [*p] for n, p in EXTRAS.items()}


def test_the_command_can_be_pasted():
    command, others = describe_install("torch").split("  # in a checkout: ")
    assert shlex.split(command)[:2] == ["pip", "install"]
    assert shlex.split(command)[2:] == DECLARED["torch"]
    assert shlex.split(others) == ["pip", "install", ".[torch]"]
