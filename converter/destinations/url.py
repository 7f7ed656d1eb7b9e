"""An object store, or any file system of fsspec, as destination: made locally, then uploaded.

Beside the outputs, ``.convert/NAME.json`` says of each one whose it is: before its upload that it
is ours, so that what a killed run has left may be replaced; afterwards all that the ledger has of
it, so that another machine, with no ledger, knows what is done.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from converter.destinations.folder import Folder
from converter.destinations.protocol import Destination, Published, Recalled
from converter.destinations.upload import check_free, find_damage, remove_partial, upload
from converter.destinations.uploaded import Uploaded
from converter.jobs.job import Job
from converter.jobs.record import Record
from converter.registries.entry import Staged
from converter.stores import urls
from converter.stores.fsspec_store import open_store
from converter.stores.store import Blob, Range
from formats.errors import StorageError

NOTES: Final = ".convert"
ABOUT: Final = f"{NOTES}/about.json"
NOTES_AT_ONCE: Final = 64
NOTE_BYTES: Final = 16 << 20  # of one note; they hold a record each


class Remote(Uploaded):
    """The outputs below a URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._store = open_store(url)
        self._found: dict[str, Blob] | None = None

    def prepare(self) -> None:
        """Check that it is writable, by writing the file that explains the notes."""
        self._write(ABOUT, {"what": "notes of `convert batch` on the outputs beside this folder"})

    def find_damage(self, name: str, record: Record) -> str:
        """Return how the output differs from the recorded one; all outputs share one listing."""
        files = record.published
        return find_damage(name, {k: (v[0], v[1]) for k, v in files.items()}, self._listing)

    def exists(self, name: str) -> bool:
        """Return False: notes identify our outputs."""
        del name
        return False

    def flush(self) -> None:
        """Do nothing: an uploaded object is durable."""

    def sweep(self, name: str) -> bool:
        """Remove a killed worker's partial upload; return whether none is left."""
        try:
            if self._store.stat(self._note(name)) is not None:
                remove_partial(self._store, name)
        except StorageError:
            return False
        return True

    def publish(self, made: Path, job: Job, staged: Staged, record: Record) -> Published:
        """Upload the output and its note."""
        del staged
        note = self._note(job.name)
        is_free = not job.options.overwrite and self._store.stat(note) is None
        if is_free:
            check_free(self._store, job.name)
        about = {"name": job.name, "source": job.source, "plan": job.plan, "token": job.token}
        self._write(note, about | {"record": None})
        files = upload(self._store, made, job.name, is_free=is_free)
        output = urls.join(self._store.url, job.name)
        kept = replace(record, status="done", exit_code=0, output=output, published=files)
        self._write(note, about | {"record": kept.to_json()})
        return Published(output, files)

    def recall(self, known: frozenset[str]) -> Iterator[Recalled]:
        """Yield the notes of complete outputs that a ledger does not know.

        Args:
            known: Names that the ledger knows.

        Raises:
            StorageError: The store cannot be listed.
        """
        ours = {self._note(name) for name in known} | {ABOUT}
        notes = [b for n, b in self._listing.items() if n.startswith(f"{NOTES}/") and n not in ours]
        wanted = iter([Range(b.name, 0, b.nbytes) for b in notes if 0 < b.nbytes <= NOTE_BYTES])
        while some := list(islice(wanted, NOTES_AT_ONCE)):
            for data in self._store.read(some):
                with suppress(ValueError, TypeError, KeyError, AttributeError, IndexError):
                    note = json.loads(data or b"")  # it may be anything
                    if not note["record"]:  # its upload did not end
                        continue
                    record = Record.from_json(note["record"])
                    if not self.find_damage(note["name"], record):
                        yield Recalled(
                            note["name"], note["source"], note["plan"], note["token"], record
                        )

    @staticmethod
    def _note(name: str) -> str:
        return f"{NOTES}/{name}.json"

    @property
    def _listing(self) -> dict[str, Blob]:
        if self._found is None:
            self._found = {blob.name: blob for blob in self._store.find()}
        return self._found

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            self._store.put(Path(file.name), name)


def open_destination(reference: str) -> Destination:
    """Open a URL for outputs.

    Raises:
        DependencyError: Its package is not installed.
        UnsupportedError: Nothing can be put there.
        UsageError: It holds a password, or its scheme is unknown.
    """
    urls.check(reference)
    urls.check_writable(reference)
    if (path := urls.local_path(reference)) is not None:
        return Folder(Path(path))
    return Remote(reference)
