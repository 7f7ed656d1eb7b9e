"""Reuse a bundle whose source was renamed or moved: only its recorded source changes.

It is taken over only where it is exactly what a conversion would make: its manifest tells that it
was made of these very bytes, all its files are there, and the source's old name, where that has
changed, is only in the one place where it is corrected.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from converter.filesystem.atomic_output import check_target, publish, staging
from formats import portable
from formats.artifact import Artifact
from formats.errors import ConvertError, StorageError

LARGEST_GRAPH = 64 << 20  # bytes of a graph that are looked through for a name
GRAPH = ".onnx"


def rename_bundle(old: Path, target: Path, source: str, digest: str, *, force: bool) -> bool:
    """Rename a bundle; return False, with nothing changed, where that is impossible.

    Args:
        old: The bundle.
        target: Where it belongs; the same where only its source has moved.
        source: What its source is called now.
        digest: Of the source.
        force: Whether an output that is in its way may be replaced.

    Raises:
        StorageError: The manifest cannot be written.
    """
    try:
        manifest = _manifest_of(old, digest)
        is_changed = manifest["source"]["name"] != source
        if is_changed and not _rename(manifest, old, source):
            return False
        check_target(target, force=force or old == target)
    except (ConvertError, OSError, KeyError, TypeError, ValueError, AttributeError):
        return False
    if old == target and not is_changed:
        return True
    with staging(target) as place:
        portable.write_manifest(manifest, place)
        payload = place / "payload"
        try:
            before = (old / portable.MANIFEST).stat()
            old.rename(payload)
        except OSError:  # another job was faster, or it lies on another disk
            return False
        try:
            after = (payload / portable.MANIFEST).stat()
            if os.path.samestat(before, after):  # else another driver has just made it anew
                (place / portable.MANIFEST).replace(payload / portable.MANIFEST)
                publish(payload, target, force=force, sync=False)
                return True
        except (ConvertError, OSError):
            pass
        finally:
            with suppress(OSError):  # it is there only where that went wrong
                payload.rename(old)
    return False


def _manifest_of(bundle: Path, digest: str) -> dict[str, Any]:
    """Return the manifest of a complete bundle of a source.

    Raises:
        ConvertError: It is damaged, or of another source.
        OSError: It is not there.
    """
    artifact = Artifact(bundle)
    manifest = portable.read_manifest(artifact)
    if manifest["source"]["digest"]["value"] != digest:
        raise StorageError("is of another source", where=bundle)
    for resource in manifest["resources"]:
        if (bundle / resource["name"]).stat().st_size != resource["size"]:
            raise StorageError("is damaged", where=bundle / resource["name"])
    return manifest


def _rename(manifest: dict[str, Any], bundle: Path, source: str) -> bool:
    """Replace the source's name in a manifest; return whether it occurs nowhere else."""
    before = manifest["source"]["name"]
    manifest["source"]["name"] = source
    word = re.compile(rf"(?<!\w){re.escape(before)}(?!\w)")
    if any(word.search(text) for text in _texts(manifest, source)):
        return False
    graphs = [bundle / r["name"] for r in manifest["resources"] if r["name"].endswith(GRAPH)]
    return bool(before) and all(
        path.stat().st_size <= LARGEST_GRAPH and before.encode() not in path.read_bytes()
        for path in graphs
    )


def _texts(value: Any, source: str) -> Iterator[str]:
    """Yield all strings of a manifest except the source's new name."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from _texts(one, source)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one, source)
    elif isinstance(value, str) and value != source:
        yield value
