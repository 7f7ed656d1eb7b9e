"""The JSON document of an exported program: how its parts are read and named.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_export/serde/schema.py
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf, nan
from typing import Any

from formats.containers import jsontext
from formats.core.bundle import Bundle
from formats.core.storage import Span
from formats.errors import CorruptError, UnsupportedError
from formats.limits import DEFAULT
from formats.torch.export import PROGRAM

SPECIAL = {"Infinity": inf, "-Infinity": -inf, "NaN": nan}


Object = dict[str, Any]


def read_program(bundle: Bundle) -> Object:
    """Return the document of an archive's only program.

    Raises:
        UnsupportedError: It has none, or several.
        CorruptError: It is damaged.
    """
    content = bundle.topology.content if bundle.topology is not None else None
    spans = content if isinstance(content, Mapping) else {}
    named = {
        name: span
        for name, span in spans.items()
        if isinstance(span, Span)
        and (name == PROGRAM or (name.startswith("models/") and name.endswith(".json")))
    }
    if not named:
        raise UnsupportedError("the archive has no program, only weights")
    if len(named) > 1:
        raise UnsupportedError(f"an archive of {len(named)} programs: {', '.join(named)}")
    ((name, span),) = named.items()
    limit = DEFAULT.max_inflated_bytes
    data = b"".join(
        span.read(i, min(1 << 20, span.length - i)) for i in range(0, span.length, 1 << 20)
    )
    return require_object(
        jsontext.parse(data, where=name, limit=limit), "a program that is no object"
    )


def require_object(value: Any, message: str) -> Object:
    """Return a value that must be an object.

    Raises:
        CorruptError: It is none.
    """
    if not isinstance(value, dict):
        raise CorruptError(message)
    return value


def list_or_empty(value: Any) -> list[Any]:
    """Return a list, or an empty one where there is something else."""
    return value if isinstance(value, list) else []


def parse_number(value: Any) -> float:
    """Return a number, of which infinities and NaN are strings.

    Raises:
        CorruptError: It is none.
    """
    if isinstance(value, str):
        if value not in SPECIAL:
            raise CorruptError(f"a number {value!r:.40}")
        return SPECIAL[value]
    if not isinstance(value, int | float):
        raise CorruptError(f"a number {value!r:.40}")
    return float(value)


def overload_of(target: str) -> str:
    """Return the overload that a target names."""
    parts = target.removeprefix("torch.ops.").split(".")
    return parts[2] if len(parts) > 2 else "default"


def short_name(target: str) -> str:
    """Return a target's name as messages have it."""
    return target.removeprefix("torch.ops.").removesuffix(".default")


def output_name(output: Any) -> str:
    """Return the name of what a node yields; empty where it has none."""
    if not isinstance(output, dict) or len(output) != 1:
        return ""
    ((_, content),) = output.items()
    if isinstance(content, list):
        return output_name({"as_tensor": content[0]}) if content else ""
    name = (content.get("name") or content.get("as_name")) if isinstance(content, dict) else None
    return name if isinstance(name, str) else ""


def name_with_module(op: str, metadata: Any) -> str:
    """Return an op, and the module it is of: the stack is ``key,path,class`` from the outermost."""
    stack = metadata.get("nn_module_stack") if isinstance(metadata, dict) else None
    innermost = stack.rpartition(";")[2].split(",") if isinstance(stack, str) else []
    path = innermost[1] if len(innermost) == 3 and innermost[0].startswith("L__self__") else ""
    return f"{op} in {path}" if path else op


def all_names(outputs: Sequence[Any]) -> set[str]:
    """Return the names of the values that outputs hold."""
    return {name for output in outputs for name in value_names(output)}


def value_names(content: Any) -> Iterator[str]:
    """Yield names of values inside an argument."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key in ("name", "as_name") and isinstance(value, str):
                yield value
            elif key != "as_graph":
                yield from value_names(value)
    elif isinstance(content, list):
        for one in content:
            yield from value_names(one)
