"""Artifacts that are read as the format that their content shows."""

from pathlib import Path

from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import Bundle


def read_detected(path: Path, form: str) -> Bundle:
    """Return the bundle of an artifact, which must be detected as a format."""
    artifact = Artifact(path)
    match = catalog.detect(artifact)
    assert match.format.id == form
    return match.format.read(artifact)
