"""The process that joins a Ray cluster, watches its nodes and submits tasks.

``python -P -m converter.executors.ray_driver LINE PARENT``, a file descriptor and a pid. Jobs and
outcomes go over the line (see `ray_protocol`); when its other end is closed, all tasks are ended.
"""

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from converter.executors import ray_node
from converter.executors.ray_protocol import Charter
from converter.executors.ray_window import (
    StoppedError,
    Window,
    line_of,
    list_resources,
    make_unseen_error,
)
from converter.registries.catalog import scheme_of
from converter.version import VERSION
from formats.errors import ConvertError, DependencyError, InternalError, StorageError

CONNECT_SECONDS = 10.0
JOIN_SECONDS = 60.0  # if a cluster refuses, Ray may retry for ever
LOOK_SECONDS = 60.0  # for a node to start a process and run its checks
SWEEP_SECONDS = 10.0
WATCH_SECONDS = 1.0  # between checks that the driver is alive
ORPHAN_SECONDS = 30.0  # to shut down cleanly when it is not
ON_REFUSAL = "Perhaps it wants a token: set RAY_AUTH_MODE=token, and have it in ~/.ray/auth_token"


# -- joining, and checking the nodes --------------------------------------------------------------


def join(line: Connection, address: str | None) -> None:
    """Join a cluster; never start one.

    Args:
        line: Connection to the driver, which gets the error if Ray does not return.
        address: Address of the cluster, or None for the one that the environment names.

    Raises:
        DependencyError: There is no cluster, it has another version, or it refuses access.
    """
    import ray

    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    if "://" not in where and where != "auto":
        _check_answers(where)
    limit = threading.Timer(JOIN_SECONDS, _give_up, (line, where))
    limit.daemon = True
    limit.start()
    try:
        ray.init(address=where, log_to_driver=False, logging_level=logging.CRITICAL)
    except ConnectionError as e:
        hint = "Start one with ray start --head, or name it with address=HOST:PORT"
        if where != "auto":  # something answers there
            hint = ON_REFUSAL
        raise DependencyError(
            f"no Ray cluster can be joined: {line_of(e)}", where=where, hint=hint
        ) from e
    except Exception as e:  # for many reasons: versions, tokens, addresses
        raise DependencyError(f"no Ray cluster can be joined: {line_of(e)}", where=where) from e
    finally:
        limit.cancel()


def _give_up(line: Connection, where: str) -> None:
    """Report to the driver that the cluster refuses access, and exit."""
    found = f"the Ray cluster has not let us in for {JOIN_SECONDS:g} s"
    with suppress(OSError):
        line.send(DependencyError(found, where=where, hint=ON_REFUSAL))
    os._exit(1)


def _check_answers(address: str) -> None:
    """Check that the address accepts connections: Ray itself retries for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as e:
        raise DependencyError(
            f"no Ray cluster answers there: {getattr(e, 'strerror', None) or e}",
            where=address,
            hint="Start one with ray start --head --port PORT; convert starts none",
        ) from e


def look_around(charter: Charter) -> None:
    """Check that each node that may get a job has this program and sees local files.

    Raises:
        DependencyError: A node does not.
    """
    job = charter.first
    asked = list_resources(job)
    import ray

    nodes = {
        node["NodeID"]: node["NodeManagerHostname"]
        for node in ray.nodes()
        if node["Alive"] and all(node["Resources"].get(k, 0) >= v for k, v in asked.items())
    }
    with _mark_destination(job.destination) as mark:
        paths = [mark] if mark else []
        if scheme_of(job.source) == "" and os.path.lexists(job.source):
            paths.append(job.source)
        found = _on_each(nodes, LOOK_SECONDS, _look, paths)
    for host, (version, said, unseen_paths) in found:
        if version != VERSION:
            what = f"has version {version} of it" if version else f"cannot run it: {said}"
            raise DependencyError(
                f"this is model-convert {VERSION}, and the node {host} of the Ray cluster {what}",
                hint=f"Install the same model-convert {VERSION} on all nodes, with the same extras",
            )
        for path in unseen_paths:
            raise make_unseen_error(job.destination if path == mark else path, host)


def sweep_nodes() -> None:
    """Remove the files of killed tasks on all nodes."""
    import ray

    nodes = {n["NodeID"]: n["NodeManagerHostname"] for n in ray.nodes() if n["Alive"]}
    _on_each(nodes, SWEEP_SECONDS, ray_node.sweep)


def _on_each(
    nodes: Mapping[str, str], seconds: float, function: Callable[..., Any], *given: Any
) -> list[tuple[str, Any]]:
    """Call a function on each node; return the host and answer of those that answer in time."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(function)
    sent = {
        task.options(
            num_cpus=0,
            max_retries=0,
            name="convert: look around",
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote(*given): host
        for node, host in nodes.items()
    }
    if not sent:
        return []
    ready, rest = ray.wait(list(sent), num_returns=len(sent), timeout=seconds)
    answers = []
    for ref in ready:
        with suppress(ray.exceptions.RayError):  # its node went away and gets no jobs
            answers.append((sent[ref], ray.get(ref)))
    for ref in rest:
        ray.cancel(ref, force=True)
    return answers


def _look(paths: list[str]) -> tuple[str, str, list[str]]:
    """Return the program's version on this node, else the error, and the paths not seen.

    Runs on a node that may not have the program: Ray sends the function by value, so it uses no
    other function of ours.
    """
    script = "import converter.version as v; print(v.VERSION)"
    ran = subprocess.run(  # noqa: S603 - Python itself
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False
    )
    said = ran.stderr.strip().splitlines()
    unseen_paths = [path for path in paths if not os.path.lexists(path)]
    return ran.stdout.strip(), said[-1] if said else "", unseen_paths


@contextmanager
def _mark_destination(destination: str) -> Iterator[str | None]:
    """Yield a marker file in a local destination, by which nodes recognize the shared folder."""
    if scheme_of(destination):
        yield None
        return
    mark = Path(destination) / f".convert-node-{os.urandom(8).hex()}"
    try:
        mark.touch()
    except OSError as e:
        raise StorageError.writing(mark, e) from e
    try:
        yield str(mark)
    finally:
        mark.unlink(missing_ok=True)


# -- the process ----------------------------------------------------------------------------------


def main() -> None:
    """Run the jobs that arrive over the line, until there are no more."""
    line = Connection(int(sys.argv[1]))
    os.set_inheritable(line.fileno(), False)  # noqa: FBT003
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    with suppress(EOFError, ConnectionError, StoppedError):  # the driver no longer listens
        charter: Charter = line.recv()
        try:
            _serve(line, charter)
        except (EOFError, ConnectionError, StoppedError):
            raise
        except ConvertError as e:
            line.send(e)
        except Exception as e:  # noqa: BLE001 - the driver reports it
            line.send(InternalError(f"{type(e).__name__}: {line_of(e)}"))
        else:
            line.send(None)


def _serve(line: Connection, charter: Charter) -> None:
    join(line, charter.settings.address)
    import ray

    look_around(charter)
    window = Window(line, charter)
    try:
        window.run()
    finally:
        window.end()
        sweep_nodes()
        ray.shutdown()


def _end_with(parent: int) -> None:
    """End this process some time after the driver, even if Ray blocks."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    time.sleep(ORPHAN_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
