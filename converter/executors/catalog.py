"""THE table of executors: a module of this package with ``open_executor(settings)``."""

from collections.abc import Callable
from importlib import import_module
from typing import cast

from converter.executors.engine import Executor, Settings
from converter.options import check_choice

# Engines by name.
ENGINES = {
    "processes": "crash-isolated children on this machine",
    "inline": "this process, one job after another, nothing isolated",
    "ray": "a Ray cluster that is there already",
}


def check(engine: str) -> None:
    """Refuse an unknown engine.

    Raises:
        UsageError: There is no engine of that name.
    """
    check_choice("engine", engine, ENGINES)


def open_executor(engine: str, settings: Settings) -> Executor:
    """Return an executor.

    Raises:
        UsageError: There is no engine of that name.
        DependencyError: The engine needs an extra that is not installed, or cannot be reached.
    """
    check(engine)
    module = import_module(f"converter.executors.{engine}")
    return cast(Callable[[Settings], Executor], module.open_executor)(settings)
