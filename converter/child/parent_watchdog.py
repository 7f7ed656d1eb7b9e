"""Run a script as a child that ends when its parent does.

``python parent_watchdog.py SCRIPT [ARGUMENT]...``, with a pipe as standard input that the parent
holds open and never writes to. Where the parent is gone, however it died, the system closes the
pipe, and the child ends with all it has started. Plain, and nothing of the project: any Python runs
it.
"""

import os
import runpy
import signal
import sys
import threading


def watch(pipe: int) -> None:
    """End this process and its group as soon as nobody holds the other end of the pipe."""
    while os.read(pipe, 1):
        pass
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def take_all() -> None:
    """Take off the limit that a parent may have set itself: frameworks reserve what they never use.

    What they do use is watched from outside.
    """
    if sys.platform != "win32":
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def main() -> None:
    """Put the pipe where the script does not find it, and run the script."""
    take_all()
    pipe = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=watch, args=(pipe,), daemon=True).start()
    # This file's folder is no place to import from: its modules may be called like others'.
    del sys.argv[0], sys.path[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
