"""A Python that has imported TensorFlow, or torch: that takes longer than most questions do.

    python warm_python.py SOCKET MODULE...    with the Python that has them

Importing TensorFlow decides which Keras is `tf.keras`, so there is a process for either.

`warm` makes an executable for CONVERT_TENSORFLOW_PYTHON to name. It runs a script as that Python
would, with its arguments, environment, folder and streams, in a fork of a process that has imported
the modules and done nothing with them. What it cannot run so (another backend of Keras, another
way to name a program) it gives to that Python itself.
"""

import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

CLIENT = """#!{client} -IS
import array, json, os, signal, socket, sys
arguments = sys.argv[1:]
plain = arguments and arguments[0].endswith(".py") and os.path.exists(arguments[0])
if not plain or os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
    os.execv({python!r}, [{python!r}, *arguments])
legacy = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
if os.path.exists(os.path.join(arguments[-1], "question.json")):  # decides that in the script
    with open(os.path.join(arguments[-1], "question.json")) as f:
        legacy = legacy or bool(json.load(f).get("legacy"))
with socket.socket(socket.AF_UNIX) as s:
    s.connect({folder!r} + ("/legacy" if legacy else "/today"))
    asked = {{"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}}
    text = json.dumps(asked).encode()
    streams = array.array("i", [0, 1, 2])
    s.sendmsg([len(text).to_bytes(8, "little")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    s.sendall(text)
    said = s.makefile("rb").read()
code = int(said or b"1")
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def serve(path: str, modules: list[str]) -> None:
    """Run scripts until the process that started this one has ended."""
    parent = os.getppid()
    del sys.path[0]  # this file's folder
    for module in modules:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks that nobody waits for
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        s.listen()
        s.settimeout(1)
        while os.getppid() == parent:
            try:
                connection, _ = s.accept()
            except TimeoutError:
                continue
            with connection:
                if not os.fork():
                    s.close()
                    connection.settimeout(None)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    with suppress(BaseException):
                        attend(connection)
                    os._exit(0)


def attend(connection: socket.socket) -> None:
    """Run what is asked for, end it when nobody waits any more, and tell how it ended."""
    head, streams, _, _ = socket.recv_fds(connection, 8, 3)
    text = connection.makefile("rb").read(int.from_bytes(head, "little"))
    child = os.fork()
    if not child:
        connection.close()
        run(json.loads(text), streams)
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(child)
    ready, _, _ = select.select([connection, ended], [], [])
    if ended not in ready:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    connection.sendall(str(code).encode())


def run(asked: dict, streams: list[int]) -> None:
    """Be a Python that runs a script; the end of this process is the script's."""
    code = 1
    try:
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        sys.argv = asked["arguments"]
        sys.path.insert(0, str(Path(sys.argv[0]).parent))
        sys.path[1:1] = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - as Python itself does
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


@contextmanager
def warm(python: str, folder: Path, *modules: str):
    """Start a process, or one for either Keras, and yield what stands in for the Python."""
    base = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    base.pop("TF_USE_LEGACY_KERAS", None)
    keras = {"today": {}, "legacy": {"TF_USE_LEGACY_KERAS": "1"}}
    if "tensorflow" not in modules:
        del keras["legacy"]
    servers = {
        name: subprocess.Popen([python, __file__, str(folder / name), *modules], env=base | more)
        for name, more in keras.items()
    }
    try:
        for name, server in servers.items():
            while not (folder / name).exists():
                assert server.poll() is None, f"{python} does not start with {modules}"
                time.sleep(0.1)
        asks = folder / "python"
        asks.write_text(CLIENT.format(client=sys.executable, python=python, folder=str(folder)))
        asks.chmod(0o755)
        yield asks
    finally:
        for server in servers.values():
            server.kill()
            server.wait()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
