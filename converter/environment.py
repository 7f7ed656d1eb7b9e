"""The environment of a conversion, as recorded in manifests."""

import os
import sys
from contextlib import suppress
from functools import cache

from converter.version import VERSION
from formats.core.bundle import JSON

PACKAGES = ("blake3", "ml_dtypes", "numpy")  # those that produce bytes of the output


def describe_environment() -> dict[str, JSON]:
    """Return the versions of this tool, of Python and of the packages in PACKAGES."""
    return {
        "tool": f"model-convert {VERSION}",
        "python": ".".join(map(str, sys.version_info[:3])),
        "platform": f"{sys.platform}-{os.uname().machine}",
        "packages": {name: _read_version(name) for name in PACKAGES},
    }


@cache
def _read_version(name: str) -> str:
    """Return a package's version from the name of its dist-info folder, without importing it.

    `importlib.metadata` takes 25 ms to import.
    Spec: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
    """
    head, tail = f"{name}-", ".dist-info"
    for folder in sys.path:
        # sys.path also names archives and folders that do not exist
        with suppress(OSError), os.scandir(folder or ".") as records:
            for record in records:
                if record.name.startswith(head) and record.name.endswith(tail):
                    return record.name[len(head) : -len(tail)]
    return "unknown"  # vendored or zipped: installed without a record
