"""MLflow's client and registry, as far as `converter` asks of them, in the memory of one process.

Stands in where MLflow is not installed; the live tests hold the real one to the same.
"""

import re
import sys
import time
import types
from types import SimpleNamespace as Record


class MlflowException(Exception):  # noqa: N818 - as it is called there
    def __init__(self, message, error_code="INTERNAL_ERROR"):
        super().__init__(message)
        self.error_code = error_code


class Page(list):
    token = None


def absent(what):
    return MlflowException(f"RESOURCE_DOES_NOT_EXIST: {what} not found", "RESOURCE_DOES_NOT_EXIST")


class Server:
    """What a server has: models, versions, runs, and files by artifact URI."""

    def __init__(self, *, logged_models=True):
        self.models, self.versions, self.files, self.runs, self.logged = {}, [], {}, {}, {}
        self.calls = []
        self.has_logged_models = logged_models
        self.failing = set()  # names of methods
        self.failing_takes = 0.0  # seconds

    def install(self, monkeypatch):
        """Be what `import mlflow` finds."""
        mlflow = types.ModuleType("mlflow")
        mlflow.MlflowClient = lambda: Client(self)
        mlflow.is_tracking_uri_set = lambda: True
        mlflow.get_registry_uri = lambda: "http://someone:secret@mlflow.example"
        exceptions = types.ModuleType("mlflow.exceptions")
        exceptions.MlflowException = MlflowException
        registry = types.ModuleType("mlflow.store.artifact.artifact_repository_registry")
        registry.get_artifact_repository = lambda uri: Repository(self, uri)
        local = types.ModuleType("mlflow.store.artifact.local_artifact_repo")
        local.LocalArtifactRepository = type("LocalArtifactRepository", (), {})
        for module in (mlflow, exceptions, registry, local):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        for parent in ("mlflow.store", "mlflow.store.artifact"):
            monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))

    def add(self, name, files, *, status="READY", tags=(), aliases=()):
        """Register a version with files; return its number."""
        self.models.setdefault(name, Record(name=name, aliases={}, tags={}))
        number = str(sum(v.name == name for v in self.versions) + 1)
        uri = f"mlflow-artifacts:/{name}/{number}"
        self.files[uri] = dict(files)
        self.versions.append(
            Record(
                name=name, version=number, source=uri, run_id=None, status=status,
                creation_timestamp=len(self.versions), tags=dict(tags), current_stage="None",
            )
        )  # fmt: skip
        self.models[name].aliases.update(dict.fromkeys(aliases, number))
        return number


class Repository:
    def __init__(self, server, uri):
        self.server, self.uri = server, uri

    def _files(self):
        return self.server.files.get(self.uri, {})

    def list_artifacts(self, path=None):
        head = f"{path}/" if path else ""
        found = {}
        for name, content in self._files().items():
            if name.startswith(head):
                first, slash, _ = name[len(head) :].partition("/")
                size = None if slash else len(content)
                found[head + first] = Record(path=head + first, is_dir=bool(slash), file_size=size)
        return [*found.values()]

    def download_artifacts(self, path, folder):
        self.server.calls.append(("download", self.uri, path))
        if path not in self._files():
            raise MlflowException(f"404 Client Error: Not Found for url: {path}")
        from pathlib import Path

        target = Path(folder) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self._files()[path])


