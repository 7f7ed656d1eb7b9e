"""Upload the output of a single conversion to a URL."""

from pathlib import Path

from converter.destinations.upload import check_free, upload
from converter.registries.catalog import scheme_of
from converter.registries.sparse_copies import fits
from converter.stores import urls
from converter.stores.fsspec_store import open_store
from formats.errors import UsageError


def check(reference: str, *, force: bool) -> None:
    """Raise, before a conversion, if its output could not be uploaded there.

    Raises:
        DependencyError: The package of such URLs is not installed.
        StorageError: It cannot be reached.
        UnsupportedError: Nothing can be put there.
        UsageError: It is no URL of a file or folder, or something is there and may not be replaced.
    """
    scheme = scheme_of(reference)
    if scheme in ("models", "runs"):
        raise UsageError(
            f"out={reference!r} for one artifact",
            expected="a path or a URL",
            hint=f"`convert batch` takes out={reference!r}",
        )
    if not fits(name_of(reference)) or urls.parent(reference) == reference:
        raise UsageError(f"out={urls.mask_secrets(reference)!r}", expected="a name below a bucket")
    urls.check_writable(reference)
    store = open_store(urls.parent(reference))
    if not force:
        check_free(store, name_of(reference))


def name_of(reference: str) -> str:
    """Return the output's name."""
    return urls.last(reference)


def publish(made: Path, reference: str) -> None:
    """Upload an output.

    Raises:
        StorageError: It cannot be put there; nothing is left that looks complete.
    """
    upload(open_store(urls.parent(reference)), made, name_of(reference))
