"""Values derived from one record for reports, and the names of exit codes and statuses."""

from collections.abc import Mapping

from converter.jobs.job import GOOD
from converter.jobs.record import Record

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
# The artifact causes these; the machine, the request or this tool causes all others.
ARTIFACTS = (1, 3, 4, 5)
# Suffixes of comparisons of reduced with full precision.
REDUCED = ("in fp16", "in bf16")


def outcome(record: Record) -> str:
    """Return the outcome of an artifact in one or two words.

    ``converted``; ``partial`` where the weights are converted and a graph is left out because an
    op is not supported; else the status: ``failed``, ``pending`` and others.
    """
    if not is_converted(record):
        return record.status
    return "partial" if record.unsupported else "converted"


def is_converted(record: Record) -> bool:
    """Return whether the artifact has an output."""
    return record.status in GOOD


def has_equal_weights(record: Record) -> bool:
    """Return whether tensors were compared with the source's, and all were equal."""
    weights = record.verification.weights or {}
    return is_converted(record) and bool(weights.get("tensors"))


def failure(record: Record) -> str:
    """Return the class of a failure; "" where there is none."""
    code = record.exit_code
    if not code:
        return ""
    return CLASSES.get(code, f"exit {code}")


def made_by(record: Record) -> str:
    """Return the framework and the version that the source recorded: ``keras 2.3.1``."""
    framework = record.framework or ""
    recorded = record.recorded
    for key in _VERSIONS.get(framework, ()):
        if recorded.get(key) not in (None, "", "unknown"):
            return f"{framework} {recorded[key]}"
    return framework


def worst_difference(record: Record) -> float | None:
    """Return the largest relative difference of any output from the source's output.

    Comparisons of reduced with full precision are excluded.
    """
    found = [
        measure["max_rel"]
        for signature, report in record.verification.graphs.items()
        if report and not signature.endswith(REDUCED)
        for measure in report["outputs"]
        if measure["max_rel"] is not None
    ]
    return max(found, default=None)


# Keys of `Record.recorded` that hold the framework's version.
_VERSIONS = {
    "keras": ("keras_version",),
    "tensorflow": ("tensorflow_version",),
    "torch": ("torch_version", "PyTorch", "pytorch_version", "producerVersion"),
}
