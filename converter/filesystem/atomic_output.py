"""Write outputs atomically: build them in a staging folder, then rename them into place.

The staging folder is in the target's parent folder (a rename must not cross file systems), contains
the target's name and is locked while its owner lives, so that the next run can detect and remove
an abandoned one.
"""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from converter.filesystem import directory_lock
from formats.errors import StorageError, UsageError

MARK = ".convert-"
PLACES = 8  # staging folders of one target that have predictable names
# Files of a bundle that has lost its manifest.
_BUNDLED = re.compile(r"model[\w.-]*\.(?:safetensors|onnx|index\.json)|assets")
# Graphs of a model, with its configuration and tokenizer.
_MODELS = {"model.onnx", "encoder_model.onnx"}
_PRETRAINED = re.compile(r"\w*model\.onnx(?:\.data)?|[\w.-]+\.(?:json|txt|model|yaml|jinja|md)")
LONGEST_NAME = 235  # bytes of a target's name, which leave room for our prefix and suffix


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """Yield an empty folder next to ``target``; it is removed when the block ends or raises.

    Missing parents of the target are made, and removed again if nothing is in them at the end.

    Raises:
        StorageError: The folder of the target cannot be made or written.
    """
    missing = [p for p in target.parents if not os.path.lexists(p)]
    sweep(target)
    folder, lock = target, None
    try:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            folder, lock = directory_lock.make(_places(target))
        except OSError as e:
            raise StorageError.writing(target.parent, e) from e
        yield folder
    finally:
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
        else:  # an interrupt may come when the folder is made and not locked yet
            sweep(target)
        with suppress(OSError):  # it is not empty
            for parent in missing:
                parent.rmdir()


def sweep(target: Path) -> bool:
    """Remove abandoned staging folders of a target; return whether none is left."""
    left = [p for p in islice(_places(target), PLACES) if not directory_lock.remove_abandoned(p)]
    return not left


def _places(target: Path) -> Iterator[Path]:
    """Yield the possible paths of a target's staging folders, without listing the parent folder.

    A destination may hold many thousands of outputs, and each of them would list it.
    """
    name = target.name
    if len(os.fsencode(name)) > LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    for n in range(PLACES):
        yield target.with_name(f".{name}{MARK}{n}")
    while True:  # more at once: nobody finds these folders again if their owners are killed
        yield target.with_name(f".{name}{MARK}{os.urandom(4).hex()}")


def check_target(target: Path, *, force: bool) -> None:
    """Raise unless ``target`` is free, or is an output that ``force`` may replace.

    Raises:
        UsageError: It exists and ``force`` is false, or it is a folder that is not one of our
            outputs.
        StorageError: The output would be in something that is not a folder.
    """
    parent = next(p for p in target.absolute().parents if os.path.lexists(p))
    if not parent.is_dir():
        raise StorageError("is not a folder", where=parent)
    if not os.path.lexists(target):
        return
    if not force:
        raise UsageError(
            "already exists",
            where=target,
            hint="Choose another out=, or replace it: overwrite=True",
        )
    if target.is_dir() and not target.is_symlink() and not _is_output(target):
        raise UsageError(
            "is a folder that convert did not write, and will not replace", where=target
        )


def publish(payload: Path, target: Path, *, force: bool, sync: bool = True) -> None:
    """Rename ``payload``, which is in a staging folder, to ``target``.

    Args:
        payload: The finished output.
        target: Its final path.
        force: Whether an existing output may be replaced.
        sync: Whether to sync folder entries to disk; useless if the files are not synced.

    Raises:
        UsageError: Something appeared at ``target`` meanwhile, and ``force`` is false.
        StorageError: The rename failed; the old output is unchanged.
    """
    check_target(target, force=force)
    aside = payload.with_name(payload.name + ".old")
    try:
        if sync:
            _sync(payload.parent)
        is_folder = target.is_dir() and not target.is_symlink()
        if is_folder or (payload.is_dir() and os.path.lexists(target)):
            target.rename(aside)  # a folder can only be renamed over an empty one
            try:
                payload.rename(target)
            except OSError:
                aside.rename(target)
                raise
        elif force or payload.is_dir():
            payload.replace(target)
        else:
            os.link(payload, target)  # unlike rename, never replaces
        if sync:
            _sync(target.parent)
    except FileExistsError as e:
        raise UsageError("appeared meanwhile", where=target) from e
    except OSError as e:
        raise StorageError.writing(target, e) from e


def sync_tree(folder: Path) -> None:
    """Sync the folders of a tree to disk; their files were synced when written."""
    for path, _, _ in os.walk(folder):
        _sync(Path(path))


def _is_output(folder: Path) -> bool:
    names = {p.name for p in folder.iterdir()}
    return bool(
        not names
        or "manifest.json" in names
        or {"convert.json", "saved_model.pb"} <= names
        or any(n.endswith(".safetensors.index.json") for n in names)
        or names == {"config.pbtxt", "1"}  # of Triton
        or ("model.onnx" in names and all(n.startswith("model.") for n in names))
        or (names & _MODELS and "config.json" in names and all(map(_PRETRAINED.fullmatch, names)))
        or (folder.suffix == ".portable" and all(_BUNDLED.fullmatch(n) for n in names))
    )


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as e:
        if e.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot sync folders
            raise
    finally:
        os.close(fd)
