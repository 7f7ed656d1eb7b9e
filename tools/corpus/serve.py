"""Answers for many artifacts from one process: importing a framework for each would take minutes.

Reads lines ``<oracle module> <JSON list of its arguments>`` on standard input, and prints what each
oracle prints, one line an artifact. Run with the Python of the framework's environment.
"""

import contextlib
import importlib
import io
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def main():
    answers = sys.stdout
    for line in sys.stdin:
        module, arguments = line.rstrip("\n").split(" ", 1)
        sys.argv = [module, *json.loads(arguments)]
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                importlib.import_module(module).main()
            answer = json.loads(printed.getvalue().splitlines()[-1])
        except (Exception, SystemExit) as e:  # noqa: BLE001 - its failure is an answer, too
            answer = {"error": f"{type(e).__name__}: {e}"[:300]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
