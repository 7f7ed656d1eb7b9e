"""What a model asks for and we lack: named with its place and arguments, all of it in one error."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from converter.lower.keras import quantized
from converter.lower.keras.model import Layer, Model
from converter.lower.keras.owners import Path, layers_of
from converter.lower.keras.table import (
    IGNORED,
    IGNORED_ENDINGS,
    LAYERS,
    Gap,
    is_authors,
    table_of,
)
from converter.lower.keras.trusted import Modules
from formats.errors import UnsupportedError
from formats.keras.variable_names import quantization

# What holds a Lambda's code, and says nothing to a person.
CODE = {
    ("Lambda", key)
    for key in (
        "function", "function_type", "module", "output_shape", "output_shape_type",
        "output_shape_module", "own_mask", "setting",
    )
}  # fmt: skip
SHOWN = 60  # characters of an argument


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that a model asks for and we lack.

    Attributes:
        what: It, by the same words in every model.
        text: It, with its place and arguments in this one.
    """

    what: str
    text: str

    def __str__(self) -> str:
        return self.text


def why_not(config: Mapping[str, Any]) -> str | None:
    """Return why a Lambda's function cannot be read, or None where it can."""
    from converter.lower.keras.lambdas import closure_of, named_function

    function = config.get("function")
    try:
        name = named_function(function)
        if name is not None:
            return f"its function {name} is not in the file"
        closure_of(function)
    except Gap as gap:
        return str(gap)
    return None


def gaps_of(model: Model, modules: Modules) -> Iterator[Lack]:
    """Yield what neither the table nor a trusted module has."""
    for path, layer in layers_of(model):
        if layer.class_name == "InputLayer":
            continue
        row = modules.row(layer)
        if row is None:
            if modules.class_of(layer) is None:
                yield _lacking(layer, path)
            continue
        why = why_not(layer.config) if row is LAYERS.get("Lambda") else None
        if why is not None:
            yield _lacking(layer, path, why)
            continue
        for name in row.unknown(modules.arguments(layer)):
            text = f"argument {name} of {layer.class_name}"
            yield Lack(f"Keras {text}", f"{text} ({'/'.join(path)})")
        mode = quantization(layer.config.get("dtype"))
        if mode and row.module != quantized.__name__:
            text = f"{mode} quantisation of {layer.class_name}"
            yield Lack(f"Keras {text}", f"{text} ({'/'.join(path)})")


def _lacking(layer: Layer, path: Path, why: str | None = None) -> Lack:
    """Return a layer that nobody has: what it is, where, with which arguments, and why."""
    table = table_of(layer.module)
    kind = "layer class" if table is LAYERS else "operation"
    near: list[str] = []
    if is_authors(layer.module):
        kind, name = "layer class", f"{layer.class_name} of {layer.module}"
    else:
        name = layer.class_name
        near = get_close_matches(name, table, 1)
    what = f"{'' if is_authors(layer.module) else 'Keras '}{kind} {name}"
    hint = f", near match {near[0]}" if near else ""
    if layer.class_name == "Lambda":
        name, hint = "Lambda, whose code is never run,", ""
    arguments = ", ".join(
        f"{key}={shortened(value)}"
        for key, value in layer.config.items()
        if value is not None
        and value != {}
        and key not in IGNORED
        and not key.endswith(IGNORED_ENDINGS)
        and (layer.class_name, key) not in CODE
    )
    text = f"{kind} {name} ({'/'.join(path)}{hint})" + (f" with {arguments}" if arguments else "")
    return Lack(what, f"{text}: {why}" if why else text)


def shortened(value: Any) -> str:
    """Return an argument for a message."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def report(gaps: Sequence[Lack]) -> None:
    """Raise what there is of gaps, each with its count.

    Raises:
        UnsupportedError: There are any.
    """
    if not gaps:
        return
    counts = Counter(gap.text for gap in gaps)
    listed = "; ".join(f"{gap} x{n}" if n > 1 else gap for gap, n in counts.items())
    hint = None
    named = ("layer class", "activation '", "cell ")
    if any(gap.startswith(named) or "(Lambda " in gap for gap in counts):
        hint = "trust=['MODULE=PATH'] supplies lowerings, or Keras's own classes and functions"
    kinds = tuple(Counter(gap.what for gap in gaps).items())
    raise UnsupportedError(f"{len(gaps)} gaps: {listed}", hint=hint, gaps=kinds)
