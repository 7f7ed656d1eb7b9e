"""The environment of a conversion, as manifests record it."""

import os
import sys
from contextlib import suppress
from functools import cache

from converter.version import VERSION
from formats.core.bundle import JSON

PACKAGES = ("blake3", "ml_dtypes", "numpy")  # what can shape the bytes we write


def describe() -> dict[str, JSON]:
    """Return versions of this tool, of Python and of the packages it computes with."""
    return {
        "tool": f"model-convert {VERSION}",
        "python": ".".join(map(str, sys.version_info[:3])),
        "platform": f"{sys.platform}-{os.uname().machine}",
        "packages": {name: _version(name) for name in PACKAGES},
    }


@cache
def _version(name: str) -> str:
    """Return the version in the name of the package's record, without importing either.

    `importlib.metadata` reads the record itself, and takes 25 ms for its own imports.
    Spec: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
    """
    head, tail = f"{name}-", ".dist-info"
    for folder in sys.path:
        # sys.path names archives and folders that are not there, too
        with suppress(OSError), os.scandir(folder or ".") as records:
            for record in records:
                if record.name.startswith(head) and record.name.endswith(tail):
                    return record.name[len(head) : -len(tail)]
    return "unknown"  # vendored or zipped: present, but without its record
