"""URLs of stores: their parts, and masking their secrets.

They are not RFC 3986's: an S3 key may hold ``?``, ``#``, ``%`` and blanks, and means them.
"""

import re

from formats.errors import UnsupportedError, UsageError

_PASSWORD = re.compile(r"(?<=://)([^/@:\s]*):[^/\s]*@")
_QUERY = re.compile(r"\b(https?://[^\s?]+)\?[^\s'\")]+")
_SECRET = re.compile(r"(?i)\b(\w*(?:signature|token|secret|password|sig))=[^\s&'\")]+")


def mask_secrets(text: str) -> str:
    """Return a text with passwords and signatures of URLs masked."""
    text = _PASSWORD.sub(r"\1:***@", text)
    return _SECRET.sub(r"\1=***", _QUERY.sub(r"\1?***", text))


def check(url: str) -> None:
    """Raise for URLs with secrets, which ledgers and reports would keep.

    Raises:
        UsageError: It holds a password or a signature.
    """
    if mask_secrets(url) != url:
        scheme = url.partition(":")[0].upper()
        raise UsageError(
            "holds a password or a signature, which would be in the ledger and in reports",
            where=mask_secrets(url),
            hint=f"Give it where fsspec looks: FSSPEC_{scheme}_PASSWORD, or ~/.config/fsspec",
        )


def check_writable(url: str) -> None:
    """Raise for URLs that cannot be written.

    Raises:
        UnsupportedError: It is the web's.
    """
    if url.startswith(("http://", "https://")):
        raise UnsupportedError("not supported: outputs at http:// URLs", where=mask_secrets(url))


def join(url: str, name: str) -> str:
    """Return the URL of a name below another one."""
    return f"{url.rstrip('/')}/{name}" if name else url


def last(url: str) -> str:
    """Return the last part of a URL's path, the local file name."""
    path = url.partition("://")[2]
    if url.startswith(("http://", "https://")):
        path = re.split(r"[?#]", path, maxsplit=1)[0]
    return path.rstrip("/").rpartition("/")[2]


def parent(url: str) -> str:
    """Return the URL of the parent folder."""
    if url.startswith(("http://", "https://")):
        url = re.split(r"[?#]", url, maxsplit=1)[0]
    head, _, _ = url.rstrip("/").rpartition("/")
    return head if len(head) > len(url.partition("://")[0]) + 2 else url


def local_path(url: str) -> str | None:
    """Return the path that a ``file://`` URL is; None for any other."""
    scheme, _, path = url.partition("://")
    return path if scheme in ("file", "local") else None
