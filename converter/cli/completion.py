"""Completion in bash, zsh and fish.

A shell runs the program with `VARIABLE` set and the words that are typed so far; the program
prints the candidates for the last one, with what each means behind a tab. Files are the shell's.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from converter.cli.help_pages import DEFAULT
from converter.cli.terminal import say
from formats.errors import UsageError

VARIABLE = "_CONVERT_COMPLETE"

# Files are added to candidates for the first word, which may be a command or a source.
BASH = """\
_{function}() {{
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("${{line%%$'\\t'*}}")
    done < <({variable}=1 "$1" "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null)
    if [[ "$2" != -* ]] && (( COMP_CWORD == 1 || ! ${{#COMPREPLY[@]}} )); then
        compopt -o filenames
        while IFS= read -r line; do
            COMPREPLY+=("$line")
        done < <(compgen -f -- "$2")
    fi
}}
complete -F _{function} {program}
"""
ZSH = """\
#compdef {program}
_{function}() {{
    local -a found
    local line
    while IFS= read -r line; do
        found+=("${{${{line%%$'\\t'*}}//:/\\\\:}}:${{line#*$'\\t'}}")
    done < <({variable}=1 "${{words[1]}}" "${{(@)words[2,CURRENT]}}" 2>/dev/null)
    (( ${{#found}} )) && _describe -V '{program}' found
    [[ "${{words[CURRENT]}}" != -* ]] && (( CURRENT == 2 || ! ${{#found}} )) && _files
}}
if [[ "$funcstack[1]" == _{function} ]]; then
    _{function} "$@"
else
    compdef _{function} {program}
fi
"""
FISH = """\
function __{function}
    set -l words (commandline -opc) (commandline -ct)
    set -l found (env {variable}=1 $words[1] $words[2..-1] 2>/dev/null)
    string join -- \\n $found
    if not string match -q -- '-*' $words[-1]; and test (count $words) -eq 2 -o (count $found) -eq 0
        __fish_complete_path $words[-1]
    end
end
complete -c {program} -f -a '(__{function})'
"""
SHELLS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def completion(
    shell: Annotated[
        str | None, typer.Argument(metavar="[bash|zsh|fish]", help="Default: that of $SHELL.")
    ] = None,
) -> None:
    """Print the shell's completion script: eval "$(convert completion bash)".

    Put that line in ~/.bashrc, with zsh in ~/.zshrc after compinit; with fish, put
    `convert completion fish | source` in ~/.config/fish/config.fish.
    """
    shell = shell or os.path.basename(os.environ.get("SHELL", ""))  # noqa: PTH119
    if shell not in SHELLS:
        raise UsageError(f"completion {shell}", expected="completion bash, zsh or fish")
    program = os.path.basename(sys.argv[0])  # noqa: PTH119
    program = program if program in ("convert", "model-convert") else "convert"
    function = program.replace("-", "_") + "_completion"
    script = SHELLS[shell].format(function=function, program=program, variable=VARIABLE)
    for line in script.splitlines():
        say(line)


def candidates(program: Any, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what may stand for the last word, with what it means.

    Args:
        program: The Typer program as a click group.
        words: Typed so far; the last one may be incomplete.
    """
    *before, last = words or [""]
    for value, about in _choices(program, before, last):
        if value.startswith(last):
            yield value, about


def _choices(program: Any, before: Sequence[str], last: str) -> Iterator[tuple[str, str]]:
    named = {name: c for name, c in program.commands.items() if not c.hidden and name != DEFAULT}
    if not before and not last.startswith("-"):
        yield from ((name, _first_sentence(c.short_help or c.help)) for name, c in named.items())
        return
    name = next(iter(before), DEFAULT)
    command = named.get(name) or program.commands[DEFAULT]
    if name == "help":
        yield from ((name, "") for name in named)
        return
    options = {flag: p for p in command.params for flag in (*p.opts, *p.secondary_opts)}
    waiting = options.get(before[-1]) if before and before[-1].startswith("-") else None
    if waiting is not None and not waiting.is_flag:
        yield from _values(waiting)
    elif last.startswith("-"):
        yield from ((f, _first_sentence(p.help)) for f, p in options.items() if f[0] == "-")
        yield "--help", "Show the options."
    else:
        words = [p.metavar for p in command.params if p.param_type_name == "argument"]
        yield from ((word, "") for word in _alternatives(next(iter(words), "")))


def _values(option: Any) -> Iterator[tuple[str, str]]:
    """Yield the values of an option that is waiting for one."""
    make = VALUES.get(option.metavar)
    if make is not None:
        yield from make().items()
    else:
        yield from ((word, "") for word in _alternatives(option.metavar or ""))


def _alternatives(metavar: str) -> list[str]:
    """Return the words of ``a|b|c``; none of anything else."""
    words = metavar.strip("[]").split("|")
    return [w for w in words if w.islower() and w.isalnum()] if len(words) > 1 else []


def _list_targets() -> Mapping[str, str]:
    from converter.write.catalog import TARGETS

    return {row.id: row.writes for row in TARGETS}


def _list_formats() -> Mapping[str, str]:
    from formats.catalog import FORMATS

    return {row.id: row.reads for row in FORMATS}


def _list_devices() -> Mapping[str, str]:
    return dict.fromkeys(("cpu", "cuda", "cuda:0", "cuda:1", "mps", "GPU:0", "gpu:0", "none"), "")


# Placeholder of an option → its values.
VALUES: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "TARGET": _list_targets, "FORMAT": _list_formats, "DEV": _list_devices,
    "GROUP,...": lambda: {"optimizer": "", "training": ""},
}  # fmt: skip


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split()).partition(". ")[0]


def complete(app: typer.Typer, words: Sequence[str]) -> int:
    """Print the candidates for the last word, one a line, and return the exit code."""
    for value, about in candidates(typer.main.get_command(app), words):
        sys.stdout.write(f"{value}\t{about}\n" if about else f"{value}\n")
    return 0
