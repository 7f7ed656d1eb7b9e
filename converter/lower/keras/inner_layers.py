"""Layers inside other layers: the layer in a wrapper is called as if it were on its own."""

from collections.abc import Mapping
from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.table import (
    Masked,
    Roles,
    Unsupported,
    compute_dtype,
    policy_dtype,
    row_of,
)
from converter.lower.values import Value


def call_layer(
    op: Builder, w: Roles, entry: Any, *tensors: Value, mask: Value | None = None, **given: Any
) -> Any:
    """Call a layer that a configuration holds in its serialised form.

    Args:
        op: Builder.
        w: The weights of that layer, by role.
        entry: ``class_name`` and ``config``, normalized.
        tensors: Inputs of the call.
        mask: Mask of the first of them.
        given: Other arguments of the call.

    Returns:
        What its handler returns: a `Masked` where it decides about the mask itself.

    Raises:
        Unsupported: We do not have it, or an argument of it.
    """
    if not isinstance(entry, Mapping) or not isinstance(entry.get("config"), Mapping):
        raise Unsupported("a wrapped layer without a configuration")
    name, config = str(entry.get("class_name")).rpartition(">")[2], entry["config"]
    row = row_of(entry.get("module"), name)
    if op.supplies is not None:
        layer, row = op.supplies.layer(entry)
        if row is None:
            found = op.supplies.inside(op, w, layer, tensors, mask, given)
            if found is not None:
                return found
    if row is None or not row.is_layer:
        raise Unsupported(f"layer class {name} inside it")
    if unknown := row.unknown(config):
        raise Unsupported(f"argument {', '.join(unknown)} of {name} inside it")
    dtype = compute_dtype(config) or w.dtype
    roles = Roles(op, f"{w.layer}/{name}", w.tensors, dtype, policy_dtype(config))
    values = [op.cast(v, dtype) if dtype and v.is_float else v for v in tensors]
    settings = row.known(config) | given
    if row.takes_mask:
        settings["mask"] = mask
    if row.takes_structure:
        settings["structure"] = values if len(values) > 1 else values[0]
    result = row.handler(op, roles, *values, **settings)
    if isinstance(result, Masked) or mask is None or row.mask == "drop":
        return result
    return Masked(result, mask)
