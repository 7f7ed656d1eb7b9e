"""What is said of a store's failure: one line, by its kind, and never a secret."""

import errno

import pytest

from converter.stores import urls
from converter.stores.errors import is_transient, translate_error
from formats.errors import StorageError, UsageError


def raised(name, *bases):
    return type(name, bases or (Exception,), {})("Unable to do it:\n  token=SECRET x")


def refused():
    """Return what fsspec makes of a server that is not there."""
    error = FileNotFoundError("http://b/x")
    error.__cause__ = raised("ClientConnectorError", type("ClientConnectionError", (OSError,), {}))
    return error


# fmt: off
FAULTS = [
    (raised("NoCredentialsError"),         "s3://b/x", "no credentials. Set AWS_ACCESS_KEY_ID"),
    (raised("DefaultCredentialsError", type("GoogleAuthError", (Exception,), {})),
                                           "gs://b/x", "no credentials. Set GOOGLE_APPLICATION"),
    (raised("EndpointConnectionError"),    "s3://b/x", "cannot be reached: Unable"),
    (ConnectionRefusedError(111, "Connection refused"), "s3://b/x", "cannot be reached: "),
    (PermissionError("Access Denied"),     "s3://b/x", "access denied: Access Denied"),
    (FileNotFoundError("The specified bucket does not exist"), "s3://b/x", "no such bucket"),
    (FileNotFoundError("b/x"),             "s3://b/x", "not found"),
    (refused(),                            "http://b/x", "cannot be reached: http://b/x"),
    (FileNotFoundError("my-bucket/x"),     "s3://my-bucket/x", "not found"),
    (OSError(errno.ENOSPC, "No space left"), "s3://b/x", "cannot be written: No space left. Free"),
    (RuntimeError("a\n  b"),               "s3://b/x", "RuntimeError: a b"),
]
# fmt: on


@pytest.mark.parametrize(("e", "url", "said"), FAULTS, ids=lambda v: type(v).__name__)
def test_each_kind_in_one_line(e, url, said):
    error = translate_error(e, url)
    assert isinstance(error, StorageError)
    assert str(error).startswith(f"{url}: {said}")
    assert "\n" not in str(error)
    assert "=SECRET" not in str(error)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("sftp://me:SECRET@host/x", "sftp://me:***@host/x"),
        ("sftp://me:SE@CRET@host/x", "sftp://me:***@host/x"),
        ("see https://h/x?X-Amz-Signature=SECRET now", "see https://h/x?*** now"),
        ("X-Amz-Security-Token=SECRET&a=1", "X-Amz-Security-Token=***&a=1"),
        ("abfs://box@account.dfs.core.windows.net/x", "abfs://box@account.dfs.core.windows.net/x"),
        ("s3://b/what?=a:b@c", "s3://b/what?=a:b@c"),
    ],
)
def test_secrets_are_masked_and_names_are_not(text, safe):
    assert urls.mask_secrets(text) == safe


def test_a_batch_keeps_no_secrets():
    for url in ("sftp://me:SECRET@host/x", "https://h/x?sig=SECRET"):
        with pytest.raises(UsageError, match="FSSPEC_") as e:
            urls.check(url)
        assert "SECRET" not in str(e.value)
    urls.check("s3://b/a b?c#d%20/ü")


def test_parts_of_urls():
    assert urls.last("s3://b/a/m.h5") == "m.h5"
    assert urls.last("https://h/a/m.h5?sig=x/y") == "m.h5"
    assert urls.last("s3://b/a/what?.h5") == "what?.h5"
    assert urls.parent("s3://b/a/m.h5") == "s3://b/a"
    assert urls.parent("https://h/a/m.h5?sig=x/y") == "https://h/a"
    assert urls.parent("s3://b") == "s3://b"
    assert urls.join("s3://b/", "x y") == "s3://b/x y"
    assert urls.local_path("file:///a/b") == "/a/b"
    assert urls.local_path("s3://b") is None


def test_what_the_libraries_have_tried_for_long_is_not_tried_again():
    assert not is_transient(raised("EndpointConnectionError"))
    assert not is_transient(raised("ReadTimeoutError", type("HTTPClientError", (Exception,), {})))
    assert not is_transient(ConnectionRefusedError())
    assert not is_transient(PermissionError())
    assert is_transient(raised("IncompleteReadError"))
    assert is_transient(OSError(errno.EBUSY, ""))
