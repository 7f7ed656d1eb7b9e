"""Do something for each of several sources: one that fails does not stop the others."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import typer

from converter.cli.errors import report
from formats.errors import ConvertError

S = TypeVar("S")
T = TypeVar("T")


@contextmanager
def collect(
    sources: Sequence[S], describe: Callable[[S], T], *, verbose: bool
) -> Iterator[list[T]]:
    """Yield the results of all sources; of those that fail, the error is printed.

    Raises:
        ConvertError: There is one source, and it fails.
        Exit: When the block ends, with the worst exit code, if any of several failed.
    """
    if len(sources) == 1:
        yield [describe(sources[0])]
        return
    results, code = [], 0
    for source in sources:
        try:
            results.append(describe(source))
        except ConvertError as e:
            code = max(code, report(e, e.exit_code, verbose=verbose))
    yield results
    if code:
        raise typer.Exit(code)
