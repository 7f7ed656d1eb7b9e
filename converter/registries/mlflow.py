"""MLflow registries: all registered models, one model, one version, or a run's files.

Works with clients and servers of both majors. What a version holds, its small `MLmodel` file says;
of it the files of the model itself are fetched, and its input example. The rest of it stays where
it is: code, pickled classes, environments.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from converter.registries import mlmodel
from converter.registries.entry import Entry, Found, Registry, Skipped, Staged
from converter.registries.filters import Filters
from converter.registries.mlflow_files import Files, files_at
from converter.registries.mlflow_names import LATEST, Named, as_file, parse, quote, reference
from converter.registries.mlflow_server import connect, reach, translate_errors
from formats.core.bundle import JSON
from formats.errors import ConvertError, SourceError, StorageError, UsageError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

PAGE = 1000  # versions that a server is asked for at a time
LOOKED_AT_ONCE = 8  # MLmodel files
GIVE_UP = 24  # of them that no storage gives, one after another
MADE_BY_US = "convert.source_uri"  # tag of the versions that `converter.destinations` registers
PROMPT = "mlflow.prompt.is_prompt"
# What MLflow puts beside a file that is a model: all else there belongs to it, as an ONNX file's
# weights do.
BESIDE = frozenset((
    mlmodel.FILE, "conda.yaml", "python_env.yaml", "requirements.txt", "registered_model_meta",
    "environment_variables.txt", "input_example.json", "python_model.pkl",
    "serving_input_example.json",
))  # fmt: skip


class Models:
    """The versions of an MLflow registry that a reference and a filter name."""

    def __init__(self, text: str, named: Named, filters: Filters, client: "MlflowClient") -> None:
        self._text = text
        self._named = named
        self._filters = filters
        self._client = client
        self._failures = 0  # of looking, one after another

    @property
    def label(self) -> str:
        """Empty: names of entries begin with their model's."""
        return ""

    def find(self) -> Iterator[Found]:
        """Yield the versions, by model and number.

        Raises:
            StorageError: The server fails.
            SourceError: There is no such model.
            UsageError: MLflow does not accept the filter.
        """
        if self._named.is_one:
            yield self._one()
            return
        versions = iter(sorted(self._versions(), key=lambda v: (str(v.name), int(v.version))))
        with ThreadPoolExecutor(LOOKED_AT_ONCE) as pool:
            while some := list(islice(versions, PAGE)):
                yield from (found for found in pool.map(self._looked_at, some) if found)

    def _versions(self) -> "Iterator[ModelVersion]":
        query, name = self._filters.query, self._named.name
        search = self._client.search_model_versions
        with translate_errors(self._text):
            if name:
                self._client.get_registered_model(name)
                clause = f"name = {quote(name)}"
                yield from read_pages(search, f"{clause} AND {query}" if query else clause)
            elif query:
                for model in read_pages(self._client.search_registered_models, query, most=100):
                    yield from read_pages(search, f"name = {quote(model.name)}")
            else:
                yield from read_pages(search, "")

    def _looked_at(self, version: "ModelVersion") -> "Found | None":
        """Return a version's entry from its `MLmodel`; None if the filters exclude it."""
        source = reference(version.name, version.version)
        name = _name_of(version)
        if not self._filters.wants(name):
            return None
        if MADE_BY_US in version.tags:
            return Skipped(source, "convert made it")
        if PROMPT in version.tags or not version.source:
            return Skipped(source, "no model: a prompt")
        if version.status != "READY":
            return Skipped(source, f"its status is {version.status}", name)
        entry = Entry(source, name, None, _token(version))
        try:
            with translate_errors(source):
                uri = self._client.get_model_version_download_uri(version.name, version.version)
            document = mlmodel.parse(files_at(uri).content(mlmodel.FILE), source)
        except ConvertError as e:  # converting it says so again, and is counted
            self._failures += isinstance(e, StorageError)
            if self._failures >= GIVE_UP:  # it is not about this one
                raise
            return replace(entry, evidence=str(e))
        self._failures = 0
        flavors = ", ".join(mlmodel.flavors(document)) or "python_function"
        if not mlmodel.candidates(document):
            return Skipped(source, mlmodel.describe_foreign(document), name)
        size = document.get("model_size_bytes")
        return replace(
            entry,
            nbytes=size if type(size) is int else None,
            format="onnx" if "onnx" in document["flavors"] else "",
            evidence=f"MLflow's flavor {flavors}",
        )

    def _one(self) -> Entry:
        if self._filters.query:
            raise UsageError(f"filters.query= with {self._text}, which is one model")
        with translate_errors(self._text):
            found = _resolve(self._client, self._named, self._text)
        if found.version is None:
            named = self._named
            name = "/".join(as_file(p) for p in (named.model_id or named.run_id, named.path) if p)
            return Entry(self._text, name, None, "")
        version = found.version
        source = reference(version.name, version.version)
        return Entry(source, _name_of(version), None, _token(version))


def open_registry(reference: str, filters: Filters) -> Registry:
    """Open the registry that MLflow's own settings name.

    Raises:
        UsageError: The reference is malformed, or no server is named.
        DependencyError: MLflow is not installed.
        StorageError: The server cannot be reached.
    """
    named = parse(reference)
    client = connect()
    reach(client)
    return Models(reference, named, filters, client)


