"""Describe a framework's exception in one line, for a child's answer.

Children load this file by its path, so it imports nothing of the project.
"""

import re

LONGEST = 400  # characters
ESCAPES = re.compile("\x1b\\[[0-9;]*m")  # colours
KERAS_3 = "Exception encountered when calling "
TRACEBACKS = ("Graph execution error:", "most recent call last")
AFTER_THE_CAUSE = ("[[{{", "[[node", "Function call stack:", "Arguments received by ")


def describe_error(error: BaseException) -> str:
    """Return an exception's class and cause, without the traceback that its message may have."""
    return f"{type(error).__name__}: {_find_cause(str(error))}".strip(": ")


def _find_cause(message: str) -> str:
    """Return the sentence that names the cause.

    TensorFlow and TorchScript put it below a traceback, Keras 3 between the layer's name and the
    arguments that it received.
    """
    text = ESCAPES.sub("", "".join(c if c.isprintable() or c in "\n\x1b" else " " for c in message))
    for mark in AFTER_THE_CAUSE:
        before = text.split(mark)[0]
        text = before if before.strip() else text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any(mark in text for mark in TRACEBACKS):
        lines = lines[-1:]
    elif text.startswith(KERAS_3) and len(lines) > 1:
        lines = lines[1:]
    return " ".join(" ".join(lines).split())[:LONGEST]
