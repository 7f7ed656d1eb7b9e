"""The parts of the documents that come from the program: tables of formats, options, ops, limits.

    python tools/docs/generate.py NAME      # print one part

A page has ``<!-- generated: NAME -->`` where the part is; `hooks.py` fills it in at build time.
"""

import html
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from pages import ROOT

MARK = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)


def fill(markdown: str) -> str:
    """Return a page with its generated parts in place."""
    return MARK.sub(lambda match: GENERATORS[match[1]](), markdown)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(text) for text in line)} |" for line in lines)


def _cell(text: str) -> str:
    """Return a cell's content on one line; a pipe separates cells only outside of code."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else part.replace("|", "\\|") for part in parts)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _prose(text: str) -> str:
    """Return a docstring's words as Markdown: nothing in angle brackets or stars is markup."""
    return (
        re.sub(r"(?<!`)([<*_])", r"\\\1", text.replace("``", "`"))
        if "`" not in text
        else text.replace("``", "`")
    )


def formats() -> str:
    """Return the table of formats."""
    from formats.catalog import FORMATS

    rows = [
        [_code(row.id), row.reads, ", ".join(map(_code, row.suffixes)) or "a folder"]
        for row in FORMATS
    ]
    return table(["format", "what is read", "usual suffixes"], rows)


def targets() -> str:
    """Return the table of targets."""
    from converter.write.catalog import TARGETS

    needs = {
        "none": "", "optional": "where there is one", "required": "yes",
        "own": "the source's own", "own or required": "the source's own, or one that converts",
    }  # fmt: skip
    rows = []
    for row in TARGETS:
        device = "required" if row.needs_device else "optional" if "device" in row.takes else ""
        rows.append([_code(row.id), row.writes, needs[row.graph], device])
    return table(["`--to`", "output", "graph", "`--device`"], rows)


def target_options() -> str:
    """Return which targets take the options that not all of them take."""
    from converter.cli.parameters import ROWS
    from converter.write.catalog import SPECIFIC, TARGETS

    flags = {row.field.partition(".")[0]: row.flag for row in reversed(ROWS)}
    rows = []
    for name in SPECIFIC:
        takers = [row.id for row in TARGETS if name in row.takes]
        rows.append(
            [
                _code(flags[name]),
                "all" if len(takers) == len(TARGETS) else ", ".join(map(_code, takers)),
            ]
        )
    return table(["option", "targets that take it"], rows)


def cli() -> str:
    """Return every command with its arguments and options."""
    import typer

    from converter.cli.app import app

    program: Any = typer.main.get_command(app)
    return "\n\n".join(
        _command(name, command, program)
        for name, command in program.commands.items()
        if not command.hidden
    )


def _command(name: str, command: Any, program: Any) -> str:
    shown = "convert" if name == "SOURCE" else f"convert {name}"
    context = command.make_context(name, [], resilient_parsing=True)
    arguments, options = [], []
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if getattr(parameter, "hidden", False):
            continue
        if parameter.param_type_name == "argument":
            arguments.append([_code(parameter.make_metavar(ctx=context)), parameter.help or ""])
        elif record is not None:
            flag, text = record
            options.append([_code(flag), text])
    usage = " ".join([shown, *command.collect_usage_pieces(context)])
    parts = [f"## `{shown}`", inspect.cleandoc(command.help or ""), f"```text\n{usage}\n```"]
    if any(text for _, text in arguments):
        parts.append(
            table(["argument", "meaning"], [[a, html.escape(b, quote=False)] for a, b in arguments])
        )
    parts.append(
        table(["option", "meaning"], [[a, html.escape(b, quote=False)] for a, b in options])
    )
    return "\n\n".join(parts)


def ops(kind: str) -> str:
    """Return the layers or ops of a front end; overloads of a torch op share a row."""
    from converter.lower.support_matrix import MATRICES

    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    rows = MATRICES[kind]()
    for row in rows:
        base = row["name"].partition(".")[0] if kind == "torch" else row["name"]
        grouped.setdefault((base, row["computes"]), []).append(row)
    lines = []
    for (base, computes), members in grouped.items():
        overloads = (
            [m["name"].partition(".")[2] for m in members if "." in m["name"]]
            if kind == "torch"
            else []
        )
        arguments = list(dict.fromkeys(a for m in members for a in m["arguments"]))
        more = f" ({', '.join(overloads)})" if overloads else ""
        lines.append([_code(base) + more, _prose(computes), ", ".join(map(_code, arguments))])
    lead = f"{len(rows)} rows{', overloads counted' if kind == 'torch' else ''}."
    return f"{lead}\n\n{table(['name', 'computes', 'arguments'], lines)}"


