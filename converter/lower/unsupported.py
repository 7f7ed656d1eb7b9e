"""Unsupported operations: raised where they are found, collected, and reported all at once."""

from collections.abc import Iterable
from dataclasses import dataclass

from formats.errors import UnsupportedError

MOST_NAMED = 20  # kinds of findings in one message
MOST_PLACES = 5  # nodes or layers that are listed for one kind
# Errors of a handler whose arguments are inconsistent: the file is damaged, or convert has a bug.
MISFITS = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError,
    RuntimeError, MemoryError,
)  # fmt: skip


class Unsupported(Exception):  # noqa: N818 - it is collected, with others, into one error
    """An op, argument, dtype or shape is not supported; without a message, the op itself."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a model that is not supported.

    Attributes:
        subject: The operation, spelled equally for every model: ``TensorFlow op Svd``.
        where: Name of the node or layer.
        reason: The part that is not supported; empty for all of it.
        detail: Details in this model, such as its arguments.
    """

    subject: str
    where: str
    reason: str = ""
    detail: str = ""

    @property
    def what(self) -> str:
        """Subject and reason, the same for every model."""
        return f"{self.subject}: {self.reason}" if self.reason else self.subject


def explain_misfit(error: BaseException) -> str:
    """Return the message for an op whose handler raised one of `MISFITS`."""
    return (
        f"its inputs and arguments do not go together ({type(error).__name__}: {error!s:.200}); "
        "if its framework runs the model, this is a bug of convert: please report it"
    )


def report(findings: Iterable[Finding], hint: str | None = None) -> None:
    """Raise all findings as one error, if there are any.

    Raises:
        UnsupportedError: There are findings.
    """
    kinds = _group(findings)
    if kinds:
        counts = tuple((what, len(found)) for what, found in kinds.items())
        raise UnsupportedError(_describe(kinds), hint=hint, gaps=counts)


def describe(findings: Iterable[Finding]) -> str:
    """Return a message with one line for each kind, the most frequent first, and its locations."""
    return _describe(_group(findings))


def _group(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.what, []).append(finding)
    return kinds


def _describe(kinds: dict[str, list[Finding]]) -> str:
    ordered = sorted(kinds.items(), key=lambda item: -len(item[1]))
    lines = [_line(what, found) for what, found in ordered[:MOST_NAMED]]
    if len(kinds) > MOST_NAMED:
        lines.append(f"and {len(kinds) - MOST_NAMED} more kinds")
    if len(lines) == 1:
        return f"not supported: {lines[0]}"
    return "\n  ".join(("not supported:", *lines))


def _line(what: str, found: list[Finding]) -> str:
    details = {finding.where: finding.detail for finding in found if finding.where}
    places = list(details)[:MOST_PLACES]
    one = next(iter(set(details.values()))) if len(set(details.values())) == 1 else None
    if one is None:
        places = [f"{place} ({details[place]})" if details[place] else place for place in places]
    shown = ", ".join(places)
    if len(details) > MOST_PLACES:
        shown += f" and {len(details) - MOST_PLACES} more"
    times = f" ×{len(found)}" if len(found) > 1 else ""  # noqa: RUF001
    return f"{what}{times}" + (f", at {shown}" if shown else "") + (f" ({one})" if one else "")
