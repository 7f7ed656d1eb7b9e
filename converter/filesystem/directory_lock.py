"""Folders locked while their owner lives; abandoned ones are detected and removed.

The system releases a lock when its process ends, for whatever reason, so it needs no clock and no
pid, which may have been reused. Only the holder of a folder's lock may remove the folder.
"""

import fcntl
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make(places: Iterable[Path]) -> tuple[Path, int]:
    """Make and lock the first folder that no living process holds.

    A folder that a dead process left there is removed first.

    Args:
        places: Candidate paths; they must not run out.

    Returns:
        The folder, and the descriptor that holds its lock: remove the folder before closing it.

    Raises:
        OSError: The folder cannot be made.
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
        except FileNotFoundError:  # another process removed it as abandoned
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass  # it is being removed
        except OSError:  # a file system without locks: the folder is not removed after a kill
            return folder, lock
        except KeyboardInterrupt:
            os.close(lock)
            raise
        else:
            if _is_at(lock, folder):
                return folder, lock
        os.close(lock)
    raise FileExistsError("no place is free")


def remove_abandoned(folder: Path) -> bool:
    """Remove a folder that no process has locked; return whether the path is free now."""
    try:
        lock = os.open(folder, FLAGS)
    except FileNotFoundError:
        return True
    except OSError:  # a file, a link, or another user's folder: not ours to remove
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(lock, folder):
            shutil.rmtree(folder, ignore_errors=True)
        return not os.path.lexists(folder)
    except OSError:  # its owner lives, or the file system has no locks
        return False
    finally:
        os.close(lock)


def _is_at(lock: int, folder: Path) -> bool:
    """Return whether the path still refers to the locked folder."""
    try:
        return os.path.samestat(os.fstat(lock), os.lstat(folder))
    except FileNotFoundError:
        return False
