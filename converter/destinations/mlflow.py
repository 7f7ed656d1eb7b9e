"""MLflow as destination: outputs become versions of registered models of their own.

``models:/{name}_portable``: each model gets a converted model, and each version a version of it.
Consumers that follow an alias or the latest version of the source are not affected; the converted
model is requested by its own name. Tags of both versions record the conversion, so that an existing
one is found even without a ledger.

Aliases follow those of the source if the conversion was verified: when it is registered, and, for
aliases that were moved since, when a batch begins.
"""

import string
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from converter.destinations import mlflow_model, mlflow_register
from converter.destinations.mlflow_register import KEY, TARGET
from converter.destinations.protocol import GONE, Destination, Published, Recalled
from converter.destinations.uploaded import Uploaded
from converter.jobs.job import Job
from converter.jobs.record import Record, RecordedVerification
from converter.options import LEVELS
from converter.registries.entry import Staged
from converter.registries.mlflow import read_pages
from converter.registries.mlflow_names import make_registered_name, parse, reference
from converter.registries.mlflow_server import connect, reach, translate_errors
from converter.version import VERSION
from formats import portable
from formats.containers import jsontext
from formats.core import digests
from formats.core.storage import File, Span
from formats.errors import UsageError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

OF: Final = "convert.of"  # tag of a registered model: whose conversions it holds
VERIFIED: Final = "convert.verification"
PASSED: Final = "passed"
NAME: Final = "convert.name"  # of the output in a ledger
STATE: Final = "convert.source_state"  # of the source, as its registry gave it then
# What must be verified for an alias to be moved, where nothing is required: the graph has run
# beside its source. With less than that, the first user of the alias would run it untested.
USUAL_LEVEL: Final = "cpu"
EXPECTED: Final = "models:/{name}_portable"


class Registered(Uploaded):
    """Registered models by a template."""

    def __init__(self, template: str) -> None:
        self._template = template

    @cached_property
    def _client(self) -> "MlflowClient":
        return connect()

    def prepare(self) -> None:
        """Connect to the server, and update aliases to those of the sources."""
        reach(self._client)
        with translate_errors("models:/"):
            self._follow()

    def find_damage(self, name: str, record: Record) -> str:
        """Return whether the version was deleted or its tags were changed."""
        del name
        found = self._registered.get(str(record.output))
        if found is None:
            return GONE
        known = {"convert.source_digest": record.source_digest, "convert.plan": record.plan}
        lost = [tag for tag, value in known.items() if found.get(tag) != value]
        return f"its tag {lost[0]} was changed" if lost else ""

    def exists(self, name: str) -> bool:
        """Return False: tags identify our versions, and a version never replaces another."""
        del name
        return False

    def flush(self) -> None:
        """Do nothing: a registered version is durable."""

    def sweep(self, name: str) -> bool:
        """Return True: an upload that was not registered is not a model."""
        del name
        return True

    def recall(self, known: frozenset[str]) -> Iterable[Recalled]:
        """Return the conversions that tags describe, the newest of each source."""
        newest: dict[str, Recalled] = {}
        order = sorted(self._registered.items(), key=lambda v: int(v[0].rpartition("/")[2]))
        for output, tags in order:
            source, name = tags.get(KEY[0], ""), tags.get(NAME, "")
            target = self._called(parse(source).name if _is_mlflow(source) else _plain(name))
            if name and name not in known and output.rpartition("/")[0] == f"models:/{target}":
                newest[source] = _note(source, name, output, tags)
        return newest.values()

    def publish(self, made: Path, job: Job, staged: Staged, record: Record) -> Published:
        """Register the output unless it is registered; tag its source and move aliases."""
        folder = mlflow_model.arrange(made, made.with_name("registered"))
        target, of = self._target(job, staged)
        is_verified = _is_verified(job, record)
        tags = {
            "convert.source_uri": job.source,
            "convert.source_digest": str(record.source_digest),
            "convert.digest": _digest(folder),
            "convert.plan": job.plan,
            "convert.format": job.options.to,
            "convert.reached": record.verification.reached,
            VERIFIED: PASSED if is_verified else "skipped",
            "convert.tool_version": VERSION,
            TARGET: target,
            NAME: job.name,
            STATE: job.token,
        }
        client = self._client
        with translate_errors(f"models:/{target}"):
            version = mlflow_register.find_existing(client, target, tags)
            if version is None:
                _ensure(client, target, of, force=job.options.overwrite)

                def describe(decided: dict[str, str]) -> Path:
                    mlflow_model.describe(folder, staged, record, decided)
                    return folder

                origin = mlflow_register.origin_of(client, staged.facts)
                version = mlflow_register.register(client, target, tags, origin, describe)
            elif is_verified:  # by now: then it was registered without
                for key in (VERIFIED, "convert.reached"):
                    if version.tags.get(key) != tags[key]:
                        client.set_model_version_tag(target, version.version, key, tags[key])
            output = reference(target, version.version)
            warnings = mlflow_model.describe_parts(folder)
            if staged.facts.get("version") is not None:
                _link(client, staged, job, output)
                reached = None if is_verified else record.verification.reached
                warnings += _move_aliases(client, staged, version, reached)
        return Published(output, warnings=warnings)

    def _target(self, job: Job, staged: Staged) -> tuple[str, str]:
        """Return the registered model of an output, and its source.

        Raises:
            UsageError: It would be the source's own.
        """
        own = staged.facts.get("name") if staged.facts.get("registry") == "mlflow" else None
        if isinstance(own, str):
            target = self._called(own)
            if target == own:
                raise UsageError(
                    f"{job.destination} is the source's own model", expected=EXPECTED,
                    where=job.source,
                )  # fmt: skip
            return target, own
        return self._called(_plain(job.name)), job.source

    def _called(self, name: str) -> str:
        return self._template.replace("{name}", name)

    def _follow(self) -> None:
        """Update the aliases of converted versions to those of their sources."""
        query = f"tags.`{VERIFIED}` = '{PASSED}' AND tags.`{KEY[0]}` LIKE 'models:/%'"
        made: dict[str, dict[str, ModelVersion]] = {}
        for version in read_pages(self._client.search_model_versions, query):
            source = parse(version.tags[KEY[0]])
            if version.name != self._called(source.name):
                continue
            by_version = made.setdefault(source.name, {})
            older = by_version.get(source.version)
            if older is None or int(older.version) < int(version.version):
                by_version[source.version] = version
        for name, by_version in made.items():
            try:
                wanted = self._client.get_registered_model(name).aliases
            except Exception as e:
                if getattr(e, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
                    continue  # the source is gone; its conversions stay as they are
                raise
            here = self._client.get_registered_model(self._called(name)).aliases
            for alias, number in wanted.items():
                found = by_version.get(str(number))
                if found is not None and str(here.get(alias)) != str(found.version):
                    self._client.set_registered_model_alias(found.name, alias, found.version)

    @cached_property
    def _registered(self) -> Mapping[str, Mapping[str, str]]:
        """The tags of all versions that are conversions, by reference; requested once."""
        with translate_errors("models:/"):
            found = read_pages(self._client.search_model_versions, "tags.`convert.plan` LIKE '%'")
            return {reference(v.name, v.version): v.tags for v in found if v.status == "READY"}


def open_destination(reference: str) -> Destination:
    """Open registered models by a template.

    Raises:
        UsageError: It is malformed.
        DependencyError: MLflow is not installed.
    """
    template = reference.removeprefix("models:").removeprefix("/")
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(template)]
    except ValueError:
        fields = []
    if [f for f in fields if f is not None] != ["name"] or "/" in template or ":" in template:
        raise UsageError(f"out={reference!r}", expected=EXPECTED)
    if "{name}" not in template or "@" in template:
        raise UsageError(f"out={reference!r}", expected=EXPECTED)
    connect()
    return Registered(template)


