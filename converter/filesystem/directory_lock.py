"""Folders locked while their owner lives; abandoned ones are detected and removed.

A lock goes with the process that holds it, however that ends, so it needs no clock and no number
of a process that may be another one's by now. Only who holds a folder's lock may remove it.
"""

import fcntl
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make(places: Iterable[Path]) -> tuple[Path, int]:
    """Make and lock the first folder of several that no living process has.

    What a dead one left there is removed before.

    Args:
        places: Where it may be; they must not run out.

    Returns:
        The folder, and the descriptor that holds its lock: remove the folder before closing it.

    Raises:
        OSError: It cannot be made.
    """
    for folder in places:
        if not remove_abandoned(folder):
            continue
        try:
            folder.mkdir()
        except FileExistsError:  # another process was faster
            continue
        try:
            lock = os.open(folder, FLAGS)
        except FileNotFoundError:  # another process took it for abandoned
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass  # it is being removed
        except OSError:  # a file system without locks: the folder just outlives a kill
            return folder, lock
        else:
            if _is_at(lock, folder):
                return folder, lock
        os.close(lock)
    raise FileExistsError("no place is free")


def remove_abandoned(folder: Path) -> bool:
    """Remove a folder that nobody holds; return whether nothing is there any more."""
    try:
        lock = os.open(folder, FLAGS)
    except FileNotFoundError:
        return True
    except OSError:  # a file, a link, or somebody else's: not ours to remove
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(lock, folder):
            shutil.rmtree(folder, ignore_errors=True)
        return not os.path.lexists(folder)
    except OSError:  # its owner lives, or the file system cannot tell
        return False
    finally:
        os.close(lock)


def _is_at(lock: int, folder: Path) -> bool:
    """Return whether the folder of that name is still the one that is locked."""
    try:
        return os.path.samestat(os.fstat(lock), os.lstat(folder))
    except FileNotFoundError:
        return False
