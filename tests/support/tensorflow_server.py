"""One TensorFlow, or torch, that answers the questions of many tests: starting it takes seconds.

    python tensorflow_server.py SOCKET tensorflow|torch|exporter    with a Python that has it

Each connection sends a line, the folder of a question, and gets a text back: nothing, or what went
wrong. A fork answers, so that what a graph does to its framework ends with it. `stand_in` makes an
executable that asks, for CONVERT_TENSORFLOW_PYTHON or CONVERT_TORCH_PYTHON to name.
"""

import importlib
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path

from repository import ROOT

CONVERTER = ROOT / "converter"
SCRIPTS = {
    "tensorflow": CONVERTER / "verification" / "children" / "run_tensorflow.py",
    "torch": CONVERTER / "verification" / "children" / "run_torch.py",
    "exporter": CONVERTER / "capture" / "torch_exporter.py",
}
IMPORTED = {
    "tensorflow": ("tensorflow",),
    "torch": (
        "torch",
        "torch.export",
        "torch.export.pt2_archive._package",
        "torch._export.serde.serialize",
    ),
    "exporter": ("torch", "torch.export", "torch.onnx", "onnx", "onnx.checker", "onnxscript"),
}
SECONDS = 300  # for a question
ASKS = """#!{python}
import socket, sys
sys.path[:0] = [{support!r}]
from stand_in_server import serve
serve()
assert sys.argv[-2].endswith({script!r}), sys.argv
with socket.socket(socket.AF_UNIX) as s:
    s.connect({path!r})
    s.sendall(sys.argv[-1].encode() + b"\\n")
    said = s.makefile().read()
sys.exit(said or 0)
"""


def serve(path: str, framework: str) -> None:
    """Answer until the process that started this one has ended."""
    for module in IMPORTED[framework]:  # so that questions find it imported
        importlib.import_module(module)
    runner = runpy.run_path(str(SCRIPTS[framework]))
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        s.listen()
        s.settimeout(1)
        parent = os.getppid()
        while os.getppid() == parent:
            try:
                connection, _ = s.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(None)
                folder = connection.makefile().readline().rstrip("\n")
                said = answer(runner["main"], Path(folder))
                with suppress(OSError):  # nobody waits any more
                    connection.sendall(said.encode())


def answer(main, folder: Path) -> str:
    """Run a question in a fork, and return what went wrong."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.alarm(SECONDS)
            main(folder)
        except BaseException:  # noqa: BLE001 - it is reported
            os.write(write, traceback.format_exc()[-4000:].encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return said or (f"died of signal {-status}" if status else "")


@contextmanager
def stand_in(python: str, folder: Path, framework: str = "tensorflow"):
    """Start the server, and yield the path of what stands in for its Python."""
    path = folder / "s"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    server = subprocess.Popen([python, __file__, str(path), framework], env=environment)
    try:
        for _ in range(600):
            if path.exists() or server.poll() is not None:
                break
            time.sleep(0.1)
        assert path.exists(), f"{framework} does not start"
        asks = folder / "python"
        script = SCRIPTS[framework].name
        support = str(Path(__file__).parent)
        asks.write_text(
            ASKS.format(python=sys.executable, path=str(path), script=script, support=support)
        )
        asks.chmod(0o755)
        yield asks
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    serve(*sys.argv[1:])
