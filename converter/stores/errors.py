"""Errors of stores, described in one line, whatever library raised them.

They are recognised by their names, so that none of those libraries is imported.
"""

import errno
import re

from converter.extras import describe_install
from converter.stores.urls import mask_secrets
from formats.errors import ConvertError, DependencyError, StorageError

_BUCKET = re.compile(r"(?i)\bspecified bucket\b|\bHeadBucket operation\b")
LONGEST = 300  # characters of a library's own words

# Of botocore, google.auth and azure.identity, by the name of the class or of one that it is.
_CREDENTIALS = frozenset(
    {
        "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "SSOError",
        "TokenRetrievalError", "ProfileNotFound", "GoogleAuthError", "ClientAuthenticationError",
    }
)  # fmt: skip
_UNREACHABLE = frozenset(
    {
        "EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError",
        "ProxyConnectionError",
        "ConnectionClosedError", "HTTPClientError", "SSLError", "FSTimeoutError",
        "ClientConnectionError", "ClientPayloadError", "ServerTimeoutError", "IncompleteReadError",
        "ResponseStreamingError",
    }
)  # fmt: skip
_TRIED = frozenset(
    {
        "EndpointConnectionError", "ProxyConnectionError", "ClientConnectorError",
        "ConnectTimeoutError", "ReadTimeoutError", "FSTimeoutError", "ServerTimeoutError",
    }
)  # fmt: skip
_FULL = (errno.ENOSPC, errno.EDQUOT)
_OURS = (*_FULL, errno.EROFS, errno.ENAMETOOLONG, errno.EMFILE)  # of this machine's own disk
_PASSING = (errno.EBUSY, errno.EREMOTEIO, errno.EIO, errno.EAGAIN, errno.ECONNRESET, errno.EPIPE)
_HINTS = {
    "s3": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; "
    "FSSPEC_S3_ANON=true for a public bucket",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS; FSSPEC_GS_TOKEN=anon for a public bucket",
}
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}


def translate_error(e: BaseException, url: str) -> ConvertError:
    """Translate an exception of a store's library.

    Args:
        e: What.
        url: Of what was asked for.
    """
    if isinstance(e, ConvertError):
        return e
    where, scheme = mask_secrets(url), url.partition(":")[0]
    kinds = {kind.__name__ for kind in type(e).__mro__}
    cause = e.__cause__
    if cause is not None:
        kinds |= {kind.__name__ for kind in type(cause).__mro__}
    if isinstance(e, ImportError):
        return make_missing_error(url, e)
    if kinds & _CREDENTIALS:
        return StorageError("no credentials", where=where, hint=_HINTS.get(scheme))
    if kinds & _UNREACHABLE or isinstance(e, ConnectionError | TimeoutError):
        return StorageError(f"cannot be reached{_said(e)}", where=where)
    if isinstance(e, FileNotFoundError):
        is_bucket = "NoSuchBucket" in kinds or _BUCKET.search(f"{e} {cause}") is not None
        return StorageError("no such bucket" if is_bucket else "not found", where=where)
    if isinstance(e, PermissionError):
        return StorageError(f"access denied{_said(e)}", where=where)
    if isinstance(e, OSError) and e.errno in _FULL:
        return StorageError.writing(where, e)
    return StorageError(f"{type(e).__name__}{_said(e)}", where=where)


def is_transient(e: BaseException) -> bool:
    """Return whether an error is transient.

    Not so what cannot be connected to or does not answer: the libraries have tried that, several
    times each, for seconds or minutes.
    """
    if isinstance(e, ConvertError | ImportError | FileNotFoundError | PermissionError):
        return False
    kinds = {kind.__name__ for kind in type(e).__mro__}
    if kinds & _TRIED:
        return False
    if kinds & _UNREACHABLE or isinstance(e, ConnectionError | TimeoutError):
        return not isinstance(e, ConnectionRefusedError)
    return isinstance(e, OSError) and e.errno in _PASSING


def is_local(e: BaseException) -> bool:
    """Return whether the local disk failed."""
    return isinstance(e, OSError) and e.errno in _OURS


def make_missing_error(url: str, e: ImportError) -> DependencyError:
    """Return the error for a scheme whose package is not installed."""
    scheme = url.partition(":")[0]
    extra = _EXTRAS.get(scheme)
    if extra is not None:
        said, hint = "", describe_install(extra)
    elif e.name == "fsspec":
        said, hint = "", "pip install fsspec"
    else:
        said, hint = _said(e), None  # fsspec says which
    what = f"{scheme}:// takes a package that is not installed{said}"
    return DependencyError(what, where=mask_secrets(url), hint=hint)


def _said(e: BaseException) -> str:
    text = mask_secrets(" ".join(str(e).split()))
    return f": {text[:LONGEST]}" if text else ""
