"""THE table of executors: where jobs run.

A module has ``open_executor(settings) -> Executor``.
"""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple, cast

from converter.executors.engine import Executor, Settings
from converter.options import check_choice


class Engine(NamedTuple):
    """One row.

    Attributes:
        id: The value of ``engine``.
        module: Name of the module in `converter.executors`, imported when first needed.
    """

    id: str
    module: str


ENGINES = (
    Engine("processes", "processes"),  # crash-isolated children on this machine
    Engine("inline", "inline"),  # this process, one job after another, nothing isolated
    Engine("ray", "ray"),  # a Ray cluster that is there already
)


def check(engine: str) -> None:
    """Refuse an unknown engine.

    Raises:
        UsageError: There is no engine of that name.
    """
    check_choice("engine", engine, [row.id for row in ENGINES])


def open_executor(engine: str, settings: Settings) -> Executor:
    """Return an executor.

    Raises:
        UsageError: There is no engine of that name.
        DependencyError: The engine needs an extra that is not installed, or cannot be reached.
    """
    check(engine)
    (row,) = (row for row in ENGINES if row.id == engine)
    module = import_module(f"converter.executors.{row.module}")
    return cast(Callable[[Settings], Executor], module.open_executor)(settings)
