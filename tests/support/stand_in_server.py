"""Let a Python that stands in for another one answer several questions, as `parent_watchdog` does.

Each question is answered by a process of its own: the stand-in itself, started as usual.
"""

import os
import subprocess
import sys
from pathlib import Path


def serve() -> None:
    """Answer all questions and end, if this was started as a server; else return."""
    if sys.argv[-2:-1] != ["serve"]:
        return
    for line in sys.stdin:
        folder = line.removesuffix("\n")
        with Path(folder, "log.txt").open("ab") as log:
            command = [sys.argv[0], sys.argv[1], sys.argv[-1], folder]
            code = subprocess.run(
                command, stdout=log, stderr=log, cwd=folder, check=False
            ).returncode
        if code < 0:
            os.kill(os.getpid(), -code)
        if code:
            sys.exit(code)
        Path(folder, "done").touch()
    sys.exit()
