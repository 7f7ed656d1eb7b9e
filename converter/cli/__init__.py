"""The command line interface: the only code of the project that prints."""

import gc
import os
import sys

COMMANDS = frozenset({"batch", "inspect", "verify", "diff", "doctor", "formats", "ops"})
GLOBAL = frozenset({"--help", "-h", "--version", "--install-completion", "--show-completion"})
DEFAULT = "SOURCE"  # name of the default command in --help, inserted before its arguments


def main() -> None:
    """Run the ``convert`` program and exit with its exit code."""
    gc.disable()  # one command makes few cycles, and collection takes a fifth of its time
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no products here need numpy's threads
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # `>&-`: otherwise the next opened file takes its descriptor
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
    gc.freeze()  # otherwise Python collects once more at exit
    sys.exit(code)
