"""Arguments that are references (``s3://…``, ``models:/…``) where commands work on paths.

What a reference names is fetched before a command and is gone after it; what a command makes for
one is put there after it. The command itself knows paths alone, and `said` tells what to call one.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from converter.options import Options
    from converter.registries.entry import Staged

    Given: TypeAlias = Path  # as commands get it
else:
    Given = str  # as it was typed: a path would lose the second slash of s3://

_CALLED: ContextVar[dict[str, str] | None] = ContextVar("_CALLED", default=None)
_KNOWN: ContextVar["dict[str, Staged] | None"] = ContextVar("_KNOWN", default=None)


def is_reference(text: str) -> bool:
    """Tell whether an argument names something that is not a path."""
    if ":" not in text:
        return False
    from converter.registries.catalog import scheme_of

    return scheme_of(text) not in ("", "list")


def fetching(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command's arguments be references: their parameters get paths all the same.

    Args:
        names: Of the parameters, which are annotated as `Given`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def fetched(**given: Any) -> None:
            with ExitStack() as stack:
                stack.callback(_CALLED.reset, _CALLED.set({}))
                stack.callback(_KNOWN.reset, _KNOWN.set({}))
                for name in names:
                    if given.get(name) is not None:
                        given[name] = stack.enter_context(_local(str(given[name])))
                command(**given)

        return fetched

    return decorate


@contextmanager
def output(given: Path | str | None, *, force: bool) -> Iterator[Path | None]:
    """Yield a path for an output, which is put where it belongs when the block ends well.

    Raises:
        StorageError: It cannot be put there.
        UsageError: Something is there, and ``force`` is not given.
    """
    if given is None or not is_reference(str(given)):
        yield None if given is None else Path(given)
        return
    from converter.destinations import upload_one
    from converter.registries.staged import temporary
    from converter.stores.urls import local_path

    reference = str(given)
    if (path := local_path(reference)) is not None:
        yield Path(path)
        return
    upload_one.check(reference, force=force)
    with temporary("convert-output") as folder:
        made = folder / upload_one.name_of(reference)
        _call(made, reference)
        yield made
        if made.exists():  # not so after --dry-run
            upload_one.publish(made, reference)


def said(path: object) -> str:
    """Return what to call a path: the reference that it stands for, or itself."""
    text = str(path)
    return (_CALLED.get() or {}).get(text, text)


@contextmanager
def _local(given: str) -> Iterator[Path]:
    if not is_reference(given):
        yield Path(given)
        return
    from converter.registries.staged import fetched

    with fetched(given) as staged:
        _call(staged.path, given)
        if (known := _KNOWN.get()) is not None:
            known[str(staged.path)] = staged
        yield staged.path


def hinted(options: "Options", source: Path) -> "Options":
    """Return options with what the registry that a source is from knows of its inputs."""
    staged = (_KNOWN.get() or {}).get(str(source))
    if staged is None:
        return options
    from converter.registries import staged as sources

    return sources.hinted(options, staged)


def _call(path: Path, reference: str) -> None:
    from converter.stores.urls import masked

    called = _CALLED.get()
    if called is not None:
        called[str(path)] = masked(reference)
