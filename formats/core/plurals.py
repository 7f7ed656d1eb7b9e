"""Count in messages: ``1 tensor``, ``2 tensors``, ``1,000 entries``."""


def count(noun: str, number: int) -> str:
    """Return a number with its noun."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun}"