def _is_mlflow(source: str) -> bool:
    return source.startswith("models:/")


def _plain(name: str) -> str:
    """Return the model name for a source that is not in MLflow: the name of its output."""
    return make_registered_name(str(PurePosixPath(name).with_suffix("")))


def _note(source: str, name: str, output: str, tags: Mapping[str, str]) -> Recalled:
    """Return the tags that describe a conversion."""
    plan = tags.get("convert.plan", "")
    record = Record(
        source,
        name,
        output=output,
        plan=plan,
        to=tags.get("convert.format", ""),
        status="done",
        exit_code=0,
        source_digest=tags.get("convert.source_digest"),
        verification=RecordedVerification(tags.get("convert.reached", "none")),
        tool=tags.get("convert.tool_version", ""),
    )
    return Recalled(name, source, plan, tags.get(STATE, ""), record)


def _is_verified(job: Job, record: Record) -> bool:
    """Return whether the verification reached the level that was required, or that aliases need."""
    needed = job.options.require or USUAL_LEVEL
    return LEVELS.index(record.verification.reached) >= LEVELS.index(needed)


def _digest(folder: Path) -> str:
    """Return the digest of an output, without the files that MLflow adds."""
    manifest = folder / portable.MANIFEST
    if manifest.is_file():
        text = manifest.read_bytes()
        found: Any = jsontext.parse(text, where=str(manifest), limit=max(len(text), 1))
        return f"{found['digest']['algorithm']}:{found['digest']['value']}"
    resources = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        file = File(path)
        digest = digests.of_span(Span.whole(file))
        resources.append(portable.Resource(path.relative_to(folder).as_posix(), file.size, digest))
        file.close()
    made = portable.files_digest(resources)
    return f"{made['algorithm']}:{made['value']}"


def _ensure(client: "MlflowClient", target: str, of: str, *, force: bool) -> None:
    """Create a registered model unless it exists; MLflow's exceptions are not translated.

    Raises:
        UsageError: It is there, and is not for conversions of this source.
    """
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(target, tags={OF: of})
    except MlflowException as e:
        if e.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    else:
        return
    found = client.get_registered_model(target).tags.get(OF)
    if found != of and not force:
        what = "not convert's" if found is None else f"for conversions of {found}"
        raise UsageError(
            f"models:/{target} is there, and is {what}",
            hint="Choose another template, or add versions to it: overwrite=True",
        )


def _link(client: "MlflowClient", staged: Staged, job: Job, output: str) -> None:
    """Tag the source's version with its conversion."""
    name, version = str(staged.facts["name"]), str(staged.facts["version"])
    key = f"convert.{job.options.to}"
    if client.get_model_version(name, version).tags.get(key) != output:
        client.set_model_version_tag(name, version, key, output)


def _move_aliases(
    client: "MlflowClient", staged: Staged, version: "ModelVersion", reached: str | None
) -> tuple[str, ...]:
    """Set the source's aliases on a verified conversion.

    Args:
        client: Of the server.
        staged: The source.
        version: The conversion.
        reached: The level that is too low; None where the conversion is verified.

    Returns:
        Warnings.
    """
    name, number = str(staged.facts["name"]), str(staged.facts["version"])
    aliases = [str(alias) for alias in client.get_model_version(name, number).aliases]
    if not aliases:
        return ()
    if reached is not None:
        moved = ", ".join(sorted(aliases))
        return (f"alias {moved} was not moved: verified is {reached} alone",)
    here = client.get_registered_model(version.name).aliases
    for alias in aliases:
        if str(here.get(alias)) != str(version.version):
            client.set_registered_model_alias(version.name, alias, version.version)
    return ()
