"""Recorded requirements, judged by PEP 440 and PEP 508."""

import pytest
from hosts import host

from converter.doctor.rules.requirements import (
    applies,
    describe_environment,
    is_met,
    parse_requirement,
)

LINUX = describe_environment(host())


@pytest.mark.parametrize(
    ("version", "specifier", "met"),
    [
        ("2.1.0", ">=1.26,<3", True),
        ("3.0", ">=1.26,<3", False),
        ("2.1", "==2.1.0", True),
        ("2.1", "!=2.1", False),
        ("2.1.5", "==2.1.*", True),
        ("2.2", "==2.1.*", False),
        ("2.2", "!=2.1.*", True),
        ("2.21.3", "~=2.21.0", True),
        ("2.22.0", "~=2.21.0", False),
        ("2.22", "~=2.21", True),
        ("2.21.0+cu130", ">=2.21", True),
        ("4.0", "", True),
        ("unknown", ">=1", True),
        ("6.31.0", ">=6.31.1", False),
        ("2.0rc1", ">=2.0", False),  # a release candidate comes before its release,
        ("2.0.dev3", ">=2.0", False),
        ("2.1rc1", ">=2.0,<2.1", False),  # and is no release of the series before
        ("2.0rc1", ">=2.0rc1", True),
        ("2.1rc1", ">=2.0", True),  # installed is installed, whatever an index would offer
        ("2.0.post1", ">2.0", False),  # a post-release is no later release
        ("2.0.post1", ">=2.0", True),
        ("1!1.0", ">=2.0", True),  # an epoch comes first
        ("2.0", "===2.0.0", False),  # compared as strings
        ("2.1+cpu", "==2.1", True),
        ("2.1+cpu", "==2.1+cu130", False),
        ("2.21", "~=2.20.1", False),
    ],
)
def test_versions(version, specifier, met):
    assert is_met(parse_requirement(f"x{specifier}"), version) is met


@pytest.mark.parametrize(
    ("text", "name", "specifier", "marker"),
    [
        ("numpy>=1.26", "numpy", ">=1.26", "None"),
        ("numpy (>=1.26,<3)", "numpy", "<3,>=1.26", "None"),
        ("ml_dtypes<1.0.0,>=0.5.1", "ml_dtypes", "<1.0.0,>=0.5.1", "None"),
        ("jax[cuda]~=0.4 ; python_version < '3.12'", "jax", "~=0.4", 'python_version < "3.12"'),
        ("protobuf", "protobuf", "", "None"),
        ("x @ https://host/x.whl", "x", "", "None"),
    ],
)
def test_requirements(text, name, specifier, marker):
    parsed = parse_requirement(text)
    assert (parsed.name, str(parsed.specifier), str(parsed.marker)) == (name, specifier, marker)


def test_what_is_no_requirement_is_none():
    assert parse_requirement("@@@") is None


@pytest.mark.parametrize(
    ("marker", "does"),
    [
        ("", True),
        ('python_version >= "3.10"', True),
        ('python_version < "3.9"', False),
        ('python_full_version == "3.11.7"', True),
        ('sys_platform == "linux" and platform_machine == "x86_64"', True),
        ('sys_platform != "linux"', False),
        ('platform_machine in "x86_64 AMD64"', True),
        ('platform_machine not in "x86_64 AMD64"', False),
        ('extra == "and-cuda"', False),
        ('implementation_name == "cpython"', True),
        ('sys_platform == "linux" or extra == "x"', True),
        ('(sys_platform == "win32" or python_version < "3.12") and os_name == "posix"', True),
    ],
)
def test_markers(marker, does):
    requirement = parse_requirement(f"x ; {marker}" if marker else "x")
    assert applies(requirement, LINUX) is does


def test_what_is_not_known_of_a_host_lets_no_requirement_apply():
    unknown = describe_environment(host(python="", system=""))
    assert not applies(parse_requirement('x ; python_version >= "3.10"'), unknown)
    assert not applies(parse_requirement('x ; sys_platform == "linux"'), unknown)
