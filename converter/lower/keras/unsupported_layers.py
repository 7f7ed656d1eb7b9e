"""Layers of a Keras model that lowering does not support."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from converter.lower.keras.model import Layer, Model
from converter.lower.keras.table import (
    IGNORED,
    IGNORED_ENDINGS,
    LAYERS,
    Unsupported,
    is_authors,
    table_of,
)
from converter.lower.keras.trusted import Modules
from converter.lower.keras.weight_mapping import Path, layers_of
from converter.lower.unsupported import Finding, report
from formats.keras.variable_names import quantization

# What holds a Lambda's code, and says nothing to a person.
CODE = {
    ("Lambda", key)
    for key in (
        "function", "function_type", "module", "output_shape", "output_shape_type",
        "output_shape_module", "own_mask", "setting",
    )
}  # fmt: skip
# Families whose rows are asked more about a layer; importing them takes longer than most models do.
LAMBDAS, QUANTIZED = f"{__package__}.lambdas", f"{__package__}.quantized"
SHOWN = 60  # characters of an argument


def why_not(config: Mapping[str, Any]) -> str | None:
    """Return why a Lambda's function cannot be read, or None where it can."""
    from converter.lower.keras.lambdas import closure_of, function_name

    function = config.get("function")
    try:
        name = function_name(function)
        if name is not None:
            return f"its function {name} is not in the file"
        closure_of(function)
    except Unsupported as gap:
        return str(gap)
    return None


def find_unsupported(model: Model, modules: Modules) -> Iterator[Finding]:
    """Yield layers and arguments that neither the table nor a trusted module has."""
    for path, layer in layers_of(model):
        if layer.class_name == "InputLayer":
            continue
        row = modules.row(layer)
        if row is None:
            if modules.class_of(layer) is None:
                yield _describe(layer, path)
            continue
        why = why_not(layer.config) if row.module == LAMBDAS else None
        if why is not None:
            yield _describe(layer, path, why)
            continue
        for name in row.unknown(modules.arguments(layer)):
            yield Finding(f"Keras {layer.class_name}", "/".join(path), f"argument {name}")
        mode = quantization(layer.config.get("dtype"))
        if mode and row.module != QUANTIZED:
            reason = f"{mode} quantisation"
            yield Finding(f"Keras {layer.class_name}", "/".join(path), reason)


def _describe(layer: Layer, path: Path, why: str | None = None) -> Finding:
    """Return the finding for a layer without a handler: with its near match and arguments."""
    table = table_of(layer.module)
    details = [why] if why else []
    if is_authors(layer.module):
        subject = f"layer class {layer.class_name} of {layer.module}"
    else:
        kind = "layer class" if table is LAYERS else "operation"
        subject = f"Keras {kind} {layer.class_name}"
        near = get_close_matches(layer.class_name, table, 1)
        if near and layer.class_name != "Lambda":
            details.append(f"near match {near[0]}")
    details += [
        f"{key}={shorten(value)}"
        for key, value in layer.config.items()
        if value is not None
        and value != {}
        and key not in IGNORED
        and not key.endswith(IGNORED_ENDINGS)
        and (layer.class_name, key) not in CODE
    ]
    return Finding(subject, "/".join(path), detail=", ".join(details))


def report_unsupported(findings: Iterable[Finding]) -> None:
    """Raise all findings as one error, if there are any, with what a trusted module can supply.

    Raises:
        UnsupportedError: There is a finding.
    """
    found = list(findings)
    code = ("layer class", "Keras Lambda")
    is_code = any(
        any(words in f.subject for words in code) or f.reason.startswith(("activation ", "cell "))
        for f in found
    )
    hint = "trust=['MODULE=PATH'] supplies lowerings, or Keras's own classes and functions"
    report(found, hint if is_code else None)


def shorten(value: Any) -> str:
    """Return an argument for a message."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
