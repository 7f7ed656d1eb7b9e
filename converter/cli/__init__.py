"""The command line interface: the only code of the project that prints."""

import gc
import os
import sys

COMMANDS = frozenset({
    "batch", "check", "completion", "diff", "doctor", "formats", "help", "inspect", "ls", "ops",
    "verify",
})  # fmt: skip
GLOBAL = frozenset({"--help", "-h", "--version"})


def main() -> None:
    """Run the ``convert`` program and exit with its exit code."""
    gc.disable()  # one command makes few cycles, and collection takes a fifth of its time
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no products here need numpy's threads
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # `>&-`: otherwise the next opened file takes its descriptor
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    arguments = sys.argv[1:]
    try:
        from converter.cli.app import app, run
        from converter.cli.completion import VARIABLE, complete
        from converter.cli.help_pages import DEFAULT

        if VARIABLE in os.environ:
            code = complete(app, arguments)
        else:
            if arguments and arguments[0] not in COMMANDS | GLOBAL:
                arguments.insert(0, DEFAULT)
            code = run(arguments or ["--help"])
        sys.stdout.flush()
    except KeyboardInterrupt:  # while still importing
        code = 130
    except BrokenPipeError:  # `convert inspect … | head`
        code = 0
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    gc.freeze()  # otherwise Python collects once more at exit
    sys.exit(code)
