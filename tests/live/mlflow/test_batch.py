"""A registry of MLflow's own making: converted, registered back, and loaded by MLflow itself.

One server on loopback, and one long test, for starting either takes longer than all questions.
"""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import xml.etree.ElementTree as ElementTree
from contextlib import contextmanager, suppress

import pytest
from repository import ROOT, SUPPORT

pytestmark = pytest.mark.timeout(900)
MODELS = SUPPORT / "mlflow_models.py"
PYTHON_2 = "CONVERT_MLFLOW2_PYTHON"  # one with MLflow 2, torch, onnx, and convert
GOOD = (
    "keras", "tf-keras", "tf-module", "torch-pickle", "torch-script", "torch-export", "onnx",
)  # fmt: skip
GOOD_2 = ("torch-pickle", "torch-script", "onnx")
DAMAGED, FUNCTION = "damaged", "function"
TEMPLATE = "models:/{name}_portable"
ATOL = 1e-6  # predictions are of the order of one, in float32


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


def damage(registry):
    """Cut a model's file in half, where the server keeps it."""
    asked = f"model-versions/get-download-uri?name={DAMAGED}&version=1"
    uri = registry.ask(asked)["artifact_uri"]
    path = registry.folder / "artifacts" / uri.partition(":/")[2].lstrip("/") / "model.onnx"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def check_registry(registry, good):
    registry.models("log", registry.folder, *good, DAMAGED, FUNCTION)
    damage(registry)
    first = good[-1]
    registry.set_alias(first, "1")
    registry.set_alias(DAMAGED, "1")

    # A filter string says which models.
    code, _, records = registry.batch(
        "models:/", "-o", "filtered", "--filter", f"name LIKE '{first[:3]}%'", "--to", "onnx",
        ledger="filtered.sqlite",
    )  # fmt: skip
    assert code == 0
    assert list(records) == [f"models:/{first}/1"]
    assert (registry.folder / "filtered" / first / "1.onnx").is_file()

    # All of it: every good one, and the damaged one by its name and class.
    code, document, records = registry.batch("models:/", "-o", TEMPLATE)
    assert code == 3
    assert document["summary"]["counts"] == {"done": len(good), "failed": 1}
    assert document["plan"]["skipped"] == {"an MLflow model of flavor python_function": 1}
    assert records[f"models:/{DAMAGED}/1"]["error"]["type"] == "CorruptError"
    for name in good:
        record = records[f"models:/{name}/1"]
        assert record["output"] == f"models:/{name}_portable/1"
        assert record["verification"]["reached"] == "cpu", record["warnings"]
        (graph,) = record["verification"]["graphs"].values()
        has_example = "the registry's example" in [case["name"] for case in graph["cases"]]
        assert has_example == (name != "keras")  # MLflow writes none there
    versions = registry.versions()
    assert {v for v in versions if "_portable" in v} == {f"models:/{n}_portable/1" for n in good}
    for name in good:
        assert versions[f"models:/{name}/1"] == {"convert.portable": f"models:/{name}_portable/1"}
        tags = versions[f"models:/{name}_portable/1"]
        assert tags["convert.source_uri"] == f"models:/{name}/1"
        assert tags["convert.verification"] == "passed"
    assert versions[f"models:/{DAMAGED}/1"] == {}
    assert registry.aliases(f"{first}_portable") == {"champion": "1"}

    # MLflow's own loader makes the same of them as of their sources.
    uris = [f"models:/{name}_portable/1" for name in good[:-1]]
    errors = json.loads(
        registry.models("predict", registry.folder, *uris, f"models:/{first}_portable@champion")
    )
    assert len(errors) == len(good)
    assert max(errors.values()) <= ATOL, errors
    shutil.rmtree(registry.folder / "filtered")

    # A second run does nothing, and neither does one whose ledger is lost.
    for ledger in ("ledger.sqlite", "lost.sqlite"):
        code, document, _ = registry.batch(
            "models:/", "-o", TEMPLATE, "--exclude", DAMAGED, ledger=ledger
        )
        assert code == 0 if ledger == "lost.sqlite" else code in (0, 3)
        assert document["summary"]["counts"] == {}
        assert document["summary"]["done_before"] == len(good)
    assert set(registry.versions()) == set(versions)
    check_unread(registry, good)

    # Nor does one by other tokens: what is registered is found by what it was made of.
    tag = {"name": f"{first}_portable", "version": "1", "key": "convert.name", "value": ""}
    registry.ask("model-versions/set-tag", tag)
    code, document, records = registry.batch(
        f"models:/{first}@champion", "-o", TEMPLATE, ledger="other.sqlite"
    )
    assert (code, document["summary"]["counts"]) == (0, {"done": 1})
    assert records[f"models:/{first}/1"]["output"] == f"models:/{first}_portable/1"
    assert set(registry.versions()) == set(versions)

    check_aliases(registry, first)
    check_refusals(registry, first)


