"""Versions of registered models: found by their tags, uploaded, registered, deleted.

There is no compare-and-set: two workers may register the same conversion. So a worker looks once
more after it has registered a version, and deletes its own if there is an older one.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converter.registries.mlflow import read_pages
from converter.registries.mlflow_names import quote

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

# By these a conversion is known: the same source, as it was, by the same plan.
KEY = ("convert.source_uri", "convert.source_digest", "convert.plan")
TARGET = "convert.target"  # the registered model: others may have the same conversion
EXPERIMENT = "convert"  # of what comes from elsewhere
ARTIFACTS = "model"  # folder in a run, where a server keeps models with runs
ABANDONED_SECONDS = 24 * 3600.0  # after which an upload that was not registered is abandoned


@dataclass(frozen=True, slots=True)
class Origin:
    """Where in MLflow a source is from.

    Attributes:
        experiment_id: That its files are in; "" for none.
        run_id: That made it; "" for none.
    """

    experiment_id: str = ""
    run_id: str = ""


def find_existing(
    client: "MlflowClient", target: str, tags: Mapping[str, str]
) -> "ModelVersion | None":
    """Return the oldest version of a model that is this conversion."""
    clauses = [f"name = {quote(target)}"]
    # Of the source's address, which may have quotes, the answer is asked.
    clauses += [f"tags.`{key}` = '{tags[key]}'" for key in KEY[1:]]
    found = [
        v
        for v in read_pages(client.search_model_versions, " AND ".join(clauses))
        if all(v.tags.get(key) == tags[key] for key in KEY) and v.status == "READY"
    ]
    return min(found, key=lambda v: int(v.version), default=None)


def origin_of(client: "MlflowClient", facts: Mapping[str, Any]) -> Origin:
    """Return the run and experiment of a source, where they still exist."""
    run_id, model_id = str(facts.get("run_id") or ""), str(facts.get("model_id") or "")
    experiment = ""
    if run_id:
        try:
            run = client.get_run(run_id)
        except _mlflow_error():
            run_id = ""
        else:
            experiment = str(run.info.experiment_id)
            run_id = run_id if run.info.lifecycle_stage == "active" else ""
    if model_id and not experiment and hasattr(client, "get_logged_model"):
        with suppress(_mlflow_error()):
            experiment = str(client.get_logged_model(model_id).experiment_id)
    return Origin(_experiment(client, experiment), run_id)


def _experiment(client: "MlflowClient", found: str) -> str:
    """Return the experiment for outputs: the environment's, else the source's, else ours."""
    if os.environ.get("MLFLOW_EXPERIMENT_ID"):
        return os.environ["MLFLOW_EXPERIMENT_ID"]
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME")
    if found and not name and client.get_experiment(found).lifecycle_stage == "active":
        return found
    name = name or EXPERIMENT
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        with suppress(_mlflow_error()):  # another worker has made it meanwhile
            return str(client.create_experiment(name))
        experiment = client.get_experiment_by_name(name)
    return str(experiment.experiment_id)


def register(
    client: "MlflowClient",
    target: str,
    tags: Mapping[str, str],
    origin: Origin,
    describe: Callable[[dict[str, str]], Path],
) -> "ModelVersion":
    """Upload a folder and register it; return its version, or an identical older one.

    Args:
        client: Of the server.
        target: Name of the registered model, which is there.
        tags: Of the version.
        origin: Of the source.
        describe: Returns the folder, finished with what the server decided of it.
    """
    with _upload(client, target, tags, origin, describe) as (source, more):
        made = client.create_model_version(target, source, tags=dict(tags), **more)
    oldest = find_existing(client, target, tags)
    if oldest is None or oldest.version == made.version:
        return made
    client.delete_model_version(target, made.version)
    _delete(client, more)
    return oldest


@contextmanager
def _upload(
    client: "MlflowClient",
    target: str,
    tags: Mapping[str, str],
    origin: Origin,
    describe: Callable[[dict[str, str]], Path],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Upload a folder; yield the arguments of its registration. An error deletes the upload."""
    run: dict[str, Any] = {"run_id": origin.run_id} if origin.run_id else {}
    model_id = _logged_model(client, target, tags, origin)
    more: dict[str, Any]
    if model_id:
        more = {**run, "model_id": model_id}
        source = f"models:/{model_id}"
    else:
        made = client.create_run(origin.experiment_id, run_name=target, tags=dict(tags))
        more = {"run_id": made.info.run_id}
        source = f"runs:/{made.info.run_id}/{ARTIFACTS}"
    try:
        folder = describe({**more, **({"model_uuid": model_id} if model_id else {})})
        if model_id:
            client.log_model_artifacts(model_id, str(folder))
            client.finalize_logged_model(model_id, "READY")
        else:
            client.log_artifacts(more["run_id"], str(folder), ARTIFACTS)
            client.set_terminated(more["run_id"])
        yield source, more
    except BaseException:
        _delete(client, more)
        raise


def _logged_model(
    client: "MlflowClient", target: str, tags: Mapping[str, str], origin: Origin
) -> str:
    """Begin a logged model and return its id; "" with MLflow 2, which has none."""
    if not hasattr(client, "create_logged_model"):
        return ""
    name = "".join(c if c not in "/:.%\"'" else "_" for c in target)
    try:
        _sweep(client, tags, origin)
        made = client.create_logged_model(
            origin.experiment_id, name=name, source_run_id=origin.run_id or None, tags=dict(tags)
        )
    except _mlflow_error() as e:
        if e.error_code == "ENDPOINT_NOT_FOUND" or "404" in str(e):
            return ""
        raise
    return str(made.model_id)


def _sweep(client: "MlflowClient", tags: Mapping[str, str], origin: Origin) -> None:
    """Delete uploads of this conversion that killed workers never registered."""
    clauses = [f"tags.`{key}` = '{tags[key]}'" for key in KEY[1:]]
    found = client.search_logged_models([origin.experiment_id], " AND ".join(clauses))
    for model in found:
        age = time.time() - model.creation_timestamp / 1000
        is_same = all(model.tags.get(key) == tags[key] for key in (*KEY, TARGET))
        if is_same and age > ABANDONED_SECONDS:
            client.delete_logged_model(model.model_id)


def _delete(client: "MlflowClient", uploaded: Mapping[str, Any]) -> None:
    """Delete an upload, ignoring errors."""
    with suppress(Exception):
        if "model_id" in uploaded:
            client.delete_logged_model(uploaded["model_id"])
        else:
            client.delete_run(uploaded["run_id"])


def _mlflow_error() -> type[Any]:
    from mlflow.exceptions import MlflowException

    kind: type[Any] = MlflowException
    return kind
