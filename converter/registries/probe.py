"""Probe one local artifact: its format by content, its size, and a token of its state."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from converter.registries import mlmodel
from converter.registries.entry import Entry, Found, Skipped
from converter.registries.grouping.division import MLFLOW, Group
from converter.registries.model_filenames import claims, explain_refusal, is_plain_pickle
from formats import catalog
from formats.artifact import Artifact
from formats.errors import ConvertError, UnknownFormatError, UnsupportedError
from formats.other_libraries import MODELS


def probe_file(
    path: str, name: str, *, note: str = "", known: tuple[str, str] | None = None
) -> Found:
    """Look at one file.

    Args:
        path: Of the file.
        name: In the registry.
        note: What else is to be known of it.
        known: Token and reason of the file when it was found to be no artifact; None if it was not.
    """
    try:
        token, nbytes = state([path], "")
        if known is not None and known[0] == token:
            return Skipped(path, known[1], token=token)
        artifact = Artifact(path)
    except (ConvertError, OSError) as e:
        return _unreadable(path, name, e)
    try:
        match = catalog.detect(artifact)
        if match.format.id == "torch" and is_plain_pickle(artifact, match.evidence):
            return Skipped(path, "a pickle without tensors", token=token)
        return Entry(path, name, nbytes, token, match.format.id, match.evidence, note=note)
    except UnknownFormatError as e:
        if (found := e.found.partition(": ")[2]) in MODELS:
            return Skipped(path, f"{found}. {e.hint}", name)
        reason = explain_refusal(artifact)
        if reason is not None:
            return Skipped(path, reason, token=token)
        return Entry(path, name, nbytes, token, "", str(e))
    except ConvertError as e:
        return _unreadable(path, name, e)
    except Exception as e:  # noqa: BLE001 - a bug that one file meets costs that file
        return Entry(path, name, nbytes, token, "", f"{type(e).__name__}: {e}")
    finally:
        artifact.close()


def probe_group(path: str, name: str, group: Group) -> "Found | None":
    """Look at an artifact of several files.

    Args:
        path: Of the folder.
        name: Of the artifact in the registry.
        group: What belongs to it.

    Returns:
        None if it is no artifact, so that its files are looked at one by one.
    """
    token, nbytes = state(files_of(path, group), path)
    if group.kind == MLFLOW:
        return _look_at_mlflow(path, name, nbytes, token)
    said = ""
    for opener in group.paths:
        source = f"{path}/{opener}" if opener else path
        match = detect(source)
        if isinstance(match, catalog.Match) and group.kind in ("", match.format.id):
            evidence, checkpoint = match.evidence, ""
            if group.checkpoint:
                evidence += f", with checkpoint {group.checkpoint}"
                checkpoint = f"{path}/{group.checkpoint}"
            return Entry(source, name, nbytes, token, match.format.id, evidence, checkpoint)
        said = match if isinstance(match, str) else said
    if not group.is_certain:
        return None
    last = group.paths[-1]
    return Entry(f"{path}/{last}" if last else path, name, nbytes, token, "", said)


def detect(path: str) -> catalog.Match | str:
    """Return an artifact's format, or why it has none that we know."""
    try:
        artifact = Artifact(path)
        try:
            return catalog.detect(artifact)
        finally:
            artifact.close()
    except ConvertError as e:
        return str(e)
    except Exception as e:  # noqa: BLE001 - as above
        return f"{type(e).__name__}: {e}"


def state(files: Iterable[str], base: str) -> tuple[str, int]:
    """Return a token that changes with any of these files, and their total size.

    Times alone would miss a file that was moved into place with its old ones, so the inode and the
    time of its last change of any kind count, too.

    Args:
        files: Their paths.
        base: The folder that their names are taken relative to; "" for a single one.
    """
    total, facts = 0, []
    for file in files:
        try:
            found = os.stat(file)  # noqa: PTH116 - half the time, for each file of a registry
        except OSError:
            facts.append(f"{file[len(base) :]}\0-")
            continue
        total += found.st_size
        numbers = (found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns)
        facts.append(f"{file[len(base) :]}\0" if base else "")
        facts[-1] += "-".join(f"{n:x}" for n in numbers)
    if not base and len(facts) == 1:
        return facts[0], total
    text = "\n".join(sorted(facts)).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16).hexdigest(), total


def files_of(path: str, group: Group) -> Iterator[str]:
    """Yield the paths of all files that belong to a group of a folder."""
    for name in group.files:
        yield f"{path}/{name}"
    for name in group.folders:
        for folder, _, names in os.walk(f"{path}/{name}"):
            for inside in names:
                yield f"{folder}/{inside}"


def _look_at_mlflow(path: str, name: str, nbytes: int, token: str) -> Found:
    folder = Path(path)
    try:
        document = mlmodel.read(folder)
        place = mlmodel.payload(document, lambda p: (folder / p).exists(), path)
    except UnsupportedError as e:
        return Skipped(path, e.found.removeprefix("not supported: "))
    except ConvertError as e:
        return Entry(path, name, nbytes, token, "", str(e))
    match = detect(f"{path}/{place.path}")
    if isinstance(match, str):
        return Entry(path, name, nbytes, token, "", match)
    evidence = f"{mlmodel.FILE} says {place.flavor}; {place.path}: {match.evidence}"
    return Entry(path, name, nbytes, token, match.format.id, evidence)


def _unreadable(path: str, name: str, error: ConvertError | OSError) -> Found:
    """Return the entry of an unreadable file: an artifact if its name is a model's."""
    said = f"cannot be opened: {error.strerror}" if isinstance(error, OSError) else str(error)
    return (
        Entry(path, name, None, "", "", said) if claims(name) else Skipped(path, "cannot be read")
    )
