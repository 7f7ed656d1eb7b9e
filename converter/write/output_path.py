"""Where an output goes: its default name, and never into its own source."""

import os
from pathlib import Path

from converter.write.catalog import Target
from converter.write.plan import Plan
from converter.write.source_stem import source_stem
from formats.errors import UsageError


def default_output(source: Path, target: Target, device: str | None = None) -> Path:
    """Return the path of an output that is not named: the source's stem in the current folder."""
    return Path(
        source_stem(source) + target.suffix.format(device=(device or "cpu").replace(":", "-"))
    )


def check_apart(source: Path, output: Path) -> None:
    """Check that an output neither replaces its own source nor lies inside it, nor around it.

    Raises:
        UsageError: It does.
    """
    try:
        here, there = (Path(os.path.realpath(p)) for p in (source, output))
    except ValueError as e:
        raise UsageError(f"no file can have this name: {e}", where=repr(source)) from e
    if here == there or there.is_relative_to(here) or here.is_relative_to(there):
        raise UsageError("the output would stand in its own source", where=output)


def settle_output(output: Path, target: Target, plan: Plan, *, is_named: bool) -> Path:
    """Return an output's path, now that it is known whether it is a file or a folder.

    Raises:
        UsageError: It must be a folder, and was named like a file.
    """
    if not plan.folder_reason or output.suffix != target.suffix:
        return output
    if is_named:
        raise UsageError(plan.folder_reason, where=output)
    return output.with_name(f"{output.stem}-{target.id}")
