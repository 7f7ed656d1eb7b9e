"""What exit codes and statuses are called where people read them."""

from collections.abc import Mapping
from typing import Any

# fmt: off
CLASSES: Mapping[int, str] = {
    1:  "verification failed",
    2:  "wrong usage",
    3:  "unreadable source",
    4:  "not supported",
    5:  "refused for safety",
    6:  "storage failed",
    7:  "environment",
    70: "bug of convert",
}
# fmt: on
# Of these the artifact is to blame; of all others the machine, the request or this tool.
ARTIFACTS = (1, 3, 4, 5)
GOOD = ("done", "unchanged")


def outcome(record: Mapping[str, Any]) -> str:
    """Return what became of an artifact, in a word or two.

    ``converted``; ``with gaps``, where the weights are converted and a graph is left out for what
    we do not do; ``failed`` and the other ways to end; ``pending``.
    """
    if record["status"] not in GOOD:
        return str(record["status"])
    return "with gaps" if record["gaps"] else "converted"


def failure(record: Mapping[str, Any]) -> str:
    """Return the class of a failure, or nothing where there is none."""
    code = record["exit_code"]
    if not code:
        return ""
    return CLASSES.get(code, f"exit {code}")


def made_by(record: Mapping[str, Any]) -> str:
    """Return the framework and the version that the source recorded: ``keras 2.3.1``."""
    framework = str(record["framework"] or "")
    recorded = record["recorded"]
    for key in _VERSIONS.get(framework, ()):
        if recorded.get(key) not in (None, "", "unknown"):
            return f"{framework} {recorded[key]}"
    return framework


# In which of a source's own words its framework's version stands.
_VERSIONS = {
    "keras": ("keras_version",),
    "tensorflow": ("tensorflow_version",),
    "torch": ("torch_version", "PyTorch", "pytorch_version", "producerVersion"),
}
