"""Upload an output into a store; the file that marks it complete goes last.

A file is one put, which a store does whole or not at all. Of a folder the marker, such as
`manifest.json`, is put when all else is there, and an old one is removed before anything is
replaced. A reader that looks at the marker first sees the old output, then none, then the new one.
A reader of the old one while it is replaced may find files of it missing or new, as in any store
without transactions.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from converter.destinations.protocol import GONE, differs
from converter.stores import urls
from converter.stores.store import Blob, Store
from formats.errors import ConvertError, UsageError

FILES_AT_ONCE: Final = 4
MARKERS: Final = ("manifest.json", "convert.json", "config.pbtxt", "saved_model.pb")
INDEX: Final = ".index.json"

# What is there afterwards, as JSON has it: [size, state] by names below the output's own; "" is a
# file itself.
Published: TypeAlias = dict[str, Any]


def check_free(store: Store, name: str) -> None:
    """Raise UsageError where the output exists already."""
    if store.stat(name) is not None or store.find(name):
        raise UsageError(
            "already exists",
            where=urls.join(store.url, name),
            hint="Choose another out=, or replace it: overwrite=True",
        )


def upload(store: Store, made: Path, name: str, *, is_free: bool = False) -> Published:
    """Upload an output and remove the other files below its URL.

    Where that fails, nothing is left that looks complete.

    Args:
        store: Where.
        made: The output, here.
        name: Its place.
        is_free: Whether it has just been seen that nothing is there, nor ever was begun by us.

    Raises:
        StorageError: It cannot be put there.
    """
    old: list[str] = []
    if not is_free:
        store.sweep(name)
        old = [blob.name for blob in store.find(name)]
    if not made.is_dir():
        blob = store.put(made, name)
        store.remove(old)
        return {"": [blob.nbytes, blob.token]}
    files = sorted(p.relative_to(made).as_posix() for p in made.rglob("*") if p.is_file())
    marker = find_marker(files)
    if not is_free and store.stat(name) is not None:
        store.remove([name])
    store.remove(n for n in old if n == f"{name}/{marker}")
    try:
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            rest = [n for n in files if n != marker]
            blobs = list(pool.map(lambda n: store.put(made / n, f"{name}/{n}"), rest))
        store.remove(set(old) - {f"{name}/{n}" for n in files})
        blobs.append(store.put(made / marker, f"{name}/{marker}"))
    except ConvertError:
        with suppress(ConvertError):
            store.remove(f"{name}/{n}" for n in files)
        raise
    return _published(name, blobs)


def find_marker(files: Sequence[str]) -> str:
    """Return the file of an output that is uploaded last."""
    found = [m for m in MARKERS if m in files] + [n for n in files if n.endswith(INDEX)]
    return found[0] if found else files[-1]


def remove_partial(store: Store, name: str) -> None:
    """Remove what a killed upload left: a folder's files without a marker.

    Raises:
        StorageError: They cannot be removed.
    """
    store.sweep(name)
    files = [blob.name[len(name) + 1 :] for blob in store.find(name)]
    if not any(n in MARKERS or n.endswith(INDEX) for n in files):
        store.remove(f"{name}/{n}" for n in files)


def find_damage(name: str, published: Published, found: dict[str, Blob]) -> str:
    """Return how an output differs from the recorded one; "" where it does not.

    Args:
        name: Its own.
        published: What `upload` returned then.
        found: What is in the store, by name.
    """
    for inside, (nbytes, token) in published.items():
        blob = found.get(f"{name}/{inside}" if inside else name)
        if blob is None:
            return f"{inside} is gone" if inside else GONE
        if blob.nbytes != nbytes:
            return differs(inside, nbytes, blob.nbytes)
        if token and token != blob.token:
            return f"{inside} was replaced" if inside else "was replaced"
    return "" if published else GONE


def _published(name: str, blobs: Sequence[Blob]) -> Published:
    return {b.name[len(name) + 1 :]: [b.nbytes, b.token] for b in blobs}
