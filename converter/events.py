"""What a conversion says of itself while it runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the road, done.

    Attributes:
        name: ``detected``, ``read``, ``normalised``, ``lowered``, ``left out``, ``warning``,
            ``written``, ``verified`` or ``planned``.
        text: What there is to say of it.
        seconds: How long it took, where that says something.
    """

    name: str
    text: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a step is."""

    name: str
    done: int
    total: int
