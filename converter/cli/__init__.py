"""The command line: what a person types and sees. The only code of the project that prints."""

import gc
import os
import sys

COMMANDS = frozenset({"batch", "inspect", "verify", "diff", "doctor", "formats", "ops"})
GLOBAL = frozenset({"--help", "-h", "--version", "--install-completion", "--show-completion"})
DEFAULT = "SOURCE"  # stands for the main job in --help, and is put in front of its arguments


def main() -> None:
    """Run the ``convert`` program and leave with its exit code."""
    gc.disable()  # one command makes few cycles, and the searches for them take a fifth of its time
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts them, and we multiply nothing
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # `>&-`: else the next file that is opened stands in for it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    arguments = sys.argv[1:]
    if arguments and arguments[0] not in COMMANDS | GLOBAL:
        arguments.insert(0, DEFAULT)
    try:
        from converter.cli.app import run

        code = run(arguments or ["--help"])
        sys.stdout.flush()
    except KeyboardInterrupt:  # while still importing
        code = 130
    except BrokenPipeError:  # `convert inspect … | head`
        code = 0
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    gc.freeze()  # or Python's own end searches once more
    sys.exit(code)
