"""Errors name what the user gave, and not the temporary copy of it that was read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from formats.errors import ConvertError


@contextmanager
def name_source_in_errors(copy: Path, source: str) -> Iterator[None]:
    """Replace the path of a temporary copy in errors by the name of its source."""
    try:
        yield
    except ConvertError as e:
        before = str(copy)
        e.found = e.found.replace(before, source)
        e.where = e.where and e.where.replace(before, source)
        e.expected = e.expected and e.expected.replace(before, source)
        e.hint = e.hint and e.hint.replace(before, source)
        raise
