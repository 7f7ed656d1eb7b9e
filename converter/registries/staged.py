"""What staging a source takes: a temporary folder, and its registry's hints."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

from converter.filesystem import directory_lock
from converter.options import Options
from converter.registries.entry import Staged
from formats.errors import StorageError


def add_hints(options: Options, staged: Staged) -> Options:
    """Return options with a registry's hints: declared inputs, input example."""
    comparison = replace(options.comparison, example=staged.example)
    checkpoint = staged.checkpoint or options.checkpoint
    return replace(
        options, hinted_inputs=staged.inputs, comparison=comparison, checkpoint=checkpoint
    )


@contextmanager
def temporary(name: str) -> Iterator[Path]:
    """Yield a temporary folder; what a killed process left there is removed first.

    Raises:
        StorageError: It cannot be made.
    """
    top = Path(tempfile.gettempdir()).resolve()
    try:
        folder, lock = directory_lock.make(top / f"{name}-{i}" for i in count())
    except OSError as e:
        raise StorageError.writing(top, e) from e
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
