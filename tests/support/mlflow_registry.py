"""A server of MLflow's on loopback, and what is asked of it and of `convert`."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager, suppress

from repository import ROOT, SUPPORT

MODELS = SUPPORT / "mlflow_models.py"


class Registry:
    """A server, and what is asked of it and of convert."""

    def __init__(self, python, folder, uri):
        self.python, self.folder, self.uri = python, folder, uri
        self.environment = {
            **os.environ,
            "MLFLOW_TRACKING_URI": uri,
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "-1",
        }

    def run(self, *command, python=None):
        return subprocess.run(
            [python or self.python, *map(str, command)],
            env=self.environment, cwd=self.folder, capture_output=True, text=True,
        )  # fmt: skip

    def models(self, *words):
        done = self.run(MODELS, *words)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def batch(self, *words, ledger="ledger.sqlite"):
        """Run a batch; return its exit code, its summary, and the report's lines by source."""
        report = self.folder / "report.jsonl"
        report.unlink(missing_ok=True)
        done = self.run(
            "-m", "converter", "batch", *words, "--ledger", ledger, "--report", report, "--json"
        )
        assert "Traceback" not in done.stderr
        if not done.stdout:
            return done.returncode, done.stderr, {}
        lines = [json.loads(line) for line in report.read_text().splitlines()]
        records = {r["source"]: r for r in lines if "source" in r}
        return done.returncode, json.loads(done.stdout), records

    def ask(self, path, body=None):
        """Ask the server itself: importing a client takes seconds."""
        request = urllib.request.Request(
            f"{self.uri}/api/2.0/mlflow/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def set_alias(self, name, version):
        self.ask("registered-models/alias", {"name": name, "alias": "champion", "version": version})

    def versions(self):
        """Return the tags of all versions, by reference."""
        found = self.ask("model-versions/search?max_results=1000")["model_versions"]
        return {
            f"models:/{v['name']}/{v['version']}": {t["key"]: t["value"] for t in v.get("tags", [])}
            for v in found
        }

    def aliases(self, name):
        """Return the version of each alias of a model."""
        model = self.ask(f"registered-models/get?name={name}")["registered_model"]
        return {a["alias"]: a["version"] for a in model.get("aliases", [])}


@contextmanager
def served(python, folder):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [
        python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", port, "--workers", "1",
        "--backend-store-uri", f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination", folder / "artifacts",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [*map(str, command)],
            env=environment, stdout=out, stderr=out, cwd=folder, start_new_session=True,
        )  # fmt: skip
    try:
        uri = f"http://127.0.0.1:{port}"
        for _ in range(600):
            with suppress(OSError), urllib.request.urlopen(f"{uri}/health", timeout=5):
                break
            assert server.poll() is None, log.read_text()[-3000:]
            time.sleep(0.2)
        yield Registry(str(python), folder, uri)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
