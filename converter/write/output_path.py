"""Where an output goes, and what its name says: its target, its default name, its folder."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TypeAlias

from converter.options import Options
from converter.write.catalog import AUTO, DEFAULT, TARGETS, Target, find_target
from converter.write.plan import Plan
from converter.write.source_stem import model_suffixes, source_stem
from formats import catalog
from formats.artifact import Artifact
from formats.errors import UsageError

AnyPath: TypeAlias = str | os.PathLike[str]


def choose_target(
    options: Options, source: Path | None = None, out: AnyPath | None = None
) -> Options:
    """Return options that name their target: the requested one, or that of the output's suffix.

    Args:
        options: Options of the conversion.
        source: Decides between targets that have the same suffix: a program stays a program.
        out: The output as the user names it.

    Raises:
        UsageError: The target is unknown, or does not write outputs with this suffix.
        SourceError: The source is unreadable.
    """
    if str(out) == "-":
        raise UsageError(
            "an output is a file or a folder, never standard output", hint="Name it: out="
        )
    suffix = "" if out is None or names_folder(out) else PurePath(out).suffix.lower()
    rows = [row for row in TARGETS if suffix in row.suffixes]
    is_known = bool(rows) or suffix in model_suffixes()
    if options.to != AUTO:
        target = find_target(options.to)
        if is_known and target not in rows:
            raise UsageError(
                f"the suffix {suffix} contradicts to={target.id!r}",
                where=out,
                expected=f"a name that ends in {' or '.join(target.suffixes)}",
                hint=f"to={rows[0].id!r} writes {suffix}" if rows else None,
            )
    elif len(rows) > 1 and source is not None:
        found = catalog.detect(Artifact(source, options.limits), options.format).format.id
        target = next((row for row in rows if row.format == found), rows[0])
    elif is_known and not rows:
        known = (s for row in TARGETS for s in row.suffixes)
        raise UsageError(
            f"no target writes {suffix}", where=out, expected=", ".join(dict.fromkeys(known))
        )
    else:
        target = rows[0] if rows else find_target(DEFAULT)
    return replace(options, to=target.id)


def names_folder(out: AnyPath) -> bool:
    """Return whether an output ends in a slash: a folder, in which it gets its default name."""
    return str(out).endswith(("/", os.sep))


def locate_output(
    source: Path, out: AnyPath | None, target: Target, device: str | None = None
) -> tuple[Path, bool]:
    """Return the path of an output, and whether the user named it.

    ``out`` is a folder for it if it ends in a slash, or exists while the output is a file.
    """
    default = default_output(source, target, device)
    if out is None:
        return default, False
    path = Path(out)
    is_target = target.is_folder or path.suffix.lower() in target.suffixes
    if names_folder(out) or (path.is_dir() and not is_target):
        return path / default, False
    return path, True


def default_output(source: Path, target: Target, device: str | None = None) -> Path:
    """Return the path of an output that is not named: the source's stem in the current folder."""
    return Path(
        source_stem(source) + target.suffix.format(device=(device or "cpu").replace(":", "-"))
    )


def folder_of_outputs(sources: Sequence[str], out: str | None, options: Options) -> str | None:
    """Return ``out`` as the folder of several outputs; None is the current folder.

    Raises:
        UsageError: It is the name of a single output, or two outputs would have the same name.
    """
    if out is not None and not names_folder(out):
        if not Path(out).is_dir() and PurePath(out).suffix.lower() in model_suffixes():
            raise UsageError(
                f"one output for {len(sources)} sources",
                where=out,
                expected="a folder: out= with a name that ends in /",
            )
        out += "/"
    target = find_target(options.to)
    names: dict[Path, str] = {}
    for source in sources:
        name = default_output(Path(source.rstrip("/")), target, options.device)
        first = names.setdefault(name, source)
        if first is not source:
            raise UsageError(
                f"{first} and {source} would both be written to {name}",
                hint="Convert them one by one with an out= for each, or use `convert batch`, "
                "which names them apart",
            )
    return out


def check_apart(source: Path, output: Path) -> None:
    """Check that an output neither replaces its own source nor lies inside it, nor around it.

    Raises:
        UsageError: It does.
    """
    try:
        here, there = (Path(os.path.realpath(p)) for p in (source, output))
    except ValueError as e:
        raise UsageError(f"no file can have this name: {e}", where=repr(source)) from e
    if here == there:
        raise UsageError(
            "the output would replace its own source", where=output, hint="Choose another out="
        )
    if there.is_relative_to(here) or here.is_relative_to(there):
        raise UsageError(
            f"the output and its source {source} would lie inside each other",
            where=output,
            hint="Choose another out=",
        )


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