def stage(source: str, scratch: Path) -> Staged:
    """Fetch a model, its `MLmodel` and its input example.

    Args:
        source: ``models:/name/3``, ``models:/name@alias``, ``models:/m-…`` or ``runs:/id/path``.
        scratch: Folder for its files.

    Raises:
        SourceError: There is no such model, or files of it are gone.
        UnsupportedError: It has no flavor that is read.
        StorageError: The server fails.
        DependencyError: MLflow is not installed.
    """
    named = parse(source)
    if not named.is_one:
        raise UsageError(
            f"{source} names many models", hint="convert batch takes them, or name one version"
        )
    client = connect()
    with translate_errors(source):
        found = _resolve(client, named, source)
    files = files_at(found.uri)
    listed = files.list_files()
    if not listed:
        raise SourceError("nothing is there", where=source)
    facts: dict[str, JSON] = {**found.facts, "uri": found.uri, "registry": "mlflow"}
    folder = scratch / "source"
    if mlmodel.FILE not in listed:
        if found.version is not None:
            raise SourceError(f"has no {mlmodel.FILE} any more", where=source)
        return Staged(_plain(files, listed, folder, source), facts=facts)
    document = mlmodel.parse(files.content(mlmodel.FILE), source)
    place = mlmodel.payload(document, mlmodel.among(listed), source)
    wanted = _wanted(listed, place, mlmodel.example_file(document))
    staged = mlmodel.stage_model(files.fetch(wanted, folder), scratch)
    return replace(staged, facts={**staged.facts, **facts})


def _wanted(listed: Iterable[str], place: mlmodel.Payload, example: str | None) -> list[str]:
    """Return the files of a model: its own, `MLmodel`, and the input example."""
    path = PurePosixPath(place.path)

    def is_of_it(name: str) -> bool:
        file = PurePosixPath(name)
        if file == path or path in file.parents:
            return True
        beside = place.flavor == "onnx" and file.parent == path.parent
        return beside and file.name not in BESIDE

    return [n for n in listed if n in (mlmodel.FILE, example) or is_of_it(n)]


def _plain(files: Files, listed: Iterable[str], folder: Path, source: str) -> Path:
    """Fetch a file or folder of a run that is not an MLflow model.

    `mlflow.pytorch.log_state_dict` leaves such: ``state_dict.pth`` in a folder.
    """
    names = list(listed)
    here = files.fetch(names, folder)
    if len(names) == 1:
        return here / names[0]
    if not names:
        raise SourceError("no files are there", where=source)
    return here


# -- what a reference stands for ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Located:
    """Where the files of a model are.

    Attributes:
        uri: Of the folder with them.
        version: As registered; None for a model that is not.
        facts: What a destination wants to know again.
    """

    uri: str
    version: "ModelVersion | None"
    facts: dict[str, JSON]


def _resolve(client: "MlflowClient", named: Named, text: str) -> Located:
    """Return where a model's files are. MLflow's exceptions are not translated."""
    if named.model_id:
        return Located(f"models:/{named.model_id}", None, {"model_id": named.model_id})
    if named.run_id:
        return Located(_of_run(client, named), None, {"run_id": named.run_id})
    version = _version(client, named, text)
    uri = client.get_model_version_download_uri(version.name, version.version)
    facts: dict[str, JSON] = {
        "name": version.name,
        "version": str(version.version),
        "aliases": [str(alias) for alias in version.aliases or ()],
    }
    if version.run_id:
        facts["run_id"] = version.run_id
    source = parse(version.source) if str(version.source).startswith("models:/") else Named()
    if source.model_id:
        facts["model_id"] = source.model_id
    return Located(uri, version, facts)


def _of_run(client: "MlflowClient", named: Named) -> str:
    """Return where the files of a run's model are; MLflow 3 keeps them outside the run."""
    uri = f"runs:/{named.run_id}/{named.path}"
    search = getattr(client, "search_logged_models", None)
    run = client.get_run(named.run_id)
    parent, _, name = named.path.rpartition("/")
    listed = client.list_artifacts(named.run_id, parent or None)
    if any(info.path == named.path for info in listed) or search is None:
        return uri
    query = f"source_run_id = {quote(named.run_id)} AND name = {quote(name)}"
    found = search(experiment_ids=[run.info.experiment_id], filter_string=query)
    return f"models:/{found[0].model_id}" if found else uri


def _version(client: "MlflowClient", named: Named, text: str) -> "ModelVersion":
    if named.alias:
        found = client.get_model_version_by_alias(named.name, named.alias)
        return client.get_model_version(found.name, found.version)
    if named.version.isdecimal():
        return client.get_model_version(named.name, named.version)
    client.get_registered_model(named.name)
    stage = "" if named.version.lower() == LATEST else named.version.lower()
    found = [
        v
        for v in read_pages(client.search_model_versions, f"name = {quote(named.name)}")
        if not stage or str(v.current_stage).lower() == stage
    ]
    if not found:
        hint = "models:/NAME@ALIAS names what an alias is of" if stage else None
        raise SourceError("there is no such version", where=text, hint=hint)
    newest = max(found, key=lambda v: int(v.version))
    return client.get_model_version(newest.name, newest.version)


def read_pages(search: Callable[..., Any], query: str, most: int = PAGE) -> Iterator[Any]:
    """Yield all results of a paged MLflow search."""
    token = None
    while True:
        page = search(filter_string=query, max_results=most, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _name_of(version: "ModelVersion") -> str:
    return f"{as_file(version.name)}/{version.version}"


def _token(version: "ModelVersion") -> str:
    """Return a token that differs between equally named versions of different servers.

    A version never changes its files; what was deleted and made again has another time. When it
    was last touched does not count: tags and descriptions, ours among them, are no other model.
    """
    facts = [version.creation_timestamp, version.source, version.run_id]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
