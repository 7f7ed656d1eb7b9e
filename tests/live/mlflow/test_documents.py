"""The commands that the documents show for MLflow, run as they stand against a server."""

import importlib.util
import sys

import pages
import pytest
import sessions
from mlflow_registry import served
from s3_server import Server

TITLE = "Needs an MLflow server"
PAGES = [page for page in pages.read_pages() if any(b.title == TITLE for b in page.blocks)]
NEEDED = ("mlflow", "torch", "onnxruntime", "s3fs", "moto")
NAMES = ("name", "team_ranker", "vision_classifier")  # that the commands have, or match


def register(registry):
    """Register one model under all names; return the run that logged it."""
    registry.models("log", registry.folder, "onnx=model")
    logged = registry.ask("model-versions/get?name=onnx&version=1")["model_version"]
    again = {"source": logged["source"], "run_id": logged["run_id"]}
    if logged["source"].startswith("models:/"):
        again["model_id"] = logged["source"].rpartition("/")[2]
    for name in NAMES:
        registry.ask("registered-models/create", {"name": name})
        registry.ask("model-versions/create", {"name": name, **again})
    registry.set_alias("name", "1")
    return logged["run_id"]


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in NEEDED),
    reason=f"takes {', '.join(NEEDED)}",
)
@pytest.mark.timeout(900)
def test_commands_run_against_a_server(tmp_path):
    assert len(PAGES) == 3
    bucket = Server()
    try:
        bucket.client().create_bucket(Bucket="bucket")
        with served(sys.executable, tmp_path) as registry:
            given = {
                "MLFLOW_TRACKING_URI": registry.uri, "MLFLOW_DISABLE_TELEMETRY": "true",
                "RUN_ID": register(registry), **bucket.environment,
            }  # fmt: skip
            for i, page in enumerate(PAGES):
                folder = tmp_path / str(i)
                folder.mkdir()
                ran = list(sessions.run(page, folder, title=TITLE, environment=given))
                assert ran
                assert not [one.problem for one in ran if one.problem]
            portable = {ref for ref in registry.versions() if "_portable/" in ref}
        made = {f"models:/{name}_portable/1" for name in ("team_ranker", "vision_classifier")}
        assert portable == made
        assert [*tmp_path.glob("*/triton/vision_classifier*/config.pbtxt")]
        assert [*tmp_path.glob("*/registry.html")]
    finally:
        bucket.stop()
