"""A child that was forked from a process with a ready session parses none of botocore's models."""

import os
import subprocess
import sys

import pytest
from s3_server import Server

pytest.importorskip("s3fs")
pytest.importorskip("moto.server")

CHILD = """
import os, sys, threading
from converter.executors.preload import preload
from converter.jobs.job import Job
from converter.options import Options

preload(Job(sys.argv[1], "x.portable", "/nowhere", Options()))
assert threading.active_count() == 1, threading.enumerate()
from botocore.loaders import JSONFileLoader
from converter.stores.fsspec_store import open_store

loaded = []
real = JSONFileLoader.load_file
JSONFileLoader.load_file = lambda self, path: (loaded.append(path), real(self, path))[1]
pid = os.fork()
if not pid:
    found = open_store(sys.argv[1]).stat("a")
    print(found.nbytes, len(loaded), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.stop()


@pytest.mark.parametrize("configured", [{}, {"FSSPEC_S3_PROFILE": "team"}])
def test_children_of_a_ready_process(server, tmp_path, configured):
    bucket = server.bucket()
    bucket.put("a", b"123")
    (tmp_path / "credentials").write_text(
        "[team]\naws_access_key_id = other\naws_secret_access_key = other\n"
    )
    environment = {
        **os.environ, **server.environment, **configured,
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }  # fmt: skip
    command = [sys.executable, "-c", CHILD, bucket.url]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    size, loaded = done.stdout.split()
    assert size == "3"
    # What is configured for one session is not given to the other: s3fs makes its own then.
    assert (int(loaded) > 0) == bool(configured)
