"""MLflow's client with short timeouts and no output; its errors become ours.

Which server it is, MLflow itself knows: from ``MLFLOW_TRACKING_URI`` and ``MLFLOW_REGISTRY_URI``,
and the credentials, from ``MLFLOW_TRACKING_TOKEN`` and the like. None of these is passed here, so
that whatever works for its own commands works for ours.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from converter.extras import describe_install
from converter.stores.urls import mask_secrets
from formats.errors import ConvertError, DependencyError, SourceError, StorageError, UsageError

if TYPE_CHECKING:
    from mlflow import MlflowClient

# Unless the user says otherwise. A server that is away is tried seven times by default, for
# minutes; progress bars and links to runs go where reports do.
# Spec: https://github.com/mlflow/mlflow/blob/v3.17.2/mlflow/environment_variables.py
USUAL = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
# Time limit of the first request to a server: without an answer it is taken to be down.
HURRIED = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "15"}
REFUSED = ("PERMISSION_DENIED", "UNAUTHENTICATED")
CREDENTIALS = "Credentials are MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD"
LONGEST = 300  # letters of what a server said
# Of which MLflow's client lets errors through; those of requests are the system's.
LIBRARIES = ("azure", "boto3", "botocore", "google", "sqlalchemy", "urllib3")
LOCAL = ("mlruns", "mlflow.db")  # MLflow's default stores
# Packages that MLflow imports for some stores alone, by what it takes to have them.
STORES = {
    "boto3": "boto3",
    "botocore": "boto3",
    "sqlalchemy": "mlflow",
    "google": "google-cloud-storage",
}


def connect() -> "MlflowClient":
    """Return a client, without connecting to its server.

    Raises:
        DependencyError: MLflow is not installed.
        UsageError: No server is named.
    """
    for name, value in USUAL.items():
        os.environ.setdefault(name, value)
    try:
        import mlflow
        from mlflow import MlflowClient
    except ImportError as e:
        raise DependencyError(
            f"MLflow's client cannot be imported ({e})", hint=describe_install("mlflow")
        ) from e
    if not mlflow.is_tracking_uri_set() and not any(Path(name).exists() for name in LOCAL):
        raise UsageError(
            "no MLflow server is named", hint="export MLFLOW_TRACKING_URI=http://HOST:PORT"
        )
    with translate_errors("models:/"):
        return MlflowClient()


def reach(client: "MlflowClient") -> None:
    """Check that the server answers, with a short timeout.

    Raises:
        StorageError: It cannot be reached, or does not answer as MLflow does.
        DependencyError: It takes a package that is not installed.
    """
    before = {name: os.environ[name] for name in HURRIED}
    given = {name: os.environ[name] for name in HURRIED if os.environ[name] != USUAL[name]}
    os.environ.update(HURRIED | given)
    try:
        with translate_errors("models:/"):
            client.search_registered_models(max_results=1)
    finally:
        os.environ.update(before)


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Translate MLflow's exceptions into those of `formats.errors`.

    Args:
        where: What it is about, as messages call it.

    Raises:
        SourceError: There is no such thing.
        UsageError: A filter or a name is malformed.
        DependencyError: It takes a package that is not installed.
        StorageError: Anything else.
    """
    from mlflow.exceptions import MlflowException

    try:
        yield
    except ConvertError:
        raise
    except ImportError as e:
        package = STORES.get((e.name or "").partition(".")[0], e.name or "it")
        raise DependencyError(
            f"MLflow takes {e.name or 'a package'} for it, which is not installed",
            where=where, hint=f"pip install {package}",
        ) from e  # fmt: skip
    except MlflowException as e:
        said = _words(e)
        is_invalid = e.error_code == "INVALID_PARAMETER_VALUE"  # an alias that is not there, too
        if e.error_code == "RESOURCE_DOES_NOT_EXIST" or (is_invalid and "not found" in said):
            raise SourceError(f"{server()}: {said}", where=where) from e
        if is_invalid:
            raise UsageError(f"{server()}: {said}", where=where) from e
        is_refused = e.error_code in REFUSED or any(f"code {n} " in said for n in (401, 403))
        raise StorageError(
            f"{server()}: {said}", where=where, hint=CREDENTIALS if is_refused else None
        ) from e
    except Exception as e:
        if not isinstance(e, OSError) and type(e).__module__.partition(".")[0] not in LIBRARIES:
            raise
        raise StorageError(f"{server()}: {_words(e)}", where=where) from e


def server() -> str:
    """Return the server's address without secrets."""
    import mlflow

    return f"MLflow at {mask_secrets(mlflow.get_registry_uri() or 'its default')}"


def _words(error: Exception) -> str:
    """Return an exception's message in one line; the last cause, where it is the system's."""
    cause: BaseException | None = error
    for _ in range(12):
        below = cause.__cause__ or cause.__context__ if cause is not None else None
        inner = next((a for a in getattr(cause, "args", ()) if isinstance(a, Exception)), None)
        reason = getattr(inner, "reason", None)
        cause = reason if isinstance(reason, Exception) else below
        if isinstance(cause, TimeoutError) or type(cause).__name__.endswith("TimeoutError"):
            return "it does not answer"
        if isinstance(cause, OSError) and cause.errno is not None and cause.strerror:
            return f"cannot be reached: {cause.strerror}"
    lines = [line.strip() for line in mask_secrets(str(error)).splitlines()]
    text = " ".join(line for line in lines if line and not line.startswith("#"))
    code = str(getattr(error, "error_code", "") or "")
    text = text.removeprefix(f"{code}:").strip() or type(error).__name__
    if caused := re.search(r"\(Caused by \w+\([\"'](.{1,200}?)[\"']\)\)", text):
        text = caused.group(1)  # after all that urllib3 says of it
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
