"""Run a script as a child that ends when its parent does.

``python parent_watchdog.py SCRIPT [ARGUMENT]...``, with a pipe as standard input that the parent
holds open and never writes to. When the parent ends, for whatever reason, the system closes the
pipe, and the child ends with all its descendants. This script imports nothing of the project, so
that any Python can run it.
"""

import os
import runpy
import signal
import sys
import threading


def watch(pipe: int) -> None:
    """End this process and its group as soon as the other end of the pipe is closed."""
    while os.read(pipe, 1):
        pass
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def take_all() -> None:
    """Remove the data limit that a parent may have set: frameworks reserve memory they never use.

    The parent monitors the memory that they do use.
    """
    if sys.platform != "win32":
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def main() -> None:
    """Move the pipe away from standard input, and run the script."""
    take_all()
    pipe = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=watch, args=(pipe,), daemon=True).start()
    # Remove this file's folder from the path: its modules may shadow others of the same name.
    del sys.argv[0], sys.path[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
