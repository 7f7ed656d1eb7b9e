"""Whether an installed version meets a recorded requirement: the part of PEP 440 that occurs.

What cannot be judged here (URLs, odd markers) counts as met: a false alarm would be worse.
Spec: https://packaging.python.org/en/latest/specifications/version-specifiers/
"""

import operator
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from converter.doctor.host import Version, numbers
from converter.doctor.probes.packages import normalise

_REQUIREMENT = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;@)]*)\)?\s*(?:;(.*))?$"
)
_CLAUSE = re.compile(r"(~=|===?|!=|<=|>=|<|>)\s*([\w.*+!-]+)")
_MARKER = re.compile(r"\(?\s*(\w+)\s*(<=|>=|==|!=|<|>|in)\s*['\"]([^'\"]*)['\"]\s*\)?")
_COMPARE: Mapping[str, Callable[[Version, Version], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class Requirement(NamedTuple):
    """A name, ``>=1.26,<3``, and the marker that says when it counts."""

    name: str
    specifier: str
    marker: str


def parse(text: str) -> Requirement | None:
    """Return one requirement of a record, or None where it is of another kind."""
    match = _REQUIREMENT.match(text.strip())
    if match is None:
        return None
    return Requirement(normalise(match[1]), match[2].strip(), (match[3] or "").strip())


def counts(marker: str, facts: Mapping[str, str]) -> bool:
    """Whether a requirement counts here; what cannot be told does not.

    Args:
        marker: As recorded.
        facts: ``python_version``, ``sys_platform``, ``platform_machine``, ``platform_system``.
    """
    if not marker:
        return True
    if "extra" in marker or " or " in marker:
        return False
    for part in marker.split(" and "):
        match = _MARKER.fullmatch(part.strip())
        if match is None or match[1] not in facts:
            return False
        name, sign, wanted = match.groups()
        if not _holds(facts[name], sign, wanted, versioned=name == "python_version"):
            return False
    return True


def _holds(value: str, sign: str, wanted: str, *, versioned: bool) -> bool:
    if sign in ("==", "!="):
        return (value == wanted) is (sign == "==")
    if sign == "in":
        return value in wanted
    return versioned and _COMPARE[sign](*_aligned(numbers(value), numbers(wanted)))


def met(version: str, specifier: str) -> bool:
    """Whether a version is within a specifier: ``met("2.1", ">=1.26,<3")``."""
    have = numbers(version)
    if not have:
        return True
    return all(_clause(have, sign, wanted) for sign, wanted in _CLAUSE.findall(specifier))


def _clause(have: Version, sign: str, wanted: str) -> bool:
    want = numbers(wanted)
    if not want:
        return True
    if sign == "~=":
        return have[: len(want) - 1] == want[:-1] and _clause(have, ">=", wanted)
    if wanted.endswith(".*"):
        same = _aligned(have, want)[0][: len(want)] == want
        return same is (sign == "==")
    left, right = _aligned(have, want)
    if sign in ("==", "==="):
        return left == right
    if sign == "!=":
        return left != right
    return _COMPARE[sign](left, right)


def _aligned(a: Version, b: Version) -> tuple[Version, Version]:
    """Return both with as many numbers, for 2.1 is 2.1.0."""
    size = max(len(a), len(b))
    return a + (0,) * (size - len(a)), b + (0,) * (size - len(b))
