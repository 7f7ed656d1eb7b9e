"""What the doctor says: findings about a host, and predictions about an official loader."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or good to know.

    Attributes:
        code: Stable name of the rule: ``driver-too-old``.
        severity: ``error``: something fails, or runs elsewhere than was meant; ``warning``: it may;
            ``note``: it explains what is seen.
        subject: What it is about: a framework, a variable, ``driver``, ``source``.
        what: What was found, as a sentence.
        why: Why that matters.
        fix: The command or the change that mends it; empty where nothing needs mending.
    """

    code: str
    severity: Severity
    subject: str
    what: str
    why: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What an official loader makes of an artifact here.

    Attributes:
        loader: The call: ``torch.load(path)``.
        framework: Package that it belongs to, as it is installed: ``tensorflow``.
        version: Installed version, or the one whose rules were applied.
        installed: Whether it is here at all.
        outcome: ``unknown`` where only running the artifact's own code would tell.
        error: Class of the exception.
        message: The message, or its beginning where the rest depends on the run.
        cause: Stable name of the rule: ``device-absent``.
        why: The cause in words.
        mends: What makes the same loader work, where anything does.
        check: ``predicted``, ``confirmed`` (the loader was really run), ``contradicted``, or
            ``not run: …`` with the reason.
        measured: What the loader really said, where it was run.
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
