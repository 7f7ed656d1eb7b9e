"""Describe how a child process ended: signal, stack frame, last output."""

import os
import re
import signal
from pathlib import Path

from converter.byte_sizes import readable_size
from converter.executors.protocol import End
from formats.errors import DependencyError

ROOT = Path(__file__).parents[2]
FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$')
DUMP = re.compile(r"^(Fatal Python error: .+|(Current thread|Thread|Stack) .*most recent call .*)$")
# Modules that only wait for other processes: the frames of their callers say more.
WAITING = ("converter/executors", "converter/child/process.py", "converter/write/background.py")
MAX_CHARACTERS = 300


def of_status(status: int, words: bytes, *, oom: bool) -> tuple[End, str]:
    """Return how a child ended that gave no answer and was not stopped by us.

    Args:
        status: Status from ``waitpid``.
        words: The end of its output, with the trace that `faulthandler` wrote there.
        oom: Whether the kernel's OOM killer ran meanwhile.
    """
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in _SIGNALS else f"signal {number}"
        if number == signal.SIGKILL:
            return _killed(words, oom=oom)
        return "crashed", str(DependencyError(f"died of {name}{_describe_output(words)}"))
    code = os.waitstatus_to_exitcode(status)
    return "crashed", str(
        DependencyError(f"ended with code {code} and no answer{_describe_output(words)}")
    )


def of_timeout(seconds: float, words: bytes) -> str:
    """Return the message for a child that exceeded its time limit."""
    return str(
        DependencyError(
            f"took longer than {seconds:g} s and was stopped{_describe_output(words)}",
            hint="needs.seconds= gives it longer",
        )
    )


def of_memory(used: int, limit: int, words: bytes) -> str:
    """Return the message for a child that exceeded its memory limit."""
    return str(
        DependencyError(
            f"took {readable_size(used)} of memory and was stopped{_describe_output(words)}",
            expected=f"at most {readable_size(limit)}",
            hint="needs.memory_bytes= gives it more",
        )
    )


def _killed(words: bytes, *, oom: bool) -> tuple[End, str]:
    if oom:
        hint = "needs.memory_bytes= stops it in time, jobs=1 leaves it more"
        found = f"was killed (SIGKILL): the machine ran out of memory{_describe_output(words)}"
        return "oom", str(DependencyError(found, hint=hint))
    hint = "Perhaps it was out of memory"
    return "killed", str(
        DependencyError(f"was killed (SIGKILL){_describe_output(words)}", hint=hint)
    )


def _describe_output(words: bytes) -> str:
    """Return the child's position and its last line of output, as the end of a clause."""
    lines = words.decode("utf-8", "replace").splitlines()
    start = next((i for i, line in enumerate(lines) if DUMP.match(line)), len(lines))
    text = _place(lines[start:])
    said = [line.strip() for line in lines[:start] if line.strip()]
    if said:
        text += f"; its last words: {said[-1][:MAX_CHARACTERS]}"
    return text


def _place(trace: list[str]) -> str:
    """Return the innermost of our functions in a trace; without one, the innermost function."""
    frames = [m.groups() for line in trace if (m := FRAME.match(line))]
    ours = [
        (path.relative_to(ROOT).as_posix(), line, name)
        for file, line, name in frames
        if (path := Path(file)).is_relative_to(ROOT / "converter")
        or path.is_relative_to(ROOT / "formats")
    ]
    telling = [frame for frame in ours if not frame[0].startswith(WAITING)]
    for file, line, name in telling[:1] or frames[:1]:
        return f", in {name} ({file}:{line})"
    return ""


_SIGNALS = frozenset(int(s) for s in signal.Signals)
