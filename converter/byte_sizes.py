"""Format sizes in bytes (``97.8 MiB``) and parse them (``5GB``)."""

from formats.errors import UsageError

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def readable_size(nbytes: float) -> str:
    """Return ``97.8 MiB`` for a number of bytes."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"


def parse_size(text: str) -> int:
    """Return the bytes of ``500MB``, ``5GB``, ``2GiB`` or a plain number.

    Raises:
        UsageError: ``text`` is not a size.
    """
    number = text.rstrip("BKMGibkmg").strip()
    unit = text[len(number) :].strip().upper()
    try:
        return int(float(number) * UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        raise UsageError(f"{text!r} is no size", expected="a size like 500MB or 5GB") from None
