"""Turn sources into local paths before reading, and upload outputs after writing.

A reference is a URL (``s3://bucket/model``) or an entry of a registry (``models:/name/3``);
everything else is a path. A folder that is no artifact itself stands for the model in it.
`converter.registries` and `converter.destinations` do the work; they are imported only where they
are needed.
"""

import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import TYPE_CHECKING, Self

from converter.options import Options
from formats import catalog
from formats.artifact import Artifact
from formats.core.storage import File
from formats.errors import ConvertError, UnknownFormatError, UsageError

if TYPE_CHECKING:
    from converter.registries.entry import Staged

MLFLOW = "MLmodel"  # the file that says which of an MLflow folder's files is the model
NAMED = 5  # models of a folder that a message names


def is_reference(text: str | os.PathLike[str]) -> bool:
    """Return whether a source or an output is a reference, not a path."""
    if not isinstance(text, str) or ":" not in text:
        return False
    from converter.registries.catalog import scheme_of

    return scheme_of(text) not in ("", "list")


def display_name(source: str | os.PathLike[str]) -> str:
    """Return the name of a source or an output for messages, without secrets in URLs."""
    if not is_reference(source):
        return str(source)
    from converter.stores.urls import mask_secrets

    return mask_secrets(str(source))


def is_uploaded(out: str | os.PathLike[str] | None) -> bool:
    """Return whether an output is uploaded; a ``file://`` URL is written in place."""
    if out is None or not is_reference(out):
        return False
    from converter.stores.urls import local_path

    return local_path(str(out)) is None


def locate_model(path: str | os.PathLike[str]) -> Path:
    """Return the path of a source; for a folder with exactly one model in it, that of the model.

    Raises:
        UnknownFormatError: It is a folder with no model in it, or with several.
        UsageError: It is ``-``, standard input.
    """
    if str(path) == "-":
        raise UsageError(
            "standard input is not read: weights stay in their file until they are written",
            where="-",
            hint="Save it to a file, and convert that",
        )
    path = Path(path)
    if not _exists(path.is_dir):
        return path
    try:
        catalog.detect(Artifact(path))
    except UnknownFormatError as unknown:
        return _find_only_model(path, unknown)
    return path


def _exists(look: Callable[[], bool]) -> bool:
    """Return what a look at a path says; False for a name that no file can have."""
    try:
        return look()
    except (OSError, ValueError):
        return False


def _find_only_model(folder: Path, unknown: UnknownFormatError) -> Path:
    """Return the path of the only model in a folder, at any depth."""
    from converter.registries.entry import Entry
    from converter.registries.filters import Filters
    from converter.registries.folders import LocalFolder

    found = (one for one in LocalFolder(folder, Filters()).find() if isinstance(one, Entry))
    models = list(islice(found, NAMED + 1))
    if not models:
        raise unknown
    if len(models) == 1:
        return folder / os.path.relpath(models[0].source, folder.absolute())
    names = ", ".join(model.name for model in models[:NAMED])
    raise UnknownFormatError(
        f"is a folder with several models: {names}" + (", …" if len(models) > NAMED else ""),
        where=folder,
        expected="one model",
        hint=f"`convert ls {quote(str(folder))}` lists them all, and `convert batch "
        f"{quote(str(folder))} -o OUT` converts them all",
    )


class Source:
    """A source as a local path; a context manager.

    Fetched files are removed when the block ends, or after `keep_with` when the last of them is no
    longer used.

    Attributes:
        path: The local path.
        name: The path or reference as given, without secrets.
    """

    __slots__ = ("__weakref__", "_given", "_is_kept", "_remove", "_staged", "name", "path")

    def __init__(self, source: str | os.PathLike[str], *, is_one: bool = True) -> None:
        """Fetch a source that is a reference, and find the model of a folder.

        Args:
            source: Path or reference.
            is_one: Whether it is one artifact; otherwise a folder is taken with all that is in it.

        Raises:
            SourceError: It does not exist, or is a folder with no model or with several.
            UsageError: It is standard input.
            StorageError: It cannot be fetched.
            DependencyError: Its registry needs an extra that is not installed.
        """
        self._given = str(source)
        self._staged: Staged | None = None
        self._is_kept = False
        is_staged = is_reference(source) or (is_one and _exists(Path(source, MLFLOW).is_file))
        self.path = locate_model(source) if is_one and not is_staged else Path(source)
        self.name = display_name(source if is_staged else self.path)
        if is_staged:
            from converter.registries.catalog import stage
            from converter.registries.staged import temporary

            with ExitStack() as stack:
                folder = stack.enter_context(temporary("convert-source"))
                self._staged = stage(self._given, folder)
                self.path = self._staged.path
                self._remove = weakref.finalize(self, stack.pop_all().close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._staged is None:
            return
        if not self._is_kept:
            self._remove()
        if isinstance(error, ConvertError) and (error.where or "").startswith(str(self.path)):
            error.where = self.name + str(error.where)[len(str(self.path)) :]

    def complete(self, options: Options) -> Options:
        """Return options completed with inputs, example and checkpoint from the registry."""
        if self._staged is None:
            return options
        from converter.registries.staged import add_hints

        return add_hints(options, self._staged)

    def keep_with(self, files: Iterable[File]) -> None:
        """Keep fetched data as long as these files are in use: weights are read from them later."""
        self._is_kept = True
        for file in files:
            file.owner = self


@contextmanager
def output(
    out: str | os.PathLike[str] | None, *, overwrite: bool
) -> Iterator[str | os.PathLike[str] | None]:
    """Yield a local path for an output, and upload it when the block ends without an error.

    Raises:
        StorageError: It cannot be uploaded.
        UsageError: The destination exists, and ``overwrite`` is False.
    """
    if out is None or not is_reference(out):
        yield out
        return
    from converter.destinations import upload_one
    from converter.registries.staged import temporary
    from converter.stores.urls import local_path

    reference = str(out)
    if not is_uploaded(reference):
        yield local_path(reference)
        return
    upload_one.check(reference, force=overwrite)
    with temporary("convert-output") as folder:
        made = folder / upload_one.name_of(reference)
        yield made
        if made.exists():  # a dry run writes nothing
            upload_one.publish(made, reference)
