"""What a conversion says of itself while it runs."""

from typing import NamedTuple


class Step(NamedTuple):
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


class Progress(NamedTuple):
    """How far a step is."""

    name: str
    done: int
    total: int
