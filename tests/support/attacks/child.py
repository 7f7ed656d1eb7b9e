"""The child that meets hostile artifacts: it does with each what a user does, and says how it went.

A line of JSON comes in for each artifact; a line goes out for each operation, so that the parent
knows which one hangs. SIGUSR1 makes it write its stack to standard error.
"""

import faulthandler
import gc
import io
import json
import os
import pickle
import resource
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

from converter import convert
from converter.cli import render
from converter.inspection import Inspection, inspect
from formats.errors import ConvertError


def end_with(parent: int) -> None:
    """End this process soon after its parent."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main(limit_bytes: int) -> None:
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    gc.disable()  # as the command line does
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        request = json.loads(line)
        source, out = Path(request["source"]), Path(request["out"])
        for name in request["operations"]:
            answer = attempt(name, source, out.with_name(f"{out.name}.{name}"))
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
            gc.collect()


def attempt(name: str, source: Path, out: Path) -> dict[str, object]:
    """Do one thing with an artifact, and tell its outcome, cost and memory."""
    forget_peak()
    clock, cpu = time.monotonic(), time.process_time()
    kind, code, text = "ok", 0, ""
    try:
        if name == "inspect":
            show(inspect(source))
        else:
            convert(source, to=name, out=out)
    except ConvertError as e:
        kind, code, text = "refused", e.exit_code, f"{type(e).__name__}: {e}"
        pickle.loads(pickle.dumps(e))
        text.encode("utf-8", "backslashreplace")
        if code == 70:
            kind, text = "failed", traceback.format_exc()
    except BaseException as e:  # noqa: BLE001 - the very thing that is looked for
        kind, code, text = "failed", 70, traceback.format_exc()[-4000:]
        if isinstance(e, MemoryError):
            text = "MemoryError\n" + text
    return {
        "operation": name,
        "kind": kind,
        "code": code,
        "text": text.encode("utf-8", "backslashreplace").decode()[-4000:],
        "seconds": time.monotonic() - clock,
        "cpu": time.process_time() - cpu,
        "peak": peak(),
    }


def show(found: Inspection) -> None:
    """Print as both kinds of ``convert inspect`` do, to a terminal that takes UTF-8 only."""
    for as_json in (False, True):
        kept, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO(), "utf-8")
        try:
            render.inspection(found, as_json=as_json, every=True)
            sys.stdout.flush()
        finally:
            sys.stdout = kept


def forget_peak() -> None:
    with suppress(OSError):  # where it cannot be done, the peak is that of all artifacts so far
        Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Return the most memory that was resident since `forget_peak`, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main(int(sys.argv[1]))
