"""A registry of MLflow's own making: converted, registered back, and loaded by MLflow itself.

One server on loopback, and one long test, for starting either takes longer than all questions.
"""

import importlib.util
import json
import os
import shutil
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from mlflow_registry import served

pytestmark = pytest.mark.timeout(900)
PYTHON_2 = "CONVERT_MLFLOW2_PYTHON"  # one with MLflow 2, torch, onnx, and convert
GOOD = (
    "keras", "tf-keras", "tf-module", "torch-pickle", "torch-script", "torch-export", "onnx",
)  # fmt: skip
GOOD_2 = ("torch-pickle", "torch-script", "onnx")
DAMAGED, FUNCTION = "damaged", "function"
TEMPLATE = "models:/{name}_portable"
ATOL = 1e-6  # predictions are of the order of one, in float32


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
