"""Print errors on standard error: what was found, what was expected, what to do."""

import sys
from typing import Protocol

from converter.cli.spelling import spell_flags
from converter.cli.terminal import fit, say
from formats.errors import ConvertError

NO_OPTION = "No such option: "


def report(e: BaseException, code: int, *, verbose: bool = False) -> int:
    """Print an error, and return its exit code."""
    if verbose:
        import traceback

        traceback.print_exception(e)
    if isinstance(e, ConvertError) and code != 70:
        _report_parts(e)
        return code
    text = f"{type(e).__name__}: {e}" if not isinstance(e, ConvertError) else str(e)
    return report_text(f"a bug of convert: {text}\nhelp: report it with the output of -v", code)


def _report_parts(e: ConvertError) -> None:
    place = f"{e.where}: " if e.where else ""
    offset = "" if e.offset is None else f" at byte {e.offset}"
    lines = [spell_flags(f"{place}{e.found}{offset}")]
    lines += [f"note: {spell_flags(note)}" for note in getattr(e, "__notes__", ())]
    lines += [f"expected: {spell_flags(e.expected)}"] if e.expected else []
    lines += [f"help: {spell_flags(e.hint)}"] if e.hint else []
    report_text("\n".join(lines), e.exit_code)


def report_text(text: str, code: int) -> int:
    """Print a message of one or more lines, and return the exit code."""
    first, *others = text.split("\n")
    say(first, sys.stderr, label="convert: error: ", style="red")
    for line in others:
        word, colon, rest = line.partition(": ")
        is_labelled = colon and word in ("expected", "help", "note")
        label = f"  {word}: " if is_labelled else ""
        text = rest if is_labelled else line
        # Commands to paste, which are in other lines, stay whole.
        parts = fit(text, sys.stderr, len(label)) if word == "expected" else [text]
        for i, part in enumerate(parts):
            say(part, sys.stderr, label=" " * len(label) if i else label, style="cyan")
    return code


class UsageProblem(Protocol):
    """An error of the command line: what click raises, wherever Typer keeps it."""

    def format_message(self) -> str:
        """Return the message."""
        ...


def report_usage(e: UsageProblem) -> int:
    """Print an error of the command line that Typer found, and return the exit code."""
    option = getattr(e, "option_name", None)
    near = getattr(e, "possibilities", None)
    if option and e.format_message().startswith(NO_OPTION):
        text = f"there is no option {option}"
        text += f"\nhelp: Did you mean {_join(sorted(near))}?" if near else ""
    else:
        text = e.format_message().rstrip(".")
    context = getattr(e, "ctx", None)
    name = getattr(context, "info_name", "") or ""
    page = "convert --help" if name in ("", "convert") else f"convert {name} --help"
    return report_text(f"{text}\nhelp: `{page}` lists the options", 2)


def spell_error(e: ConvertError) -> str:
    """Return the message of an error with options spelled as flags."""
    return spell_flags(str(e))


def _join(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
