"""Run a script as a child that ends when its parent does.

``python parent_watchdog.py SCRIPT [ARGUMENT]...``, with a pipe as standard input that the parent
holds open and never writes to. When the parent ends, for whatever reason, the system closes the
pipe, and the child ends with all its descendants. This script imports nothing of the project, so
that any Python can run it.

``python parent_watchdog.py serve SCRIPT`` calls the script's ``main`` with each folder whose path
the parent writes to the pipe, a line each, and writes the file ``done`` there afterwards. What the
script imports is imported once.
"""

import os
import queue
import runpy
import signal
import sys
import threading
from pathlib import Path

SERVE = "serve"  # before a script that answers several questions
DONE = "done"  # file that follows an answer
LOG = "log.txt"


def watch(pipe: int, folders: "queue.Queue[str]") -> None:
    """End this process and its group as soon as the other end of the pipe is closed."""
    with os.fdopen(pipe, "r", encoding="utf-8") as lines:
        for line in lines:
            folders.put(line.removesuffix("\n"))
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
    folders: queue.Queue[str] = queue.Queue()
    threading.Thread(target=watch, args=(pipe, folders), daemon=True).start()
    # Remove this file's folder from the path: its modules may shadow others of the same name.
    del sys.argv[0], sys.path[0]
    if sys.argv[0] == SERVE:
        serve(sys.argv[1], folders)
    runpy.run_path(sys.argv[0], run_name="__main__")


def serve(script: str, folders: "queue.Queue[str]") -> None:
    """Answer the questions in folders, until the parent ends or closes the pipe."""
    answer = runpy.run_path(script, run_name="served")["main"]
    while True:
        folder = Path(folders.get())
        os.chdir(folder)
        os.environ["TMPDIR"] = str(folder)
        log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        answer(folder)
        (folder / DONE).touch()


if __name__ == "__main__":
    main()
