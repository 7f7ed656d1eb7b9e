"""Tasks for children that are no conversions: each does what its job's source says.

A server gets the name of `task`; nothing of the kind can be reached from the command line.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from converter.executors import process_monitor
from converter.executors.worker import _folder, work
from converter.jobs.job import Job, Outcome, new_record

HANG = 600.0


class UnpicklableError(Exception):
    def __init__(self, one, two):
        super().__init__(lambda: one)
        self.two = two


def task(job: Job, scratch: Path) -> Outcome:
    """Do what the source says: a word, and what follows it."""
    word, _, rest = job.source.partition(" ")
    with _folder(scratch) as folder:
        found = globals()[f"_{word}"](rest, folder)
    about = {"found": found}
    record = replace(new_record(job), status="done", exit_code=0, published=about)
    return Outcome(job.source, job.name, "done", 0, record)


def watched_work(job: Job, scratch: Path) -> Outcome:
    """Convert, and tell what that imported."""
    before = set(sys.modules)
    outcome = work(job, scratch)
    new = sorted(set(sys.modules) - before)
    server = Path(f"/proc/{os.getppid()}/task")
    planted = {
        "imported": [name for name in new if name.partition(".")[0] in ("converter", "formats")],
        "foreign": sorted(
            {"torch", "keras", "tensorflow", "jax", "onnxruntime"} & set(sys.modules)
        ),
        "server_threads": len(list(server.iterdir())),
    }
    record = replace(outcome.record, published={**outcome.record.published, **planted})
    return Outcome(outcome.source, outcome.name, outcome.status, outcome.exit_code, record)


def _fine(rest, folder):
    (folder / "left").write_text("something")
    return rest


def _state(rest, folder):
    """What another job may have changed."""
    mask = os.umask(0)
    return {
        "cwd": str(Path.cwd()), "umask": mask, "planted": os.environ.get("PLANTED"),
        "vandal": getattr(sys, "vandal", None), "threads": process_monitor.threads(),
        "fds": sorted(int(p.name) for p in Path("/proc/self/fd").iterdir()),
        "blas": os.environ.get("OPENBLAS_NUM_THREADS"),
        "stdin": os.read(0, 1).decode(), "session": os.getsid(0) != os.getsid(os.getppid()),
        "first": not hasattr(sys, "been_here"), "children": _children(),
    }  # fmt: skip


def _pid(rest, folder):
    sys.modules["planted_here"] = sys  # a module more is no change that counts
    return os.getpid()


def _chatter(rest, folder):
    os.write(2, b"chatter\n" * 50)
    return os.getpid()


def _open_file(rest, folder):
    os.open(os.devnull, os.O_RDONLY)
    return os.getpid()


def _long(rest, folder):
    time.sleep(float(rest))
    return os.getpid()


def _crash_behind_others(rest, folder):
    if "planted_here" in sys.modules:
        ctypes.string_at(0)


def _variable(rest, folder):
    return os.environ.get(rest)


def _vandal(rest, folder):
    os.chdir("/")
    os.umask(0o777)
    os.environ["PLANTED"] = "yes"
    sys.vandal = "yes"
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.modules["json"] = None
    os.kill(0, signal.SIGCONT)  # its own group, not the server's


def _group(rest, folder):
    os.killpg(0, signal.SIGKILL)


def _segv(rest, folder):
    print("the last thing it said", file=sys.stderr, flush=True)
    ctypes.string_at(0)


def _abort(rest, folder):
    os.abort()


def _kill(rest, folder):
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_once(rest, folder):
    """Be killed the first time, as by a person."""
    try:
        Path(rest).touch(exist_ok=False)
    except FileExistsError:
        return "again"
    return os.kill(os.getpid(), signal.SIGKILL)


def _kill_server(rest, folder):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(HANG)


def _exit(rest, folder):
    os._exit(int(rest))


def _sys_exit(rest, folder):
    sys.exit(int(rest))


def _hang(rest, folder):
    (folder / "big").write_bytes(b"x" * 1000)
    if rest:
        Path(rest).write_text(str(os.getpid()))
    time.sleep(HANG)


def _hang_once(rest, folder):
    """Hang the first time, and tell the pid."""
    if Path(rest).exists():
        return "again"
    Path(rest).write_text(str(os.getpid()))
    return time.sleep(HANG)


def _deaf(rest, folder):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def _stopped(rest, folder):
    os.kill(os.getpid(), signal.SIGSTOP)


def _family(rest, folder):
    """Hang with a child and a grandchild, each in a session of its own; tell their pids."""
    code = (
        "import os,subprocess,sys,time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True)\n"
        "open(sys.argv[1], 'w').write(f'{os.getpid()} {p.pid}')\n"
        "time.sleep(600)\n"
    )
    path, _, then = rest.partition(" ")
    subprocess.Popen([sys.executable, "-c", code, path], start_new_session=True)
    while not (Path(path).exists() and len(Path(path).read_text().split()) == 2):
        time.sleep(0.01)
    if then == "hang":
        time.sleep(HANG)
    if then == "crash":
        os.abort()
    return then


def _memory_error(rest, folder):
    raise MemoryError("planted")


def _unpicklable(rest, folder):
    raise UnpicklableError(1, 2)


def _unsayable(rest, folder):
    return object()


def _raises(rest, folder):
    raise ValueError(rest)


def _eat_at_once(rest, folder):
    return len(bytearray(int(rest)))


def _eat(rest, folder):
    """Grow, in small pieces that are touched."""
    kept = []
    for _ in range(int(rest) >> 20):
        kept.append(b"x" * (1 << 20))
        time.sleep(0.001)
    time.sleep(HANG)


def _child_eats(rest, folder):
    work = f"x = b'x' * {rest}"
    code = f"import parent_watchdog, time\nparent_watchdog.take_all()\n{work}\ntime.sleep(600)"
    where = Path(process_monitor.__file__).parents[1] / "child"
    subprocess.run([sys.executable, "-c", code], cwd=where)


def _flood(rest, folder):
    for stream in (sys.stdout, sys.stderr):
        for n in range(2000):
            stream.write(f"{n} " + "blah " * 100 + "\n")
    return "flooded"


def _flood_and_die(rest, folder):
    _flood(rest, folder)
    os.write(1, b"the end is near\n")
    os._exit(4)


def _close_all(rest, folder):
    os.closerange(0, 4096)


def _close_all_and_hang(rest, folder):
    os.closerange(0, 4096)
    time.sleep(HANG)


def _large(rest, folder):
    return "x" * int(rest)


def _sleep(rest, folder):
    time.sleep(float(rest))
    return rest


def _staging(rest, folder):
    """Hang as a conversion does that has begun to write."""
    from converter.filesystem.atomic_output import staging

    with staging(Path(rest)) as place:
        (place / "half").write_text("written")
        Path(f"{rest}.begun").touch()
        time.sleep(HANG)


def _children():
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True
