"""References to MLflow models, and safe file names for them."""

import hashlib
import re
import unicodedata
from dataclasses import dataclass

from formats.errors import UnsupportedError, UsageError

LOGGED = re.compile(r"m-[0-9a-f]{32}\Z")  # of MLflow 3, which need not be registered
LATEST = "latest"
LONGEST = 100  # letters of a name that become a file's
EXPECTED = "models:/, models:/NAME, models:/NAME/VERSION, models:/NAME@ALIAS or runs:/ID/PATH"


@dataclass(frozen=True, slots=True)
class Named:
    """What a reference names: all models, all versions of one, one version, or files of a run.

    Attributes:
        name: Of a registered model; "" for all.
        version: A number, ``latest``, or a stage's name; "" for all.
        alias: In place of a version.
        model_id: Of a logged model, registered or not.
        run_id: Of a run.
        path: In that run's artifacts.
    """

    name: str = ""
    version: str = ""
    alias: str = ""
    model_id: str = ""
    run_id: str = ""
    path: str = ""

    @property
    def is_one(self) -> bool:
        """Whether it names one model."""
        return bool(self.version or self.alias or self.model_id or self.run_id)


def parse(reference: str) -> Named:
    """Return what a reference names.

    Raises:
        UsageError: It is malformed.
        UnsupportedError: It names a server, too.
    """
    scheme, _, rest = reference.partition(":")
    if rest.startswith("//"):
        raise UnsupportedError(
            "not supported: references that name their server", where=reference,
            hint="MLFLOW_REGISTRY_URI names it",
        )  # fmt: skip
    path = rest.removeprefix("/")
    first, _, more = path.partition("/")
    if not rest.startswith("/") or (scheme == "runs" and not (first and more.strip("/"))):
        raise UsageError(f"{reference!r:.100} names no model", expected=EXPECTED)
    if scheme == "runs":
        return Named(run_id=first, path=more.strip("/"))
    if LOGGED.match(path):
        return Named(model_id=path)
    name, at, alias = first.rpartition("@") if not more else (first, "", "")
    if at:
        if not name or not alias:
            raise UsageError(f"{reference!r:.100} names no model", expected=EXPECTED)
        return Named(name=name, alias=alias)
    version = more.strip("/")
    if "/" in version or (version and not first):
        raise UsageError(f"{reference!r:.100} names no model", expected=EXPECTED)
    return Named(name=first, version=version)


def reference(name: str, version: str) -> str:
    """Return the reference of one version."""
    return f"models:/{name}/{version}"


def as_file(name: str) -> str:
    """Return a file name for a model name; different names give different file names."""
    plain = unicodedata.normalize("NFC", name)
    safe = "".join(c if c.isprintable() and c not in '/\\:*?"<>|' else "_" for c in plain)
    safe = re.sub(r"^[.\-\s]|[.\s]$", "_", safe[:LONGEST]) or "_"
    if safe != name:
        safe += f"-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    return safe


def make_registered_name(name: str) -> str:
    """Return a valid name of a registered model: without ``/`` and ``:``."""
    return re.sub(r"[/:\x00-\x1f]+", "_", name).strip() or "model"


def quote(text: str) -> str:
    """Return a string as MLflow's filters take it.

    Raises:
        UnsupportedError: It has quotes of both kinds.
    """
    if "'" not in text:
        return f"'{text}'"
    if '"' not in text:
        return f'"{text}"'
    raise UnsupportedError("not supported: a model's name with both ' and \"", where=text)
