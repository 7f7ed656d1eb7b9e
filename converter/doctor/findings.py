"""What a diagnosis consists of: findings about a host, and predictions about a loader."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem or one fact worth knowing.

    Attributes:
        code: Stable name of the rule: ``driver-too-old``.
        severity: ``error``: something fails, or runs on another device than intended;
            ``warning``: it may; ``note``: an explanation.
        subject: A framework, a variable, ``driver`` or ``source``.
        what: What was found, as a sentence.
        why: Why it matters.
        fix: The command or change that fixes it; "" where nothing needs fixing.
    """

    code: str
    severity: Severity
    subject: str
    what: str
    why: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """The exception that a loader raises.

    Attributes:
        error: Class of the exception.
        message: The message, or its beginning where the rest depends on the run.
        cause: Stable name of the rule: ``device-absent``.
        why: The cause in words.
        unknown: Whether only running the artifact's own code would show the outcome.
    """

    error: str
    message: str
    cause: str
    why: str
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class Prediction:
    """The outcome of calling an official loader on an artifact here.

    Attributes:
        loader: The call: ``torch.load(path)``.
        framework: Package of the loader, as it is installed: ``tensorflow``.
        version: Installed version, or the version whose rules were applied.
        installed: Whether the package is installed.
        outcome: ``unknown`` where only running the artifact's own code would show it.
        error: Class of the exception.
        message: The message, or its beginning where the rest depends on the run.
        cause: Stable name of the rule: ``device-absent``.
        why: The cause in words.
        mends: What makes this loader work, or the loader that works; "" if nothing does.
        check: ``predicted``, ``confirmed`` (the loader was run), ``contradicted: …``, or
            ``not run: …`` with the reason.
        measured: What the loader raised when it was run.
    """

    loader: str
    framework: str
    version: str
    installed: bool
    outcome: Literal["loads", "fails", "unknown"]
    error: str = ""
    message: str = ""
    cause: str = ""
    why: str = ""
    mends: str = ""
    check: str = "predicted"
    measured: str = ""

    @classmethod
    def of(
        cls,
        loader: str,
        framework: str,
        version: str,
        failure: Failure | None = None,
        *,
        installed: bool,
        mends: str = "",
    ) -> "Prediction":
        """Return the prediction that a loader ends with a failure, or loads if there is none."""
        if failure is None:
            return cls(loader, framework, version, installed, "loads")
        return cls(
            loader, framework, version, installed, "unknown" if failure.unknown else "fails",
            failure.error, failure.message, failure.cause, failure.why, mends,
        )  # fmt: skip