def check_unread(registry, good):
    """A version of a flavor that is not read is a row of every report, and fails if it must."""
    unread = f"models:/{FUNCTION}/1"
    words = ("--exclude", DAMAGED, "--report", "all.xml", "-o", TEMPLATE)
    code, document, records = registry.batch("models:/", *words, ledger="lost.sqlite")
    assert (code, document["summary"]["unread"]) == (0, 1)
    assert {s: r["status"] for s, r in records.items()} == {
        **{f"models:/{name}/1": "done" for name in good},
        unread: "skipped",
    }
    assert records[unread]["error"]["message"] == "an MLflow model of flavor python_function"
    tree = ElementTree.parse(registry.folder / "all.xml").getroot()
    assert len(tree.findall(".//testcase")) == len(good) + 1
    assert len(tree.findall(".//testcase/skipped")) == 1
    code, *_ = registry.batch("models:/", *words, "--fail-on-skipped", ledger="lost.sqlite")
    assert code == 4
    code, *_ = registry.batch(unread, f"models:/{good[0]}/1", *words, ledger="lost.sqlite")
    assert code == 4


def check_aliases(registry, name):
    """An alias moves with that of the source, to what was verified and to nothing else."""
    version = registry.ask(f"model-versions/get?name={name}&version=1")["model_version"]
    again = {"name": name, "source": version["source"], "run_id": version["run_id"]}
    if version["source"].startswith("models:/"):
        again["model_id"] = version["source"].rpartition("/")[2]
    registry.ask("model-versions/create", again)
    registry.set_alias(name, "2")
    words = (f"models:/{name}", "-o", TEMPLATE)
    code, document, records = registry.batch(*words, ledger="b.sqlite")
    assert code == 0
    found = records[f"models:/{name}/2"]["output"]
    assert registry.aliases(f"{name}_portable") == {"champion": found.rpartition("/")[2]}

    # Moved back by hand, where there is nothing to convert: it is followed as the batch begins.
    registry.set_alias(name, "1")
    code, document, _ = registry.batch(*words, ledger="b.sqlite")
    assert (code, document["summary"]["counts"]) == (0, {})
    moved = registry.aliases(f"{name}_portable")["champion"]
    tags = registry.versions()[f"models:/{name}_portable/{moved}"]
    assert tags["convert.source_uri"] == f"models:/{name}/1"


def check_refusals(registry, name):
    """What cannot be is said in a line, with the exit code that it has."""
    single = registry.run("-m", "converter", f"models:/{name}@champion", "-o", "one.portable", "-q")
    assert single.returncode == 0, single.stderr
    manifest = json.loads((registry.folder / "one.portable" / "manifest.json").read_text())
    cases = manifest["verification"]["graph"]["cases"]
    assert cases[0]["name"] == "the registry's example"
    for code, *words in (
        (3, "models:/nobody"),
        (2, "models:/", "--filter", "what is this"),
    ):
        done = registry.run(
            "-m", "converter", "batch", *words, "-o", TEMPLATE, "--ledger", "r.sqlite"
        )
        assert done.returncode == code, (words, done.stderr)
        assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.skipif(
    not all(importlib.util.find_spec(m) for m in ("mlflow", "tensorflow", "torch", "onnxruntime")),
    reason="takes mlflow, tensorflow, torch and onnxruntime",
)
def test_a_registry_of_every_flavor_is_converted_and_registered_back(tmp_path):
    with served(sys.executable, tmp_path) as registry:
        check_registry(registry, GOOD)


@pytest.mark.skipif(PYTHON_2 not in os.environ, reason=f"{PYTHON_2} names no Python with MLflow 2")
def test_the_same_with_client_and_server_of_mlflow_2(tmp_path):
    with served(os.environ[PYTHON_2], tmp_path) as registry:
        check_registry(registry, GOOD_2)
