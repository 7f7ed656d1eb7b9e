"""Judge recorded requirements by PEP 440 and PEP 508.

What cannot be judged (a URL, a damaged record) counts as met: a false alarm would be worse.
Spec: https://packaging.python.org/en/latest/specifications/version-specifiers/
"""

from collections.abc import Mapping

from packaging.markers import UndefinedComparison
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from converter.doctor.host import Host


def parse_requirement(text: str) -> Requirement | None:
    """Parse a ``Requires-Dist``; None if it is damaged."""
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def describe_environment(host: Host) -> dict[str, str]:
    """Return the values of the marker variables on a host, for CPython and without extras.

    Spec: https://packaging.python.org/en/latest/specifications/dependency-specifiers/
    """
    system = host.system.partition(" ")[0]
    return {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": host.python,
        "os_name": "nt" if system == "Windows" else "posix",
        "platform_machine": host.machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": system,
        "platform_version": "",
        "python_full_version": host.python,
        "python_version": ".".join(host.python.split(".")[:2]),
        "sys_platform": "win32" if system == "Windows" else system.lower(),
    }


def applies(requirement: Requirement, environment: Mapping[str, str]) -> bool:
    """Return whether a requirement applies: it has no marker, or its marker holds."""
    try:
        return requirement.marker is None or requirement.marker.evaluate(dict(environment))
    except (InvalidVersion, UndefinedComparison):
        return False


def is_met(requirement: Requirement, version: str) -> bool:
    """Return whether an installed version, which may be a pre-release, is allowed."""
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True