def limits() -> str:
    """Return the limits of reading, with the comments of their source."""
    from formats.limits import DEFAULT, Limits

    source = inspect.getsource(Limits)
    rows = []
    for field in fields(Limits):
        found = re.search(
            rf"((?:^    # .*\n)*)^    {field.name}:[^#\n]*(?:# (.*))?$", source, re.MULTILINE
        )
        above = " ".join(line.strip(" #") for line in (found[1] if found else "").splitlines())
        value = getattr(DEFAULT, field.name)
        shown = _bytes(value) if "bytes" in field.name and value >= 1024 else f"{value:,}"
        rows.append([_code(field.name), shown, (found[2] or above) if found else ""])
    return table(["limit", "default", "of"], rows)


def _bytes(value: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value} B"


def manifest() -> str:
    """Return the fields of a bundle's manifest."""
    schema = json.loads((ROOT / "formats/manifest.schema.json").read_text())
    rows = [[_code(path), kind, text] for path, kind, text in _properties(schema, schema, "")]
    return table(["field", "type", "meaning"], rows)


def _properties(
    node: Mapping[str, Any], schema: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, str, str]]:
    required = node.get("required", [])
    for name, held in node.get("properties", {}).items():
        text = held.get("description", "")
        inner = held
        if "$ref" in held:
            inner = schema["$defs"][held["$ref"].rpartition("/")[2]]
            text = text or inner.get("description", "")
        path = f"{prefix}{name}"
        yield (
            path,
            _type(inner) + ("" if name in required or not required else ", optional"),
            html.escape(text, quote=False),
        )
        if inner.get("type") == "array" and isinstance(inner.get("items"), Mapping):
            items = inner["items"]
            if "$ref" in items:
                items = schema["$defs"][items["$ref"].rpartition("/")[2]]
            yield from _properties(items, schema, f"{path}[].")
        elif "$ref" not in held:
            yield from _properties(inner, schema, f"{path}.")


def _type(node: Mapping[str, Any]) -> str:
    if "const" in node:
        return _code(json.dumps(node["const"]))
    if "enum" in node:
        return " or ".join(_code(json.dumps(value)) for value in node["enum"])
    kind = node.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def triton_options() -> str:
    """Return the settings of a Triton entry, from the docstring of their class."""
    from converter.write.triton.settings import PARSERS, Settings

    described = inspect.cleandoc(Settings.__doc__ or "").split("Attributes:\n")[1]
    found = dict(re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", described, re.MULTILINE))
    rows = [[_code(name), found[name].replace("``", "`")] for name in PARSERS]
    return table(["key", "meaning"], rows)


def errors() -> str:
    """Return the classes of errors, with their exit codes."""
    import formats.errors as module

    rows = [
        [_code(f"converter.{name}"), str(kind.exit_code), (kind.__doc__ or "").split("\n")[0]]
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, module.ConvertError)
    ]
    return table(["class", "exit", "meaning"], rows)


def benchmarks() -> str:
    """Return the scripts that measure, with what each prints."""
    rows = []
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        text = path.read_text()
        if "argparse" in text or "__main__" in text:
            doc = re.match(r'"""(.*?)(?:\n\n|""")', text, re.DOTALL)
            rows.append(
                [_code(f"benchmarks/{path.name}"), _prose(textwrap.dedent(doc[1])) if doc else ""]
            )
    return table(["script", "what it measures"], rows)


GENERATORS: Mapping[str, Callable[[], str]] = {
    "formats": formats,
    "targets": targets,
    "target-options": target_options,
    "cli": cli,
    "ops-keras": lambda: ops("keras"),
    "ops-tensorflow": lambda: ops("tf"),
    "ops-torch": lambda: ops("torch"),
    "limits": limits,
    "manifest": manifest,
    "errors": errors,
    "triton-options": triton_options,
    "benchmarks": benchmarks,
}

if __name__ == "__main__":
    print(GENERATORS[sys.argv[1]]())
