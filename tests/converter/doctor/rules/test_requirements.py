"""The part of PEP 440 and PEP 508 that the doctor judges recorded requirements by."""

import pytest

from converter.doctor.rules.requirements import counts, met, parse

FACTS = {"python_version": "3.11", "sys_platform": "linux", "platform_machine": "x86_64"}


@pytest.mark.parametrize(
    ("version", "specifier", "is_met"),
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
    ],
)
def test_versions(version, specifier, is_met):
    assert met(version, specifier) is is_met


@pytest.mark.parametrize(
    ("text", "name", "specifier", "marker"),
    [
        ("numpy>=1.26", "numpy", ">=1.26", ""),
        ("numpy (>=1.26,<3)", "numpy", ">=1.26,<3", ""),
        ("ml_dtypes<1.0.0,>=0.5.1", "ml-dtypes", "<1.0.0,>=0.5.1", ""),
        ("jax[cuda]~=0.4 ; python_version < '3.12'", "jax", "~=0.4", "python_version < '3.12'"),
        ("protobuf", "protobuf", "", ""),
    ],
)
def test_requirements(text, name, specifier, marker):
    assert parse(text) == (name, specifier, marker)


def test_what_is_no_requirement_is_none():
    assert parse("@@@") is None


@pytest.mark.parametrize(
    ("marker", "does"),
    [
        ("", True),
        ('python_version >= "3.10"', True),
        ('python_version < "3.9"', False),
        ('sys_platform == "linux" and platform_machine == "x86_64"', True),
        ('sys_platform != "linux"', False),
        ('platform_machine in "x86_64 AMD64"', True),
        ('extra == "and-cuda"', False),
        ('implementation_name == "cpython"', False),  # not known here: a false alarm would be worse
        ('sys_platform == "linux" or extra == "x"', False),
    ],
)
def test_markers(marker, does):
    assert counts(marker, FACTS) is does
