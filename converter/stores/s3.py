"""One session of botocore's for all stores of a process, made ready before processes are forked.

A client of S3 is made from descriptions of all of Amazon's services, which are megabytes of JSON:
a tenth of a second, in each process that does one small job. What a session has once parsed, it
keeps; processes that are forked from one that has made a client have it, too.
"""

import asyncio
import os
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from inspect import signature
from typing import Any, Final

SCHEMES: Final = ("s3", "s3a")


def options(scheme: str) -> dict[str, Any]:
    """Return s3fs's options; empty for other stores.

    Where a session is configured for fsspec, as with FSSPEC_S3_PROFILE, s3fs makes its own.
    """
    if scheme not in SCHEMES:
        return {}
    import fsspec
    from fsspec.config import conf

    kind = fsspec.get_filesystem_class(scheme)
    if kind.__module__.partition(".")[0] != "s3fs":  # another implementation is registered
        return {}
    own = signature(kind.__init__).parameters
    configured = {key for name in SCHEMES for key in conf.get(name, {})}
    return {"session": session()} if configured <= own.keys() - {"session"} else {}


def session() -> Any:
    """Return the session, which holds no connection and no thread.

    It keeps the credentials that it once found, so it is another one where the environment says
    something else.
    """
    return _session(tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith("AWS_"))))


@lru_cache(maxsize=4)
def _session(environment: tuple[tuple[str, str], ...]) -> Any:
    del environment  # it reads that by itself
    return import_module("aiobotocore.session").AioSession()


def make_ready() -> None:
    """Create and drop a client, which caches its session; nothing is sent, no thread starts.

    Whatever goes wrong, the job that needs it says.
    """

    async def begin_and_end() -> None:
        nobody = {"aws_access_key_id": "-", "aws_secret_access_key": "-"}
        async with session().create_client("s3", region_name="us-east-1", **nobody):
            pass

    with suppress(Exception):
        asyncio.run(begin_and_end())
