"""A store for any URL that fsspec supports: s3, gs, abfs, hf, http, sftp, memory, ….

Credentials and endpoints are the libraries' own matter: AWS_ENDPOINT_URL, AWS_PROFILE,
GOOGLE_APPLICATION_CREDENTIALS and the like, and FSSPEC_* variables or ~/.config/fsspec for all of
them. What of fsspec bites is kept away here: listings that it caches, names that it takes for
globs, files opened for writing that commit what they have when their writer fails, and transfers
that hold half a gigabyte in memory.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from converter.stores import errors, s3
from converter.stores.store import Blob, Range
from converter.stores.urls import join, mask_secrets
from formats.errors import ConvertError, SourceError, StorageError, UnsupportedError, UsageError

T = TypeVar("T")

TRIES: Final = 4
PAUSE_SECONDS: Final = 0.3  # before the second try; each further one waits three times as long
S3: Final = ("s3://", "s3a://")
S3FS_TRIES: Final = 2  # around botocore's five; with its own five, a silent server takes minutes
PART_BYTES: Final = 16 << 20  # of a transfer in parts
PARTS_AT_ONCE: Final = 4
RANGES_AT_ONCE: Final = 256
TEMPORARY: Final = ".convert-"

# Where a put is one step: readers see the old bytes or all of the new ones. Anywhere else a file
# is put beside its place, and renamed.
ATOMIC: Final = frozenset((
    "abfs", "abfss", "adl", "az", "cos", "gcs", "gs", "hf", "memory", "obs", "oci", "oss", "r2",
    "s3", "s3a", "tos",
))  # fmt: skip
_STATES: Final = (
    "ETag", "etag", "VersionId", "version_id", "generation", "md5Hash", "checksum", "blob_id",
    "content_md5", "LastModified", "last_modified", "updated", "mtime", "modified", "created",
)  # fmt: skip


def open_store(url: str) -> "FsspecStore":
    """Open a store, without connecting to it.

    Raises:
        DependencyError: Its package is not installed.
        StorageError: It cannot be opened.
        UnsupportedError: It is chained (``simplecache::s3://``).
        UsageError: Nobody knows such URLs.
    """
    if "::" in url:
        raise UnsupportedError("not supported: chained URLs", where=mask_secrets(url))
    try:
        import fsspec

        more = s3.options(url.partition(":")[0])
        fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False, **more)
    except ImportError as e:
        raise errors.make_missing_error(url, e) from e
    except ValueError as e:
        if "Protocol not known" in str(e):
            raise UsageError(
                f"nobody knows {url.partition(':')[0]}://", where=mask_secrets(url)
            ) from e
        raise errors.translate_error(e, url) from e
    except Exception as e:  # whatever a package does when it cannot begin
        raise errors.translate_error(e, url) from e
    if url.startswith(S3):
        fs.retries = S3FS_TRIES
    return FsspecStore(fs, root, url)


def package_of(url: str) -> str | None:
    """Return the module that reaches a URL, to be imported before processes are forked.

    Importing it opens nothing and starts no thread. None if it is not installed.
    """
    try:
        from fsspec.registry import known_implementations
    except ImportError:
        return None
    row = known_implementations.get(url.partition(":")[0])
    return None if row is None else str(row["class"]).rpartition(".")[0]


class FsspecStore:
    """A URL of a file system of fsspec."""

    def __init__(self, fs: Any, root: str, url: str) -> None:
        self._fs = fs
        self._root = root.rstrip("/")
        self._url = url
        self._scheme = url.partition(":")[0]

    @property
    def url(self) -> str:
        """The URL without secrets."""
        return mask_secrets(self._url)

    def find(self, under: str = "", *, starting: str = "") -> list[Blob]:
        """Return all blobs below a name, sorted; empty if there is none."""
        path = self._path(under)
        begin = f"{path}/" if path else ""

        def ask() -> Iterable[tuple[str, Any]]:
            if starting:
                more = {"prefix": starting} if self._scheme in ("s3", "s3a", "gs", "gcs") else {}
                found = self._fs.find(path, maxdepth=1, detail=True, **more)
            else:
                found = self._fs.find(path, detail=True)
            return [(name, info) for name, info in found.items() if info.get("type") == "file"]

        blobs = []
        for full, info in self._call(under, ask, ()):
            name = full[len(begin) :] if full.startswith(begin) else ""
            if name and not name.endswith("/") and name.startswith(starting):
                blobs.append(_blob(f"{under}/{name}" if under else name, info))
        return sorted(blobs, key=lambda b: b.name)

    def stat(self, name: str = "") -> Blob | None:
        """Return the blob of exactly this name; None for a folder or nothing."""
        info = self._call(name, lambda: self._fs.info(self._path(name)), None)
        if info is None or info.get("type") != "file":
            return None
        return _blob(name, info)

    def read(self, ranges: Sequence[Range]) -> list[bytes | None]:
        """Return ranges of many blobs, read concurrently; None for one that cannot be read."""
        found: list[bytes | None] = []
        rest = iter(ranges)
        while some := list(islice(rest, RANGES_AT_ONCE)):
            read = self._call("", lambda: self._ranges(some))
            for one, data in zip(some, read, strict=True):
                found.append(data if isinstance(data, bytes) else self._read_again(one, data))
        return found

    def _ranges(self, some: Sequence[Range]) -> list[Any]:
        """Return the bytes of each range, or the exception."""
        paths = [self._path(r.name) for r in some]
        begins, ends = [r.start for r in some], [r.end for r in some]
        return list(self._fs.cat_ranges(paths, begins, ends, on_error="return"))

    def _read_again(self, one: Range, e: BaseException) -> bytes | None:
        """Retry one range; None where its blob cannot be read."""
        if isinstance(e, FileNotFoundError | PermissionError):
            return None
        path = self._path(one.name)
        data = self._call(one.name, lambda: self._fs.cat_file(path, one.start, one.end), None)
        return None if data is None else bytes(data)

    def get(self, blob: Blob, path: Path) -> None:
        """Write a blob to a local file."""
        full = self._path(blob.name)
        where = mask_secrets(join(self._url, blob.name))
        more = {"chunksize": PART_BYTES, "max_concurrency": PARTS_AT_ONCE} if self._is_s3 else {}
        try:
            self._retry(lambda: self._fs.get_file(full, str(path), **more))
            written = path.stat().st_size
        except FileNotFoundError as e:
            raise SourceError("is not there any more", where=where) from e
        except Exception as e:
            path.unlink(missing_ok=True)
            if errors.is_local(e) and isinstance(e, OSError):
                raise StorageError.writing(path, e) from e
            raise errors.translate_error(e, where) from e
        if written != blob.nbytes:
            path.unlink(missing_ok=True)
            raise SourceError(f"{written} bytes came", expected=f"{blob.nbytes}", where=where)

    def put(self, path: Path, name: str) -> Blob:
        """Upload a local file atomically: on an error the name keeps its former content."""
        full = self._path(name)
        try:
            if self._scheme in ATOMIC:
                self._retry(lambda: self._put_file(path, full))
            else:
                self._retry(lambda: self._put_beside(path, full))
        except Exception as e:
            raise errors.translate_error(e, join(self._url, name)) from e
        blob = self.stat(name)
        if blob is None or blob.nbytes != path.stat().st_size:
            with suppress(ConvertError):  # rather nothing than half of it
                self.remove([name])
            arrived = "nothing" if blob is None else f"{blob.nbytes} bytes"
            raise StorageError(f"{arrived} arrived", where=mask_secrets(join(self._url, name)))
        return blob

    def remove(self, names: Iterable[str]) -> None:
        """Remove blobs; missing ones are not an error."""
        for name in names:
            self._call(name, partial(self._fs.rm_file, self._path(name)), None)

    def sweep(self, name: str) -> None:
        """Abort unfinished multipart uploads of a name, which are billed and not listed."""
        if self._is_s3:
            with suppress(Exception):  # not every S3 has these, and not everyone may list them
                self._abort_uploads(name)
        elif self._scheme not in ATOMIC:
            folder, _, last = name.rpartition("/")
            found = self.find(folder, starting=f".{last}{TEMPORARY}")
            self.remove(blob.name for blob in found)

    @property
    def _is_s3(self) -> bool:
        return self._url.startswith(S3)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name and self._root else self._root or name

    def _put_file(self, path: Path, full: str) -> None:
        more = {"chunksize": PART_BYTES, "max_concurrency": PARTS_AT_ONCE} if self._is_s3 else {}
        self._fs.put_file(str(path), full, **more)

    def _put_beside(self, path: Path, full: str) -> None:
        folder, _, last = full.rpartition("/")
        aside = f"{folder}/.{last}{TEMPORARY}{os.urandom(4).hex()}"
        try:
            self._fs.makedirs(folder, exist_ok=True)
            self._fs.put_file(str(path), aside)
            self._fs.mv(aside, full)
        except BaseException:
            with suppress(Exception):
                self._fs.rm_file(aside)
            raise

    def _abort_uploads(self, name: str) -> None:
        bucket, _, key = self._path(name).partition("/")
        found = self._fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key)
        for one in found.get("Uploads") or ():
            if one["Key"] == key or one["Key"].startswith(f"{key}/"):
                self._fs.call_s3(
                    "abort_multipart_upload",
                    Bucket=bucket, Key=one["Key"], UploadId=one["UploadId"],
                )  # fmt: skip

    def _call(self, name: str, ask: Callable[[], T], absent: Any = StorageError) -> T:
        """Return the answer, or ``absent`` for a missing name."""
        try:
            return self._retry(ask)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as e:
            error = errors.translate_error(e, join(self._url, name))
            if absent is StorageError or error.found != "not found":
                raise error from e
            return absent  # type: ignore[no-any-return]
        except Exception as e:
            raise errors.translate_error(e, join(self._url, name)) from e

    def _retry(self, act: Callable[[], T]) -> T:
        """Retry a call after a transient error."""
        pause = PAUSE_SECONDS
        for _ in range(TRIES - 1):
            try:
                return act()
            except Exception as e:
                if not errors.is_transient(e):
                    raise
            time.sleep(pause)
            pause *= 3
        return act()


def _blob(name: str, info: dict[str, Any]) -> Blob:
    size = info.get("size")
    return Blob(name, 0 if size is None else int(size), _token(info))


def _token(info: dict[str, Any]) -> str:
    """Return a short token of a blob's state: ETag, checksum or time.

    One fact decides, the best that the store has: a listing and a look at one name do not tell
    all the same ones.
    """
    for key in _STATES:
        value = info.get(key)
        if value not in (None, "", "null"):
            value = value.timestamp() if hasattr(value, "timestamp") else value
            text = f"{value:.6f}" if isinstance(value, float) else str(value)
            text = text.strip('"')
            short = text if len(text) <= 40 else sha256(text.encode()).hexdigest()[:32]
            return f"{info.get('size')}-{short}"
    return ""
