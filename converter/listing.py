"""List the models of folders and registries, a row for each. No weight is read."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from converter.doctor.host import Host
from converter.doctor.predictions import predict
from converter.doctor.source import Source, read_source
from converter.registries.catalog import open_registry, scheme_of
from converter.registries.entry import Entry
from converter.registries.filters import Filters
from formats.errors import ConvertError
from formats.limits import DEFAULT, Limits


@dataclass(frozen=True, slots=True)
class ListedModel:
    """One model.

    Attributes:
        source: Its path or reference.
        format: Row id of `formats.catalog`; "" if it is not known.
        framework: What wrote it, if that is known.
        version: Version of the framework, where it is recorded.
        bytes: Size of its files; None if the registry does not say.
        tensors: Number of weights.
        devices: Recorded device → number of tensors or nodes.
        loads: Whether its usual loader opens it here: ``yes``, ``no``, ``unknown``, or "" if no
            loader is known or it was not read.
        why: Why not.
        findings: What would run code, or leave the artifact, if it were loaded naively.
        error: Why it cannot be read.
        exit_code: Of that error; 0 without one.
    """

    source: str
    format: str = ""
    framework: str = ""
    version: str = ""
    bytes: int | None = None
    tensors: int | None = None
    devices: Mapping[str, int] = field(default_factory=dict)
    loads: str = ""
    why: str = ""
    findings: tuple[str, ...] = ()
    error: str = ""
    exit_code: int = 0

    def plain(self) -> dict[str, Any]:
        """Return the row as JSON types."""
        return asdict(self)


def list_models(
    references: Iterable[str | os.PathLike[str]], *, limits: Limits = DEFAULT
) -> Iterator[ListedModel]:
    """Yield the models of folders, files, globs and registries, as a batch finds them.

    Local ones are read, without their weights; what is elsewhere is listed as its registry
    describes it. What official loaders do with them is predicted; none is called.

    Raises:
        SourceError: There is no such thing.
        StorageError: A registry cannot be listed.
        DependencyError: A registry needs an extra that is not installed.
    """
    for reference in references:
        for found in open_registry(str(reference), Filters()).find():
            if isinstance(found, Entry):
                yield describe(found, limits)


def describe(entry: Entry, limits: Limits = DEFAULT) -> ListedModel:
    """Return the row of an entry of a registry."""
    path = _display_path(entry.source)
    if scheme_of(entry.source):
        return ListedModel(entry.source, entry.format, bytes=entry.nbytes)
    try:
        source = read_source(entry.source, name=path, limits=limits)
    except ConvertError as e:
        error, code = str(e).replace(entry.source, path), e.exit_code
        return ListedModel(path, entry.format, bytes=entry.nbytes, error=error, exit_code=code)
    framework = source.framework or ""
    listed = ListedModel(
        path,
        source.format,
        framework,
        source.recorded.get(f"{framework}_version", ""),
        entry.nbytes,
        source.tensors,
        source.devices,
        findings=tuple(f"{f.kind}: {f.subject}" for f in source.findings),
    )
    return _predict(listed, source)


def _predict(listed: ListedModel, source: Source) -> ListedModel:
    """Add what the usual loader does here."""
    usual = next(iter(predict(source, _host())), None)
    if usual is None:
        return listed
    if not usual.installed:
        return replace(listed, loads="no", why=f"{usual.framework} is not installed")
    loads = {"loads": "yes", "fails": "no"}.get(usual.outcome, usual.outcome)
    return replace(listed, loads=loads, why=usual.cause.replace("-", " "))


@cache
def _host() -> Host:
    """Return this machine, without importing a framework."""
    from converter.doctor.probes.host import probe_host

    return probe_host("", frameworks=())


def _display_path(source: str) -> str:
    """Return the path of a local entry relative to the current folder, where it is below it."""
    if scheme_of(source):
        return source
    try:
        return str(Path(source).relative_to(Path.cwd()))
    except ValueError:
        return source