class Client:
    def __init__(self, server):
        self.server = server
        if not server.has_logged_models:  # MLflow 2
            self.create_logged_model = self.search_logged_models = self._none

    def __getattribute__(self, name):
        server = object.__getattribute__(self, "server") if name != "server" else None
        if server is not None and not name.startswith("_"):
            server.calls.append((name,))
        if server is not None and name in server.failing:
            time.sleep(server.failing_takes)
            raise MlflowException(f"{name} failed", "PERMISSION_DENIED")
        return object.__getattribute__(self, name)

    def _none(self, *args, **more):
        raise MlflowException("404 Not Found", "ENDPOINT_NOT_FOUND")

    # -- models and versions

    def search_registered_models(self, filter_string=None, max_results=100, page_token=None):
        return Page(m for m in self.server.models.values() if matches(m, filter_string))

    def search_model_versions(self, filter_string=None, max_results=100, page_token=None):
        found = Page(v for v in self.server.versions if matches(v, filter_string))
        start = int(page_token or 0)
        page = Page(found[start : start + 2])  # small, so that there are several
        page.token = str(start + 2) if len(found) > start + 2 else None
        return page

    def get_registered_model(self, name):
        if name not in self.server.models:
            raise absent(name)
        return self.server.models[name]

    def get_model_version(self, name, version):
        for v in self.server.versions:
            if (v.name, v.version) == (name, str(version)):
                aliases = self.server.models[name].aliases
                v.aliases = [a for a, n in aliases.items() if n == v.version]
                return v
        raise absent(f"{name}/{version}")

    def get_model_version_by_alias(self, name, alias):
        return self.get_model_version(name, self.server.models[name].aliases.get(alias))

    def get_model_version_download_uri(self, name, version):
        return self.get_model_version(name, version).source

    def create_registered_model(self, name, tags=None):
        if name in self.server.models:
            raise MlflowException("it exists", "RESOURCE_ALREADY_EXISTS")
        self.server.models[name] = Record(name=name, aliases={}, tags=dict(tags or {}))

    def create_model_version(self, name, source, run_id=None, tags=None, model_id=None):
        number = self.server.add(name, {}, tags=tags or {})
        version = self.server.versions[-1]
        version.source, version.run_id = source, run_id
        assert number == version.version
        return version

    def delete_model_version(self, name, version):
        self.server.versions.remove(self.get_model_version(name, version))

    def set_model_version_tag(self, name, version, key, value):
        self.get_model_version(name, version).tags[key] = value

    def set_registered_model_alias(self, name, alias, version):
        self.server.models[name].aliases[alias] = str(version)

    # -- experiments, runs, logged models

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        return "7"

    def create_logged_model(self, experiment_id, name, source_run_id=None, tags=None):
        made = f"m-{len(self.server.logged):032x}"
        self.server.logged[made] = dict(tags or {})
        return Record(model_id=made)

    def search_logged_models(self, experiment_ids, filter_string=None):
        return []

    def log_model_artifacts(self, model_id, folder):
        self._log(f"models:/{model_id}", folder)

    def finalize_logged_model(self, model_id, status):
        assert status == "READY"

    def delete_logged_model(self, model_id):
        del self.server.logged[model_id]

    def create_run(self, experiment_id, run_name=None, tags=None):
        made = f"run{len(self.server.runs)}"
        self.server.runs[made] = "RUNNING"
        return Record(info=Record(run_id=made))

    def log_artifacts(self, run_id, folder, path):
        self._log(f"runs:/{run_id}/{path}", folder)

    def set_terminated(self, run_id):
        self.server.runs[run_id] = "FINISHED"

    def delete_run(self, run_id):
        del self.server.runs[run_id]

    def _log(self, uri, folder):
        from pathlib import Path

        self.server.files[uri] = {
            p.relative_to(folder).as_posix(): p.read_bytes()
            for p in Path(folder).rglob("*")
            if p.is_file()
        }


CLAUSE = re.compile(r"(name|tags\.`([^`]+)`)\s*(=|LIKE)\s*(['\"])(.*)\4$")


def matches(record, query):
    """Tell whether a record is what a filter of MLflow's asks for; raise for none of them."""
    for clause in filter(None, (query or "").split(" AND ")):
        match = CLAUSE.match(clause)
        if match is None:
            raise MlflowException(f"Invalid clause(s) {clause}", "INVALID_PARAMETER_VALUE")
        field, key, operator, _, value = match.groups()
        found = record.name if field == "name" else record.tags.get(key)
        pattern = re.escape(value).replace("%", ".*") if operator == "LIKE" else re.escape(value)
        if found is None or not re.fullmatch(pattern, found, re.DOTALL):
            return False
    return True
