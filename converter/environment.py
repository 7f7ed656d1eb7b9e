"""The environment of a conversion, as manifests record it."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from converter.version import VERSION
from formats.bundle import JSON

PACKAGES = ("blake3", "ml_dtypes", "numpy")  # what can shape the bytes we write


def describe() -> dict[str, JSON]:
    """Return versions of this tool, of Python and of the packages it computes with."""
    packages: dict[str, JSON] = {}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:  # vendored or zipped: present, but without its record
            packages[name] = "unknown"
    return {
        "tool": f"model-convert {VERSION}",
        "python": platform.python_version(),
        "platform": f"{sys.platform}-{platform.machine()}",
        "packages": packages,
    }
