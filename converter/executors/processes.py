"""Crash-isolated children on this machine."""

from converter.executors.engine import Executor, Settings
from converter.executors.inline import Inline


def open_executor(settings: Settings) -> Executor:
    """Return the executor."""
    return Inline(settings)
